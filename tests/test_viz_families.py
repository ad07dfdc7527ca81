"""The figures of interlude B draw the numbers of the functions that they name; its steppers sweep."""

from __future__ import annotations

import html
import re

import pytest
import torch
from matplotlib.figure import Figure

from rnj.lab import families as lab
from rnj.viz import families as draw
from rnj.viz import figure, sweep


def words(shown: figure.Shown) -> list[str]:
    """The texts that a picture holds, in order."""
    return [html.unescape(t) for t in re.findall(r"<text[^>]*>([^<]*)</text>", shown.svg)]


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures shown, wide and narrow in turn; each of them holds its texts."""
    kept: list[Figure] = []

    def checked(fig: Figure, alt: str, caption: str | None = None, narrow: Figure | None = None) -> figure.Shown:
        for drawing in (fig, narrow):
            assert drawing is not None and not figure.clipped(drawing)
            kept.append(drawing)
        return figure.show(fig, alt, caption, narrow)

    monkeypatch.setattr(draw, "show", checked)
    return kept


def test_joint_masks() -> None:
    masks = draw.joint_masks(2, 3)
    assert [m.int().tolist() for m in masks.values()] == [
        [[1] * 5] * 5,
        [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
        [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
    ]
    assert tuple(masks) == draw.FAMILIES == lab.KEPT


def test_masks() -> None:
    pair = draw.example_pair(6)
    shown = draw.masks_figure(draw.joint_masks(6, 6), pair, lit=2)
    word = pair.source[2]
    counted = [w for w in words(shown) if w.endswith(" keys")]
    assert counted == [f"{word}: {n} of 12 keys" for n in (12, 3, 6)]
    assert words(shown).count(pair.target[5]) == 4  # above each mask, and once beside the first
    assert shown.narrow is not None and "encoder-decoder 6" in shown.alt


def test_example_pairs_are_held_out() -> None:
    for length in (6, 9):
        pair = draw.example_pair(length)
        assert len(pair.source) == len(pair.target) == length and lab.is_held_out(pair.source)


def test_masks_stepper_counts() -> None:
    stepper = draw.masks_stepper()
    for word, counts in ((0, (12, 1, 6)), (5, (12, 6, 6)), (6, (12, 7, 7)), (11, (12, 12, 12))):
        assert tuple(stepper.draw(word=word).numbers.values()) == counts


def test_signal() -> None:
    masked = torch.full((4, 5), lab.IGNORED)
    masked[1, 2] = 9
    following = torch.full((4, 5), 9)
    following[:, 4] = lab.IGNORED
    shown = draw.signal_figure(masked, following)
    assert "1 of 20 positions, 5 %" in words(shown) and "16 of 20 positions, 80 %" in words(shown)


def test_gaps_marks_stand_at_the_losses(drawn: list[Figure]) -> None:
    kinds = [*lab.KINDS, "all"]
    losses = {name: {k: i + 0.1 * j for j, k in enumerate(kinds)} for i, name in enumerate(draw.MARKS)}
    shown = draw.gaps_figure(losses)
    for fig in drawn:
        placed = [list(line.get_xdata()) for line in fig.axes[0].lines if len(line.get_xdata()) == len(kinds)]
        assert placed == [list(values.values()) for values in losses.values()]
    assert set(draw.MARKS) <= set(words(shown)) and set(kinds) <= set(words(shown))


def test_curves_are_the_kept_ones(drawn: list[Figure]) -> None:
    data = lab.data()
    shown = draw.curves_figure(data)
    for name in draw.CURVES:
        runs = [torch.tensor(run["exact"]) for run in data["runs"] if run["family"] == name]
        want = torch.stack(runs).mean(0) * torch.tensor([lab.A_STEP, 100])
        for fig in drawn:
            lines = [torch.tensor(line.get_xydata()).float() for line in fig.axes[0].lines]
            assert any(line.shape == want.shape and torch.allclose(line, want) for line in lines)
        first = int((want[:, 1] >= 95).int().argmax())
        assert draw.passed(data, name, 95) == int(want[first, 0])
        assert f"{name} passes 95 % by {int(want[first, 0]):,}" in shown.alt


@pytest.mark.parametrize("name", draw.STEPPERS)
def test_steppers_sweep(name: str) -> None:
    stepper = draw.STEPPERS[name]()
    assert stepper.name == name
    assert sweep(stepper) == len(stepper.combinations()) <= 64


def test_the_writing_stepper_shows_the_models_weights() -> None:
    pair = draw.example_pair(9)
    weights, probabilities = draw.cross_weights(lab.trained("encoder-decoder"), pair)
    assert weights.shape == (2, 4, 10, 11)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 10))
    stepper = draw.writing_stepper()
    frame = stepper.draw(step=4, view="layer 1, all heads")
    assert frame.numbers["probability of the word"] == pytest.approx(float(probabilities[4, lab.ID[pair.target[4]]]))
    on = float(weights[1, :, 4, pair.aligned[4] + 1].mean())
    assert frame.numbers["weight on what it renders"] == pytest.approx(on)
    last = stepper.draw(step=9, view="layer 0, all heads")
    assert last.numbers["weight on what it renders"] is None and last.text.startswith("The end")
