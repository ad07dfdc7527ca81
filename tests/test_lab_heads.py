"""Patterns by hand on a small row, and shares of heads whose weights are known."""

from __future__ import annotations

import pytest
import torch

import rnj
from rnj import example
from rnj.core_attention import Rows, allowed
from rnj.lab.heads import PATTERNS, looks, patterns, share

TOKENS = torch.tensor([9, 1, 2, 1, 3, 9, 1, 1])  # two documents of 5 and 3
POSITIONS = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2])
SEGMENTS = torch.tensor([1, 1, 1, 1, 1, 2, 2, 2])
ROWS = Rows(POSITIONS[None], SEGMENTS[None], POSITIONS[None])


def keys(name: str, block_size: int | None = None) -> list[list[int]]:
    mask = allowed(ROWS, ROWS, block_size)[0]
    return [row.nonzero().flatten().tolist() for row in patterns(TOKENS, POSITIONS, mask)[name]]


def test_patterns_by_hand() -> None:
    assert keys("own token") == [[0], [1], [2], [3], [4], [5], [6], [7]]
    assert keys("previous token") == [[], [0], [1], [2], [3], [], [5], [6]]
    assert keys("same token earlier") == [[], [], [], [1], [], [], [], [6]]
    assert keys("after the same token") == [[], [], [], [2], [], [], [], [7]]
    assert keys("begin token") == [[0], [0], [0], [0], [0], [5], [5], [5]]
    assert keys("first key seen") == keys("begin token")


def test_a_local_layer_names_only_what_it_sees() -> None:
    """Blocks of 1, one back: a query sees itself and the one before."""
    assert keys("begin token", 1) == [[0], [0], [], [], [], [5], [5], []]
    assert keys("first key seen", 1) == [[0], [0], [1], [2], [3], [5], [5], [6]]
    assert keys("same token earlier", 1) == [[], [], [], [], [], [], [], [6]]


def test_nothing_is_named_for_padding() -> None:
    row = example.row()
    where = Rows(row.positions, row.segments, row.positions)
    for named in patterns(row.tokens[0], row.positions[0], allowed(where, where)[0]).values():
        assert not named[15].any() and not named[:, 15].any()


@pytest.mark.parametrize("name", PATTERNS)
def test_heads_that_are_all_pattern_or_even(name: str) -> None:
    mask = allowed(ROWS, ROWS)[0]
    named = patterns(TOKENS, POSITIONS, mask)[name]
    pure = torch.where(named.any(1, keepdim=True), named / named.sum(1, keepdim=True).clamp_min(1), mask / mask.sum(1))
    even = mask / mask.sum(1, keepdim=True)
    got, chance, queries = share(torch.stack([pure, even]), named, mask)
    torch.testing.assert_close(got, torch.tensor([1.0, chance]))
    assert 0 < chance < 1 and queries == {"same token earlier": 2, "after the same token": 2}.get(name, 6)


def test_no_choice_is_refused() -> None:
    mask = torch.eye(4, dtype=torch.bool)
    with pytest.raises(ValueError, match="no query has a choice"):
        share(mask[None].float(), mask, mask)


def test_looks_of_a_model() -> None:
    """Layer and head keep their places, and local layers have their own level of chance."""
    row, model = example.long_row(), rnj.build(rnj.SMALL, seed=0)
    trace = model.trace(row.tokens)
    found = looks(trace, 8, row.tokens[0], row.positions[0])
    assert list(found) == list(PATTERNS)
    own = trace["block.5.attn.weights"][0, 4].diagonal()[1:].mean()
    torch.testing.assert_close(found["own token"].share[5, 4], own)
    for look in found.values():
        assert look.share.shape == (8, 6) and look.even.shape == look.queries.shape == (8,)
        assert look.even[0] == look.even[1] != look.even[3] == look.even[7]
    assert found["begin token"].queries.tolist() == [255, 255, 255, 440] * 2  # two blocks see position 0
    assert found["first key seen"].queries.tolist() == [440] * 8
    assert torch.equal(found["first key seen"].share[3], found["begin token"].share[3])
