"""Masks of whole packed rows at any length: how many pairs they let through, and their outlines. Chapter 6.

A mask of 32,768 × 32,768 need not be made to be drawn or counted: within a document it is a triangle, a band or a
staircase, and a row is its documents one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

KINDS = ("causal", "document", "sliding", "block_local")
Corner = tuple[int, int]  # (key, query), in tokens


def outlines(
    kind: str, lengths: Sequence[int], block_size: int, lookback: int = 1, padding: int = 0
) -> list[list[Corner]]:
    """The corners of what a mask lets through, one polygon a document ("causal": one for the whole row).

    lengths: of the documents, in order; padding: places after the last one. The window of "sliding" is as long as the
    longest reach of the blocks, (lookback + 1) · block_size. A pair is a unit square; the diagonal is drawn straight.
    Raises ValueError for an unknown kind.
    """
    if _known(kind) == "causal":
        return [[(0, 0), (total := sum(lengths) + padding, total), (0, total)]]
    found, start = [], 0
    for length in lengths:
        found.append([(start + key, start + query) for key, query in _corners(kind, length, block_size, lookback)])
        start += length
    return found


def _corners(kind: str, length: int, block_size: int, lookback: int) -> list[Corner]:
    span = (lookback + 1) * block_size
    if kind == "document" or (kind == "sliding" and length <= span):
        return [(0, 0), (length, length), (0, length)]
    if kind == "sliding":
        return [(0, 0), (length, length), (length - span, length), (0, span)]
    corners = [(0, 0), (length, length)]
    for start in reversed(range(0, length, block_size)):
        first, stop = max(start - lookback * block_size, 0), min(start + block_size, length)
        corners += [(first, stop), (first, start)]
    return corners


def pairs(kind: str, lengths: Sequence[int], block_size: int, lookback: int = 1, padding: int = 0) -> int:
    """How many pairs of a query and a key a mask lets through. Exact."""
    if _known(kind) == "causal":
        return _triangle(sum(lengths) + padding)
    span = (lookback + 1) * block_size
    if kind == "document":
        return sum(_triangle(n) for n in lengths)
    if kind == "sliding":
        return sum(_triangle(min(n, span)) + max(n - span, 0) * span for n in lengths)
    return sum(keys("block_local", n, position, block_size, lookback) for n in lengths for position in range(n))


def keys(kind: str, length: int, position: int, block_size: int, lookback: int = 1, before: int = 0) -> int:
    """How many keys the query at `position` of a document of `length` sees; `before` places stand before the document.

    Raises ValueError for an unknown kind and where the document has no such position.
    """
    if not 0 <= position < length:
        raise ValueError(f"position must be from 0 to {length - 1}, not {position}")
    first = {
        "causal": -before,
        "document": 0,
        "sliding": max(position + 1 - (lookback + 1) * block_size, 0),
        "block_local": max(position // block_size - lookback, 0) * block_size,
    }[_known(kind)]
    return position - first + 1


def _triangle(n: int) -> int:
    return n * (n + 1) // 2


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    return kind
