"""GeGLU: the known values of its activation, and which projection does what."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rnj.mlp import GeGLU
from rnj.trace import into
from tests.common import largest_difference, random


def mlp(d_model: int = 6, d_ff: int = 10, seed: int = 0) -> GeGLU:
    torch.manual_seed(seed)
    return GeGLU(d_model, d_ff)


def one_to_one() -> GeGLU:
    """One input, one gate, one up, one output, and every weight 1: y = gelu(x) · x."""
    made = GeGLU(1, 1)
    with torch.no_grad():
        for weight in made.parameters():
            weight.fill_(1.0)
    return made


@pytest.mark.parametrize(("x", "gelu"), [(-1.0, -0.1588080), (3.0, 2.9963627), (0.0, 0.0)])
def test_tanh_gelu(x: float, gelu: float) -> None:
    """The erf form gives -0.1586553 and 2.9959502."""
    trace: dict[str, Tensor] = {}
    one_to_one()(torch.tensor([x]), note=into(trace))
    assert trace["gate_act"].item() == pytest.approx(gelu, abs=1e-6)


def test_product_is_taken_before_down() -> None:
    made = one_to_one()
    with torch.no_grad():
        made.up_proj.weight.fill_(2.0)
        made.down_proj.weight.fill_(5.0)
    assert made(torch.tensor([3.0])).item() == pytest.approx(2.9963627 * 6 * 5, rel=1e-6)


def test_by_the_formula() -> None:
    made, x = mlp(), random(2, 3, 6)
    gate, up, down = (w.double() for w in (made.gate_proj.weight, made.up_proj.weight, made.down_proj.weight))
    g, u = x.double() @ gate.T, x.double() @ up.T
    act = 0.5 * g * (1 + (math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)).tanh())
    assert largest_difference(made(x), (act * u) @ down.T) < 1e-6


def test_gate_and_up_are_not_exchangeable() -> None:
    made, x = mlp(), random(4, 6)
    swapped = mlp()
    swapped.gate_proj, swapped.up_proj = made.up_proj, made.gate_proj
    swapped.down_proj = made.down_proj
    assert largest_difference(made(x), swapped(x)) > 1e-3


def test_parameters() -> None:
    shapes = {name: tuple(weight.shape) for name, weight in GeGLU(6, 10).named_parameters()}
    assert shapes == {"gate_proj.weight": (10, 6), "up_proj.weight": (10, 6), "down_proj.weight": (6, 10)}


def test_notes_are_what_was_computed() -> None:
    made, x = mlp(), random(2, 3, 6)
    trace: dict[str, Tensor] = {}
    y = made(x, note=into(trace))
    assert list(trace) == ["gate", "gate_act", "up", "product", "out"]
    assert torch.equal(trace["gate"], made.gate_proj(x))
    assert torch.equal(trace["up"], made.up_proj(x))
    assert torch.equal(trace["product"], trace["gate_act"] * trace["up"])
    assert torch.equal(trace["out"], y)
    assert torch.equal(y, made(x))


def test_every_vector_by_itself() -> None:
    made, x = mlp(), random(2, 3, 6)
    assert largest_difference(made(x)[1, 2], made(x[1, 2])) < 1e-6


def test_input_and_dtype_stay() -> None:
    made, x = mlp().bfloat16(), random(3, 6).bfloat16()
    before = x.clone()
    assert made(x).dtype == torch.bfloat16
    assert torch.equal(x, before)
