"""The tiled online softmax against the explicit form: values, gradients, order, blind rows, bytes."""

from __future__ import annotations

import math

import pytest
import torch

from rnj.core_attention import attend_explicit
from rnj.lab import online_softmax as online

T, S, H, SCALE = 7, 23, 6, 0.4


def example(dtype: torch.dtype = torch.float64, spread: float = 1.0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(n, H, generator=generator, dtype=dtype) * spread for n in (T, S, S))
    allowed = torch.rand(T, S, generator=generator) < 0.4
    allowed[2] = False  # a row with nothing to look at
    allowed[3, :10] = False  # whole tiles hidden before the first key
    return q, k, v, allowed


def explicit(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    return attend_explicit(q[None, :, None], k[None, :, None], v[None, :, None], allowed[None], SCALE)[0, :, 0]


@pytest.mark.parametrize("tile", [1, 2, 5, 23, 40])
def test_tiles_give_the_explicit_values(tile: int) -> None:
    q, k, v, allowed = example()
    out, _ = online.attend_tiled(q, k, v, allowed, SCALE, tile)
    torch.testing.assert_close(out, explicit(q, k, v, allowed), rtol=0, atol=1e-15)
    assert not out[2].any()


def test_huge_scores_do_not_overflow() -> None:
    q, k, v, allowed = example(spread=100.0)
    out, _ = online.attend_tiled(q, k, v, allowed, SCALE, 4)
    assert (q @ k.T * SCALE).abs().max() > math.log(torch.finfo(torch.float64).max)
    torch.testing.assert_close(out, explicit(q, k, v, allowed), rtol=1e-13, atol=1e-12)


def test_the_order_of_tiles_does_not_matter() -> None:
    q, k, v, allowed = example()
    *_, there = online.running(q, k, v, allowed, SCALE, 5)
    *_, back = online.running(q, k, v, allowed, SCALE, 5, backwards=True)
    torch.testing.assert_close(there.output(), back.output(), rtol=0, atol=1e-15)
    assert torch.equal(there.maximum, back.maximum)


def test_each_state_is_the_softmax_of_the_keys_so_far() -> None:
    q, k, v, allowed = example()
    states = list(online.running(q, k, v, allowed, SCALE, 5))
    assert len(states) == 1 + math.ceil(S / 5)
    for n, state in enumerate(states):
        so_far = allowed & (torch.arange(S) < 5 * n)
        torch.testing.assert_close(state.output(), explicit(q, k, v, so_far), rtol=0, atol=1e-15)
        scores = (q @ k.T * SCALE).masked_fill(~so_far, float("-inf"))
        torch.testing.assert_close(state.maximum, scores.amax(-1))
        torch.testing.assert_close(state.log_sum_exp(), scores.logsumexp(-1))


@pytest.mark.parametrize("tile", [1, 4, 23])
def test_recomputed_gradients_are_autograds(tile: int) -> None:
    q, k, v, allowed = example()
    wanted = [x.clone().requires_grad_() for x in (q, k, v)]
    out = explicit(*wanted, allowed)
    grad_out = torch.randn(T, H, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    out.backward(grad_out)
    tiled, log_sum_exp = online.attend_tiled(q, k, v, allowed, SCALE, tile)
    grads = online.backward_tiled(q, k, v, allowed, SCALE, tile, tiled, log_sum_exp, grad_out)
    for grad, x in zip(grads, wanted, strict=True):
        torch.testing.assert_close(grad, x.grad, rtol=0, atol=1e-14)


def test_no_tensor_is_wider_than_a_tile() -> None:
    from rnj.lab.sizes import made

    q, k, v, allowed = example()
    shapes = [m.shape for m in made(lambda: online.attend_tiled(q, k, v, allowed, SCALE, 5))]
    assert (T, S) not in shapes and (T, 5) in shapes


@pytest.mark.parametrize("tile", [2, 5])
def test_a_step_holds_the_same_bytes_each_time(tile: int) -> None:
    q, k, v, allowed = example()
    states = list(online.running(q, k, v, allowed, SCALE, tile))[1:]
    held = {online.step_bytes(q, k[:tile], v[:tile], state) for state in states}
    assert held == {8 * (T * H + 2 * tile * H + T * tile + 2 * T + T * H)}  # float64
    assert online.step_bytes(q, k, v, states[-1]) == 8 * (T * H + 2 * S * H + T * S + 2 * T + T * H)


def test_counts() -> None:
    assert online.score_bytes(8192, 8192) == 134_217_728
    assert online.held(128, 128, 128).total == 98_304 + 65_536 + 66_560
    assert online.held(128, 128, 128).inputs == 3 * 128 * 128 * 2
    assert online.traffic_explicit(8192, 128) == 4 * 134_217_728 + 4 * 2_097_152
    assert online.traffic_tiled(8192, 128, 128) == 2 * 2_097_152 + 64 * 2 * 2_097_152
    assert online.traffic_tiled(8192, 128, 8192) == 4 * 2_097_152
    assert online.tiles(5, 2) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    with pytest.raises(ValueError, match="tile must be at least 1"):
        online.tiles(5, 0)
