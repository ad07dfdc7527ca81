"""Figures of training: the curves, long contexts, other layers under the same weights, what a part is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from rnj import example
from rnj.lab import ladder
from rnj.lab.long_context import BIN, far
from rnj.lab.readings import readings
from rnj.model import Transformer
from rnj.text import load_tokenizer
from rnj.viz.figure import NARROW, Shown, end_labels, heading, label, limits, number, panels, show
from rnj.viz.palette import FAINT, GLOBAL, GLOW, INK, LOCAL, MUTED, NEGATIVE, POSITIVE
from rnj.viz.stepper import Choice, Frame, Slider, Stepper

# --- The curves of the shipped model


PHASE_WORDS = {"train": "plain", "names": "names", "extend": "YaRN"}  # as the curves name them


def curve_figure() -> Shown:
    """The three phases of the shipped model, one after another: each logged step's loss, and held-out rows.

    In the phases in which a middle weighs more, the logged loss is the weighted one.
    """
    phases, start, told = [], 0.0, []
    for phase, word in PHASE_WORDS.items():
        header, entries = ladder.curve(f"small-{phase}")
        step = header["recipe"]["rows"] * header["recipe"]["mix"]["length"] / 1e6
        logged = [(start + e["step"] * step, e["loss"]) for e in entries if "loss" in e]
        looked = [(start + e["step"] * step, e["held_out"]) for e in entries if "held_out" in e]
        phases.append((start, f"{word} {looked[-1][1]:.2f}", logged, looked))
        start = max(logged[-1][0], looked[-1][0])
        told.append(phases[-1][1])

    def drawing(width: float, left: float) -> Figure:
        fig, ax = panels(width, 3.2, bare=False, left=left, right=0.98, top=0.83, bottom=0.14)
        high, lowest = 5.0, min(y for _, _, logged, _ in phases for _, y in logged)
        for i, (begun, text, logged, looked) in enumerate(phases):
            shade = GLOBAL if i == len(phases) - 1 else INK
            ax.plot(*zip(*logged, strict=True), color=shade, lw=0.5, alpha=0.45)
            ax.plot(*zip(*looked, strict=True), "o-", color=shade, lw=1.2, ms=2.6)
            if begun:
                ax.axvline(begun, color=MUTED, lw=0.6, ls=(0, (2, 2)), zorder=0)
            label(ax, max(x for x, _ in looked), high - 0.15 - 0.3 * (i % 2), text, colour=shade, ha="right")
        ax.set(xlim=(0, start), ylim=(lowest - 0.1, high))
        ax.set_xlabel("million tokens", fontsize=8.5, color=MUTED)
        heading(ax, "Loss, nats a token", "thin: each batch; dots: held-out files")
        return fig

    alt = f"Training loss and held-out loss over {start:.1f} million tokens; held out at each phase's end: "
    return show(drawing(NARROW * 1.9, 0.08), alt=alt + ", ".join(told) + ".", narrow=drawing(NARROW, 0.12))


# --- The ladder and the race


def ladder_figure(standings: Sequence[ladder.Standing], full: float | None = None) -> Shown:
    """Held-out loss of each rung by tokens trained on, the last rung lit, each with both seeds.

    full: the loss on the same rows after the small model's whole training, drawn as a line, or None.
    """
    names = [f"{i} {rung.new}" for i, rung in enumerate(standings, start=1)]
    ends = [(rung.mean, name) for rung, name in zip(standings, names, strict=True)]
    if full is not None:
        ends.append((full, f"{len(standings) + 1} the full budget"))

    def drawing(width: float, left: float, right: float) -> Figure:
        fig, ax = panels(width, 3.0, bare=False, left=left, right=right, top=0.83, bottom=0.14)
        for i, rung in enumerate(standings):
            last = i == len(standings) - 1
            for curve in rung.curves:
                x, y = np.array(list(curve)) / 1e6, list(curve.values())
                ax.plot(x, y, color=GLOBAL if last else INK, lw=1.5 if last else 0.8, alpha=1 if last else 0.6)
        if full is not None:
            ax.axhline(full, color=MUTED, lw=0.9, ls=(0, (3, 2)))
        low = min(value for value, _ in ends)
        high = max(max(curve.values()) for rung in standings for curve in rung.curves)
        ax.set(xlim=(0, ladder.TOKENS / 1e6), ylim=(low - 0.2, high + 0.1))
        ax.set_xticks([0, 0.5, 1])
        ax.set_xlabel("million tokens", fontsize=8.5, color=MUTED)
        newest = len(standings) - 1
        lines = [
            (y, f"{name} {y:.2f}", GLOBAL if i == newest else INK if i < newest else MUTED)
            for i, (y, name) in enumerate(ends)
        ]
        end_labels(ax, ladder.TOKENS / 1e6, lines, (high + 0.3 - low) / 14)
        heading(ax, "Held-out loss by rung", "nats a token; two seeds each")
        return fig

    told = ", ".join(f"{name} {y:.2f}" for y, name in ends)
    alt = f"Held-out loss of models that have only the parts built so far, at the end: {told}."
    return show(drawing(NARROW * 1.8, 0.07, 0.66), alt=alt, narrow=drawing(NARROW, 0.1, 0.45))


def race_figure(standings: Mapping[str, ladder.Standing]) -> Shown:
    """Held-out loss at the end of the race: a row a form, a dot a seed, a bar their mean."""
    height = 0.95 + 0.34 * len(standings)
    fig, ax = panels(NARROW, height, bare=False, left=0.2, right=0.84, top=1 - 0.45 / height, bottom=0.42 / height)
    for i, (form, run) in enumerate(standings.items()):
        ax.plot(run.ends, [i] * len(run.ends), "o", color=POSITIVE, ms=5, alpha=0.75)
        ax.plot([run.mean] * 2, [i - 0.3, i + 0.3], color=INK, lw=1.3)
        label(ax, 1.04, i, f"{run.mean:.3f}", colour=INK, transform=ax.get_yaxis_transform())
        label(ax, -0.05, i, form, colour=INK, ha="right", transform=ax.get_yaxis_transform())
    ax.spines["left"].set_visible(False)
    ends = [end for run in standings.values() for end in run.ends]
    room = 0.12 * (max(ends) - min(ends))
    ax.set(xlim=(min(ends) - room, max(ends) + room), ylim=(len(standings) - 0.4, -0.6), yticks=[])
    ax.set_xlabel("nats a token on held-out rows", fontsize=8.5, color=MUTED)
    heading(ax, "Four forms, equal size", "dots: two seeds; bar: their mean")
    told = "; ".join(f"{form} {', '.join(f'{end:.3f}' for end in run.ends)}" for form, run in standings.items())
    return show(fig, alt=f"Held-out loss of the four feed-forward forms after the same training, by seed: {told}.")


# --- By position


ROTATION_LOOKS = {"plain": INK, "interpolation": NEGATIVE, "YaRN": GLOBAL}


def long_figure(table: Mapping[str, Mapping[str, Float[Tensor, "B T/256"]]]) -> Shown:
    """Loss by position up to 8 times the trained length: a panel a model, a line a column of the table.

    Dashed, and named with the number of its steps: after the short further training.
    """
    told = []
    for name, columns in table.items():
        ends = ", ".join(f"{column} {float(far(x).mean()):.2f}" for column, x in columns.items())
        told.append(f"{name}: {ends}")
    high = max(float(x.mean(0).max()) for columns in table.values() for x in columns.values())
    low = min(float(x.mean(0).min()) for columns in table.values() for x in columns.values())

    def drawing(width: float, height: float, rows: int, columns: int, **edges: float) -> Figure:
        fig, axes = panels(width, height, rows=rows, columns=columns, bare=False, **edges)
        for ax, (name, losses) in zip(np.ravel(axes), table.items(), strict=True):
            ends = []
            for column, x in losses.items():
                mean, rotation = x.mean(0).numpy(), column.split(" + ")[0]  # [T/256]
                look: Any = {"ls": (0, (3, 2))} if " + " in column else {}
                ax.plot((np.arange(len(mean)) + 0.5) * BIN, mean, color=ROTATION_LOOKS[rotation], lw=1.3, **look)
                ends.append(
                    (
                        float(mean[-1]),
                        column.replace("interpolation", "interp.").removesuffix(" steps"),
                        ROTATION_LOOKS[rotation],
                    )
                )
            length = BIN * len(mean)
            trained = length // 8
            ax.axvspan(0, trained, color=FAINT, alpha=0.6, lw=0, zorder=0)
            ax.set(xlim=(0, length), ylim=(low - 0.1, high + 0.1))
            ax.set_xticks([0, trained, length // 2, length], ["0", f"{trained:,}", f"{length // 2:,}", f"{length:,}"])
            end_labels(ax, length, ends, (high - low) / 11)
            heading(ax, {"twin": "The twin, all global"}.get(name, f"The {name}"), "nats a token by position")
        return fig

    wide = drawing(NARROW * 2.1, 3.2, 1, 2, left=0.05, right=0.82, top=0.84, bottom=0.09, wspace=0.58)
    narrow = drawing(NARROW, 5.6, 2, 1, left=0.09, right=0.68, top=0.91, bottom=0.05, hspace=0.42)
    alt = "Loss by position under each rotation; mean of the last eighth: " + "; ".join(told) + "."
    return show(wide, alt=alt, narrow=narrow)


def kinds_figure(losses: Mapping[str, Float[Tensor, "B T/256"]]) -> Shown:
    """The same weights with their own layers, all layers local, and all layers global: loss by position."""
    shades = {"as trained": INK, "all local": LOCAL, "all global": GLOBAL}
    means = {name: values.mean(0).numpy() for name, values in losses.items()}  # [T/256] each
    length = BIN * len(means["as trained"])

    def drawing(width: float, left: float, right: float) -> Figure:
        fig, ax = panels(width, 2.9, bare=False, left=left, right=right, top=0.83, bottom=0.15)
        for name, mean in means.items():
            ax.plot((np.arange(len(mean)) + 0.5) * BIN, mean, color=shades[name], lw=1.4)
        low, high = ax.get_ylim()
        ax.set(xlim=(0, length))
        ax.set_xticks([0, length // 2, length], ["0", f"{length // 2:,}", f"{length:,}"])
        ax.set_xlabel("position", fontsize=8.5, color=MUTED)
        ends = [(float(mean[-1]), name, shades[name]) for name, mean in means.items()]
        end_labels(ax, length, ends, (high - low) / 11)
        heading(ax, "Other layers, same weights", "nats a token by position")
        return fig

    told = ", ".join(f"{name} {mean[-1]:.2f}" for name, mean in means.items())
    alt = f"Loss by position of the small model with its layers changed; in the last stretch {told}."
    return show(drawing(NARROW * 1.6, 0.1, 0.78), alt=alt, narrow=drawing(NARROW, 0.12, 0.75))


# --- What a part is worth


def knock_out_figure(losses: Mapping[str, float]) -> Shown:
    """How much the loss rises when each part is knocked out. losses: of "nothing" and of each part."""
    whole = losses["nothing"]
    lost = {part: value - whole for part, value in losses.items() if part != "nothing"}
    height = 0.55 + 0.27 * len(lost)
    fig, ax = panels(NARROW, height, left=0.37, right=0.84, top=1 - 0.4 / height)
    most = max(lost.values())
    for i, (part, value) in enumerate(lost.items()):
        ax.barh(i, max(value, 0), color=POSITIVE, height=0.5)
        label(ax, -0.02 * most, i, part, ha="right")
        label(ax, max(value, 0) + 0.02 * most, i, number(value, "+.2f"), colour=INK)
    ax.set(xlim=(0, most), ylim=(len(lost) - 0.4, -0.6))
    heading(ax, "Without this part", f"nats a token above {whole:.2f}")
    told = ", ".join(f"{part} {number(value, '+.2f')}" for part, value in lost.items())
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
