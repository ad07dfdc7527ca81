"""The ladder's models, what each lacks, the runs, and the kept curves."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import rnj
from rnj.corpus import Corpus, read_sample
from rnj.documents import Documents, Mix
from rnj.lab import ladder
from rnj.lab.ladder import LADDER, RACE, RUN_NAMES, TWIN
from rnj.model import build
from rnj.text import Packed, load_tokenizer
from rnj.training import PLAIN, TrainingForm, _step, optimizers, read_log

TOKENIZER = load_tokenizer()
TEXTS = list(read_sample().values())[:4]
ALL = {rung.name: rung for rung in LADDER + RACE}


def packed(rows: int = 2) -> Packed:
    return Documents(TEXTS, TOKENIZER, Mix(length=128, fim_length=64)).batch(0, rows)


def made(rung: ladder.Rung) -> tuple[torch.nn.Module, TrainingForm]:
    recipe = rung.recipe(0)
    model = rung.make(recipe, "cpu") if rung.make else build(recipe.config)
    return model, rung.form(model, low=False)


@pytest.mark.parametrize("name", ALL)
def test_each_model_learns(name):
    rung = ALL[name]
    model, form = made(rung)
    used, rows = optimizers(model, rung.recipe(0)), packed(1)
    losses = [_step(form, used, rows, 1.0) for _ in range(3)]
    assert losses[-1] < losses[0] - 1.0
    parameters = [p for optimizer in used for group in optimizer.param_groups for p in group["params"]]
    assert len({id(p) for p in parameters}) == len(list(model.parameters()))


def test_parameters_by_rung():
    counts = {name: ladder.parameters(rung) for name, rung in ALL.items()}
    embedding, whole = 2048 * 192, sum(p.numel() for p in rnj.meta(PLAIN).parameters())
    assert counts["rung-1"] == embedding and counts["rung-2"] == embedding + 192
    assert counts["rung-3"] == counts["rung-2"] + 8 * (3 * 192 * 576 + 2 * 192)
    assert counts["rung-4"] == counts["rung-5"] == counts["rung-6"] == whole
    assert all(counts[rung.name] == whole for rung in RACE)  # equal size


@pytest.mark.parametrize(
    ("name", "context"), [("rung-1", 0), ("rung-2", 0), ("rung-3", 0), ("rung-4", 1), ("rung-5", 1)]
)
def test_context_reaches_a_position_only_through_attention(name, context):
    _, form = made(ALL[name])
    rows = packed(1)
    last = int((rows.targets[0] != -100).nonzero().max())
    only = torch.full_like(rows.targets, -100)
    only[0, last] = rows.targets[0, last]
    losses = []
    for shift in (0, 1):
        tokens = rows.tokens.clone()
        start = int((rows.segments[0] == rows.segments[0, last]).nonzero().min())
        tokens[0, start : last - 1] = (tokens[0, start : last - 1] + shift) % 2000
        losses.append(form(replace(rows, tokens=tokens, targets=only)).item())
    assert (abs(losses[0] - losses[1]) > 1e-6) == bool(context)


def test_without_positions_the_order_of_what_came_before_is_lost():
    tokens = torch.tensor([[5, 9, 7, 300, 11, 12]])
    other = torch.tensor([[300, 7, 5, 9, 11, 12]])
    row = {"positions": torch.arange(6)[None], "segments": torch.ones(1, 6, dtype=torch.int64)}
    targets = torch.full((1, 6), -100)
    targets[0, -1] = 42
    for name, same in (("rung-4", True), ("rung-5", False)):
        model, form = made(ALL[name])
        model.blocks = model.blocks[:1]  # in deeper layers the earlier tokens have seen different prefixes
        losses = [form(Packed(ids, row["positions"], row["segments"], targets)).item() for ids in (tokens, other)]
        assert (abs(losses[0] - losses[1]) < 1e-5) == same


def test_a_standing_is_read_from_the_kept_curves(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder, "DATA", tmp_path)
    header = {"recipe": {"rows": 8, "mix": {"length": 512}}}
    for seed, end in ((0, 4.0), (1, 4.5)):
        lines = [header, {"step": 1, "loss": 7.0}, {"step": 100, "held_out": 5.0}, {"step": 200, "held_out": end}]
        (tmp_path / f"rung-2-seed-{seed}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = ladder.standing(LADDER[1])
    assert found.ends == [4.0, 4.5] and found.mean == 4.25 and found.spread == 0.5
    assert found.curves[0] == {409_600: 5.0, 819_200: 4.0}
    assert str(found) == "the final norm               393,408 parameters, held out 4.000, 4.500"
    with pytest.raises(FileNotFoundError):
        ladder.standings(1)


def test_the_kept_standings_are_of_every_rung_and_every_form():
    assert [rung.new for rung in ladder.standings()] == [rung.new for rung in LADDER]
    assert list(ladder.race()) == ["ReLU", "GLU", "SwiGLU", "GeGLU"]
    for run in (*ladder.standings(), *ladder.race().values()):
        assert [max(curve) for curve in run.curves] == [245 * 4096] * 2


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="form must be one of ReLU"):
        ladder.with_form("Swish", ALL["rung-6"].recipe(0), "cpu")


def test_all_runs_by_name():
    names = [name for name, _, _, _ in ladder._runs()]
    assert sorted(names) == sorted([*RUN_NAMES, "twin"]) and len(names) == 2 * 6 + 1 + 2 * 3
    assert TWIN.layer_types == ("global",) * 8 and replace(TWIN, layer_types=PLAIN.layer_types) == PLAIN
    steps = [ladder.TOKENS / recipe.step_tokens for _, _, recipe, length in ladder._runs() if "tokens" in length]
    assert len(set(steps)) == 1


def test_run_all_trains_keeps_and_collects(tmp_path, monkeypatch):
    sample = dict(list(read_sample().items())[:3])
    monkeypatch.setattr(ladder, "read_corpus", lambda: Corpus(sample, sample, {}))
    monkeypatch.setattr(ladder, "TOKENS", 4096)
    ladder.run_all(tmp_path / "runs", "rung-1", command="here")
    ladder.collect(tmp_path / "runs", tmp_path / "none", tmp_path / "data")
    header, curve = read_log(tmp_path / "data" / "rung-1-seed-1.jsonl")
    assert header["seed"] == 1 and header["command"] == "here" and curve[-1]["held_out"] > 5
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [f"rung-1-seed-{s}.jsonl" for s in (0, 1)]
