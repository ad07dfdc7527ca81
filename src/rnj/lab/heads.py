"""What heads look at: the share of attention weight that falls on keys which a simple rule names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    "block edge",
)
SAME_NAME = "same name earlier"  # only where the tokens' texts are given


def patterns(
    tokens: Int[Tensor, "T"],
    positions: Int[Tensor, "T"],
    allowed: Bool[Tensor, "T T"],
    labels: Sequence[str] | None = None,
) -> dict[str, Bool[Tensor, "T T"]]:
    """For each pattern the keys that it names, query by query, among those that the query may look at.

    tokens, positions: of one row, whose documents stand side by side; allowed: the layer's mask of that row; labels:
    the tokens' texts, for SAME_NAME: `(name` and `·name` are two tokens and hold one name.
    A block's edge is the first key that a query sees, where that is not the begin token: in global layers never.
    The patterns overlap: at position 1 the previous token is the begin token too.
    """
    T = tokens.shape[0]
    q, k = torch.arange(T)[:, None], torch.arange(T)[None]  # [T, 1], [1, T]
    same = (tokens[:, None] == tokens[None]) & (k < q)  # [T, T]
    after = torch.zeros_like(same)
    after[:, 1:] = same[:, :-1] & (positions[None, 1:] > 0)
    first = torch.zeros_like(allowed).scatter(1, allowed.int().argmax(1, keepdim=True), True)
    edge = first & (positions[None] > 0)
    named = dict(zip(PATTERNS, (q == k, q - k == 1, same, after, positions[None] == 0, edge), strict=True))
    if labels is not None:
        words = names(labels)  # [T]
        named[SAME_NAME] = (words[:, None] == words[None]) & (words[:, None] >= 0) & (k < q)
    return {name: keys & allowed for name, keys in named.items()}


def names(labels: Sequence[str]) -> Int[Tensor, "T"]:
    """For each token the number of the name in it, -1 where it holds none. int64, [T].

    A name begins with a letter or an underscore, whatever stands around it in the token. Bytes that are no whole letter
    (shown as \\x…) hold none.
    """
    found = [None if "\\" in label else re.search(r"[^\W\d]\w*", label) for label in labels]
    numbers: dict[str, int] = {}
    return torch.tensor([-1 if m is None else numbers.setdefault(m[0], len(numbers)) for m in found])


@dataclass(frozen=True, eq=False)
class Look:
    """How much of their weight the heads of L layers give to the keys of one pattern."""

    share: Float[Tensor, "L N"]  # mean over the queries counted; NaN in a layer where there are none
    even: Float[Tensor, "L"]  # the same for weights that are equal on all keys seen: the level of chance
    queries: Int[Tensor, "L"]  # how many were counted


def share(
    weights: Float[Tensor, "N T T"], named: Bool[Tensor, "T T"], allowed: Bool[Tensor, "T T"]
) -> tuple[Float[Tensor, "N"], float, int]:
    """Mean weight on the named keys, the same under even weights, and how many queries count.

    Those count that have a choice: they see at least one key that is named and one that is not.
    Raises ValueError where there is none.
    """
    counted = named.any(1) & (allowed & ~named).any(1)  # [T]
    if not bool(counted.any()):
        raise ValueError("no query has a choice between keys of this pattern and others")
    on_named = (weights * named).sum(-1)[:, counted].mean(-1)  # [N]
    even = (named.sum(1) / allowed.sum(1))[counted].mean()
    return on_named, float(even), int(counted.sum())


def looks(
    trace: Mapping[str, Tensor],
    n_layers: int,
    tokens: Int[Tensor, "T"],
    positions: Int[Tensor, "T"],
    labels: Sequence[str] | None = None,
) -> dict[str, Look]:
    """Every head of a model against every pattern, on row 0 of an explicit trace."""
    found: dict[str, list[tuple[Tensor, float, int]]] = {}
    for layer in range(n_layers):
        weights, allowed = (trace[f"block.{layer}.attn.{x}"][0] for x in ("weights", "allowed"))
        for name, named in patterns(tokens, positions, allowed, labels).items():
            nothing = torch.full_like(weights[:, 0, 0], torch.nan), torch.nan, 0
            has_choice = bool((named.any(1) & (allowed & ~named).any(1)).any())
            found.setdefault(name, []).append(share(weights, named, allowed) if has_choice else nothing)
    return {
        name: Look(torch.stack([s for s, _, _ in rows]), *(torch.tensor(c) for c in list(zip(*rows, strict=True))[1:]))
        for name, rows in found.items()
    }


@dataclass(frozen=True)
class Head:
    """The head that follows a pattern most, found by its share."""

    layer: int
    head: int
    share: float
    even: float  # the level of chance in that layer


def followers(looks: Mapping[str, Look]) -> dict[str, Head]:
    """For each pattern the head whose share stands highest above its layer's level of chance.

    Patterns that give no query of any layer a choice are left out.
    """
    found = {}
    for name, look in looks.items():
        if not bool(look.queries.any()):
            continue
        above = (look.share - look.even[:, None]).nan_to_num(-1)  # [L, N]
        layer, head = divmod(int(above.argmax()), above.shape[1])
        found[name] = Head(layer, head, float(look.share[layer, head]), float(look.even[layer]))
    return found


def typical_query(weights: Float[Tensor, "T T"], named: Bool[Tensor, "T T"], allowed: Bool[Tensor, "T T"]) -> int:
    """The query whose weight on the named keys is the median among those that have a choice: neither best nor worst.

    Raises ValueError where none has one.
    """
    counted = (named.any(1) & (allowed & ~named).any(1)).nonzero().flatten()  # [n]
    if not len(counted):
        raise ValueError("no query has a choice between keys of this pattern and others")
    on_named = (weights * named).sum(-1)[counted]  # [n]
    return int(counted[on_named.argsort(stable=True)[len(counted) // 2]])
