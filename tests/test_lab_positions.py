"""Codes for positions that the model does not use: their definitions, and the model's own rotation beside them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import rnj
from rnj import RNJ_1_5, TINY
from rnj.lab import positions as lab
from rnj.yarn import cos_sin, inv_freq, rotate
from tests.common import largest_difference, random


def at(*positions: int) -> Tensor:
    return torch.tensor([positions])


# --- order ------------------------------------------------------------------------------------------------------------

MODEL = rnj.build(TINY, seed=3, random_norms=True)
TOKENS = torch.tensor([[5, 17, 2, 60, 33]])
IN_ORDER, NOWHERE = torch.arange(5)[None], torch.zeros(1, 5, dtype=torch.int64)


def test_stream_is_the_models_own() -> None:
    stream = lab.residual_stream(MODEL, TOKENS, IN_ORDER, IN_ORDER)
    trace = MODEL.trace(TOKENS)
    assert stream.shape == (TINY.n_layers + 1, 1, 5, TINY.d_model)
    assert torch.equal(stream[0], trace["embed"])
    for layer in range(TINY.n_layers):
        assert torch.equal(stream[layer + 1], trace[f"block.{layer}.out"])


def test_without_positions_a_permutation_only_permutes() -> None:
    order = torch.tensor([3, 0, 4, 1, 2])
    plain = lab.residual_stream(MODEL, TOKENS, NOWHERE, NOWHERE)
    shuffled = lab.residual_stream(MODEL, TOKENS[:, order], NOWHERE, NOWHERE)
    assert largest_difference(shuffled, plain[:, :, order]) < 1e-4
    turned = lab.residual_stream(MODEL, TOKENS[:, order], IN_ORDER, NOWHERE)
    assert largest_difference(turned, lab.residual_stream(MODEL, TOKENS, IN_ORDER, NOWHERE)[:, :, order]) > 0.1


def test_what_a_causal_mask_alone_sees() -> None:
    """After one block the set of earlier tokens; from the second block on their order as well."""
    order = torch.tensor([2, 0, 3, 1, 4])  # the last token stays last
    plain = lab.residual_stream(MODEL, TOKENS, NOWHERE, IN_ORDER)[:, 0, -1]
    shuffled = lab.residual_stream(MODEL, TOKENS[:, order], NOWHERE, IN_ORDER)[:, 0, -1]
    assert largest_difference(shuffled[1], plain[1]) < 1e-4
    assert largest_difference(shuffled[2], plain[2]) > 0.1


# --- sinusoidal -------------------------------------------------------------------------------------------------------


def test_sinusoidal_code() -> None:
    code = lab.sinusoidal(torch.tensor([0, 7]), 6)
    assert code.shape == (2, 6) and code.dtype == torch.float32
    assert code[0].tolist() == [0, 1, 0, 1, 0, 1]
    expected = [f(7 / 10_000 ** (2 * i / 6)) for i in range(3) for f in (math.sin, math.cos)]
    assert code[1].tolist() == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ValueError, match="width must be even"):
        lab.sinusoidal(torch.tensor([0]), 5)


@pytest.mark.parametrize("shift", [-9, 0, 1, 400])
def test_shift_is_linear(shift: int) -> None:
    positions = torch.tensor([0, 3, 77, 5_000])
    moved = lab.sinusoidal(positions, 20) @ lab.shift_matrix(shift, 20).T
    assert largest_difference(moved, lab.sinusoidal(positions + shift, 20)) < 1e-6


# --- ALiBi ------------------------------------------------------------------------------------------------------------


def test_alibi_slopes() -> None:
    assert lab.alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    assert lab.alibi_slopes(6).tolist() == [2.0**-i for i in (2, 4, 6, 8, 1, 3)]  # as the authors' code has it
    assert lab.alibi_slopes(1).tolist() == [2.0**-8]
    with pytest.raises(ValueError, match="n_heads"):
        lab.alibi_slopes(0)


def test_alibi_bias() -> None:
    bias = lab.alibi_bias(at(4, 9), at(0, 4, 7), 8)
    assert bias.shape == (1, 8, 2, 3)
    assert bias[0, 0].tolist() == [[-2, 0, 1.5], [-4.5, -2.5, -1]]
    assert bias[0, 7, 1].tolist() == pytest.approx([-9 / 256, -5 / 256, -2 / 256])


# --- layouts ----------------------------------------------------------------------------------------------------------


def test_interleaved_is_half_split_in_another_order() -> None:
    x, (cos, sin) = random(1, 5, 2, TINY.head_dim), cos_sin(at(0, 3, 7, 20, 400), TINY)
    order = lab.to_halves(TINY.head_dim)
    assert order[:3].tolist() == [0, 2, 4] and sorted(order.tolist()) == list(range(TINY.head_dim))
    assert torch.equal(lab.rotate_interleaved(x, cos, sin)[..., order], rotate(x[..., order], cos, sin))
    assert largest_difference(lab.rotate_interleaved(x, cos, sin)[:, 1:], rotate(x, cos, sin)[:, 1:]) > 0.1


# --- scores by distance -----------------------------------------------------------------------------------------------


def test_scores_by_distance() -> None:
    q, k = random(TINY.head_dim), random(TINY.head_dim, seed=1)
    distances = torch.tensor([0, 1, 50, 600])
    scores = {code: lab.score_by_distance(q, k, distances, TINY, code) for code in ("none", "rope", "alibi", "yarn")}
    content = (q @ k).item() * TINY.scale
    assert scores["none"].tolist() == pytest.approx([content] * 4)
    assert scores["rope"][0].item() == pytest.approx(content, abs=1e-4)
    assert scores["yarn"][0].item() == pytest.approx(content * TINY.rope_multiplier**2, abs=1e-4)
    assert scores["alibi"].tolist() == pytest.approx([content - d / 256 for d in distances.tolist()])
    for code in ("rope", "alibi", "yarn"):  # relative: where the query stands makes no difference
        elsewhere = lab.score_by_distance(q, k, distances, TINY, code, furthest=1_000)
        assert largest_difference(elsewhere, scores[code]) < 2e-3
    absolute = [lab.score_by_distance(q, k, distances, TINY, "sinusoidal", furthest=p) for p in (600, 1_000)]
    assert largest_difference(*absolute) > 0.05
    with pytest.raises(ValueError, match="code"):
        lab.score_by_distance(q, k, distances, TINY, "learned")


# --- angles -----------------------------------------------------------------------------------------------------------


def test_angles_never_visited() -> None:
    plain = lab.plain(RNJ_1_5)
    assert plain.rope_multiplier == 1 and inv_freq(plain)[-1].item() == pytest.approx(10_000 ** (-126 / 128))
    turns = lab.turns(plain, 8192)
    assert turns[0].item() == pytest.approx(8191 / (2 * math.pi))
    assert turns[63].item() == pytest.approx(0.15056, abs=1e-4)
    by_rope = lab.share_never_visited(plain, 163_840, plain, 8192)
    by_yarn = lab.share_never_visited(RNJ_1_5, 163_840, plain, 8192)
    assert (by_rope[:50] == 0).all() and (by_rope[50:] > 0).all()
    assert by_rope[63].item() == pytest.approx(1 - turns[63].item())
    assert by_yarn.max() < 2e-4  # a position more or less
    assert lab.share_never_visited(plain, 8192, plain, 8192).max() == 0


def test_inputs_stay() -> None:
    x, (cos, sin) = random(1, 2, 1, TINY.head_dim), cos_sin(at(1, 2), TINY)
    before = x.clone()
    lab.rotate_interleaved(x, cos, sin)
    lab.score_by_distance(x[0, 0, 0], x[0, 1, 0], torch.tensor([0, 3]), replace(TINY, rope_factor=2.0), "yarn")
    assert torch.equal(x, before)
