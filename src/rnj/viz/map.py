"""The map of the whole model: the same picture in every chapter, with one part lit.

    model_map("norm")            # what a notebook shows: HTML with inline SVG, upright on a phone

Signs: a rectangle holds weight matrices or does a step, a pill is a norm, a circle joins two streams; the thick line
is the residual stream; q, k and v keep the book's colours. The strip of layers is drawn from the config's layer types.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from rnj.config import RNJ_1_5, Config
from rnj.viz.figure import Shown, show
from rnj.viz.palette import FAINT, GLOBAL, GLOW, INK, KEY, LIT, LOCAL, MUTED, PAPER, QUERY, VALUE, document

# Each part that can be lit, and what the alt text says of it.
PARTS = {
    "text": "the text, its tokens and the packed row",
    "embedding": "the embedding",
    "block": "the block, repeated in every layer",
    "norm": "the norms: before and after attention and MLP, on queries and keys, and the final one",
    "mlp": "the MLP, a GeGLU: gate and up, their product, down",
    "attention": "attention, from the projections q, k and v to the projection o",
    "yarn": "YaRN, which rotates queries and keys",
    "core_attention": "core attention, where queries meet keys and values are summed",
    "cache": "the cache of keys and values",
    "head": "the head, the soft cap and sampling",
    "model": "the whole model",
}
Point = tuple[float, float]
SMALL_TEXT, TEXT = 9.5, 11.0  # CSS pixels


def model_map(
    lit: str | Sequence[str] | None = None,
    config: Config = RNJ_1_5,
    caption: str | None = None,
    links: Mapping[str, str] | None = None,
) -> Shown:
    """The map with the named part lit: one of PARTS, several of them, or None.

    config: whose layers are counted and drawn. links: part → address of the page that a click on it leads to.
    Raises ValueError for an unknown part.
    """
    names = () if lit is None else (lit,) if isinstance(lit, str) else tuple(lit)
    for name in (*names, *(links or ())):
        if name not in PARTS:
            raise ValueError(f"{name!r} is no part of the map: expected one of {', '.join(PARTS)}")
    alt = (
        f"Map of the model. Text becomes tokens, the embedding makes vectors of them, {config.n_layers} blocks follow, "
        "each with attention and an MLP between norms, both added to the residual stream; then the final norm, "
        "the head, the soft cap and sampling, whose token is the next input."
    )
    if names:
        alt += " Lit: " + "; ".join(PARTS[name] for name in names) + "."
    shown = show(_wide(names, config, links), alt, caption, narrow=_upright(names, config, links))
    if links:  # a picture's parts would be closed to a screen reader
        shown.svg = shown.svg.replace('role="img"', 'role="group"', 1)
        shown.narrow = (shown.narrow or "").replace('role="img"', 'role="group"', 1)
    return shown


class _Sketch:
    """SVG text, piece by piece; knows which parts are lit, and where they lead."""

    def __init__(self, width: float, height: float, lit: Sequence[str], links: Mapping[str, str] | None = None) -> None:
        self.size = (width, height)
        self.lit = lit
        self.links = dict(links or {})
        self.linked: set[str] = set()
        self.pieces: list[str] = []
        # Quiet words, and words on the glow, where only full ink can be read
        self.quiet = INK if {"model", "attention", "block"} & set(lit) else MUTED

    def is_lit(self, part: str) -> bool:
        return part in self.lit

    def add(self, tag: str, style: str, inner: str = "", **attributes: float | str) -> None:
        given = " ".join(f'{name.replace("_", "-")}="{value}"' for name, value in attributes.items())
        self.pieces.append(f'<{tag} {given} style="{style}">{inner}</{tag}>')

    def words(
        self,
        x: float,
        y: float,
        text: str,
        colour: str = INK,
        size: float = TEXT,
        bold: bool = False,
        anchor: str = "middle",
    ) -> None:
        """Text whose middle is at height y."""
        self.pieces.append(self.text_piece(x, y, text, colour, size, bold, anchor))

    @staticmethod
    def text_piece(
        x: float, y: float, text: str, colour: str, size: float, bold: bool = False, anchor: str = "middle"
    ) -> str:
        style = f"font-size:{size}px;text-anchor:{anchor};fill:{colour}" + (";font-weight:bold" if bold else "")
        return f'<text x="{x:g}" y="{y + 0.36 * size:.2f}" style="{style}">{html.escape(text)}</text>'

    def link(self, part: str, start: int) -> None:
        """Make a link of the pieces from start on, if the part has one; the first of a part is a tab stop."""
        if part in self.links:
            name = f'aria-label="{html.escape(PARTS[part])}"'
            stop = 'tabindex="-1" aria-hidden="true"' if part in self.linked else name
            inner = "".join(self.pieces[start:])
            self.pieces[start:] = [f'<a href="{html.escape(self.links[part])}" {stop}>{inner}</a>']
            self.linked.add(part)

    def box(
        self, part: str, x: float, y: float, w: float, h: float, text: str = "", colour: str = "", pill: bool = False,
        size: float = TEXT,
    ) -> None:  # fmt: skip
        """A station of the map: lit where its part is. colour: of its outline and word (q, k, v)."""
        lit, start = self.is_lit(part), len(self.pieces)
        edge = LIT if lit else colour or MUTED
        style = f"fill:{GLOW if lit else PAPER};stroke:{edge};stroke-width:{1.6 if lit else 0.9}"
        self.add("rect", style, x=x, y=y, width=w, height=h, rx=h / 2 if pill else 4)
        lines = text.split("\n")
        ink = LIT if lit else colour or INK
        for i, line in enumerate(lines):
            middle = y + h / 2 + (i - (len(lines) - 1) / 2) * (size + 2)
            self.words(x + w / 2, middle, line, ink, size, bold=lit)
        self.link(part, start)

    def norm(self, x: float, y: float, w: float = 38, h: float = 17) -> None:
        """A norm's pill, centred."""
        self.box("norm", x - w / 2, y - h / 2, w, h, "norm", pill=True, size=SMALL_TEXT)

    def room(self, part: str, x: float, y: float, w: float, h: float, text: str) -> None:
        """A container with its name inside its upper left corner."""
        lit, start = self.is_lit(part), len(self.pieces)
        style = f"fill:{GLOW if lit else PAPER};stroke:{LIT if lit else MUTED};stroke-width:{1.6 if lit else 0.7}"
        self.add("rect", style, x=x, y=y, width=w, height=h, rx=7)
        self.words(x + 9, y + 13, text, LIT if lit else MUTED, TEXT, bold=lit, anchor="start")
        self.link(part, start)

    def line(
        self, *points: Point, colour: str = MUTED, width: float = 1.0, arrow: bool = False, dashed: bool = False
    ) -> None:
        """A line through the points with rounded corners; arrow: a head at its end."""
        d = f"M{points[0][0]:g} {points[0][1]:g}"
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            a, b = _towards(corner, before, 5), _towards(corner, after, 5)
            d += f"L{a[0]:g} {a[1]:g}Q{corner[0]:g} {corner[1]:g} {b[0]:g} {b[1]:g}"
        end = points[-1] if not arrow else _towards(points[-1], points[-2], 4)
        d += f"L{end[0]:g} {end[1]:g}"
        style = f"fill:none;stroke:{colour};stroke-width:{width}" + (";stroke-dasharray:2.5 3" if dashed else "")
        self.add("path", style, d=d)
        if arrow:
            tip, base = points[-1], _towards(points[-1], points[-2], 6)
            across = (tip[1] - base[1]) / 6 * 2.6, (base[0] - tip[0]) / 6 * 2.6
            left, right = (base[0] + across[0], base[1] + across[1]), (base[0] - across[0], base[1] - across[1])
            d = f"M{tip[0]:g} {tip[1]:g}L{left[0]:g} {left[1]:g}L{right[0]:g} {right[1]:g}z"
            self.add("path", f"fill:{colour}", d=d)

    def stream(self, *points: Point) -> None:
        """The residual stream."""
        self.line(*points, colour=INK, width=2.6)

    def join(self, x: float, y: float, sign: str) -> None:
        """A circle where two streams are added (+) or multiplied (×)."""
        self.add("circle", f"fill:{PAPER};stroke:{INK};stroke-width:1.2", cx=x, cy=y, r=8)
        arms = [(5, 0), (0, 5)] if sign == "+" else [(3.4, 3.4), (3.4, -3.4)]
        for dx, dy in arms:
            self.add("path", f"fill:none;stroke:{INK};stroke-width:1.2", d=f"M{x - dx} {y - dy}L{x + dx} {y + dy}")

    def row(self, x: float, y: float, side: float, gap: float) -> None:
        """The packed row of 16 in its documents' colours, one token lit."""
        for i in range(16):
            style = f"fill:{document(1 if i < 6 else 2)};fill-opacity:{1 if i == 12 else 0.45}"
            self.add("rect", style, x=round(x + i * (side + gap), 2), y=y, width=side, height=side)
        lit = f"fill:none;stroke:{LIT};stroke-width:1.3"
        self.add("rect", lit, x=round(x + 12 * (side + gap) - 1, 2), y=y - 1, width=side + 2, height=side + 2)

    def layers(self, types: Sequence[str], x: float, y: float, width: float, height: float) -> None:
        """One bar a layer, local or global: the global ones are higher as well."""
        step = width / len(types)
        for i, kind in enumerate(types):
            low = 0.0 if kind == "global" else 0.4 * height
            style = f"fill:{GLOBAL if kind == 'global' else LOCAL}"
            place = {"x": x + i * step, "y": y + low, "width": step * 0.66, "height": height - low}
            self.add("rect", style, "", **{name: round(value, 2) for name, value in place.items()})

    def svg(self) -> str:
        width, height = self.size
        frame = ""
        if self.is_lit("model"):
            frame = (
                f'<rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10" '
                f'style="fill:{GLOW};stroke:{LIT};stroke-width:1.6"/>'
            )
        root = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        return f"{root}{frame}{''.join(self.pieces)}</svg>"


def _towards(start: Point, goal: Point, distance: float) -> Point:
    """The point that far from start on the way to goal."""
    dx, dy = goal[0] - start[0], goal[1] - start[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    share = min(distance, length / 2) / length
    return round(start[0] + dx * share, 2), round(start[1] + dy * share, 2)


def _counts(s: _Sketch, x: float, y: float, config: Config, anchor: str = "start") -> None:
    """How many layers are local and how many global, each word in its colour."""
    local = sum(kind == "local" for kind in config.layer_types)
    parts = [(f"{local} local", LOCAL), (", ", s.quiet), (f"{config.n_layers - local} global", GLOBAL)]
    inner = "".join(f'<tspan style="fill:{colour}">{word}</tspan>' for word, colour in parts)
    style = f"font-size:{SMALL_TEXT}px;text-anchor:{anchor};white-space:pre"
    s.add("text", style, inner, x=x, y=round(y + 0.36 * SMALL_TEXT, 2))


def _wide(lit: Sequence[str], config: Config, links: Mapping[str, str] | None = None) -> str:
    """The map for a page's column: the model on the left, one block unfolded on the right."""
    s = _Sketch(690, 356, lit, links)
    # The unfolded block, and the light that falls on it from the column
    top, low = 8.0, 348.0
    s.add("path", f"fill:{FAINT};fill-opacity:0.55", d=f"M140 126L194 {top + 6}V{low - 6}L140 190z")
    s.room("block", 194, top, 488, low - top, f"one block of {config.n_layers}")
    # The model, from top to bottom
    x, left, w = 84.0, 28.0, 112.0
    s.line((left, 330), (17, 330), (17, 34), (left, 34), dashed=True, arrow=True)
    s.add("g", "", s.text_piece(0, 0, "next token", s.quiet, SMALL_TEXT), transform="translate(8 182) rotate(-90)")
    s.box("text", left, 10, w, 48, "")
    s.words(x, 24, "text, tokens", LIT if s.is_lit("text") else INK, bold=s.is_lit("text"))
    s.row(left + 8.5, 40, 4.6, 1.4)
    s.line((x, 58), (x, 76), arrow=True)
    s.words(x + 8, 66, "[T]", s.quiet, SMALL_TEXT, anchor="start")
    s.box("embedding", left, 76, w, 28, "embedding")
    s.stream((x, 104), (x, 126))
    s.words(x + 8, 115, "[T, D]", s.quiet, SMALL_TEXT, anchor="start")
    s.box("block", left, 126, w, 64, "")
    s.words(x, 140, f"{config.n_layers} blocks", LIT if s.is_lit("block") else INK, bold=s.is_lit("block"))
    s.layers(config.layer_types, left + 6.5, 151, 100, 17)
    _counts(s, x, 179, config, "middle")
    s.stream((x, 190), (x, 240))
    s.norm(x, 215)
    s.box("head", left, 240, w, 26, "head")
    s.line((x, 266), (x, 281), arrow=True)
    s.words(x + 8, 273, "[T, V]", s.quiet, SMALL_TEXT, anchor="start")
    s.box("head", left, 281, w, 22, "soft cap")
    s.line((x, 303), (x, 318), arrow=True)
    s.box("head", left, 318, w, 26, "sampling")

    # The block: the stream runs along its foot
    y, norms, lane_q, lane_k, lane_v = 310.0, 268.0, 94.0, 143.0, 192.0
    s.stream((194, y), (682, y))
    s.words(438, y + 18, "residual stream  [T, D]", s.quiet, SMALL_TEXT)
    s.room("attention", 246, 40, 294, 196, "attention")
    s.line((220, y), (220, lane_k), (258, lane_k), colour=INK)
    s.norm(220, norms)
    for lane in (lane_q, lane_v):
        s.line((240, lane_k), (251, lane_k), (251, lane), (260, lane), colour=INK)
    for name, lane, colour in (("q", lane_q, QUERY), ("k", lane_k, KEY), ("v", lane_v, VALUE)):
        s.line((282, lane), (438, lane), colour=colour, width=1.5, arrow=True)
        s.box("", 258, lane - 12, 24, 24, name, colour=colour)
    s.norm(309, lane_q)
    s.norm(309, lane_k)
    s.words(410, lane_q - 11, "[T, N, H]", s.quiet, SMALL_TEXT)
    s.box("yarn", 336, lane_q - 18, 44, lane_k - lane_q + 36, "YaRN")
    s.box("cache", 389, lane_k - 18, 41, lane_v - lane_k + 36, "cache")
    s.words(334, lane_v + 12, "[T, K, H]", s.quiet, SMALL_TEXT)
    s.box("core_attention", 438, lane_q - 18, 60, lane_v - lane_q + 36, "core\nattention", size=10.5)
    s.line((498, lane_k), (508, lane_k), colour=INK)
    s.box("", 507, lane_k - 12, 24, 24, "o")
    s.line((531, lane_k), (556, lane_k), (556, y - 8), colour=INK, arrow=True)
    s.norm(556, norms)
    s.join(556, y, "+")

    gate, up, middle = 597.0, 630.0, 613.5
    s.room("mlp", 577, 40, 72, 196, "GeGLU")
    s.line((gate, y), (gate, 208), colour=INK)
    s.norm(gate + 2, norms)
    s.line((gate, 220), (up, 220), (up, 208), colour=INK)
    s.line((gate, 188), (gate, 116), (middle - 8, 116), colour=INK)
    s.line((up, 188), (up, 116), (middle + 8, 116), colour=INK)
    s.box("", gate - 15.5, 188, 31, 21, "gate", size=10)
    s.box("", up - 14, 188, 28, 21, "up", size=10)
    s.box("", gate - 15.5, 144, 34, 19, "GELU", size=SMALL_TEXT)
    s.line((middle, 108), (middle, 92), colour=INK)
    s.join(middle, 116, "×")
    s.box("", middle - 19, 70, 38, 22, "down", size=10)
    s.line((middle + 19, 81), (660, 81), (660, y - 8), colour=INK, arrow=True)
    s.norm(659, norms)
    s.join(660, y, "+")
    return s.svg()


def _upright(lit: Sequence[str], config: Config, links: Mapping[str, str] | None = None) -> str:
    """The map for a phone: the same stations from top to bottom along the residual stream."""
    s = _Sketch(336, 736, lit, links)
    x, last = 34.0, 711.0
    s.line((318, last), (330, last), (330, 31), (206, 31), dashed=True, arrow=True)
    s.words(268, 21, "next token", s.quiet, SMALL_TEXT)
    s.box("text", 12, 8, 194, 46, "")
    s.words(109, 21, "text, tokens", LIT if s.is_lit("text") else INK, bold=s.is_lit("text"))
    s.row(21.5, 35, 8.5, 2.6)
    s.line((x, 54), (x, 74), arrow=True)
    s.words(x + 9, 63, "[T]", s.quiet, SMALL_TEXT, anchor="start")
    s.box("embedding", 12, 74, 110, 28, "embedding")
    s.stream((x, 102), (x, 128))
    s.words(x + 9, 112, "[T, D]", s.quiet, SMALL_TEXT, anchor="start")

    s.room("block", 8, 124, 312, 536, "")
    bold = s.is_lit("block")
    s.words(48, 142, f"one block of {config.n_layers}", LIT if bold else MUTED, TEXT, bold=bold, anchor="start")
    s.layers(config.layer_types, 166, 134, 142, 13)
    _counts(s, 306, 157, config, "end")
    s.stream((x, 124), (x, 686))

    # attention
    q, k, v = 106.0, 187.0, 268.0
    s.room("attention", 62, 196, 248, 248, "attention")
    s.line((x, 176), (k, 176), (k, 232), colour=INK)
    s.norm(84, 176)
    for lane in (q, v):
        s.line((k, 214), (k, 222), (lane, 222), (lane, 232), colour=INK)
    for name, lane, colour in (("q", q, QUERY), ("k", k, KEY), ("v", v, VALUE)):
        s.line((lane, 254), (lane, 372), colour=colour, width=1.5, arrow=True)
        s.box("", lane - 13, 232, 26, 22, name, colour=colour)
    s.norm(q, 274)
    s.norm(k, 274)
    s.words(q + 7, 342, "[T, N, H]", s.quiet, SMALL_TEXT, anchor="start")
    s.words(v - 7, 305, "[T, K, H]", s.quiet, SMALL_TEXT, anchor="end")
    s.box("yarn", q - 20, 293, k - q + 40, 24, "YaRN")
    s.box("cache", k - 20, 330, v - k + 40, 24, "cache")
    s.box("core_attention", q - 20, 372, v - q + 40, 28, "core attention")
    s.line((k, 400), (k, 412), colour=INK)
    s.box("", k - 13, 412, 26, 22, "o")
    s.line((k, 434), (k, 464), (x + 8, 464), colour=INK, arrow=True)
    s.norm(84, 464)
    s.join(x, 464, "+")

    # GeGLU
    gate, up = 140.0, 234.0
    s.room("mlp", 62, 510, 248, 112, "GeGLU")
    s.line((x, 492), (k, 492), (k, 525), colour=INK)
    s.norm(84, 492)
    for lane, side in ((gate, -8), (up, 8)):
        s.line((k, 518), (k, 525), (lane, 525), (lane, 536), colour=INK)
        s.line((lane, 556), (lane, 574), (k + side, 574), colour=INK)
    s.box("", gate - 40, 535, 80, 22, "gate, GELU")
    s.box("", up - 20, 535, 40, 22, "up")
    s.line((k, 582), (k, 590), colour=INK)
    s.join(k, 574, "×")
    s.box("", k - 22, 590, 44, 22, "down")
    s.line((k, 612), (k, 640), (x + 8, 640), colour=INK, arrow=True)
    s.norm(84, 640)
    s.join(x, 640, "+")

    # head
    s.norm(x, 678)
    s.stream((x, 686.5), (x, last), (66, last))
    s.box("head", 66, last - 13, 62, 26, "head")
    s.line((128, last), (146, last), arrow=True)
    s.box("head", 146, last - 13, 72, 26, "soft cap")
    s.line((218, last), (236, last), arrow=True)
    s.box("head", 236, last - 13, 82, 26, "sampling")
    s.words(137, last - 22, "[T, V]", s.quiet, SMALL_TEXT)
    return s.svg()
