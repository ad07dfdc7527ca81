"""GeGLU, the feed-forward part of a block. Chapter 3 builds it by hand."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rnj.trace import Note, silent


class GeGLU(nn.Module):
    """A gated feed-forward network on each vector by itself.

        y = down( gelu(gate(x)) * up(x) )

    x, y: [..., D]; gate, up: [..., F]. The product is taken before `down`. GELU is the tanh form.
    No biases.
    Source: Shazeer 2020, section 2, GEGLU.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=False)
        self.up_proj = nn.Linear(d_model, d_ff, bias=False)
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Float[Tensor, "... D"], note: Note = silent) -> Float[Tensor, "... D"]:
        gate = note("gate", self.gate_proj(x))  # [..., F]
        gate = note("gate_act", F.gelu(gate, approximate="tanh"))  # [..., F], from -0.17 up
        up = note("up", self.up_proj(x))  # [..., F]
        return note("out", self.down_proj(note("product", gate * up)))  # [..., D]
