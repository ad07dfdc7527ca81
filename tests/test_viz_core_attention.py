"""The figures of chapter 6 draw the numbers of the functions that they name; its steppers sweep."""

from __future__ import annotations

import re

import pytest
import torch

import rnj
from rnj import RNJ_1_5, accounting, example
from rnj.core_attention import Rows, allowed
from rnj.lab import masks
from rnj.lab import online_softmax as online
from rnj.lab.reach import layer_masks, reach
from rnj.lab.saturation import saturation
from rnj.viz import core_attention as draw
from rnj.viz import figure, sweep
from tests.common import nothing_over_the_edge, words

held = nothing_over_the_edge(draw)


@pytest.fixture(scope="module")
def head() -> dict[str, torch.Tensor]:
    """One head of the packed row: q, k, v, scores, weights, allowed, heads."""
    row = example.row()
    trace = rnj.build(rnj.SMALL, seed=0, random_norms=True).trace(row.tokens, row.positions, row.segments)
    names = {"q": "q_rot", "k": "k_rot", "v": "v", "scores": "scores", "weights": "weights", "out": "heads"}
    made = {name: trace[f"block.3.attn.{part}"][0] for name, part in names.items()}
    picked = {"q": made["q"][:, 5], "k": made["k"][:, 1], "v": made["v"][:, 1], "out": made["out"][12, 5]}
    picked |= {"scores": made["scores"][5], "weights": made["weights"][5]}
    return picked | {"allowed": trace["block.3.attn.allowed"][0], "segments": row.segments[0]}


def test_scores(head: dict[str, torch.Tensor]) -> None:
    labels = example.labels(example.row())
    shown = draw.scores_figure(head["q"], head["k"], head["scores"], labels, head["segments"], lit=12, key=9)
    numbers = [w for w in words(shown) if re.fullmatch(r"−?\d+\.\d", w)]
    assert numbers == [figure.number(float(s), ".1f") for s in head["scores"].flatten()]
    assert f"= {figure.number(float(head['scores'][12, 9]), '.2f')}" in words(shown)
    assert shown.narrow is not None


def test_values(head: dict[str, torch.Tensor]) -> None:
    labels = example.labels(example.row())
    shown = draw.values_figure(
        head["weights"], head["allowed"], head["v"], head["out"], labels, head["segments"], lit=12
    )
    numbers = [w for w in words(shown) if w.isdigit() and w != "7"]
    percent = [f"{100 * float(head['weights'][i, j]):.0f}" for i, j in head["allowed"].nonzero().tolist()]
    percent += [f"{100 * float(head['weights'][12, j]):.0f}" for j in range(6, 13)]  # once more, below the values
    assert numbers == [p for p in percent if p != "7"]  # 7 is a token of the row as well
    assert "7 keys" in words(shown) and "sees nothing" in words(shown)


def test_masks() -> None:
    segments = torch.tensor([1, 1, 1, 2, 2, 0])
    rows = Rows(torch.tensor([[0, 1, 2, 0, 1, 0]]), segments[None], torch.tensor([[0, 1, 2, 0, 1, 0]]))
    masks = {name: allowed(rows, rows)[0] for name in ("causal", "document", "sliding", "block_local")}
    masks["causal"] = torch.ones(6, 6, dtype=torch.bool).tril()
    counted = [w for w in words(draw.masks_figure(masks, segments, 4, lit=4)) if w.endswith(" keys")]
    assert counted == ["5 keys", "2 keys", "2 keys", "2 keys"]


def test_runs_of_cells_cover_the_mask() -> None:
    row = torch.tensor([True, True, False, True, True, True])
    segments = torch.tensor([1, 1, 1, 1, 2, 2])
    runs = draw._runs(row, segments, segment=1)
    assert [(a, b) for a, b, _ in runs] == [(0, 2), (3, 4), (4, 6)] and runs[1][2] != runs[2][2]


@pytest.mark.parametrize("kind", ["local", "global"])
@pytest.mark.parametrize("length", [4096, 10_000, 32_768])
def test_the_outline_to_scale_has_the_area_of_the_pairs(kind: str, length: int) -> None:
    """The polygon is half a cell short of each diagonal cell, as a line through cells is."""
    corners = draw.outline(RNJ_1_5, length, kind)
    turned = corners[1:] + corners[:1]
    area = abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in zip(corners, turned, strict=True))) / 2
    assert area == accounting.visible_pairs(RNJ_1_5, length, kind) - length / 2


def test_hybrid_and_positions() -> None:
    shown = words(draw.hybrid_figure())
    assert any("184,565,760" in w for w in shown) and any("536,887,296" in w for w in shown)
    assert "24 local layers" in shown and "8 global layers" in shown
    shown = words(draw.positions_figure())
    for text in ("4,905 keys", "9,001 keys", "5,905 keys", "10,001 keys"):
        assert any(text in w for w in shown)


def test_long_masks_write_pairs_and_keys() -> None:
    shown = draw.long_masks_figure((12_288, 18_432), 2_048, lit=(1, 14_712))
    texts = words(shown)
    for kind, seen in zip(masks.KINDS, ("27,001", "14,713", "8,192", "6,521"), strict=True):
        assert f"{masks.pairs(kind, (12_288, 18_432), 4096, padding=2_048):,} pairs" in texts and seen in texts
    assert words(shown, narrow=True).count("32,768") == 4


def test_blocks() -> None:
    share = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    shown = words(draw.blocks_figure({"local": share, "global": share}, 128))
    assert shown.count("25") == shown.count("75") == shown.count("100") == 2


def test_reach() -> None:
    stacks = {"All layers local": ("local",) * 3, "The hybrid": ("local", "global", "local")}
    steps = {name: reach(layer_masks(40, 4, types)) for name, types in stacks.items()}
    shown = words(draw.reach_figure(steps, stacks, 4, 1024))
    assert f"back to {24 * 1024:,} after 3 layers" in shown and "back to 0 after 2 layers" in shown


def test_saturation_and_memory() -> None:
    dims = [1, 4, 16]
    plain, scaled = [saturation(d, 1.0) for d in dims], [saturation(d, d**-0.5) for d in dims]
    shown = words(draw.saturation_figure(dims, plain, scaled, 16))
    assert f"{plain[-1].largest_weight:.3g}" in shown and f"{scaled[-1].gradient:.3g}" in shown
    lengths = [1024, 8192, 163_840]
    curves = {name: [online.score_bytes(n, n) for n in lengths] for name in ("whole", "local", "tile")}
    assert "134 MB" in words(draw.memory_figure(lengths, curves, (8192, online.score_bytes(8192, 8192))))
    assert [draw.bytes_text(n) for n in (12, 230_400, 134_217_728, 53_687_091_200)] == [
        "12 B",
        "230 kB",
        "134 MB",
        "53.7 GB",
    ]


@pytest.mark.parametrize("name", draw.STEPPERS)
def test_steppers_sweep(name: str) -> None:
    stepper = draw.STEPPERS[name]()
    assert stepper.name == name
    assert sweep(stepper) == len(stepper.combinations()) <= 64


def test_stepper_numbers() -> None:
    long = draw.long_stepper()
    for position, first, keys in ((4095, 0, 4096), (4096, 0, 4097), (8192, 4096, 4097), (10_000, 4096, 5905)):
        numbers = long.draw(position=position, layer="local").numbers
        assert (numbers["first key seen"], numbers["keys seen"]) == (first, keys)
    packed = draw.row_stepper()
    assert packed.draw(query=15, layer="global").numbers["keys seen"] == 0
    assert packed.draw(query=12, layer="global").numbers == packed.draw(query=12, layer="local, blocks of 128").numbers
    blocks = draw.window_stepper()
    counts = [int(blocks.draw(query=q, layer="blocks of 4, one back").numbers["keys seen"]) for q in range(12)]
    assert counts == [1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8]


def test_the_online_stepper_ends_at_the_softmax_in_both_orders() -> None:
    stepper = draw.STEPPERS["online-softmax"]()
    for order in ("first to last", "last to first"):
        end = stepper.draw(tiles_read=8, order=order).numbers
        assert end["distance from the whole softmax"] < 1e-15
        held = [stepper.draw(tiles_read=i, order=order).numbers["bytes held in this step"] for i in range(1, 9)]
        assert set(held) == {1568} and end["bytes of all keys at once"] == 8848
        q, k, _, seen = draw.example_head()
        scores = (k @ q * rnj.SMALL.scale)[seen]
        assert float(end["running maximum m"]) == float(scores.max())
        assert float(end["running sum ℓ"]) == pytest.approx(float((scores - scores.max()).exp().sum()))
