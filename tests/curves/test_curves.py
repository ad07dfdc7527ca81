"""The kept curves are those of these recipes on this corpus, and the first steps of each come out again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from rnj.corpus import MANIFEST, CorpusError, read_corpus
from rnj.documents import Documents, Mix
from rnj.lab import ladder
from rnj.model import build
from rnj.text import load_tokenizer
from rnj.training import PHASES, Recipe, TrainingForm, _step, optimizers, rate_at

RECIPES = {f"small-{phase}": recipe for phase, recipe in PHASES.items()}


@pytest.mark.parametrize("name", RECIPES)
def test_the_kept_curve_is_of_this_recipe_and_this_corpus(name):
    header, curve = ladder.curve(name)
    kept = header["recipe"] | {"mix": asdict(Mix(**header["recipe"]["mix"]))}  # older logs lack the newest shares
    assert kept == json.loads(json.dumps(asdict(RECIPES[name])))
    assert header["corpus"] == json.loads(MANIFEST.read_text())["sha256"]
    assert header["command"].startswith("python -m rnj.") and header["seed"] == RECIPES[name].seed
    assert set(header["versions"]) == {"python", "torch", "machine"}
    assert curve[-1]["held_out"] < curve[0]["loss"]


_documents: dict[tuple[int, int], Documents] = {}


def documents(recipe: Recipe, cache: Path) -> Documents:
    """Rows for the recipe, made once for all runs that read the same ones."""
    key = (recipe.seed, recipe.mix.length)
    if key not in _documents:
        cache.mkdir(exist_ok=True)
        texts = list(read_corpus().train.values())
        _documents[key] = Documents(texts, load_tokenizer(), recipe.mix, recipe.seed, cache)
    return _documents[key]


def mark(name: str):
    """Runs that read the same rows go to the same worker."""
    return pytest.param(name, marks=pytest.mark.xdist_group(f"seed-{RECIPES[name].seed}"))


@pytest.mark.parametrize("name", [mark("small-train")])  # the later phases begin from weights that do not ship
def test_the_first_steps_come_out_again(name, tmp_path_factory):
    """20 steps from the same seed, not compiled, on any number of threads: the same losses to 1e-2."""
    try:
        read_corpus()
    except CorpusError as error:
        pytest.skip(f"another Python, another corpus: {error}")
    recipe = RECIPES[name]
    model = build(recipe.config, seed=recipe.seed)
    form = TrainingForm(model)
    used, rows = optimizers(model, recipe), documents(recipe, tmp_path_factory.getbasetemp() / "tokens")
    kept = [entry for entry in ladder.curve(name)[1] if "loss" in entry][:20]
    assert [entry["step"] for entry in kept] == list(range(1, 21))
    for step, entry in enumerate(kept):
        rate = rate_at(step, recipe, None, None)
        assert entry["rate"] == pytest.approx(rate, abs=1e-4), f"step {step + 1}"
        loss = _step(form, used, rows.batch(step * recipe.rows, recipe.rows), rate)
        assert loss == pytest.approx(entry["loss"], abs=1e-2), f"step {step + 1}"
