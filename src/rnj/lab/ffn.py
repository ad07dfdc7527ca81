"""The feed-forward part in four forms, and GELU in two. The model uses one of each: GeGLU and the tanh GELU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from rnj.model import Transformer
from rnj.trace import Note, silent

CUBIC = 0.044715  # of the tanh form: where its argument leaves the straight line


def gelu_erf(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """x · Φ(x), where Φ(x) is the share of a standard normal that lies below x.

    Source: Hendrycks & Gimpel 2016.
    """
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


# Gates that turn a sign ----------------------------------------------------------------------------------------------

NEGATIVE_GATES = ("kept", "shut", "turned back")


@dataclass(frozen=True)
class Turner:
    """A feature that hands on its value with the sign turned, as measured on one row."""

    block: int
    feature: int
    added: float  # length of what it adds to the output with the sign turned, summed over the row's tokens
    share: float  # that, as a share of all that it adds
    tokens: Int[Tensor, "n"]  # the row's tokens at which it turns the sign, the longest addition first


def turners(model: Transformer, trace: Mapping[str, Tensor], tokens: int, most: int = 5) -> list[Turner]:
    """The features that add most with a turned sign, on the first `tokens` tokens of row 0 of a trace.

    A feature adds its product times its column of down_proj, so its length is |product| · |column|. The sign is turned
    where product and value have opposite signs; that takes a gate below zero. Found by measurement: none is written in.
    """
    found = []
    for block, part in enumerate(model.blocks):
        at = f"block.{block}.mlp"
        up, product = (trace[f"{at}.{name}"][0, :tokens] for name in ("up", "product"))  # [T, F]
        length = product.abs() * part.mlp.down_proj.weight.detach().norm(dim=0)  # [T, F]
        turned = torch.where(product * up < 0, length, 0)  # [T, F]
        for feature in turned.sum(0).topk(most).indices.tolist():
            own = turned[:, feature]  # [T]
            order = own.argsort(descending=True, stable=True)[: int((own > 0).sum())]
            share = float(own.sum() / length[:, feature].sum().clamp_min(1e-30))
            found.append(Turner(block, feature, float(own.sum()), share, order))
    return sorted(found, key=lambda turner: -turner.added)[:most]


@contextmanager
def negative_gates(model: Transformer, do: str) -> Iterator[Transformer]:
    """Inside the block the model treats products behind a gate below zero in another way; afterwards as before.

    do: "kept" changes nothing; "shut" sets them to 0, as ReLU would; "turned back" gives them their value's sign.
    Raises ValueError for anything else.
    """
    if do not in NEGATIVE_GATES:
        raise ValueError(f"do must be one of {', '.join(NEGATIVE_GATES)}, not {do!r}")
    factor = {"kept": 1.0, "shut": 0.0, "turned back": -1.0}[do]
    hooks = []
    for block in model.blocks:
        gates: list[Tensor] = []  # of the pass that is under way

        def keep(module: nn.Module, given: tuple[Tensor], gate: Tensor, gates: list[Tensor] = gates) -> None:
            gates.append(gate)

        def change(module: nn.Module, given: tuple[Tensor], gates: list[Tensor] = gates) -> tuple[Tensor]:
            return (torch.where(gates.pop() < 0, factor * given[0], given[0]),)

        hooks.append(block.mlp.gate_proj.register_forward_hook(keep))
        hooks.append(block.mlp.down_proj.register_forward_pre_hook(change))
    try:
        yield model
    finally:
        for hook in hooks:
            hook.remove()


def _known(form: str) -> None:
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, not {form!r}")
