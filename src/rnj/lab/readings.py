"""What the model would say after each layer: the head applied to the residual stream before the last block is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rnj.model import Transformer


@dataclass(frozen=True, eq=False)
class Readings:
    """The next token's distribution at every position of one row, read after the embedding and after each block."""

    probabilities: Float[Tensor, "L+1 T V"]

    def rank(self, position: int, token: int) -> list[int]:
        """The place of a token among all, from 1, after each layer."""
        p = self.probabilities[:, position]  # [L + 1, V]
        return [1 + int((row > row[token]).sum()) for row in p]

    def best(self, position: int, count: int = 3) -> list[list[tuple[int, float]]]:
        """The most likely tokens after each layer, with their probabilities."""
        values, ids = self.probabilities[:, position].topk(count)
        return [list(zip(i, v, strict=True)) for i, v in zip(ids.tolist(), values.tolist(), strict=True)]


@torch.no_grad()
def readings(model: Transformer, trace: Mapping[str, Tensor], row: int = 0) -> Readings:
    """From a trace of the model: `embed` and every `block.….out` through final norm, head and soft cap.

    The last one is the model's own output. Source: nostalgebraist 2020, "the logit lens".
    """
    names = ["embed", *(f"block.{layer}.out" for layer in range(model.config.n_layers))]
    streams = torch.stack([trace[name][row] for name in names])  # [L + 1, T, D]
    return Readings(model.head(streams).softmax(-1))
