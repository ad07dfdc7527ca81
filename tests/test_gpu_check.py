"""The GPU check, run on the CPU with small shapes, and its words where there is no GPU."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from rnj import RNJ_1_5, SMALL, TINY, build, gpu_check

CUDA = torch.device("cuda", 0)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def card(monkeypatch):
    """A pretended GPU of so many bytes, so many of them free."""

    def make(total: float, free: float) -> None:
        properties = SimpleNamespace(name="Pretended 4090", total_memory=int(total))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(free), int(total)))

    return make


def by_name(rows: list[gpu_check.Row]) -> dict[str, gpu_check.Row]:
    return {row.what: row for row in rows}


def test_the_whole_check_runs_on_the_cpu_with_small_shapes():
    rows = gpu_check.check("cpu", small=TINY, full=TINY)
    assert not gpu_check.failed(rows)
    assert sum(row.ok is True for row in rows) == 13
    named = by_name(rows)
    assert named["device"].found == "cpu"
    assert named["parameters"].found == "140,456"
    assert named["tokens generated with the cache"].found == "16"
    assert named["dtype of all weights"].found == "torch.bfloat16"
    assert named["device of all weights"].found == "cpu"


def test_the_followed_shape_is_counted_without_a_gpu(no_gpu, capsys):
    rows = gpu_check.check()
    named = by_name(rows)
    assert "no CUDA device" in named["device"].found
    assert named["parameters"].found == "8,310,501,376"
    assert named["bytes of the weights in bfloat16"].found == "16,621,002,752"
    assert named["bytes of the cache for 80 tokens"].found == f"{80 * 131_072:,}"
    assert [row.ok for row in rows if row.ok is not None] == [True] * 3
    assert gpu_check.main() == 0
    printed = capsys.readouterr().out
    assert "8,310,501,376" in printed
    assert "All 3 comparisons hold." in printed
    assert "Nothing ran on a GPU" in printed


def test_the_small_model_is_compared_past_three_blocks_and_off_a_block_edge():
    assert 3 * SMALL.block_size < gpu_check.SMALL_LENGTH
    assert gpu_check.SMALL_LENGTH % SMALL.block_size


@pytest.mark.parametrize(
    "slip", [{"norm_eps": 1e-3}, {"rope_theta": 20_000.0}, {"block_size": 6}, {"final_logit_softcap": None}]
)
def test_a_device_that_computes_something_else_is_seen(monkeypatch, slip):
    configs = iter([TINY, replace(TINY, **slip)])  # the CPU's model, then the device's
    monkeypatch.setattr(gpu_check, "build", lambda config, **settings: build(next(configs), **settings))
    rows = gpu_check.check_small(TINY, torch.device("cpu"))
    assert [row.ok for row in rows] == [False, False]


def test_nan_fails(monkeypatch):
    def broken(config, **settings):
        model = build(config, **settings)
        with torch.no_grad():
            model.final_norm.weight.fill_(float("nan"))
        return model

    monkeypatch.setattr(gpu_check, "build", broken)
    device = torch.device("cpu")
    assert [row.ok for row in gpu_check.check_small(TINY, device)] == [False, False]
    assert by_name(gpu_check.check_full(TINY, device))["largest logit"].ok is False


def test_a_failed_comparison_ends_with_1_and_says_how_many(monkeypatch, capsys):
    rows = [gpu_check.Row("a", "1", "1", True), gpu_check.Row("b", "1", "2", False), gpu_check.Row("c", "1")]
    monkeypatch.setattr(gpu_check, "check", lambda: rows)
    assert gpu_check.main() == 1
    printed = capsys.readouterr().out
    assert "FAILED" in printed
    assert "1 of 2 comparisons failed." in printed


@pytest.mark.parametrize(
    "total, free, words",
    [
        (15.8e9, 15e9, "needs a card of 24 GB, this one has 15.8 GB"),
        (25.4e9, 9e9, "9.0 GB are: others use this card"),
        (25.4e9, 24e9, ""),
        (23.6e9, 23e9, ""),
        (150e9, 149e9, ""),
    ],
)
def test_the_full_shape_is_run_only_where_it_fits(card, total, free, words):
    card(total, free)
    found = gpu_check.room_for(RNJ_1_5, CUDA)
    assert words in found if words else found == ""


def test_a_card_that_is_too_small_still_compares_the_small_model(card, monkeypatch):
    card(8e9, 8e9)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(gpu_check, "check_small", lambda config, device: [gpu_check.Row("small", "x", "x", True)])
    named = by_name(gpu_check.check("cuda"))
    assert "Pretended 4090, 8.0 GB" in named["device"].found
    assert named["small"].ok
    assert "not run: it needs a card of 24 GB" in named["full shape in bfloat16"].found
    assert named["parameters"].found == "8,310,501,376"


def test_tf32_is_off_inside_and_as_before_outside():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with gpu_check.float32_without_tf32():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.gpu
def test_the_check_holds_on_this_gpu():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    rows = gpu_check.check()
    assert not gpu_check.failed(rows), gpu_check.table(rows)
