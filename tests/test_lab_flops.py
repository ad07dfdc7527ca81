"""The counter, against sizes that are known by hand and against the package's own counting."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import rnj
from rnj import SMALL, TINY, accounting
from rnj.lab.flops import flops


def test_a_matrix_product_is_two_operations_a_multiply():
    assert flops(lambda: torch.ones(3, 5) @ torch.ones(5, 7)) == 2 * 3 * 5 * 7


def test_attention_is_counted_and_not_taken_for_nothing():
    q = torch.ones(1, 2, 8, 4)
    assert flops(lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True)) == 2 * (2 * 2 * 8 * 8 * 4)


def test_a_decoding_step_is_what_accounting_says():
    model = rnj.build(SMALL, seed=0)
    tokens = torch.randint(SMALL.vocab_size, (1, 300), generator=torch.Generator().manual_seed(0))
    cache = rnj.KVCache(SMALL, max_length=300)
    with torch.inference_mode():
        model(tokens[:, :254], cache=cache)
        for position in range(254, 260):  # over the edge at which local layers drop a block
            step = tokens[:, position : position + 1]
            counted = flops(model, step, cache=cache, last_only=True)
            assert counted == accounting.decode_flops(SMALL, position)


def test_training_is_three_times_the_forward_pass():
    model = rnj.build(TINY, seed=0)
    tokens = torch.arange(2 * TINY.block_size)[None]  # shorter than a local layer's span: nothing is masked away
    forward = flops(lambda: model(tokens))
    assert forward == accounting.forward_flops(TINY, tokens.numel(), "no causal half")
    assert flops(lambda: model(tokens).sum().backward()) == 3 * forward
