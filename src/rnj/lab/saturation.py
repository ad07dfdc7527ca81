"""What the size of a head does to the softmax when scores are not divided by its root."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Saturation:
    """Means over many random queries, for one head size H and one scale."""

    variance: float  # of a score
    largest_weight: float  # of the softmax; 1 / keys is even, 1 is saturated
    gradient: float  # the softmax's Jacobian, as the mean of sqrt(sum of squares)


def saturation(head_dim: int, scale: float, keys: int = 16, queries: int = 512, seed: int = 0) -> Saturation:
    """Scores of standard normal queries and keys, float64, times scale, through a softmax over the keys.

    The Jacobian d weight_i / d score_j is diag(w) - w wᵀ: with one weight near 1 nothing of a gradient comes through.
    """
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(queries, head_dim, generator=generator, dtype=torch.float64)  # [n, H]
    k = torch.randn(queries, keys, head_dim, generator=generator, dtype=torch.float64)  # [n, S, H]
    scores = torch.einsum("nh,nsh->ns", q, k) * scale  # [n, S]
    weights = scores.softmax(-1)  # [n, S]
    size = softmax_jacobian(weights).square().sum((-2, -1)).sqrt()  # [n]
    return Saturation(float(scores.var()), float(weights.amax(-1).mean()), float(size.mean()))


def softmax_jacobian(weights: Float[Tensor, "n S"]) -> Float[Tensor, "n S S"]:
    """d weights / d scores of each row: diag(w) - w wᵀ."""
    return torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
