"""Loss by position: the measure, the short further trainings' recipes, and the kept table."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import rnj
from rnj.corpus import Corpus, read_sample
from rnj.documents import Mix
from rnj.lab import long_context
from rnj.lab.learned import framed, nats
from rnj.lab.long_context import COLUMNS, FURTHER, LENGTH, MODELS, ROTATIONS, Spread
from rnj.text import load_tokenizer
from rnj.training import PLAIN, Recipe, run

TOKENIZER = load_tokenizer()


def test_the_measured_length_is_eight_times_the_trained_one():
    assert LENGTH == 4096 == 8 * PLAIN.original_max_positions == rnj.SMALL.max_positions


def test_rows_are_full_stretches_of_files():
    sample = read_sample()
    rows = long_context.long_rows(Corpus({}, sample, {}), TOKENIZER)
    longest = max(len(TOKENIZER.encode(text)) for text in sample.values())
    assert len(rows.tokens) >= longest // 4094 and bool((rows.segments == 1).all())
    assert len(long_context.long_rows(Corpus({}, sample, {}), TOKENIZER, most=2).tokens) == 2


def test_bins_average_to_the_whole():
    model = rnj.build(rnj.SMALL, seed=0)
    packed = framed([TOKENIZER.encode(next(iter(read_sample().values())))[:1022]], TOKENIZER)
    bins = long_context.by_position(model, packed)
    losses = nats(model, packed)[0]
    assert bins.shape == (1, 4)
    assert bins[0, 1] == pytest.approx(float(losses[256:512].mean()), abs=1e-5)
    assert bins[0, 3] == pytest.approx(float(losses[768:1022].mean()), abs=1e-5)


def test_near_and_far():
    losses = torch.arange(16.0)[None]
    assert float(long_context.near(losses)) == 1.0 and float(long_context.far(losses)) == 14.5
    spread = Spread.over(torch.tensor([1.0, 3.0]))
    assert spread.mean == 2.0 and spread.error == pytest.approx(1.0)


def test_without_further_training_only_the_rotation_differs():
    model = rnj.build(PLAIN, seed=0)
    packed = framed([TOKENIZER.encode(next(iter(read_sample().values())))[:700]], TOKENIZER)
    found = long_context.measure(model, packed)
    assert list(found) == list(ROTATIONS)
    assert torch.allclose(
        found["plain"][0, :2], long_context.by_position(model, replace_rows(packed, 512))[0, :2], atol=0.05
    )
    assert not torch.equal(found["plain"], found["interpolation"]) and not torch.equal(found["YaRN"], found["plain"])


def replace_rows(packed, length):
    return replace(
        packed, **{n: getattr(packed, n)[:, :length] for n in ("tokens", "positions", "segments", "targets")}
    )


def test_the_further_trainings_differ_from_the_extension_in_length_only():
    for config in MODELS.values():
        for rotation in FURTHER:
            recipe = long_context.further(config, rotation)
            assert recipe.mix.length == LENGTH and recipe.config.max_positions == LENGTH
    assert long_context.further(PLAIN, "YaRN").config == rnj.SMALL


def test_the_table_is_made_from_runs(tmp_path, monkeypatch):
    sample = dict(list(read_sample().items())[:3])
    corpus = Corpus(sample, {"a": "x = 1\n" * 300}, {})
    monkeypatch.setattr(long_context, "read_corpus", lambda: corpus)
    monkeypatch.setattr(long_context, "LENGTH", 512)
    monkeypatch.setattr(long_context, "STEPS", 1)
    mini = replace(
        rnj.TINY, vocab_size=2048, bos_id=2032, eos_ids=(2033,), pad_id=2035, original_max_positions=64,
        rope_type="default", rope_factor=1.0, attention_factor=None,
    )  # fmt: skip
    monkeypatch.setattr(long_context, "MODELS", {"hybrid": mini})
    recipe = Recipe(mini, Mix(length=64, fim_length=48), rows=2)
    run(recipe, tmp_path / "plain", corpus, TOKENIZER, tokens=256)
    long_context.make(tmp_path / "runs", {"hybrid": tmp_path / "plain"}, tmp_path / "table.json", command="here")
    losses = long_context.read_table(tmp_path / "table.json")["hybrid"]
    assert len(losses) == 5 and all(x.shape == (2, 2) for x in losses.values())
    assert (tmp_path / "hybrid-YaRN.jsonl").exists() and not list(tmp_path.glob("*.new"))
    assert set(long_context.summary(losses)) == set(losses)


def test_the_kept_table_reads_far_with_yarn_and_breaks_without():
    """On the twin: YaRN far out as near, the plain rotation far above, YaRN after further training the best of all."""
    for name, losses in long_context.read_table().items():
        assert tuple(losses) == COLUMNS and {tuple(x.shape) for x in losses.values()} == {(64, 16)}
        columns = long_context.summary(losses)
        assert columns["YaRN"][2].mean < 0.1
        assert min(columns, key=lambda column: columns[column][1].mean) == COLUMNS[-1] == "YaRN + 50 steps"
        assert (columns["plain"][2].mean > 0.4) == (name == "twin")
