"""The corpus, the documents made from it, and the loop: exact, repeatable, taken up again after a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rnj
from rnj import corpus as corpora
from rnj import training
from rnj.core_attention import Rows, allowed
from rnj.corpus import Corpus, CorpusError, is_held_out, read_corpus, read_sample
from rnj.documents import Documents, Mix, cut_a_hole, cut_a_shared_name, encode_files, fill_rows, shared_names
from rnj.text import NO_TARGET, SPECIAL_TOKENS, load_tokenizer, pack
from rnj.training import Recipe, State, TrainingError, TrainingForm, first_seen, rate_at, run

TOKENIZER = load_tokenizer()
TEXTS = list(read_sample().values())
MINI = replace(rnj.TINY, vocab_size=2048, bos_id=2032, eos_ids=(2033, 2034), pad_id=2035, final_logit_softcap=30.0)
RECIPE = Recipe(MINI, Mix(length=64, fim_length=48), rows=2, warmup=3)


def mini_corpus(names: int = 3) -> Corpus:
    sample = list(read_sample().items())
    return Corpus(dict(sample[:names]), dict(sample[names : names + 2]), {name: "0" for name, _ in sample})


# The corpus


def test_whole_packages_are_held_out_with_their_tests():
    held = ["heapq.py", "json/decoder.py", "test/test_json/test_dump.py", "test/test_heapq.py", "zoneinfo/_common.py"]
    kept = ["os.py", "test/test_os.py", "email/parser.py", "jsonx.py", "test/support/__init__.py", "_heapqueue.py"]
    assert all(is_held_out(name) for name in held) and not any(is_held_out(name) for name in kept)


def test_the_manifest_agrees_with_the_sample():
    manifest = json.loads(corpora.MANIFEST.read_text())
    sample = read_sample()
    assert corpora.SAMPLE.stat().st_size <= 200_000 and tuple(manifest["held_out"]) == corpora.HELD_OUT
    assert all(is_held_out(name) and name in manifest["files"] for name in sample)
    assert Corpus({}, {}, manifest["files"]).sha256 == manifest["sha256"]
    assert sum(name.startswith("test/") for name in sample) < len(sample) / 2


def write_library(folder: Path) -> Path:
    for name, text in {
        "a.py": "a = 1\n",
        "copy_of_a.py": "a = 1\n",
        "json/decoder.py": "x = 2\n",
        "test/test_json/test_x.py": "y = 3\n",
        "site-packages/p.py": "no = 1\n",
        "encodings/latin.py": "no = 2\n",
        "empty.py": "\n",
        "b.txt": "no\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "latin.py").write_bytes(b"# \xe9\n")
    (folder / "lines.py").write_bytes(b"x\r\ny\r\n")
    return folder


def test_files_are_chosen_by_fixed_rules(tmp_path):
    read = read_corpus(write_library(tmp_path), any_corpus=True)
    assert set(read.train) == {"a.py", "lines.py"} and read.train["lines.py"] == "x\ny\n"
    assert set(read.held_out) == {"json/decoder.py", "test/test_json/test_x.py"}
    assert set(read.hashes) == set(read.train) | set(read.held_out)
    assert list(read.train) == list(read_corpus(tmp_path, any_corpus=True).train)


def test_another_corpus_is_refused_unless_asked_for(tmp_path):
    with pytest.raises(CorpusError, match=r"not that of Python 3\.\d+.*--any-corpus"):
        read_corpus(write_library(tmp_path))


def test_a_folder_without_files_to_train_on_or_to_hold_out_is_refused(tmp_path):
    for name in (None, "some.py", "json.py"):
        if name:
            (tmp_path / name).write_text(f"x = {name!r}\n")
        if name == "json.py":
            assert list(read_corpus(tmp_path, any_corpus=True).held_out) == [name]
        else:
            with pytest.raises(CorpusError, match="to hold out"):
                read_corpus(tmp_path, any_corpus=True)


def test_this_library_is_the_shipped_one_or_is_refused():
    manifest = json.loads(corpora.MANIFEST.read_text())
    try:
        read = read_corpus()
    except CorpusError as error:
        assert "--any-corpus" in str(error)
        return
    assert read.hashes == manifest["files"]
    assert corpora.choose_sample(read.held_out) == read_sample()
    lines = {line.strip() for text in read.train.values() for line in text.split("\n")}
    sample = [line.strip() for text in TEXTS for line in text.split("\n") if len(line.strip()) > 40]
    assert sum(line in lines for line in sample) < 0.05 * len(sample)  # no near copy leaks


# Documents


def documents(mix: Mix, seed: int = 0) -> Documents:
    return Documents(TEXTS[:6], TOKENIZER, mix, seed)


def test_rows_follow_from_the_seed_and_their_number_alone():
    mix = Mix(length=128, fim_length=64)
    one, other = documents(mix), documents(mix)
    together = one.batch(0, 8)
    for first in (4, 0):
        part = other.batch(first, 4)
        for name in ("tokens", "positions", "segments", "targets"):
            assert torch.equal(getattr(part, name), getattr(together, name)[first : first + 4])
    n = len(one._make_rows(0))
    assert not torch.equal(one.batch(n, 4).tokens, together.tokens)  # the second pass is another one
    assert torch.equal(one.batch(0, 8).tokens, together.tokens)
    assert not torch.equal(documents(mix, seed=1).batch(0, 8).tokens, together.tokens)


def test_half_of_the_documents_are_fill_in_the_middle_and_rows_are_full():
    mix = Mix()
    rows = documents(mix)._make_rows(0)
    flat = [ids.tolist() for row in rows for ids in row]
    with_hole = [ids for ids in flat if ids[0] == TOKENIZER.fim_prefix_id]
    assert 0.42 < len(with_hole) / len(flat) < 0.58
    assert sum(len(ids) + 2 for ids in flat) > 0.93 * mix.length * len(rows)
    assert all(sum(len(ids) + 2 for ids in row) <= mix.length for row in rows)
    assert sum(len(ids) == mix.length - 2 for ids in flat) > 0.05 * len(flat)
    texts = "\n\n".join(TEXTS)
    for ids in with_hole[:100]:
        sentinels = [i for i in ids if i >= TOKENIZER.bos_id]
        assert sentinels == [TOKENIZER.fim_prefix_id, TOKENIZER.fim_suffix_id, TOKENIZER.fim_middle_id]
        prefix, suffix, middle = (TOKENIZER.decode(part) for part in split_at(ids, TOKENIZER))
        assert prefix + middle + suffix in texts
    repeats = [ids for ids in flat if any(ids == ids[: len(ids) // n] * n for n in (2, 3))]
    assert 0.01 < len(repeats) / len(flat) < 0.06


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 400), st.integers(17, 200))
def test_a_hole_loses_nothing(seed, start, size):
    ids = TOKENIZER.encode(TEXTS[0])[start : start + size]
    parts = cut_a_hole(TOKENIZER, ids, np.random.default_rng(seed))
    assert "".join(parts) == TOKENIZER.decode(ids)


def test_shared_names_stand_before_and_after():
    text = "if width:\n    area = width * height\n    return area, width if height else None\n"
    assert [text[m.start() - 2 : m.end()] for m in shared_names(text)] == ["= width"]
    assert cut_a_shared_name(text, np.random.default_rng(0)) == (text[:21], "width", text[26:])
    assert cut_a_shared_name("return return return", np.random.default_rng(0)) is None  # a keyword is no name


def test_about_half_the_holes_of_the_names_phase_are_shared_names_and_most_have_the_suffix_first():
    mix = replace(training.NAMES.mix, length=256)
    flat = [ids.tolist() for row in documents(mix)._make_rows(0) for ids in row]
    holes = [ids for ids in flat if TOKENIZER.fim_middle_id in ids]
    shared = 0
    for ids in holes:
        prefix, suffix, middle = (TOKENIZER.decode(part) for part in split_at(ids, TOKENIZER))
        shared += middle in prefix and middle in suffix and middle.isidentifier()
    assert 0.4 < shared / len(holes) < 0.8
    assert 0.75 < sum(ids[0] == TOKENIZER.fim_suffix_id for ids in holes) / len(holes) < 0.95


def split_at(ids, tokenizer):
    """Prefix, suffix and middle of a fill-in-the-middle document in either order."""
    parts = (tokenizer.fim_prefix_id, tokenizer.fim_suffix_id, tokenizer.fim_middle_id)
    starts = sorted(ids.index(i) for i in parts)
    found = {ids[a]: ids[a + 1 : b] for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)}
    return [found[i] for i in parts]


def test_rows_cut_plain_documents_only():
    plain, whole = [np.arange(100)], [np.arange(1000, 1030), np.arange(2000, 2040)]
    rows = fill_rows(plain, whole, 64)
    flat = [ids.tolist() for row in rows for ids in row]
    assert all(ids.tolist() in flat for ids in whole)
    kept = [i for ids in flat if ids[0] < 1000 for i in ids]
    assert kept == list(range(len(kept))) and len(kept) > 100 - 16
    assert all(sum(len(ids) + 2 for ids in row) <= 64 for row in rows)


def test_encoded_files_are_kept(tmp_path):
    made = encode_files(TEXTS[:2], TOKENIZER, tmp_path)
    kept = encode_files(TEXTS[:2], TOKENIZER, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    for a, b, text in zip(made, kept, TEXTS, strict=False):
        assert a.tolist() == b.tolist() == TOKENIZER.encode(text)


# The form that trains


def packed_row(sizes: list[int], length: int):
    generator = torch.Generator().manual_seed(3)
    ids = [torch.randint(0, 90, (n,), generator=generator).tolist() for n in sizes]
    return pack(ids, length, bos_id=90, eos_id=91, pad_id=93)


@pytest.mark.parametrize("origin", ["document", "row"])
@pytest.mark.parametrize("kind", ["local", "global"])
def test_what_a_position_sees_is_a_stretch_of_columns(origin, kind):
    config = replace(rnj.TINY, block_origin=origin)
    packed = packed_row([5, 33, 1, 26, 40, 2], 80)
    columns = torch.arange(80).expand_as(packed.tokens)
    first = first_seen(packed, config, kind == "local")
    seen = (columns[:, None] >= first[..., None]) & (columns[:, None] <= columns[..., None])
    rows = Rows(packed.positions, packed.segments, packed.positions if origin == "document" else columns)
    want = allowed(rows, rows, config.block_size if kind == "local" else None, config.lookback)
    real = packed.segments != 0
    assert torch.equal(seen[real], want[real])
    assert torch.equal(seen[~real].sum(-1), torch.ones_like(seen[~real].sum(-1)))


@pytest.mark.parametrize("origin", ["document", "row"])
def test_the_training_form_is_the_model(origin):
    packed = packed_row([5, 150, 1, 26, 280, 2], 300)
    model = rnj.build(replace(rnj.TINY, block_origin=origin), random_norms=True)
    want = rnj.loss(model(packed.tokens, packed.positions, packed.segments), packed.targets)
    want.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    found = TrainingForm(model, low=False)(packed)
    found.backward()
    assert abs(found.item() - want.item()) < 1e-5
    for name, p in model.named_parameters():
        assert torch.allclose(p.grad, gradients[name], atol=2e-5, rtol=1e-3), name
    assert abs(TrainingForm(model)(packed).item() - want.item()) < 0.05


def test_what_stands_behind_the_middle_token_of_a_document():
    first, second, third = (TOKENIZER.fim_prefix_id, TOKENIZER.fim_suffix_id, TOKENIZER.fim_middle_id)
    ids = [[7, 8], [second, 5, first, 6, third, 9], [4]]
    packed = pack(ids, 18, bos_id=TOKENIZER.bos_id, eos_id=TOKENIZER.eos_id, pad_id=TOKENIZER.pad_id)
    inside = training.in_middle(packed, third)[0]
    assert packed.tokens[0, inside].tolist() == [third, 9, TOKENIZER.eos_id]  # they predict 9, the end, and nothing
    assert packed.targets[0, inside].tolist() == [9, TOKENIZER.eos_id, NO_TARGET]


def test_a_middle_weighs_what_it_is_given():
    packed = documents(Mix(length=128, fim_length=64)).batch(0, 2)
    model = rnj.build(MINI, random_norms=True)
    logits = model(packed.tokens, packed.positions, packed.segments).double()
    inside = training.in_middle(packed, training.MIDDLE_ID)
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), packed.targets.flatten(), reduction="none")
    each, told = each.view_as(packed.targets), packed.targets != NO_TARGET
    here, there = told & inside, told & ~inside
    want = (8 * each[here].sum() + each[there].sum()) / (8 * here.sum() + there.sum())
    assert int(here.sum()) > 5
    found = TrainingForm(model, low=False, middle_weight=8.0)(packed)
    assert found.item() == pytest.approx(want.item(), abs=1e-5)
    assert abs(found.item() - TrainingForm(model, low=False)(packed).item()) > 1e-4
    equal = training.weighted_loss(logits, packed.targets, torch.ones_like(each))
    assert equal.item() == pytest.approx(rnj.loss(logits, packed.targets).item(), abs=1e-6)


def test_rates_go_up_stay_and_go_down_to_nothing():
    rates = [rate_at(step, replace(RECIPE, warmup=4), 10, 20) for step in range(21)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0] and rates[4:11] == [1.0] * 7
    assert rates[15] == 0.5 and rates[20] == 0.0
    assert rate_at(10**6, RECIPE, None, None) == 1.0


def test_the_end_is_decided_by_the_clock_once():
    state = State(step=100, seconds=60 * 6.9)
    training._plan(state, 10.0, RECIPE, pace=2.0)
    assert state.last is None
    state.seconds = 60 * 7.0
    training._plan(state, 10.0, RECIPE, pace=2.0)
    assert (state.decay_from, state.last) == (100, 100 + 90)


def test_every_parameter_has_one_optimizer():
    model = rnj.build(MINI)
    used = training.optimizers(model, RECIPE)
    parameters = [p for optimizer in used for group in optimizer.param_groups for p in group["params"]]
    assert len(parameters) == len({id(p) for p in parameters}) == len(list(model.parameters()))
    assert len(used[0].param_groups[0]["params"]) == 7 * MINI.n_layers


# The run


def go(out: Path, steps: int = 12, recipe: Recipe = RECIPE, **options):
    return run(recipe, out, mini_corpus(), TOKENIZER, tokens=steps * recipe.step_tokens, **options)


def test_a_run_learns_and_logs(tmp_path):
    go(tmp_path, steps=40)
    header, curve = training.read_log(tmp_path / "log.jsonl")
    assert header["seed"] == 0 and header["versions"]["torch"] == torch.__version__ and "command" in header
    assert header["corpus"] == mini_corpus().sha256 and header["recipe"]["mix"]["length"] == 64
    losses = [entry["loss"] for entry in curve if "loss" in entry]
    assert losses[0] > 7.4 and losses[-1] < losses[0] - 0.5
    assert [entry["step"] for entry in curve if "loss" in entry] == [*range(1, 21), 30, 40]
    assert curve[-1]["step"] == 40 and curve[-1]["held_out"] < losses[0]


SCRIPT = """
import sys, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
from test_training import go, Path
go(Path(sys.argv[1]), checkpoint_seconds=0.0)
"""


def start(out: Path) -> subprocess.Popen:
    script = SCRIPT.format(tests=str(Path(__file__).parent))
    return subprocess.Popen([sys.executable, "-c", script, str(out)], stderr=subprocess.DEVNULL)


def test_a_killed_run_goes_on_bit_for_bit(tmp_path):
    killed = start(tmp_path / "killed")
    log = tmp_path / "killed" / "log.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (log.exists() and log.read_text().count("\n") > 5):
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    stopped_at = training.read_checkpoint(tmp_path / "killed")["state"]["step"]
    assert 3 <= stopped_at < 12
    log.write_text(log.read_text() + '{"step": 9, "lo')  # what a kill may leave
    whole = start(tmp_path / "whole")
    again = start(tmp_path / "killed")
    assert again.wait() == 0 and whole.wait() == 0
    one, other = (training.read_checkpoint(tmp_path / name) for name in ("killed", "whole"))
    assert one["state"]["step"] == other["state"]["step"] == 12
    for name, weight in other["model"].items():
        assert torch.equal(weight, one["model"][name]), name
    logs = [training.read_log(tmp_path / name / "log.jsonl")[1] for name in ("killed", "whole")]
    assert [entry["step"] for entry in logs[0] if "command" in entry] == [stopped_at]  # the second start
    logs[0] = [entry for entry in logs[0] if "command" not in entry]
    for entries in logs:
        for entry in entries:
            entry.pop("seconds", None)
    assert logs[0] == logs[1]


def test_a_finished_run_is_left_alone_and_another_recipe_is_refused(tmp_path):
    first = go(tmp_path, steps=3)
    log = (tmp_path / "log.jsonl").read_bytes()
    second = go(tmp_path, steps=3)
    assert (tmp_path / "log.jsonl").read_bytes() == log
    assert torch.equal(first.embed.weight, second.embed.weight)
    with pytest.raises(TrainingError, match=r"another recipe \(matrix_rate\)"):
        go(tmp_path, recipe=replace(RECIPE, matrix_rate=0.1))
    other = replace(mini_corpus(), hashes={"x.py": "1"})
    with pytest.raises(TrainingError, match="another corpus"):
        run(RECIPE, tmp_path, other, TOKENIZER, tokens=1000)


def test_a_run_needs_a_length_and_a_checkpoint_a_run(tmp_path):
    with pytest.raises(TrainingError, match="--tokens or --minutes"):
        run(RECIPE, tmp_path, mini_corpus(), TOKENIZER)
    with pytest.raises(TrainingError, match="no run in this folder"):
        training.read_checkpoint(tmp_path / "nothing")


def test_minutes_end_a_run(tmp_path):
    run(RECIPE, tmp_path, mini_corpus(), TOKENIZER, minutes=0.04)
    state = training.read_checkpoint(tmp_path)["state"]
    assert state["step"] == state["last"] > state["decay_from"] > 0 and state["seconds"] < 30


def test_an_extension_begins_from_the_weights_it_is_given(tmp_path):
    go(tmp_path / "first", steps=3)
    weights = training.read_checkpoint(tmp_path / "first")["model"]
    model = go(tmp_path / "second", steps=1, recipe=replace(RECIPE, matrix_rate=1e-9, other_rate=1e-9), start=weights)
    assert torch.allclose(model.embed.weight, weights["embed.weight"], atol=1e-5)


def test_export_writes_a_folder_that_loads(tmp_path):
    model = go(tmp_path / "run", steps=2)
    training.export(tmp_path / "run", tmp_path / "folder")
    from rnj import weights

    read = weights.load(tmp_path / "folder", dtype=torch.float32)
    assert read.config == MINI
    assert torch.allclose(read.embed.weight, model.embed.weight, atol=1e-3)
    assert load_tokenizer(tmp_path / "folder").vocab_size == 2048
    assert (tmp_path / "folder" / "model.safetensors").stat().st_size < 2.2 * sum(p.numel() for p in model.parameters())


def test_the_recipes_are_those_of_the_shipped_model():
    assert training.EXTEND.config == rnj.SMALL
    assert training.TRAIN.config == replace(rnj.SMALL, rope_type="default", rope_factor=1.0)
    assert training.TRAIN.mix.length == rnj.SMALL.original_max_positions
    assert training.EXTEND.mix.length == rnj.SMALL.max_positions
    assert training.NAMES.config == training.TRAIN.config and training.NAMES.mix.length == training.TRAIN.mix.length
    assert {recipe.step_tokens for recipe in training.PHASES.values()} == {8192}
    assert len({recipe.seed for recipe in training.PHASES.values()}) == 3
    assert len(SPECIAL_TOKENS) == 16 and NO_TARGET == -100


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["train", "--tokens", "0"], "above 0"),
        (["train", "--minutes", "-1"], "above 0"),
        (["names", "--tokens", "100", "--from", "nowhere"], "nowhere/checkpoint.pt does not exist"),
        (["export", "--out", "somewhere"], "--from"),
        (["export", "--from", "nowhere"], "nowhere/checkpoint.pt does not exist"),
        (["train", "--tokens", "100", "--corpus", ".", "--out", "runs"], "--any-corpus"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(given, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest keeps its own handlers
    with pytest.raises(SystemExit) as caught:
        training.main(given)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_export_says_where_it_wrote(tmp_path, capsys):
    run(RECIPE, tmp_path / "run", mini_corpus(), TOKENIZER, tokens=256)
    training.main(["export", "--from", str(tmp_path / "run"), "--to", str(tmp_path / "folder")])
    assert "folder" in capsys.readouterr().out and (tmp_path / "folder" / "model.safetensors").exists()


def test_a_loss_that_is_not_finite_leaves_the_checkpoint_whole(tmp_path):
    go(tmp_path, steps=4, stop_after=2)
    kept = training.read_checkpoint(tmp_path)["model"]

    class Broken(TrainingForm):
        def __call__(self, packed):
            return super().__call__(packed) * float("nan")

    with pytest.raises(TrainingError, match="the loss is nan: lower the rates"):
        go(tmp_path, steps=4, form=Broken)
    again = training.read_checkpoint(tmp_path)
    assert again["state"]["step"] == 2 and all(torch.equal(again["model"][name], kept[name]) for name in kept)


def test_a_run_that_is_asked_to_stop_goes_on_bit_for_bit(tmp_path):
    whole = go(tmp_path / "whole", steps=5)
    answers = iter([False, False, True])
    go(tmp_path / "cut", steps=5, stop=lambda: next(answers))
    assert training.read_checkpoint(tmp_path / "cut")["state"]["step"] == 2
    made = go(tmp_path / "cut", steps=5)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), made.parameters(), strict=True))


def test_an_interrupt_within_a_step_keeps_the_last_whole_one(tmp_path):
    go(tmp_path, steps=5, stop_after=2)

    class Interrupted(TrainingForm):
        def __call__(self, packed):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, steps=5, form=Interrupted)
    assert training.read_checkpoint(tmp_path)["state"]["step"] == 2
