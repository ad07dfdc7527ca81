"""Other ways to tell a model where its tokens stand, for comparison: the model itself uses only rnj.yarn. Chapter 5."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rnj.config import Config
from rnj.core_attention import Rows
from rnj.model import Transformer
from rnj.yarn import cos_sin, inv_freq, rotate

# --- Order, and what is blind to it


@torch.no_grad()
def residual_stream(
    model: Transformer, tokens: Int[Tensor, "B T"], turned_by: Int[Tensor, "B T"], seen_from: Int[Tensor, "B T"]
) -> Float[Tensor, "L+1 B T D"]:
    """The residual stream before the first block and after each one, with the model's own blocks.

    turned_by: the positions that rotate queries and keys; all zeros turn nothing, so positions are lost.
    seen_from: the positions that the causal mask compares; all zeros let every token see every other one.
    One document a row. With the same rising positions for both this is the model's own forward pass.
    """
    config = model.config
    cos, sin = cos_sin(turned_by, config)  # [B, T, H/2]
    rows = Rows(seen_from, torch.ones_like(seen_from), seen_from)
    x = model.embed(tokens) * math.sqrt(config.d_model)  # [B, T, D]
    stream = [x]
    for block in model.blocks:
        x = block(x, cos, sin, rows, explicit=True)  # [B, T, D]
        stream.append(x)
    return torch.stack(stream)  # [L+1, B, T, D]


# --- The sinusoidal code


def sinusoidal(positions: Int[Tensor, "..."], width: int, base: float = 10_000.0) -> Float[Tensor, "... width"]:
    """The code that the first transformer added to its embeddings: (sin, cos) of each angle, side by side. float32.

        code[2i] = sin(position / base^(2i / width)),   code[2i + 1] = cos(the same)

    Angles are taken in float64. Raises ValueError where width is odd. Source: Vaswani et al. 2017, section 3.5.
    """
    angle = positions[..., None].double() * _frequencies(width, base)  # [..., width/2]
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2).float()  # [..., width]


def shift_matrix(shift: int, width: int, base: float = 10_000.0) -> Float[Tensor, "width width"]:
    """The matrix M with sinusoidal(position + shift) = M · sinusoidal(position), for every position. float32.

    Block-diagonal: one 2 × 2 rotation for each pair, by shift · frequency. Source: Vaswani et al. 2017, section 3.5.
    """
    angle = shift * _frequencies(width, base)  # [width/2]
    cos, sin = angle.cos(), angle.sin()
    blocks = [torch.tensor([[c, s], [-s, c]]) for c, s in zip(cos.tolist(), sin.tolist())]  # [2, 2] each
    return torch.block_diag(*blocks).float()  # [width, width]


def _frequencies(width: int, base: float) -> Float[Tensor, "width/2"]:
    if width % 2:
        raise ValueError(f"width must be even, not {width}: sine and cosine come in pairs")
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)  # [width/2]


# --- ALiBi


def alibi_slopes(n_heads: int) -> Float[Tensor, "N"]:
    """How many units of score each head loses per position of distance. float32, [N].

    For a power of two, 2^(-8/N), 2^(-16/N), …, 2^(-8); for other N those of the power below it, then every second
    one of the power above it. Source: Press et al. 2021, section 3, and their code.
    """
    if n_heads < 1:
        raise ValueError(f"n_heads must be at least 1, not {n_heads}")
    power = 2 ** int(math.log2(n_heads))
    slopes = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    slopes += [2.0 ** (-4 * (h + 1) / power) for h in range(0, 2 * (n_heads - power), 2)]
    return torch.tensor(slopes)  # [N]


def alibi_bias(q_pos: Int[Tensor, "B T"], k_pos: Int[Tensor, "B S"], n_heads: int) -> Float[Tensor, "B N T S"]:
    """What ALiBi adds to the scaled scores: minus slope · distance. float32; meant for keys at or before the query."""
    distance = (q_pos[:, :, None] - k_pos[:, None, :]).float()  # [B, T, S]
    return -alibi_slopes(n_heads)[:, None, None] * distance[:, None]  # [B, N, T, S]


# --- Interleaved pairs


def rotate_interleaved(
    x: Float[Tensor, "B T N H"], cos: Float[Tensor, "B T H/2"], sin: Float[Tensor, "B T H/2"]
) -> Float[Tensor, "B T N H"]:
    """Turn the pairs (2i, 2i + 1): the layout of the RoPE paper. `rnj.yarn.rotate` turns (i, i + H/2).

    Source: Su et al. 2021, eq. 34.
    """
    cos, sin = cos[:, :, None].to(x.dtype), sin[:, :, None].to(x.dtype)  # [B, T, 1, H/2]
    even, odd = x[..., 0::2], x[..., 1::2]  # [B, T, N, H/2] each
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)  # [B, T, N, H]


def to_halves(width: int) -> Int[Tensor, "H"]:
    """The order that takes interleaved pairs apart into halves: 0, 2, 4, …, 1, 3, 5, …. int64, [H]."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])  # [H]


# --- One query, one key, many distances


def plain(config: Config) -> Config:
    """The same model with the plain rotation: no factor, no ramp, no attention factor."""
    return replace(config, rope_type="default", rope_factor=1.0, attention_factor=1.0)


def score_by_distance(
    q: Float[Tensor, "H"],
    k: Float[Tensor, "H"],
    distances: Int[Tensor, "n"],
    config: Config,
    code: str,
    furthest: int = 0,
) -> Float[Tensor, "n"]:
    """The scaled score of one query with one key that stands `distance` positions before it, under a code. float32.

    code: "none", "sinusoidal" (added to q and k themselves), "rope" (the plain rotation), "alibi" (with its gentlest
    slope, 2^-8) or "yarn" (the config's own table and factor). The query stands at `furthest`, or at the largest
    distance where that is further. Raises ValueError on an unknown code.
    """
    H = q.shape[0]
    at = max(int(distances.max()), furthest)  # where the query stands
    content = (q @ k).expand(len(distances))  # [n]
    if code == "none":
        score = content
    elif code == "sinusoidal":
        q_code, k_code = sinusoidal(torch.tensor(at), H), sinusoidal(at - distances, H)  # [H], [n, H]
        score = (k + k_code) @ (q + q_code)
    elif code == "alibi":
        return content * config.scale - 2.0**-8 * distances
    elif code in ("rope", "yarn"):
        config = plain(config) if code == "rope" else config
        here, there = torch.tensor([[at]]), (at - distances)[None]  # [1, 1], [1, n]
        q_rot = rotate(q.view(1, 1, 1, H), *cos_sin(here, config))[0, :, 0]  # [1, H]
        k_rot = rotate(k.expand(1, len(distances), 1, H), *cos_sin(there, config))[0, :, 0]  # [n, H]
        score = k_rot @ q_rot[0]
    else:
        raise ValueError(f"code must be none, sinusoidal, rope, alibi or yarn, not {code!r}")
    return score * config.scale  # [n]


# --- Angles that training visits


def turns(config: Config, length: int) -> Float[Tensor, "H/2"]:
    """How many times each pair turns from position 0 to position length - 1. float64, [H/2]."""
    return (length - 1) * inv_freq(config).double() / (2 * math.pi)  # [H/2]


def share_never_visited(config: Config, length: int, trained: Config, trained_length: int) -> Float[Tensor, "H/2"]:
    """The share of each pair's circle that positions below `length` reach and training never did. float64, [H/2].

    Training used the table of `trained` on positions below trained_length. Angles run from 0 upwards, so a pair has
    visited min(turns, 1) of its circle; between its positions the circle counts as visited.
    """
    seen = turns(trained, trained_length).clamp(max=1)  # [H/2]
    reached = turns(config, length).clamp(max=1)  # [H/2]
    return (reached - seen).clamp(min=0)  # [H/2]
