"""One attention layer: its shapes, its norms before the rotation, its grouping, its scale."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rnj import TINY, Config
from rnj.attention import Attention
from rnj.core_attention import Rows
from rnj.trace import into
from rnj.yarn import cos_sin, rotate
from tests.common import largest_difference, packed_row, random

LOCAL, GLOBAL = 0, 1  # the first two layers of TINY
T = 23


def layer(config: Config = TINY, index: int = LOCAL, seed: int = 0) -> Attention:
    torch.manual_seed(seed)
    made = Attention(config, index)
    with torch.no_grad():
        for norm in (made.q_norm, made.k_norm):
            norm.weight.normal_(0, 0.5)
    return made


def run(made: Attention, x: Tensor, rows: Rows, config: Config = TINY, explicit: bool = True) -> dict[str, Tensor]:
    """Every note of one pass."""
    trace: dict[str, Tensor] = {}
    y = made(x, *cos_sin(rows.positions, config), rows, explicit=explicit, note=into(trace))
    assert torch.equal(y, trace["out"])
    return trace


def test_parameters() -> None:
    """6 query heads of 20 on a stream of 48: N · H is not D, and there are no biases."""
    shapes = {name: tuple(weight.shape) for name, weight in layer().named_parameters()}
    assert shapes == {
        "q_proj.weight": (120, 48),
        "k_proj.weight": (40, 48),
        "v_proj.weight": (40, 48),
        "o_proj.weight": (48, 120),
        "q_norm.weight": (20,),
        "k_norm.weight": (20,),
    }
    assert list(layer().buffers()) == []


def test_notes_and_their_shapes() -> None:
    trace = run(layer(), random(2, T, 48), Rows.plain(2, T))
    shapes = {name: tuple(tensor.shape) for name, tensor in trace.items()}
    q, k = (2, T, 6, 20), (2, T, 2, 20)
    assert shapes == {
        **{"q": q, "k": k, "v": k, "q_norm": q, "k_norm": k, "q_rot": q, "k_rot": k},
        **{"allowed": (2, T, T), "scores": (2, 6, T, T), "weights": (2, 6, T, T), "heads": q, "out": (2, T, 48)},
    }
    assert set(shapes) - set(run(layer(), random(2, T, 48), Rows.plain(2, T), explicit=False)) == {
        "allowed",
        "scores",
        "weights",
    }


def test_a_head_is_a_run_of_neighbouring_rows() -> None:
    """Head n is rows n·H … (n+1)·H of the projection: `view`, not `transpose`, cuts them apart."""
    made, x = layer(), random(2, T, 48)
    trace = run(made, x, Rows.plain(2, T))
    assert largest_difference(trace["q"][1, 7, 4], made.q_proj.weight[80:100] @ x[1, 7]) < 1e-5
    assert largest_difference(trace["k"][1, 7, 1], made.k_proj.weight[20:40] @ x[1, 7]) < 1e-5
    assert largest_difference(trace["v"][1, 7, 1], made.v_proj.weight[20:40] @ x[1, 7]) < 1e-5


def test_concatenated_heads_and_one_projection() -> None:
    """One projection of all heads equals the sum of the heads' own projections."""
    made = layer()
    trace = run(made, random(2, T, 48), Rows.plain(2, T))
    own = made.o_proj.weight.view(48, 6, 20)
    assert largest_difference(trace["out"], torch.einsum("DNH,BTNH->BTD", own, trace["heads"])) < 1e-5


def test_queries_and_keys_are_normalised_per_head_before_the_rotation() -> None:
    made, rows = layer(), Rows.plain(2, T)
    trace = run(made, random(2, T, 48), rows)
    cos, sin = cos_sin(rows.positions, TINY)
    for name in ("q", "k"):
        norm = made.get_submodule(f"{name}_norm")
        x = trace[name]
        by_hand = x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * (1 + norm.weight)
        assert largest_difference(trace[f"{name}_norm"], by_hand) < 1e-5
        assert torch.equal(trace[f"{name}_rot"], rotate(trace[f"{name}_norm"], cos, sin))
    # The weights differ within a pair, so the order counts.
    assert largest_difference(trace["q_rot"], made.q_norm(rotate(trace["q"], cos, sin))) > 0.1


def test_query_and_key_norms_are_two() -> None:
    made, x = layer(), random(1, T, 48)
    swapped = layer()
    swapped.q_norm, swapped.k_norm = made.k_norm, made.q_norm
    a, b = (run(m, x, Rows.plain(1, T))["q_rot"] for m in (made, swapped))
    assert largest_difference(a, b) > 0.1


@pytest.mark.parametrize(("scalar", "scale"), [(24.0, 24**-0.5), (None, 20**-0.5), (5.0, 5**-0.5)])
def test_scale(scalar: float | None, scale: float) -> None:
    """From query_pre_attn_scalar or from head_dim, never from d_model / n_heads, which is 8."""
    config = replace(TINY, query_pre_attn_scalar=scalar)
    trace = run(layer(config), random(1, T, 48), Rows.plain(1, T), config)
    q, k = trace["q_rot"], trace["k_rot"]
    assert largest_difference(trace["scores"][0, 5, 9, 3], scale * (q[0, 9, 5] @ k[0, 3, 1])) < 1e-5


def test_head_n_reads_key_head_n_over_g() -> None:
    trace = run(layer(), random(1, T, 48), Rows.plain(1, T))
    for n, shared in enumerate([0, 0, 0, 1, 1, 1]):
        by_hand = trace["q_rot"][0, :, n] @ trace["k_rot"][0, :, shared].T * TINY.scale
        assert largest_difference(trace["scores"][0, n], by_hand) < 1e-5
        heads = trace["weights"][0, n] @ trace["v"][0, :, shared]
        assert largest_difference(trace["heads"][0, :, n], heads) < 1e-5


def test_values_are_neither_normalised_nor_rotated() -> None:
    trace = run(layer(), random(1, 1, 48), Rows.plain(1, 1))
    assert torch.equal(trace["heads"][0, 0, 5], trace["v"][0, 0, 1])  # a lone token takes its own value


def test_layer_type_decides_the_mask() -> None:
    rows = Rows.plain(1, T)
    local, everything = (run(layer(index=i), random(1, T, 48), rows)["allowed"][0] for i in (LOCAL, GLOBAL))
    assert local[22].nonzero().flatten().tolist() == list(range(10, 23))  # C 5, lookback 2
    assert everything[22].all()


@pytest.mark.parametrize("index", [LOCAL, GLOBAL])
@pytest.mark.parametrize("rows", ["plain", "packed"])
def test_explicit_and_fast_agree(index: int, rows: str) -> None:
    positions, segments = packed_row(4, 17, padding=2)
    where = Rows.plain(1, T) if rows == "plain" else Rows(positions, segments, positions)
    made, x = layer(index=index), random(1, T, 48).requires_grad_()
    results = []
    for explicit in (True, False):
        y = made(x, *cos_sin(where.positions, TINY), where, explicit=explicit)
        results.append([y, *torch.autograd.grad((y * random(1, T, 48, seed=5)).sum(), [x, *made.parameters()])])
    assert max(largest_difference(a, b) for a, b in zip(*results, strict=True)) < 5e-5


def test_inputs_stay_as_they_were() -> None:
    rows = Rows.plain(1, T)
    inputs = [random(1, T, 48), *cos_sin(rows.positions, TINY)]
    before = [tensor.clone() for tensor in inputs]
    layer()(*inputs, rows)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(4, 4), (4, 1), (4, 2)])
def test_multi_head_multi_query_and_between(n_heads: int, n_kv_heads: int) -> None:
    config = replace(TINY, n_heads=n_heads, n_kv_heads=n_kv_heads)
    for index in (LOCAL, GLOBAL):
        made, x, rows = layer(config, index), random(1, T, 48), Rows.plain(1, T)
        explicit, fast = (run(made, x, rows, config, explicit=e)["heads"] for e in (True, False))
        assert explicit.shape == (1, T, n_heads, 20)
        assert largest_difference(explicit, fast) < 1e-5
