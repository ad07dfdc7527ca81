"""The kept curves are those of these recipes on this corpus, and the first steps of each come out again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pytest
from safetensors.torch import load_file

from rnj.corpus import MANIFEST, Corpus, CorpusError, read_corpus
from rnj.documents import Documents, Mix
from rnj.lab import ladder
from rnj.lab.long_context import FURTHER, MODELS, further
from rnj.model import Transformer, build
from rnj.text import Packed, load_tokenizer
from rnj.training import PHASES, Recipe, TrainingForm, _step, optimizers, rate_at

STARTS = Path(__file__).parent / "starts"  # weights that a run began from, in half precision
STEPS = 20


@dataclass(frozen=True)
class Kept:
    """What a kept curve was made by."""

    recipe: Recipe
    start: str | None = None  # a file of STARTS
    make: Callable[[Recipe, str], Transformer] | None = None
    form: Callable[..., TrainingForm] = TrainingForm
    steps: int = STEPS  # that are run again


KEPT = {f"small-{phase}": Kept(recipe) for phase, recipe in PHASES.items()}
KEPT |= {"small-names": Kept(PHASES["names"], "train"), "small-extend": Kept(PHASES["extend"], "names")}
KEPT |= {name: Kept(recipe, None, rung.make, rung.form) for name, rung, recipe, _ in ladder._runs()}
KEPT |= {
    f"{model}-{rotation}": Kept(further(config, rotation), {"hybrid": "names", "twin": "twin"}[model], steps=5)
    for model, config in MODELS.items()
    for rotation in FURTHER
}


def in_group(name: str):
    """Runs on the same documents in one worker, which then makes them once."""
    return pytest.param(name, marks=pytest.mark.xdist_group(f"{KEPT[name].recipe.mix}, {KEPT[name].recipe.seed}"))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    try:
        return read_corpus()
    except CorpusError as error:
        pytest.skip(f"another Python, another corpus: {error}")


@cache
def first_batches(mix: Mix, seed: int, rows: int) -> list[Packed]:
    documents = Documents(list(read_corpus().train.values()), load_tokenizer(), mix, seed)
    return [documents.batch(step * rows, rows) for step in range(STEPS)]


@pytest.mark.parametrize("name", KEPT)
def test_the_kept_curve_is_of_this_recipe_and_this_corpus(name):
    header, curve = ladder.curve(name)
    assert header["recipe"] == json.loads(json.dumps(asdict(KEPT[name].recipe)))
    assert header["corpus"] == json.loads(MANIFEST.read_text())["sha256"]
    assert header["command"].startswith("python -m rnj.") and header["seed"] == KEPT[name].recipe.seed
    assert set(header["versions"]) == {"python", "torch", "machine"}
    looks = [entry["held_out"] for entry in curve if "held_out" in entry]
    assert "held_out" in curve[-1] and 1 < looks[-1] <= looks[0] < 10


@pytest.mark.parametrize("name", [in_group(name) for name in KEPT])
def test_the_first_steps_come_out_again(name, corpus):
    """Not compiled, on any number of threads, from weights in half precision: the same losses to 1e-2."""
    kept = KEPT[name]
    recipe = kept.recipe
    model = kept.make(recipe, "cpu") if kept.make else build(recipe.config, seed=recipe.seed)
    if kept.start:
        model.load_state_dict({k: v.float() for k, v in load_file(STARTS / f"{kept.start}.safetensors").items()})
    form, used = kept.form(model, middle_weight=recipe.middle_weight), optimizers(model, recipe)
    logged = [entry for entry in ladder.curve(name)[1] if "loss" in entry][: kept.steps]
    assert [entry["step"] for entry in logged] == list(range(1, kept.steps + 1))
    for entry, packed in zip(logged, first_batches(recipe.mix, recipe.seed, recipe.rows), strict=False):
        loss = _step(form, used, packed, entry["rate"])
        assert loss == pytest.approx(entry["loss"], abs=1e-2), f"step {entry['step']}"


def test_the_rates_of_the_first_steps_are_the_schedules():
    for name, kept in KEPT.items():
        logged = [entry for entry in ladder.curve(name)[1] if "loss" in entry]
        for entry in logged[:5]:
            assert entry["rate"] == pytest.approx(rate_at(entry["step"] - 1, kept.recipe, None, None), abs=1e-4), name
