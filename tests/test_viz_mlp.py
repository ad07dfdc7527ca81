"""The figures of chapter 3 draw the numbers of the functions that they name; its steppers sweep."""

from __future__ import annotations

import math
import re

import pytest
import torch

import rnj
from rnj import accounting
from rnj.lab import ffn
from rnj.viz import figure, sweep
from rnj.viz import mlp as draw
from tests.common import nothing_over_the_edge, words

NUMBER = re.compile(r"−?\d+\.\d\d")


def written(values: torch.Tensor) -> list[str]:
    return [figure.number(v, ".2f") for v in values.flatten().tolist()]


held = nothing_over_the_edge(draw)


@pytest.fixture
def parts() -> dict[str, torch.Tensor]:
    """One vector through a random GeGLU: x, gate, act, up, product, y, down."""
    torch.manual_seed(0)
    x, gate_w, up_w, down = torch.randn(12), torch.randn(20, 12), torch.randn(20, 12), torch.randn(12, 20) / 4
    gate, up = gate_w @ x / 3, up_w @ x / 3
    act = ffn.gelu_tanh(gate)
    return {"x": x, "gate": gate, "act": act, "up": up, "product": act * up, "y": down @ (act * up), "down": down}


def test_geglu(parts: dict[str, torch.Tensor]) -> None:
    features = [2, 3, 5, 19]
    vectors = (parts[name] for name in ("x", "gate", "act", "up", "product", "y"))
    texts = words(draw.geglu_figure(*vectors, features, "return"))
    numbers = [text for text in texts if NUMBER.fullmatch(text)]
    wanted = [parts["x"][:8], *(parts[n][features] for n in ("gate", "up", "act", "product")), parts["y"][:8]]
    assert numbers == [text for vector in wanted for text in written(vector)]
    assert texts.count("[F] = 20") == 3 and texts.count("[D] = 12") == 2
    with pytest.raises(ValueError, match="four features"):
        draw.geglu_figure(*(parts[n] for n in ("x", "gate", "act", "up", "product", "y")), [1, 2], "return")


def test_gelu() -> None:
    texts = words(draw.gelu_figure())
    x = torch.linspace(-4, 4, 641, dtype=torch.float64)
    gap = (ffn.gelu_tanh(x) - ffn.gelu_erf(x)).abs()
    assert f"{gap.max() * 1e4:.2f} at ±{x[gap.argmax()].abs():.2f}" in texts
    assert "−0.17 at −0.75" in texts


def test_forms() -> None:
    texts = words(draw.forms_figure())
    for form in ffn.FORMS:
        assert any(text.startswith(form) for text in texts)
    assert [text for text in texts if text.startswith("least")] == ["least −0.28", "least −0.17"]


def test_signs(parts: dict[str, torch.Tensor]) -> None:
    texts = words(draw.signs_figure(parts["gate"], parts["up"], parts["product"], "return"))
    turned = int((parts["product"] * parts["up"] < 0).sum())
    assert f"● {20 - turned} keep the sign" in texts and f"○ {turned} turn it" in texts
    assert "product = −0.17 · up" in texts


def test_features(parts: dict[str, torch.Tensor]) -> None:
    product, down, y = parts["product"], parts["down"], parts["y"]
    texts = words(draw.features_figure(product, down, y, "return", rows=3, columns=4))
    sizes = [(abs(p) * down[:, f].norm()).item() for f, p in enumerate(product.tolist())]
    order = sorted(range(20), key=lambda f: -sizes[f])[:3]
    terms = [product[f] * down[:4, f] for f in order]
    numbers = [text for text in texts if NUMBER.fullmatch(text)]
    wanted = [[*written(term), *written(product[f])] for term, f in zip(terms, order, strict=True)]
    wanted += [written(y[:4] - sum(terms)), written(y[:4])]
    assert numbers == [text for line in wanted for text in line]
    assert [text for text in texts if text.isdigit()] == [str(f) for f in order]
    assert "17 others" in texts


def test_areas() -> None:
    shown = draw.areas_figure(rnj.RNJ_1_5)
    one = accounting.layer_parameters(rnj.RNJ_1_5)
    texts = words(shown)
    assert f"One layer: GeGLU {one.mlp:,}" in texts and f"{one.attention:,}" in texts
    assert "82.8 % of its 243,269,632 weights" in texts
    assert draw.areas_figure(rnj.SMALL).svg != shown.svg


def test_turner() -> None:
    gate = torch.tensor([-2.0, -0.7, 1.0, -0.5, 2.0])
    up = torch.tensor([1.0, -3.0, 2.0, 1.5, -1.0])
    product = ffn.gelu_tanh(gate) * up
    turner = ffn.Turner(3, 11, 1.0, 0.5, torch.tensor([1, 3, 0]))
    shown = draw.turner_figure(turner, gate, up, product, list("abcde"))
    texts = words(shown)
    assert "Feature 11 of block 3" in texts and "● 2 keep the sign" in texts and "○ 3 turn it" in texts
    for t, name in ((1, "b"), (3, "d"), (0, "a")):
        assert f"{name}  {figure.number(float(product[t]), '.2f')}" in texts
    assert "longest are at b, d, a" in shown.alt


@pytest.mark.parametrize("name", draw.STEPPERS)
def test_steppers_sweep(name: str) -> None:
    assert sweep(draw.STEPPERS[name]()) > 40


@pytest.mark.parametrize(("gate", "value"), [(-0.75, 2.0), (-3.0, -1.0), (0.0, 1.0), (1.5, -2.0)])
def test_product_stepper_multiplies(gate: float, value: float) -> None:
    frame = draw.product_stepper().frame(gate=gate, value=value)
    act = torch.nn.functional.gelu(torch.tensor(gate, dtype=torch.float64), approximate="tanh").item()
    assert frame.numbers["gelu(gate)"] == pytest.approx(act, abs=1e-12)
    assert frame.numbers["product"] == pytest.approx(act * value, abs=1e-12)
    assert ("opposite" in frame.text) == (gate < 0) and ("Nothing" in frame.text) == (gate == 0)


def test_form_stepper_shows_each_form() -> None:
    stepper = draw.form_stepper(value=1.5)
    made = {form: stepper.frame(form=form, gate=-1.0).numbers["product"] for form in ffn.FORMS}
    assert made["ReLU"] == 0
    assert made["GLU"] == pytest.approx(1.5 / (1 + math.e))
    assert made["SwiGLU"] == pytest.approx(-1.5 / (1 + math.e))
    assert made["GeGLU"] == pytest.approx(-0.1588080 * 1.5, abs=1e-6)
