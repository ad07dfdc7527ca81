"""Chapter 5's figures and steppers: each draws the numbers of the functions that it names."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
import torch

from rnj import RNJ_1_5, SMALL, example
from rnj.lab import positions as lab
from rnj.viz import palette, sweep, yarn
from rnj.viz.figure import Shown, number
from rnj.yarn import correction_range, cos_sin, inv_freq, rotate
from tests.common import nothing_over_the_edge, random, words

held = nothing_over_the_edge(yarn, for_phones=True)
Q, K = random(32) * 2, random(32, seed=1) * 2
COS, SIN = (part[0, 0] for part in cos_sin(torch.tensor([[6]]), SMALL))
Q_ROT = yarn._turned(Q, 6, SMALL)


CHANGES = torch.tensor([[0.0, 0.0], [0.12, 0.57]])


def order() -> Shown:
    return yarn.order_figure(
        torch.tensor([[0.0, 0.0], [0.12, 0.57]]), ["blind", "seeing"], list("abcd"), [1, 0, 2, 3], 2
    )


def scores() -> torch.Tensor:
    turn = cos_sin(torch.arange(6)[None], SMALL)
    q, k = (rotate(x.expand(1, 6, 1, 32), *turn)[0, :, 0] for x in (Q, K))
    return q @ k.T * SMALL.scale


def relative() -> Shown:
    return yarn.relative_figure(Q, K, scores(), SMALL, 3, [(5, 2), (105, 102)], lit=4)


def layouts() -> Shown:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    turned = torch.tensor([-1.984111, 1.959901, 2.462378, 4.019800])
    order = [0, 2, 1, 3]
    return yarn.layouts_figure(x, turned, x[order], turned[order])


def codes() -> Shown:
    distances = torch.arange(300)
    curves = {code: lab.score_by_distance(Q, Q, distances, SMALL, code) for code in yarn.CODES}
    elsewhere = lab.score_by_distance(Q, Q, distances, SMALL, "sinusoidal", furthest=900)
    return yarn.codes_figure(curves, (Q @ Q).item() * SMALL.scale, 100, elsewhere)


def shift() -> Shown:
    places = torch.tensor([0, 5, 40])
    before, after = lab.sinusoidal(places, 8).T, lab.sinusoidal(places + 3, 8).T
    return yarn.shift_figure(lab.shift_matrix(3, 8), before, after, places.tolist(), 3)


FIGURES = {
    "order": order,
    "table": yarn.table_figure,
    "waves": yarn.waves_figure,
    "forward": lambda: yarn.forward_figure(Q, COS, SIN, Q_ROT, 6),
    "relative": relative,
    "layouts": layouts,
    "codes": codes,
    "shift": shift,
    "visited": yarn.visited_figure,
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_whole(name: str) -> None:
    """Two drawings, page and phone; nothing written over an edge; only the book's colours; nothing left open."""
    shown = FIGURES[name]()
    assert shown.narrow is not None and len(shown.alt) > 60
    hexes = set(re.findall(r"#[0-9a-fA-F]{6}\b", shown.svg + shown.narrow))
    assert {h.lower() for h in hexes} <= set(palette.NAMES)
    assert plt.get_fignums() == []


def test_order_shows_the_changes() -> None:
    assert {"0.00", "0.12", "0.57", "blind", "seeing"} <= set(words(order()))
    assert "1 of them show 0.00 throughout" in order().alt


def test_table_shows_the_numbers() -> None:
    text = " ".join(words(yarn.table_figure()))
    for shown in ("kept: 21", "blended: 29", "slowed: 14", "pair 20.94", "pair 49.84", "1,088,203", "54,410", "6.28"):
        assert shown in text, shown
    usual = " ".join(words(yarn.table_figure(replace(RNJ_1_5, beta_fast=32.0))))
    assert "kept: 26" in usual and f"pair {correction_range(replace(RNJ_1_5, beta_fast=32.0))[0]:.2f}" in usual


def test_waves_name_their_turns() -> None:
    text = " ".join(words(yarn.waves_figure()))
    turns = 2 * math.pi / inv_freq(RNJ_1_5)
    for pair in (28, 36, 44, 50, 56, 63):
        assert f"pair {pair}" in text and f"a turn: {turns[pair]:,.0f}" in text


def test_forward_shows_every_number() -> None:
    shown = words(yarn.forward_figure(Q, COS, SIN, Q_ROT, 6))
    for vector in (Q, COS, SIN, Q_ROT):
        for value in vector.tolist():
            assert number(value, ".2f") in shown
    assert any(line.endswith(f"= {number(Q_ROT[3].item(), '.2f')}") for line in shown)


def test_relative_shows_one_value_a_diagonal() -> None:
    shown, table = words(relative()), scores()
    for i in range(6):
        for j in range(i + 1):
            assert number(table[i, j].item(), ".1f") in shown
    degrees = [word for word in shown if word.endswith("°")]
    assert len(degrees) == 2 and degrees[0] == degrees[1]
    a, b = yarn._turned(Q, 5, SMALL)[[3, 19]], yarn._turned(K, 2, SMALL)[[3, 19]]
    between = math.degrees(math.acos(torch.nn.functional.cosine_similarity(a, b, dim=0).item()))
    assert degrees[0] == f"{between:.0f}°"


def test_layouts_show_the_known_rotation() -> None:
    shown = words(layouts())
    for value in ("−1.984", "1.960", "2.462", "4.020"):
        assert shown.count(value) == 2


def test_codes_name_the_content() -> None:
    assert f"no code: {(Q @ Q).item() * SMALL.scale:.2f}" in words(codes())


def test_shift_shows_matrix_and_codes() -> None:
    shown = words(shift())
    for value in (
        *lab.shift_matrix(3, 8)[:2, :2].flatten().tolist(),
        *lab.sinusoidal(torch.tensor([5, 43]), 8).flatten().tolist(),
    ):
        assert number(value, ".2f") in shown


def test_visited_counts_the_pairs() -> None:
    text = " ".join(words(yarn.visited_figure()))
    assert "14 of 64 pairs reach angles" in text and "no pair leaves" in text
    plain = lab.plain(RNJ_1_5)
    assert (lab.share_never_visited(plain, 163_840, plain, 8192) > 1e-3).sum() == 14


@pytest.mark.parametrize(("name", "frames"), [("hands", 41), ("table", 36), ("shift", 63)])
def test_steppers(name: str, frames: int) -> None:
    assert sweep(yarn.STEPPERS[name]()) == frames


@pytest.mark.parametrize("token", [0, 1, 3, 10, 13])
def test_any_token_can_be_followed(token: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "FOLLOWED", token)
    place = int(example.row().positions[0, token])
    q, keys, named = yarn._running_pair(SMALL)
    assert q.shape == (32,) and 2 <= len(named) <= 3 and set(named.values()) == set(keys)
    assert place < 5 or all(p < place for p in keys)
    assert yarn.shift_stepper().frame().numbers["q’s position"] == place


def test_a_document_has_its_own_colour() -> None:
    first = yarn.order_figure(CHANGES, ["blind", "seeing"], list("abcd"), [0, 2, 1, 3], 3, segment=1).svg
    assert "--rnj-doc1" in first and "--rnj-doc2" not in first


def test_hands_stand_where_the_angles_say() -> None:
    stepper = yarn.hands_stepper()
    far = stepper.frame(position=163_839)
    angle = 163_839 * inv_freq(RNJ_1_5).double()
    assert far.numbers["turns of pair 0"] == pytest.approx(163_839 / (2 * math.pi))
    assert far.numbers["degrees of pair 63"] == pytest.approx(math.degrees(angle[63]), rel=1e-6)
    plain = lab.turns(lab.plain(RNJ_1_5), 163_840)[50:] % 1  # pairs below 50 have been everywhere
    seen = lab.turns(lab.plain(RNJ_1_5), 8_192)[50:]
    assert far.numbers["plain hands at angles never visited"] == (plain > seen).sum() > 5
    assert stepper.frame(position=8_191).numbers["plain hands at angles never visited"] == 0
    assert "50 of 64 hands" in far.text
    assert stepper.frame(position=777).numbers["turns of pair 0"] == pytest.approx(
        777 / (2 * math.pi)
    )  # any value, live


def test_table_stepper_shows_the_functions_numbers() -> None:
    stepper = yarn.table_stepper()
    assert stepper.frame().numbers == {
        "range from pair": 20.94, "to pair": 49.84, "slowest turn": 1_088_203,
        "m": f"{RNJ_1_5.rope_multiplier:.4f}", "m²": f"{RNJ_1_5.rope_multiplier**2:.4f}",
    }  # fmt: skip
    plain = stepper.frame(factor=1).numbers
    assert plain["m"] == "1.0000" and plain["slowest turn"] == round(2 * math.pi * 10_000 ** (126 / 128))


def test_shift_leaves_the_score() -> None:
    stepper = yarn.shift_stepper()
    key = stepper.controls[1]
    for word in key.values:
        by_shift = [stepper.frame(shift=s, key=word).numbers for s in yarn.SHIFTS]
        assert max(n["score"] for n in by_shift) - min(n["score"] for n in by_shift) <= 0.011
        assert [n["q’s position"] for n in by_shift] == [6 + s for s in yarn.SHIFTS]
