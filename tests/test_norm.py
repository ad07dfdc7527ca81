"""RMSNorm: the known numbers, the dtypes, and what it must leave alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rnj.norm import RMSNorm
from tests.common import largest_difference, random


def norm(dim: int, weight: Tensor | float = 0.0, eps: float = 1e-6, dtype: torch.dtype = torch.float32) -> RMSNorm:
    made = RMSNorm(dim, eps)
    with torch.no_grad():
        made.weight.copy_(torch.as_tensor(weight).expand(dim))
    return made.to(dtype)


def test_weight_is_zero_at_the_start() -> None:
    made = RMSNorm(7, 1e-6)
    assert [name for name, _ in made.named_parameters()] == ["weight"]
    assert torch.equal(made.weight, torch.zeros(7))
    assert list(made.buffers()) == []


def test_small_vector_feels_eps() -> None:
    y = norm(8)(torch.full((8,), 1e-4))
    assert y.tolist() == pytest.approx([0.0995037] * 8, abs=1e-7)


def test_eps_is_the_given_one_and_stands_under_the_root() -> None:
    y = norm(8, eps=1e-2)(torch.full((8,), 0.1))
    assert y.tolist() == pytest.approx([0.1 / 0.02**0.5] * 8, rel=1e-6)  # outside the root it would be 0.909


def test_one_plus_weight_once() -> None:
    y = norm(4, torch.tensor([0.0, 1.0, -1.0, 0.5]))(torch.tensor([2.0, 2.0, 2.0, 2.0]))
    assert y.tolist() == pytest.approx([1.0, 2.0, 0.0, 1.5], abs=1e-6)


def test_bfloat16_adds_one_in_float32() -> None:
    x = torch.tensor([1.5] * 3 + [0.5] * 5, dtype=torch.bfloat16)  # mean square 1: it is its own normalised form
    y = norm(8, 15.8125, dtype=torch.bfloat16)(x)
    assert y.dtype == torch.bfloat16
    assert y[0].item() == 25.25  # 1 + w added in bfloat16 gives 25.125


def test_bfloat16_is_rounded_once_after_the_weight() -> None:
    x, w = random(64, 96).bfloat16(), random(96, seed=1).bfloat16()
    wide = x.double()
    exact = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + w.double())
    y = norm(96, w, dtype=torch.bfloat16)(x)
    assert (y == exact.bfloat16()).float().mean() > 0.999  # rounding before the weight as well reaches only 0.7


def test_half_precision_squares_do_not_overflow() -> None:
    y = norm(16, dtype=torch.float16)(torch.full((16,), 300.0, dtype=torch.float16))
    assert torch.equal(y, torch.ones(16, dtype=torch.float16))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_out_is_dtype_in(dtype: torch.dtype) -> None:
    assert norm(6, 0.3)(random(2, 6).to(dtype)).dtype == dtype


def test_each_vector_by_itself_whatever_the_shape() -> None:
    made, x = norm(6, random(6, seed=1)), random(2, 3, 4, 6)
    assert torch.equal(made(x)[1, 2, 3], made(x[1, 2, 3]))


def test_offset_stays() -> None:
    """No mean is taken away: a constant vector stays a constant vector."""
    assert norm(5)(torch.full((5,), 7.0)).tolist() == pytest.approx([1.0] * 5, abs=1e-6)


def test_zero_vector_gives_zero_and_a_finite_gradient() -> None:
    x = torch.zeros(3, 6, requires_grad=True)
    y = norm(6, 0.5)(x)
    y.sum().backward()
    assert torch.equal(y, torch.zeros(3, 6))
    assert x.grad is not None and x.grad.isfinite().all()


def test_input_stays_as_it_was() -> None:
    x = random(4, 6)
    before = x.clone()
    norm(6, 0.5)(x)
    assert torch.equal(x, before)


def test_gradients() -> None:
    """d y_i / d x_j = (1 + w_i) / r · (δ_ij - x_i x_j / (n r²)), with r the root."""
    made, x = norm(5, random(5, seed=1), dtype=torch.float64), random(5).double().requires_grad_()
    jacobian = torch.autograd.functional.jacobian(made, x)
    with torch.no_grad():
        r = (x.pow(2).mean() + 1e-6).sqrt()
        expected = (1 + made.weight)[:, None] / r * (torch.eye(5) - x[:, None] * x[None] / (5 * r**2))
    assert largest_difference(jacobian, expected) < 1e-12
    made(x).sum().backward()
    assert largest_difference(made.weight.grad, (x / r).detach()) < 1e-12
