"""The figures and steppers of chapter 6: scores, masks, hybrid layers, the softmax's saturation, tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from torch import Tensor

import rnj
from rnj import accounting, example
from rnj.config import RNJ_1_5, Config
from rnj.core_attention import Rows, allowed, causal, sliding
from rnj.lab import masks
from rnj.lab.online_softmax import Running, running, step_bytes, tiles
from rnj.lab.saturation import Saturation
from rnj.viz.figure import (
    NARROW,
    WIDE,
    Shown,
    end_label,
    glow,
    grid,
    heading,
    label,
    limits,
    lit_box,
    number,
    panels,
    show,
    vector_strip,
)
from rnj.viz.palette import (
    FAINT,
    GLOBAL,
    INK,
    KEY,
    LIT,
    LOCAL,
    MUTED,
    NEGATIVE,
    PADDING,
    PAPER,
    POSITIVE,
    QUERY,
    VALUE,
    document,
)
from rnj.viz.stepper import Choice, Frame, Slider, Stepper

KIND = {"local": LOCAL, "global": GLOBAL}
BLOCK = RNJ_1_5.block_size


# Scores and values on the packed row ---------------------------------------------------------------------------------


def scores_figure(
    q: Tensor, k: Tensor, scores: Tensor, labels: Sequence[str], segments: Tensor, lit: int, key: int
) -> Shown:
    """q [T, H] against k [S, H], and their scores [T, S]; the followed query's row and one key's column are lit."""
    colours = [document(int(s)) for s in segments]
    T, H = q.shape
    thin = 0.2
    side = H * thin + 0.8  # what q takes to the left of the scores, and k above them
    fig, ax = panels(WIDE, 7.1, left=0.0, right=1.0, top=1.0, bottom=0.0)
    limits(ax, -side - 3.6, T + 0.3, -side - 3.4, T + 0.3)
    top = float(max(q.abs().max(), k.abs().max()))
    grid(ax, q, colour=QUERY, vmax=top, numbers=False, at=(-side, 0), cell=(thin, 1), fit=False, lit_row=lit)
    for i, text in enumerate(labels):
        label(ax, -side - 0.3, i + 0.5, text, colours[i], ha="right", lit=i == lit)
    grid(
        ax, k.T, colour=KEY, vmax=top, numbers=False, at=(0, -side), cell=(1, thin), fit=False, lit_column=key, gap=0.06
    )
    _upright(ax, labels, colours, y=-side - 0.3, lit=key)
    grid(ax, scores, numbers=".1f", fontsize=6.5, fit=False, lit_row=lit, lit_column=key)
    left = -side - 3.4
    label(ax, left, -side - 2.7, "Scores of one head", INK, fontsize=10, lit=True)
    for i, (text, colour) in enumerate(
        [
            (f"q  [{T}, {H}], a query a row", QUERY),
            (f"k  [{T}, {H}], a key a column", KEY),
            (f"scores [{T}, {T}] = q · k / √{H}", INK),
        ]
    ):
        label(ax, left, -side - 1.4 + 1.1 * i, text, colour)
    label(ax, left, -side + 2.4, f"{labels[lit]} · {labels[key]}", INK, lit=True)
    label(ax, left, -side + 3.5, f"= {number(float(scores[lit, key]), '.2f')}", INK, lit=True, fontsize=11)
    alt = (
        f"A {T} by {T} grid of scores, queries down, keys across. The row of {labels[lit]} and the column of "
        f"{labels[key]} are lit; they cross at {float(scores[lit, key]):.2f}. Nothing is masked."
    )
    return show(fig, alt, narrow=_narrow_scores(scores, labels, colours, lit, key))


def _narrow_scores(scores: Tensor, labels: Sequence[str], colours: Sequence[str], lit: int, key: int) -> Figure:
    fig, ax = panels(NARROW, 3.9, left=0.0, right=1.0, top=1.0, bottom=0.0)
    T = scores.shape[0]
    limits(ax, -4.2, T + 0.3, -6.3, T + 0.3)
    label(ax, -4.0, -5.8, f"Scores [{T}, {T}] of one head", INK, fontsize=10, lit=True)
    value = number(float(scores[lit, key]), ".2f")
    label(ax, -4.0, -4.4, f"{labels[lit]} · {labels[key]} = {value}", INK, lit=True)
    _upright(ax, labels, colours, y=-0.3, lit=key, fontsize=7)
    grid(ax, scores, numbers=False, fit=False, lit_row=lit, lit_column=key)
    for i, word in enumerate(labels):
        label(ax, -0.3, i + 0.5, word, colours[i], ha="right", fontsize=7, lit=i == lit)
    return fig


def values_figure(
    weights: Tensor, mask: Tensor, v: Tensor, out: Tensor, labels: Sequence[str], segments: Tensor, lit: int
) -> Shown:
    """weights [T, S] under mask [T, S] in percent; below, the values v [S, H] times the followed query's weights, and
    their sum out [H]."""
    make = [_values(weights, mask, v, out, labels, segments, lit, narrow) for narrow in (False, True)]
    seen = [labels[j] for j in range(len(labels)) if mask[lit, j]]
    best = labels[int(weights[lit].argmax())]
    alt = (
        f"Attention weights in percent, {len(labels)} queries by {len(labels)} keys, two triangles, one a document; "
        f"the row of padding is empty. The lit row of {labels[lit]} looks at {', '.join(seen)}, most of all at {best}. "
        f"Below it each key's value times its weight, and to the right their sum."
    )
    return show(make[0], alt, narrow=make[1])


def _values(
    weights: Tensor,
    mask: Tensor,
    v: Tensor,
    out: Tensor,
    labels: Sequence[str],
    segments: Tensor,
    lit: int,
    narrow: bool,
) -> Figure:
    colours = [document(int(s)) for s in segments]
    T, H = v.shape
    thin, small = (0.2, 6.0) if narrow else (0.16, 7.5)
    head, low = (4.3, T + 2.3) if narrow else (4.0, T + 1.7)
    left = -4.2 if narrow else -4.4
    end = low + H * thin
    width = T + 4.4 - left
    fig, ax = panels(NARROW if narrow else WIDE, (NARROW if narrow else WIDE) * (end + head + 1.7) / width,
                     left=0.0, right=1.0, top=1.0, bottom=0.0)  # fmt: skip
    limits(ax, left, T + 4.4, -head, end + 1.7)
    word = 7 if narrow else 8.5
    label(ax, left + 0.2, -head + 0.8, "Weights", INK, fontsize=10, lit=True)
    if not narrow:
        label(ax, left + 0.2, -head + 1.9, "in percent", MUTED)
    _upright(ax, labels, colours, y=-0.3, lit=None, fontsize=word)
    cells = [[document(int(segments[i]))] * T for i in range(T)]
    grid(ax, 100 * weights, shown=mask, cell_colours=cells, vmax=100, numbers=False if narrow else ".0f", fit=False,
         lit_row=lit, fontsize=small)  # fmt: skip
    for i, text in enumerate(labels):
        label(ax, -0.3, i + 0.5, text, colours[i], ha="right", fontsize=word, lit=i == lit)
    blind = [i for i in range(T) if not bool(mask[i].any())]
    for i in blind:
        label(ax, T + 0.4, i + 0.5, "sees nothing" if not narrow else "none", PADDING, fontsize=word)
    label(ax, T + 0.4, lit + 0.5, f"{int(mask[lit].sum())} keys", INK, lit=True, fontsize=word)
    shares = v * weights[lit, :, None]  # [S, H], what each key adds
    top = float(max(shares.abs().max(), out.abs().max()))
    grid(ax, shares.T, shown=mask[lit].expand(H, T), colour=VALUE, vmax=top, numbers=False, at=(0, low), cell=(1, thin),
         fit=False)  # fmt: skip
    grid(ax, out[:, None], colour=VALUE, vmax=top, numbers=False, at=(T + 1.6, low), cell=(1, thin), fit=False,
         lit_column=0)  # fmt: skip
    middle = low + H * thin / 2
    label(ax, T + 0.8, middle, "=", INK, ha="center", fontsize=11)
    label(ax, T + 2.1, end + 0.9, "the sum", INK, ha="center", fontsize=word, lit=True)
    label(ax, -0.3, middle - 0.6, "weight", VALUE, ha="right", fontsize=word)
    label(ax, -0.3, middle + 0.6, "· value", VALUE, ha="right", fontsize=word)
    for j in range(T):
        if mask[lit, j] and not narrow:
            share = number(100 * float(weights[lit, j]), ".0f")
            label(ax, j + 0.5, end + 0.9, share, VALUE, ha="center", fontsize=8)
    if not narrow:
        label(ax, -0.3, end + 0.9, "weight, %", VALUE, ha="right", fontsize=word)
    return fig


def _upright(
    ax: Axes, labels: Sequence[str], colours: Sequence[str], y: float, lit: int | None, fontsize: float = 8.5
) -> None:
    for j, text in enumerate(labels):
        label(ax, j + 0.5, y, text, colours[j], ha="center", va="bottom", rotation=90, fontsize=fontsize, lit=j == lit)


# Masks ---------------------------------------------------------------------------------------------------------------


def masks_figure(masks: dict[str, Tensor], segments: Tensor, block_size: int, lit: int) -> Shown:
    """Four masks [T, S] side by side, named causal, document, sliding and block_local: the keys in their document's
    colour, row `lit` and its count.
    """
    words = {
        "causal": ("Causal", "leaks across documents"),
        "document": ("+ same document", "a global layer"),
        "sliding": (f"+ window of {2 * block_size}", "sliding, for comparison"),
        "block_local": (f"+ blocks of {block_size}, one back", "a local layer"),
    }
    wide, axes = panels(WIDE, 7.5, 2, 2, left=0.005, right=0.995, top=0.93, bottom=0.0, wspace=0.04, hspace=0.13)
    narrow, more = panels(NARROW, 15.0, 4, 1, left=0.0, right=1.0, top=0.965, bottom=0.0, hspace=0.14)
    T = segments.shape[0]
    for columns in (list(axes.ravel()), list(more)):
        for ax, (name, mask) in zip(columns, masks.items(), strict=True):
            limits(ax, -0.2, T + 6.6, -0.2, T + 0.2)
            ax.set_anchor("W")
            mask_cells(ax, mask, segments, lit)
            label(ax, T + 0.5, lit + 0.5, f"{int(mask[lit].sum())} keys", INK, lit=True)
            heading(ax, *words[name])
    counts = ", ".join(f"{words[name][0]}: {int(mask[lit].sum())}" for name, mask in masks.items())
    alt = f"Four masks of {T} queries by {T} keys. Keys that query {lit} sees: {counts}."
    return show(wide, alt, narrow=narrow)


def mask_cells(
    ax: Axes, mask: Tensor, segments: Tensor, lit: int | None, at: tuple[float, float] = (0.0, 0.0), size: float = 1.0
) -> None:
    """A mask [T, S] in few shapes: keys in their document's colour, grey where query and key are of different ones."""
    T, S = mask.shape
    x0, y0 = at
    _rectangles(ax, [(x0, y0, S * size, T * size)], FAINT, 0.6)
    runs: dict[tuple[str, float], list[tuple[float, float, float, float]]] = {}
    for i in range(T):
        strength = 1.0 if i == lit else 0.42
        for start, stop, colour in _runs(mask[i], segments, int(segments[i])):
            box = (x0 + start * size, y0 + i * size, (stop - start) * size, size)
            runs.setdefault((colour, strength), []).append(box)
    for (colour, strength), boxes in runs.items():
        _rectangles(ax, boxes, colour, strength)
    lines = [[(x0 + j * size, x0 + j * size), (y0, y0 + T * size)] for j in range(S + 1)]
    lines += [[(x0, x0 + S * size), (y0 + i * size, y0 + i * size)] for i in range(T + 1)]
    xs, ys = [], []
    for x, y in lines:
        xs += [*x, math.nan]
        ys += [*y, math.nan]
    ax.plot(xs, ys, color=PAPER, lw=0.9, zorder=2, clip_on=False, solid_capstyle="butt")
    if lit is not None:
        lit_box(ax, x0, y0 + lit * size, S * size, size)


def _runs(row: Tensor, segments: Tensor, segment: int) -> list[tuple[int, int, str]]:
    """Neighbouring keys of one colour: (first, one past the last, colour)."""
    found: list[tuple[int, int, str]] = []
    for j, seen in enumerate(row.tolist()):
        if not seen:
            continue
        other = int(segments[j])
        colour = document(other) if other == segment and other else PADDING
        if found and found[-1][1] == j and found[-1][2] == colour:
            found[-1] = (found[-1][0], j + 1, colour)
        else:
            found.append((j, j + 1, colour))
    return found


def _rectangles(
    ax: Axes, boxes: Sequence[tuple[float, float, float, float]], colour: str, strength: float, zorder: float = 1
) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    points = [p for x, y, w, h in boxes for p in ((x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y))]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(boxes)
    look = {"facecolor": colour, "alpha": strength, "edgecolor": "none", "linewidth": 0, "clip_on": False}
    ax.add_patch(PathPatch(Path(points, codes), zorder=zorder, **look))


# Long rows, to scale -------------------------------------------------------------------------------------------------


def outline(config: Config, length: int, kind: str) -> list[tuple[int, int]]:
    """The corners (key, query) of what a layer sees in one document, in units of tokens: exact, a pair is a square."""
    if kind == "global":
        return [(0, 0), (length, length), (0, length)]
    corners = [(0, 0), (length, length)]
    starts = list(range(0, length, config.block_size))
    for start in reversed(starts):
        stop, first = min(start + config.block_size, length), accounting.first_visible(config, start, kind)
        corners += [(first, stop), (first, start)]
    return corners


def hybrid_figure(config: Config = RNJ_1_5, length: int = 32_768) -> Shown:
    """What one document of `length` tokens lets through in a local and in a global layer, to scale, with the pairs."""
    wide, axes = panels(WIDE, 3.95, 1, 2, left=0.085, right=0.985, top=0.83, bottom=0.09, wspace=0.2)
    narrow, more = panels(NARROW, 7.6, 2, 1, left=0.16, right=0.97, top=0.915, bottom=0.035, hspace=0.3)
    all_pairs = accounting.visible_pairs(config, length, "global")
    shares = []
    for pair in (axes, more):
        for ax, kind in zip(pair, ("local", "global"), strict=True):
            _to_scale(ax, config, length, kind)
            pairs = accounting.visible_pairs(config, length, kind)
            layers = config.layer_types.count(kind)
            heading(ax, f"{layers} {kind} layers", f"{pairs:,} pairs, {100 * pairs / all_pairs:.1f} %", KIND[kind])
            shares.append(f"{kind} {pairs:,}")
    alt = (
        f"Two masks of {length:,} by {length:,} to scale. The local one is a staircase of blocks of "
        f"{config.block_size:,} along the diagonal, the global one a full triangle. Pairs: {shares[0]}, {shares[1]}."
    )
    return show(wide, alt, narrow=narrow)


def _to_scale(ax: Axes, config: Config, length: int, kind: str, every: int = 2, axis_names: bool = True) -> None:
    limits(ax, 0, length, 0, length)
    _rectangles(ax, [(0, 0, length, length)], FAINT, 0.5)
    shape = outline(config, length, kind)
    ax.add_patch(Polygon(shape, closed=True, facecolor=KIND[kind], alpha=0.75, linewidth=0, clip_on=False))
    edges = range(config.block_size, length, config.block_size)
    xs = [x for e in edges for x in (e, e, math.nan, 0, length, math.nan)]
    ys = [y for e in edges for y in (0, length, math.nan, e, e, math.nan)]
    ax.plot(xs, ys, color=PAPER, lw=0.6, solid_capstyle="butt")
    for e in range(0, length + 1, every * config.block_size):
        label(ax, -0.02 * length, e, f"{e:,}", ha="right", fontsize=8)
    if axis_names:
        label(ax, 0, 1.05 * length, "queries ↓", fontsize=8)
        label(ax, length, 1.05 * length, "keys →", ha="right", fontsize=8)


MASKS = {
    "causal": ("Causal", PADDING),
    "document": ("+ same document", GLOBAL),
    "sliding": ("+ sliding window", MUTED),
    "block_local": ("+ blocks, one back", LOCAL),
}


def long_masks_figure(lengths: Sequence[int], padding: int, lit: tuple[int, int], config: Config = RNJ_1_5) -> Shown:
    """Four masks of one packed row to scale, each outlined exactly, with its pairs and what one query sees.

    lengths: of the documents; padding: places after them; lit: a document, counted from 0, and a position in it.
    """
    total, C = sum(lengths) + padding, config.block_size
    before = sum(lengths[: lit[0]])
    row = before + lit[1]
    told, made = [], []
    edges: dict[str, Any] = {"left": 0.075, "right": 0.9, "top": 0.92, "bottom": 0.03, "wspace": 0.32, "hspace": 0.22}
    upright: dict[str, Any] = {"left": 0.15, "right": 0.83, "top": 0.955, "bottom": 0.01, "hspace": 0.22}
    for width, height, shape, spacing in ((WIDE, 7.6, (2, 2), edges), (NARROW, 14.2, (4, 1), upright)):
        fig, axes = panels(width, height, *shape, **spacing)
        for ax, (kind, (name, colour)) in zip(axes.ravel(), MASKS.items(), strict=True):
            limits(ax, 0, total, 0, total)
            ax.set_anchor("W")
            _rectangles(ax, [(0, 0, total, total)], FAINT, 0.5)
            count = masks.pairs(kind, lengths, C, padding=padding)
            seen = masks.keys(kind, lengths[lit[0]], lit[1], C, before=before)
            for shape_ in masks.outlines(kind, lengths, C, padding=padding):
                ax.add_patch(Polygon(shape_, closed=True, facecolor=colour, alpha=0.7, linewidth=0, clip_on=False))
            high = total / 110
            _rectangles(ax, [(0, row - high / 2, total, high)], PAPER, 1.0, zorder=3)
            _rectangles(ax, [(row - seen + 1, row - high / 2, seen, high)], LIT, 1.0, zorder=4)
            label(ax, 1.02 * total, row, f"{seen:,}", INK, lit=True)
            for edge in (0, lengths[0], total):
                label(ax, -0.02 * total, edge, f"{edge:,}", ha="right", fontsize=8)
            heading(ax, name, f"{count:,} pairs", INK)
            told.append(f"{name} {count:,} pairs, the lit query sees {seen:,} keys")
        made.append(fig)
    alt = f"Four masks of {total:,} by {total:,} to scale: {'; '.join(told[:4])}."
    return show(made[0], alt, narrow=made[1])


def positions_figure(config: Config = RNJ_1_5, positions: Sequence[int] = (9_000, 10_000)) -> Shown:
    """For each position the keys that it sees in each of the layers, one bar a layer, layer 0 at the bottom."""
    made = []
    end = (max(positions) // config.block_size + 1) * config.block_size
    for narrow in (False, True):
        fig, axes = panels(
            NARROW if narrow else WIDE, 6.4 if narrow else 6.0, len(positions), 1, left=0.03, right=0.97,
            top=0.9, bottom=0.06, hspace=0.5,
        )  # fmt: skip
        for ax, q in zip(axes, positions, strict=True):
            _bars(ax, config, q, end, narrow)
        made.append(fig)
    said = []
    for q in positions:
        keys = {kind: (accounting.first_visible(config, q, kind), q) for kind in ("local", "global")}
        said.append(f"position {q:,}: keys {keys['local'][0]:,} to {q:,} in local layers, 0 to {q:,} in global ones")
    alt = f"{config.n_layers} bars, one a layer, over the keys from 0 to {end:,}. " + "; ".join(said) + "."
    return show(made[0], alt, narrow=made[1])


def _bars(ax: Axes, config: Config, q: int, end: int, narrow: bool) -> None:
    L = config.n_layers
    limits(ax, -0.004 * end, end * 1.004, -0.5, L + 2.6, equal=False)
    for kind in ("local", "global"):
        first = accounting.first_visible(config, q, kind)
        rows = [L - 1 - i for i, t in enumerate(config.layer_types) if t == kind]
        _rectangles(ax, [(first, y + 0.12, q + 1 - first, 0.76) for y in rows], KIND[kind], 0.9)
    for e in range(0, end + 1, config.block_size):
        ax.plot([e, e], [-0.2, L + 0.5], color=MUTED, lw=0.6, ls=(0, (2, 2)))
        ha = "left" if e == 0 else "right" if e == end else "center"
        label(ax, e, L + 1.8, f"{e:,}", ha=ha, fontsize=8)
    glow(ax, q - 0.003 * end, -0.5, 0.006 * end, L + 1)
    ax.plot([q, q], [-0.5, L + 0.5], color=LIT, lw=1.3, zorder=4)
    keys = {kind: accounting.visible_keys(config, q, kind) for kind in ("local", "global")}
    counts = [f"{config.layer_types.count(k)} {k} layers: {keys[k]:,} keys" for k in ("local", "global")]
    heading(ax, f"Position {q:,}", " ")
    for text, x, ha, colour in ((counts[0], 0, "left", LOCAL), (counts[1], 1, "right", GLOBAL)):
        text = text.replace(" layers", "") if narrow else text
        ax.annotate(text, (x, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", ha=ha, va="bottom",
                    color=colour, fontsize=8.5, annotation_clip=False)  # fmt: skip
    for layer in (0, L - 1):
        label(ax, q + 0.012 * end, L - 0.5 - layer, f"layer {layer}", fontsize=8)


def blocks_figure(shares: dict[str, Tensor], block_size: int) -> Shown:
    """How the queries of each block share their weight among the blocks of keys, mean over queries and heads.

    shares: a [blocks, blocks] tensor for "local" and "global", rows sum to 1.
    """
    wide, axes = panels(4.8, 2.75, 1, 2, left=0.1, right=0.99, top=0.74, bottom=0.02, wspace=0.3)
    narrow, more = panels(NARROW, 5.6, 2, 1, left=0.16, right=0.99, top=0.84, bottom=0.01, hspace=0.55)
    for pair in (axes, more):
        for ax, kind in zip(pair, ("local", "global"), strict=True):
            share = shares[kind]
            n = share.shape[0]
            limits(ax, -0.05, n + 0.05, -0.05, n + 0.05)
            seen = share > 0
            names = [str(i) for i in range(n)]
            grid(ax, 100 * share, shown=seen, colour=KIND[kind], vmax=100, numbers=".0f", fontsize=9, fit=False,
                 row_labels=names, column_labels=names)  # fmt: skip
            heading(ax, f"A {kind} layer", None, KIND[kind])
            ax.texts[-1].set_position((0, 22))
    alt = "Share of attention weight in percent, blocks of queries down, blocks of keys across. " + " ".join(
        f"{kind.capitalize()}: {int((s > 0).sum())} of {s.numel()} pairs of blocks have any."
        for kind, s in shares.items()
    )
    return show(wide, alt + f" A block has {block_size} positions.", narrow=narrow)


# The receptive field -------------------------------------------------------------------------------------------------


def reach_figure(steps: dict[str, Tensor], layer_types: dict[str, Sequence[str]], block_size: int, unit: int) -> Shown:
    """From which position on the last position has gathered something, layer by layer.

    steps: name -> reach [L + 1, T, T] (rnj.lab.reach); layer_types: name -> the stack; unit: tokens that a position
    stands for.
    """
    names = list(steps)
    wide, axes = panels(WIDE, 3.7, 1, len(names), left=0.085, right=0.985, top=0.82, bottom=0.1, wspace=0.24)
    narrow, more = panels(NARROW, 6.8, len(names), 1, left=0.175, right=0.96, top=0.9, bottom=0.06, hspace=0.42)
    said = []
    for pair in (axes, more):
        for ax, name in zip(pair, names, strict=True):
            reached = steps[name][:, -1]  # [L + 1, T]
            L, T = reached.shape[0] - 1, reached.shape[1]
            limits(ax, 0, T, -0.2, L + 2.6, equal=False)
            firsts = [int(row.int().argmax()) for row in reached]
            for n, kind in enumerate(layer_types[name], start=1):
                _rectangles(ax, [(firsts[n], L - n + 0.1, T - firsts[n], 0.8)], KIND[kind], 0.9)
            for e in range(0, T, block_size * 8):
                ax.plot([e, e], [0, L + 0.4], color=MUTED, lw=0.5, ls=(0, (2, 2)), zorder=0.5)
                label(ax, e, L + 1.6, f"{e * unit:,}", ha="left" if e == 0 else "center", fontsize=8)
            for n in (1, L):
                label(ax, -0.012 * T, L - n + 0.5, f"after {n}", ha="right", fontsize=8)
            start = firsts[-1] * unit
            after = next(n for n, f in enumerate(firsts) if f == firsts[-1])
            heading(ax, name, f"back to {start:,} after {after} layers")
            said.append(f"{name}: back to {start:,} after {after} layers")
    alt = f"Bars, one a layer, over all positions: what the last position can have gathered. {said[0]}; {said[1]}."
    return show(wide, alt, narrow=narrow)


# Saturation ----------------------------------------------------------------------------------------------------------


def saturation_figure(
    dims: Sequence[int], plain: Sequence[Saturation], scaled: Sequence[Saturation], keys: int
) -> Shown:
    """Variance of the scores, largest weight and size of the softmax's Jacobian by head size, with and without root."""
    wide, axes = panels(5.0, 6.6, 3, 1, bare=False, left=0.11, right=0.8, top=0.93, bottom=0.07, hspace=0.62)
    narrow, more = panels(NARROW, 6.6, 3, 1, bare=False, left=0.14, right=0.77, top=0.93, bottom=0.07, hspace=0.62)
    rows: list[tuple[str, str, Callable[[Saturation], float]]] = [
        ("Variance of a score", "standard normal q and k", lambda s: s.variance),
        ("Largest weight", f"among {keys} keys; 1 is saturated", lambda s: s.largest_weight),
        ("Size of the softmax’s gradient", "root of its Jacobian’s sum of squares", lambda s: s.gradient),
    ]
    for column in (axes, more):
        for ax, (title, below, read) in zip(column, rows, strict=True):
            for stats, colour, style, name in (
                (plain, NEGATIVE, (0, (4, 2)), "q · k"),
                (scaled, POSITIVE, "-", "q · k / √d"),
            ):
                values = [read(s) for s in stats]
                ax.plot(dims, values, color=colour, ls=style, marker="o", ms=2.5)
                last = f"{values[-1]:{',.0f' if values[-1] >= 100 else '.3g'}}"
                end_label(ax, dims[-1], values[-1], f"{name}\n{last}", colour)
            ax.set_xscale("log", base=2)
            ax.set_xticks(dims[::2], [f"{d:,}" for d in dims[::2]])
            ax.minorticks_off()
            heading(ax, title, below)
        column[0].set_yscale("log", base=2)
        column[0].set_ylim(0.35, None)
        column[0].set_yticks([1, 32, 1024], ["1", "32", "1,024"])
        column[0].minorticks_off()
        column[1].set_ylim(0, 1.05)
        column[2].set_ylim(0, None)
        column[2].set_xlabel("d, the size of a head")
    a, b = plain[-1], scaled[-1]
    alt = (
        f"Three curves by head size, up to {dims[-1]:,}. Undivided scores: variance {a.variance:,.0f}, largest weight "
        f"{a.largest_weight:.2f}, gradient {a.gradient:.3f}. Divided by the root: {b.variance:.2f}, "
        f"{b.largest_weight:.2f}, {b.gradient:.3f}, all level."
    )
    return show(wide, alt, narrow=narrow)


# Memory --------------------------------------------------------------------------------------------------------------


def memory_figure(lengths: Sequence[int], curves: dict[str, Sequence[int]], point: tuple[int, int]) -> Shown:
    """Bytes by length, one curve a name ("whole", "local", "tile"), both axes logarithmic; one point is named."""
    look = {
        "whole": (GLOBAL, "all scores,\na global layer"),
        "local": (LOCAL, "all scores,\na local layer"),
        "tile": (POSITIVE, "one step\nover tiles"),
    }
    wide, left = panels(5.4, 3.6, bare=False, left=0.13, right=0.76, top=0.86, bottom=0.12)
    narrow, right = panels(NARROW, 3.6, bare=False, left=0.19, right=0.68, top=0.86, bottom=0.12)
    for ax in (left, right):
        for name, values in curves.items():
            colour, text = look[name]
            ax.plot(lengths, values, color=colour)
            end_label(ax, lengths[-1], values[-1], f"{text}\n{bytes_text(values[-1])}", colour)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=10)
        ticks = [lengths[0], point[0], *([32_768] if ax is left else []), lengths[-1]]
        ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
        marks = [10**5, 10**6, 10**7, 10**8, 10**9, 10**10]
        ax.set_yticks(marks, ["100 kB", "1 MB", "10 MB", "100 MB", "1 GB", "10 GB"])
        ax.minorticks_off()
        ax.set_ylim(3e4, 5e11)
        ax.set_xlabel("tokens")
        ax.plot(*point, "o", color=LIT, ms=5, zorder=5)
        ax.annotate(
            bytes_text(point[1]), point, (-7, 6), textcoords="offset points", ha="right", weight="bold", color=LIT
        )
        heading(ax, "Scores of one head, bytes", "bfloat16; the tile’s sums in float32")
    alt = f"Bytes by length, logarithmic. At {lengths[-1]:,} tokens: " + ", ".join(
        f"{look[name][1]} {bytes_text(v[-1])}".replace("\n", " ") for name, v in curves.items()
    )
    return show(wide, alt + f". At {point[0]:,} tokens all scores take {bytes_text(point[1])}.", narrow=narrow)


def bytes_text(count: int) -> str:
    """Bytes in the decimal unit that leaves one to three digits before the point."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


# Steppers ------------------------------------------------------------------------------------------------------------


def row_stepper(block_size: int = 2) -> Stepper:
    """The packed row of 16: the query and the layer → the keys it sees."""
    packed, names = example.row(), example.labels(example.row())
    segments = packed.segments[0]
    rows = Rows(packed.positions, packed.segments, packed.positions)
    small = rnj.SMALL.block_size
    kinds = {"global": None, f"local, blocks of {small}": small, f"local, blocks of {block_size}": block_size}
    masks = {kind: allowed(rows, rows, size)[0] for kind, size in kinds.items()}  # [T, S] each
    T = len(names)

    def draw(query: int, layer: str) -> Frame:
        mask = masks[layer]
        fig, ax = panels(3.5, 3.35, left=0.0, right=1.0, top=1.0, bottom=0.0)
        limits(ax, -4.5, T + 3.6, -5.6, T + 0.4)
        label(
            ax,
            -4.3,
            -5.0,
            layer[0].upper() + layer[1:],
            GLOBAL if layer == "global" else LOCAL,
            fontsize=10,
            lit=True,
        )
        colours = [document(int(s)) for s in segments]
        mask_cells(ax, mask, segments, query)
        for i, text in enumerate(names):
            label(ax, -0.3, i + 0.5, text, colours[i], ha="right", lit=i == query)
            seen = bool(mask[query, i])
            label(ax, i + 0.5, -0.3, text, colours[i] if seen else MUTED, ha="center", va="bottom", rotation=90,
                  alpha=1.0 if seen else 0.45, lit=seen)  # fmt: skip
        count = int(mask[query].sum())
        label(ax, T + 0.4, query + 0.5, _keys(count), INK, lit=True)
        seen_words = [names[j] for j in range(T) if mask[query, j]]
        looks = (
            ("looks at " + ", ".join(seen_words)) if seen_words else "is padding and looks at nothing: its output is 0"
        )
        first = int(mask[query].int().argmax()) if count else None
        return Frame(
            fig,
            text=f"Row {query}, {names[query]}, {looks}.",
            numbers={
                "keys seen": count,
                "first row seen": first,
                "position in its document": int(packed.positions[0, query]),
            },
            alt=f"The mask of a {layer} layer over the packed row; row {query} is lit and sees {_keys(count)}.",
        )

    controls: list[Slider | Choice] = [
        Slider("query", range(T), value=example.FOLLOWED, label="query, row", play=True),
        Choice("layer", list(kinds)),
    ]
    return Stepper("What a token of the packed row may look at", controls, draw, name="packed-masks")


def window_stepper(length: int = 32, block_size: int = 4) -> Stepper:
    """One document of 32: a window that slides with the query, and blocks that it walks through."""
    rows = Rows.plain(1, length)
    q, k = rows.positions[0, :, None], rows.positions[0, None]  # [T, 1], [1, T]
    masks = {
        f"blocks of {block_size}, one back": allowed(rows, rows, block_size)[0],
        f"sliding window of {2 * block_size}": causal(q, k) & sliding(q, k, 2 * block_size),
    }  # [T, S] each

    def draw(query: int, layer: str) -> Frame:
        mask = masks[layer]
        counts = mask.sum(-1)  # [T]
        fig, ax = panels(3.5, 4.3, left=0.0, right=1.0, top=0.94, bottom=0.0)
        high, floor = 2 * block_size, length + 4.6 + 2 * block_size
        limits(ax, -0.4, length + 6.2, -0.2, floor + 0.4)
        mask_cells(ax, mask, rows.segments[0], query)
        edges = range(0, length + 1, block_size)
        xs = [x for e in edges for x in (e, e, math.nan)]
        ax.plot(xs, [0, length, math.nan] * len(edges), color=MUTED, lw=0.7, ls=(0, (2, 2)), zorder=3)
        label(ax, length + 0.5, query + 0.5, _keys(int(counts[query])), INK, lit=True)
        heading(ax, layer[0].upper() + layer[1:], None, LOCAL if layer.startswith("blocks") else INK)
        label(ax, 0, length + 2.4, "Keys seen, query by query", INK)
        glow(ax, query, floor - high - 0.4, 1, high + 0.4)
        _rectangles(ax, [(i + 0.1, floor - int(n), 0.8, int(n)) for i, n in enumerate(counts)], POSITIVE, 0.42)
        _rectangles(ax, [(query + 0.1, floor - int(counts[query]), 0.8, int(counts[query]))], POSITIVE, 1.0)
        label(ax, length + 0.5, floor - high + 0.3, str(high), fontsize=8)
        label(ax, length + 0.5, floor - 0.3, "0", fontsize=8)
        first = int(mask[query].int().argmax())
        return Frame(
            fig,
            text=f"Query {query} sees keys {first} to {query}.",
            numbers={
                "keys seen": counts[query],
                "first key seen": first,
                "block of the query": query // block_size,
            },
            alt=f"The mask of {layer}, {length} positions; row {query} is lit and sees keys {first} to {query}.",
        )

    controls: list[Slider | Choice] = [
        Slider("query", range(length), value=22, play=True, ms=350),
        Choice("layer", list(masks)),
    ]
    return Stepper("A window that slides, and blocks", controls, draw, name="window-or-blocks")


LONG_QUERIES = (
    0, 2_048, 4_095, 4_096, 6_000, 8_191, 8_192, 9_000, 10_000, 12_287, 12_288, 16_383, 16_384, 20_000, 20_479,
    20_480, 24_575, 24_576, 28_671, 28_672, 30_000, 32_767,
)  # fmt: skip


def long_stepper(config: Config = RNJ_1_5, length: int = 32_768) -> Stepper:
    """One document of 32,768, to scale: the query's position and the kind of layer → the keys it sees."""

    def draw(position: int, layer: str) -> Frame:
        first = accounting.first_visible(config, position, layer)
        keys = accounting.visible_keys(config, position, layer)
        fig, ax = panels(3.5, 3.1, left=0.155, right=0.85, top=0.915, bottom=0.08)
        _to_scale(ax, config, length, layer, axis_names=False)
        heading(ax, f"A {layer} layer", None, KIND[layer])
        high = length / 80  # the query's row is drawn thicker than it is
        top = min(max(position - high / 2, 0), length - high)
        _rectangles(ax, [(0, top, length, high)], PAPER, 1.0, zorder=3)
        _rectangles(ax, [(first, top, max(keys, length / 300), high)], KIND[layer], 1.0, zorder=3)
        lit_box(ax, 0, top, length, high)
        label(ax, 1.02 * length, top + high / 2, f"{keys:,}", INK, lit=True)
        ends = [(first, "right"), (position, "left")] if keys > 1 else [(position, "left")]
        for at, side in ends:
            ax.plot([at, at], [top + high, 1.02 * length], color=LIT, lw=0.7, ls=(0, (2, 2)), zorder=4, clip_on=False)
            label(ax, at, 1.05 * length, f"{at:,}", INK, ha="left" if at == 0 else side, fontsize=8)
        return Frame(
            fig,
            text=f"The query at {position:,} sees the keys from {first:,} to {position:,}.",
            numbers={
                "keys seen": keys,
                "first key seen": first,
                "block of the query": position // config.block_size,
            },
            alt=f"A {layer} layer's mask of {length:,} tokens; query {position:,} sees {keys:,} keys.",
        )

    controls: list[Slider | Choice] = [
        Slider("position", LONG_QUERIES, value=10_000, live_step=1),
        Choice("layer", ["local", "global"]),
    ]
    return Stepper("What a token of a long document may look at, to scale", controls, draw, name="long-masks")


def online_stepper(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, labels: Sequence[str], segments: Tensor, tile: int = 2
) -> Stepper:
    """One query q [H] over keys k [S, H] under mask [S], a tile of keys a step: maximum, sum, output so far."""
    S = k.shape[0]
    orders = {"first to last": False, "last to first": True}
    states = {
        name: list(running(q[None], k, v, mask[None], scale, tile, backwards)) for name, backwards in orders.items()
    }
    parts = {name: tiles(S, tile)[::-1] if back else tiles(S, tile) for name, back in orders.items()}
    scores = (k @ q * scale).masked_fill(~mask, float("-inf"))  # [S]
    final = scores.softmax(-1) @ v  # [H], all keys at once
    top = float(max(s.weighted.abs().max() for name in states for s in states[name]))
    whole = step_bytes(q[None], k, v, states["first to last"][-1])

    def draw(tiles_read: int, order: str) -> Frame:
        state, before = states[order][tiles_read], states[order][max(tiles_read - 1, 0)]
        read = torch.zeros(S, dtype=torch.bool)
        for part in parts[order][:tiles_read]:
            read[part] = True
        now = parts[order][tiles_read - 1] if tiles_read else None
        fig = _online(state, scores, mask & read, now, final, labels, segments, top)
        label(fig.axes[0], -4.2, -0.9, "read ↓" if order == "first to last" else "read ↑", INK)
        error = float((state.output()[0] - final).abs().max())
        kept = float(torch.exp(before.maximum - state.maximum)[0]) if before.total[0] > 0 else None
        if tiles_read == 0:
            text = "Nothing has been read: the maximum is −∞, sum and output are 0."
        elif now is not None and not bool(mask[now].any()):
            text = "This tile holds no key that may be seen: nothing changes. A kernel skips it."
        elif kept is None:
            text = "The first keys that may be seen set the maximum."
        elif kept < 1:
            text = (
                f"A larger score: all that was summed is multiplied by exp(old maximum − new) = {number(kept, '.3f')}."
            )
        else:
            text = "The maximum stands: the new terms are added."
        tile_keys = now if now is not None else slice(0, 0)
        numbers = {
            "running maximum m": state.maximum[0],
            "running sum ℓ": state.total[0],
            "kept of the old sum": kept,
            "distance from the whole softmax": error,
            "bytes held in this step": step_bytes(q[None], k[tile_keys], v[tile_keys], state),
            "bytes of all keys at once": whole,
        }
        m, total = float(state.maximum[0]), float(state.total[0])
        alt = f"After {tiles_read} tiles, {order}, the maximum is {m:.3g} and the sum {total:.3g}."
        return Frame(fig, text=text, numbers=numbers, alt=alt)

    steps = Slider(
        "tiles_read", range(len(parts["first to last"]) + 1), value=5, label="tiles read", play=True, ms=1100
    )
    return Stepper(
        "The online softmax, tile by tile", [steps, Choice("order", list(orders))], draw, name="online-softmax"
    )


def _online(
    state: Running,
    scores: Tensor,
    seen: Tensor,
    now: slice | None,
    final: Tensor,
    labels: Sequence[str],
    segments: Tensor,
    top: float,
) -> Figure:
    S, H = scores.shape[0], final.shape[0]
    fig, ax = panels(3.5, 4.5, left=0.0, right=1.0, top=1.0, bottom=0.0)
    limits(ax, -4.4, 16.2, -2.1, S + 8.4)
    for j, text in enumerate(labels):
        hidden = not bool(torch.isfinite(scores[j]))
        colour = MUTED if hidden else document(int(segments[j]))
        label(ax, -0.3, j + 0.5, text, colour, ha="right", alpha=0.5 if hidden else 1.0, fontsize=8)
    shown = torch.where(seen, scores, torch.zeros(()))
    limit = float(scores[torch.isfinite(scores)].abs().max())
    grid(ax, shown[:, None], shown=seen[:, None], vmax=limit, numbers=".2f", fontsize=7.5, fit=False, cell=(2.6, 1))
    if now is not None:
        lit_box(ax, 0, now.start, 2.6, now.stop - now.start)
    m, base, wide = float(state.maximum[0]), 3.3, 10.0
    said = "−∞" if not math.isfinite(m) else number(m, ".3f")
    label(ax, 1.3, -0.9, "score a", MUTED, ha="center")
    label(ax, base, -0.9, "exp(a − m)", MUTED)
    ax.plot([base, base], [0, S], color=MUTED, lw=0.6)
    terms = torch.exp(scores - m) if math.isfinite(m) else torch.zeros(S)
    boxes = [(base, j + 0.2, wide * float(terms[j]), 0.6) for j in range(S) if seen[j]]
    if boxes:
        _rectangles(ax, boxes, POSITIVE, 0.85)
    for j in range(S):
        if seen[j]:
            label(ax, base + wide * float(terms[j]) + 0.3, j + 0.5, number(float(terms[j]), ".3f"), fontsize=7.5)
    label(ax, 0, S + 1.2, f"maximum m = {said}", INK, lit=True)
    label(ax, 16, S + 1.2, f"sum ℓ = {number(float(state.total[0]), '.3f')}", INK, ha="right", lit=True)
    strips = [
        ("Σ exp · v", state.weighted[0], top),
        ("÷ ℓ", state.output()[0], float(final.abs().max())),
        ("at once", final, float(final.abs().max())),
    ]
    for i, (name, vector, vmax) in enumerate(strips):
        y = S + 2.6 + 1.9 * i
        vector_strip(ax, vector, colour=VALUE, vmax=vmax, numbers=False, at=(0, y), cell=(16 / H, 1.2))
        label(ax, -0.3, y + 0.6, name, VALUE if i < 2 else MUTED, ha="right", fontsize=8)
    return fig


def _keys(count: int) -> str:
    return "1 key" if count == 1 else f"{count} keys"


def example_head(layer: int = 3, head: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The followed token's query [H], its head's keys and values [S, H] and its row of the mask [S]: the seeded model
    that the chapter computes by hand with, in float64."""
    row = example.row()
    model = rnj.build(rnj.SMALL, seed=0, random_norms=True)
    trace = model.trace(row.tokens, row.positions, row.segments)
    at = f"block.{layer}.attn"
    shared = head // rnj.SMALL.group
    q = trace[f"{at}.q_rot"][0, example.FOLLOWED, head].double()  # [H]
    k, v = (trace[f"{at}.{name}"][0, :, shared].double() for name in ("k_rot", "v"))  # [S, H] each
    return q, k, v, trace[f"{at}.allowed"][0, example.FOLLOWED]


def _online_stepper() -> Stepper:
    row = example.row()
    return online_stepper(*example_head(), rnj.SMALL.scale, example.labels(row), row.segments[0])


STEPPERS = {
    "packed-masks": row_stepper,
    "window-or-blocks": window_stepper,
    "long-masks": long_stepper,
    "online-softmax": _online_stepper,
}
