"""Patterns by hand on a small row, and shares of heads whose weights are known."""

from __future__ import annotations

import pytest
import torch

import rnj
from rnj import example
from rnj.core_attention import Rows, allowed
from rnj.lab.heads import PATTERNS, SAME_NAME, Look, followers, looks, names, patterns, share, typical_query

TOKENS = torch.tensor([9, 1, 2, 1, 3, 9, 1, 1])  # two documents of 5 and 3
POSITIONS = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2])
SEGMENTS = torch.tensor([1, 1, 1, 1, 1, 2, 2, 2])
COUNTED = {"same token earlier": 2, "after the same token": 2, "block edge": 4}  # queries with a choice; else 6
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
    assert keys("block edge") == [[]] * 8


def test_a_local_layer_names_only_what_it_sees() -> None:
    """Blocks of 1, one back: a query sees itself and the one before."""
    assert keys("begin token", 1) == [[0], [0], [], [], [], [5], [5], []]
    assert keys("block edge", 1) == [[], [], [1], [2], [3], [], [], [6]]
    assert keys("same token earlier", 1) == [[], [], [], [], [], [], [], [6]]


def test_a_name_is_the_same_in_other_tokens() -> None:
    labels = ["begin", "(name", "·name", "name", "·=", "begin", "\\xe2", "·name2"]
    assert names(labels).tolist() == [0, 1, 1, 1, -1, 0, -1, 2]
    mask = allowed(ROWS, ROWS)[0]
    named = patterns(TOKENS, POSITIONS, mask, labels)[SAME_NAME]
    assert [row.nonzero().flatten().tolist() for row in named] == [[], [], [1], [1, 2], [], [], [], []]
    assert SAME_NAME not in patterns(TOKENS, POSITIONS, mask)


def test_nothing_is_named_for_padding() -> None:
    row = example.row()
    where = Rows(row.positions, row.segments, row.positions)
    for named in patterns(row.tokens[0], row.positions[0], allowed(where, where)[0]).values():
        assert not named[15].any() and not named[:, 15].any()


@pytest.mark.parametrize("name", PATTERNS)
def test_heads_that_are_all_pattern_or_even(name: str) -> None:
    mask = allowed(ROWS, ROWS, 1 if name == "block edge" else None)[0]
    named = patterns(TOKENS, POSITIONS, mask)[name]
    pure = torch.where(named.any(1, keepdim=True), named / named.sum(1, keepdim=True).clamp_min(1), mask / mask.sum(1))
    even = mask / mask.sum(1, keepdim=True)
    got, chance, queries = share(torch.stack([pure, even]), named, mask)
    torch.testing.assert_close(got, torch.tensor([1.0, chance]))
    assert 0 < chance < 1 and queries == COUNTED.get(name, 6)


def test_no_choice_is_refused() -> None:
    mask = torch.eye(4, dtype=torch.bool)
    with pytest.raises(ValueError, match="no query has a choice"):
        share(mask[None].float(), mask, mask)


def test_looks_of_a_model() -> None:
    """Layer and head keep their places, and local layers have their own level of chance."""
    row, model = example.long_row(), rnj.build(rnj.SMALL, seed=0)
    trace = model.trace(row.tokens)
    found = looks(trace, 8, row.tokens[0], row.positions[0], example.labels(row))
    assert list(found) == [*PATTERNS, SAME_NAME]
    own = trace["block.5.attn.weights"][0, 4].diagonal()[1:].mean()
    torch.testing.assert_close(found["own token"].share[5, 4], own)
    for look in found.values():
        assert look.share.shape == (8, 6) and look.even.shape == look.queries.shape == (8,)
        assert look.even[0] == look.even[1] != look.even[3]
    assert found["begin token"].queries.tolist() == [255, 255, 255, 440] * 2  # two blocks see position 0
    edge = found["block edge"]  # a global layer has none
    assert edge.queries.tolist() == [185, 185, 185, 0] * 2
    assert edge.share[3].isnan().all() and edge.even[7].isnan() and edge.share[2].isfinite().all()
    assert list(looks(trace, 8, row.tokens[0], row.positions[0])) == list(PATTERNS)


def test_followers_are_found_by_their_score() -> None:
    """Above chance counts, not the share alone; a layer without a query is passed over, such a pattern left out."""
    nan = float("nan")
    share_ = torch.tensor([[0.5, 0.1], [0.2, 0.45], [nan, nan]])
    look = Look(share_, torch.tensor([0.4, 0.1, nan]), torch.tensor([9, 9, 0]))
    nothing = Look(torch.full((3, 2), nan), torch.full((3,), nan), torch.zeros(3, dtype=torch.int64))
    found = followers({"a": look, "b": nothing})
    assert list(found) == ["a"]
    assert (found["a"].layer, found["a"].head) == (1, 1)
    assert found["a"].share == pytest.approx(0.45) and found["a"].even == pytest.approx(0.1)


def test_a_planted_head_is_found() -> None:
    """Weights of a trace set by hand: head 3 of layer 5 looks at the previous token alone."""
    row, model = example.long_row(), rnj.build(rnj.SMALL, seed=0)
    trace = model.trace(row.tokens)
    previous = patterns(row.tokens[0], row.positions[0], trace["block.5.attn.allowed"][0])["previous token"].float()
    trace["block.5.attn.weights"][0, 3, 1:] = previous[1:]
    found = followers(looks(trace, 8, row.tokens[0], row.positions[0]))["previous token"]
    assert (found.layer, found.head) == (5, 3) and found.share == pytest.approx(1)


def test_typical_query_is_the_median() -> None:
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    named = torch.zeros_like(mask)
    named[1:, 0] = True  # query 0 has no choice
    weights = torch.tensor([[1.0, 0, 0, 0], [0.9, 0.1, 0, 0], [0.2, 0.4, 0.4, 0], [0.5, 0.5, 0, 0]])
    assert typical_query(weights, named, mask) == 3
    with pytest.raises(ValueError, match="no query has a choice"):
        typical_query(weights, torch.zeros_like(mask), mask)
