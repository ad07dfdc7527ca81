"""The rotation: its layout, YaRN's table, the attention factor, and precision far out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import rnj
from rnj import RNJ_1_5, TINY, Config
from rnj.yarn import angles, correction_range, cos_sin, inv_freq, ramp, rotate
from tests import reference
from tests.common import largest_difference, random

PLAIN = replace(RNJ_1_5, rope_type="default", rope_factor=1.0)
FAST_32 = replace(RNJ_1_5, beta_fast=32.0)


def at(*positions: int) -> Tensor:
    return torch.tensor([positions])


# --- layout -----------------------------------------------------------------------------------------------------------


def test_half_split_pairs() -> None:
    """Pairs (i, i + H/2). Interleaved pairs would agree at position 0 only."""
    config = replace(TINY, head_dim=4, rope_type="default", rope_factor=1.0, rope_theta=10_000.0)
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4)
    assert rotate(x, *cos_sin(at(1), config)).flatten().tolist() == pytest.approx(
        [-1.984111, 1.959901, 2.462378, 4.019800], abs=1e-6
    )


def test_position_zero_only_stretches() -> None:
    x = random(1, 1, 3, TINY.head_dim)
    m = TINY.rope_multiplier
    assert m == pytest.approx(0.1 * math.log(4) + 1)
    assert largest_difference(rotate(x, *cos_sin(at(0), TINY)), x * m) < 1e-6


def test_interleaved_weights_need_the_permutation() -> None:
    """The two layouts differ by one fixed reordering of each head, and by nothing else."""
    config = replace(TINY, rope_type="default", rope_factor=1.0)
    half = config.head_dim // 2
    x, (cos, sin) = random(1, 5, 2, config.head_dim), cos_sin(at(0, 3, 7, 20, 400), config)
    to_halves = torch.tensor([*range(0, config.head_dim, 2), *range(1, config.head_dim, 2)])
    even, odd = x[..., 0::2], x[..., 1::2]
    c, s = cos[:, :, None], sin[:, :, None]
    interleaved = torch.stack([even * c - odd * s, odd * c + even * s], dim=-1).flatten(-2)
    assert half == len(cos[0, 0])
    assert largest_difference(rotate(x[..., to_halves], cos, sin), interleaved[..., to_halves]) < 1e-6
    assert largest_difference(rotate(x, cos, sin)[:, 1:], interleaved[:, 1:]) > 0.1


def test_against_the_reference() -> None:
    x, positions = random(1, 4, 3, TINY.head_dim), [0, 1, 77, 2000]
    turned = rotate(x, *cos_sin(at(*positions), TINY))
    expected = [[reference.rotate(TINY, head, p) for head in x[0, i].double().numpy()] for i, p in enumerate(positions)]
    assert largest_difference(turned[0], expected) < 2e-4  # float32 angles at position 2,000


def test_each_row_has_its_own_positions() -> None:
    cos, sin = cos_sin(torch.tensor([[0, 1, 2], [5, 0, 9]]), TINY)
    assert cos.shape == sin.shape == (2, 3, TINY.head_dim // 2)
    assert torch.equal(cos[1, 0], cos_sin(at(5), TINY)[0][0, 0])
    assert torch.equal(sin[1, 1], sin[0, 0])


def test_shift_of_both_positions_leaves_scores() -> None:
    q, k = random(1, 1, 1, TINY.head_dim), random(1, 1, 1, TINY.head_dim, seed=1)

    def score(q_at: int, k_at: int) -> float:
        return float((rotate(q, *cos_sin(at(q_at), TINY)) * rotate(k, *cos_sin(at(k_at), TINY))).sum())

    assert score(9, 4) == pytest.approx(score(309, 304), abs=1e-3)
    assert abs(score(9, 4) - score(9, 5)) > 1e-2  # while the distance counts


# --- the table --------------------------------------------------------------------------------------------------------


def test_correction_range() -> None:
    assert correction_range(RNJ_1_5) == pytest.approx((20.9445, 49.8434), abs=1e-4)
    assert correction_range(FAST_32) == pytest.approx((25.7610, 49.8434), abs=1e-4)


def test_table_of_the_model() -> None:
    table, plain = inv_freq(RNJ_1_5), inv_freq(PLAIN)
    assert table.shape == (64,) and table.dtype == torch.float32
    assert table[0] == plain[0] == 1.0
    assert table[63].item() == pytest.approx(5.7739094e-06, rel=1e-6)
    assert 2 * math.pi / table[63].item() == pytest.approx(1_088_203, abs=1)
    ratio = plain / table
    assert ratio[0] == 1 and ratio[63].item() == pytest.approx(20, rel=1e-6)
    assert (ratio.diff() >= -1e-5).all()


@pytest.mark.parametrize("factor", [1.0, 4.0, 20.0])
@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("beta_fast", [32.0, 64.0])
def test_table_against_the_reference(factor: float, truncate: bool, beta_fast: float) -> None:
    config = replace(RNJ_1_5, rope_factor=factor, truncate=truncate, beta_fast=beta_fast)
    expected = torch.tensor(reference.frequencies(config), dtype=torch.float64)
    assert ((inv_freq(config).double() - expected) / expected).abs().max() < 1e-6


def test_ramp_keeps_the_fast_and_slows_the_slow() -> None:
    keep = ramp(RNJ_1_5)
    assert keep.shape == (64,) and keep.dtype == torch.float32
    assert (keep[:21] == 1).all() and (keep[50:] == 0).all()  # 20.94 floored, 49.84 ceiled
    assert keep[21] < 1 and keep[49] > 0
    assert keep[35].item() == pytest.approx(1 - (35 - 20) / 30, abs=1e-6)
    assert (keep.diff() <= 0).all()


def test_ramp_without_rounding() -> None:
    keep = ramp(replace(RNJ_1_5, truncate=False))
    low, high = correction_range(RNJ_1_5)
    assert keep[21].item() == pytest.approx(1 - (21 - low) / (high - low), abs=1e-6)
    assert keep[49].item() == pytest.approx((high - 49) / (high - low), abs=1e-6)


def test_beta_fast_bounds_the_fast_end() -> None:
    assert ramp(RNJ_1_5).tolist() != ramp(FAST_32).tolist()
    assert (ramp(FAST_32)[:26] == 1).all() and ramp(FAST_32)[26] < 1


def test_ramp_stays_among_the_pairs() -> None:
    """An original length so short or a theta so small that both ends fall outside, or on one pair."""
    for length, theta in [(7, 10_000.0), (100, 1.5), (100, 1e9)]:
        table = inv_freq(replace(TINY, original_max_positions=length, rope_theta=theta, rope_factor=4.0))
        plain = inv_freq(replace(TINY, rope_theta=theta, rope_type="default", rope_factor=1.0))
        assert table.isfinite().all()
        assert (table <= plain * (1 + 1e-6)).all() and (table >= plain / 4 * (1 - 1e-6)).all()


def test_step_where_both_ends_meet() -> None:
    config = replace(TINY, original_max_positions=5, rope_factor=4.0)  # shorter than one turn: both ends clamp to 0
    table, plain = inv_freq(config), inv_freq(replace(TINY, rope_type="default", rope_factor=1.0))
    assert reference.frequencies(config) == pytest.approx(table.tolist(), rel=1e-6)
    assert (plain / table)[1:].tolist() == pytest.approx([4.0] * 9, rel=1e-5)


def test_other_types() -> None:
    plain = inv_freq(PLAIN)
    assert plain.tolist() == pytest.approx([10_000 ** (-2 * i / 128) for i in range(64)], rel=1e-6)
    linear = inv_freq(replace(RNJ_1_5, rope_type="linear"))
    assert linear.tolist() == pytest.approx((plain / 20).tolist(), rel=1e-6)
    assert replace(RNJ_1_5, rope_type="linear").rope_multiplier == PLAIN.rope_multiplier == 1.0
    assert inv_freq(replace(RNJ_1_5, rope_factor=1.0)).tolist() == pytest.approx(plain.tolist(), rel=1e-6)


# --- the attention factor ---------------------------------------------------------------------------------------------


def score_of_ones(config: Config) -> float:
    """The score of a unit-length query and key at the same position."""
    x = torch.full((1, 1, 1, config.head_dim), config.head_dim**-0.5)
    turned = rotate(x, *cos_sin(at(123), config))
    return float((turned * turned).sum())


def test_attention_factor_grows_scores_by_its_square() -> None:
    assert RNJ_1_5.rope_multiplier == pytest.approx(1.2995732, abs=1e-7)
    assert score_of_ones(PLAIN) == pytest.approx(1.0, abs=1e-5)
    assert score_of_ones(RNJ_1_5) == pytest.approx(1.6888906, abs=1e-5)


def test_given_attention_factor_replaces_it() -> None:
    assert score_of_ones(replace(RNJ_1_5, attention_factor=1.0)) == pytest.approx(1.0, abs=1e-5)
    assert score_of_ones(replace(RNJ_1_5, attention_factor=2.0)) == pytest.approx(4.0, abs=1e-4)


# --- precision --------------------------------------------------------------------------------------------------------


def exact_angles(config: Config, positions: list[int]) -> Tensor:
    return torch.tensor([[p * f for f in reference.frequencies(config)] for p in positions], dtype=torch.float64)


@pytest.mark.parametrize(("furthest", "tolerance"), [(4_096, 1e-3), (163_839, 2e-2)])
def test_phases_far_out(furthest: int, tolerance: float) -> None:
    """A table rounded to bfloat16 would be off by whole turns."""
    positions = [furthest, furthest - 1, furthest // 2 + 1, furthest // 3]
    got = angles(at(*positions), RNJ_1_5)
    assert got.dtype == torch.float32
    assert largest_difference(got[0], exact_angles(RNJ_1_5, positions)) < tolerance


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_phases_of_a_module_in_any_dtype(dtype: torch.dtype) -> None:
    """Ones at 4,096, turned by a whole model: cosine minus sine and cosine plus sine, to the dtype's own rounding."""
    config = replace(RNJ_1_5, d_model=16, d_ff=16, n_layers=1, layer_types=("local",), n_heads=1, n_kv_heads=1)
    config = replace(config, vocab_size=8, bos_id=0, eos_ids=(1,), pad_id=2, attention_factor=1.0)
    trace = rnj.build(config).to(dtype).trace(torch.tensor([[3]]), at(4_096), at(1))
    x, turned = (trace[f"block.0.attn.{name}"][0, 0, 0].double() for name in ("k_norm", "k_rot"))
    angle = exact_angles(config, [4_096])[0]
    first = x[:64] * angle.cos() - x[64:] * angle.sin()
    second = x[64:] * angle.cos() + x[:64] * angle.sin()
    rounding = {torch.bfloat16: 4e-2, torch.float16: 5e-3, torch.float32: 2e-3}[dtype]
    assert largest_difference(turned, torch.cat([first, second])) < rounding


def test_module_dtype_does_not_reach_the_rotation() -> None:
    """A bfloat16 model turns by the float32 table: its queries are the float32 ones, rounded."""
    built = rnj.build(TINY, seed=0, random_norms=True).bfloat16()
    positions = torch.tensor([[0, 700, 2501, 2559]])
    trace = built.trace(torch.tensor([[3, 1, 4, 1]]), positions, torch.ones_like(positions))
    cos, sin = cos_sin(positions, TINY)
    assert cos.dtype == sin.dtype == torch.float32
    expected = rotate(trace["block.0.attn.q_norm"].float(), cos, sin)
    assert largest_difference(trace["block.0.attn.q_rot"].float(), expected) < 0.05


def test_default_dtype_does_not_reach_the_table() -> None:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)
        assert inv_freq(RNJ_1_5).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)
    assert inv_freq(RNJ_1_5)[63].item() == pytest.approx(5.7739094e-06, rel=1e-6)


def test_table_made_under_the_meta_device_is_real() -> None:
    with torch.device("meta"):
        inv_freq(RNJ_1_5)
    assert inv_freq(RNJ_1_5)[63].item() == pytest.approx(5.7739094e-06, rel=1e-6)


def test_inputs_and_dtype_stay() -> None:
    x, positions = random(1, 3, 2, TINY.head_dim).bfloat16(), at(0, 5, 9)
    before = x.clone()
    cos, sin = cos_sin(positions, TINY)
    assert rotate(x, cos, sin).dtype == torch.bfloat16
    assert torch.equal(x, before) and positions.tolist() == [[0, 5, 9]]


def test_table_cannot_be_spoiled_by_its_caller() -> None:
    """What a caller does to a table must not reach the next one."""
    inv_freq(TINY).mul_(7)
    assert inv_freq(TINY)[0] == 1.0
