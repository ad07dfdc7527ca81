"""Core attention: who may look at whom, and the weighted mean of what is seen. Chapter 6 builds it.

It stands here twice. `attend_explicit` shows every score and is the one to read; `attend` gives the same values and
gradients on scaled_dot_product_attention and never holds a T × T mask or score matrix in a local layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rnj.trace import Note, silent

# --- Masks: pure functions of positions and segments that broadcast; True means "may look".


def causal(q_pos: Int[Tensor, "..."], k_pos: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
    """A query sees its own position and earlier ones."""
    return k_pos <= q_pos


def same_document(q_seg: Int[Tensor, "..."], k_seg: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
    """A query sees its own document only. Segment 0, padding, sees nothing and nothing sees it."""
    return (q_seg == k_seg) & (k_seg != 0)


def block_local(
    q_pos: Int[Tensor, "..."], k_pos: Int[Tensor, "..."], block_size: int, lookback: int = 1
) -> Bool[Tensor, "..."]:
    """A query sees its own block and `lookback` before it (later ones too: add `causal`)."""
    return q_pos // block_size - k_pos // block_size <= lookback


def sliding(q_pos: Int[Tensor, "..."], k_pos: Int[Tensor, "..."], window: int) -> Bool[Tensor, "..."]:
    """The last `window` positions, for comparison: this model does not use it."""
    return q_pos - k_pos < window


# --- Where each token stands


@dataclass(frozen=True, eq=False)
class Rows:
    """Where the tokens of a batch stand.

    positions: [B, T], restart at 0 in each document and rise within it; segments: [B, T], 1, 2, … and 0 for padding;
    block_pos: [B, T], what blocks are counted by: the positions, or the columns since the row's first real token.
    start: the first position, where every row is one unpadded document; None otherwise.
    """

    positions: Int[Tensor, "B T"]
    segments: Int[Tensor, "B T"]
    block_pos: Int[Tensor, "B T"]
    start: int | None = None

    @staticmethod
    def plain(batch: int, length: int, start: int = 0, device: torch.device | str | None = None) -> Rows:
        """One unpadded document a row, from position `start` on."""
        positions = torch.arange(start, start + length, device=device).expand(batch, -1)  # [B, T]
        return Rows(positions, torch.ones_like(positions), positions, start)


def allowed(
    q_rows: Rows, k_rows: Rows, block_size: int | None = None, lookback: int = 1
) -> Bool[Tensor, "B T S"]:  # fmt: skip
    """Which query may look at which key. block_size None: a global layer; else a local one."""
    q_pos, k_pos = q_rows.positions[:, :, None], k_rows.positions[:, None]  # [B, T, 1], [B, 1, S]
    q_seg, k_seg = q_rows.segments[:, :, None], k_rows.segments[:, None]
    mask = causal(q_pos, k_pos) & same_document(q_seg, k_seg)  # [B, T, S]
    if block_size is not None:
        q_at, k_at = q_rows.block_pos[:, :, None], k_rows.block_pos[:, None]
        mask &= block_local(q_at, k_at, block_size, lookback)
    return mask


def columns(segments: Int[Tensor, "B T"], begun: Int[Tensor, " B"]) -> Int[Tensor, "B T"]:
    """Columns of each row counted from its first real token, `begun` of which came before these."""
    running = ((segments != 0).cumsum(1) > 0) | (begun[:, None] > 0)  # [B, T]
    return (begun[:, None] + running.cumsum(1) - 1).clamp(min=0)


# --- The explicit form


def attend_explicit(
    q: Float[Tensor, "B T N H"],
    k: Float[Tensor, "B S K H"],
    v: Float[Tensor, "B S K H"],
    allowed: Bool[Tensor, "B T S"],
    scale: float,
    note: Note = silent,
) -> Float[Tensor, "B T N H"]:
    """softmax(q · k · scale) · v with every score in sight. Query head n reads key head n // G.

    Softmax in float32. A query that may look at nothing gives 0.
    Source: Vaswani et al. 2017, eq. 1.
    """
    B, T, N, H = q.shape
    K = k.shape[2]
    grouped = q.reshape(B, T, K, N // K, H)  # [B, T, K, G, H]
    scores = torch.einsum("BTKGH,BSKH->BKGTS", grouped, k) * scale  # [B, K, G, T, S]
    note("scores", scores.flatten(1, 2))  # [B, N, T, S]
    visible = allowed[:, None, None]  # [B, 1, 1, T, S]
    blind = ~visible.any(-1, keepdim=True)  # [B, 1, 1, T, 1], queries with nothing to look at
    wide = scores.to(torch.promote_types(q.dtype, torch.float32))
    weights = wide.masked_fill(~(visible | blind), float("-inf")).softmax(-1)  # [B, K, G, T, S]
    weights = weights.masked_fill(blind, 0).to(q.dtype)
    note("weights", weights.flatten(1, 2))  # [B, N, T, S]
    return torch.einsum("BKGTS,BSKH->BTKGH", weights, v).reshape(B, T, N, H)  # [B, T, N, H]


# --- The fast form


def attend(
    q: Float[Tensor, "B T N H"],
    k: Float[Tensor, "B S K H"],
    v: Float[Tensor, "B S K H"],
    q_rows: Rows,
    k_rows: Rows,
    scale: float,
    block_size: int | None = None,
    lookback: int = 1,
) -> Float[Tensor, "B T N H"]:
    """The same as `attend_explicit` under `allowed(q_rows, k_rows, …)`.

    The queries are the last T of the S keys. A global layer uses the causal kernel where rows are
    plain, else a mask [B, T, S]. A local layer works block by block: its largest mask or score
    matrix has T · (lookback + 1) · C entries a head, one C more in packed rows.
    """
    T, S = q.shape[1], k.shape[1]
    sees_all = block_size is None or _first_is_seen(k_rows, S, block_size, lookback)
    if k_rows.start is not None and sees_all:
        if T == S:
            return _sdpa(q, k, v, scale, is_causal=True)
        if T == 1:
            return _sdpa(q, k, v, scale)  # one query that sees every key
    if block_size is not None and block_size < T:
        if k_rows.start == 0 and T == S:
            return _attend_plain_blocks(q, k, v, scale, block_size, lookback)
        return _attend_blocks(q, k, v, q_rows, k_rows, scale, block_size, lookback)
    return _sdpa_masked(q, k, v, allowed(q_rows, k_rows, block_size, lookback), scale)


def _first_is_seen(k_rows: Rows, S: int, block_size: int, lookback: int) -> bool:
    """Whether the last position of plain rows sees the first, so that causal is all there is."""
    if k_rows.start is None:
        return False
    return (k_rows.start + S - 1) // block_size - k_rows.start // block_size <= lookback


def _sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    """scaled_dot_product_attention on [B, T, N, H], its groups of query heads kept on the shared keys."""
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2),  # [B, N, T, H]
        k.transpose(1, 2),  # [B, K, S, H]
        v.transpose(1, 2),
        attn_mask=mask,  # [B, 1, T, S]
        is_causal=is_causal,
        scale=scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return out.transpose(1, 2)  # [B, T, N, H]


def _sdpa_masked(q: Tensor, k: Tensor, v: Tensor, mask: Bool[Tensor, "B T S"], scale: float) -> Tensor:
    """The same under a mask; queries that may look at nothing look everywhere and are then set to 0."""
    blind = ~mask.any(-1, keepdim=True)  # [B, T, 1]
    out = _sdpa(q, k, v, scale, (mask | blind)[:, None])  # [B, T, N, H]
    return out.masked_fill(blind[..., None], 0)


def _attend_plain_blocks(
    q: Tensor, k: Tensor, v: Tensor, scale: float, block_size: int, lookback: int
) -> Tensor:  # fmt: skip
    """Local attention on whole unpadded rows.

    The first span is causal; each later block sees the span that it ends.
    """
    B, T, N, H = q.shape
    span = (lookback + 1) * block_size
    head = _sdpa(q[:, :span], k[:, :span], v[:, :span], scale, is_causal=True)  # [B, span, N, H]
    n = -(-T // block_size) - lookback - 1  # blocks after the first span
    # The last block is filled up, and no query sees the filling.
    q, k, v = (_pad(x, 0, -T % block_size) for x in (q, k, v))
    q = q[:, span:].reshape(B * n, block_size, N, H)  # [B·n, C, N, H]
    k, v = (_spans(x[:, block_size:], span, block_size) for x in (k, v))  # [B·n, span, K, H]
    own = torch.ones(block_size, block_size, dtype=torch.bool, device=q.device).tril()  # [C, C]
    # One mask for all blocks: [1, 1, C, span].
    mask = F.pad(own, (span - block_size, 0), value=True)[None, None]
    tail = _sdpa(q, k, v, scale, mask).reshape(B, n * block_size, N, H)
    return torch.cat([head, tail[:, : T - span]], dim=1)  # [B, T, N, H]


def _attend_blocks(
    q: Tensor, k: Tensor, v: Tensor, q_rows: Rows, k_rows: Rows, scale: float, block_size: int, lookback: int
) -> Tensor:
    """Local attention on any rows (packed, padded, continued), C columns of queries at a time.

    A document's tokens stand side by side, so all that a query may see lies less than (lookback + 1) · C columns back.
    """
    B, T, N, H = q.shape
    back, more, filling = (lookback + 1) * block_size, k.shape[1] - T, -T % block_size

    def queries(x: Tensor) -> Tensor:  # [B, T, …] -> [B·n, C, …]
        return _spans(_pad(x, 0, filling), block_size, block_size)

    def keys(x: Tensor) -> Tensor:  # [B, S, …] -> [B·n, back + C, …]
        x = _pad(x[:, max(0, more - back) :], max(0, back - more), filling)
        return _spans(x, back + block_size, block_size)

    q_at = Rows(queries(q_rows.positions), queries(q_rows.segments), queries(q_rows.block_pos))
    k_at = Rows(keys(k_rows.positions), keys(k_rows.segments), keys(k_rows.block_pos))  # the filling is segment 0
    mask = allowed(q_at, k_at, block_size, lookback)  # [B·n, C, back + C]
    out = _sdpa_masked(queries(q), keys(k), keys(v), mask, scale)  # [B·n, C, N, H]
    return out.reshape(B, T + filling, N, H)[:, :T]


def _pad(x: Tensor, before: int, after: int) -> Tensor:
    """Zeros before and after along axis 1."""
    return F.pad(x, (0, 0) * (x.ndim - 2) + (before, after))


def _spans(x: Tensor, width: int, step: int) -> Tensor:
    """Pieces of `width` along axis 1, one every `step`: [B, S, …] -> [B·n, width, …]."""
    return x.unfold(1, width, step).movedim(-1, 2).flatten(0, 1)
