"""The figures and steppers of interlude B: three masks, what is trained on, masked words, learning, alignment."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from rnj.lab import families as lab
from rnj.trace import into
from rnj.viz.figure import (
    NARROW,
    WIDE,
    Shown,
    glow,
    grid,
    heading,
    label,
    limits,
    lit_box,
    panels,
    show,
)
from rnj.viz.palette import DOC1, DOC2, FAINT, INK, KEY, LIT, MUTED, NEGATIVE, POSITIVE
from rnj.viz.stepper import Choice, Frame, Slider, Stepper

SOURCE, TARGET = DOC1, DOC2  # the two languages keep these colours: a source and its translation are two texts
FAMILIES = ("encoder-only", "decoder-only", "encoder-decoder")
BELOW = {
    "encoder-only": "sees everything",
    "decoder-only": "sees what came before",
    "encoder-decoder": "reads both ways, writes forward",
}


def joint_masks(source: int, target: int) -> dict[str, Tensor]:
    """What each family lets through over a source and its translation laid in one row: [S + T, S + T], by name.

    The encoder-decoder's has three parts: the encoder's square, the decoder's triangle, cross-attention's rectangle.
    """
    both = torch.ones(1, source + target, dtype=torch.long)
    first, second = both[:, :source], both[:, source:]
    hidden = torch.zeros(1, source, target, dtype=torch.bool)
    upper = torch.cat([lab.both_ways(first), hidden], dim=2)
    lower = torch.cat([lab.across(second, first), lab.left_to_right(second)], dim=2)
    masks = (lab.both_ways(both), lab.left_to_right(both), torch.cat([upper, lower], dim=1))
    return {name: mask[0] for name, mask in zip(FAMILIES, masks, strict=True)}


# Masks ---------------------------------------------------------------------------------------------------------------


def masks_figure(masks: Mapping[str, Tensor], pair: lab.Pair, lit: int) -> Shown:
    """The three masks [S + T, S + T] over a pair, keys in their language's colour, row `lit` and its count."""
    wide, axes = panels(WIDE, 3.3, 1, 3, left=0.115, right=0.995, top=0.67, bottom=0.07, wspace=0.1)
    narrow, more = panels(NARROW, 10.2, 3, 1, left=0.21, right=0.84, top=0.9, bottom=0.01, hspace=0.46)
    words = [*pair.source, *pair.target]
    for columns, upright in ((axes, False), (more, True)):
        for i, (ax, (name, mask)) in enumerate(zip(columns, masks.items(), strict=True)):
            _mask(ax, mask, pair, lit, row_words=upright or i == 0)
            heading(ax, name.capitalize(), BELOW[name])
            for text in ax.texts[-2:]:  # above the words
                text.set_position((0, text.get_position()[1] + 44))
            count, n = int(mask[lit].sum()), len(words)
            if upright:
                label(ax, n + 0.4, lit + 0.5, f"{count} keys", INK, lit=True)
            else:
                label(ax, n / 2, n + 0.9, f"{words[lit]}: {count} of {n} keys", INK, ha="center")
    counts = ", ".join(f"{name} {int(mask[lit].sum())}" for name, mask in masks.items())
    alt = (
        f"Three masks over the words {' '.join(pair.source)} and {' '.join(pair.target)}. Encoder-only: a full square. "
        f"Decoder-only: the lower triangle. Encoder-decoder: a square for the source, a rectangle from the translation "
        f"to the source, a triangle for the translation. Keys that {words[lit]} sees: {counts}."
    )
    return show(wide, alt, narrow=narrow)


def _mask(ax: Axes, mask: Tensor, pair: lab.Pair, lit: int, row_words: bool) -> None:
    S, T = len(pair.source), len(pair.target)
    words, colours = [*pair.source, *pair.target], [SOURCE] * S + [TARGET] * T
    limits(ax, -0.15, S + T + 0.15, -0.15, S + T + 0.15)
    strength = torch.where(torch.arange(S + T)[:, None] == lit, 1.0, 0.42).expand(-1, S + T)
    grid(ax, strength, shown=mask, cell_colours=[colours] * (S + T), vmax=1, numbers=False, fit=False, lit_row=lit)
    for i, word in enumerate(words):
        label(ax, i + 0.5, -0.35, word, colours[i], ha="center", va="bottom", rotation=90, fontsize=8, lit=i == lit)
        if row_words:
            label(ax, -0.35, i + 0.5, word, colours[i], ha="right", fontsize=8, lit=i == lit)
    ax.plot([0, S + T], [S, S], color=MUTED, lw=0.7)
    ax.plot([S, S], [0, S + T], color=MUTED, lw=0.7)


def strips(masks: Mapping[str, Tensor], pair: lab.Pair, lit: int) -> Figure:
    """For one word, a strip a family: the words that it may look at, in their language's colour."""
    S, T = len(pair.source), len(pair.target)
    words, colours = [*pair.source, *pair.target], [SOURCE] * S + [TARGET] * T
    fig, ax = panels(NARROW, 3.3, left=0.0, right=1.0, top=1.0, bottom=0.0)
    limits(ax, -0.6, S + T + 0.6, -3.7, 7.1)
    glow(ax, lit, -3.3, 1, 10.1)
    for i, word in enumerate(words):
        label(ax, i + 0.5, -0.3, word, colours[i], ha="center", va="bottom", rotation=90, lit=i == lit)
    for row, (name, mask) in enumerate(masks.items()):
        y = 0.9 + 2.2 * row
        grid(ax, torch.ones(1, S + T), shown=mask[lit][None], cell_colours=[colours], vmax=1, numbers=False, at=(0, y),
             fit=False)  # fmt: skip
        label(ax, 0, y - 0.42, name.capitalize(), INK, fontsize=8.5)
        label(ax, S + T, y - 0.42, f"{int(mask[lit].sum())} keys", INK, ha="right", lit=True)
    lit_box(ax, lit, -3.3, 1, 10.1)
    return fig


def masks_stepper() -> Stepper:
    """A word at a time: whom it may look at in each family."""
    pair = example_pair(6)
    S, T = len(pair.source), len(pair.target)
    masks, words = joint_masks(S, T), [*pair.source, *pair.target]

    def draw(word: int) -> Frame:
        seen = {name: int(mask[word].sum()) for name, mask in masks.items()}
        side = "the source" if word < S else "the translation"
        text = f"“{words[word]}”, word {word + 1} of the row, in {side}."
        alt = f"Three strips of {S + T} words. {words[word]} may look at " + ", ".join(
            f"{n} in the {name} model" for name, n in seen.items()
        )
        return Frame(strips(masks, pair, word), text, seen, alt + ".")

    return Stepper("Whom a word may look at", [Slider("word", range(S + T), value=2, play=True)], draw,
                   name="three-masks")  # fmt: skip


@functools.cache
def example_pair(words: int) -> lab.Pair:
    """The first held-out pair with this many words: what figures show."""
    return next(pair for pair in lab.pairs(seed=1, held_out=True) if len(pair.source) == words)


# What is trained on --------------------------------------------------------------------------------------------------


def signal_figure(masked: Tensor, continued: Tensor) -> Shown:
    """Which positions of a batch give a training signal: where the targets [B, T] of either task are not IGNORED."""
    tasks = {"Masked words": masked != lab.IGNORED, "Next words": continued != lab.IGNORED}  # [B, T] each
    B, T = masked.shape
    wide, axes = panels(WIDE, 2.75, 1, 2, left=0.005, right=0.995, top=0.8, bottom=0.02, wspace=0.06)
    narrow, more = panels(NARROW, 5.2, 2, 1, left=0.01, right=0.99, top=0.89, bottom=0.01, hspace=0.3)
    counts = {name: f"{int(told.sum())} of {told.numel()} positions" for name, told in tasks.items()}
    for both in (axes, more):
        for ax, (name, told) in zip(both, tasks.items(), strict=True):
            limits(ax, -0.1, T + 0.1, -0.1, B + 0.1, equal=False)
            grid(ax, told.float(), shown=told, colour=POSITIVE, vmax=1, numbers=False, fit=False)
            heading(ax, name, f"{counts[name]}, {100 * float(told.float().mean()):.0f} %")
    said = "; ".join(f"{name.lower()}: {count}" for name, count in counts.items())
    alt = f"{B} rows of {T} positions, a cell a position, dark where the model is told something: {said}."
    return show(wide, alt, narrow=narrow)


# Masked words --------------------------------------------------------------------------------------------------------


def gaps_figure(losses: Mapping[str, Mapping[str, float]]) -> Shown:
    """Cross-entropy of one masked word by its kind, in nats. losses: name -> kind -> value, the names in MARKS."""
    wide = _gaps(losses, WIDE, 3.5)
    narrow = _gaps(losses, NARROW, 4.3)
    said = "; ".join(f"{name} {kinds['all']:.2f}" for name, kinds in losses.items())
    return show(wide, f"Cross-entropy of a masked word for five kinds of words and for all, in nats. All: {said}.",
                narrow=narrow)  # fmt: skip


MARKS: dict[str, tuple[str, str]] = {  # name -> marker, colour
    "open by the rule": ("|", INK),
    "trained": ("o", POSITIVE),
    "trained, causal": ("D", MUTED),
    "shuffled context": ("s", NEGATIVE),
    "unigram": ("x", INK),
}


def _gaps(losses: Mapping[str, Mapping[str, float]], width: float, height: float) -> Figure:
    small = width < 5
    fig, ax = panels(width, height, bare=False, left=0.24 if small else 0.125, right=0.97, top=0.66 if small else 0.76,
                     bottom=0.115)  # fmt: skip
    rows = [*lab.KINDS, "all"]
    end = max(max(kinds.values()) for kinds in losses.values())
    for y, kind in enumerate(rows):
        values = [kinds[kind] for kinds in losses.values()]
        ax.plot([min(values), max(values)], [y, y], color=FAINT, lw=3, zorder=0)
        label(ax, -0.03 * end, y, kind, INK, ha="right", lit=kind == "all")
    for name, kinds in losses.items():
        mark, colour = MARKS[name]
        size = {"|": 13, "x": 6}.get(mark, 5.5)
        ax.plot([kinds[k] for k in rows], range(len(rows)), ls="", marker=mark, ms=size, mew=1.5, color=colour)
    ax.set(xlim=(0, 1.04 * end), ylim=(len(rows) - 0.5, -0.5), yticks=[])
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("nats for a masked word")
    _key(ax, list(losses), small)
    return fig


def _key(ax: Axes, names: Sequence[str], small: bool) -> None:
    """The marks with their names, above the axes: they stand too close for labels beside them."""
    places = {False: [(0.0, 1.1), (0.25, 1.1), (0.42, 1.1), (0.645, 1.1), (0.885, 1.1)],
              True: [(-0.2, 1.38), (0.42, 1.38), (-0.2, 1.28), (0.42, 1.28), (-0.2, 1.18)]}[small]  # fmt: skip
    heading_y = 1.24 if not small else 1.49
    ax.text(places[0][0], heading_y, "What is lost on a masked word", transform=ax.transAxes, fontsize=10,
            weight="bold", color=INK)  # fmt: skip
    for name, (x, y) in zip(names, places, strict=True):
        mark, colour = MARKS[name]
        ax.plot([x + 0.012], [y], transform=ax.transAxes, marker=mark, ls="", color=colour, clip_on=False, mew=1.5,
                ms={"|": 11}.get(mark, 5.5))  # fmt: skip
        ax.text(x + (0.05 if small else 0.03), y, name, transform=ax.transAxes, color=colour, va="center", fontsize=8.5)


# Learning to translate -----------------------------------------------------------------------------------------------


CURVES = {  # name -> how it is drawn: all quantities, told apart by dash and label
    "encoder-decoder": (POSITIVE, "-"),
    "decoder-only": (NEGATIVE, (0, (4, 2))),
    lab.TARGETS: (INK, (0, (1, 1.4))),
}


def curves_figure(data: Mapping[str, Any], bound: int = 95) -> Shown:
    """Share of held-out pairs translated without a fault, by training pairs seen: a thin line a seed, a thick mean."""
    made: list[Figure] = []
    for width, height, left in ((WIDE, 3.0, 0.07), (NARROW, 3.2, 0.13)):
        fig, ax = panels(width, height, bare=False, left=left, right=0.95, top=0.83, bottom=0.16)
        for i, (name, (colour, style)) in enumerate(CURVES.items()):
            runs, mean = learning(data, name)
            for run in runs:
                ax.plot(run[:, 0], run[:, 1], color=colour, ls=style, lw=0.6, alpha=0.6)
            ax.plot(mean[:, 0], mean[:, 1], color=colour, ls=style, lw=1.8)
            y = 0.42 - 0.12 * i
            ax.plot([0.5, 0.57], [y, y], color=colour, ls=style, lw=1.8, transform=ax.transAxes)
            text = name if width == WIDE else name.replace(", ", ",\n")
            ax.text(0.59, y, text, color=colour, transform=ax.transAxes, va="center", fontsize=8.5)
        ax.set(ylim=(0, 104), xlim=(0, None), yticks=[0, 50, 100], xlabel="pairs seen")
        ax.set_xticks([0, 10_000, 20_000], ["0", "10,000", "20,000"])
        heading(ax, "Held-out pairs translated exactly, %", "thin: a seed each; thick: the mean")
        made.append(fig)
    said = "; ".join(f"{name} passes {bound} % by {passed(data, name, bound):,}" for name in CURVES)
    alt = "Share of held-out pairs translated exactly by training pairs seen; three curves rise from 0 to near 100 %. "
    return show(made[0], alt + said + ".", narrow=made[1])


def learning(data: Mapping[str, Any], name: str) -> tuple[list[Tensor], Tensor]:
    """A family's curves, one a seed, and their mean: [points, 2], pairs seen and percent translated exactly."""
    scale = torch.tensor([data["pairs_a_step"], 100])
    runs = [torch.tensor(run["exact"]) * scale for run in data["runs"] if run["family"] == name]
    return runs, torch.stack(runs).mean(0)


def passed(data: Mapping[str, Any], name: str, bound: float) -> int:
    """The pairs seen when a family's mean curve first reaches `bound` percent."""
    return next(round(pairs) for pairs, percent in learning(data, name)[1].tolist() if percent >= bound)


# Cross-attention -----------------------------------------------------------------------------------------------------


def cross_weights(model: lab.EncoderDecoder, pair: lab.Pair) -> tuple[Tensor, Tensor]:
    """The cross-attention of a translation and what is said next: weights [L, N, T, S], probabilities [T, V].

    Row t is what stands behind word t of the translation (and behind its end); the source has its begin and end.
    """
    kept: dict[str, Tensor] = {}
    with torch.no_grad():
        logits = model(lab.source_rows([pair]), lab.target_rows([pair])[:, :-1], into(kept))[0]  # [T, V]
    layers = [kept[f"decoder.{i}.cross.weights"][0] for i in range(len(model.blocks))]
    return torch.stack(layers), logits.softmax(-1)


def writing(weights: Tensor, pair: lab.Pair, step: int) -> Figure:
    """Cross-attention weights [T, S] of the words written so far; the newest is lit, its source word outlined."""
    T, S = weights.shape
    source, target = ["begin", *pair.source, "end"], [*pair.target, "end"]
    fig, ax = panels(NARROW, 3.15, left=0.0, right=1.0, top=1.0, bottom=0.0)
    limits(ax, -3.4, S + 0.2, -3.3, T + 0.2)
    written = torch.arange(T)[:, None] <= step
    grid(ax, weights, shown=written.expand(T, S), colour=KEY, vmax=1, numbers=False, fit=False, lit_row=step)
    for j, word in enumerate(source):
        label(ax, j + 0.5, -0.35, word, SOURCE, ha="center", va="bottom", rotation=90)
    for i, word in enumerate(target[: step + 1]):
        label(ax, -0.35, i + 0.5, word, TARGET, ha="right", lit=i == step)
    for i in range(min(step + 1, len(pair.aligned))):
        ax.plot(pair.aligned[i] + 1.5, i + 0.5, marker="o", ms=3.2, mfc="none", mec=LIT, mew=0.9, zorder=5)
    return fig


@functools.cache
def _example() -> tuple[lab.Pair, Tensor, Tensor]:
    pair = example_pair(9)
    return pair, *cross_weights(lab.trained("encoder-decoder"), pair)


def writing_stepper() -> Stepper:
    """The decoder writes a translation, word by word: where its cross-attention looks in each layer."""
    pair, weights, probabilities = _example()
    views = {f"layer {layer}, all heads": weights[layer].mean(0) for layer in range(weights.shape[0])}
    model = lab.trained("encoder-decoder")
    shares, _ = lab.alignment(model, lab.held_out_pairs(100))  # [L, N]
    layer, head = divmod(int(shares.argmax()), shares.shape[1])
    views[f"layer {layer}, head {head}"] = weights[layer, head]
    words = [*pair.target, "<end>"]

    def draw(step: int, view: str) -> Frame:
        shown = views[view]
        word = words[step]
        looked = ["begin", *pair.source, "end"][int(shown[step].argmax())]
        numbers: dict[str, Any] = {"probability of the word": float(probabilities[step, lab.ID[word]])}
        if step < len(pair.aligned):
            place = pair.aligned[step]
            text = f"“{word}” renders “{pair.source[place]}”; most weight lies on “{looked}”."
            numbers["weight on what it renders"] = float(shown[step, place + 1])
        else:
            text = f"The end renders no word; most weight lies on “{looked}”."
            numbers["weight on what it renders"] = None
        return Frame(writing(shown, pair, step), text, numbers, f"Cross-attention weights, {view}. {text}")

    steps = Slider("step", range(len(words)), value=3, label="word written", play=True)
    return Stepper("The decoder writes and looks", [steps, Choice("view", list(views), value=list(views)[-1])], draw,
                   name="cross-attention")  # fmt: skip


STEPPERS = {"three-masks": masks_stepper, "cross-attention": writing_stepper}
