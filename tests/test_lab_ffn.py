"""The four forms of the feed-forward part against torch and the model's own, and their sizes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import rnj
from rnj import example
from rnj.lab import ffn
from rnj.mlp import GeGLU
from rnj.trace import into
from tests.common import random

X = torch.linspace(-9, 9, 721, dtype=torch.float64)


def test_gelus_are_torchs():
    torch.testing.assert_close(ffn.gelu_erf(X), F.gelu(X), rtol=0, atol=1e-14)
    torch.testing.assert_close(ffn.gelu_tanh(X), F.gelu(X, approximate="tanh"), rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("function", "x", "wanted"),
    [
        (ffn.gelu_tanh, -1.0, -0.1588080),
        (ffn.gelu_tanh, 3.0, 2.9963627),
        (ffn.gelu_erf, -1.0, -0.1586553),
        (ffn.gelu_erf, 3.0, 2.9959502),
    ],
)
def test_known_values(function, x, wanted):
    assert function(torch.tensor(x, dtype=torch.float64)).item() == pytest.approx(wanted, abs=2e-7)


def test_forms_by_their_formulas():
    gate, up = random(3, 5), random(3, 5, seed=1)
    wanted = {
        "ReLU": gate.clamp_min(0),
        "GLU": up / (1 + (-gate).exp()),
        "SwiGLU": gate * up / (1 + (-gate).exp()),
        "GeGLU": F.gelu(gate, approximate="tanh") * up,
    }
    assert tuple(wanted) == ffn.FORMS
    for form, product in wanted.items():
        torch.testing.assert_close(ffn.hidden(form, gate, up), product)


def test_geglu_is_the_models():
    torch.manual_seed(0)
    ours, models = ffn.FeedForward("GeGLU", 6, 10), GeGLU(6, 10)
    models.load_state_dict(ours.state_dict())
    x = random(2, 3, 6)
    torch.testing.assert_close(ours(x), models(x))


@pytest.mark.parametrize("form", ffn.FORMS)
def test_network(form):
    torch.manual_seed(0)
    made, x = ffn.FeedForward(form, 6, 10), random(2, 3, 6)
    trace: dict[str, Tensor] = {}
    y = made(x, note=into(trace))
    up = x @ made.up_proj.weight.T if form in ffn.GATED else torch.zeros(2, 3, 10)
    product = ffn.hidden(form, x @ made.gate_proj.weight.T, up)
    torch.testing.assert_close(trace["product"], product)
    torch.testing.assert_close(y, product @ made.down_proj.weight.T)
    assert hasattr(made, "up_proj") == (form != "ReLU")


@pytest.mark.parametrize("d_ff", [12, 768, 16_384])
def test_equal_sizes(d_ff):
    size = {}
    for form in ffn.FORMS:
        network = ffn.FeedForward(form, 8, ffn.equal_width(form, d_ff))
        size[form] = sum(p.numel() for p in network.parameters())
    assert size["ReLU"] == 2 * 8 * d_ff
    for form in ffn.GATED:
        assert 0 <= size["ReLU"] - size[form] < 3 * 8
    assert (size["GLU"] == size["ReLU"]) == (d_ff % 3 == 0)


def test_unknown_form():
    for call in (
        lambda: ffn.FeedForward("ReGLU", 4, 4),
        lambda: ffn.equal_width("ReGLU", 4),
        lambda: ffn.hidden("ReGLU", X, X),
    ):
        with pytest.raises(ValueError, match="form must be one of ReLU, GLU, SwiGLU, GeGLU, not 'ReGLU'"):
            call()


@pytest.fixture(scope="module")
def traced():
    row, model = example.row(), rnj.build(rnj.SMALL, seed=0, random_norms=True)
    return model, row, model.trace(row.tokens, row.positions, row.segments)


def test_turners_are_the_largest_by_hand(traced):
    model, _, trace = traced
    added = {}
    for block in range(8):
        up, product = (trace[f"block.{block}.mlp.{name}"][0, :15] for name in ("up", "product"))
        column = model.blocks[block].mlp.down_proj.weight.detach().norm(dim=0)
        for feature in range(576):
            own = [float(p.abs() * column[feature]) for p, u in zip(product[:, feature], up[:, feature]) if p * u < 0]
            added[block, feature] = sum(own)
    found = ffn.turners(model, trace, tokens=15, most=4)
    assert [(t.block, t.feature) for t in found] == sorted(added, key=lambda key: -added[key])[:4]
    for turner in found:
        assert turner.added == pytest.approx(added[turner.block, turner.feature], rel=1e-5) and 0 < turner.share <= 1
        gate = trace[f"block.{turner.block}.mlp.gate"][0, turner.tokens, turner.feature]
        assert (gate < 0).all() and len(turner.tokens.unique()) == len(turner.tokens) <= 15


def test_a_planted_turner_is_found(traced):
    """Weights under which one feature has a gate below zero everywhere and a long column."""
    _, row, _ = traced
    model = rnj.build(rnj.SMALL, seed=3)
    with torch.no_grad():
        model.blocks[2].mlp.down_proj.weight[:, 77] *= 50
        trace = model.trace(row.tokens, row.positions, row.segments)
        where = trace["block.2.pre_mlp_norm"][0, 12]
        model.blocks[2].mlp.gate_proj.weight[77] = -where / where.norm() ** 2
    trace = model.trace(row.tokens, row.positions, row.segments)
    found = ffn.turners(model, trace, tokens=15, most=1)[0]
    assert (found.block, found.feature) == (2, 77) and 12 in found.tokens.tolist()


@pytest.mark.parametrize("do", ffn.NEGATIVE_GATES)
def test_negative_gates(traced, do):
    model, row, trace = traced
    given = row.tokens, row.positions, row.segments
    with ffn.negative_gates(model, do):
        changed = model.trace(*given)
    gate, product = (changed[f"block.0.mlp.{name}"] for name in ("gate", "product"))
    factor = {"kept": 1.0, "shut": 0.0, "turned back": -1.0}[do]
    product = torch.where(gate < 0, factor * product, product)
    wanted = product @ model.blocks[0].mlp.down_proj.weight.T
    torch.testing.assert_close(changed["block.0.mlp.out"], wanted)
    assert torch.equal(changed["logits"], trace["logits"]) == (do == "kept")
    assert torch.equal(model.trace(*given)["logits"], trace["logits"])  # no hook is left


def test_negative_gates_refuses(traced):
    model = traced[0]
    with pytest.raises(ValueError, match="do must be one of kept, shut, turned back, not 'open'"):
        with ffn.negative_gates(model, "open"):
            pass
    with pytest.raises(KeyError), ffn.negative_gates(model, "shut"):
        raise KeyError
    assert not model.blocks[0].mlp.down_proj._forward_pre_hooks
