"""Figures of training: the curve, other layers under the same weights, what a part is worth. Interlude C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from rnj import example
from rnj.lab import ladder
from rnj.lab.long_context import BIN
from rnj.lab.readings import readings
from rnj.model import Transformer
from rnj.text import load_tokenizer
from rnj.viz.figure import NARROW, Shown, end_labels, heading, label, limits, panels, show
from rnj.viz.palette import FAINT, GLOBAL, GLOW, INK, LIT, LOCAL, MUTED, POSITIVE
from rnj.viz.stepper import Choice, Frame, Slider, Stepper

# --- The curves of the shipped model


def curve_figure() -> Shown:
    """The three phases of the shipped model, one after another: each logged step's loss, and held-out rows."""
    fig, ax = panels(NARROW * 1.9, 3.2, bare=False, left=0.08, right=0.98, top=0.83, bottom=0.14)
    words = {"train": "plain rotation", "fill": "shorter holes", "extend": "YaRN"}
    start, told, high = 0.0, [], 5.0
    for phase, word in words.items():
        header, entries = ladder.curve(f"small-{phase}")
        step = header["recipe"]["rows"] * header["recipe"]["mix"]["length"] / 1e6
        logged = [(start + e["step"] * step, e["loss"]) for e in entries if "loss" in e]
        looked = [(start + e["step"] * step, e["held_out"]) for e in entries if "held_out" in e]
        shade = GLOBAL if phase == "extend" else INK
        ax.plot(*zip(*logged, strict=True), color=shade, lw=0.5, alpha=0.45)
        ax.plot(*zip(*looked, strict=True), "o-", color=shade, lw=1.2, ms=2.6)
        if start:
            ax.axvline(start, color=MUTED, lw=0.6, ls=(0, (2, 2)), zorder=0)
        start, (_, end) = max(logged[-1][0], looked[-1][0]), looked[-1]
        label(ax, start, high - 0.15, f"{word} {end:.2f}", colour=shade, ha="right")
        told.append(f"{word} {end:.2f}")
    lowest = min(y for y in ax.dataLim.intervaly)
    ax.set(xlim=(0, start), ylim=(lowest - 0.1, high))
    ax.set_xlabel("million tokens", fontsize=8.5, color=MUTED)
    heading(ax, "Loss, nats a token", "thin: each batch; dots: held-out files")
    alt = f"Training loss and held-out loss over {start:.1f} million tokens; held out at each phase's end: "
    return show(fig, alt=alt + ", ".join(told) + ".")


# --- By position


def kinds_figure(losses: Mapping[str, Float[Tensor, "B T/256"]]) -> Shown:
    """The same weights with their own layers, all layers local, and all layers global: loss by position."""
    shades = {"as trained": INK, "all local": LOCAL, "all global": GLOBAL}
    fig, ax = panels(NARROW * 1.6, 2.9, bare=False, left=0.1, right=0.78, top=0.83, bottom=0.15)
    ends = []
    for name, values in losses.items():
        mean = values.mean(0).numpy()
        ax.plot((np.arange(len(mean)) + 0.5) * BIN, mean, color=shades[name], lw=1.4)
        ends.append((float(mean[-1]), name, shades[name]))
    low, high = ax.get_ylim()
    ax.set(xlim=(0, len(mean) * BIN))
    ax.set_xlabel("position", fontsize=8.5, color=MUTED)
    end_labels(ax, len(mean) * BIN, ends, (high - low) / 11)
    heading(ax, "Other layers, same weights", "nats a token by position")
    told = ", ".join(f"{name} {y:.2f}" for y, name, _ in ends)
    return show(fig, alt=f"Loss by position of the small model with its layers changed; in the last stretch {told}.")


# --- What a part is worth


def knock_out_figure(losses: Mapping[str, float], lit: Sequence[str] = ()) -> Shown:
    """How much the loss rises when each part is knocked out. losses: "nothing" and parts; lit: this chapter's."""
    whole = losses["nothing"]
    lost = {part: value - whole for part, value in losses.items() if part != "nothing"}
    fig, ax = panels(
        NARROW * 1.4, 0.55 + 0.27 * len(lost), left=0.34, right=0.86, top=1 - 0.4 / (0.55 + 0.27 * len(lost))
    )
    most = max(lost.values())
    for i, (part, value) in enumerate(lost.items()):
        shade = LIT if part in lit else POSITIVE
        if part in lit:
            ax.barh(i, most, color=GLOW, height=0.8, zorder=0)
        ax.barh(i, max(value, 0), color=shade, height=0.5)
        label(ax, -0.02 * most, i, part, colour=shade if part in lit else MUTED, ha="right", lit=part in lit)
        label(ax, max(value, 0) + 0.02 * most, i, f"{value:+.2f}", colour=INK, lit=part in lit)
    ax.set(xlim=(0, most), ylim=(len(lost) - 0.4, -0.6))
    heading(ax, "Without this part", f"nats a token above {whole:.2f}")
    told = ", ".join(f"{part} {value:+.2f}" for part, value in lost.items())
    return show(fig, alt=f"Loss of the small model with one kind of part knocked out, above {whole:.2f}: {told}.")


# --- Layer by layer


def readings_stepper(model: Transformer | None = None) -> Stepper:
    """The position → what the head would say there after each layer, and where the right token ranks."""
    model = example.small_model() if model is None else model
    row, tokenizer = example.row(), load_tokenizer()
    read = readings(model, model.trace(row.tokens, row.positions, row.segments))
    names, kinds = example.labels(row), ("embedding", *model.config.layer_types)
    places = [i for i, target in enumerate(row.targets[0].tolist()) if target >= 0]

    def draw(position: int) -> Frame:
        target = int(row.targets[0, position])
        best, ranks = read.best(position), read.rank(position, target)
        fig, ax = panels(3.6, 3.5, left=0.0, right=1.0, top=1.0, bottom=0.0)
        limits(ax, 0, 10, -1.9, len(kinds) + 0.2, equal=False)
        label(ax, 0.1, -1.35, f"after “{names[position]}” comes “{names[position + 1]}”", INK, fontsize=9.5, lit=True)
        label(ax, 0.1, -0.45, "layer", fontsize=8)
        label(ax, 2.3, -0.45, "most likely", fontsize=8)
        label(ax, 9.9, -0.45, "rank of the right one", fontsize=8, ha="right")
        for layer, kind in enumerate(kinds):
            y = layer + 0.5
            shade = {"local": LOCAL, "global": GLOBAL}.get(kind, MUTED)
            label(ax, 0.1, y, kind if layer == 0 else f"{layer - 1} {kind}", colour=shade)
            for i, (token, p) in enumerate(best[layer]):
                x = 2.3 + 1.9 * i
                right = token == target
                ax.barh(y, 1.75 * p, left=x - 0.05, height=0.8, color=GLOW if right else FAINT, zorder=0)
                text = tokenizer.token(token)
                label(ax, x, y, text if len(text) <= 8 else text[:7] + "…", colour=INK, lit=right, fontsize=8)
            label(ax, 9.9, y, f"{ranks[layer]:,}", colour=INK, ha="right", lit=ranks[layer] == 1)
        first = next((layer for layer, rank in enumerate(ranks) if all(r == 1 for r in ranks[layer:])), None)
        settled = "The right token is not the most likely one." if first is None else (
            f"The right token is the most likely one from {'the embedding' if not first else f'layer {first - 1}'} on."
        )  # fmt: skip
        return Frame(
            fig,
            text=settled,
            numbers={
                "rank after the last layer": ranks[-1],
                "its probability": float(read.probabilities[-1, position, target]),
            },
            alt=f"After {names[position]!r}: rank of {names[position + 1]!r} by layer "
            + ", ".join(map(str, ranks))
            + ".",
        )

    controls: list[Slider | Choice] = [Slider("position", places, value=example.FOLLOWED, live_step=None)]
    return Stepper("What each layer would say", controls, draw, name="readings")


STEPPERS = {"readings": readings_stepper}
