"""The figures of chapter 4 draw the numbers that they are given; its steppers sweep."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

import rnj
from rnj import RNJ_1_5, accounting, example
from rnj.lab.heads import Head, Look
from rnj.viz import attention as draw
from rnj.viz import figure, sweep
from rnj.viz.palette import NEGATIVE, POSITIVE
from tests.common import nothing_over_the_edge, words

LABELS = example.labels(example.row())


held = nothing_over_the_edge(draw, for_phones=True)


@pytest.fixture(scope="module")
def trace() -> dict[str, torch.Tensor]:
    row = example.row()
    return rnj.build(rnj.SMALL, seed=0, random_norms=True).trace(row.tokens, row.positions, row.segments)


def test_words() -> None:
    queries = [[[0.0, 0.0], [0.0, 0.0]], [[0.25, -1.5], [2.0, 0.75]]]
    keys, values = [[1.25, 0.5], [-0.5, 1.0]], [[3.0, -1.0], [0.0, 2.0]]
    shown = draw.words_figure(["a", "b"], queries, keys, [[1.0, -2.0], [0.5, 0.0]], [[0.9, 0.1], [0.25, 0.75]], values,
                              [[2.7, -0.7], [0.75, 1.25]], asking=1)  # fmt: skip
    for text in ("0.25", "−1.50", "1.25", "−2.00", "90.0 %", "75.0 %", "3.00", "2.70", "query of b"):
        assert text in words(shown)
    assert "head 0 most at a, head 1 most at b" in shown.alt


def test_flow(trace: dict[str, torch.Tensor]) -> None:
    shown = draw.flow_figure(trace, 3, 12, LABELS, example.row().segments[0])
    weights = trace["block.3.attn.weights"][0, :, 12, 6:13]
    percent = [w for w in words(shown) if re.fullmatch(r"\d+", w) and w != "7"]
    assert percent == [p for p in (f"{100 * float(x):.0f}" for x in weights.flatten()) if p != "7"]  # 7 is a token too
    for name in ("x of return", "q, k normalised", "q, k rotated", "concatenated", "out", *LABELS[6:13]):
        assert name in words(shown)


def test_bars_are_as_high_as_the_numbers() -> None:
    _, ax = figure.panels()
    draw._bars(ax, torch.tensor([2.0, -1.0, 0.0, 0.5]), x=0, y=0, width=4, high=10)
    up, down = (p for p in ax.patches + list(ax.artists) if p.get_facecolor()[:3] != (1, 1, 1))
    heights = {c: [float(b[3]) for b in _boxes(p)] for c, p in ((POSITIVE, up), (NEGATIVE, down))}
    assert heights[POSITIVE] == pytest.approx([4.7, 1.175]) and heights[NEGATIVE] == pytest.approx([2.35])


def _boxes(patch: object) -> list[tuple[float, float, float, float]]:
    points = patch.get_path().vertices.reshape(-1, 5, 2)  # type: ignore[attr-defined]
    return [(*p.min(0), *(p.max(0) - p.min(0))) for p in points]


def test_view() -> None:
    origin = torch.arange(6)[:, None].expand(6, 3).flatten()
    right, wrong = origin.view(6, 3).T, origin.view(3, 6)
    shown = draw.view_figure(right, wrong, torch.tensor([1, 1, 2, 2, 2, 0]), lit=4)
    cells = [w for w in words(shown) if w.isdigit()]
    assert cells == [str(int(i)) for i in torch.cat([right.flatten(), wrong.flatten()])]
    assert "token 4 is at head 2, places 0 to 2" in shown.alt
    origin = torch.arange(5)[:, None].expand(5, 3).flatten()
    across = draw.view_figure(origin.view(5, 3).T, origin.view(3, 5), torch.tensor([1, 1, 2, 2, 0]), lit=1)
    assert "token 1 is at head 0, places 3 to 4 and head 1, places 0 to 0." in across.alt


def test_norm() -> None:
    shown = words(draw.norm_figure([1, 2, 4], [3.5, 14.0, 560.0], [3.9, 3.9, 3.9], 13.4))
    assert {"560", "3.9", "13.4"} <= set(shown)


def test_groups() -> None:
    shown = draw.groups_figure([0, 0, 1, 1], [0, 1, 0, 1])
    assert "wrong in 2 heads" in words(shown) and "wrong in heads 1, 2" in shown.alt
    assert words(shown).count("3") == 2  # query head 3, twice


def test_kinds() -> None:
    shown = words(draw.kinds_figure(RNJ_1_5, {"Multi-head": 32, "Grouped-query": 8, "Multi-query": 1}))
    for text in ("16,384 B", "4,096 B", "512 B", "67,108,864", "41,943,040", "34,603,008", "Multi-query: 1 KV head"):
        assert text in shown


def test_sum(trace: dict[str, torch.Tensor]) -> None:
    parts = torch.randn(6, 192)
    shown = draw.sum_figure(parts, parts.sum(0))
    assert "all 192 numbers, to one scale" in words(shown) and "differ by 0e+00" in shown.alt


def test_looks() -> None:
    look = Look(torch.tensor([[0.125, 0.5], [0.0, 0.25]]), torch.tensor([0.021, 0.013]), torch.tensor([9, 9]))
    shown = draw.looks_figure({"own token": look, "begin token": look}, ("local", "global"))
    numbers = [w for w in words(shown) if re.fullmatch(r"\d+\.\d", w)]
    assert numbers == ["12.5", "50.0", "0.0", "25.0", "2.1", "1.3"] * 2
    assert "own token: at most 50.0%, in layer 0, head 1 (even 2.1%)" in shown.alt


def test_a_layer_without_queries_has_a_dash() -> None:
    nan = float("nan")
    look = Look(torch.tensor([[0.125, 0.5], [nan, nan]]), torch.tensor([0.021, nan]), torch.tensor([9, 0]))
    shown = draw.looks_figure({"block edge": look}, ("local", "global"))
    assert [w for w in words(shown) if re.fullmatch(r"\d+\.\d|–", w)] == ["12.5", "50.0", "2.1", "–"]
    assert "layer 0, head 1" in shown.alt and "nan" not in shown.svg


def test_followers() -> None:
    weights = torch.tensor([0.1, 0.6, 0.3, 0.0])
    named = torch.tensor([False, True, False, False])
    found = {"previous token": Head(2, 4, 0.614, 0.021), "begin token": Head(3, 0, 0.3, 0.1)}
    rows = dict.fromkeys(found, (2, weights, named))
    shown = draw.followers_figure(found, rows, list("abcd"), ("local", "local", "local", "global"))
    for text in ("previous token", "local 2, head 4", "61.4 %, even 2.1 %", "global 3, head 0", "c at 2"):
        assert text in words(shown)
    assert "local 2, head 4: 61.4 %, even 2.1 %" in words(shown, narrow=True)
    assert shown.alt.count("c looks most at b") == 2


@pytest.mark.parametrize("name", draw.STEPPERS)
def test_steppers_sweep(name: str) -> None:
    stepper = draw.STEPPERS[name]()
    assert stepper.name == name
    assert sweep(stepper) == len(stepper.combinations()) <= 64


def test_kv_heads_stepper_counts() -> None:
    stepper = draw.kv_heads_stepper()
    for kv_heads in (1, 8, 32):
        config = replace(RNJ_1_5, n_kv_heads=kv_heads)
        for head in range(32):  # in a notebook every head can be chosen
            numbers = stepper.draw(kv_heads=kv_heads, query_head=head).numbers
            assert numbers["key head read"] == head // (32 // kv_heads)
            assert numbers["cache, bytes a token and layer"] == 512 * kv_heads
            assert numbers["attention parameters a layer"] == accounting.layer_parameters(config).attention
    assert stepper.draw(kv_heads=8, query_head=0).numbers["cache of 163,840 tokens, GiB"] == 5.75


def test_looks_stepper_shows_the_traced_weights(trace: dict[str, torch.Tensor]) -> None:
    stepper = draw.looks_stepper(rnj.build(rnj.SMALL, seed=0, random_norms=True), 12)
    frame = stepper.frame(layer=6, head=2)
    weights = trace["block.6.attn.weights"][0, 2, 12]
    assert frame.numbers["largest weight"] == pytest.approx(float(weights.max()))
    assert frame.numbers["weight on begin"] == pytest.approx(float(weights[6]))
    percent = re.findall(r">(\d+\.\d) %<", str(frame.figure))
    assert percent == [f"{100 * float(w):.1f}" for w in weights[6:13]]
    spread = frame.numbers["keys it spreads over, exp(entropy)"]
    assert spread == pytest.approx(float(torch.distributions.Categorical(weights[6:13]).entropy().exp()), rel=1e-5)
