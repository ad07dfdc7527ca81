"""A calculator for training runs, and the published runs that it has to reproduce. Chapter 7.

Work is 6·N·D, the model's FLOPs without attention; speed is chips · dense peak · MFU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rnj import accounting, facts
from rnj.accounting import TrainingRun
from rnj.config import RNJ_1_5

PEAKS: Mapping[str, float] = {  # FLOP/s, dense: without structured sparsity
    "V100": facts.number("V100, dense float16 peak"),
    "A100": facts.number("A100, dense bfloat16 peak"),
    "H100": facts.number("H100, dense bfloat16 peak"),
}
LEFT_OUT = (
    "attention's own work: 6·N·D are the FLOPs of weights alone",
    "activations computed again: MFU counts the model's FLOPs, HFU the hardware's",
    "the peak with sparsity, twice as high: this is the dense one",
    "restarts, waiting, failed runs, and everything tried before",
    "evaluation, data, later stages, storage, network, people",
)


def parameters(model: str) -> int:
    """All parameters of "Rnj 1.5" or of a known model. Raises ValueError for another name."""
    if model == "Rnj 1.5":
        return accounting.parameters(RNJ_1_5).total
    return accounting.known_model(model).parameters()


def estimate(model: str, tokens: float, chip: str, mfu: float, price: float = 0.0, chips: int = 1) -> TrainingRun:
    """Time, chip-hours and cost of a training run by 6·N·D.

    chip: a key of PEAKS; mfu: a share of its dense peak; price: of an hour of one chip. With one chip, seconds are
    chip-seconds. Raises ValueError by name for what it does not know.
    """
    if chip not in PEAKS:
        raise ValueError(f"chip must be one of {', '.join(PEAKS)}, not {chip!r}")
    work = accounting.six_n_d(parameters(model), tokens)
    return accounting.training_run(work, chips, PEAKS[chip], mfu, price)


@dataclass(frozen=True)
class Check:
    """One published number beside what the calculator makes of the same run."""

    model: str
    what: str
    given: str  # what the calculator is told besides the model and its published tokens
    computed: float
    published: float

    @property
    def off(self) -> float:
        """The relative difference."""
        return self.computed / self.published - 1


def checks() -> list[Check]:
    """The calculator against three published runs; tokens, hours and FLOPs are those of rnj.facts.

    GPU-hours need an MFU, which follows from the same hours: it is given rounded to 0.1 %, as such numbers are quoted.
    """
    said = facts.number
    found = []
    for model, what, published in (
        ("GPT-3 175B", "FLOPs", said("GPT-3 175B, training FLOPs as published")),
        ("GPT-3 175B", "PF-days", said("GPT-3 175B, training compute as published")),
        ("Llama 3.1 405B", "FLOPs", said("Llama 3.1 405B, training FLOPs as published")),
    ):
        flops = accounting.six_n_d(parameters(model), said(f"{model}, tokens"))
        computed = flops if what == "FLOPs" else accounting.petaflop_days(flops)
        found.append(Check(model, what, "", computed, published))
    for model, chip, mfu in (("Llama 2 70B", "A100", 0.428), ("Llama 3.1 405B", "H100", 0.346)):
        run = estimate(model, said(f"{model}, tokens"), chip, mfu)
        hours = said(f"{model}, GPU-hours")
        found.append(Check(model, f"{chip}-hours", f"MFU {100 * mfu:.1f} %", run.chip_hours, hours))
    return found
