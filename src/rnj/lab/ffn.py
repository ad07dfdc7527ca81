"""The feed-forward part in four forms, and GELU in two. The model uses one of each: GeGLU and the tanh GELU."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rnj.trace import Note, silent

CUBIC = 0.044715  # of the tanh form: where its argument leaves the straight line


def gelu_erf(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """x · Φ(x), where Φ(x) is the share of a standard normal that lies below x. Source: Hendrycks & Gimpel 2016."""
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def gelu_tanh(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """GELU with Φ drawn by a tanh, as this model computes it. Source: Hendrycks & Gimpel 2016, section 2."""
    return x * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + CUBIC * x**3)))


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "ReLU": F.relu,
    "GLU": torch.sigmoid,
    "SwiGLU": F.silu,  # x · sigmoid(x)
    "GeGLU": gelu_tanh,
}
FORMS = tuple(ACTIVATIONS)
GATED = FORMS[1:]


def hidden(form: str, gate: Float[Tensor, "... F"], up: Float[Tensor, "... F"]) -> Float[Tensor, "... F"]:
    """What each feature hands to the down projection: activation(gate) · up. A ReLU network has no `up` and ignores it.

    Source: Dauphin et al. 2016 (GLU); Shazeer 2020, section 2 (SwiGLU, GEGLU).
    Raises ValueError for an unknown form.
    """
    _known(form)
    act = ACTIVATIONS[form](gate)  # [..., F]
    return act * up if form in GATED else act


class FeedForward(nn.Module):
    """A feed-forward network in one of the four forms, without biases.

    x, y: [..., D]. `gate_proj` is the projection that is activated, in a ReLU network too; that has no `up_proj`.
    Raises ValueError for an unknown form.
    """

    def __init__(self, form: str, d_model: int, d_ff: int) -> None:
        super().__init__()
        _known(form)
        self.form = form
        self.gate_proj = nn.Linear(d_model, d_ff, bias=False)
        if form in GATED:
            self.up_proj = nn.Linear(d_model, d_ff, bias=False)
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Float[Tensor, "... D"], note: Note = silent) -> Float[Tensor, "... D"]:
        gate = note("gate", self.gate_proj(x))  # [..., F]
        up = note("up", self.up_proj(x)) if self.form in GATED else torch.ones_like(gate)  # [..., F]
        return note("out", self.down_proj(note("product", hidden(self.form, gate, up))))  # [..., D]


def equal_width(form: str, d_ff: int) -> int:
    """The width at which a form has as many parameters as a ReLU network of width d_ff, or just fewer.

    A gated form has three matrices in place of two, so each gets 2/3 of the width.
    Raises ValueError for an unknown form.
    """
    _known(form)
    return 2 * d_ff // 3 if form in GATED else d_ff


def _known(form: str) -> None:
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, not {form!r}")
