"""The calculator against published runs, and its refusals."""

from __future__ import annotations

import pytest

from rnj import accounting, facts
from rnj.lab import cluster

KNOWN = {  # model, what → computed as published within 1 %, and the value to three digits
    ("GPT-3 175B", "FLOPs"): 3.143e23,
    ("GPT-3 175B", "PF-days"): 3638,
    ("Llama 3.1 405B", "FLOPs"): 3.799e25,
    ("Llama 2 70B", "A100-hours"): 1.7218e6,
    ("Llama 3.1 405B", "H100-hours"): 3.0824e7,
}


def test_published_runs_are_reproduced():
    found = {(check.model, check.what): check for check in cluster.checks()}
    assert set(found) == set(KNOWN)
    for key, computed in KNOWN.items():
        assert found[key].computed == pytest.approx(computed, rel=2e-4)
        assert abs(found[key].off) < 0.01
    assert found["Llama 2 70B", "A100-hours"].published == 1_720_320
    assert found["Llama 3.1 405B", "H100-hours"].published == 30.84e6


def test_the_given_mfu_is_that_of_the_hours():
    for model, chip, mfu in (("Llama 2 70B", "A100", 0.428), ("Llama 3.1 405B", "H100", 0.346)):
        work = accounting.six_n_d(cluster.parameters(model), facts.number(f"{model}, tokens"))
        hours = facts.number(f"{model}, GPU-hours")
        found = accounting.model_flops_utilization(work, hours, cluster.PEAKS[chip])
        assert round(found, 3) == mfu


def test_each_number_goes_in_once():
    run = cluster.estimate("Rnj 1.5", 8.4e12, "H100", 0.4, price=2.0, chips=1024)
    assert run.flops == 6 * 8_310_501_376 * 8.4e12 and run.chips == 1024
    assert run.seconds == pytest.approx(run.flops / (1024 * 989.4e12 * 0.4))
    assert run.cost == pytest.approx(2 * run.chip_hours) and 11.5 < run.days < 12
    one = cluster.estimate("Rnj 1.5", 8.4e12, "H100", 0.4)
    assert one.chip_hours == pytest.approx(run.chip_hours) and one.cost == 0
    assert cluster.estimate("Rnj 1.5", 8.4e12, "A100", 0.4).chip_hours == pytest.approx(one.chip_hours * 989.4 / 312)


def test_peaks_are_dense():
    assert cluster.PEAKS == {"V100": 125e12, "A100": 312e12, "H100": 989.4e12}
    assert sum("6·N·D" in line or "sparsity" in line or "HFU" in line for line in cluster.LEFT_OUT) == 3


def test_refusals():
    with pytest.raises(ValueError, match="chip must be one of V100, A100, H100, not 'B200'"):
        cluster.estimate("Rnj 1.5", 1e12, "B200", 0.4)
    with pytest.raises(ValueError, match="no model 'Llama 9'"):
        cluster.estimate("Llama 9", 1e12, "H100", 0.4)
    with pytest.raises(ValueError, match="divide a percentage by 100"):
        cluster.estimate("Rnj 1.5", 1e12, "H100", 40)
