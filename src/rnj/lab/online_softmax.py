"""Attention over tiles of keys with a running maximum and a running sum: the arithmetic of FlashAttention.

Written for one head and for reading, in plain tensor operations: it shows what is held, not how fast a kernel is.
The forward pass needs the online softmax (Milakov & Gimelshein 2018) so that no row of scores ever has to be whole;
the backward pass needs recomputation (Dao et al. 2022), so that no weight has to be kept. Chapter 6 uses both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Running:
    """What is known of T rows of a softmax after some of their keys: all that a tile hands on.

    maximum: [T], the largest score so far, -inf before the first;
    total: [T], the sum of exp(score - maximum);
    weighted: [T, H], the sum of exp(score - maximum) · value.
    """

    maximum: Float[Tensor, "T"]
    total: Float[Tensor, "T"]
    weighted: Float[Tensor, "T H"]

    @staticmethod
    def start(q: Float[Tensor, "T H"]) -> Running:
        """Before the first tile."""
        total = q.new_zeros(q.shape[0])  # [T]
        return Running(torch.full_like(total, float("-inf")), total, torch.zeros_like(q))

    def take(self, scores: Float[Tensor, "T C"], values: Float[Tensor, "C H"]) -> Running:
        """One more tile of keys. Scores that may not be seen are -inf."""
        maximum = torch.maximum(self.maximum, scores.amax(-1))  # [T]
        shift = maximum.masked_fill(maximum == float("-inf"), 0)  # [T], -inf - -inf would be NaN
        old = torch.exp(self.maximum - shift)  # [T], at most 1: the old sums shrink
        new = torch.exp(scores - shift[:, None])  # [T, C]
        return Running(
            maximum, self.total * old + new.sum(-1), self.weighted * old[:, None] + new @ values
        )  # [T], [T], [T, H]

    def output(self) -> Float[Tensor, "T H"]:
        """The weighted mean of the values seen so far; 0 where nothing was. The only division."""
        total = self.total[:, None]  # [T, 1]
        least = torch.finfo(total.dtype).tiny
        return torch.where(total > 0, self.weighted / total.clamp_min(least), 0)  # [T, H]

    def log_sum_exp(self) -> Float[Tensor, "T"]:
        """log of the sum of exp(score), all that the backward pass needs; -inf in blind rows."""
        return self.maximum + self.total.log()  # [T]


def tiles(length: int, tile: int) -> list[slice]:
    """The keys 0 … length - 1 in slices of `tile`, the last one shorter where it does not divide."""
    if tile < 1:
        raise ValueError(f"tile must be at least 1, not {tile}")
    return [slice(at, min(at + tile, length)) for at in range(0, length, tile)]


def running(
    q: Float[Tensor, "T H"],
    k: Float[Tensor, "S H"],
    v: Float[Tensor, "S H"],
    allowed: Bool[Tensor, "T S"],
    scale: float,
    tile: int,
    backwards: bool = False,
) -> Iterator[Running]:
    """The state before the first tile and after each one. backwards: the last tile of keys first."""
    state = Running.start(q)
    yield state
    for keys in reversed(tiles(k.shape[0], tile)) if backwards else tiles(k.shape[0], tile):
        scores = q @ k[keys].T * scale  # [T, C], the only scores there are
        state = state.take(scores.masked_fill(~allowed[:, keys], float("-inf")), v[keys])
        yield state


def attend_tiled(
    q: Float[Tensor, "T H"],
    k: Float[Tensor, "S H"],
    v: Float[Tensor, "S H"],
    allowed: Bool[Tensor, "T S"],
    scale: float,
    tile: int,
) -> tuple[Float[Tensor, "T H"], Float[Tensor, "T"]]:
    """softmax(q · k · scale) · v under `allowed`, tile after tile: the output and the log of each row's sum."""
    *_, last = running(q, k, v, allowed, scale, tile)
    return last.output(), last.log_sum_exp()


def backward_tiled(
    q: Float[Tensor, "T H"],
    k: Float[Tensor, "S H"],
    v: Float[Tensor, "S H"],
    allowed: Bool[Tensor, "T S"],
    scale: float,
    tile: int,
    out: Float[Tensor, "T H"],
    log_sum_exp: Float[Tensor, "T"],
    grad_out: Float[Tensor, "T H"],
) -> tuple[Float[Tensor, "T H"], Float[Tensor, "S H"], Float[Tensor, "S H"]]:
    """The gradients of q, k and v. Of the forward pass its output and one number a row are kept:
    each tile's weights are computed again. Source: Dao et al. 2022, algorithm 4.
    """
    grad_q, grad_k, grad_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    mean = (grad_out * out).sum(-1, keepdim=True)  # [T, 1], off every score's gradient
    for keys in tiles(k.shape[0], tile):
        scores = (q @ k[keys].T * scale).masked_fill(~allowed[:, keys], float("-inf"))  # [T, C]
        shift = log_sum_exp.masked_fill(log_sum_exp == float("-inf"), 0)[:, None]  # [T, 1]
        weights = torch.exp(scores - shift)  # [T, C], the final weights, without a second sum
        grad_v[keys] = weights.T @ grad_out  # [C, H]
        grad_scores = weights * (grad_out @ v[keys].T - mean) * scale  # [T, C]
        grad_q += grad_scores @ k[keys]  # [T, H]
        grad_k[keys] = grad_scores.T @ q  # [C, H]
    return grad_q, grad_k, grad_v


# Counting ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """Bytes of fast memory for one tile of queries against one tile of keys, of one head."""

    inputs: int  # q [T, H], k [C, H] and v [C, H], in the model's dtype
    scores: int  # [T, C], float32
    state: int  # maximum [T], total [T], weighted [T, H], float32

    @property
    def total(self) -> int:
        return self.inputs + self.scores + self.state


def held(query_tile: int, key_tile: int, head_dim: int, element: int = 2) -> Held:
    """What a step holds: it depends on the tiles and on H, never on the length of the row."""
    return Held(
        inputs=(query_tile + 2 * key_tile) * head_dim * element,
        scores=4 * query_tile * key_tile,
        state=4 * query_tile * (head_dim + 2),
    )


def step_bytes(q: Float[Tensor, "T H"], k: Float[Tensor, "C H"], v: Float[Tensor, "C H"], state: Running) -> int:
    """Bytes that one step really holds in these dtypes: the three tiles, their scores [T, C] and the running state."""
    scores = q.shape[0] * k.shape[0] * q.element_size()
    return scores + sum(x.nbytes for x in (q, k, v, state.maximum, state.total, state.weighted))


def score_bytes(queries: int, keys: int, element: int = 2) -> int:
    """A whole score matrix of one head."""
    return queries * keys * element


def traffic_explicit(length: int, head_dim: int, element: int = 2) -> int:
    """Bytes between slow and fast memory for one head, three kernels one after the other, no causal saving.

    q, k in, scores out; scores in, weights out; weights and v in, output out: four passes over T × T, four over T × H.
    """
    return 4 * length * length * element + 4 * length * head_dim * element


def traffic_tiled(length: int, head_dim: int, query_tile: int, element: int = 2) -> int:
    """The same in one kernel: q in and output out once; k and v in once for each tile of queries."""
    passes = len(tiles(length, query_tile))
    return 2 * length * head_dim * element + passes * 2 * length * head_dim * element
