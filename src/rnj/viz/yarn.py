"""Figures and steppers of chapter 5: positions, the rotation, its table, and what it is compared with.

Angles are drawn as mathematics has them: 0 points right and they grow counter-clockwise; a pair (a, b) is the arrow to
(a, b). Queries and keys have their colours and nothing else has; a plain rotation beside YaRN's is grey.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline
from torch import Tensor

from rnj import example
from rnj.config import RNJ_1_5, SMALL, Config
from rnj.lab import positions as lab
from rnj.viz.figure import NARROW, WIDE, Shown, arrow, glow, grid, heading, label, limits, lit_box, panels, show
from rnj.viz.figure import number as written
from rnj.viz.palette import FAINT, INK, KEY, MUTED, NEGATIVE, PAPER, POSITIVE, QUERY, document
from rnj.viz.stepper import Choice, Frame, Slider, Stepper
from rnj.yarn import angles, correction_range, cos_sin, inv_freq, ramp, rotate

TURN = 2 * math.pi
SCREEN = NARROW  # of a stepper: a phone shows it without scrolling


# --- Dials: circles, hands and arcs, many to a path so that the files stay small


def _strokes(ax: Axes, segments: Any, colour: str, width: float = 1.4, alpha: float = 1.0, zorder: float = 2) -> None:
    """Many straight lines ((x0, y0), (x1, y1)) as one path."""
    points = [point for segment in segments for point in segment]
    if not points:
        return
    codes = [Outline.MOVETO, Outline.LINETO] * (len(points) // 2)
    look = {"edgecolor": colour, "linewidth": width, "alpha": alpha, "zorder": zorder, "capstyle": "round"}
    ax.add_artist(
        PathPatch(Outline(points, codes), fill=False, clip_on=False, **look)
    )  # the limits are set: no need to look


def _arcs(ax: Axes, arcs: Any, colour: str, width: float = 1.0, alpha: float = 1.0, zorder: float = 1) -> None:
    """Many arcs (x, y, radius, from angle, to angle) as one path; y counts down, angles counter-clockwise."""
    points, codes = [], []
    for x, y, radius, start, end in arcs:
        if end - start < 1e-9:
            continue
        piece = Outline.arc(math.degrees(start), math.degrees(min(end, start + TURN * 0.99999)))
        points.append(np.asarray(piece.vertices) * [radius, -radius] + [x, y])
        codes.append(np.asarray(piece.codes))
    if points:
        path = Outline(np.concatenate(points), np.concatenate(codes))
        look = {"edgecolor": colour, "linewidth": width, "alpha": alpha, "zorder": zorder, "capstyle": "butt"}
        ax.add_artist(PathPatch(path, fill=False, clip_on=False, **look))


def _hand(ax: Axes, x: float, y: float, a: float, b: float, colour: str, width: float = 1.6) -> None:
    """The arrow of a pair (a, b) from a dial's centre."""
    look = {"lw": width, "arrowstyle": "-|>,head_length=0.3,head_width=0.15"}
    arrow(ax, (x, y), (x + a, y - b), colour, **look)


def _count(value: float) -> str:
    """A number with thousands commas, and decimals only where it is small."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _kinds(config: Config) -> tuple[int, int]:
    """The first pair that is blended, and the first that is slowed by the whole factor."""
    keep = ramp(config)
    return int((keep == 1).sum()), len(keep) - int((keep == 0).sum())


# --- Figure 8's successor: why positions


def order_figure(
    changes: Tensor,
    settings: Sequence[str],
    words: Sequence[str],
    order: Sequence[int],
    followed: int,
    segment: int = 2,
) -> Shown:
    """The same tokens in two orders, and how far the followed token's vector moves when the others are reordered.

    changes: [settings, blocks], the relative change of the followed token's residual vector after each block;
    words: the tokens in order; order: the row of each one in the second order; followed: its index, the same in both;
    segment: the document's id, for its colour.
    """

    def draw(width: float, height: float) -> Figure:
        fig, axes = panels(
            width, height, rows=2, left=0.01, right=0.99, top=0.97, bottom=0.02, height_ratios=[1.55, 2.1], hspace=0.2
        )
        n, blocks = len(words), changes.shape[1]
        step, high, gap = 1.0, 0.62, 1.05
        ax = axes[0]
        margin = 1.55 if width > 5 else 0.0
        limits(ax, -margin, n * step, -0.5, high * 2 + gap + 0.1, equal=False)
        for i, word in enumerate(words):
            _chip(ax, i, 0, high, word, i == followed, width, document(segment))
        for j, i in enumerate(order):
            _chip(ax, j, high + gap, high, words[i], i == followed, width, document(segment))
            moved = i != j
            colour = INK if moved else MUTED
            _strokes(ax, [((i + 0.5, high + 0.06), (j + 0.5, high + gap - 0.06))], colour, 1.2 if moved else 0.7, 0.8)
        if margin:
            label(ax, -0.15, high / 2, "in order", ha="right")
            label(ax, -0.15, high * 1.5 + gap, "reordered", ha="right")
        ax = axes[1]
        room = 4.2 if width > 5 else 0.0
        below = 0.0 if width > 5 else 1.0
        limits(ax, -room, blocks, -0.9 if room else -1.4, len(settings) * (1 + below) + 0.1, equal=False)
        for i, setting in enumerate(settings):
            y = i * (1 + below) + below
            grid(ax, changes[i : i + 1], at=(0, y), colour=POSITIVE, vmax=1.0, numbers=".2f", fit=False, fontsize=8)
            if room:
                label(ax, -0.15, y + 0.5, setting, ha="right", colour=INK)
            else:
                label(ax, 0.05, y - 0.35, setting, colour=INK)
        if not room:
            label(ax, 0.05, -0.95, "change after block")
        for j in range(blocks):
            label(ax, j + 0.5, -0.3, str(j + 1), ha="center")
        if room:
            label(ax, -0.15, -0.3, "change after block", ha="right")
        return fig

    zero = int((changes < 5e-3).all(1).sum())
    alt = (
        f"{len(words)} tokens of a document in order and with {sum(i != j for j, i in enumerate(order))} of them "
        f"moved; "
        f"below, the change of the vector of '{words[followed].strip('·')}' after each of {changes.shape[1]} blocks in "
        f"{len(settings)} settings: {zero} of them show 0.00 throughout."
    )
    return show(draw(WIDE, 3.3), alt, narrow=draw(NARROW, 4.1))


def _chip(ax: Axes, x: float, y: float, high: float, word: str, lit: bool, width: float, colour: str) -> None:
    """A token as a rounded word on the tint of its document."""
    if lit:
        glow(ax, x + 0.05, y, 0.9, high)
    ax.add_patch(Rectangle((x + 0.05, y), 0.9, high, facecolor=colour, alpha=0.18, linewidth=0))
    if lit:
        lit_box(ax, x + 0.05, y, 0.9, high)
    size = 8.5 if width > 5 else 7
    ax.text(
        x + 0.5,
        y + high / 2,
        word,
        ha="center",
        va="center",
        fontsize=size,
        color=INK,
        weight="bold" if lit and width > 5 else "normal",
    )


# --- Figure 9's successor: the table


def table_figure(config: Config = RNJ_1_5) -> Shown:
    """How many positions each pair needs for one turn, plain and under YaRN, and how much of its frequency is kept."""
    low, high = correction_range(config)
    last = TURN / inv_freq(config)[-1].item()
    first_blended, first_slowed = _kinds(config)
    alt = (
        f"Positions for one turn of each of {config.head_dim // 2} pairs on a logarithmic scale. Up to pair "
        f"{first_blended - 1} "
        f"YaRN keeps the plain line; between {low:.2f} and {high:.2f} it climbs away from it; from pair "
        f"{first_slowed} on it lies "
        f"{config.rope_factor:g} times higher and ends at {last:,.0f} positions."
    )
    return show(_table(config, WIDE, 4.5), alt, narrow=_table(config, NARROW, 4.2))


def _table(config: Config, width: float, height: float, ceiling: float = 3e6) -> Figure:
    """The drawing of `table_figure` and of its stepper."""
    wide = width > 5
    plain, yarn, keep = TURN / inv_freq(lab.plain(config)), TURN / inv_freq(config), ramp(config)  # [H/2] each
    low, high = correction_range(config)
    length, window = config.original_max_positions, config.max_positions
    pairs = np.arange(len(keep))
    inch = 1 / width
    fig, axes = panels(
        width, height, rows=2, bare=False, left=0.62 * inch, right=1 - (0.95 if wide else 0.2) * inch,
        top=1 - 0.4 / height, bottom=0.42 / height, height_ratios=[0.17, 3.0], hspace=0.05,
    )  # fmt: skip
    strip, ax = axes
    strip.axis("off")
    grid(strip, keep[None], colour=POSITIVE, numbers=False, vmax=1.0, at=(-0.5, 0), gap=0.08, fit=False)
    strip.set(xlim=(-1, len(keep)), ylim=(1, 0))
    ax.set(yscale="log", xlim=(-1, len(keep)), ylim=(2, ceiling))
    first_blended, first_slowed = _kinds(config)
    edges = [(0, first_blended, "kept"), (first_blended, first_slowed, "blended"), (first_slowed, len(keep), "slowed")]
    for start, end, name in edges:
        if end > start:
            words = f"{name}: {end - start}" if wide or end - start > 12 else str(end - start)
            label(
                strip,
                (start + end) / 2 - 0.5,
                -0.75,
                words,
                ha="center",
                va="bottom",
                colour=INK,
                fontsize=8 if wide else 7.5,
            )
        if 0 < start < len(keep):
            strip.plot([start - 0.5] * 2, [-0.5, 1.2], color=INK, lw=0.8, clip_on=False)
    for at, times in ((low, config.beta_fast), (high, config.beta_slow)):
        y = length / times  # the period of a pair that turns so often
        ax.plot([at, at], [2, y], color=MUTED, lw=0.7, ls=(0, (3, 2)))
        ax.plot([at], [y], "o", ms=4, color=PAPER, mec=MUTED, mew=1)
        turns = "1 turn" if times == 1 else f"{times:g} turns"
        words = f"{turns} in {length:,}\npair {at:.2f}" if wide else f"{turns}\npair {at:.2f}"
        crowded = at == high > 48 or (at == low and high - low < 15)
        ha, shift = ("right", -0.7) if crowded and not wide else ("left", 0.7)
        label(ax, at + shift, 4.6 if wide else 5.5 if at == low else 25, words, fontsize=8, ha=ha, linespacing=1.35)
    for y, words in ((length, f"trained on {length:,}"), (window, f"window {window:,}")):
        if y <= ceiling / 3 and not (window == length and words.startswith("window")):
            ax.plot([-1, len(keep)], [y, y], color=MUTED, lw=0.5, zorder=0.5)
            label(ax, -0.3, y * 1.12, words, va="bottom", fontsize=8)
    ax.plot(pairs, plain, color=MUTED, lw=1.2)
    ax.plot(pairs, yarn, color=INK, lw=1.8)
    ax.plot([0, len(keep) - 1], [yarn[0], yarn[-1]], "o", ms=3.5, color=INK)
    ax.plot([len(keep) - 1], [plain[-1]], "o", ms=3.5, color=MUTED)
    label(ax, 1, yarn[0] * 0.78, _count(yarn[0].item()), colour=INK, va="top", fontsize=8)
    if wide:
        label(ax, len(keep) - 0.2, yarn[-1], f"YaRN\n{yarn[-1]:,.0f}", colour=INK, linespacing=1.35)
        label(ax, len(keep) - 0.2, plain[-1] * 0.75, f"plain\n{plain[-1]:,.0f}", linespacing=1.35)
    else:
        label(
            ax,
            len(keep) - 1,
            yarn[-1] * 1.25,
            f"YaRN {yarn[-1]:,.0f}",
            colour=INK,
            ha="right",
            va="bottom",
            fontsize=8,
        )
        label(
            ax,
            len(keep) - 0.6,
            min(plain[-1].item(), length) * 0.8,
            f"plain\n{plain[-1]:,.0f}",
            ha="right",
            va="top",
            fontsize=8,
        )
    ax.set_xticks([0, 16, 32, 48, 63] if len(keep) == 64 else range(0, len(keep), 5))
    ax.set_xlabel("pair")
    ax.set_yticks([10, 100, 1_000, 10_000, 100_000, 1_000_000], ["10", "100", "1,000", "10,000", "100 k", "1 M"])
    ax.minorticks_off()
    ax.annotate(
        "positions for one turn", (0, 1), (4, -2), xycoords="axes fraction", textcoords="offset points", fontsize=8,
        color=MUTED, va="top",
    )  # fmt: skip
    return fig


# --- Figure 10's successor: the frequencies


def waves_figure(config: Config = RNJ_1_5) -> Shown:
    """The cosine of nine pairs' angles over 48 positions, the trained length, and one turn of the last pair."""
    last = round(TURN / inv_freq(config)[-1].item())
    pairs = [(0, 8, 16), (28, 36, 44), (50, 56, 63)]

    def draw(width: float, height: float) -> Figure:
        lengths = (48, config.original_max_positions, last)
        inch, wide = 1 / width, width > 5
        fig, axes = panels(
            width, height, rows=3, left=0.12 * inch, right=1 - (1.55 if wide else 0.12) * inch, top=1 - 0.3 / height,
            bottom=0.3 / height, hspace=0.36,
        )  # fmt: skip
        for ax, length, chosen in zip(axes, lengths, pairs, strict=True):
            step = 2.7 if wide else 3.6
            _waves(ax, config, length, chosen, step, wide)
        return fig

    alt = (
        f"Waves of nine pairs. Over 48 positions pair 0 turns more than seven times; over "
        f"{config.original_max_positions:,} pair 28 "
        f"turns many times; pair 63 makes exactly one turn over {last:,} positions, where its plain rotation makes "
        f"{config.rope_factor:g}."
    )
    return show(draw(WIDE, 5.9), alt, narrow=draw(NARROW, 7.2))


def _waves(ax: Axes, config: Config, length: int, chosen: Sequence[int], step: float, wide: bool) -> None:
    frequency, plain = inv_freq(config).double(), inv_freq(lab.plain(config)).double()
    top = -1.6 if wide else -2.5
    limits(ax, 0, length, top, (len(chosen) - 1) * step + 1.25, equal=False)
    window = config.max_positions
    if length > window:
        ax.add_patch(Rectangle((0, top), window, (len(chosen) - 1) * step + 1.3 - top, facecolor=FAINT, zorder=0))
    for i, pair in enumerate(chosen):
        turns = length * frequency[pair].item() / TURN
        x = torch.linspace(0, length, max(60, int(26 * turns)), dtype=torch.float64)
        middle = i * step
        if length > window and pair == chosen[-1]:
            slow = torch.linspace(0, length, 20 * 26, dtype=torch.float64)
            ax.plot(slow, middle - (slow * plain[pair]).cos(), color=MUTED, lw=0.6)
        ax.plot(x, middle - (x * frequency[pair]).cos(), color=INK, lw=1.3)
        if length < 100:
            dots = torch.arange(length + 1)
            ax.plot(dots, middle - (dots * frequency[pair]).cos(), "o", ms=2.2, color=INK, mew=0)
        words = f"pair {pair}", f"a turn: {_count(TURN / frequency[pair].item())}"
        if wide:
            label(ax, length * 1.015, middle - 0.35, words[0], colour=INK)
            label(ax, length * 1.015, middle + 0.5, words[1])
        else:
            label(ax, 0, middle - 1.35, ", ".join(words), colour=INK, va="bottom", fontsize=8)
    down = (len(chosen) - 1) * step + 1.3
    ax.plot([0, length], [down, down], color=MUTED, lw=0.6, clip_on=False)
    options: Any = {"va": "top", "fontsize": 8}
    label(ax, 0, down + 0.25, "0", **options)
    label(ax, length, down + 0.25, f"{length:,}", ha="right", **options)
    if length > window:
        label(ax, window, down + 0.25, f"window {window:,}", ha="left" if not wide else "center", **options)
    elif length == config.original_max_positions:
        label(ax, length / 2, down + 0.25, "positions: the length trained on", ha="center", **options)
    else:
        label(ax, length / 2, down + 0.25, "positions", ha="center", **options)


# --- Figure 11's successor: the forward pass


def forward_figure(
    q: Tensor, cos: Tensor, sin: Tensor, q_rot: Tensor, position: int, pair: int = 3, name: str = "q"
) -> Shown:
    """One head's vector before and after the rotation, by pair: its halves, its dials, the multipliers, the result.

    q, q_rot: [H]; cos, sin: [H/2] of its position, both times the attention factor. pair: the one that is lit and
    worked out.
    """
    half = len(cos)
    a, b = q[:half], q[half:]
    c, s = q_rot[:half], q_rot[half:]

    def draw(width: float, first: int, last: int) -> Figure:
        n, wide = last - first, width > 5
        margin, height = (1.95, 10.5) if wide else (1.85, 11.3)
        unit = width / (n + margin + 0.2)
        fig, ax = panels(width, unit * (height + 1.1), left=0, right=1, top=1, bottom=0)
        limits(ax, -margin, n + 0.2, -1.1, height)
        top, lit = float(q_rot.abs().max()), pair - first
        if 0 <= lit < n:
            glow(ax, lit, -0.85, 1, 10.15)
        rows = [
            (0.0, a, "a", INK), (1.05, b, "b", INK),
            (4.2, cos, "m · cos", INK), (5.25, sin, "m · sin", INK),
            (7.2, c, "a′", QUERY), (8.25, s, "b′", QUERY),
        ]  # fmt: skip
        for y, values, words, colour in rows:
            hue = POSITIVE if values is cos or values is sin else QUERY
            if 0 <= lit < n:
                ax.add_patch(Rectangle((lit + 0.06, y + 0.06), 0.88, 0.88, facecolor=PAPER, alpha=0.7, linewidth=0))
            part = values[first:last][None]
            grid(ax, part, at=(0, y), colour=hue, vmax=top, numbers=".2f", fit=False, fontsize=7)
            label(ax, -0.2, y + 0.5, words, ha="right", colour=colour)
        for j in range(n):
            label(ax, j + 0.5, -0.4, str(first + j), ha="center", lit=j == lit)
        label(ax, -0.2, -0.4, "pair", ha="right")
        radius, middle = 0.47, 3.12
        _arcs(ax, [(j + 0.5, middle, radius, 0, TURN) for j in range(n)], MUTED, 0.5)
        before: list[Any] = []
        after: list[Any] = []
        for j in range(n):
            scale = radius / math.hypot(c[first + j].item(), s[first + j].item())
            centre = (j + 0.5, middle)
            for lines, (u, v) in ((before, (a, b)), (after, (c, s))):
                lines.append((centre, (j + 0.5 + u[first + j].item() * scale, middle - v[first + j].item() * scale)))
        _strokes(ax, before, MUTED, 1.6)
        _strokes(ax, after, QUERY, 2.0)
        label(ax, -0.2, middle - 0.33, "before", ha="right")
        label(ax, -0.2, middle + 0.33, "after", ha="right", colour=QUERY)
        if 0 <= lit < n:
            lit_box(ax, lit, -0.85, 1, 10.15)
            u1, cosine, v1, sine = (written(v[pair].item(), ".2f") for v in (a, cos, b, sin))
            line = f"{u1} · {_b(cosine)} − {_b(v1)} · {_b(sine)} = {written(c[pair].item(), '.2f')}"
            line = f"pair {pair}:  a′ = a · m cos − b · m sin = {line}" if wide else f"pair {pair}:  a′ = {line}"
            start = 0.0 if wide else -margin + 0.1
            label(ax, start, 9.95, line, colour=INK, fontsize=8)
        if n < half:
            label(ax, n + 0.05, 10.75, f"the first {n} of {half} pairs", ha="right", fontsize=8)
        return fig

    alt = (
        f"{name} of the followed token at position {position}: {half} pairs as two strips, as {half} dials with the "
        f"vector before and after "
        f"the turn, the cosines and sines, and the two rotated strips. Pair {pair} is lit and worked out; the fast "
        f"pairs on the left "
        "have turned far, the slow ones on the right hardly at all."
    )
    return show(draw(WIDE, 0, half), alt, narrow=draw(NARROW, 0, half // 2))


def _b(text: str) -> str:
    """A negative factor in brackets."""
    return f"({text})" if text.startswith("−") else text


# --- Figure 12's successor: relative positions


def relative_figure(
    q: Tensor, k: Tensor, scores: Tensor, config: Config, pair: int, places: Sequence[tuple[int, int]], lit: int
) -> Shown:
    """One pair of q and k at two places, the same distance apart, and the scores of q and k at every pair of positions.

    q, k: [H], not rotated; scores: [T, S] with q at position t and k at position s; places: (query, key) positions
    of the dials.
    """
    half = len(q) // 2

    def turned(x: Tensor, position: int) -> Tensor:
        cos, sin = cos_sin(torch.tensor([[position]]), config)
        y = rotate(x.view(1, 1, 1, -1), cos, sin).flatten()
        return y[[pair, pair + half]]

    T = len(scores)

    def draw(width: float, height: float, wide: bool) -> Figure:
        shape: dict[str, Any] = {"columns": 2, "width_ratios": [1.0, 2.35], "wspace": 0.08, "left": 0.02, "top": 0.86}
        if not wide:
            shape = {"rows": 2, "height_ratios": [1.0, 2.1], "hspace": 0.3, "left": 0.07, "top": 0.9}
        fig, (dials, ax) = panels(width, height, right=0.99, bottom=0.02, **shape)
        spots = [(0.0, 0.0), (0.0, 3.3)] if wide else [(0.0, 0.0), (3.1, 0.0)]
        if wide:
            limits(dials, -1.75, 1.75, -1.5, 4.95)
        else:
            limits(dials, -1.3, 4.4, -1.5, 1.7)
        longest = max(float(turned(q, 0).norm()), float(turned(k, 0).norm()))
        for (x, y), (at_q, at_k) in zip(spots, places, strict=True):
            hands = [(turned(q, at_q) / longest, QUERY), (turned(k, at_k) / longest, KEY)]
            _arcs(dials, [(x, y, 1.05, 0, TURN)], FAINT, 1.0)
            a, b = (math.atan2(h[1].item(), h[0].item()) % TURN for h, _ in hands)
            start, end = (a, b) if (b - a) % TURN <= math.pi else (b, a)
            _arcs(dials, [(x, y, 0.34, start, start + (end - start) % TURN)], INK, 1.0)
            for h, colour in hands:
                _hand(dials, x, y, h[0].item(), h[1].item(), colour, 2.0)
            between = math.degrees(min((a - b) % TURN, (b - a) % TURN))
            middle = start + ((end - start) % TURN) / 2
            out = 1.3
            label(
                dials,
                x + out * math.cos(middle),
                y - out * math.sin(middle),
                f"{between:.0f}°",
                colour=INK,
                ha="center",
                fontsize=8,
            )
            label(dials, x - 0.1, y + 1.38, f"q at {at_q}", colour=QUERY, ha="right")
            label(dials, x + 0.1, y + 1.38, f"k at {at_k}", colour=KEY)
        heading(dials, f"Pair {pair}", "both turn, the angle stays")
        limits(ax, -1.2, T + 0.2, -1.0, T + 0.2)
        apart = places[0][0] - places[0][1]
        most, font = float(scores.abs().max()), 7.5 if wide else 7
        for i in range(T):
            row: dict[str, Any] = {"lit_row": 0} if i == lit else {}
            grid(ax, scores[i : i + 1, : i + 1], at=(0, i), vmax=most, numbers=".1f", fit=False, fontsize=font, **row)
            label(ax, -0.2, i + 0.5, str(i), ha="right", colour=QUERY, lit=i == lit)
            label(ax, i + 0.5, -0.35, str(i), ha="center", colour=KEY)
        for i in range(apart, T):
            box: Any = {"fill": False, "edgecolor": INK, "linewidth": 1.0, "linestyle": (0, (2, 1.2)), "zorder": 5}
            ax.add_patch(Rectangle((i - apart + 0.06, i + 0.06), 0.88, 0.88, **box))
        value = written(scores[apart, 0].item(), ".1f")
        label(ax, T, 0.9, f"{apart} apart (dashed):\n{value} everywhere", ha="right", colour=INK, linespacing=1.4)
        title = "The score of q and k, wherever they stand" if wide else "Their score, wherever they stand"
        heading(
            ax,
            title,
            "rows: q’s position; columns: k’s; one value a diagonal" if wide else "rows: q’s position, columns: k’s",
        )
        return fig

    (q1, k1), (q2, k2) = places
    alt = (
        f"Left: pair {pair} of a query and a key at positions {q1} and {k1}, and at {q2} and {k2}: both arrows have "
        f"turned, the angle "
        f"between them is the same. Right: scores for {T} query and {T} key positions, the same number along each "
        f"diagonal."
    )
    return show(draw(WIDE, 3.9, True), alt, narrow=draw(NARROW, 5.0, False))


# --- Two layouts


def layouts_figure(half_split: Tensor, half_turned: Tensor, interleaved: Tensor, interleaved_turned: Tensor) -> Shown:
    """A vector of four in both layouts, before and after its rotation: reorder then turn, or turn then reorder.

    All [4]: half-split pairs are (0, 2) and (1, 3), interleaved ones (0, 1) and (2, 3).
    """
    names = {"half": ["a₀", "a₁", "b₀", "b₁"], "inter": ["a₀", "b₀", "a₁", "b₁"]}
    to_half = [0, 2, 1, 3]  # where each interleaved cell goes

    def draw(width: float) -> Figure:
        wide = width > 5
        gap = 3.4 if wide else 1.0
        side, down, right = 0.15, 3.0, 4 + gap
        fig, ax = panels(
            width, width * 6.4 / (right + 4 + 2 * side) * (0.72 if wide else 0.95), left=0, right=1, top=1, bottom=0
        )
        limits(ax, -side, right + 4 + side, -1.7, down + 2.5, equal=False)
        cells = [
            (0, 0, interleaved, "inter"), (right, 0, interleaved_turned, "inter"),
            (0, down, half_split, "half"), (right, down, half_turned, "half"),
        ]  # fmt: skip
        for x, y, values, kind in cells:
            for j in range(4):
                strong = 0.16 if "₀" in names[kind][j] else 0.42
                ax.add_patch(Rectangle((x + j + 0.04, y), 0.92, 1, facecolor=POSITIVE, alpha=strong, linewidth=0))
                spec = ".0f" if x == 0 else ".3f" if wide else ".2f"
                ax.text(
                    x + j + 0.5,
                    y + 0.5,
                    written(values[j].item(), spec),
                    ha="center",
                    va="center_baseline",
                    fontsize=8.5 if wide else 7,
                    color=INK,
                )
                up = -0.3 if kind == "inter" else 1.32
                label(ax, x + j + 0.5, y + up, names[kind][j], ha="center", colour=INK, fontsize=8)
        for x in (0.0, right):
            lines = [((x + i + 0.5, 1.06), (x + to_half[i] + 0.5, down - 0.06)) for i in range(4)]
            _strokes(ax, lines, MUTED, 1.0)
        for y, words in ((0, "turn pairs\n(2i, 2i + 1)"), (down, "turn pairs\n(i, i + H/2)")):
            if wide:
                arrow(ax, (4.2, y + 0.5), (right - 0.2, y + 0.5), INK)
                label(
                    ax,
                    4 + gap / 2,
                    y + (-0.25 if y == 0 else 1.25),
                    words,
                    ha="center",
                    colour=INK,
                    va="bottom" if y == 0 else "top",
                    fontsize=8,
                )
            else:
                arrow(ax, (4.12, y + 0.5), (right - 0.12, y + 0.5), INK)
        label(ax, 0.04, -1.2, "interleaved" if wide else "interleaved: (2i, 2i + 1)", colour=INK, fontsize=9)
        label(
            ax,
            0.04,
            down + 2.15,
            "half-split: the checkpoints’" if wide else "half-split: (i, i + H/2)",
            colour=INK,
            fontsize=9,
        )
        if wide:
            label(ax, right, -1.2, "after position 1", fontsize=8.5)
            label(ax, 4 + gap / 2, down / 2 + 0.5, "the same reordering", ha="center", fontsize=8)
        return fig

    shown = ", ".join(written(v, ".3f") for v in half_turned.tolist())
    alt = (
        "A commuting square. Above, a vector with pairs side by side before and after its rotation; below, the same "
        "vector with pairs "
        f"split into halves before and after: {shown}. The same reordering joins them on both sides."
    )
    return show(draw(WIDE), alt, narrow=draw(NARROW))


# --- Four codes


CODES = {
    "sinusoidal": ("Sinusoidal", "added to the vectors"),
    "rope": ("RoPE", "the plain rotation"),
    "alibi": ("ALiBi", "minus distance / 256"),
    "yarn": ("YaRN", "slowed rotation, times m²"),
}


def codes_figure(scores: Mapping[str, Tensor], content: float, trained: int, elsewhere: Tensor | None = None) -> Shown:
    """The score of one query and one key by distance under four codes; `content` is what it is without any.

    scores: code → [n], at distances 0, 1, … n - 1. A band holds the least and the greatest score of the distances in
    a bin (bins grow
    with the distance), the line their mean. elsewhere: the sinusoidal scores with the query at another position.
    """
    n = len(scores["rope"])
    edges = np.unique(np.concatenate([np.arange(1, 9), np.geomspace(9, n, 42).round().astype(int)]))
    middles = np.sqrt(edges[:-1] * np.maximum(edges[1:] - 1, edges[:-1]))

    def bins(values: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parts = [values[a:b].numpy() for a, b in itertools.pairwise(edges)]
        return tuple(np.array([f(p) for p in parts]) for f in (np.min, np.mean, np.max))  # type: ignore[return-value]

    floor, ceiling = -10.5, 10.5

    def draw(width: float, height: float, columns: int) -> Figure:
        inch = 1 / width
        fig, axes = panels(
            width, height, rows=4 // columns, columns=columns, bare=False, left=0.42 * inch, right=1 - 0.12 * inch,
            top=1 - 0.48 / height,
            bottom=0.4 / height, hspace=0.52 if columns == 2 else 0.75, wspace=0.18,
        )  # fmt: skip
        for ax, (code, (name, what)) in zip(np.ravel(axes), CODES.items(), strict=True):
            least, mean, most = bins(scores[code])
            ax.axhline(content, color=MUTED, lw=0.8, ls=(0, (3, 2)))
            ax.axvline(trained, color=MUTED, lw=0.5)
            if code == "sinusoidal" and elsewhere is not None:
                ax.plot(middles, bins(elsewhere)[1], color=INK, lw=0.9)
            ax.fill_between(middles, least, most, color=POSITIVE, alpha=0.22, lw=0)
            ax.plot(middles, mean, color=POSITIVE, lw=1.6)
            ax.set(xscale="log", xlim=(1, n), ylim=(floor, ceiling))
            ticks = [tick for tick in (1, 10, 100, 1_000) if tick <= n]
            ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            ax.minorticks_off()
            ax.set_yticks([-10, -5, 0, 5, 10])
            heading(ax, name, what)
        first = np.ravel(axes)[1 if columns == 2 else 0]
        label(first, trained * 0.94, floor * 0.86, f"trained on {trained}", ha="right", fontsize=8)
        label(np.ravel(axes)[2], 1.15, content - 0.7, f"no code: {content:.2f}", va="top", fontsize=8)
        for ax in np.ravel(axes)[-columns:]:
            ax.set_xlabel("distance", labelpad=1)
        label(np.ravel(axes)[0], 1.15, floor * 0.86, "score", fontsize=8)
        if elsewhere is not None:
            label(
                np.ravel(axes)[0],
                1.15,
                3.2,
                f"thin: the same, the query\n{n:,} positions further on",
                fontsize=8,
                va="top",
                colour=INK,
            )
        return fig

    alt = (
        f"Score by distance, 1 to {n - 1:,}, in four panels; without a code it is {content:.2f} everywhere. "
        f"Sinusoidal: a band that changes "
        "with the query's place. RoPE: falls from that value and swings around less. ALiBi: a straight loss per "
        "position. YaRN: like RoPE, higher."
    )
    return show(draw(WIDE, 4.6, 2), alt, narrow=draw(NARROW, 7.2, 1))


# --- A sinusoidal code's shift


def shift_figure(matrix: Tensor, before: Tensor, after: Tensor, positions: Sequence[int], shift: int) -> Shown:
    """One matrix moves the code of any position by `shift`: matrix · before = after, column by column.

    matrix: [width, width]; before, after: [width, n], the codes of `positions` and of positions + shift.
    """
    size, n = before.shape

    def draw(width: float, size: int, n: int) -> Figure:
        total = size + 2 * n + 3.2
        unit = width / total
        wide = width > 5
        fig, ax = panels(width, unit * (size + 2.0), left=0, right=1, top=1, bottom=0)
        limits(ax, -0.3, total - 0.3, -1.75, size + 0.25)
        font, spec = (7.5, ".2f") if wide else (7, ".1f")
        part = matrix[:size, :size]
        grid(ax, part, shown=part != 0, numbers=spec, vmax=1, fit=False, fontsize=font)
        x1, x2 = size + 1.4, size + n + 2.6
        grid(ax, before[:size, :n], at=(x1, 0), numbers=spec, vmax=1, fit=False, fontsize=font)
        grid(ax, after[:size, :n], at=(x2, 0), numbers=spec, vmax=1, fit=False, fontsize=font)
        label(ax, size + 0.7, size / 2, "·", ha="center", fontsize=14, colour=INK)
        label(ax, x2 - 0.6, size / 2, "=", ha="center", fontsize=12, colour=INK)
        label(ax, size / 2, -1.2, f"M: a shift by {shift}", ha="center", colour=INK)
        label(ax, x1 + n / 2, -1.2, "codes of", ha="center", colour=INK)
        label(ax, x2 + n / 2, -1.2, "codes of", ha="center", colour=INK)
        for j, p in enumerate(positions[:n]):
            label(ax, x1 + j + 0.5, -0.4, str(p), ha="center", fontsize=8)
            label(ax, x2 + j + 0.5, -0.4, str(p + shift), ha="center", fontsize=8)
        return fig

    alt = (
        f"A matrix of {size} by {size} with {size // 2} blocks of two on its diagonal, times the sinusoidal codes of "
        f"positions "
        f"{', '.join(map(str, positions))}, gives the codes of positions "
        f"{', '.join(str(p + shift) for p in positions)}."
    )
    return show(draw(WIDE, size, n), alt, narrow=draw(NARROW, min(size, 6), min(n, 2)))


# --- Angles never visited


def visited_figure(config: Config = RNJ_1_5, pairs: Sequence[int] = (40, 46, 50, 52, 54, 57, 60, 63)) -> Shown:
    """What part of its circle a pair visits on the trained length, and where the last position of the window takes it.

    Above with the plain rotation, below with YaRN. Thick: visited in training; thin: reached, but never visited. A hand
    is black where it ends outside the visited arc.
    """
    plain = lab.plain(config)
    length, window = config.original_max_positions, config.max_positions
    seen = lab.turns(plain, length)  # [H/2]

    def draw(width: float, columns: int) -> Figure:
        rows = len(pairs) // columns
        wide = width > 5
        cell = 2.5
        fig, axes = panels(
            width,
            width * (0.46 if wide else 1.62),
            rows=2,
            left=0,
            right=1,
            top=0.86 if wide else 0.92,
            bottom=0.0,
            hspace=0.55 if wide else 0.2,
        )
        for ax, table, name in ((axes[0], plain, "Plain rotation"), (axes[1], config, "YaRN")):
            limits(ax, -1.25, cell * columns - 1.25, -1.15, cell * rows - 0.9 + 0.55 * (rows - 1))
            reached = lab.turns(table, window)
            unseen = lab.share_never_visited(table, window, plain, length)
            for i, pair in enumerate(pairs):
                x, y = cell * (i % columns), (cell + 0.55) * (i // columns)
                far, known = reached[pair].item(), min(seen[pair].item(), 1.0)
                _arcs(ax, [(x, y, 0.95, 0, TURN)], FAINT, 1.2)
                _arcs(ax, [(x, y, 0.95, 0, known * TURN)], POSITIVE, 3.2, zorder=2)
                _arcs(
                    ax,
                    [(x, y, 0.95, known * TURN, min(far, 1.0) * TURN)] if unseen[pair] > 1e-3 else [],
                    INK,
                    1.6,
                    zorder=3,
                )
                a = far * TURN
                colour = INK if _outside(reached, seen)[pair] else POSITIVE
                _strokes(ax, [((x, y), (x + 0.72 * math.cos(a), y - 0.72 * math.sin(a)))], colour, 1.6)
                label(ax, x, y + 1.42, f"pair {pair}", ha="center", fontsize=8, colour=INK)
            new = int((unseen > 1e-3).sum())
            if new:
                what = f"{new} of {len(seen)} pairs reach angles " + (
                    "that training never visited (thin)" if wide else "never visited (thin)"
                )
            else:
                what = (
                    "no pair leaves the visited arc by more than one position’s turn"
                    if wide
                    else "every pair stays, to within one position"
                )
            heading(ax, name, what)
        return fig

    by_plain = lab.share_never_visited(plain, window, plain, length)
    alt = (
        f"Dials of {len(pairs)} pairs with the arc visited on {length:,} positions. With the plain rotation position "
        f"{window - 1:,} takes "
        f"{int((by_plain > 1e-3).sum())} pairs to angles outside that arc; with YaRN every hand stays on it, to "
        f"within one position."
    )
    return show(draw(WIDE, len(pairs)), alt, narrow=draw(NARROW, len(pairs) // 2))


def _outside(turns: Tensor, seen: Tensor) -> Tensor:
    """Which hands, after so many turns, point past the arc that was seen (a share of the circle; 1: all of it)."""
    return (seen < 1) & (turns % 1 > seen + 2e-4)  # a position more or less, and float32's rounding


# --- Steppers


PLACES = [*range(13), 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1_024, 2_048, 4_096, 6_144, 8_191, 12_288, 16_384]
PLACES += [24_576, 32_767, 49_152, 65_536, 81_920, 98_304, 114_688, 131_072, 147_456, 163_839]


def hands_stepper(config: Config = RNJ_1_5) -> Stepper:
    """Position → the hands of all pairs: YaRN's, and in grey those of the plain rotation where they stand elsewhere."""
    plain = lab.plain(config)
    half, length = config.head_dim // 2, config.original_max_positions
    trained = lab.turns(plain, length).clamp(max=1).tolist()
    spots = [(2.45 * (i % 8), 2.45 * (i // 8)) for i in range(half)]

    def draw(position: int) -> Frame:
        at = torch.tensor([[position]])
        yarn, bare = angles(at, config)[0, 0].double(), angles(at, plain)[0, 0].double()  # [H/2]
        fig, ax = panels(SCREEN, SCREEN * 19.5 / 22.05, left=0, right=1, top=1, bottom=0)
        limits(ax, -3.75, 18.3, -1.2, 18.3)
        _arcs(ax, [(x, y, 1.0, 0, TURN) for x, y in spots], FAINT, 1.0)
        _arcs(ax, [(x, y, 1.0, 0, part * TURN) for (x, y), part in zip(spots, trained)], POSITIVE, 1.2, alpha=0.6)
        apart = ((bare - yarn).abs() > 0.02).tolist()  # elsewhere one hand would hide the other
        ends = [
            [(x + 0.8 * math.cos(a), y - 0.8 * math.sin(a)) for (x, y), a in zip(spots, t.tolist())]
            for t in (bare, yarn)
        ]
        _strokes(ax, [line for line, shown in zip(zip(spots, ends[0]), apart) if shown], MUTED, 1.0)
        _strokes(ax, list(zip(spots, ends[1])), INK, 1.7, zorder=3)
        for i in range(0, half, 8):
            label(ax, -1.5, spots[i][1], f"{i}–{i + 7}", ha="right", fontsize=7)
        past = int((yarn >= TURN).sum())
        lost = int(_outside(bare / TURN, torch.tensor(trained)).sum())
        text = f"Position {position:,}: {past} of {half} hands have made a full turn or more."
        if lost:
            text += f" The plain rotation has {lost} hands (grey) outside the arc that training visited (slate)."
        numbers = {
            "turns of pair 0": yarn[0] / TURN,
            "degrees of pair 63": yarn[-1] / TURN * 360,
            "plain hands at angles never visited": lost,
        }
        last = math.degrees(yarn[-1])
        alt = (
            f"{half} dials at position {position:,}; {past} hands past a full turn, the last one at {last:.3g} degrees."
        )
        return Frame(fig, text, numbers, alt)

    return Stepper(
        f"{half} hands of Rnj 1.5",
        [Slider("position", PLACES, value=6, play=True, ms=500, live_step=1)],
        draw,
        name="yarn-hands",
    )


def table_stepper(config: Config = RNJ_1_5) -> Stepper:
    """factor, beta_fast, beta_slow → the table: which pairs are kept, blended and slowed, and how long a turn takes."""

    def draw(factor: float, beta_fast: float, beta_slow: float) -> Frame:
        changed = replace(config, rope_factor=float(factor), beta_fast=float(beta_fast), beta_slow=float(beta_slow))
        blended, slowed = _kinds(changed)
        half = config.head_dim // 2
        last = TURN / inv_freq(changed)[-1].item()
        low, high = correction_range(changed)
        text = (
            f"A window of {changed.max_positions:,} positions. {blended} pairs keep their frequency, "
            f"{slowed - blended} are blended, {half - slowed} are slowed {factor:g} times."
        )
        if factor == 1:
            text = f"The trained length of {changed.max_positions:,} positions: with factor 1 nothing is slowed."
        numbers = {
            "range from pair": round(low, 2), "to pair": round(high, 2), "slowest turn": round(last),
            "m": f"{changed.rope_multiplier:.4f}", "m²": f"{changed.rope_multiplier**2:.4f}",
        }  # fmt: skip
        alt = f"Positions for one turn, plain and with factor {factor:g}; pairs {blended} to {slowed - 1} are blended."
        return Frame(_table(changed, SCREEN, 3.7), text, numbers, alt)

    controls: list[Slider | Choice] = [
        Slider("factor", [1, 4, 8, 20], value=20, live_step=1),
        Slider("beta_fast", [16, 32, 64], value=64, label="beta_fast", live_step=1),
        Choice("beta_slow", [1, 2, 4], value=1, label="beta_slow"),
    ]
    return Stepper("The table, by factor and ramp", controls, draw, name="yarn-table")


SHIFTS = [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1_024, 2_048, 4_000]


def shift_stepper(config: Config = SMALL) -> Stepper:
    """A common shift of both positions → both vectors turn, each pair's share of the score stays.

    The query of the followed token and a key of its document: block 3, head 0, of the small shape with seeded random
    weights.
    """
    q, keys, words = _running_pair(config)
    followed = example.FOLLOWED
    position = int(example.row().positions[0, followed])

    def draw(shift: int, key: str) -> Frame:
        at_q, at_k = position + shift, int(words[key]) + shift
        q_rot = _turned(q, at_q, config)
        k_rot = _turned(keys[int(words[key])], at_k, config)
        half = len(q) // 2
        products = (q_rot * k_rot).view(2, half).sum(0) * config.scale  # [H/2]
        return Frame(
            _shift_drawing(q_rot, k_rot, products),
            f"q at position {at_q:,}, k at {at_k:,}: {at_q - at_k} apart. The hands turn; the bars, each pair’s "
            f"share of the score, stay.",
            {"q’s position": at_q, "k’s position": at_k, "score": round(float(products.sum()), 2)},
            f"16 dials with a query at position {at_q:,} and a key at {at_k:,}, and the share of each pair in the "
            f"score {products.sum():.2f}.",
        )

    controls: list[Slider | Choice] = [
        Slider("shift", SHIFTS, value=0, label="shift of both", play=True, ms=600, live_step=1),
        Choice("key", list(words), value=next(iter(words)), label="key"),
    ]
    return Stepper("Shift both positions", controls, draw, name="yarn-shift")


def _turned(x: Tensor, position: int, config: Config) -> Tensor:
    return rotate(x.view(1, 1, 1, -1), *cos_sin(torch.tensor([[position]]), config)).flatten()


def _running_pair(config: Config) -> tuple[Tensor, dict[int, Tensor], dict[str, int]]:
    """The followed token's normalised query, and two or three keys by position, of block 3, head 0."""
    from rnj.model import build

    row = example.row()
    labels = example.labels(row)
    trace = build(config, seed=0, random_norms=True).trace(row.tokens, row.positions, row.segments)
    place = int(row.positions[0, example.FOLLOWED])
    first = example.FOLLOWED - place  # where its document begins
    q = trace["block.3.attn.q_norm"][0, example.FOLLOWED, 0]  # [H]
    chosen = [p for p in (place - 1, place - 3, place - 5, place, place + 1) if p >= 0][:3]
    keys = {p: trace["block.3.attn.k_norm"][0, first + p, 0] for p in chosen}
    return q, keys, {labels[first + p]: p for p in chosen}


def _shift_drawing(q_rot: Tensor, k_rot: Tensor, products: Tensor) -> Figure:
    """Dials of all pairs, arrows to one length, over the bars of their products."""
    half = len(products)
    columns = 8
    rows = half // columns
    fig, (dials, bars) = panels(
        SCREEN, 2.65, rows=2, height_ratios=[1.8, 1.0], hspace=0.04, left=0, right=1, top=1, bottom=0.01
    )
    limits(dials, -1.35, 2.5 * columns - 1.15, -1.2, 3.4 * rows - 1.2)
    spots = [(2.5 * (i % columns), 3.4 * (i // columns)) for i in range(half)]
    _arcs(dials, [(x, y, 1.08, 0, TURN) for x, y in spots], MUTED, 0.5)
    for vector, colour, width in ((k_rot, KEY, 2.0), (q_rot, QUERY, 2.0)):
        a, b = vector[:half], vector[half:]
        scale = 1.0 / torch.stack([a, b]).norm(dim=0)  # [H/2]
        lines = [((x, y), (x + (a * scale)[i].item(), y - (b * scale)[i].item())) for i, (x, y) in enumerate(spots)]
        _strokes(dials, lines, colour, width)
    for i, (x, y) in enumerate(spots):
        label(dials, x, y + 1.6, str(i), ha="center", fontsize=7.5)
    top = float(products.abs().max()) * 1.12
    limits(bars, -0.7, half - 0.3, -top, top, equal=False)
    for i, value in enumerate(products.tolist()):
        colour = POSITIVE if value > 0 else NEGATIVE
        bars.add_patch(Rectangle((i - 0.32, 0), 0.64, -round(value, 2), facecolor=colour, alpha=0.85, linewidth=0))
    bars.plot([-0.5, half - 0.5], [0, 0], color=MUTED, lw=0.6)
    label(bars, -0.5, -top * 0.98, "query", colour=QUERY, va="top", fontsize=8)
    label(bars, 1.4, -top * 0.98, "key", colour=KEY, va="top", fontsize=8)
    label(bars, half - 0.45, -top * 0.98, "share of the score, by pair", ha="right", va="top", fontsize=8)
    return fig


STEPPERS = {"hands": hands_stepper, "table": table_stepper, "shift": shift_stepper}
