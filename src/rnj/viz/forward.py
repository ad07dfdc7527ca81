"""The figures and steppers of chapter 1: merges, packed rows, the embedding, the block, the head, sampling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, PathPatch
from matplotlib.path import Path
from torch import Tensor

from rnj import example
from rnj.generate import probabilities
from rnj.text import NO_TARGET, Packed, Tokenizer, load_tokenizer, pack
from rnj.viz.card import at_token
from rnj.viz.figure import (
    NARROW,
    WIDE,
    Shown,
    arrow,
    glow,
    grid,
    label,
    limits,
    lit_box,
    number,
    panels,
    show,
    vector_strip,
)
from rnj.viz.palette import DOC1, FAINT, INK, LIT, MUTED, PAPER, POSITIVE, document
from rnj.viz.stepper import Choice, Frame, Slider, Stepper, shown

CHIP = 0.3  # the opacity of a document's colour behind a token: ink reads on it in both themes


def _rectangles(
    ax: Axes, boxes: Sequence[tuple[float, float, float, float]], colour: str, strength: float, zorder: float = 1
) -> None:
    """Many rectangles of one colour as one path."""
    if not boxes:
        return
    points = [p for x, y, w, h in boxes for p in ((x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y))]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(boxes)
    look: Any = {"facecolor": colour, "alpha": strength, "edgecolor": "none", "linewidth": 0, "clip_on": False}
    ax.add_patch(PathPatch(Path(points, codes), zorder=zorder, **look))


def _visible(text: str) -> str:
    """Text as one line: a blank as ·, a line's end as ↵, as figures show tokens."""
    return text.replace(" ", "·").replace("\n", "↵").replace("\t", "→")


# From text to a row ---------------------------------------------------------------------------------------------------


def merges_figure(steps: Sequence[Sequence[str]], merges: Sequence[tuple[str, str, int]]) -> Shown:
    """One text cut into tokens, after 0, 1, 2 … merges (first, second, times): steps[i] is cut by merges[:i].

    The token that a line's merge made is drawn in full colour.
    """
    said = [f"{len(steps[0])} bytes"]
    for tokens, (a, b, times) in zip(steps[1:], merges, strict=True):
        said.append(f"{_visible(a)} + {_visible(b)}, side by side {times} times: {len(tokens)} tokens")
    wide, narrow = (_merges(steps, merges, said, width) for width in (WIDE, NARROW))
    return show(wide, "Merges, line by line. " + ". ".join(said) + ".", narrow=narrow)


def _merges(
    steps: Sequence[Sequence[str]], merges: Sequence[tuple[str, str, int]], said: Sequence[str], width: float
) -> Figure:
    letters = sum(len(t) for t in steps[0])
    high, pace = (0.95, 1.75) if width == WIDE else (1.15, 2.7)
    tall = pace * len(steps) - (pace - high) + 0.9
    fig, ax = panels(width, (width - 0.1) * tall / letters, left=0.05 / width, right=1 - 0.05 / width, top=1, bottom=0)
    limits(ax, 0, letters, -0.85, tall - 0.85)
    size = 10 if width == WIDE else 8.5
    for i, tokens in enumerate(steps):
        new = "" if i == 0 else merges[i - 1][0] + merges[i - 1][1]
        x, y = 0.0, pace * i
        pale: list[tuple[float, float, float, float]] = []
        strong: list[tuple[float, float, float, float]] = []
        for t in tokens:
            (strong if t == new else pale).append((x + 0.05, y, len(t) - 0.1, high))
            for j, letter in enumerate(_visible(t)):
                label(ax, x + j + 0.5, y + high / 2, letter, INK, ha="center", fontsize=size, lit=t == new)
            x += len(t)
        _rectangles(ax, pale, DOC1, 0.14)
        _rectangles(ax, strong, DOC1, 0.45)
        label(ax, 0.05, y - 0.42, said[i], INK if i else MUTED, fontsize=8.5)
    return fig


def packing_figure(packed: Packed, labels: Sequence[str], texts: Sequence[str], lit: int) -> Shown:
    """A row of `packed`: the documents' texts, then tokens, ids, positions, segments and targets by place."""
    targets = _target_labels(packed, labels)
    count = int((packed.targets[0] != NO_TARGET).sum())
    alt = (
        f"A packed row of {len(labels)} places: the tokens {', '.join(labels)}. Positions "
        f"{packed.positions[0].tolist()}, segments {packed.segments[0].tolist()}. {count} places have a target; "
        f"place {lit}, {labels[lit]}, is lit and has the target {targets[lit]}."
    )
    return show(_packing_wide(packed, labels, texts, targets, lit), alt, narrow=_packing_narrow(packed, labels, lit))


def _target_labels(packed: Packed, labels: Sequence[str], row: int = 0) -> list[str]:
    """A target's shown form: the next place's token, or a dash where there is none."""
    return ["–" if t == NO_TARGET else labels[i + 1] for i, t in enumerate(packed.targets[row].tolist())]


def _packing_wide(
    packed: Packed, labels: Sequence[str], texts: Sequence[str], targets: Sequence[str], lit: int
) -> Figure:
    T = len(labels)
    segments = packed.segments[0].tolist()
    side = 1.85
    fig, ax = panels(WIDE, WIDE * 9.4 / (T + side + 0.1), left=0, right=1, top=1, bottom=0)
    limits(ax, -side, T + 0.1, -3.3, 6.1)
    for s, text in enumerate(texts, start=1):
        first, last = segments.index(s), T - 1 - segments[::-1].index(s)
        middle = (first + last + 1) / 2
        label(ax, first + 0.06, -2.85, f"document {s}", document(s), lit=True)
        for j, line in enumerate(text.splitlines()):
            label(ax, first + 0.06, -2.1 + 0.62 * j, line.replace(" ", "\u2007") if j else line, INK, fontsize=9)
        xs, ys = [first + 0.06, first + 0.06, last + 0.94, last + 0.94], [-0.25, -0.45, -0.45, -0.25]
        ax.plot(xs, ys, color=document(s), lw=0.9, clip_on=False)
        arrow(ax, (middle, -0.75), (middle, -0.5), document(s))
    rows = [
        ("token", list(labels)),
        ("id", [str(i) for i in packed.tokens[0].tolist()]),
        ("position", [str(i) for i in packed.positions[0].tolist()]),
        ("segment", [str(i) for i in segments]),
        ("target", list(targets)),
    ]
    tops = [0.0, 1.1, 2.15, 3.2, 4.25]
    glow(ax, lit, 0, 1, 5.25)
    for (name, words), top in zip(rows, tops, strict=True):
        label(ax, -0.2, top + 0.5, name, INK, ha="right", fontsize=9)
        _lane(ax, words, segments, top, lit, strong=name == "token")
    lit_box(ax, lit, 0, 1, 5.25)
    for i in range(T):
        label(ax, i + 0.5, 5.62, str(i), LIT if i == lit else MUTED, ha="center", fontsize=7.5, lit=i == lit)
    label(ax, -0.2, 5.62, "place", MUTED, ha="right", fontsize=9)
    return fig


def _lane(ax: Axes, words: Sequence[str], segments: Sequence[int], top: float, lit: int, strong: bool) -> None:
    """One quantity of every place, side by side in the documents' colours."""
    for s in sorted(set(segments)):
        boxes = [(i + 0.04, top + 0.03, 0.92, 0.94) for i in range(len(words)) if segments[i] == s and words[i] != "–"]
        _rectangles(ax, [box for box in boxes if int(box[0]) == lit], PAPER, 1.0)
        _rectangles(ax, boxes, document(s), CHIP if strong else 0.13)
    for i, word in enumerate(words):
        shade = MUTED if word == "–" or segments[i] == 0 else INK
        label(ax, i + 0.5, top + 0.52, word, shade, ha="center", fontsize=7.0 if i == lit else 7.8, lit=i == lit)


def _packing_narrow(packed: Packed, labels: Sequence[str], lit: int) -> Figure:
    fig, ax = panels(NARROW, 4.3, left=0, right=1, top=1, bottom=0)
    limits(ax, 0, 13, -1.4, len(labels) + 0.3, equal=False)
    _table(ax, packed, labels, 0, 0.0, lit, ids=True)
    return fig


def _table(ax: Axes, packed: Packed, labels: Sequence[str], row: int, left: float, lit: int | None, ids: bool) -> None:
    """A row of `packed`, one line a place: token, id if asked, position, segment, target: 12.5 or 8.5 wide."""
    T = packed.tokens.shape[1]
    segments, targets = packed.segments[row].tolist(), _target_labels(packed, labels, row)
    parts = [("token", list(labels), 2.6)]
    if ids:
        parts.append(("id", [str(i) for i in packed.tokens[row].tolist()], 2.2))
    parts.append(("position" if ids else "pos.", [str(i) for i in packed.positions[row].tolist()], 2.6 if ids else 1.7))
    parts.append(("segment" if ids else "seg.", [str(i) for i in segments], 2.5 if ids else 1.6))
    parts.append(("target", targets, 2.6))
    total = sum(w for _, _, w in parts)
    if lit is not None:
        glow(ax, left, lit, total, 1)
    x = left
    for name, words, w in parts:
        label(ax, x + w / 2, -0.6, name, INK, ha="center", fontsize=8)
        for s in sorted(set(segments)):
            boxes = [(x + 0.06, i + 0.05, w - 0.12, 0.9) for i in range(T) if segments[i] == s and words[i] != "–"]
            _rectangles(ax, [box for box in boxes if int(box[1]) == lit], PAPER, 1.0)
            _rectangles(ax, boxes, document(s), CHIP if name == "token" else 0.13)
        for i, word in enumerate(words):
            shade = MUTED if word == "–" or segments[i] == 0 else INK
            label(ax, x + w / 2, i + 0.52, word, shade, ha="center", fontsize=7.5, lit=i == lit)
        x += w
    if lit is not None:
        lit_box(ax, left, lit, total, 1)


# From ids to vectors --------------------------------------------------------------------------------------------------


PIECES = ("prefix", "middle", "suffix")  # in reading order; in the row the suffix comes before the middle


def fim_figure(packed: Packed, labels: Sequence[str], texts: Sequence[str]) -> Shown:
    """A packed row whose last document was cut for fill-in-the-middle: the text in reading order, the row, its targets.

    packed: [1, T]; labels: the row's tokens, special ones by short names; texts: prefix, middle and suffix.
    Raises ValueError where the row does not hold fim_prefix, fim_suffix and fim_middle, in this order.
    """
    marks = [f"fim_{piece}" for piece in ("prefix", "suffix", "middle")]
    if [label_ for label_ in labels if label_ in marks] != marks:
        raise ValueError(f"the row must hold {', '.join(marks)}, in this order")
    at = {mark.removeprefix("fim_"): labels.index(mark) for mark in marks}
    targets = _target_labels(packed, labels)
    alt = (
        f"The text “{_visible(texts[0])}”, gap “{_visible(texts[1])}”, “{_visible(texts[2])}” becomes the row "
        f"{', '.join(labels)}. The targets are {', '.join(targets)}."
    )
    wide, narrow = (_fim(packed, labels, texts, targets, at, width) for width in (WIDE, NARROW))
    return show(wide, alt, narrow=narrow)


def _fim(
    packed: Packed, labels: Sequence[str], texts: Sequence[str], targets: Sequence[str], at: Mapping[str, int],
    width: float,
) -> Figure:  # fmt: skip
    segments = packed.segments[0].tolist()
    last = max(segments)
    unit = 0.094 if width == WIDE else 0.1  # inches a letter
    fig, ax = panels(width, 2.95 if width == WIDE else 4.6, left=0, right=1, top=1, bottom=0)
    limits(ax, 0, width / unit, 0.6, 0.6 + fig.get_figheight() / unit, equal=False)
    x, spots = 1.0, {}
    label(ax, 1, 1.6, "in the editor", MUTED)
    for piece, text in zip(PIECES, texts, strict=True):
        wide = 0.9 * len(_visible(text)) + 1.2
        _rectangles(ax, [(x, 2.9, wide, 2.6)], document(last), 0.14 if piece != "middle" else 0.4)
        if piece == "middle":
            lit_box(ax, x, 2.9, wide, 2.6)
        label(ax, x + wide / 2, 4.25, _visible(text), INK, ha="center", lit=piece == "middle")
        label(ax, x + wide / 2, 6.5, piece, document(last), ha="center", fontsize=8)
        spots[piece] = (x + wide / 2, 7.4)
        x += wide + 0.4
    cut = segments.index(last)  # one line for the last document, on a phone three
    rows = [range(cut), range(cut, len(segments) - segments[::-1].index(last))]
    if width != WIDE:
        stops = [cut, at["suffix"], at["middle"], rows[1].stop]
        rows[1:] = [range(a, b) for a, b in itertools.pairwise(stops)]
    starts = (22.6, 11.5) if width == WIDE else (39.0, 11.5, 20.0, 28.5)
    middle = range(at["middle"] + 1, len(labels) - 1)
    for top, row in zip(starts, rows, strict=False):
        x = 1.0
        for i in row:
            shown_ = labels[i].removeprefix("fim_") if labels[i].startswith("fim_") else labels[i]
            target = targets[i].removeprefix("fim_")
            wide = 0.78 * max(len(shown_), len(target), 1) + 1.1
            special = labels[i].startswith("fim_")
            colour = document(segments[i])
            _rectangles(ax, [(x, top, wide, 2.4)], colour, 0.55 if special else CHIP)
            if i in middle and segments[i] == last and labels[i] != "end":
                lit_box(ax, x, top, wide, 2.4)
            label(ax, x + wide / 2, top + 1.25, shown_, INK, ha="center", lit=special, fontsize=7.8)
            label(ax, x + wide / 2, top + 3.4, str(int(packed.positions[0, i])), MUTED, ha="center", fontsize=7.5)
            shade = MUTED if target == "–" else INK
            label(ax, x + wide / 2, top + 5.2, target, shade, ha="center", fontsize=7.5)
            for piece, place in at.items():
                if i == place and width == WIDE:
                    arrow(ax, spots[piece], (x + wide / 2, top - 0.3), document(last))
            x += wide + 0.25
    label(ax, 1, 9.6, "in the row", MUTED)
    label(ax, 1, starts[0] - 1.3, "before it; under a token its position and target", MUTED, fontsize=8)
    return fig


def embedding_figure(
    table: Tensor, tokens: Tensor, vectors: Tensor, labels: Sequence[str], segments: Tensor, lit: int
) -> Shown:
    """The lookup: tokens [T] pick rows of the table [V, D], to scale; vectors [T, D] are those rows, scaled."""
    wide, narrow = (
        _embedding(table, tokens, vectors, labels, segments, lit, width, n) for width, n in ((WIDE, 28), (NARROW, 8))
    )
    V, D = table.shape
    alt = (
        f"The ids of {len(labels)} tokens point into a table of {V:,} rows and {D} columns; the rows pointed to "
        f"come out as {len(labels)} vectors. Id {int(tokens[lit])}, {labels[lit]}, is lit; its vector has norm "
        f"{float(vectors[lit].norm()):.2f}."
    )
    return show(wide, alt, narrow=narrow)


def _embedding(
    table: Tensor, tokens: Tensor, vectors: Tensor, labels: Sequence[str], segments: Tensor, lit: int, width: float,
    numbers: int,
) -> Figure:  # fmt: skip
    T, (V, D) = len(labels), table.shape
    narrow = width == NARROW
    cell, gap, thick, side = (0.62, 1.9, 2.1, 5.0) if narrow else (0.62, 3.0, 2.6, 5.0)
    start = gap + thick + gap
    right = start + numbers * cell + (2.6 if not narrow else 2.4)
    fig, ax = panels(width, width * (T + 3.4) / (side + right), left=0, right=1, top=1, bottom=0)
    limits(ax, -side, right, -2.4, T + 1.0)
    low, high = -0.6, T + 0.6  # the table's ends
    _rectangles(ax, [(gap, low, thick, high - low)], FAINT, 0.8, zorder=0.6)
    words = 7.5 if narrow else 8.5

    def place(i: int) -> float:
        return low + (high - low) * (int(tokens[i]) + 0.5) / V

    order = [i for i in range(T) if i != lit] + [lit]
    for i in order:
        colour = document(int(segments[i]))
        shade, lw, alpha = (LIT, 1.3, 1.0) if i == lit else (colour, 0.8, 0.75)
        look: Any = {"color": shade, "lw": lw, "alpha": alpha, "clip_on": False}
        ax.plot([0.15, gap], [i + 0.5, place(i)], **look)
        ax.plot([gap + thick, start - 0.25], [place(i), i + 0.5], **look)
        ax.plot([gap, gap + thick], [place(i), place(i)], color=shade, lw=2.0 if i == lit else 1.3)
        label(ax, -2.3, i + 0.5, labels[i], colour, ha="right", fontsize=words, lit=i == lit)
        label(ax, 0.0, i + 0.5, str(int(tokens[i])), INK, ha="right", fontsize=words, lit=i == lit)
    values = vectors[:, :numbers]
    grid(
        ax, values, numbers=False, at=(start, 0), cell=(cell, 1), fit=False, lit_row=lit, vmax=float(values.abs().max())
    )
    end = start + numbers * cell
    for i in range(T):
        norm = number(float(vectors[i].norm()), ".2f")
        label(ax, end + 0.3, i + 0.5, norm, INK if i == lit else MUTED, fontsize=words, lit=i == lit)
    names = [(-2.3, "token", "right"), (0.0, "id", "right"), (end + 0.3, "norm", "left")]
    for x, text, side_of in names:
        label(ax, x, -0.55, text, INK, ha=side_of, fontsize=words)
    label(ax, gap + thick / 2, low - 1.25, "table", INK, ha="center", fontsize=words, lit=True)
    label(ax, gap + thick / 2, low - 0.5, f"[{V:,}, {D}]", MUTED, ha="center", fontsize=words)
    label(ax, start, low - 1.25, "vectors", INK, fontsize=words, lit=True)
    said = f"rows × √{D}; {numbers} of {D} numbers" if not narrow else f"× √{D}; {numbers} of {D}"
    label(ax, start, low - 0.5, said, MUTED, fontsize=words)
    return fig


# The block ------------------------------------------------------------------------------------------------------------


def block_figure(trace: Mapping[str, Tensor], layer: int, lit: int, word: str, numbers: int = 22) -> Shown:
    """The block as a diagram, top to bottom; beside each part the followed token's own numbers there, and the norm."""
    names = ["in", "pre_attn_norm", "attn.out", "post_attn_norm", "mid", "pre_mlp_norm", "mlp.out", "post_mlp_norm"]
    vectors = {name: at_token(trace, f"block.{layer}.{name}", lit) for name in [*names, "out"]}
    wide, narrow = (_block(vectors, layer, word, width, numbers) for width in (WIDE, NARROW))
    norms = ", ".join(f"{name} {shown(float(v.norm()))}" for name, v in vectors.items())
    alt = (
        "The block: the residual stream runs straight down. A norm, attention and a norm read it; their result is "
        f"added to it; then by a norm, the MLP and a norm, added as well. Norms of {word}: {norms}."
    )
    return show(wide, alt, narrow=narrow)


def _block(vectors: Mapping[str, Tensor], layer: int, word: str, width: float, numbers: int) -> Figure:
    wide = width == WIDE
    scale = 4.05 / 12.4  # inches a unit, the same in both drawings
    tall = 15.2
    fig, ax = panels(width, scale * tall, left=0, right=1, top=1, bottom=0)
    limits(ax, 0, width / scale, -1.8, tall - 1.8)
    stream, branch, half = 1.1, 4.6, 2.15
    parts = [
        ("pre_attn_norm", "norm", 1.45), ("attn.out", "attention", 2.8), ("post_attn_norm", "norm", 4.15),
        ("pre_mlp_norm", "norm", 7.35), ("mlp.out", "MLP", 8.7), ("post_mlp_norm", "norm", 10.05),
    ]  # fmt: skip
    sums = {"mid": 5.65, "out": 11.55}
    points = {"in": -0.05, "mid": 5.65, "out": 11.55} | {name: y for name, _, y in parts}
    # the stream and its two sums
    arrow(ax, (stream, -0.95), (stream, 13.0), INK, lw=2.2)
    for y in sums.values():
        ax.add_patch(Circle((stream, y), 0.36, facecolor=PAPER, edgecolor=INK, lw=1.2, zorder=5, clip_on=False))
        label(ax, stream, y + 0.01, "+", INK, ha="center", fontsize=11, lit=True, zorder=6)
    for first, last, top in ((0, 2, 0.55), (3, 5, 6.45)):
        ends = [(stream, branch), (top, top)]
        ax.plot(*ends, color=INK, lw=1.2, clip_on=False, solid_capstyle="butt")
        ax.add_patch(Circle((stream, top), 0.11, facecolor=INK, edgecolor="none", zorder=5, clip_on=False))
        ys = [top, *(parts[i][2] for i in range(first, last + 1))]
        for a, b in itertools.pairwise(ys):
            arrow(ax, (branch, a if a == top else a + 0.42), (branch, b - 0.42), INK, lw=1.2)
        target = sums["mid" if first == 0 else "out"]
        ax.plot([branch, branch], [ys[-1] + 0.42, target], color=INK, lw=1.2, clip_on=False)
        arrow(ax, (branch, target), (stream + 0.38, target), INK, lw=1.2)
    for name, text, y in parts:
        mixes = name == "attn.out"
        box = FancyBboxPatch(
            (branch - half, y - 0.42), 2 * half, 0.84, boxstyle="round,pad=0,rounding_size=0.18",
            facecolor=POSITIVE, alpha=0.42 if mixes else 0.14, edgecolor="none", clip_on=False,
        )  # fmt: skip
        ax.add_patch(box)
        label(ax, branch, y, text, INK, ha="center", fontsize=9, lit=text != "norm")
    # the followed token's numbers
    left = 8.2 if wide else 10.2
    cell = (width / scale - left - 2.0) / numbers
    if wide:
        label(ax, left, -1.45, f"{word} in block {layer}", INK, fontsize=9, lit=True)
    said = "norm" if wide else f"norm of {word}"
    label(ax, width / scale - 0.1, -1.45, said, INK, ha="right", fontsize=9, lit=True)
    for name, y in points.items():
        vector = vectors[name]
        near = 0.45 if name in ("mid", "out", "in") else 0.0
        norm = number(float(vector.norm()), ".2f")
        if wide:
            label(ax, left, y - 0.56, name, MUTED, fontsize=7.5)
            vector_strip(ax, vector[:numbers], numbers=False, at=(left, y - 0.28), cell=(cell, 0.56),
                         vmax=float(vector[:numbers].abs().max()), lit=near > 0)  # fmt: skip
            label(ax, width / scale - 0.1, y, norm, INK, ha="right", fontsize=8.5, lit=near > 0)
        else:
            label(ax, width / scale - 0.1, y, norm, INK, ha="right", fontsize=8.5, lit=near > 0)
            if name in ("in", "mid", "out"):
                label(ax, branch + half + 0.25, y, name, MUTED, fontsize=7.5)
    label(ax, 0.1, -1.45, "residual stream", INK, fontsize=9, lit=True)
    return fig


def influence_figure(changed: Mapping[str, Tensor], labels: Sequence[str], segments: Tensor, lit: int) -> Shown:
    """changed[name] is bool [T]: the places at which that tensor differs after the token at `lit` was another one."""
    names = list(changed)
    matrix = torch.stack([changed[name] for name in names])  # [names, T]
    wide, narrow = (_influence(matrix, names, labels, segments, lit, width) for width in (WIDE, NARROW))
    only = [name for name in names if changed[name].sum() == 1]
    alt = (
        f"Which tensors change at which token when {labels[lit]} at place {lit} is replaced. Only there: "
        f"{', '.join(only)}. At other tokens too: {', '.join(n for n in names if n not in only)}."
    )
    return show(wide, alt, narrow=narrow)


def _influence(
    matrix: Tensor, names: Sequence[str], labels: Sequence[str], segments: Tensor, lit: int, width: float
) -> Figure:
    rows, T = matrix.shape
    narrow = width == NARROW
    side, head, cell = (8.6, 3.7, 0.86) if narrow else (8.6, 3.6, 1.5)
    fig, ax = panels(width, width * (rows + head + 0.4) / (side + T * cell + 0.3), left=0, right=1, top=1, bottom=0)
    limits(ax, -side, T * cell + 0.3, -head, rows + 0.4)
    words = 6.8 if narrow else 8.2
    glow(ax, lit * cell, 0, cell, rows)
    blank = [(j * cell + 0.05, i + 0.06, cell - 0.1, 0.88) for i in range(rows) for j in range(T) if not matrix[i, j]]
    _rectangles(ax, [b for b in blank if int(b[0] // cell) == lit], PAPER, 1.0)
    _rectangles(ax, blank, FAINT, 0.7)
    for s in (0, 1, 2):
        boxes = [
            (j * cell + 0.05, i + 0.06, cell - 0.1, 0.88)
            for i in range(rows)
            for j in range(T)
            if matrix[i, j] and int(segments[j]) == s
        ]
        _rectangles(ax, boxes, document(s), 0.85, zorder=1.2)
    lit_box(ax, lit * cell, 0, cell, rows)
    for i, name in enumerate(names):
        mixing = int(matrix[i].sum()) > 1
        label(ax, -0.3, i + 0.52, name, INK if mixing else MUTED, ha="right", fontsize=words, lit=mixing)
    for j, text in enumerate(labels):
        label(ax, (j + 0.5) * cell, -0.3, text, document(int(segments[j])), ha="center", va="bottom", rotation=90,
              fontsize=words, lit=j == lit)  # fmt: skip
    return fig


# The head -------------------------------------------------------------------------------------------------------------


def softcap_figure(cap: float, values: Mapping[float, float]) -> Shown:
    """cap · tanh(x / cap) beside the plain line, with the given points x → y marked and written."""
    wide, narrow = (_softcap(cap, values, width, height) for width, height in ((5.2, 2.9), (NARROW, 2.7)))
    told = ", ".join(f"{x:g} becomes {y:.6f}" for x, y in values.items())
    return show(
        wide, f"The soft cap: a curve that leaves the diagonal and levels off at {cap:g}. {told}.", narrow=narrow
    )


def _softcap(cap: float, values: Mapping[float, float], width: float, height: float) -> Figure:
    fig, ax = panels(width, height, bare=False, left=0.11 if width > 4 else 0.15, right=0.98, top=0.96, bottom=0.16)
    x = torch.linspace(-70, 100, 171, dtype=torch.float64)
    ax.plot([-36, 36], [-36, 36], color=MUTED, lw=0.8, ls=(0, (3, 2)))
    for y in (-cap, cap):
        ax.plot([-70, 100], [y, y], color=MUTED, lw=0.6)
    ax.plot(x, cap * torch.tanh(x / cap), color=POSITIVE, lw=1.8)
    for at, y in values.items():
        ax.plot(at, y, "o", color=LIT, ms=4.5, zorder=5)
        look: Any = {"fontsize": 8.5 if width > 4 else 7.6, "color": INK, "weight": "bold", "annotation_clip": False}
        if at < 40:
            ax.annotate(f"{at:g} → {y:.6f}", (at, y), (5, -4), textcoords="offset points", va="top", **look)
        else:
            ax.annotate(f"{at:g} → {y:.6f}", (100, y), (0, 7), textcoords="offset points", ha="right", **look)
    ax.annotate("no cap", (-33, -33), (-9, 1), textcoords="offset points", ha="right", va="top", color=MUTED,
                fontsize=8.5)  # fmt: skip
    ax.set(xlim=(-70, 100), ylim=(-38, 42))
    ax.set_xticks([-60, -30, 0, 30, 60], ["−60", "−30", "0", "30", "60"])
    ax.set_yticks([-30, 0, 30], ["−30", "0", "30"])
    ax.set_xlabel("logit before the cap")
    ax.set_ylabel("after")
    return fig


def head_figure(raw: Tensor, logits: Tensor, p: Tensor, target: int, word: str, tokenizer: Tokenizer) -> Shown:
    """raw, logits, p [V] of one position: the most likely tokens and the target, from logit to probability to loss."""
    order = p.argsort(descending=True, stable=True).tolist()
    rank = order.index(target)
    picked = order[:7] if rank < 7 else [*order[:6], target]
    loss = -math.log(float(p[target]))
    wide, narrow = (_head(raw, logits, p, picked, rank, target, word, tokenizer, width) for width in (5.6, NARROW))
    told = ", ".join(f"{_name(i, tokenizer)} {100 * float(p[i]):.2f} %" for i in picked)
    alt = (
        f"What follows {word}: {told}. The target {_name(target, tokenizer)} is number {rank + 1} of {p.shape[0]:,}, "
        f"its loss is {loss:.3f}."
    )
    return show(wide, alt, narrow=narrow)


def _name(i: int, tokenizer: Tokenizer) -> str:
    """A token as shown, cut where it is long; a special one without its brackets."""
    text = tokenizer.token(i)
    text = text[2:-2] if i in tokenizer.special.values() else text
    return text if len(text) <= 10 else text[:9] + "…"


def _head(
    raw: Tensor, logits: Tensor, p: Tensor, picked: Sequence[int], rank: int, target: int, word: str,
    tokenizer: Tokenizer, width: float,
) -> Figure:  # fmt: skip
    rows = len(picked)
    narrow = width == NARROW
    scale = 0.27
    extent = width / scale
    jump = rank >= rows  # the target is far below: a gap before it
    tall = rows + 4.9
    fig, ax = panels(width, scale * tall, left=0, right=1, top=1, bottom=0)
    limits(ax, 0, extent, -1.9, tall - 1.9)
    words = 7.8 if narrow else 8.8
    columns = [3.9, 6.1, 8.6] if narrow else [6.0, 9.0, 12.2]
    for x, name in zip(columns, ("logit", "capped", "softmax"), strict=True):
        label(ax, x, -0.6, name, INK, ha="right", fontsize=words)
    label(ax, 0.1, -1.45, f"after {word}", INK, fontsize=9.5, lit=True)
    bar = columns[2] + 0.4
    room = extent - bar - 0.3
    top = float(p[picked].max())
    for n, i in enumerate(picked):
        y = n + (0.9 if jump and i == target else 0.0)
        hit = i == target
        if hit:
            glow(ax, 0, y, extent, 1)
        label(ax, 0.15, y + 0.52, _name(i, tokenizer), INK, fontsize=words, lit=hit)
        texts = [number(float(raw[i]), ".3f"), number(float(logits[i]), ".3f"), f"{100 * float(p[i]):.2f} %"]
        for x, text in zip(columns, texts, strict=True):
            label(ax, x, y + 0.52, text, INK, ha="right", fontsize=words, lit=hit)
        _rectangles(ax, [(bar, y + 0.2, max(room * float(p[i]) / top, 0.04), 0.6)], POSITIVE, 0.85)
        if hit:
            lit_box(ax, 0.03, y, extent - 0.06, 1)
    if jump:
        label(ax, 0.15, rows - 0.62, f"⋮  {rank - rows + 1:,} others", MUTED, fontsize=words)
    loss = -math.log(float(p[target]))
    percent = f"{float(p[target]):.4g}"
    y = rows + (0.9 if jump else 0.0) + 0.8
    label(ax, 0.15, y, f"target {_name(target, tokenizer)}:  loss = −ln {percent} = {loss:.3f} nats", INK,
          fontsize=words + 0.4, lit=True)  # fmt: skip
    return fig


def losses_figure(losses: Tensor, labels: Sequence[str], segments: Tensor, lit: int, vocab_size: int) -> Shown:
    """Cross-entropy [T] of each position in nats, NaN where there is no target, beside that of a uniform guess."""
    T = len(labels)
    uniform = math.log(vocab_size)
    width, scale = 3.9, 3.9 / 20.0
    fig, ax = panels(width, scale * (T + 3.2), left=0, right=1, top=1, bottom=0)
    limits(ax, -7.0, 13.0, -2.6, T + 0.6)
    largest = max(float(losses.nan_to_num(0).max()), uniform) * 1.02
    unit = 10.2 / largest
    ax.plot([unit * uniform] * 2, [-0.25, T], color=MUTED, lw=0.9, ls=(0, (3, 2)), zorder=3)
    label(ax, unit * uniform, -0.75, f"uniform guess {uniform:.3f}", MUTED, ha="right", fontsize=8)
    label(ax, -3.6, -0.75, "token", INK, ha="right", fontsize=8.5)
    label(ax, -0.3, -0.75, "target", INK, ha="right", fontsize=8.5)
    label(ax, -6.9, -1.9, "Cross-entropy, nats", INK, fontsize=10, lit=True)
    glow(ax, -6.9, lit, 19.8, 1)
    for i, text in enumerate(labels):
        colour = document(int(segments[i]))
        label(ax, -3.6, i + 0.52, text, colour, ha="right", lit=i == lit)
        value = float(losses[i])
        if math.isnan(value):
            label(ax, -0.3, i + 0.52, "–", MUTED, ha="right")
            continue
        label(ax, -0.3, i + 0.52, labels[i + 1], colour, ha="right", lit=i == lit)
        if i == lit:
            _rectangles(ax, [(0, i + 0.16, unit * value, 0.68)], PAPER, 1.0)
        _rectangles(ax, [(0, i + 0.16, unit * value, 0.68)], colour, 0.75)
        under: Any = {} if i == lit else {"bbox": {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}, "zorder": 4}
        label(ax, unit * value + 0.2, i + 0.52, f"{value:.3f}", INK, fontsize=8, lit=i == lit, **under)
    lit_box(ax, -6.9, lit, 19.8, 1)
    told = ", ".join(f"{labels[i]} {float(v):.3f}" for i, v in enumerate(losses) if not math.isnan(float(v)))
    return show(fig, f"Cross-entropy of each position that has a target: {told}. A uniform guess has {uniform:.3f}.")


# Steppers -------------------------------------------------------------------------------------------------------------

TEXTS = {
    "code": "def mean(values):\n    total = sum(values)\n    return total / len(values)\n",
    "prose": "The cat sat on the mat. The mat did not mind.",
    "numbers": "1999 2026 3.14159 0x7f 12,345",
    "another language": "Ein Häuschen, 你好, привет, 🙂",
    "a special token, spelled out": "if token == <|end_of_text|>: stop()",
}


def text_stepper(tokenizer: Tokenizer | None = None, most: int = 72) -> Stepper:
    """A text → its tokens under the shipped tokenizer. In a notebook the reader types a text of their own."""
    tokenizer = tokenizer or load_tokenizer()
    columns, lines = 24.5, 6

    def draw(text: str) -> Frame:
        text = TEXTS.get(text, text)
        ids = tokenizer.encode(text)
        fig, ax = panels(3.35, 2.5, left=0.005, right=0.995, top=1, bottom=0)
        limits(ax, 0, columns, -0.2, 2 * lines + 0.4, equal=False)
        x, y, drawn = 0.0, 0.0, 0
        for n, i in enumerate(ids):
            word = tokenizer.token(i)
            wide = max(0.72 * sum(_width(c) for c in word), 0.5 * len(str(i))) + 0.45
            if x + wide > columns:
                x, y = 0.0, y + 2
            if y + 2 > 2 * lines or n == most:
                label(ax, columns, 2 * lines, f"… {len(ids) - n} more", MUTED, ha="right", va="bottom", fontsize=8)
                break
            _rectangles(ax, [(x + 0.07, y, wide - 0.14, 1.12)], DOC1, 0.32 if n % 2 == 0 else 0.16)
            label(ax, x + wide / 2, y + 0.56, word, INK, ha="center", fontsize=8.5)
            label(ax, x + wide / 2, y + 1.45, str(i), MUTED, ha="center", fontsize=6.5)
            x, drawn = x + wide, drawn + 1
        size = len(text.encode())
        return Frame(
            fig,
            text=" ↵ ".join(text.split("\n")),
            numbers={"tokens": len(ids), "bytes": size, "bytes a token": size / max(len(ids), 1)},
            alt=f"{len(ids)} tokens: {' | '.join(tokenizer.token(i) for i in ids[:drawn])}.",
        )

    return Stepper("What the tokenizer makes of a text", [Choice("text", list(TEXTS), free=True)], draw, name="tokens")


def _width(c: str) -> float:
    """About how wide a letter is, in ems over 0.6."""
    return 0.62 if c in "·.,:;'|il!()[]tfjr1" else 1.35 if c in "mwMW@—" else 1.0


FIRST = "n = 7\nprint(n)"
SECOND = "def f(name):\n    return name\n\nprint(f(n))"
LENGTHS = ((1, 4, 6, 8), (1, 4, 7, 8, 10))


def packing_stepper(
    tokenizer: Tokenizer | None = None, lit: int | None = None, length: int = example.ROW_LENGTH
) -> Stepper:
    """The two documents' lengths → tokens, positions, segments and targets of the packed rows.

    lit: the followed token's place in the book's row; its documents are what the two here begin with.
    """
    tokenizer = tokenizer or load_tokenizer()
    texts = [tokenizer.encode(text) for text in (FIRST, SECOND)]
    lit = example.FOLLOWED if lit is None else lit
    row = example.row(tokenizer)
    followed = int(row.segments[0, lit]) - 1, int(row.positions[0, lit])  # document 0 or 1, position in it

    def draw(first: int, second: int) -> Frame:
        ids = [texts[0][:first], texts[1][:second]]
        packed = pack(ids, length, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id, pad_id=tokenizer.pad_id)
        fig, ax = panels(3.35, 3.6, left=0.01, right=0.99, top=1, bottom=0)
        B = packed.tokens.shape[0]
        limits(ax, 0, 18.0, -2.2, length + 0.2, equal=False)
        for b in range(2):
            left = 9.4 * b
            note = f"row {b}" if b < B else f"row {b}: not needed"
            label(ax, left + 0.05, -1.65, note, INK if b < B else MUTED, fontsize=9, lit=b < B)
            if b < B:
                at = _place(followed, (first, second), b, B)
                _table(ax, packed, example.labels(packed, tokenizer, b), b, left, at, ids=False)
            else:
                _rectangles(ax, [(left + 0.06, 0.05, 8.38, length - 0.1)], FAINT, 0.4)
        kinds = packed.segments != 0
        targets = int((packed.targets != NO_TARGET).sum())
        together = first + second + 4
        how = "fit into one row" if together <= length else f"need {together} places: the second gets a row of its own"
        return Frame(
            fig,
            text=f"With begin and end the documents {how}.",
            numbers={"rows": B, "targets": targets, "padding": int((~kinds).sum())},
            alt=f"Documents of {first} and {second} tokens in {B} rows of {length}, with {targets} targets.",
        )

    controls: list[Slider | Choice] = [
        Slider("first", LENGTHS[0], value=4, label="document 1, tokens", live_step=1),
        Slider("second", LENGTHS[1], value=7, label="document 2, tokens", live_step=1),
    ]
    return Stepper("Packing two documents", controls, draw, name="packing")


def _place(followed: tuple[int, int], lengths: tuple[int, int], row: int, rows: int) -> int | None:
    """Where position followed[1] of document followed[0] stands in a row; None: elsewhere, or it was cut off."""
    document, position = followed
    if position > lengths[document] or row != (0 if document == 0 else rows - 1):
        return None
    return position + (lengths[0] + 2 if document == 1 and rows == 1 else 0)


STAGES = (
    "embed", "block.0.pre_attn_norm", "block.0.attn.q_rot", "block.0.attn.heads", "block.0.attn.out",
    "block.0.post_attn_norm", "block.0.mid", "block.0.pre_mlp_norm", "block.0.mlp.product", "block.0.mlp.out",
    "block.0.post_mlp_norm", "block.0.out", "block.1.out", "block.2.out", "block.3.out", "block.4.out", "block.5.out",
    "block.6.out", "block.7.out", "final_norm", "logits",
)  # fmt: skip
WHAT = {
    "embed": "rows of the table, times √D",
    "pre_attn_norm": "a normalised copy of the stream",
    "q_rot": "queries, normalised and turned",
    "heads": "what each head found in other tokens",
    "attn.out": "all heads, projected back to D",
    "post_attn_norm": "normalised, before it is added",
    "mid": "the stream after the first sum",
    "pre_mlp_norm": "a normalised copy of the stream",
    "product": "the MLP’s wide middle",
    "mlp.out": "projected back to D",
    "post_mlp_norm": "normalised, before it is added",
    "out": "the stream after the block",
    "final_norm": "the stream, normalised a last time",
    "logits": "one number for each token of the vocabulary",
}
LETTERS = {"q_rot": "[T, N, H]", "heads": "[T, N, H]", "product": "[T, F]", "logits": "[T, V]"}


def small_trace() -> dict[str, Tensor]:
    """The packed row through the small model that the chapter's stage stepper walks through."""
    row = example.row()
    return example.small_model().trace(row.tokens, row.positions, row.segments)


def stage_stepper(trace: Mapping[str, Tensor] | None = None, lit: int | None = None) -> Stepper:
    """The stage → the row's tensor there: the first numbers of each token, and each token's norm."""
    trace = trace or small_trace()
    lit = example.FOLLOWED if lit is None else lit
    row = example.row()
    names, segments = example.labels(row), row.segments[0].tolist()
    T, count = len(names), 16

    def draw(stage: int) -> Frame:
        name = STAGES[stage]
        tensor = trace[name][0]  # [T, …]
        flat = tensor.flatten(1)  # [T, numbers]
        norms = flat.norm(dim=-1)  # [T]
        fig, ax = panels(3.35, 3.9, left=0.005, right=0.995, top=1, bottom=0)
        limits(ax, -3.9, 21.6, -3.1, T + 0.2, equal=False)
        ending = name.split(".", 2)[-1] if name.startswith("block") else name
        what = WHAT.get(ending) or WHAT[ending.rsplit(".", 1)[-1]]
        letters = LETTERS.get(ending.rsplit(".", 1)[-1], "[T, D]")
        sizes = " × ".join(f"{n:,}" for n in tensor.shape)
        label(ax, -3.8, -2.45, name, INK, fontsize=10, lit=True)
        label(ax, 21.5, -2.45, f"{letters} = {sizes}", INK, ha="right", fontsize=8.5)
        label(ax, -3.8, -1.35, what, MUTED)
        label(ax, 21.5, -0.5, "norm", INK, ha="right", fontsize=8)
        width = 14.6 / count
        grid(ax, flat[:, :count], numbers=False, at=(0, 0), cell=(width, 1), fit=False, lit_row=lit)
        top = float(norms.max())
        _rectangles(ax, [(15.1, i + 0.25, 3.2 * float(norms[i]) / top, 0.5) for i in range(T)], POSITIVE, 0.6)
        for i, text in enumerate(names):
            label(ax, -0.3, i + 0.52, text, document(segments[i]), ha="right", fontsize=8, lit=i == lit)
            norm = number(float(norms[i]), ".2f" if norms[i] < 1000 else ",.0f")
            label(ax, 21.5, i + 0.52, norm, INK if i == lit else MUTED, ha="right",
                  fontsize=7.5, lit=i == lit)  # fmt: skip
        return Frame(
            fig,
            text=f"{name}: {what}. Of each token the first {count} of {flat.shape[1]:,} numbers, and the norm of all.",
            numbers={"numbers a token": flat.shape[1], f"norm of {names[lit]}": norms[lit]},
            alt=f"{name}, {letters} = {sizes}; the row of {names[lit]} is lit and has norm {float(norms[lit]):.2f}.",
        )

    stages = Slider("stage", range(len(STAGES)), value=0, play=True, ms=900)
    return Stepper("The row, stage by stage", [stages], draw, name="stages")


TEMPERATURES = (0.0, 0.3, 0.6, 1.0, 1.5)
TOP_KS = ("all", 8, 3)
TOP_PS = (0.5, 0.9, 1.0)


def sampling_stepper(
    logits: Tensor | None = None, word: str | None = None, tokenizer: Tokenizer | None = None
) -> Stepper:
    """temperature, top-k, top-p → the distribution that is sampled from, for one position's logits [V]."""
    tokenizer = tokenizer or load_tokenizer()
    logits = small_trace()["logits"][0, example.FOLLOWED] if logits is None else logits
    word = word or example.labels(example.row())[example.FOLLOWED]
    V, rows = logits.shape[0], 10
    order = logits.argsort(descending=True, stable=True)

    def draw(temperature: float, top_k: int | str, top_p: float) -> Frame:
        k = None if top_k == "all" else int(top_k)
        p = probabilities(logits, temperature, k, top_p)[order]  # [V], falling
        plain = probabilities(logits, temperature)[order]  # without the two cuts
        kept = int((p > 0).sum())
        fig, ax = panels(3.35, 3.8, left=0.005, right=0.995, top=1, bottom=0)
        limits(ax, 0, 26, -5.1, rows + 1.3, equal=False)
        said = f"temperature {temperature:g}, top-k {top_k}, top-p {top_p:g}"
        label(ax, 0.1, -4.6, f"after {word}", INK, fontsize=10, lit=True)
        label(ax, 0.1, -3.5, said, MUTED, fontsize=8)
        _dart(ax, p, kept, 0.1, -2.7, 25.8, 1.1)
        label(ax, 0.1, -1.05, "0", MUTED, fontsize=7.5)
        label(ax, 25.9, -1.05, "1", MUTED, ha="right", fontsize=7.5)
        label(ax, 13, -1.05, "a number drawn at random falls on one token", MUTED, ha="center", fontsize=7.5)
        bar, room = 11.6, 14.0
        for n in range(rows):
            share, before = float(p[n]), float(plain[n])
            name = _name(int(order[n]), tokenizer)
            out = share == 0
            colour, percent = (MUTED, "–") if out else (INK, f"{100 * share:.2f} %")
            label(ax, 6.4, n + 0.52, name, colour, ha="right", fontsize=8, lit=not out)
            label(ax, 11.0, n + 0.52, percent, colour, ha="right", fontsize=8)
            size = room * before / float(plain[0])
            if size > 0.02:
                _rectangles(ax, [(bar, n + 0.2, size, 0.6)], FAINT if out else POSITIVE, 1.0 if out else _shade(n))
        rest = float(p[rows:].sum())
        more = max(kept - rows, 0)
        label(ax, 6.4, rows + 0.7, f"{V - rows:,} others", MUTED, ha="right", fontsize=8)
        if more:
            label(ax, 11.0, rows + 0.7, f"{100 * rest:.2f} %", INK, ha="right", fontsize=8)
        label(ax, 11.6, rows + 0.7, f"{more:,} of them kept" if more else "none of them kept", MUTED, fontsize=8)
        entropy = float(-(p[p > 0] * p[p > 0].log()).sum())
        kinds = "the most likely token, always" if kept == 1 else f"one of {kept:,} tokens"
        return Frame(
            fig,
            text=f"Sampled is {kinds}.",
            numbers={"tokens kept": kept, "largest probability": p[0], "entropy in nats": max(entropy, 0.0)},
            alt=f"With {said} {kept:,} tokens are kept; the most likely one has {100 * float(p[0]):.2f} %.",
        )

    controls: list[Slider | Choice] = [
        Slider("temperature", TEMPERATURES, value=1.0, live_step=0.05),
        Choice("top_k", list(TOP_KS), label="top-k"),
        Slider("top_p", TOP_PS, value=1.0, label="top-p", live_step=0.05),
    ]
    return Stepper("The distribution that is sampled from", controls, draw, name="sampling")


def _shade(n: int) -> float:
    """Neighbouring tokens of the strip differ in strength; the same token has the same one in its bar."""
    return 0.9 if n % 2 == 0 else 0.55


def _dart(ax: Axes, p: Tensor, kept: int, left: float, top: float, width: float, height: float) -> None:
    """The unit interval, cut into the probabilities p [V] in falling order; the rest in one pale piece."""
    x = left
    for n in range(min(kept, 10)):
        size = width * float(p[n])
        _rectangles(ax, [(x, top, size, height)], POSITIVE, _shade(n))
        x += size
    if kept > 10:
        _rectangles(ax, [(x, top, left + width - x, height)], POSITIVE, 0.2)
    lit_box(ax, left, top, width, height)


STEPPERS: dict[str, Callable[[], Stepper]] = {
    "tokens": text_stepper,
    "packing": packing_stepper,
    "stages": stage_stepper,
    "sampling": sampling_stepper,
}
