"""The figures of interlude A draw the numbers of the functions that they name; its steppers sweep."""

from __future__ import annotations

import html
import re

import pytest
import torch
from matplotlib.figure import Figure

from rnj.lab import recurrent as lab
from rnj.viz import figure, sweep
from rnj.viz import recurrent as draw


def words(shown: figure.Shown) -> list[str]:
    """The texts that a picture holds, in order."""
    return [html.unescape(t) for t in re.findall(r"<text[^>]*>([^<]*)</text>", shown.svg)]


@pytest.fixture(autouse=True)
def nothing_over_the_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure that is shown holds its texts, the narrow one too."""

    def checked(fig: Figure, alt: str, caption: str | None = None, narrow: Figure | None = None) -> figure.Shown:
        for drawing in (fig, narrow):
            assert drawing is None or not figure.clipped(drawing)
        return figure.show(fig, alt, caption, narrow)

    monkeypatch.setattr(draw, "show", checked)


@pytest.mark.parametrize(("place", "back"), [(6, 3), (1, 1), (0, 0)])
def test_paths(place: int, back: int) -> None:
    labels = ["begin", "def", "·f", "(name", "):", "↵····", "return", "·name", "end"]
    shown = draw.path_figure(labels, place, back)
    ends = [word for word in words(shown) if word in labels]
    assert set(ends) == {labels[place], labels[place - back]} and len(ends) == (4 if back else 2)
    assert any(word.startswith(f"{back} step") for word in words(shown))


def test_gradients() -> None:
    curves = {
        "RNN": [0.5 ** torch.arange(65.0), 0.5 ** torch.arange(65.0)],
        "LSTM": [0.6 ** torch.arange(65.0)] * 2,
        "LSTM, gates open": [torch.full((65,), 0.01), torch.full((65,), 0.04)],
        "attention": [torch.full((65,), 0.25)] * 2,
    }
    shown = draw.gradient_figure(curves)
    assert {"RNN: 5e−20", "LSTM: 6e−15", "LSTM, gates open: 0.02", "attention: 0.25"} <= set(words(shown))
    assert shown.narrow is not None and "64 steps back: RNN 5e-20" in shown.alt


def test_powers() -> None:
    assert [draw._power(x) for x in (0.0123, 1.0, 45.26, 0.00961, 3e-12, 1234.0)] == [
        "0.012", "1", "45", "1e−2", "3e−12", "1e3",
    ]  # fmt: skip


def test_times() -> None:
    times = {"RNN": [0.002, 0.064], "LSTM": [0.0003, 0.0096], "attention": [0.001, 0.243]}
    shown = draw.time_figure((64, 2048), times)
    assert {"RNN: 64 ms", "LSTM: 9.6 ms", "attention: 243 ms", "2,048"} <= set(words(shown))
    assert shown.alt == "Time by length; at 2,048 tokens: RNN 64 ms, LSTM 9.6 ms, attention 243 ms."


def test_task() -> None:
    recipe = lab.Recipe("RNN", 16)
    made = lab.make_items(recipe, 1, torch.Generator().manual_seed(0), distance=5)
    shown = draw.task_figure({"16 keys": made}, recipe.choices)
    asked = draw.LETTERS[made.keys[0, -1]]
    found = words(shown)[:-1]  # without the heading
    assert found[::2] == [draw.LETTERS[key] for key in made.keys[0]] and found.count(asked) == 2
    assert found[1::2] == [*map(str, made.values[0, :-1].tolist()), "?"]
    assert shown.alt == f"16 keys: {asked} is asked for, 5 steps after it was shown."


def run(network: str, pairs: int, seed: int, share: float) -> lab.Run:
    far = dict.fromkeys(lab.FAR, share / 2) if pairs == 1 else {}
    return lab.Run(lab.Recipe(network, pairs, seed), 1, [2.0], [2.0, 2 - share, 1 - share], [share] * 16, far)


@pytest.fixture
def runs() -> list[lab.Run]:
    shares = {"RNN": 0.3, "LSTM": 0.6, "attention": 0.9}
    return [run(n, p, s, shares[n] + 0.1 * s) for p in (1, 16) for n in lab.NETWORKS for s in (0, 1)]


def test_recall(runs: list[lab.Run]) -> None:
    one, many = draw.recall_figure(runs, 1), draw.recall_figure(runs, 16)
    assert {"16 keys to keep", "RNN 0.35", "LSTM 0.65", "attention 0.95", "chance 0.125"} <= set(words(many))
    assert "farther than" not in words(many) and "farther than" in words(one)
    assert "1 to 64: RNN from 0.35 to 0.17" in one.alt and "1 to 16: RNN from 0.35 to 0.35" in many.alt


def test_losses(runs: list[lab.Run]) -> None:
    shown = draw.loss_figure(runs)
    assert words(shown).count("LSTM 0.35") == 2 and "300" in words(shown)
    assert "RNN with 1 key 0.65" in shown.alt and "attention with 16 keys 0.05" in shown.alt


@pytest.mark.parametrize(("name", "frames"), [("scale", 18), ("lanes", 9), ("memory", 33)])
def test_steppers_sweep(name: str, frames: int) -> None:
    assert sweep(draw.STEPPERS[name]()) == frames


def test_scale_stepper_has_the_known_values() -> None:
    stepper = draw.scale_stepper()
    assert stepper.frame(scale=1.1, f="none").numbers["40 steps back"] == pytest.approx(1.1**40, rel=1e-3)
    assert "explodes" in stepper.frame(scale=1.1, f="none").text
    assert "vanishes" in stepper.frame(scale=0.9, f="none").text
    assert "within a factor of ten" in stepper.frame(scale=1.0, f="none").text
    assert stepper.frame(scale=1.1, f="tanh").numbers["40 steps back"] < 1e-5


def test_lanes_stepper_turns_the_order() -> None:
    stepper = draw.lanes_stepper()
    narrow, wide = stepper.frame(lanes=1), stepper.frame(lanes=10**6)
    assert "the RNN needs fewest" in narrow.text and "attention needs fewest" in wide.text
    work = lab.multiply_adds(lab.Network("LSTM"), 1024) + lab.chain(lab.Network("LSTM"), 1024)
    assert narrow.numbers["LSTM, 1,024 tokens"] == work


def test_memory_stepper_says_what_is_left() -> None:
    stepper = draw.memory_stepper()
    a, b = lab.two_memories("LSTM", 32)
    gaps = (a - b).norm(dim=-1)
    frame = stepper.frame(since=8, network="LSTM")
    assert frame.numbers["share that is left"] == pytest.approx((gaps[8] / gaps[0]).item())
    assert stepper.frame(since=0, network="RNN").numbers["share that is left"] == 1
    assert stepper.frame(since=32, network="LSTM, gates open").numbers["share that is left"] > 0.5
