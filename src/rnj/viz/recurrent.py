"""The figures and steppers of interlude A: paths, gradients, rounds and times, memories written over, recall."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import NullLocator
from torch import Tensor

from rnj.lab import recurrent as lab
from rnj.viz.figure import (
    NARROW,
    Shown,
    arrow,
    end_label,
    end_labels,
    glow,
    heading,
    label,
    limits,
    lit_box,
    panels,
    show,
    vector_strip,
)
from rnj.viz.palette import FAINT, GLOBAL, GLOW, INK, LIT, MUTED, POSITIVE
from rnj.viz.stepper import Choice, Frame, Slider, Stepper

SCREEN = 3.55  # inches: a stepper on a phone, without scrolling
COLOURS = {"RNN": MUTED, "LSTM": POSITIVE, "attention": GLOBAL}
STYLES = {"RNN": (0, (1, 1.5)), "LSTM": "-", "attention": "-"}
OPEN = 3.0  # the forget gates' bias of an LSTM that is told to keep what it has
LANES = tuple(10**n for n in range(9))
LENGTHS = tuple(2**n for n in range(4, 16))
READ_AT = 1024  # the length at which the stepper reads its curves off
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


# --- Paths


def path_figure(labels: Sequence[str], followed: int, back: int) -> Shown:
    """The way from a token of a document to one `back` places before it: by states, and by attention.

    labels: of the document's tokens; followed: the place of the followed one in it.
    """
    n, source = len(labels), followed - back
    fig, axes = panels(NARROW, 3.1, 2, left=0.02, right=0.98, top=0.86, hspace=0.55, height_ratios=(1.9, 3.1))
    for ax, above in zip(axes, (-0.7, -1.9), strict=True):
        limits(ax, -0.6, n - 0.4, above, 1.2, equal=False)
        glow(ax, followed - 0.45, -0.25, 0.9, 0.5)
        for i, word in enumerate(labels):
            ax.plot(i, 0.6, "o", ms=3.5, color=LIT if i in (source, followed) else MUTED)
            if i in (source, followed):
                label(ax, i, 1.0, word, ha="center", lit=True)
    chain, direct = axes
    for i in range(n):
        on_path = source <= i < followed
        chain.plot(i, 0, "s", ms=11, mfc="none", mec=LIT if source <= i <= followed else MUTED, mew=1)
        arrow(chain, (i, 0.5), (i, 0.24), colour=LIT if i == source else MUTED)
        if i + 1 < n:
            arrow(chain, (i + 0.24, 0), (i + 0.76, 0), colour=LIT if on_path else MUTED, lw=1.6 if on_path else 0.6)
    for i in range(followed + 1):
        lit = i == source
        look: dict[str, Any] = {
            "arrowstyle": "-|>,head_length=3,head_width=1.5",
            "lw": 1.6 if lit else 0.5,
            "clip_on": False,
        }
        if i < followed:
            curve = f"arc3,rad={-0.5 if followed - i > 1 else -0.8}"
            colour = LIT if lit else MUTED
            direct.add_patch(
                FancyArrowPatch(
                    (i, 0.45), (followed, -0.3), connectionstyle=curve, color=colour, zorder=3 if lit else 1, **look
                )
            )
    direct.plot(followed, 0, "s", ms=11, mfc="none", mec=LIT, mew=1)
    steps = "step" if back == 1 else "steps"
    heading(chain, "A recurrent network", f"{back} {steps} from state to state")
    heading(direct, "Attention", "one step, from any distance")
    alt = (
        f"From “{labels[source]}” to “{labels[followed]}”: through {back} states in turn, or by one arrow of attention."
    )
    return show(fig, alt=alt)


# --- Gradients


def gradient_figure(curves: Mapping[str, Sequence[Tensor]]) -> Shown:
    """How much gradient arrives by distance, on a log axis: name → one curve [T] for each seed.

    Names begin with a network's; one that says more is dashed. Geometric mean over the seeds, with their range.
    """
    logs = {name: torch.stack(list(runs)).log10().numpy() for name, runs in curves.items()}  # [seeds, T] each
    lasts = {name: float(10 ** values.mean(0)[-1]) for name, values in logs.items()}
    length = len(next(iter(curves.values()))[0])
    low = min(lasts.values())

    def drawing(width: float, left: float, right: float) -> Figure:
        fig, ax = panels(width, 3.3, bare=False, left=left, right=right, top=0.86, bottom=0.14)
        for name, values in logs.items():
            kind = name.split(",")[0]
            style = STYLES[kind] if kind == name else (0, (4, 2))
            ends = 10 ** values.min(0), 10 ** values.max(0)
            ax.fill_between(np.arange(length), *ends, color=COLOURS[kind], alpha=0.2, lw=0)
            ax.plot(np.arange(length), 10 ** values.mean(0), color=COLOURS[kind], ls=style, lw=1.5)
        ax.set(yscale="log", xlim=(0, length - 1))
        ticks = [10.0**n for n in range(0, int(np.floor(np.log10(low))) - 1, -5)]
        ax.set_yticks(ticks, [_power(t) for t in ticks])
        ax.yaxis.set_minor_locator(NullLocator())
        ax.set_xticks([0, length // 2, length - 1])
        ax.set_xlabel("steps back", fontsize=8.5, color=MUTED)
        told = [(last, f"{name}: {_power(last)}", COLOURS[name.split(",")[0]]) for name, last in lasts.items()]
        end_labels(ax, length - 1, told, (1 / low) ** 0.075)
        heading(ax, "Gradient of the last output", "norm at the input d steps back")
        return fig

    said = ", ".join(f"{name} {last:.1g}" for name, last in lasts.items())
    alt = f"Gradient that arrives {length - 1} steps back: {said}."
    return show(drawing(NARROW * 1.7, 0.1, 0.62), alt=alt, narrow=drawing(NARROW, 0.15, 0.42))


def _power(value: float) -> str:
    """A number of any size in few signs: 0.21, 3e−12."""
    if 0.01 <= value < 1000:
        return f"{value:.2g}"
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}".replace("-", "−")


def scale_stepper() -> Stepper:
    """One number decides a plain recurrence's gradient: it vanishes, or it explodes."""
    length = 41

    @functools.cache
    def curve(scale: float, squash: bool) -> Tensor:
        return lab.gradient_by_distance(lab.scaled_recurrence(scale, squash), length)  # [T]

    def draw(scale: float, f: str) -> Frame:
        gradient = curve(scale, f == "tanh").numpy()
        last = float(gradient[-1])
        fig, ax = panels(SCREEN, 2.7, bare=False, left=0.15, right=0.84, top=0.84, bottom=0.17)
        ax.axhline(1, color=FAINT, lw=1)
        ax.plot(np.arange(length), gradient, color=INK, lw=1.5)
        ax.plot(length - 1, last, "o", ms=7, mfc=GLOW, mec=LIT, mew=1.2, zorder=5, clip_on=False)
        ax.set(yscale="log", xlim=(0, length - 1), ylim=(1e-15, 1e8))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.set_yticks([1e-14, 1e-7, 1, 1e7], ["1e−14", "1e−7", "1", "1e7"])
        ax.set_xticks([0, 20, 40])
        ax.set_xlabel("steps back", fontsize=8.5, color=MUTED)
        end_label(ax, length - 1, last, _power(last), LIT, weight="bold")
        heading(ax, "Gradient that arrives", f"h = {'tanh' if f == 'tanh' else ''}({scale:g} · Q h + x)")
        grown = last / float(gradient[1])
        fate = "vanishes" if grown < 0.1 else "explodes" if grown > 10 else "stays within a factor of ten"
        text = f"Over {length - 1} steps the gradient {fate}."
        numbers = {"one step back": float(gradient[1]), f"{length - 1} steps back": last}
        return Frame(fig, text, numbers, f"A curve by steps back, ending at {last:.2g}: the gradient {fate}.")

    controls: list[Slider | Choice] = [
        Slider("scale", (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5), value=1.0, live_step=0.05),
        Choice("f", ("none", "tanh"), value="none", label="squashed by"),
    ]
    return Stepper("One number, and the gradient is gone", controls, draw, name="recurrent-scale")


# --- Time


def time_figure(lengths: Sequence[int], times: Mapping[str, Sequence[float]]) -> Shown:
    """Seconds of a forward and backward pass by length, both axes logarithmic, as measured."""
    every = [1000 * value for values in times.values() for value in values]
    low, high = min(every), max(every)

    def drawing(width: float, right: float) -> Figure:
        fig, ax = panels(width, 3.0, bare=False, left=0.13, right=right, top=0.86, bottom=0.15)
        for name, values in times.items():
            look = {"color": COLOURS[name], "ls": STYLES[name], "lw": 1.5, "marker": "o", "ms": 2.5}
            ax.plot(lengths, [1000 * value for value in values], **look)
        ax.set(xscale="log", yscale="log", ylim=(low * 0.8, high * 1.25))
        ax.set_xticks([lengths[0], lengths[-1]], [f"{lengths[0]:,}", f"{lengths[-1]:,}"])
        ticks = [10.0**n for n in range(-3, 6) if low * 0.8 <= 10.0**n <= high * 1.25]
        ax.set_yticks(ticks, [f"{tick:,g}" for tick in ticks])
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_minor_locator(NullLocator())
        ends = [(1000 * v[-1], f"{name}: {_ms(v[-1])}", COLOURS[name]) for name, v in times.items()]
        end_labels(ax, lengths[-1], ends, (high / low) ** 0.08)
        ax.set_xlabel("tokens in the row", fontsize=8.5, color=MUTED)
        heading(ax, "Milliseconds", "forward and backward, one row, this machine")
        return fig

    said = ", ".join(f"{name} {_ms(values[-1])}" for name, values in times.items())
    alt = f"Time by length; at {lengths[-1]:,} tokens: {said}."
    return show(drawing(NARROW * 1.6, 0.68), alt=alt, narrow=drawing(NARROW, 0.58))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.2g} ms"


def lanes_stepper() -> Stepper:
    """How wide a machine must be before waiting costs more than work."""
    networks = {kind: lab.Network(kind) for kind in lab.NETWORKS}

    @functools.cache
    def counted(kind: str, length: int, lanes: int) -> float:
        return lab.rounds(networks[kind], length, lanes)

    def draw(lanes: int) -> Frame:
        fig, ax = panels(SCREEN, 3.0, bare=False, left=0.15, right=0.74, top=0.84, bottom=0.16)
        ax.set(xscale="log", yscale="log", xlim=(LENGTHS[0], LENGTHS[-1]), ylim=(30, 3e11))
        at = {}
        ends = []
        for kind in lab.NETWORKS:
            values = [counted(kind, n, lanes) for n in LENGTHS]
            ax.plot(LENGTHS, values, color=COLOURS[kind], ls=STYLES[kind], lw=1.5)
            ends.append((values[-1], kind, COLOURS[kind]))
            at[kind] = counted(kind, READ_AT, lanes)
            ax.plot(READ_AT, at[kind], "o", ms=6, mfc=GLOW, mec=LIT, mew=1.2, zorder=5)
        ax.axvline(READ_AT, color=FAINT, lw=1, zorder=0)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_minor_locator(NullLocator())
        ax.set_xticks([16, READ_AT, LENGTHS[-1]], ["16", f"{READ_AT:,}", f"{LENGTHS[-1]:,}"])
        ax.set_yticks([100, 1e6, 1e10], ["100", "1e6", "1e10"])
        ax.set_xlabel("tokens in the row", fontsize=8.5, color=MUTED)
        end_labels(ax, LENGTHS[-1], ends, 5.5)
        heading(ax, "Rounds, at most", f"{lanes:,} multiply-add{'s' if lanes > 1 else ''} a round")
        first = min(at, key=lambda kind: at[kind])
        numbers = {f"{kind}, {READ_AT:,} tokens": round(value) for kind, value in at.items()}
        text = (
            f"For a row of {READ_AT:,} tokens {'attention' if first == 'attention' else 'the ' + first} needs fewest."
        )
        return Frame(
            fig, text, numbers, f"Rounds by length for three networks, {lanes:,} multiply-adds a round. {text}"
        )

    return Stepper(
        "How wide is the machine?",
        [Slider("lanes", LANES, value=1, label="multiply-adds a round", format=",")],
        draw,
        name="recurrent-lanes",
    )


# --- A memory that is written over


def memory_stepper(shown: int = 14) -> Stepper:
    """Two rows that differ in their first input only: what the states still hold of the difference."""
    kinds = {"RNN": ("RNN", None), "LSTM": ("LSTM", None), "LSTM, gates open": ("LSTM", OPEN)}
    most = 32

    @functools.cache
    def memories(network: str) -> tuple[Tensor, Tensor]:
        kind, forget_bias = kinds[network]
        return lab.two_memories(kind, most, forget_bias=forget_bias)  # [S, D] each

    def draw(since: int, network: str) -> Frame:
        a, b = memories(network)
        gaps = (a - b).norm(dim=-1)  # [S]
        share = (gaps[since] / gaps[0]).item()
        fig, (top, ax) = panels(
            SCREEN, 3.9, rows=2, bare=False, left=0.15, right=0.97, top=0.97, bottom=0.12, hspace=0.22
        )
        top.axis("off")
        limits(top, 0, shown, -0.9, 5.2, equal=False)
        strips = {"row 1": a[since], "row 2": b[since], "difference": a[since] - b[since]}
        for i, (name, vector) in enumerate(strips.items()):
            at = (0.0, 2.05 * i)
            label(top, 0.05, at[1] - 0.4, name, colour=INK, lit=name == "difference")
            vector_strip(top, vector[:shown], vmax=1.5, numbers=False, at=at, lit=name == "difference")
        ax.plot(np.arange(most + 1), (gaps / gaps[0]).numpy(), color=COLOURS[kinds[network][0]], lw=1.4)
        ax.plot(since, share, "o", ms=8, mfc=GLOW, mec=LIT, mew=1.3, zorder=5, clip_on=False)
        ax.set(yscale="log", xlim=(0, most), ylim=(1e-11, 8))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.set_yticks([1, 1e-5, 1e-10], ["1", "1e−5", "1e−10"])
        ax.set_xticks([0, 16, most])
        ax.set_xlabel("inputs since the one that differed", fontsize=8.5, color=MUTED)
        label(ax, 0.7, 1e-10, "share of the first difference that is left", fontsize=8)
        inputs = "input" if since == 1 else "inputs"
        text = f"{since} {inputs} later, {_power(share)} of the first difference is left."
        numbers = {"difference of the states": gaps[since].item(), "share that is left": share}
        return Frame(fig, text, numbers, f"Two memories as strips, their difference, and its size by time. {text}")

    controls: list[Slider | Choice] = [
        Slider("since", (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32), label="inputs since", play=True),
        Choice("network", tuple(kinds)),
    ]
    return Stepper("What is left of the first input", controls, draw, name="recurrent-memory")


# --- Recall


def task_figure(rows: Mapping[str, lab.Items], choices: int) -> Shown:
    """One row of the recall task for each title: keys as letters over values as digits, the question last.

    The asked item and the question are lit. rows: title → Items, of which the first row is drawn.
    """
    said = []
    for title, made in rows.items():
        letter = LETTERS[int(made.keys[0, -1])]
        said.append(f"{title}: {letter} is asked for, {int(made.distances[0])} steps after it was shown")

    def drawing(width: float) -> Figure:
        top = 1 - 0.26 / len(rows)
        fig, axes = panels(width, 1.3 * len(rows), rows=len(rows), left=0.01, right=0.99, top=top, bottom=0.02)
        for ax, (title, made) in zip(np.ravel(axes), rows.items(), strict=True):
            keys, values = made.keys[0].tolist(), made.values[0].tolist()
            n = len(keys)
            asked = n - 1 - int(made.distances[0])
            limits(ax, -0.1, n + 0.1, -0.1, 2.3, equal=False)
            for at in (asked, n - 1):
                glow(ax, at, 0, 1, 2)
                lit_box(ax, at, 0, 1, 2)
            for i, (key, value) in enumerate(zip(keys, values, strict=True)):
                lit = i in (asked, n - 1)
                label(ax, i + 0.5, 0.5, LETTERS[key] if key < n - 1 else "·", ha="center", lit=lit)
                label(ax, i + 0.5, 1.5, f"{value}" if value < choices else "?", ha="center", lit=lit)
            heading(ax, title)
        return fig

    return show(drawing(NARROW * 1.5), alt="; ".join(said) + ".", narrow=drawing(NARROW))


def recall_figure(runs: Sequence[lab.Run], pairs: int) -> Shown:
    """Share of right answers by distance, for the runs with so many keys: mean over seeds, with their range.

    Beyond the distances of the training, where it was tested there, the background changes.
    """
    chosen = [run for run in runs if run.recipe.pairs == pairs]
    items, choices, far = chosen[0].recipe.items, chosen[0].recipe.choices, sorted(chosen[0].far)
    distances = [*range(1, items + 1), *far]
    shares = {
        kind: np.array([[*run.near, *(run.far[d] for d in far)] for run in chosen if run.recipe.network == kind])
        for kind in lab.NETWORKS
    }  # [seeds, distances] each
    title = "One key to keep" if pairs == 1 else f"{pairs} keys to keep"

    def drawing(width: float, left: float, right: float) -> Figure:
        fig, ax = panels(width, 2.9, bare=False, left=left, right=right, top=0.84, bottom=0.15)
        for kind, values in shares.items():
            ax.fill_between(distances, values.min(0), values.max(0), color=COLOURS[kind], alpha=0.2, lw=0)
            ax.plot(distances, values.mean(0), color=COLOURS[kind], ls=STYLES[kind], lw=1.6)
        ax.axhline(1 / choices, color=MUTED, lw=0.8, ls=(0, (4, 3)))
        label(ax, distances[0] + 0.3, 1 / choices - 0.05, f"chance {1 / choices:.3g}", fontsize=8)
        if far:
            ax.axvspan(items, distances[-1], color=FAINT, alpha=0.6, lw=0, zorder=0)
            label(ax, items + 0.8, 0.3, "farther than\nin training", fontsize=8)
        ax.set(xlim=(distances[0], distances[-1]), ylim=(0, 1.05))
        ax.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        ax.set_xticks([1, items, *(d for d in far if d % 32 == 0)])
        ax.set_xlabel("steps since it was shown", fontsize=8.5, color=MUTED)
        ends = [(float(v.mean(0)[-1]), f"{kind} {v.mean(0)[-1]:.2f}", COLOURS[kind]) for kind, v in shares.items()]
        end_labels(ax, distances[-1], ends, 0.09)
        heading(ax, title, "share of right answers")
        return fig

    said = ", ".join(f"{kind} from {v.mean(0)[0]:.2f} to {v.mean(0)[-1]:.2f}" for kind, v in shares.items())
    alt = f"{title}; right answers by distance, 1 to {distances[-1]}: {said}."
    return show(drawing(NARROW * 1.5, 0.08, 0.76), alt=alt, narrow=drawing(NARROW, 0.11, 0.68))


def loss_figure(runs: Sequence[lab.Run]) -> Shown:
    """Loss by step of training, one panel for each number of keys: mean over seeds, with their range."""
    kinds = sorted({run.recipe.pairs for run in runs})
    steps = lab.SMOOTH * (np.arange(len(runs[0].losses)) + 1)

    def drawing(width: float, left: float, right: float) -> Figure:
        fig, axes = panels(width, 4.3, len(kinds), 1, False, left, right, top=0.93, bottom=0.11, hspace=0.4)
        for ax, pairs in zip(np.ravel(axes), kinds, strict=True):
            ends = []
            for kind in lab.NETWORKS:
                chosen = [r.losses for r in runs if (r.recipe.pairs, r.recipe.network) == (pairs, kind)]
                values = np.array(chosen)  # [seeds, steps / SMOOTH]
                ax.fill_between(steps, values.min(0), values.max(0), color=COLOURS[kind], alpha=0.2, lw=0)
                ax.plot(steps, values.mean(0), color=COLOURS[kind], ls=STYLES[kind], lw=1.5)
                ends.append((float(values.mean(0)[-1]), f"{kind} {values.mean(0)[-1]:.2f}", COLOURS[kind]))
            ax.set(xlim=(0, steps[-1]), ylim=(0, 2.3))
            ax.set_yticks([0, 1, 2])
            ax.set_xticks([0, steps[-1]], ["0", f"{steps[-1]:,}"])
            end_labels(ax, steps[-1], ends, 0.34)
            heading(ax, "One key to keep: nats an answer" if pairs == 1 else f"{pairs} keys to keep")
        axes[-1].set_xlabel("steps of training", fontsize=8.5, color=MUTED)
        return fig

    said = []
    for pairs in kinds:
        for kind in lab.NETWORKS:
            last = np.mean([r.losses[-1] for r in runs if (r.recipe.pairs, r.recipe.network) == (pairs, kind)])
            said.append(f"{kind} with {pairs} key{'s' if pairs > 1 else ''} {last:.2f}")
    alt = f"Loss at the end of {steps[-1]:,} steps: {', '.join(said)}."
    return show(drawing(NARROW * 1.5, 0.06, 0.76), alt=alt, narrow=drawing(NARROW, 0.09, 0.68))


STEPPERS = {"scale": scale_stepper, "lanes": lanes_stepper, "memory": memory_stepper}
