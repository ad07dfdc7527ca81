"""What heads look at: the share of attention weight that falls on keys which a simple rule names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

PATTERNS = (
    "own token",
    "previous token",
    "same token earlier",
    "after the same token",
    "begin token",
    "first key seen",
)


def patterns(
    tokens: Int[Tensor, "T"], positions: Int[Tensor, "T"], allowed: Bool[Tensor, "T T"]
) -> dict[str, Bool[Tensor, "T T"]]:
    """For each pattern the keys that it names, query by query, among those that the query may look at.

    tokens, positions: of one row, whose documents stand side by side; allowed: the layer's mask of that row.
    The patterns overlap: at position 1 the previous token is the begin token too.
    """
    T = tokens.shape[0]
    q, k = torch.arange(T)[:, None], torch.arange(T)[None]  # [T, 1], [1, T]
    same = (tokens[:, None] == tokens[None]) & (k < q)  # [T, T]
    after = torch.zeros_like(same)
    after[:, 1:] = same[:, :-1] & (positions[None, 1:] > 0)
    first = torch.zeros_like(allowed).scatter(1, allowed.int().argmax(1, keepdim=True), True)
    named = (q == k, q - k == 1, same, after, positions[None] == 0, first)
    return {name: keys & allowed for name, keys in zip(PATTERNS, named, strict=True)}


@dataclass(frozen=True, eq=False)
class Look:
    """How much of their weight the heads of L layers give to the keys of one pattern."""

    share: Float[Tensor, "L N"]  # mean over the queries counted
    even: Float[Tensor, "L"]  # the same for weights that are equal on all keys seen: the level of chance
    queries: Int[Tensor, "L"]  # how many were counted


def share(
    weights: Float[Tensor, "N T T"], named: Bool[Tensor, "T T"], allowed: Bool[Tensor, "T T"]
) -> tuple[Float[Tensor, "N"], float, int]:
    """Mean weight on the named keys, the same under even weights, and the number of queries counted.

    Counted are queries that have a choice: they see at least one key that is named and one that is not.
    Raises ValueError where there is none.
    """
    counted = named.any(1) & (allowed & ~named).any(1)  # [T]
    if not bool(counted.any()):
        raise ValueError("no query has a choice between keys of this pattern and others")
    on_named = (weights * named).sum(-1)[:, counted].mean(-1)  # [N]
    even = (named.sum(1) / allowed.sum(1))[counted].mean()
    return on_named, float(even), int(counted.sum())


def looks(
    trace: Mapping[str, Tensor], n_layers: int, tokens: Int[Tensor, "T"], positions: Int[Tensor, "T"]
) -> dict[str, Look]:
    """Every head of a model against every pattern, on row 0 of an explicit trace."""
    found: dict[str, list[tuple[Tensor, float, int]]] = {name: [] for name in PATTERNS}
    for layer in range(n_layers):
        weights, allowed = (trace[f"block.{layer}.attn.{x}"][0] for x in ("weights", "allowed"))
        for name, named in patterns(tokens, positions, allowed).items():
            found[name].append(share(weights, named, allowed))
    return {
        name: Look(torch.stack([s for s, _, _ in rows]), *(torch.tensor(c) for c in list(zip(*rows, strict=True))[1:]))
        for name, rows in found.items()
    }
