"""Every intermediate by name, from the code that runs without a trace."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import rnj
from rnj import TINY
from rnj.trace import into, silent, within
from tests.common import largest_difference, model, packed_row, random_tokens

ATTENTION = ["q", "k", "v", "q_norm", "k_norm", "q_rot", "k_rot"]
EXPLICIT = ["allowed", "scores", "weights"]
MLP = ["gate", "gate_act", "up", "product", "out"]


def names(explicit: bool) -> list[str]:
    block = ["in", "pre_attn_norm"]
    block += [f"attn.{name}" for name in [*ATTENTION, *(EXPLICIT if explicit else []), "heads", "out"]]
    block += ["post_attn_norm", "mid", "pre_mlp_norm", *(f"mlp.{name}" for name in MLP), "post_mlp_norm", "out"]
    blocks = [f"block.{i}.{name}" for i in range(TINY.n_layers) for name in block]
    return ["embed", *blocks, "final_norm", "logits_raw", "logits"]


@pytest.mark.parametrize("explicit", [True, False])
def test_names_in_the_order_in_which_they_are_made(explicit: bool) -> None:
    assert list(model().trace(random_tokens(1, 7), explicit=explicit)) == names(explicit)


ROWS = {"plain": (None, None), "packed": packed_row(4, 14, padding=5)}


@pytest.mark.parametrize("rows", ROWS)
def test_logits_are_those_of_forward_bit_for_bit(rows: str) -> None:
    built, tokens = model(), random_tokens(1, 23)
    for explicit in (True, False):
        assert torch.equal(
            built.trace(tokens, *ROWS[rows], explicit=explicit)["logits"], built(tokens, *ROWS[rows], explicit=explicit)
        )


@pytest.mark.parametrize("rows", ROWS)
def test_explicit_and_fast_make_the_same_intermediates(rows: str) -> None:
    built, tokens = model(), random_tokens(1, 23)
    shown, fast = (built.trace(tokens, *ROWS[rows], explicit=explicit) for explicit in (True, False))
    assert max(largest_difference(shown[name], fast[name]) for name in fast) < 5e-5


def test_weights_are_shares_of_what_is_allowed() -> None:
    positions, segments = ROWS["packed"]
    trace = model().trace(random_tokens(1, 23), positions, segments)
    for i in range(TINY.n_layers):
        weights, allowed = trace[f"block.{i}.attn.weights"], trace[f"block.{i}.attn.allowed"]
        assert not weights.masked_select(~allowed[:, None]).any()
        assert weights.sum(-1)[0, 0].tolist() == pytest.approx([1.0] * 18 + [0.0] * 5, abs=1e-6)


def test_shapes() -> None:
    trace = model().trace(random_tokens(2, 7))
    shapes = {name: tuple(trace[name].shape) for name in ("embed", "block.3.mid", "block.3.attn.q_rot", "logits")}
    assert shapes == {
        "embed": (2, 7, 48),
        "block.3.mid": (2, 7, 48),
        "block.3.attn.q_rot": (2, 7, 6, 20),
        "logits": (2, 7, 101),
    }
    assert trace["block.3.attn.k_rot"].shape == (2, 7, 2, 20)
    assert trace["block.3.attn.scores"].shape == (2, 6, 7, 7)
    assert trace["block.3.mlp.product"].shape == (2, 7, 80)


def test_a_kept_tensor_is_not_overwritten_later() -> None:
    """An in-place norm or residual would show here: each kept tensor still is what its part makes of its input."""
    built, tokens = model(), random_tokens(1, 23)
    copies: dict[str, Tensor] = {}
    built(tokens, explicit=True, note=lambda name, tensor: copies.setdefault(name, tensor.detach().clone()))
    kept = built.trace(tokens)
    assert all(torch.equal(kept[name], copies[name]) for name in kept)


def test_a_trace_needs_no_gradient() -> None:
    assert not any(tensor.requires_grad for tensor in model().trace(random_tokens(1, 7)).values())


def test_a_note_sees_tensors_that_gradients_flow_through() -> None:
    kept: dict[str, Tensor] = {}
    built = model()
    logits = built(random_tokens(1, 7), note=into(kept))
    (gradient,) = torch.autograd.grad(logits.sum(), kept["block.2.mid"])
    assert gradient.any()


def test_trace_through_a_cache() -> None:
    """The last token alone, behind a cache: its intermediates are those of the whole row's last column."""
    built, tokens = model(), random_tokens(1, 23)
    cache = rnj.KVCache(TINY, max_length=23)
    built(tokens[:, :-1], cache=cache)
    step, whole = built.trace(tokens[:, -1:], cache=cache), built.trace(tokens)
    for name in ("block.0.attn.q_rot", "block.0.attn.k_rot", "block.4.out", "logits"):
        assert largest_difference(step[name][:, 0], whole[name][:, -1]) < 5e-5
    held = cache.held(0)
    assert step["block.0.attn.weights"].shape == (1, 6, 1, held)
    assert largest_difference(step["block.0.attn.weights"], whole["block.0.attn.weights"][:, :, -1:, -held:]) < 1e-5


def test_within_prefixes_and_passes_silence_on() -> None:
    kept: dict[str, Tensor] = {}
    x = torch.ones(2)
    assert within(within(into(kept), "block.3"), "attn")("q", x) is x
    assert kept == {"block.3.attn.q": x}
    assert within(silent, "block.3") is silent
    assert silent("q", x) is x


def test_a_name_that_is_not_there_is_told_with_those_that_come_near() -> None:
    trace = model().trace(random_tokens(1, 3))
    with pytest.raises(KeyError) as error:
        trace["block.0.attn.q_rotated"]
    assert "no 'block.0.attn.q_rotated'" in str(error.value) and "block.0.attn.q_rot," in str(error.value)
    with pytest.raises(KeyError, match=r"among its .* names are embed, block.0.in"):
        trace["zzz"]
    assert trace.get("zzz") is None and "zzz" not in trace
