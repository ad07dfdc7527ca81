"""RMSNorm, the model's only normalisation. Chapter 2 builds it by hand."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """Scale each vector to unit root-mean-square, then by (1 + weight).

        y = x / sqrt(mean(x²) + eps) · (1 + weight)

    x, y: [..., D], any float dtype; computed in float32 (float64 stays), cast back once, after the
    weight.
    weight: [D], zero at the start, so that a fresh layer only normalises.
    Source: Zhang & Sennrich 2019, eq. 4; the (1 + weight) form is Gemma's.
    """

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(dim))  # [D]

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        wide = torch.promote_types(x.dtype, torch.float32)
        y = x.to(wide)  # [..., D]
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)  # [..., D], of size 1
        return (y * (1 + self.weight.to(wide))).to(x.dtype)  # [..., D]
