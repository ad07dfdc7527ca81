"""What the trained model loses when one kind of part is knocked out, all else untouched. Part 9 of the chapters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from rnj.config import Config
from rnj.lab.ladder import no_turn
from rnj.lab.learned import with_config
from rnj.model import Transformer
from rnj.text import Packed
from rnj.training import TrainingForm, held_out_loss

Form = Callable[[Packed], torch.Tensor]


def _silenced(model: Transformer, part: str, layers: range) -> Transformer:
    """A copy in which the named branch of these layers adds nothing: its last projection is 0, and the norm keeps 0."""
    made = copy.deepcopy(model)
    with torch.no_grad():
        for layer in layers:
            block = made.blocks[layer]
            (block.attn.o_proj if part == "attn" else block.mlp.down_proj).weight.zero_()
    return made


def _without_norms(model: Transformer, names: tuple[str, ...]) -> Transformer:
    """A copy in which the named norms hand their vectors on as they are."""
    made = copy.deepcopy(model)
    for block in made.blocks:
        for name in names:
            owner = block.attn if name in ("q_norm", "k_norm") else block
            setattr(owner, name, cast(Any, nn.Identity()))
    if "final_norm" in names:
        made.final_norm = cast(Any, nn.Identity())
    return made


def _typed(model: Transformer, kind: str) -> Transformer:
    config: Config = model.config
    return with_config(model, layer_types=(kind,) * config.n_layers)


def _whole(model: Transformer) -> Form:
    return TrainingForm(model, low=False)


def _parts(model: Transformer) -> dict[str, Callable[[], Form]]:
    every = range(model.config.n_layers)
    norms = ("pre_attn_norm", "pre_mlp_norm"), ("post_attn_norm", "post_mlp_norm"), ("q_norm", "k_norm")
    return {
        "nothing": lambda: _whole(model),
        "the norms before": lambda: _whole(_without_norms(model, norms[0])),
        "the norms after": lambda: _whole(_without_norms(model, norms[1])),
        "the MLPs": lambda: _whole(_silenced(model, "mlp", every)),
        "attention": lambda: _whole(_silenced(model, "attn", every)),
        "QK-norm": lambda: _whole(_without_norms(model, norms[2])),
        "the rotation": lambda: TrainingForm(model, low=False, angles=no_turn),
        "the global layers": lambda: _whole(_typed(model, "local")),
        "the local layers": lambda: _whole(_typed(model, "global")),
        "the soft cap": lambda: _whole(with_config(model, final_logit_softcap=None)),
    }


PARTS = (
    *("nothing", "the norms before", "the norms after", "the MLPs", "attention", "QK-norm", "the rotation"),
    *("the global layers", "the local layers", "the soft cap"),
)


def knocked_out(model: Transformer, part: str) -> Form:
    """The model without one kind of part, as a function from packed rows to the loss in nats a token.

    part: one of PARTS. A branch that is knocked out adds 0, a norm hands its vector on, the rotation turns by 0, global
    layers become local and local ones global. Raises ValueError for another part.
    """
    if part not in PARTS:
        raise ValueError(f"unknown part {part!r}: one of {', '.join(PARTS)}")
    return _parts(model)[part]()


def losses(model: Transformer, rows: Packed, parts: tuple[str, ...] = PARTS) -> dict[str, float]:
    """Nats a token on the rows, with each part knocked out in turn."""
    return {part: held_out_loss(knocked_out(model, part), rows) for part in parts}


def layer_by_layer(model: Transformer, rows: Packed, part: str) -> list[float]:
    """Nats a token with the branch `part` ("attn" or "mlp") of one layer knocked out, for each layer.

    Raises ValueError for another branch.
    """
    if part not in ("attn", "mlp"):
        raise ValueError(f"unknown branch {part!r}: attn or mlp")
    silenced = partial(_silenced, model, part)
    layers = range(model.config.n_layers)
    return [held_out_loss(_whole(silenced(range(i, i + 1))), rows) for i in layers]
