"""Networks, gradients, chains and the recall task against values known by hand; the kept runs begin as they do here."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from rnj.lab import recurrent as lab
from tests.common import one_thread  # noqa: F401

WIDTH = lab.WIDTH


@pytest.fixture(scope="module")
def kept() -> list[lab.Run]:
    return lab.read_recall()


# Networks


@pytest.mark.parametrize(
    ("kind", "weights", "out"), [("RNN", 24_832, 128), ("LSTM", 33_280, 64), ("attention", 28_992, 64)]
)
def test_networks_are_about_equal_and_causal(kind: str, weights: int, out: int) -> None:
    network = lab.Network(kind)
    assert lab.weights_of(network) == weights
    x = torch.randn(2, 9, WIDTH, generator=torch.Generator().manual_seed(1))
    changed = x.clone()
    changed[:, 6] += 1
    before, after = network(x), network(changed)
    assert before.shape == (2, 9, out)
    assert torch.equal(before[:, :6], after[:, :6])
    assert (before[:, 6:] != after[:, 6:]).any(-1).all(), "every later output knows of the change"


def test_a_seed_makes_the_same_network_and_leaves_torchs_alone() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, second, other = lab.Network("LSTM", 3), lab.Network("LSTM", 3), lab.Network("LSTM", 4)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.layer.weight_hh_l0, second.layer.weight_hh_l0)
    assert not torch.equal(first.layer.weight_hh_l0, other.layer.weight_hh_l0)


def test_forget_bias_reaches_the_forget_gate() -> None:
    """A gate at 1 hands the cell on, a gate at 0 drops it; the rest of the step is the same."""
    x, h, c = torch.randn(1, 1, WIDTH), torch.randn(1, 1, WIDTH), torch.randn(1, 1, WIDTH)
    cells = [lab.Network("LSTM", forget_bias=bias).layer(x, (h, c))[1][1] for bias in (1e4, -1e4)]
    torch.testing.assert_close(cells[0] - cells[1], c)


def test_unknown_networks() -> None:
    with pytest.raises(ValueError, match="kind must be one of RNN, LSTM, attention, not 'GRU'"):
        lab.Network("GRU")
    with pytest.raises(ValueError, match="forget_bias belongs to an LSTM, not to 'RNN'"):
        lab.Network("RNN", forget_bias=1.0)


# Gradients


@pytest.mark.parametrize("scale", [0.8, 1.0, 1.2])
def test_gradient_of_a_linear_recurrence_is_a_power(scale: float) -> None:
    found = lab.gradient_by_distance(lab.scaled_recurrence(scale, squash=False), length=12, rows=3)
    torch.testing.assert_close(found, scale ** torch.arange(12.0), rtol=1e-4, atol=0)
    squashed = lab.gradient_by_distance(lab.scaled_recurrence(scale, squash=True), length=12, rows=3)
    assert (squashed < found).all()


def test_gradient_is_counted_backwards_from_the_last() -> None:
    found = lab.gradient_by_distance(lambda x: x.roll(3, dims=1), length=6, rows=2)
    torch.testing.assert_close(found, torch.tensor([0.0, 0, 0, 1, 0, 0]))


def test_gradients_of_the_three() -> None:
    """A recurrence loses by a factor at every step; attention, and an LSTM that keeps, do not."""
    for kind in ("RNN", "LSTM"):
        found = lab.gradient_by_distance(lab.Network(kind, seed=1))
        assert found[64] < 1e-10 * found[1] and found[32] < 1e-5 * found[1]
    for network in (lab.Network("attention", seed=1), lab.Network("LSTM", seed=1, forget_bias=3.0)):
        found = lab.gradient_by_distance(network)
        assert found[1:].min() > 0.1 * found[1:].max()


# Steps, work, time


def test_longest_chain() -> None:
    x = torch.ones(3, requires_grad=True)  # its gradient's place is an operation as well
    y = x
    for _ in range(5):
        y = y * 2
    assert lab.longest_chain(y) == 6
    assert lab.longest_chain(y + x * 3) == 7
    assert lab.longest_chain(torch.stack([x * 2, x * 3]).sum()) == 4


def test_chains_grow_with_the_row_or_not() -> None:
    chains = {kind: [lab.chain(lab.Network(kind), T) for T in (8, 16, 40)] for kind in lab.NETWORKS}
    for kind in ("RNN", "LSTM"):
        short, middle, long = chains[kind]
        assert middle - short >= 3 * 8 and long - middle == 3 * (middle - short)
    assert chains["attention"] == [chains["attention"][0]] * 3


def test_multiply_adds() -> None:
    at_ten = {kind: lab.multiply_adds(lab.Network(kind), 10) for kind in lab.NETWORKS}
    assert at_ten["RNN"] == 10 * (64 * 128 + 128 * 128)
    assert at_ten["LSTM"] == 10 * 4 * (64 * 64 + 64 * 64)
    assert at_ten["attention"] == 10 * 7 * 64 * 64 + 55 * 2 * 64  # 55 pairs, score and value, over 64 numbers


def test_rounds() -> None:
    for kind in lab.NETWORKS:
        network = lab.Network(kind)
        work, chain = lab.multiply_adds(network, 48), lab.chain(network, 48)
        assert lab.rounds(network, 48, 1) == work + chain
        assert lab.rounds(network, 48, 100) == pytest.approx(work / 100 + chain)


def test_longer_rows_take_longer() -> None:
    network = lab.Network("RNN")
    assert lab.seconds(network, 600, repeats=2) > 2 * lab.seconds(network, 20, repeats=2) > 0
    assert all(p.grad is None for p in network.parameters())


# A memory that is written over


@pytest.mark.parametrize(
    ("kind", "bias", "least", "most"), [("RNN", None, 0, 1e-4), ("LSTM", None, 0, 1e-4), ("LSTM", 3.0, 0.5, 2)]
)
def test_two_memories(kind: str, bias: float | None, least: float, most: float) -> None:
    a, b = lab.two_memories(kind, 32, forget_bias=bias)
    gaps = (a - b).norm(dim=-1)
    assert a.shape == (33, WIDTH) and gaps[0] > 1
    assert least <= gaps[32] / gaps[0] < most


def test_memories_are_the_networks_own() -> None:
    a, b = lab.two_memories("RNN", 4, seed=2)
    generator = torch.Generator().manual_seed(2)
    first, rest = torch.randn(2, 1, WIDTH, generator=generator), torch.randn(1, 4, WIDTH, generator=generator)
    outputs = lab.Network("RNN", 2)(torch.cat([first, rest.expand(2, -1, -1)], dim=1))
    torch.testing.assert_close(torch.stack([a, b]), outputs[..., :WIDTH].double(), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="attention carries no state"):
        lab.two_memories("attention")


# Recall


@pytest.mark.parametrize("pairs", [1, 5, 16])
def test_items(pairs: int) -> None:
    recipe = lab.Recipe("RNN", pairs)
    made = lab.make_items(recipe, 200, torch.Generator().manual_seed(0))
    assert made.keys.shape == made.values.shape == (200, 17)
    assert set(made.distances.tolist()) == set(range(1, 17))
    for keys, values, answer, distance in zip(*(t.tolist() for t in made), strict=True):
        real = [key for key in keys[:-1] if key < 16]
        assert len(real) == len(set(real)) == pairs
        place = keys.index(keys[-1])
        assert place == 16 - distance and values[place] == answer
        assert values[-1] == 8 and max(values[:-1]) < 8


def test_items_at_a_distance() -> None:
    made = lab.make_items(lab.Recipe("RNN", 1), 20, torch.Generator().manual_seed(0), distance=40, items=44)
    assert made.keys.shape == (20, 45) and set(made.distances.tolist()) == {40}
    assert (made.keys[:, 4] == made.keys[:, -1]).all() and torch.equal(made.values[:, 4], made.answers)
    assert (made.keys[:, :-1] < 16).sum() == 20


def test_accuracy() -> None:
    recipe = lab.Recipe("RNN", 1)

    def knows(keys: Tensor, values: Tensor) -> Tensor:
        place = (keys[:, :-1] == keys[:, -1:]).int().argmax(1, keepdim=True)
        return torch.nn.functional.one_hot(values.gather(1, place)[:, 0], 8)

    def guesses(keys: Tensor, values: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(torch.zeros(len(keys), dtype=torch.long), 8)

    assert lab.accuracy(knows, recipe, 3) == lab.accuracy(knows, recipe, 30) == 1
    assert lab.accuracy(guesses, recipe, 3, rows=4000) == pytest.approx(1 / 8, abs=0.02)


def test_training_learns_and_repeats() -> None:
    recipe = lab.Recipe("attention", 1, items=4, choices=2, rows=32, steps=60)
    reader, losses = lab.train(recipe)
    assert sum(losses[-10:]) < 0.1 * sum(losses[:10])
    assert lab.accuracy(reader, recipe, 2, rows=200) == 1
    assert lab.train(recipe, steps=3)[1] == losses[:3]


# What is kept


def test_kept_runs_are_those_of_the_recipes(kept: list[lab.Run]) -> None:
    assert sorted(map(repr, (run.recipe for run in kept))) == sorted(map(repr, lab.RECIPES))
    assert "python -m rnj.lab.recurrent" in lab.DATA.read_text(encoding="utf-8").splitlines()[0]
    for run in kept:
        assert run.weights == lab.weights_of(lab.Network(run.recipe.network))
        assert len(run.first) == lab.FIRST and len(run.losses) == run.recipe.steps / lab.SMOOTH
        assert len(run.near) == 16 and (tuple(run.far) == lab.FAR) == (run.recipe.pairs == 1)


@pytest.mark.parametrize("network", lab.NETWORKS)
@pytest.mark.parametrize("pairs", [1, 16])
def test_kept_runs_begin_as_they_do_here(kept: list[lab.Run], network: str, pairs: int) -> None:
    run = next(r for r in kept if (r.recipe.network, r.recipe.pairs) == (network, pairs))
    _, losses = lab.train(run.recipe, steps=8)
    assert losses == pytest.approx(run.first[:8], rel=1e-3)


def test_writing_and_reading(tmp_path, kept: list[lab.Run]) -> None:
    path = tmp_path / "deeper" / "recall.json"
    lab.write_recall(kept[:2], path)
    assert lab.read_recall(path) == kept[:2]
    assert json.loads(path.read_text(encoding="utf-8"))["torch"] == torch.__version__
