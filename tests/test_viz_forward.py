"""The figures of chapter 1 draw the numbers of the functions that they name; its steppers sweep."""

from __future__ import annotations

import math

import pytest
import torch
from matplotlib.figure import Figure

import rnj
from rnj import example
from rnj.text import fim, load_tokenizer, pack
from rnj.viz import figure, sweep
from rnj.viz import forward as draw
from tests.common import nothing_over_the_edge, words

held = nothing_over_the_edge(draw)


@pytest.fixture(scope="module")
def trace() -> dict[str, torch.Tensor]:
    row = example.row()
    return rnj.build(rnj.SMALL, seed=0).trace(row.tokens, row.positions, row.segments)


def test_merges() -> None:
    shown = draw.merges_figure([["a", "b", " ", "a", "b"], ["ab", " ", "ab"]], [("a", "b", 2)])
    assert words(shown) == ["a", "b", "·", "a", "b", "5 bytes", "a", "b", "·", "a", "b",
                            "a + b, side by side 2 times: 3 tokens"]  # fmt: skip
    assert "3 tokens" in shown.alt


def test_fim() -> None:
    tokenizer = load_tokenizer()
    pieces = ("def f(", "name", "):\n    return name")
    ids = [tokenizer.encode("n = 7"), fim(*pieces, tokenizer)]
    row = pack(ids, 20, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id, pad_id=tokenizer.pad_id)
    labels = [label.strip("<|>") for label in example.labels(row)]
    shown = draw.fim_figure(row, labels, pieces)
    for narrow in (False, True):
        texts = words(shown, narrow)
        assert {"def·f(", "name", "):↵····return·name", "prefix", "suffix", "middle"} <= set(texts)
        for i in (*range(6), *range(6, 19)):  # every place that is no padding: its token and its position
            assert texts.count(labels[i].removeprefix("fim_")) >= 1
        assert texts.count("0") == 2 and texts.count("12") == 1
    assert "fim_middle, name, end, pad" in shown.alt
    with pytest.raises(ValueError, match="must hold fim_prefix, fim_suffix, fim_middle"):
        draw.fim_figure(example.row(), example.labels(example.row()), pieces)


def test_packing() -> None:
    row = example.row()
    labels = example.labels(row)
    shown = draw.packing_figure(row, labels, example.DOCUMENTS, lit=12)
    seen = words(shown)
    for values in (row.tokens, row.positions, row.segments):
        texts = [str(i) for i in values[0].tolist()]
        assert any(seen[i : i + 16] == texts for i in range(len(seen)))
    targets = draw._target_labels(row, labels)
    assert any(seen[i : i + 16] == targets for i in range(len(seen)))
    assert targets.count("–") == 3 and targets[5] == targets[14] == targets[15] == "–" and targets[12] == "·name"
    assert "13 places have a target" in shown.alt
    narrow = words(shown, narrow=True)
    assert any(narrow[i : i + 16] == targets for i in range(len(narrow)))


def test_embedding(trace: dict[str, torch.Tensor]) -> None:
    row = example.row()
    table = rnj.build(rnj.SMALL, seed=0).embed.weight.detach()
    shown = draw.embedding_figure(table, row.tokens[0], trace["embed"][0], example.labels(row), row.segments[0], 12)
    for narrow in (False, True):
        seen = words(shown, narrow)
        assert {str(i) for i in row.tokens[0].tolist()} <= set(seen) and "[2,048, 192]" in seen
        assert {figure.number(float(v.norm()), ".2f") for v in trace["embed"][0]} <= set(seen)


def test_block(trace: dict[str, torch.Tensor]) -> None:
    shown = draw.block_figure(trace, 3, 12, "return")
    for name in ("in", "pre_attn_norm", "attn.out", "post_attn_norm", "mid", "pre_mlp_norm", "mlp.out", "out"):
        norm = figure.number(float(trace[f"block.3.{name}"][0, 12].norm()), ".2f")
        assert norm in words(shown) and norm in words(shown, narrow=True)
    assert words(shown).count("norm") == 5  # four norms and a column's name


def test_influence() -> None:
    labels, segments = example.labels(example.row()), example.row().segments[0]
    own, more = torch.zeros(16, dtype=torch.bool), torch.zeros(16, dtype=torch.bool)
    own[9], more[9:15] = True, True
    shown = draw.influence_figure({"embed": own, "block.0.attn.heads": more}, labels, segments, lit=9)
    assert "Only there: embed. At other tokens too: block.0.attn.heads." in shown.alt
    assert [w for w in words(shown) if w.startswith(("embed", "block"))] == ["embed", "block.0.attn.heads"]


def test_softcap_head_and_losses(trace: dict[str, torch.Tensor]) -> None:
    row, tokenizer = example.row(), load_tokenizer()
    points = {x: 30 * math.tanh(x / 30) for x in (10.0, 30.0, 60.0)}
    shown = draw.softcap_figure(30, points)
    assert {"10 → 9.645382", "30 → 22.847825", "60 → 28.920827"} <= set(words(shown)) & set(words(shown, True))
    raw, logits = trace["logits_raw"][0, 12], trace["logits"][0, 12]
    p = logits.softmax(-1)
    for target in (550, int(p.argmax())):  # far down, and at the top
        shown = draw.head_figure(raw, logits, p, target, "return", tokenizer)
        for narrow in (False, True):
            seen = words(shown, narrow)
            assert any(f"{-math.log(float(p[target])):.3f} nats" in w for w in seen)
            assert figure.number(float(raw[target]), ".3f") in seen and f"{100 * float(p[target]):.2f} %" in seen
    rank = int((p > p[550]).sum())
    assert any(f"{rank - 6:,} others" in w for w in words(draw.head_figure(raw, logits, p, 550, "return", tokenizer)))
    losses = torch.full((16,), math.nan)
    losses[:3] = torch.tensor([1.0, 2.5, 9.125])
    shown = draw.losses_figure(losses, example.labels(row), row.segments[0], 1, 2048)
    assert {"1.000", "2.500", "9.125", "uniform guess 7.625"} <= set(words(shown))


@pytest.mark.parametrize("name", draw.STEPPERS)
def test_steppers_sweep(name: str) -> None:
    stepper = draw.STEPPERS[name]()
    assert stepper.name == name
    assert sweep(stepper) == len(stepper.combinations()) <= 64


def test_the_text_stepper_takes_any_text() -> None:
    stepper, tokenizer = draw.text_stepper(), load_tokenizer()
    for text in ("", "a", "\x00\t", "long " * 200, "<|pad|>", "$x$ & <b>"):
        frame = stepper.draw(text=text)
        assert frame.numbers["tokens"] == len(tokenizer.encode(text))
        assert isinstance(frame.figure, Figure) and not figure.clipped(frame.figure)


def test_the_packing_stepper_packs() -> None:
    stepper, tokenizer = draw.packing_stepper(), load_tokenizer()
    start = stepper.draw(**stepper.start).numbers
    assert start == {"rows": 1, "targets": 13, "padding": 1}
    ids = [tokenizer.encode(text) for text in (draw.FIRST, draw.SECOND)]
    ends = {"bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id, "pad_id": tokenizer.pad_id}
    for first, second in ((4, 8), (4, 10), (8, 10), (1, 1)):
        packed = pack([ids[0][:first], ids[1][:second]], 16, **ends)
        numbers = stepper.draw(first=first, second=second).numbers
        assert numbers["rows"] == packed.tokens.shape[0] == (1 if first + second <= 12 else 2)
        assert numbers["targets"] == first + second + 2


def test_the_packing_stepper_lights_the_followed_token() -> None:
    """Any token of the book's row is found again where the documents are longer, or in a second row."""
    tokenizer, row = load_tokenizer(), example.row()
    texts = [tokenizer.encode(text) for text in (draw.FIRST, draw.SECOND)]
    ends = {"bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id, "pad_id": tokenizer.pad_id}
    for lit in (row.targets[0] != -100).nonzero().flatten().tolist():
        followed = int(row.segments[0, lit]) - 1, int(row.positions[0, lit])
        for lengths in ((4, 7), (4, 10), (8, 10)):
            packed = pack([ids[:n] for ids, n in zip(texts, lengths, strict=True)], 16, **ends)
            rows = packed.tokens.shape[0]
            places = [draw._place(followed, lengths, b, rows) for b in range(rows)]
            ((b, at),) = [(b, at) for b, at in enumerate(places) if at is not None]
            assert packed.tokens[b, at] == row.tokens[0, lit] and packed.positions[b, at] == row.positions[0, lit]
    assert draw._place((1, 6), (4, 5), 0, 1) is None


def test_the_steppers_for_stages_and_sampling_show_the_package_numbers(trace: dict[str, torch.Tensor]) -> None:
    stages = draw.stage_stepper(trace, 12)
    for i, name in enumerate(draw.STAGES):
        numbers = stages.draw(stage=i).numbers
        assert math.isclose(float(numbers["norm of return"]), float(trace[name][0, 12].norm()), rel_tol=1e-5)
    logits = torch.cat([torch.tensor([5.0, 4.0, 3.0]), torch.zeros(2045)])
    sampling = draw.sampling_stepper(logits, "x")
    settings: list[tuple[float, int | None, float]] = [(1.0, None, 1.0), (0.6, 8, 0.9), (0.0, 3, 0.5)]
    for temperature, k, p in settings:
        wanted = rnj.probabilities(logits, temperature, k, p)
        numbers = sampling.draw(temperature=temperature, top_k=k or "all", top_p=p).numbers
        assert numbers["tokens kept"] == int((wanted > 0).sum()) and numbers["largest probability"] == wanted.max()
