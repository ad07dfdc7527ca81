"""The figures of training draw the kept curves and the numbers they are given."""

from __future__ import annotations

import torch

import rnj
from rnj import example
from rnj.lab import ladder
from rnj.viz import training as draw
from rnj.viz.stepper import sweep


def test_the_curves_end_where_the_logs_end():
    shown = draw.curve_figure()
    for name in ("small-train", "small-fill", "small-extend"):
        end = [entry for entry in ladder.curve(name)[1] if "held_out" in entry][-1]
        assert f"{end['held_out']:.2f}" in shown.alt


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
