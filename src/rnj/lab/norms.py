"""What RMSNorm is compared with: LayerNorm, and other places for the norms of a block. The model uses neither."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rnj.attention import Attention
from rnj.config import Config
from rnj.core_attention import Rows
from rnj.mlp import GeGLU
from rnj.norm import RMSNorm
from rnj.yarn import cos_sin

PLACEMENTS = ("post", "pre", "four")


def layer_norm(
    x: Float[Tensor, "... D"],
    gain: Float[Tensor, " D"],
    bias: Float[Tensor, " D"],
    eps: float = 1e-6,
) -> Float[Tensor, "... D"]:
    """Take the mean off, scale to unit variance, then · gain + bias.

        y = (x - mean(x)) / sqrt(var(x) + eps) · gain + bias

    Variance over D, not D - 1; eps stands under the root. Source: Ba et al. 2016, eq. 4.
    """
    centred = x - x.mean(-1, keepdim=True)  # [..., D]
    scale = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)  # [..., 1]
    return centred * scale * gain + bias  # [..., D]


class Stack(nn.Module):
    """Attention and GeGLU layers with their norms in one of three places; no embedding, no head.

    post: x = norm(x + f(x)), the original Transformer's; pre: x = x + f(norm(x)); four: x = x + norm(f(norm(x))), this
    model's. Source of the names: Xiong et al. 2020.
    """

    def __init__(self, config: Config, placement: str) -> None:
        super().__init__()
        if placement not in PLACEMENTS:
            raise ValueError(f"placement must be one of {', '.join(PLACEMENTS)}, not {placement!r}")
        self.config, self.placement = config, placement
        self.parts = nn.ModuleList()
        for layer in range(config.n_layers):
            self.parts += [Attention(config, layer), GeGLU(config.d_model, config.d_ff)]
        self.norm = RMSNorm(config.d_model, config.norm_eps)  # weight 0 throughout: one serves everywhere

    def forward(self, x: Float[Tensor, "B T D"]) -> list[Float[Tensor, "B T D"]]:
        """The residual stream before the first layer and after each: n_layers + 1 tensors."""
        rows = Rows.plain(x.shape[0], x.shape[1])
        cos, sin = cos_sin(rows.positions, self.config)
        stream = [x]
        for i, part in enumerate(self.parts):
            inner = x if self.placement == "post" else self.norm(x)  # [B, T, D]
            made = part(inner, cos, sin, rows) if isinstance(part, Attention) else part(inner)  # [B, T, D]
            made = self.norm(made) if self.placement == "four" else made
            x = self.norm(x + made) if self.placement == "post" else x + made  # [B, T, D]
            if i % 2:
                stream.append(x)
        return stream


@dataclass(frozen=True)
class Profile:
    """Sizes by depth, n_layers + 1 values each: before the first layer and after every layer.

    signal: root-mean-square of the residual stream; gradient: of the loss's gradient at that point, as a share of the
    gradient at the last one.
    """

    signal: list[float]
    gradient: list[float]


def depth_profile(
    placement: str, n_layers: int = 24, d_model: int = 64, length: int = 48, seed: int = 0, scale: float = 1.0
) -> Profile:
    """Measure a fresh stack: one random row in, a random linear loss out of the last, normalised stream.

    scale: what every matrix is multiplied by; at 1 it keeps the size of what it is given. Raises ValueError where it
    is not positive.
    """
    if not scale > 0:
        raise ValueError(f"scale must be positive, not {scale}")
    config = Config(d_model, 3 * d_model, n_layers, 4, 2, d_model // 4, vocab_size=8, block_size=length)
    generator = torch.Generator().manual_seed(seed)
    stack = Stack(config, placement)
    with torch.no_grad():
        for weight in stack.parameters():
            if weight.ndim == 2:
                weight.normal_(0, scale * weight.shape[1] ** -0.5, generator=generator)
    x = torch.randn(1, length, d_model, generator=generator).requires_grad_()  # [1, T, D]
    stream = stack(x)
    readout = torch.randn(1, length, d_model, generator=generator)
    gradients = torch.autograd.grad((stack.norm(stream[-1]) * readout).sum(), stream)
    sizes = [g.pow(2).mean().sqrt().item() for g in gradients]
    return Profile([x.pow(2).mean().sqrt().item() for x in stream], [size / sizes[-1] for size in sizes])
