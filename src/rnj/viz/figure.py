"""Figures: drawn with matplotlib, shown as inline SVG that follows the reader's theme; and the shapes they are made of.

    from rnj.viz.figure import NARROW, Shown, grid, heading, panels, show
    from rnj.viz.palette import DOC1

    def weights_figure(weights, labels, followed) -> Shown:        # in rnj/viz/<chapter>.py
        fig, ax = panels(NARROW, 3.2, left=0.2)
        grid(ax, weights, colour=DOC1, row_labels=labels, lit_row=followed)
        heading(ax, "Attention weights", "each row sums to 1")
        return show(fig, alt="Attention weights of 16 tokens; row 12 looks at rows 6 to 12.")

In a notebook the last line of a cell is the object; number and caption come from the cell's metadata,

    {"mystnb": {"figure": {"name": "fig-weights", "caption": "What token 12 looks at."}}}

and {numref}`fig-weights` finds it (checked: myst-nb wraps whatever a cell shows in a figure, HTML too, where
`nb_mime_priority_overrides` has ["html", "text/html", 5]). One figure a cell: two outputs of one cell would become two
figures of the same name. `caption=` of `show` is for JupyterLab; inside a numbered figure of the site it is hidden.

Sizes are inches at 96 px: WIDE fills the page's column, NARROW fits a phone. Text is 7 to 10 points; a figure wider
than the screen shrinks to 85 % and then scrolls in its own box. `show(..., narrow=other)` gives phones another drawing.
"""

from __future__ import annotations

import hashlib
import html
import io
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline
from matplotlib.text import Text

from rnj.viz import palette
from rnj.viz.palette import FAINT, GLOW, INK, LIT, MUTED, NUMBERED

WIDE = 7.2  # inches: the column of the site's page
NARROW = 3.4  # inches: a phone held upright
SHRINK = 0.85  # how small a figure may get before it scrolls
CSS = Path(__file__).with_name("figure.css").read_text(encoding="utf-8")

Drawing = Figure | str  # a matplotlib figure, or SVG text whose root has a viewBox in CSS pixels


# Shown objects


class Shown:
    """A figure ready to be displayed: HTML with inline SVG. Made by `show`.

    svg: the picture as SVG text; alt: what it shows; caption: a line below it, or None.
    """

    def __init__(self, svg: str, alt: str, caption: str | None = None, narrow: str | None = None) -> None:
        self.svg = svg
        self.alt = alt
        self.caption = caption
        self.narrow = narrow

    def html(self) -> str:
        caption = f'<p class="rnj-caption">{html.escape(self.caption)}</p>' if self.caption else ""
        pictures = with_class(self.svg, "rnj-wide") + (with_class(self.narrow, "rnj-narrow") if self.narrow else "")
        return f'<div class="rnj-figure">{sheet()}{scroll_box(pictures, self.svg)}{caption}</div>'

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"


def show(fig: Drawing, alt: str, caption: str | None = None, narrow: Drawing | None = None) -> Shown:
    """Turn a figure into themed inline SVG and close it.

    alt: one sentence or two that say what the picture shows, for readers who do not see it; never empty.
    narrow: another drawing of the same thing, shown in place of `fig` on screens below 640 px.
    Raises ValueError where alt is empty.
    """
    if not alt.strip():
        raise ValueError("alt must say what the figure shows")
    return Shown(svg(fig, alt), alt, caption, svg(narrow, alt) if narrow is not None else None)


def sheet() -> str:
    """The style sheet that every shown object carries, so that it looks right wherever its HTML lands."""
    return f"<style>{palette.css()}\n{CSS}</style>"


def scroll_box(pictures: str, widest: str) -> str:
    """The box that scrolls sideways where a picture is wider than the screen: reachable by keyboard, and named."""
    if svg_size(widest)[0] * SHRINK <= 300:
        return f'<div class="rnj-scroll">{pictures}</div>'
    name = "Figure, may scroll sideways"
    return f'<div class="rnj-scroll" tabindex="0" role="group" aria-label="{name}">{pictures}</div>'


# From matplotlib to small, themed SVG


def svg(fig: Drawing, alt: str, prefix: str | None = None) -> str:
    """The SVG text of a drawing: no metadata, ids of its own, palette colours as CSS variables, alt as its name.

    prefix: what its ids begin with; by default a hash of the picture. A pyplot figure is closed.
    """
    if isinstance(fig, str) and "max-width:" in fig[:400]:
        return fig  # made here before
    if isinstance(fig, str):
        root = ET.fromstring(fig)
    else:
        buffer = io.StringIO()
        with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rnj", "path.simplify": True}):
            fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        plt.close(fig)
        root = ET.fromstring(buffer.getvalue())
        width, height = (float(n) * 96 / 72 for n in root.attrib["viewBox"].split()[2:])
        root.attrib["data-width"], root.attrib["data-height"] = f"{width:.0f}", f"{height:.0f}"
    _plain_names(root)
    _prune(root)
    width = float(root.attrib.pop("data-width", root.attrib["viewBox"].split()[2]))
    root.attrib.pop("data-height", None)
    for name in ("width", "height", "version", "id", "style"):
        root.attrib.pop(name, None)
    if prefix is None:
        prefix = "r" + hashlib.sha1(ET.tostring(root)).hexdigest()[:8]
    _rename_ids(root, prefix)
    for element in root.iter():
        _tidy(element)
    shown = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": root.attrib.pop("viewBox"),
        "role": "img",
        "aria-label": alt,
        "style": f"max-width:{width:.0f}px;min-width:{width * SHRINK:.0f}px;font-family:{palette.FONT};"
        "stroke-linejoin:round;stroke-linecap:butt",
    }
    root.attrib = shown | root.attrib
    return _themed(ET.tostring(root, encoding="unicode", short_empty_elements=True).replace(" />", "/>"))


def svg_size(text: str) -> tuple[float, float]:
    """Width in CSS pixels at full size and the ratio of height to width of a picture made by `svg`."""
    width = re.search(r"max-width:([0-9.]+)px", text)
    box = re.search(r'viewBox="([^"]+)"', text)
    if width is None or box is None:
        raise ValueError("not a picture made by rnj.viz.figure.svg")
    _, _, w, h = (float(n) for n in box[1].split())
    return float(width[1]), h / w


def with_class(text: str, name: str) -> str:
    """The picture with a class on its root."""
    return text.replace("<svg ", f'<svg class="{name}" ', 1)


def _plain_names(root: ET.Element) -> None:
    """Drop XML namespaces, comments and white space between elements."""
    for element in root.iter():
        element.tag = element.tag.split("}")[-1]
        element.attrib = {key.split("}")[-1]: value for key, value in element.attrib.items()}
        if element.tag not in ("text", "tspan"):
            element.text = None
        element.tail = element.tail if element.tag == "tspan" and element.tail and element.tail.strip() else None


def _prune(element: ET.Element) -> None:
    """Remove metadata, style sheets (they would reach the whole page) and groups that do nothing."""
    kept: list[ET.Element] = []
    for child in list(element):
        _prune(child)
        if child.tag in ("metadata", "style", "title", "desc"):
            continue
        look = child.get("style", "")
        unseen = child.tag == "path" and "fill: none" in look and "stroke" not in look
        if child.tag == "g" and not (set(child.attrib) - {"id"}):
            kept.extend(child)
        elif not unseen and not (child.tag in ("g", "defs") and len(child) == 0):
            kept.append(child)
    element[:] = kept


def _rename_ids(root: ET.Element, prefix: str) -> None:
    """Give the ids that are referred to short names of this picture's own; drop the others."""
    used: dict[str, str] = {}
    for element in root.iter():
        for value in element.attrib.values():
            for old in re.findall(r"url\(#([^)]+)\)", value) + re.findall(r"^#(.+)$", value):
                used.setdefault(old, f"{prefix}-{len(used)}")
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key == "id":
                if value in used:
                    element.attrib["id"] = used[value]
                else:
                    del element.attrib["id"]
            elif key == "href" and value.startswith("#"):
                element.attrib[key] = "#" + used[value[1:]]
            else:
                element.attrib[key] = re.sub(r"url\(#([^)]+)\)", lambda m: f"url(#{used[m[1]]})", value)


def _tidy(element: ET.Element) -> None:
    """Two decimals, short styles, one font family for the whole picture, rectangles in relative steps."""
    for key in ("d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "width", "height", "transform", "points"):
        if key in element.attrib:
            value = re.sub(r"-?\d+\.\d+(?:e-?\d+)?", _short, element.attrib[key])
            element.attrib[key] = re.sub(r"\s+", " ", value).strip()
    if "d" in element.attrib:
        element.attrib["d"] = _RECTANGLE.sub(_relative, element.attrib["d"])
        element.attrib["d"] = re.sub(r" ?([MLCQZzhvH]) ?", r"\1", element.attrib["d"])
    turned = element.attrib.get("transform", "")
    if re.match(r"rotate\(-?0 ", turned):
        del element.attrib["transform"]
    style = element.attrib.get("style")
    if style:
        style = re.sub(r"font: ?((?:italic |oblique )?)((?:bold |\d{3} )?)([0-9.]+)px [^;]*", _font, style)
        style = re.sub(r"-?\d+\.\d{3,}", _short, style)
        style = re.sub(r"\s*([:;,])\s*", r"\1", style).strip(";")
        style = style.replace(";stroke-linejoin:miter", "").replace("text-anchor:start;", "")
        element.attrib["style"] = style


_POINT = r"(-?[\d.]+) (-?[\d.]+)"
_RECTANGLE = re.compile(rf"M {_POINT} L {_POINT} L {_POINT} L {_POINT} z", re.IGNORECASE)


def _relative(match: re.Match[str]) -> str:
    x0, y0, x1, y1, x2, y2, x3, y3 = (float(g) for g in match.groups())
    if y0 == y1 and x1 == x2 and y2 == y3 and x3 == x0:
        return f"M{x0:g} {y0:g}h{round(x1 - x0, 2):g}v{round(y2 - y1, 2):g}h{round(x0 - x1, 2):g}z"
    if x0 == x1 and y1 == y2 and x2 == x3 and y3 == y0:
        return f"M{x0:g} {y0:g}v{round(y1 - y0, 2):g}h{round(x2 - x1, 2):g}v{round(y0 - y1, 2):g}z"
    return match[0]


def _short(match: re.Match[str]) -> str:
    text = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _font(match: re.Match[str]) -> str:
    slant = "font-style:italic;" if match[1] else ""
    weight = f"font-weight:{match[2].strip()};" if match[2] else ""
    return f"{slant}{weight}font-size:{match[3]}px"


def _themed(text: str) -> str:
    """Every colour of the palette, in a style, as its CSS variable with the light value behind it."""

    def variable(match: re.Match[str]) -> str:
        name = palette.NAMES.get(match[1].lower())
        return f":var(--rnj-{name},{match[1].lower()})" if name else match[0]

    return re.sub(r":(#[0-9A-Fa-f]{6})\b", variable, text)


# Making figures


def panels(
    width: float = WIDE,
    height: float = 2.6,
    rows: int = 1,
    columns: int = 1,
    bare: bool = True,
    left: float = 0.02,
    right: float = 0.98,
    top: float = 0.86,
    bottom: float = 0.03,
    **spacing: Any,
) -> tuple[Figure, Any]:
    """A new figure in the book's style and its axes: one Axes, or an array of them for several rows or columns.

    width, height: inches. bare: no spines or ticks, for grids and diagrams; False for curves, whose axes stay thin.
    left … bottom: the axes' edges as shares of the figure (leave room for labels).
    spacing: wspace, hspace, width_ratios, height_ratios.
    It is not registered with pyplot, so nothing stays open.
    """
    palette.style()
    fig = Figure(figsize=(width, height))
    frame = {"left": left, "right": right, "top": top, "bottom": bottom}
    axes = fig.subplots(rows, columns, gridspec_kw=frame | spacing)
    for ax in np.ravel(axes):
        if bare:
            ax.axis("off")
        else:
            ax.tick_params(length=3)
    return fig, axes


def clipped(fig: Figure) -> list[str]:
    """The texts of a matplotlib figure that reach over its edge: empty where all is well. For tests."""
    FigureCanvasAgg(fig)
    fig.draw_without_rendering()
    edge = fig.bbox.padded(1.5)
    unseen = {id(text) for ax in fig.axes for text in _unseen_tick_labels(ax)}
    found = []
    for text in fig.findobj(Text):
        if not isinstance(text, Text) or id(text) in unseen or not text.get_visible() or not text.get_text().strip():
            continue
        box = text.get_window_extent()
        if box.x0 < edge.x0 or box.x1 > edge.x1 or box.y0 < edge.y0 or box.y1 > edge.y1:
            found.append(text.get_text())
    return found


def _unseen_tick_labels(ax: Axes) -> list[Text]:
    """The tick labels that matplotlib keeps but does not draw: of axes that are off, and beyond the limits."""
    found = []
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        slack = 1e-9 * (high - low)
        for tick in axis.get_major_ticks():
            if not ax.axison or not axis.get_visible() or not low - slack <= tick.get_loc() <= high + slack:
                found += [tick.label1, tick.label2]
    return found


# The shapes that figures are made of. Grids count x to the right and y down, one unit a cell.


def grid(
    ax: Axes,
    matrix: Any,
    *,
    colour: str | None = None,
    cell_colours: Any = None,
    shown: Any = None,
    vmax: float | None = None,
    numbers: bool | str = "auto",
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    row_colours: Sequence[str] | None = None,
    column_colours: Sequence[str] | None = None,
    lit_row: int | None = None,
    lit_column: int | None = None,
    at: tuple[float, float] = (0.0, 0.0),
    cell: tuple[float, float] = (1.0, 1.0),
    gap: float = 0.06,
    fontsize: float = 7.5,
    fit: bool = True,
) -> None:
    """Draw a matrix [rows, columns], tensor or array, as cells, with its numbers where there is room.

    colour: the hue of all cells, by share of vmax (a palette colour); None: slate above zero, red below. Where no
    numbers are written, cells below zero are hollow, so that the sign never hangs on a colour.
    cell_colours: rows of hexes instead, for cells whose colour has a meaning (documents); the value is the strength.
    shown: bool [rows, columns]; where False the cell is FAINT and has no number (a mask's `allowed`).
    vmax: the value of full strength; by default the largest absolute value that is shown.
    numbers: "auto" writes them where they fit, True always, False never, or a format such as ".2f".
    lit_row, lit_column: the followed token: outlined over a glow, its label bold.
    at, cell: the upper left corner and a cell's size in data units; fit: set the axes' limits to just hold the grid.
    """
    values = np.asarray(matrix, dtype=float)
    if values.ndim != 2:
        raise ValueError(f"a grid has two axes, not {values.ndim}")
    rows, columns = values.shape
    visible = np.ones_like(values, dtype=bool) if shown is None else np.asarray(shown, dtype=bool)
    visible = visible & np.isfinite(values)
    top = float(np.abs(values[visible]).max()) if vmax is None and visible.any() else vmax
    (x0, y0), (w, h) = at, cell
    if fit:
        above = 0.15 if column_labels is None else 0.15 + h
        ax.set(xlim=(x0 - 0.15, x0 + w * columns + 0.15), ylim=(y0 + h * rows + 0.15, y0 - above), aspect="equal")
    spec = _number_format(ax, values[visible], w, h, numbers, fontsize)
    if lit_row is not None:
        glow(ax, x0, y0 + h * lit_row, w * columns, h)
    if lit_column is not None:
        glow(ax, x0 + w * lit_column, y0, w, h * rows)

    strokes: dict[tuple[str, float], list[tuple[int, int]]] = {}
    for i in range(rows):
        for j in range(columns):
            if not visible[i, j]:
                strokes.setdefault((FAINT, 0.6), []).append((i, j))
                continue
            hue, strength = palette.tint(values[i, j], top or 1.0, NUMBERED if spec else 1.0)
            hue = cell_colours[i][j] if cell_colours is not None else colour or hue
            strokes.setdefault((hue, max(round(25 * strength) / 25, 0.08)), []).append((i, j))
    gx, gy = gap * w, gap * h
    for (hue, strength), cells in strokes.items():
        boxes = [(x0 + w * j + gx, y0 + h * i + gy, w - 2 * gx, h - 2 * gy) for i, j in cells]
        over_glow = [box for box, (i, j) in zip(boxes, cells, strict=True) if i == lit_row or j == lit_column]
        if over_glow and strength < 1:  # the glow must not mix into a cell's colour
            _boxes(ax, over_glow, palette.PAPER, 1.0)
        _boxes(ax, boxes, hue, strength)

    negative = [(i, j) for i, j in np.argwhere(visible & (values < 0)) if not spec and cell_colours is None]
    _boxes(
        ax, [(x0 + w * (j + 0.34), y0 + h * (i + 0.34), 0.32 * w, 0.32 * h) for i, j in negative], palette.PAPER, 1.0
    )

    if spec:
        for i in range(rows):
            for j in range(columns):
                if visible[i, j]:
                    place = (x0 + w * (j + 0.5), y0 + h * (i + 0.5))
                    weight = "bold" if i == lit_row or j == lit_column else "normal"
                    look: Any = {"ha": "center", "va": "center_baseline", "fontsize": fontsize, "color": INK}
                    ax.text(*place, number(values[i, j], spec), weight=weight, **look)
    if lit_row is not None:
        lit_box(ax, x0, y0 + h * lit_row, w * columns, h)
    if lit_column is not None:
        lit_box(ax, x0 + w * lit_column, y0, w, h * rows)
    for i, word in enumerate(row_labels or ()):
        shade = row_colours[i] if row_colours is not None else MUTED
        label(ax, x0 - 0.25 * w, y0 + h * (i + 0.5), word, colour=shade, ha="right", lit=i == lit_row)
    for j, word in enumerate(column_labels or ()):
        shade = column_colours[j] if column_colours is not None else MUTED
        label(ax, x0 + w * (j + 0.5), y0 - 0.25 * h, word, colour=shade, ha="center", va="bottom", lit=j == lit_column)


def vector_strip(
    ax: Axes,
    vector: Any,
    *,
    name: str | None = None,
    after: str | None = None,
    colour: str | None = None,
    vmax: float | None = None,
    numbers: bool | str = "auto",
    lit: bool = False,
    upright: bool = False,
    at: tuple[float, float] = (0.0, 0.0),
    cell: tuple[float, float] = (1.0, 1.0),
    fontsize: float = 7.5,
    fit: bool = False,
) -> None:
    """Draw a vector [n] as one strip of cells: `name` before it, `after` (its norm, say) behind it. upright: a column.

    Several strips on one axes: call with at=(0, 0), (0, 1.5), … and the same vmax, then `limits(ax, …)`.
    """
    values = np.asarray(vector, dtype=float).ravel()
    matrix = values[:, None] if upright else values[None, :]
    lines: Any = {"lit_column": 0} if lit and upright else {"lit_row": 0} if lit else {}
    grid(
        ax, matrix, colour=colour, vmax=vmax, numbers=numbers, at=at, cell=cell, fontsize=fontsize, fit=fit, **lines
    )  # fmt: skip
    (x, y), (w, h) = at, cell
    rows, columns = matrix.shape
    if name and upright:
        label(ax, x + w / 2, y - 0.25 * h, name, colour=colour or MUTED, ha="center", va="bottom", lit=lit)
    elif name:
        label(ax, x - 0.3 * w, y + h / 2, name, colour=colour or MUTED, ha="right", lit=lit)
    if after and upright:
        label(ax, x + w / 2, y + h * rows + 0.25 * h, after, ha="center", va="top")
    elif after:
        label(ax, x + w * columns + 0.3 * w, y + h / 2, after)


def limits(ax: Axes, left: float, right: float, top: float, bottom: float, equal: bool = True) -> None:
    """Set what the axes show, y counted down. equal: a cell is a square. Call before `grid` when fit is False."""
    ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal" if equal else "auto")


def heading(ax: Axes, text: str, below: str | None = None, colour: str = INK) -> None:
    """A panel's title above its upper left corner: one bold line, and one quiet line below it."""
    up = 19 if below else 6
    options: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "left", "va": "bottom"}
    ax.annotate(text, (0, 1), (0, up), fontsize=10, weight="bold", color=colour, annotation_clip=False, **options)
    if below:
        ax.annotate(below, (0, 1), (0, 6), fontsize=8.5, color=MUTED, annotation_clip=False, **options)


def label(
    ax: Axes,
    x: float,
    y: float,
    text: str,
    colour: str = MUTED,
    ha: str = "left",
    va: str = "center",
    lit: bool = False,
    fontsize: float = 8.5,
    **options: Any,
) -> Any:
    """A direct label at a point of the axes; lit: the followed token's, bold and in full ink."""
    weight = "bold" if lit else "normal"
    shade = LIT if lit and colour == MUTED else colour
    return ax.text(x, y, text, color=shade, ha=ha, va=va, weight=weight, fontsize=fontsize, clip_on=False, **options)


def end_label(ax: Axes, x: float, y: float, text: str, colour: str, **options: Any) -> Any:
    """The name of a curve, set just behind its last point, in place of a legend."""
    return ax.annotate(
        text, (x, y), (5, 0), textcoords="offset points", color=colour, va="center", fontsize=8.5,
        annotation_clip=False, **options,
    )  # fmt: skip


def end_labels(ax: Axes, x: float, lines: Sequence[tuple[float, str, str]], gap: float) -> None:
    """The same for several curves, each (height, text, colour), upwards from the lowest and never closer than `gap`.

    gap: in the axis's units; on a logarithmic axis the factor between two neighbours.
    """
    log, below = ax.get_yscale() == "log", -math.inf
    for y, text, colour in sorted(lines):
        least = below * gap if log else below + gap
        below = y if below == -math.inf else max(y, least)
        end_label(ax, x, below, text, colour)


def glow(ax: Axes, x: float, y: float, width: float, height: float) -> None:
    """The light behind something lit."""
    ax.add_patch(Rectangle((x, y), width, height, facecolor=GLOW, edgecolor="none", clip_on=False, zorder=0.5))


def lit_box(ax: Axes, x: float, y: float, width: float, height: float) -> None:
    """The outline of the followed token's row, column or cell."""
    look: Any = {"edgecolor": LIT, "linewidth": 1.3, "joinstyle": "miter"}
    ax.add_patch(Rectangle((x, y), width, height, fill=False, clip_on=False, zorder=4, **look))


def arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = MUTED, **options: Any) -> None:
    """A thin arrow from one point of the axes to another."""
    look: dict[str, Any] = {"arrowstyle": "-|>,head_length=0.35,head_width=0.16", "lw": 0.9, "color": colour}
    look |= {"shrinkA": 0, "shrinkB": 0}
    ax.annotate("", xy=end, xytext=start, arrowprops=look | options, annotation_clip=False)


def number(value: float, spec: str) -> str:
    """A number for a cell: a true minus sign, no minus before a zero."""
    text = format(value, spec)
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def _number_format(ax: Axes, values: np.ndarray, w: float, h: float, numbers: bool | str, fontsize: float) -> str:
    """The format in which every number fits its cell, or "" where none does."""
    if numbers is False or values.size == 0:
        return ""
    whole = bool(np.all(values == np.round(values)))
    if isinstance(numbers, str) and numbers != "auto":
        return numbers
    wide, high = _cell_points(ax, w, h)
    for spec in (".0f",) if whole else (".2f", ".1f"):
        longest = max(len(number(v, spec)) for v in values)
        if numbers is True or (longest * 0.61 * fontsize + 3 <= wide and fontsize * 1.25 <= high):
            return spec
    return ""


def _cell_points(ax: Axes, w: float, h: float) -> tuple[float, float]:
    """Width and height of a cell in points, from the axes' limits and place."""
    box = ax.get_position(original=True)
    inches = ax.get_figure(root=True).get_size_inches()  # type: ignore[union-attr]
    across, down = abs(np.subtract(*ax.get_xlim())), abs(np.subtract(*ax.get_ylim()))
    x, y = 72 * inches[0] * box.width / across, 72 * inches[1] * box.height / down
    if ax.get_aspect() != "auto":
        x = y = min(x, y)
    return x * w, y * h


def _boxes(ax: Axes, boxes: list[tuple[float, float, float, float]], colour: str, strength: float) -> None:
    """Many rectangles of one colour as one path: small files."""
    if not boxes:
        return
    points = [p for x, y, w, h in boxes for p in ((x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y))]
    codes = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY] * len(boxes)
    ax.add_patch(PathPatch(Outline(points, codes), facecolor=colour, alpha=strength, edgecolor="none", clip_on=False))
