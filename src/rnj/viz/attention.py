"""The figures and steppers of chapter 4: projections and heads, QK-norm, grouped queries, what heads look at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from torch import Tensor

from rnj import accounting, example
from rnj.config import RNJ_1_5, Config
from rnj.lab.heads import Head, Look
from rnj.model import Transformer
from rnj.viz.card import at_token
from rnj.viz.figure import (
    NARROW,
    WIDE,
    Shown,
    arrow,
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
    PAPER,
    POSITIVE,
    QUERY,
    VALUE,
    document,
)
from rnj.viz.stepper import Choice, Frame, Slider, Stepper

KIND = {"local": LOCAL, "global": GLOBAL}
GIB = 2**30


def _fill(ax: Axes, boxes: Sequence[tuple[float, float, float, float]], colour: str, alpha: float = 1.0) -> None:
    """Rectangles (x, y, width, height) of one colour, as one path."""
    if boxes:
        points = [p for x, y, w, h in boxes for p in ((x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y))]
        codes = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY] * len(boxes)
        look = {"facecolor": colour, "alpha": alpha, "edgecolor": "none", "linewidth": 0, "clip_on": False}
        ax.add_artist(PathPatch(Outline(points, codes), zorder=2, **look))


def _lines(ax: Axes, ends: Sequence[tuple[float, float, float, float]], colour: str, width: float, **look: Any) -> None:
    """Straight lines (x0, y0, x1, y1), as one path."""
    xs = [x for x0, _, x1, _ in ends for x in (x0, x1, math.nan)]
    ys = [y for _, y0, _, y1 in ends for y in (y0, y1, math.nan)]
    ax.plot(xs, ys, color=colour, lw=width, clip_on=False, **look)


def _bars(ax: Axes, vector: Tensor, x: float, y: float, width: float, high: float, top: float | None = None) -> None:
    """Many numbers as bars around a middle line: slate upwards, red downwards, full height at top (the largest)."""
    step, top = width / vector.numel(), top or float(vector.abs().max())
    middle = y + high / 2
    _lines(ax, [(x, middle, x + width, middle)], MUTED, 0.5)
    for colour, sign in ((POSITIVE, 1), (NEGATIVE, -1)):
        heights = [(i, 0.47 * high * abs(v) / top) for i, v in enumerate(vector.tolist()) if v * sign > 0]
        boxes = [(x + (i + 0.1) * step, middle - tall if sign > 0 else middle, 0.8 * step, tall) for i, tall in heights]
        _fill(ax, boxes, colour)


# Three words ---------------------------------------------------------------------------------------------------------


def words_figure(
    words: Sequence[str],
    queries: Sequence[Sequence[Sequence[float]]],
    keys: Sequence[Sequence[float]],
    scores: Sequence[Sequence[float]],
    weights: Sequence[Sequence[float]],
    values: Sequence[Sequence[float]],
    outputs: Sequence[Sequence[float]],
    asking: int,
) -> Shown:
    """Two heads of the asking word over the words it sees: its query, their keys, scores, weights, values, the sum.

    queries: [T][N][H]; keys, values: [T][H]; scores, weights: [N][T] of the asking word; outputs: [N][H]. Plain lists.
    """
    made = []
    for width, height, rows, columns in ((WIDE, 2.1, 1, 2), (NARROW, 3.75, 2, 1)):
        fig, axes = panels(width, height, rows, columns, left=0.0, right=1.0, top=0.88 if rows == 1 else 0.94,
                           bottom=0.0, wspace=0.06, hspace=0.2)  # fmt: skip
        for n, ax in enumerate(axes.ravel()):
            _one_head(ax, words, queries[asking][n], keys, scores[n], weights[n], values, outputs[n], asking)
            heading(ax, f"Head {n}")
        made.append(fig)
    said = [f"head {n} most at {words[max(range(len(w)), key=w.__getitem__)]}" for n, w in enumerate(weights)]
    alt = f"Two heads of the word {words[asking]} over the keys of {', '.join(words)}: " + ", ".join(said) + "."
    return show(made[0], alt, narrow=made[1])


def _one_head(
    ax: Axes,
    words: Sequence[str],
    query: Sequence[float],
    keys: Sequence[Sequence[float]],
    scores: Sequence[float],
    weights: Sequence[float],
    values: Sequence[Sequence[float]],
    output: Sequence[float],
    asking: int,
) -> None:
    T, H = len(keys), len(query)
    w, h = 2.8, 1.7  # a cell
    k_at, s_at, v_at = 7.2, 13.3, 21.4
    limits(ax, -0.1, v_at + H * w + 0.1, -0.1, 4.4 + h * (T + 1))
    look: dict[str, Any] = {"fit": False, "cell": (w, h), "numbers": ".2f", "fontsize": 7.2}
    top = max(abs(a) for line in [query, *keys] for a in line)
    most = max(abs(a) for line in [*values, output] for a in line)
    grid(ax, [query], vmax=top, at=(k_at, 0), lit_row=0, **look)
    label(ax, k_at - 0.4, h / 2, f"query of {words[asking]}", QUERY, ha="right", lit=True, fontsize=7.5)
    for name, x, colour in (("key", k_at, KEY), ("value", v_at, VALUE)):
        label(ax, x + w * H / 2, 2.6, name, colour, ha="center")
    label(ax, s_at + w / 2, 2.6, "score", INK, ha="center")
    label(ax, s_at + w + 3.9, 2.6, "weight", INK, ha="right")
    y = 3.3
    grid(ax, keys, vmax=top, at=(k_at, y), **look)
    grid(ax, [[s] for s in scores], at=(s_at, y), **look)
    grid(ax, values, vmax=most, at=(v_at, y), **look)
    for i, word in enumerate(words[:T]):
        middle = y + h * (i + 0.5)
        label(ax, k_at - 0.4, middle, word, INK, ha="right", lit=i == asking)
        label(ax, s_at + w + 3.9, middle, f"{100 * weights[i]:.1f} %", INK, ha="right")
        label(ax, v_at - 0.35, middle, "×", MUTED, ha="right")
    below = y + h * T + 0.8
    _lines(ax, [(v_at, below - 0.4, v_at + w * H, below - 0.4)], MUTED, 0.8)
    grid(ax, [output], vmax=most, at=(v_at, below), lit_row=0, **look)
    label(ax, v_at - 0.4, below + h / 2, f"what the head gives {words[asking]}", VALUE, ha="right", lit=True)


# The whole of it -----------------------------------------------------------------------------------------------------


def flow_figure(trace: Mapping[str, Tensor], layer: int, token: int, labels: Sequence[str], segments: Tensor) -> Shown:
    """The followed token through one attention layer: every number of x, q, k, v, norms, rotation, heads and output."""
    names = ["q", "k", "v", "q_norm", "k_norm", "q_rot", "k_rot", "weights", "heads", "out"]
    at = {name: at_token(trace, f"block.{layer}.attn.{name}", token) for name in names}
    at["x"] = at_token(trace, f"block.{layer}.pre_attn_norm", token)
    allowed = trace[f"block.{layer}.attn.allowed"][0, token]  # [S]
    made = [_flow(at, allowed, token, labels, segments, narrow) for narrow in (False, True)]
    N, H = at["q"].shape
    K = at["k"].shape[0]
    alt = (
        f"From top to bottom, all values of {labels[token]}: x of {at['x'].numel()} numbers; q, k and v, cut into {N}, "
        f"{K} and {K} heads of {H}; q and k normalised, then rotated; the weights of {N} heads over the tokens seen; "
        f"the heads' outputs; the heads side by side in one vector; and that vector projected to the output."
    )
    return show(made[0], alt, narrow=made[1])


def _flow(
    at: Mapping[str, Tensor], allowed: Tensor, token: int, labels: Sequence[str], segments: Tensor, narrow: bool
) -> Figure:
    (N, H), K, D, T = at["q"].shape, at["k"].shape[0], at["x"].numel(), len(labels)
    # Heights, in units of a cell's width: an arrow's room, a cell, a head's row below, strips of bars, upright words.
    gap, cell, tall, long, flat, words = (8.6, 2.0, 2.6, 5.0, 4.0, 13) if narrow else (6.4, 1.6, 2.4, 4.4, 3.6, 8)
    small = 7.5 if narrow else 8.5
    between = 4.0
    lanes = {name: i * (H + between) for i, name in enumerate("qkv")}
    colours = {"q": QUERY, "k": KEY, "v": VALUE}
    wide, span = 3 * H + 2 * between, 2 * H + between  # all lanes, those of q and k
    high = {"x": long, "flat": flat, "cut": N * cell, "norm": N * cell, "rot": N * cell, "heads": N * tall,
            "side": long, "out": long}  # fmt: skip
    y, end = {}, 6.6 if narrow else 0.4
    for name, tallness in high.items():
        y[name] = end + (words if name == "heads" else 0)
        end = y[name] + tallness + gap
    width, left = (NARROW, -1.0) if narrow else (WIDE, -27.5)
    bottom = end - gap + 0.4
    fig, ax = panels(width, width * bottom / (wide + 1 - left), left=0.0, right=1.0, top=1.0, bottom=0.0)
    limits(ax, left, wide + 1, 0, bottom)

    def named(row: str, name: str, shape: str) -> None:
        if not narrow:
            label(ax, -27, y[row] + high[row] / 2 - 1.25, name, INK, lit=True)
            label(ax, -27, y[row] + high[row] / 2 + 1.25, shape, fontsize=8)

    def down(lane: str, start: float, stop: float, what: str = "", colour: str = MUTED, ha: str = "left") -> None:
        """An arrow in the middle of a lane, and what happens on the way."""
        x = lanes[lane] + H / 2
        arrow(ax, (x, start + 0.8), (x, stop - 0.8), colour)
        label(ax, x + (1.5 if ha == "left" else -1.5), (start + stop) / 2, what, colour, ha=ha, fontsize=small)

    def cells(lane: str, part: str, row: str, size: float) -> None:
        top = float(at[part].abs().max())
        grid(ax, at[part], vmax=top, at=(lanes[lane], y[row]), cell=(1, size), numbers=False, gap=0.05, fit=False)

    def strip(row: str, vector: Tensor, lit: bool) -> None:
        if lit:
            glow(ax, 0, y[row], wide, long)
            lit_box(ax, 0, y[row], wide, long)
        _bars(ax, vector, 0, y[row], wide, long)

    # x, projected and cut into heads
    strip("x", at["x"], lit=True)
    named("x", f"x of {labels[token]}", f"[{D}], normalised")
    if narrow:
        label(ax, 0, y["x"] - 2.6, f"x [{D}] of {labels[token]}", LIT, fontsize=8.5, lit=True)
    for lane, colour in colours.items():
        down(lane, y["x"] + long, y["flat"], f"{lane}_proj", colour)
        _bars(ax, at[lane].flatten(), lanes[lane], y["flat"], H, flat)
        heads = f"{at[lane].shape[0]} heads"
        down(lane, y["flat"] + flat, y["cut"], heads if narrow else f"{heads} of {H}", colour)
        cells(lane, lane, "cut", cell)
    named("flat", "projected", f"[{N * H}], [{K * H}], [{K * H}]")
    named("cut", "q, k, v", f"[{N}, {H}], [{K}, {H}], [{K}, {H}]")
    # norm and rotation, of queries and keys alone
    for before, row, what, name in (("cut", "norm", "norm", "normalised"), ("norm", "rot", "rotate", "rotated")):
        for lane, count in (("q", N), ("k", K)):
            down(lane, y[before] + count * cell, y[row], what)
            cells(lane, f"{lane}_{row}", row, cell)
        named(row, f"q, k {name}", f"[{N}, {H}], [{K}, {H}]")
    down("v", y["cut"] + K * cell, y["heads"], "v stays\nas it is", VALUE)
    # core attention: a row of weights for each head, and beside it what that head mixes
    names_top = y["heads"] - words
    down("q", y["rot"] + N * cell, names_top, "" if narrow else "core attention", QUERY)
    down("k", y["rot"] + K * cell, names_top, "core\nattention" if narrow else "", KEY)
    each = span / T
    shades = [[document(int(s)) for s in segments]] * N
    grid(ax, 100 * at["weights"], shown=allowed.expand(N, T), cell_colours=shades, vmax=100, at=(0, y["heads"]),
         cell=(each, tall), numbers=False if narrow else ".0f", fontsize=7, fit=False, gap=0.04)  # fmt: skip
    for j, word in enumerate(labels):
        seen = bool(allowed[j])
        look: dict[str, Any] = {"ha": "center", "va": "bottom", "rotation": 90, "alpha": 1.0 if seen else 0.5}
        colour = document(int(segments[j])) if seen else MUTED
        label(ax, (j + 0.5) * each, y["heads"] - 0.6, word, colour, lit=j == token, fontsize=small - 1, **look)
    middle = y["heads"] + high["heads"] / 2
    arrow(ax, (span + 0.6, middle), (lanes["v"] - 0.6, middle))
    cells("v", "heads", "heads", tall)
    named("heads", "weights, heads", f"[{N}, {T}] in %, [{N}, {H}]")
    # side by side, and out
    down("v", y["heads"] + high["heads"], y["side"], "heads side by side", ha="right")
    strip("side", at["heads"].flatten(), lit=False)
    edges = [n * wide / N for n in range(1, N)]
    _lines(ax, [(x, y["side"], x, y["side"] + long) for x in edges], MUTED, 0.7, ls=(0, (2, 2)))
    named("side", "concatenated", f"[{N * H}]")
    down("v", y["side"] + long, y["out"], "o_proj", ha="right")
    strip("out", at["out"], lit=True)
    named("out", "out", f"[{D}]")
    return fig


# Cutting into heads --------------------------------------------------------------------------------------------------


def view_figure(right: Tensor, wrong: Tensor, segments: Tensor, lit: int) -> Shown:
    """Which token's slice stands at each head [N] and place [T] of q: after view and transpose, and after view alone.

    right, wrong: whole numbers [N, T], each the token that a slice of H numbers came from.
    """
    N, T = right.shape
    made = []
    for width, height, size in ((5.6, 4.7, 8.0), (NARROW, 3.6, 7.0)):
        fig, axes = panels(width, height, 2, 1, left=0.0, right=1.0, top=0.86, bottom=0.0, hspace=0.42)
        for ax, origin, title, below in (
            (axes[0], right, "view, then transpose", "each row is one head, token by token"),
            (axes[1], wrong, "view alone: the same shape", "each row is a few tokens, head by head"),
        ):
            limits(ax, -2.4, T + 0.1, -0.1, N + 0.1)
            colours = [[document(int(segments[t])) for t in row] for row in origin.tolist()]
            strength = torch.where(origin == lit, 1.0, 0.55)
            grid(ax, strength, cell_colours=colours, vmax=2.0, numbers=False, fit=False)
            for i in range(N):
                label(ax, -0.25, i + 0.5, f"head {i}", QUERY, ha="right", fontsize=7 if width == NARROW else 8.5)
                for j in range(T):
                    own = int(origin[i, j]) == lit
                    label(ax, j + 0.5, i + 0.5, str(int(origin[i, j])), INK, ha="center", lit=own, fontsize=size)
                    if own:
                        lit_box(ax, j + 0.06, i + 0.06, 0.88, 0.88)
            heading(ax, title, below)
        made.append(fig)
    places = [(i, (line == lit).nonzero().flatten().tolist()) for i, line in enumerate(wrong)]
    runs = " and ".join(f"head {i}, places {at[0]} to {at[-1]}" for i, at in places if at)
    alt = (
        f"Two grids of {N} heads by {T} places; a cell names the token whose slice stands there. Above, every row "
        f"counts from 0 to {T - 1} and token {lit} is one column. Below, token {lit} is at {runs}."
    )
    return show(made[0], alt, narrow=made[1])


# QK-norm -------------------------------------------------------------------------------------------------------------


def norm_figure(factors: Sequence[float], plain: Sequence[float], normed: Sequence[float], bound: float) -> Shown:
    """The largest |score| by what q_proj and k_proj are multiplied by: without the norms, with them, and the bound."""
    made = []
    for width, right in ((4.9, 0.72), (NARROW, 0.66)):
        fig, ax = panels(width, 3.1, bare=False, left=0.12, right=right, top=0.84, bottom=0.15)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=10)
        ax.axhline(bound, color=MUTED, lw=0.8, ls=(0, (3, 3)))
        for values, colour, name in ((plain, NEGATIVE, "without"), (normed, POSITIVE, "with QK-norm")):
            ax.plot(factors, values, color=colour, marker="o", ms=3)
            end_label(ax, factors[-1], values[-1], f"{name}\n{_digits(values[-1])}", colour)
        end_label(ax, factors[-1], bound, f"the bound\n{_digits(bound)}", MUTED)
        ax.set_xticks(factors, [f"{f:g}" for f in factors])
        ticks = [10**e for e in range(math.floor(math.log10(min(normed))), math.ceil(math.log10(max(plain))) + 1)]
        ax.set_yticks(ticks, [f"{t:,}" for t in ticks])
        ax.minorticks_off()
        ax.set_xlabel("q_proj and k_proj multiplied by")
        heading(ax, "The largest score", "all heads, all pairs of the row")
        made.append(fig)
    alt = (
        f"Two curves on logarithmic axes. With the weights of queries and keys times {factors[-1]:g} the largest score "
        f"is {_digits(plain[-1])} without norms and {_digits(normed[-1])} with them, under a bound of {_digits(bound)}."
    )
    return show(made[0], alt, narrow=made[1])


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


# Who shares which key ------------------------------------------------------------------------------------------------


def groups_figure(right: Sequence[int], wrong: Sequence[int]) -> Shown:
    """Query heads above, key heads below, a line for each that is read: by repeat_interleave and by repeat."""
    made = []
    for inches, height, rows, columns in ((5.6, 2.3, 1, 2), (NARROW, 3.9, 2, 1)):
        fig, axes = panels(inches, height, rows, columns, left=0.01, right=0.99, top=0.8 if rows == 1 else 0.88,
                           bottom=0.0, wspace=0.12, hspace=0.45)  # fmt: skip
        for ax, reads, title, below in (
            (axes[0], right, "repeat_interleave", "head n reads n // G"),
            (axes[1], wrong, "repeat", f"wrong in {sum(a != b for a, b in zip(right, wrong, strict=True))} heads"),
        ):
            N, K = len(reads), max(reads) + 1
            limits(ax, -2.2, N + 0.1, -0.2, 4.4)
            spots = [(N / K) * (k + 0.5) for k in range(K)]
            for n, k in enumerate(reads):
                colour, width, style = (MUTED, 1.0, "-") if k == right[n] else (LIT, 1.6, "--")
                _lines(ax, [(n + 0.5, 1.0, spots[k], 3.2)], colour, width, zorder=1, ls=style)
            _heads(ax, [n + 0.5 for n in range(N)], 0.1, QUERY, 0.86)
            _heads(ax, spots, 3.2, KEY, 0.86)
            label(ax, -0.2, 0.53, "query", QUERY, ha="right")
            label(ax, -0.2, 3.63, "key", KEY, ha="right")
            heading(ax, title, below)
        made.append(fig)
    off = [n for n, (a, b) in enumerate(zip(right, wrong, strict=True)) if a != b]
    alt = (
        f"{len(right)} query heads over {max(right) + 1} key heads, twice. With repeat_interleave they read key heads "
        f"{', '.join(map(str, right))}; with repeat {', '.join(map(str, wrong))}, which is wrong in heads "
        f"{', '.join(map(str, off))}."
    )
    return show(made[0], alt, narrow=made[1])


def _heads(ax: Axes, middles: Sequence[float], y: float, colour: str, size: float) -> None:
    """A row of heads as numbered squares."""
    _fill(ax, [(x - size / 2, y, size, size) for x in middles], PAPER)
    _fill(ax, [(x - size / 2, y, size, size) for x in middles], colour, 0.4)
    for i, x in enumerate(middles):
        label(ax, x, y + size / 2, str(i), INK, ha="center", zorder=3)


def _sharing(ax: Axes, N: int, K: int, y: float, lit: int | None = None, gap: float = 4.0) -> None:
    """N query heads, one unit each; below them K key heads and K value heads of the same size; who reads which."""
    group = N // K
    spots = [group * (k + 0.5) for k in range(K)]
    shared = None if lit is None else lit // group
    lines = [(n + 0.5, y + 1, spots[n // group], y + 1 + gap) for n in range(N)]
    _lines(ax, [e for n, e in enumerate(lines) if n // group != shared], MUTED, 0.5, zorder=1)
    if lit is not None:
        _lines(ax, [e for n, e in enumerate(lines) if n // group == shared and n != lit], INK, 0.9, zorder=1)
        _lines(ax, [lines[lit]], LIT, 1.8, zorder=3)
    for colour, top, middles, chosen in (
        (QUERY, y, [n + 0.5 for n in range(N)], [n for n in range(N) if shared is not None and n // group == shared]),
        (KEY, y + 1 + gap, spots, [] if shared is None else [shared]),
        (VALUE, y + 2.1 + gap, spots, [] if shared is None else [shared]),
    ):
        boxes = [(x - 0.43, top + 0.07, 0.86, 0.86) for x in middles]
        _fill(ax, boxes, PAPER)
        plain = [b for i, b in enumerate(boxes) if lit is not None and i not in chosen]
        _fill(ax, plain, colour, 0.35)
        _fill(ax, [b for i, b in enumerate(boxes) if lit is None or i in chosen], colour, 1.0)
    for name, colour, top in (("q", QUERY, y), ("k", KEY, y + 1 + gap), ("v", VALUE, y + 2.1 + gap)):
        label(ax, -0.4, top + 0.5, name, colour, ha="right")
    if lit is not None and shared is not None:
        lit_box(ax, lit, y, 1, 1)
        lit_box(ax, spots[shared] - 0.5, y + 1 + gap, 1, 2.1)


def kinds_figure(config: Config, counts: Mapping[str, int]) -> Shown:
    """Multi-head, grouped-query and multi-query attention at one size: who shares what, parameters and cache bytes.

    counts: a name and its number of KV heads, in the order shown.
    """
    N = config.n_heads
    made = []
    for narrow in (False, True):
        width, height = (NARROW, 5.3) if narrow else (WIDE, 4.6)
        fig, axes = panels(width, height, len(counts), 1, left=0.0, right=1.0, top=0.94 if not narrow else 0.955,
                           bottom=0.075 if narrow else 0.0, hspace=0.82 if narrow else 0.3)  # fmt: skip
        for ax, (name, K) in zip(axes, counts.items(), strict=True):
            changed = replace(config, n_kv_heads=K)
            limits(ax, -1.8, N + 0.1 if narrow else N + 16.5, -0.1, 7.0)
            ax.set_anchor("W")
            _sharing(ax, N, K, 0.0, gap=3.6)
            facts = [
                (f"{accounting.kv_bytes_per_token_per_layer(changed):,} B", "of cache a token and layer"),
                (f"{accounting.layer_parameters(changed).attention:,}", "parameters a layer"),
            ]
            for i, (figure, what) in enumerate(facts):
                if narrow:
                    label(ax, 0, 8.6 + 1.75 * i, figure, INK, lit=True)
                    label(ax, N + 0.1, 8.6 + 1.75 * i, what, ha="right")
                else:
                    label(ax, N + 1.4, 1.3 + 3.3 * i, figure, INK, lit=True, fontsize=10)
                    label(ax, N + 1.4, 2.6 + 3.3 * i, what)
            heads = "1 KV head" if K == 1 else f"{K} KV heads"
            heading(ax, f"{name}: {heads}")
        made.append(fig)
    said = [
        f"{name}, {K} key heads: {accounting.kv_bytes_per_token_per_layer(replace(config, n_kv_heads=K)):,} bytes"
        for name, K in counts.items()
    ]
    alt = f"{N} query heads over their key and value heads, a line for each that is read. " + "; ".join(said) + "."
    return show(made[0], alt, narrow=made[1])


# The sum of the heads ------------------------------------------------------------------------------------------------


def sum_figure(parts: Tensor, out: Tensor) -> Shown:
    """What each head adds to the followed token, [N, D], and their sum beside the output [D]: every number a bar."""
    N, D = parts.shape
    total = parts.sum(0)
    top = float(out.abs().max())
    made = []
    for width, height, left in ((WIDE, 3.6, 0.14), (NARROW, 3.4, 0.26)):
        fig, ax = panels(width, height, left=left, right=0.995, top=0.87, bottom=0.01)
        limits(ax, -0.1, D + 0.1, -0.1, N + 4.1, equal=False)
        for n in range(N):
            _bars(ax, parts[n], 0, n, D, 1, top / 2)
            label(ax, -0.02 * D, n + 0.5, f"head {n}", QUERY, ha="right")
        for i, (name, vector) in enumerate((("their sum", total), ("o_proj of all", out))):
            y = N + 0.25 + 1.95 * i
            glow(ax, 0, y, D, 1.8)
            lit_box(ax, 0, y, D, 1.8)
            _bars(ax, vector, 0, y, D, 1.8, top)
            label(ax, -0.02 * D, y + 0.9, name, INK, ha="right", lit=True)
        heading(ax, "What each head adds", f"all {D} numbers, to one scale")
        made.append(fig)
    apart = float((total - out).abs().max())
    alt = (
        f"{N} rows of bars, one a head, of what it adds to the output through its own part of o_proj; below them their "
        f"sum and the projection of all heads at once, which look the same: they differ by {apart:.0e}."
    )
    return show(made[0], alt, narrow=made[1])


# What heads look at --------------------------------------------------------------------------------------------------


def looks_figure(looks: Mapping[str, Look], layer_types: Sequence[str]) -> Shown:
    """Every head's share of weight on each pattern, in percent: layers down, heads across, the even share beside it."""
    strongest = max(float(look.share.nan_to_num(0).max()) for look in looks.values())
    made = []
    for width, each, columns in ((WIDE, 2.43, 2), (NARROW, 2.32, 1)):
        rows = -(-len(looks) // columns)
        height = each * rows
        fig, _ = panels(width, height, rows, columns, left=0.105 if columns == 2 else 0.2,
                           right=0.995 if columns == 2 else 0.985, top=1 - 0.513 / height,
                           bottom=0.005, wspace=0.3, hspace=0.32 if columns == 2 else 0.33)  # fmt: skip
        for ax, (name, look) in zip(fig.axes, looks.items(), strict=False):
            _looks(ax, name, look, layer_types, strongest)
        made.append(fig)
    said = []
    for name, look in looks.items():
        share = look.share.nan_to_num(-1)
        layer, head = divmod(int(share.argmax()), share.shape[1])
        even = float(look.even[layer])
        said.append(f"{name}: at most {float(share.max()):.1%}, in layer {layer}, head {head} (even {even:.1%})")
    alt = "Grids of layers by heads, percent of weight on each pattern. " + "; ".join(said) + "."
    return show(made[0], alt, narrow=made[1])


def _looks(ax: Axes, name: str, look: Look, layer_types: Sequence[str], strongest: float) -> None:
    L, N = look.share.shape
    limits(ax, -0.05, N + 1.75, -0.1, L * 0.62 + 0.05)
    colours = [[KIND[kind]] * N for kind in layer_types]
    size = (1, 0.62)
    grid(ax, 100 * look.share, cell_colours=colours, vmax=100 * strongest, numbers=".1f", fontsize=7.5, cell=size,
         fit=False, gap=0.04)  # fmt: skip
    for i, kind in enumerate(layer_types):
        label(ax, -0.2, 0.62 * (i + 0.5), f"{kind} {i}", KIND[kind], ha="right", fontsize=7.5)
        even = f"{100 * float(look.even[i]):.1f}" if look.queries[i] else "–"
        label(ax, N + 1.6, 0.62 * (i + 0.5), even, MUTED, ha="right", fontsize=7.5)
    for n in range(N):
        label(ax, n + 0.5, -0.2, str(n), ha="center", va="bottom", fontsize=7.5)
    label(ax, N + 1.6, -0.2, "even", ha="right", va="bottom", fontsize=7.5)
    heading(ax, name[0].upper() + name[1:])
    ax.texts[-1].set_position((0, 18))


def followers_figure(
    found: Mapping[str, Head],
    rows: Mapping[str, tuple[int, Tensor, Tensor]],
    labels: Sequence[str],
    layer_types: Sequence[str],
) -> Shown:
    """The head found for each pattern, at one query of the row: its weight on every key; the named keys in colour.

    found: by `rnj.lab.heads.followers`; rows: for each pattern the query, its weights [S] and the named keys [S], bool.
    """
    made, told = [], []
    for width, left in ((WIDE, 0.25), (NARROW, 0.02)):
        narrow = width == NARROW
        each = 1.0 if narrow else 0.62
        fig, _ = panels(width, each * len(found) + 0.35, len(found), 1, left=left, right=0.985, hspace=0.0,
                           top=1 - 0.1 / (each * len(found)), bottom=0.02)  # fmt: skip
        for ax, (name, head) in zip(fig.axes, found.items(), strict=True):
            query, weights, named = rows[name]
            S = len(labels)
            limits(ax, 0, S, -0.75 if narrow else -0.25, 1.35, equal=False)
            top = float(weights.max())
            boxes = [(j, 1 - float(w) / top, 1.0, float(w) / top) for j, w in enumerate(weights) if w > 0.004 * top]
            least = max(1.0, S / 200)  # wide enough to be seen
            lit = [(x + (1 - least) / 2, y, least, h) for x, y, _, h in boxes if named[int(x)]]
            _fill(ax, [box for box in boxes if not named[int(box[0])]], MUTED)
            _fill(ax, lit, KEY)
            _lines(ax, [(0, 1, S, 1)], MUTED, 0.6)
            _lines(ax, [(j + 0.5, 1.02, j + 0.5, 1.14) for j in named.nonzero().flatten().tolist()], KEY, 1.0)
            _lines(ax, [(query + 0.5, 0.5, query + 0.5, 1.0)], INK, 1.0)
            side, away = ("right", -0.007) if query > 0.4 * S else ("left", 0.01)
            label(ax, query + 0.5 + away * S, 0.6, f"{labels[query]} at {query}", INK, ha=side, fontsize=7.5)
            best = int(weights.argmax())
            kind = layer_types[head.layer]
            said = f"{kind} {head.layer}, head {head.head}"
            share = f"{100 * head.share:.1f} %, even {100 * head.even:.1f} %"
            if narrow:
                label(ax, 0, -0.5, name, INK, lit=True, fontsize=8)
                label(ax, S, -0.5, f"{said}: {share}", KIND[kind], ha="right", fontsize=7.5)
            else:
                label(ax, -0.335 * S, 0.2, name, INK, lit=True)
                label(ax, -0.335 * S, 0.62, said, KIND[kind], fontsize=8)
                label(ax, -0.335 * S, 1.0, share, MUTED, fontsize=8)
            told.append(f"{name}: {said}, {share}; {labels[query]} looks most at {labels[best]}")
        made.append(fig)
    alt = "A strip for each pattern, a bar for each key of the row. " + ". ".join(told[: len(found)]) + "."
    return show(made[0], alt, narrow=made[1])


# Steppers ------------------------------------------------------------------------------------------------------------


def kv_heads_stepper(config: Config = RNJ_1_5) -> Stepper:
    """The number of KV heads and a query head → which queries share its key, and what the layer costs."""
    N = config.n_heads
    most = replace(config, n_kv_heads=N)
    window = config.max_positions

    def draw(kv_heads: int, query_head: int) -> Frame:
        changed = replace(config, n_kv_heads=kv_heads)
        group = changed.group
        shared = query_head // group
        readers = range(shared * group, (shared + 1) * group)
        cache = accounting.kv_bytes_per_token_per_layer(changed)
        weights = accounting.layer_parameters(changed).attention
        fig, ax = panels(3.6, 3.0, left=0.0, right=1.0, top=1.0, bottom=0.0)
        limits(ax, -1.9, N + 0.3, -3.6, 24.2)
        kind = {N: "multi-head", 1: "multi-query"}.get(kv_heads, "grouped-query")
        label(ax, 0, -2.6, f"{kind[0].upper()}{kind[1:]} attention", INK, fontsize=10, lit=True)
        label(ax, min(max(query_head + 0.5, 1), N - 1), -0.6, str(query_head), LIT, ha="center", lit=True)
        _sharing(ax, N, kv_heads, 0.2, query_head, gap=5.0)
        middle = group * (shared + 0.5)
        label(ax, min(max(middle, 1), N - 1), 9.3, str(shared), LIT, ha="center", lit=True)
        bars = [
            ("cache, bytes a token and layer", cache, accounting.kv_bytes_per_token_per_layer(most), KEY),
            ("attention parameters a layer", weights, accounting.layer_parameters(most).attention, POSITIVE),
        ]
        for i, (name, value, full, colour) in enumerate(bars):
            y = 12.6 + 5.8 * i
            label(ax, 0, y, name)
            label(ax, N, y, f"{value:,}", INK, ha="right", lit=True)
            _fill(ax, [(0, y + 1.3, N, 1.9)], FAINT)
            _fill(ax, [(0, y + 1.3, N * value / full, 1.9)], colour)
        others = "alone" if group == 1 else f"and so do {group - 1} others: heads {readers[0]} to {readers[-1]}"
        return Frame(
            fig,
            text=f"Query head {query_head} reads key and value head {shared}, {others}.",
            numbers={
                "key head read": shared,
                "query heads a key": group,
                "cache, bytes a token and layer": cache,
                f"cache of {window:,} tokens, GiB": accounting.kv_cache_bytes(changed, window) / GIB,
                "attention parameters a layer": weights,
            },
            alt=f"{N} query heads over {kv_heads} key and value heads; query head {query_head} reads {shared}, "
            f"as heads {readers[0]} to {readers[-1]} do.",
        )

    controls: list[Slider | Choice] = [
        Slider("kv_heads", [k for k in (1, 2, 4, 8, 16, 32) if N % k == 0], value=config.n_kv_heads, label="KV heads"),
        Slider("query_head", [0, 5, 9, 14, 18, 23, 27, 31], value=9, label="query head", live_step=1),
    ]
    return Stepper("How many key and value heads", controls, draw, name="kv-heads")


def looks_stepper(model: Transformer | None = None, token: int | None = None) -> Stepper:
    """Layer and head → one token's weights over the running row.

    By default the book's small model, and the token that the book follows.
    """
    model = example.small_model() if model is None else model
    row, token = example.row(), example.FOLLOWED if token is None else token
    names, segments = example.labels(row), row.segments[0]
    trace = model.trace(row.tokens, row.positions, row.segments)
    config = model.config
    T = len(names)

    def draw(layer: int, head: int) -> Frame:
        at = f"block.{layer}.attn"
        weights, seen = trace[f"{at}.weights"][0, head, token], trace[f"{at}.allowed"][0, token]  # [S]
        kind = config.layer_types[layer]
        fig, ax = panels(3.6, 3.6, left=0.0, right=1.0, top=1.0, bottom=0.0)
        limits(ax, -4.4, 13.6, -3.4, T + 0.4)
        label(ax, -4.2, -2.6, f"{names[token]}, layer {layer}, head {head}", INK, fontsize=10, lit=True)
        label(ax, 13.4, -2.6, f"{kind}; key head {head // config.group}", KIND[kind], ha="right", fontsize=8)
        even, wide = 1 / int(seen.sum()), 10.0
        glow(ax, -4.3, token, 17.7, 1)
        for j, word in enumerate(names):
            visible, colour = bool(seen[j]), document(int(segments[j]))
            label(ax, -0.3, j + 0.5, word, colour if visible else MUTED, ha="right", lit=j == token,
                  alpha=1.0 if visible else 0.45)  # fmt: skip
            if visible:
                share = float(weights[j])
                _fill(ax, [(0, j + 0.14, wide * share, 0.72)], colour)
                label(ax, 13.2, j + 0.5, f"{100 * share:.1f} %", INK, ha="right", lit=j == token, fontsize=8)
        lit_box(ax, -4.3, token, 17.7, 1)
        first = int(seen.int().argmax())
        _lines(ax, [(0, 0, 0, T)], MUTED, 0.6)
        end = token + 1.4
        _lines(ax, [(wide * even, first, wide * even, end)], MUTED, 0.9, ls=(0, (3, 2)), zorder=3)
        label(ax, wide * even + 0.2, end + 0.1, f"even: {100 * even:.1f} %", MUTED, fontsize=8)
        best = int(weights.argmax())
        entropy = -float((weights[seen] * weights[seen].clamp_min(1e-30).log()).sum())
        return Frame(
            fig,
            text=f"Head {head} of layer {layer} ({kind}): {names[token]} looks most at “{names[best]}”, row {best}.",
            numbers={
                "largest weight": weights[best],
                "weight on itself": weights[token],
                "weight on begin": weights[first],
                "keys it spreads over, exp(entropy)": math.exp(entropy),
            },
            alt=f"Bars: the weights of {names[token]} in layer {layer}, head {head}; the largest, "
            f"{number(100 * float(weights[best]), '.1f')} %, on {names[best]}.",
        )

    controls: list[Slider | Choice] = [
        Slider("layer", range(config.n_layers), value=3),
        Slider("head", range(config.n_heads), value=5),
    ]
    return Stepper("What a head looks at, on the running row", controls, draw, name="head-looks")


STEPPERS = {"kv-heads": kv_heads_stepper, "head-looks": looks_stepper}
