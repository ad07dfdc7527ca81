"""The kept curves are those of these recipes on this corpus, and the first steps of the first come out again."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from rnj.corpus import MANIFEST, CorpusError, read_corpus
from rnj.documents import Documents, Mix
from rnj.lab import ladder
from rnj.model import build
from rnj.text import load_tokenizer
from rnj.training import PHASES, TRAIN, TrainingForm, _step, optimizers, rate_at

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


def test_the_first_steps_come_out_again(tmp_path):
    """20 steps of the first phase, not compiled, on any number of threads: the same losses to 1e-2."""
    try:
        texts = list(read_corpus().train.values())
    except CorpusError as error:
        pytest.skip(f"another Python, another corpus: {error}")
    model = build(TRAIN.config, seed=TRAIN.seed)
    form, used = TrainingForm(model), optimizers(model, TRAIN)
    rows = Documents(texts, load_tokenizer(), TRAIN.mix, TRAIN.seed, tmp_path)
    kept = [entry for entry in ladder.curve("small-train")[1] if "loss" in entry][:20]
    assert [entry["step"] for entry in kept] == list(range(1, 21))
    for step, entry in enumerate(kept):
        rate = rate_at(step, TRAIN, None, None)
        assert entry["rate"] == pytest.approx(rate, abs=1e-4), f"step {step + 1}"
        loss = _step(form, used, rows.batch(step * TRAIN.rows, TRAIN.rows), rate)
        assert loss == pytest.approx(entry["loss"], abs=1e-2), f"step {step + 1}"
