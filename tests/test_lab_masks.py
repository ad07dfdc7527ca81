"""Pairs, keys and outlines of whole rows against the package's own masks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rnj.core_attention import block_local, causal, same_document, sliding
from rnj.lab import masks

ROWS = [((12, 18), 4, 1, 2), ((5,), 4, 1, 0), ((3, 9, 21), 4, 2, 1), ((17, 8), 5, 0, 0)]


def real(lengths: tuple[int, ...], block_size: int, lookback: int, padding: int) -> dict[str, Tensor]:
    pos = torch.cat([torch.arange(n) for n in (*lengths, padding)])
    seg = torch.cat([torch.full((n,), i) for i, n in enumerate((*lengths, padding), start=1)])
    seg[sum(lengths) :] = 0
    column = torch.arange(len(pos))
    q, k = pos[:, None], pos[None]
    made = {"causal": causal(column[:, None], column[None])}
    made["document"] = made["causal"] & same_document(seg[:, None], seg[None])
    made["sliding"] = made["document"] & sliding(q, k, (lookback + 1) * block_size)
    made["block_local"] = made["document"] & block_local(q, k, block_size, lookback)
    return made


@pytest.mark.parametrize(("lengths", "block_size", "lookback", "padding"), ROWS)
@pytest.mark.parametrize("kind", masks.KINDS)
def test_pairs_are_those_of_the_masks(kind, lengths, block_size, lookback, padding):
    mask = real(lengths, block_size, lookback, padding)[kind]
    assert masks.pairs(kind, lengths, block_size, lookback, padding) == int(mask.sum())


@pytest.mark.parametrize(("lengths", "block_size", "lookback", "padding"), ROWS)
@pytest.mark.parametrize("kind", masks.KINDS)
def test_keys_are_those_of_the_masks(kind, lengths, block_size, lookback, padding):
    counts, before = real(lengths, block_size, lookback, padding)[kind].sum(1), 0
    for length in lengths:
        made = [masks.keys(kind, length, p, block_size, lookback, before) for p in range(length)]
        assert made == counts[before : before + length].tolist()
        before += length


@pytest.mark.parametrize(("lengths", "block_size", "lookback", "padding"), ROWS)
@pytest.mark.parametrize("kind", masks.KINDS)
def test_outlines_have_the_area_of_the_pairs(kind, lengths, block_size, lookback, padding):
    """Each cell that a slanted edge cuts is half in, half out: the diagonal leaves half a cell of each pair on it out,
    the lower edge of a sliding window takes half a cell too much for each query below its first window."""
    area = 0.0
    for corners in masks.outlines(kind, lengths, block_size, lookback, padding):
        turned = corners[1:] + corners[:1]
        area += abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in zip(corners, turned, strict=True))) / 2
    span = (lookback + 1) * block_size
    places = sum(lengths) + (padding if kind == "causal" else 0)
    extra = sum(max(n - span, 0) for n in lengths) if kind == "sliding" else 0
    assert area == masks.pairs(kind, lengths, block_size, lookback, padding) - places / 2 + extra / 2


def test_full_size():
    row = {"lengths": (12_288, 18_432), "block_size": 4096, "padding": 2048}
    found = [masks.pairs(kind, **row) for kind in masks.KINDS]
    assert found == [536_887_296, 245_382_144, 184_557_568, 153_107_456]
    for position, count in ((8191, 8192), (8192, 4097), (9000, 4905), (10_000, 5905)):
        assert masks.keys("block_local", 18_432, position, 4096) == count


def test_refusals():
    with pytest.raises(ValueError, match="kind must be one of causal, document, sliding, block_local, not 'dense'"):
        masks.pairs("dense", (4,), 2)
    with pytest.raises(ValueError, match="kind must be"):
        masks.outlines("dense", (4,), 2)
    with pytest.raises(ValueError, match="position must be from 0 to 3, not 4"):
        masks.keys("causal", 4, 4, 2)
