"""Chapter 7's figures say what accounting counts; its steppers draw every value."""

from __future__ import annotations

import pytest
import torch

import rnj
from rnj import RNJ_1_5, SMALL, accounting, example, facts
from rnj.accounting import GIB, all_global
from rnj.gpu_check import Row
from rnj.lab import cluster, known
from rnj.viz import math as draw
from rnj.viz import sweep
from rnj.viz.figure import Shown
from tests.common import nothing_over_the_edge, words

held = nothing_over_the_edge(draw)


def has(figure: Shown | str, *texts: str) -> bool:
    phone = words(figure, narrow=True) if isinstance(figure, Shown) and figure.narrow else []
    everything = " | ".join(words(figure) + phone)
    missing = [text for text in texts if text not in everything]
    assert not missing, f"{missing} is not among {everything}"
    return True


@pytest.fixture(scope="module")
def trace():
    packed = example.row()
    model = rnj.build(SMALL, seed=0, random_norms=True)
    return model.trace(packed.tokens, packed.positions, packed.segments)


@pytest.fixture(scope="module")
def run():
    n, d = accounting.parameters(RNJ_1_5).total, facts.number("Rnj 1.0, pre-training tokens")
    return accounting.training_run(accounting.six_n_d(n, d), 1024, cluster.PEAKS["H100"], 0.4, 2.0)


def test_journey_writes_the_first_and_the_last_norm(trace):
    first, last = (trace[name][0, example.FOLLOWED].norm() for name in ("embed", "block.7.out"))
    assert has(draw.journey_figure(trace, SMALL, example.FOLLOWED), f"{first:.1f}", f"{last:.1f}", "block 7", "global")


def test_work_writes_sums_and_last_values():
    positions = list(range(250, 260))
    without = [accounting.forward_flops(SMALL, p + 1, "no causal half") for p in positions]
    cached = [accounting.decode_flops(SMALL, p) for p in positions]
    figure = draw.work_figure(positions, without, cached, edge=256)
    assert has(figure, f"{sum(without) / 1e9:.2f} GFLOP", f"{sum(cached) / 1e9:.2f} GFLOP", "256")
    assert has(figure, f"{without[-1] / 1e9:.2f}", f"{cached[-1] / 1e6:.2f}")


@pytest.mark.parametrize("tokens", [32_768, 163_840])
def test_kv_cache_writes_bytes(tokens):
    figure = draw.kv_cache_figure(RNJ_1_5, tokens)
    assert has(figure, "4,096 B", draw.gib(accounting.kv_cache_bytes(RNJ_1_5, tokens)), f"· {tokens:,} tokens")
    assert has(figure, draw.gib(accounting.kv_cache_bytes(all_global(RNJ_1_5), tokens)), "· 8,192 tokens")


def test_gib_has_no_needless_zeros():
    assert [draw.gib(x * GIB) for x in (5.75, 20, 0.125, 160)] == ["5.75 GiB", "20 GiB", "0.12 GiB", "160 GiB"]


def test_matrices_are_the_seven_of_a_layer():
    layer = accounting.layer_parameters(RNJ_1_5)
    sizes = {name: size for name, (size, _, _) in draw.matrices(RNJ_1_5).items()}
    assert sum(sizes[name] for name in "qkvo") == layer.attention
    assert sizes["gate"] + sizes["up"] + sizes["down"] == layer.mlp
    shapes = {
        name.split(".")[-2].removesuffix("_proj"): x.numel()
        for name, x in rnj.meta(RNJ_1_5).blocks[0].named_parameters()
    }
    assert all(shapes[name] == size for name, size in sizes.items())


def test_parameters_writes_all_counts():
    counted = accounting.parameters(RNJ_1_5)
    numbers = (counted.total, counted.embedding, counted.attention, counted.mlp, counted.norms + counted.qk_norms)
    figure = draw.parameters_figure()
    assert has(figure, *(f"{number:,}" for number in numbers), "16,777,216", "4,194,304", "67,108,864", "24 local")
    assert has(figure, "embedding 6.3 %", "attention 16.2 %", "MLP 77.5 %")


def test_flops_writes_two_and_six_n():
    assert has(draw.flops_figure(), "2N = 16.62", "6N = 49.86", "2.68", "12.88", "1.05", "8,192 tokens: + 2.15")


def test_six_n_marks_where_it_fails():
    assert has(draw.six_n_figure(), "31,702", "63,404", "217,219", "12.9 %", "26.2 %", "78.9 %")


def test_cluster_and_bill_write_the_run(run):
    n = accounting.parameters(RNJ_1_5).total
    figure = draw.cluster_figure(n, 8.4e12, run, cluster.PEAKS["H100"], 0.4)
    assert has(figure, "8.31e9", "8.4e12", "9.894e14", "0.4", "1,024", "4.19e23", f"{run.seconds:,.0f} s", "12.0 days")
    work = accounting.attention_share(RNJ_1_5, 8192) * run.flops
    attention = accounting.training_run(work, 1024, cluster.PEAKS["H100"], 0.4, 2.0)
    bill = draw.bill_figure(run, attention)
    assert has(bill, f"${run.cost:,.0f}", f"${attention.cost:,.0f}", f"${run.cost + attention.cost:,.0f}")
    assert has(bill, *draw.NOT_ON_THE_BILL)


def test_mfu_writes_every_row():
    figure = draw.mfu_figure([("over all hours", 0.346, 0.346), ("published", 0.38, 0.43)], (0.38, 0.43))
    assert has(figure, "over all hours", "34.6 %", "38 to 43 %")


def test_days_and_dollars_in_words():
    assert [draw.days(x) for x in (0.4, 11.96, 1234.4)] == ["9.6 hours", "12.0 days", "1,234 days"]
    assert [draw.dollars(x) for x in (587_968, 999_700, 5.33e7, 2e9)] == [
        "$588 thousand",
        "$1,000 thousand",
        "$53.3 million",
        "$2 billion",
    ]


def test_models_table_counts():
    table = draw.models_table(known.table()).data
    assert "6,738,415,616" in table and "8,030,261,248" in table and "405,853,388,800" in table
    assert "63,045,632" in table and "<td>6 + 6</td>" in table
    assert table.count("<tr>") == 1 + len(known.table())


def test_checks_table_shows_every_row_and_joins_lines_that_go_on():
    rows = [
        Row("device", "none:"),
        Row("", "counted <only>"),
        Row("parameters", "8", "8", True),
        Row("x", "1", "2", False),
    ]
    table = draw.checks_table(rows).data
    assert table.count("<tr>") == 1 + 3 and "none: counted &lt;only&gt;" in table
    assert "<td>ok</td>" in table and "<td>FAILED</td>" in table


# Steppers


@pytest.mark.parametrize("name", draw.STEPPERS)
def test_every_frame_of_every_stepper(name):
    stepper = draw.STEPPERS[name]()
    assert stepper.name == name
    assert sweep(stepper) <= 72


def test_the_cache_stepper_says_what_accounting_says():
    stepper = draw.cache_stepper()
    for context, everywhere, hybrid in ((32_768, 4, 1.75), (131_072, 16, 4.75), (163_840, 20, 5.75)):
        for batch in (1, 32):
            numbers = stepper.frame(context=context, batch=batch).numbers
            assert numbers["all-global, bytes"] == batch * everywhere * GIB
            assert numbers["hybrid, bytes"] == batch * hybrid * GIB
            assert numbers["hybrid, MQA, bytes"] == batch * hybrid * GIB / 8


@pytest.mark.parametrize("token", [12, 10, 3, 13, 0])
def test_the_filling_cache_is_a_real_one(token, monkeypatch):
    monkeypatch.setattr(example, "FOLLOWED", token)
    text, place = draw.filling_text()
    names, held = draw.filling(text)
    labels = example.labels(example.row())
    assert names[: place + 1] == labels[token - place : token + 1]
    assert len(names) == draw.FILLING_STEPS == len(held)
    for step, state in enumerate(held):
        first = accounting.first_visible(draw.FILLING, step, "local")
        assert state == {"local": (first, step + 1 - first), "global": (0, step + 1)}
    stepper = draw.filling_stepper()
    assert [stepper.frame(step=s).numbers["dropped now"] for s in (7, 8, 9, 12, 16)] == [0, 4, 0, 4, 4]
    lost = (place // 4 + 2) * 4
    assert "global layer only" in stepper.frame(step=lost).text
    assert "global layer only" not in stepper.frame(step=lost - 1).text


def test_the_cluster_steppers_say_what_accounting_says(run):
    numbers = draw.days_stepper().frame(trillions=8.4, chips=1024, mfu=40).numbers
    assert numbers["days"] == run.days and numbers["GPU-hours"] == run.chip_hours


def test_the_calculator_reproduces_what_was_published():
    calculator = draw.calculator_stepper()
    llama = {"model": "Llama 2 70B", "trillions": 2.0, "chip": "A100", "mfu": 42.8, "price": 2.0}
    assert calculator.start == llama
    frame = calculator.frame(**llama)
    assert frame.numbers["chip-hours"] == pytest.approx(facts.number("Llama 2 70B, GPU-hours"), rel=0.01)
    assert frame.numbers["off the published hours, %"] == pytest.approx(0.086, abs=1e-3)
    assert frame.numbers["dollars"] == pytest.approx(2 * frame.numbers["chip-hours"])
    assert has(str(frame.figure), "published 1,720,320", "as published", "312 TFLOP/s")
    other = calculator.frame(**(llama | {"chip": "H100"}))
    assert other.numbers["off the published hours, %"] is None
    assert "published 1,720,320" not in words(str(other.figure))
    gpt = calculator.frame(**(llama | {"model": "GPT-3 175B", "trillions": 0.3}))
    assert has(str(gpt.figure), "3.143e23 FLOPs", "published 3.14e23", "3,638 PF-days", "published 3,640")
    big = calculator.frame(model="Llama 3.1 405B", trillions=15.6, chip="H100", mfu=34.6, price=2.0)
    assert has(str(big.figure), "published 30,840,000", "3.799e25 FLOPs", "published 3.8e25")


def test_steppers_need_no_gradients():
    assert torch.is_grad_enabled()
    draw.filling.cache_clear()
    draw.filling(draw.filling_text()[0])
    assert torch.is_grad_enabled()
