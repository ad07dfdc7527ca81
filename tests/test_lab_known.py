"""The models of chapter 7's table: counts against built modules and published totals."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rnj import RNJ_1_5, accounting
from rnj.lab import known


def test_the_original_transformer_is_torchs_without_what_it_lacks():
    """torch's module has biases in attention and a norm after each stack; embedding and head it has not."""
    base = known.TRANSFORMER_BASE
    sizes = {"num_encoder_layers": 6, "num_decoder_layers": 6, "dim_feedforward": 2048}
    module = nn.Transformer(512, 8, **sizes, device="meta", dtype=torch.float32)
    named = dict(module.named_parameters())
    lacking = ("in_proj_bias", "out_proj.bias", "encoder.norm.weight", "encoder.norm.bias", "decoder.norm.weight",
               "decoder.norm.bias")  # fmt: skip
    kept = sum(p.numel() for name, p in named.items() if not name.endswith(lacking))
    assert base.parameters() == kept + 37_000 * 512 == 63_045_632
    assert base.parameters() == pytest.approx(known.TRANSFORMER_BASE_PUBLISHED, rel=0.04)
    assert base.kv_cache_bytes(1) == 6 * 2 * 512 * 2


def test_counts_that_are_published():
    counts = {model.name: model.parameters() for model in known.table()}
    assert counts["GPT-2 XL"] == 1_557_611_200 and counts["GPT-2 small"] == 124_439_808
    assert counts["GPT-3 175B"] == 174_604_259_328
    assert counts["Rnj 1.0"] == counts["Rnj 1.5"] == accounting.parameters(RNJ_1_5).total


def test_every_model_of_the_chapter_is_there_once_in_order():
    names = [model.name for model in known.table()]
    wanted = (
        "Transformer base",
        "GPT-2",
        "GPT-3",
        "Llama 2",
        "Llama 3 ",
        "Llama 3.1",
        "Gemma 3",
        "Qwen 3",
        "Rnj 1.0",
        "Rnj 1.5",
    )
    assert len(set(names)) == len(names) and all(any(n.startswith(w) for n in names) for w in wanted)
    years = [model.year for model in known.table()]
    assert years == sorted(years) and names[0] == "Transformer base" and names[-1] == "Rnj 1.5"
    assert known.RNJ[0].context == 32_768 and known.RNJ[1].context == 163_840
