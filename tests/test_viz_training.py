"""The figures of training draw the kept curves and the numbers they are given."""

from __future__ import annotations

import torch

import rnj
from rnj import example
from rnj.lab import ladder
from rnj.lab.long_context import COLUMNS
from rnj.viz import training as draw
from rnj.viz.stepper import sweep


def test_the_curves_end_where_the_logs_end():
    shown = draw.curve_figure()
    for name in ("small-train", "small-names", "small-extend"):
        end = [entry for entry in ladder.curve(name)[1] if "held_out" in entry][-1]
        assert f"{end['held_out']:.2f}" in shown.alt


def standing(new: str, *ends: float) -> ladder.Standing:
    return ladder.Standing(new, 1000, tuple({500_000: end + 1, 1_000_000: end} for end in ends))


def test_the_ladder_names_each_rung_and_its_end():
    rungs = [standing("embedding and head", 6.0, 6.2), standing("the final norm", 5.0, 5.5)]
    assert "1 embedding and head 6.10, 2 the final norm 5.25." in draw.ladder_figure(rungs).alt
    shown = draw.ladder_figure(rungs, full=2.5)
    assert "3 the full budget 2.50" in shown.alt and shown.narrow and "the full budget" in shown.narrow


def test_the_race_shows_every_seed():
    alt = draw.race_figure({"ReLU": standing("ReLU", 4.1, 4.3), "GLU": standing("GLU", 4.0, 4.05)}).alt
    assert "ReLU 4.100, 4.300; GLU 4.000, 4.050" in alt


def test_long_contexts_by_the_mean_of_the_last_eighth():
    table = {
        model: {name: torch.full((3, 16), start + i) for i, name in enumerate(COLUMNS)}
        for model, start in (("hybrid", 1.0), ("twin", 2.0))
    }
    shown = draw.long_figure(table)
    assert "hybrid: plain 1.00, interpolation 2.00, YaRN 3.00" in shown.alt and "twin: plain 2.00" in shown.alt
    assert shown.narrow is not None


def test_kinds_of_layers():
    losses = {
        name: torch.full((2, 4), value)
        for name, value in (("as trained", 2.0), ("all local", 2.5), ("all global", 3.0))
    }
    assert "as trained 2.00, all local 2.50, all global 3.00" in draw.kinds_figure(losses).alt


def test_knocked_out_parts_by_what_they_cost():
    shown = draw.knock_out_figure({"nothing": 2.0, "attention": 5.25, "the soft cap": 1.9})
    assert "attention +3.25" in shown.alt and "the soft cap −0.10" in shown.alt


def test_every_frame_of_the_readings():
    stepper = draw.readings_stepper(rnj.build(rnj.SMALL, seed=0, random_norms=True))
    assert sweep(stepper) == int((example.row().targets >= 0).sum()) == 13
    numbers = stepper.frame(position=example.FOLLOWED).numbers
    assert 1 <= numbers["rank after the last layer"] <= 2048 and 0 < numbers["its probability"] < 1
