"""YaRN: how a position turns queries and keys, and how the turning is slowed for long contexts. Chapter 5 builds it."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rnj.config import Config


def correction_range(config: Config) -> tuple[float, float]:
    """The pairs between which the ramp runs, before rounding: (low, high), as real numbers.

    Pair i turns original_max_positions · theta^(-2i/H) / 2π times over the original length. `low`
    is the pair that turns beta_fast times, `high` the one that turns beta_slow times.
    Source: Peng et al. 2023, eq. 23 and 24.
    """

    def pair_turning(times: float) -> float:
        length = config.original_max_positions / (times * 2 * math.pi)
        return config.head_dim * math.log(length) / (2 * math.log(config.rope_theta))

    return pair_turning(config.beta_fast), pair_turning(config.beta_slow)


def ramp(config: Config) -> Float[Tensor, "H/2"]:
    """How much of each pair's plain frequency is kept: 1 keeps it, 0 divides it by the factor.

    float32, [H/2]. Source: Peng et al. 2023, section 3.2; ends rounded outwards where
    config.truncate says so.
    """
    low, high = correction_range(config)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.head_dim - 1)
    if low == high:
        high += 0.001  # a step in place of a ramp
    pairs = torch.arange(config.head_dim // 2, dtype=torch.float32)  # [H/2]
    return 1 - ((pairs - low) / (high - low)).clamp(0, 1)  # [H/2]


def inv_freq(config: Config, device: torch.device | str = "cpu") -> Float[Tensor, "H/2"]:
    """Radians that each pair turns in one position. float32 whatever the model's dtype, [H/2].

    Not a buffer of a module, so that `module.bfloat16()` cannot round it.
    """
    with torch.device("cpu"):
        evens = torch.arange(0, config.head_dim, 2, dtype=torch.float32)  # [H/2]
        exponent = evens / config.head_dim
        period = config.rope_theta**exponent  # [H/2], positions per radian
        plain = 1 / period
        slowed = 1 / (config.rope_factor * period)
        if config.rope_type == "default":
            frequency = plain
        elif config.rope_type == "linear":
            frequency = plain / config.rope_factor
        else:
            keep = ramp(config)
            frequency = slowed * (1 - keep) + plain * keep  # [H/2]
    return frequency.to(device)


def angles(positions: Int[Tensor, "B T"], config: Config) -> Float[Tensor, "B T H/2"]:
    """The angle of each pair at each position, in radians, float32."""
    return positions[..., None].float() * inv_freq(config, positions.device)  # [B, T, H/2]


def cos_sin(
    positions: Int[Tensor, "B T"],
    config: Config,
) -> tuple[Float[Tensor, "B T H/2"], Float[Tensor, "B T H/2"]]:
    """Cosine and sine of the angles, both times config.rope_multiplier; float32."""
    angle = angles(positions, config)  # [B, T, H/2]
    return angle.cos() * config.rope_multiplier, angle.sin() * config.rope_multiplier


def rotate(
    x: Float[Tensor, "B T N H"], cos: Float[Tensor, "B T H/2"], sin: Float[Tensor, "B T H/2"]
) -> Float[Tensor, "B T N H"]:
    """Turn each pair (i, i + H/2) of every head by its angle: the checkpoints' half-split layout.

    Source: Su et al. 2021, eq. 34, with the pairs laid out in two halves.
    """
    cos, sin = cos[:, :, None].to(x.dtype), sin[:, :, None].to(x.dtype)  # [B, T, 1, H/2]
    first, second = x.chunk(2, dim=-1)  # [B, T, N, H/2] each
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
