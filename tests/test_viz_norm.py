"""The figures of chapter 2 draw the numbers of the functions that they name; its steppers sweep."""

from __future__ import annotations

import re

import pytest
import torch

import rnj
from rnj import example
from rnj.lab.norms import PLACEMENTS, depth_profile, layer_norm
from rnj.norm import RMSNorm
from rnj.viz import figure, sweep
from rnj.viz import norm as draw
from tests.common import nothing_over_the_edge, words

held = nothing_over_the_edge(draw)


def test_steps() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(192) * 3, torch.randn(192) * 0.3
    size = (x.pow(2).mean() + 1e-6).sqrt()
    shown = draw.steps_figure(x, size.item(), x / size, 1 + w, x / size * (1 + w), "return")
    numbers = [text for text in words(shown) if re.fullmatch(r"−?\d+\.\d\d", text)]
    wanted = [x, x.pow(2), x / size, 1 + w, x / size * (1 + w)]
    assert numbers == [figure.number(v, ".2f") for vector in wanted for v in vector[:8].tolist()]
    assert f"mean over all 192: {x.pow(2).mean():.4f}, its root {size:.4f}" in words(shown)


def test_sizes() -> None:
    row = example.row()
    trace = rnj.build(rnj.SMALL, seed=0, random_norms=True).trace(row.tokens, row.positions, row.segments)
    texts = words(draw.sizes_figure(trace, block=3, token=12, name="return"))
    for point in ("in", "pre_attn_norm", "attn.out", "post_attn_norm", "mid", "pre_mlp_norm", "mlp.out", "out"):
        assert point in texts
        assert f"{draw.rms(trace[f'block.3.{point}'][0, 12]):.3g}" in texts


def test_plane() -> None:
    points = draw.points_in_the_plane()
    by_layer = layer_norm(points, torch.ones(2), torch.zeros(2))
    shown = draw.plane_figure(points, RMSNorm(2)(points).detach(), by_layer)
    assert points.shape == (14, 2) and shown.narrow is not None


def test_depth() -> None:
    profiles = {placement: [depth_profile(placement, n_layers=4, seed=s) for s in (0, 1)] for placement in PLACEMENTS}
    texts = words(draw.depth_figure(profiles))
    mean = (profiles["four"][0].signal[-1] * profiles["four"][1].signal[-1]) ** 0.5
    assert f"four norms {mean:.1f}" in texts and "post-norm 1.0" in texts


@pytest.mark.parametrize("name", draw.STEPPERS)
def test_steppers_sweep(name: str) -> None:
    stepper = draw.STEPPERS[name]()
    assert sweep(stepper, distinct=0.5) == len(stepper.combinations()) >= 9


def test_depth_stepper_measures_what_it_shows() -> None:
    frame = draw.depth_stepper().frame(layers=4, scale=2.0)
    for placement in PLACEMENTS:
        profile = depth_profile(placement, 4, d_model=32, length=16, scale=2.0)
        name = draw.TITLES[placement]
        assert frame.numbers[f"signal at the end, {name}"] == profile.signal[-1]
        assert frame.numbers[f"gradient at the input, {name}"] == profile.gradient[0]
        assert f"{name} {profile.gradient[0]:,.3g}" in words(str(frame.figure))


def test_vector_stepper_says_what_moved() -> None:
    stepper = draw.vector_stepper()
    assert stepper.frame(scale=4.0, offset=0.0).numbers["RMSNorm moved by"] < 1e-5
    shifted = stepper.frame(scale=1.0, offset=2.0).numbers
    assert shifted["LayerNorm moved by"] < 1e-5 and shifted["RMSNorm moved by"] > 1


def test_eps_stepper_has_the_known_value() -> None:
    assert draw.eps_stepper().frame(size=1e-4, eps=1e-6).numbers["size after"] == pytest.approx(0.0995037, abs=1e-6)
