"""Steppers: a function from a few values to a picture, which the reader moves.

    from rnj.viz.stepper import Choice, Frame, Slider, Stepper

    def mask_stepper() -> Stepper:                                      # in rnj/viz/<chapter>.py
        def draw(position: int, layer: str) -> Frame:
            fig, keys = masks_figure(position, layer)                   # a matplotlib Figure, not shown
            return Frame(fig, text=f"Token {position} of a {layer} layer.", numbers={"visible keys": keys},
                         alt=f"A mask; row {position} is lit and has {keys} keys.")
        return Stepper("What a token may look at",
                       [Slider("position", range(16), value=12, play=True), Choice("layer", ["local", "global"])], draw)

    STEPPERS = {"masks": mask_stepper}

One object, two worlds. Displayed in a notebook with a kernel it is an ipywidgets view: `draw` runs for every value the
reader chooses. In a page without a kernel it is HTML: `draw` has run for each combination of the controls' values when
the chapter was built, and stepper.js shows the frame chosen. `draw` must therefore be a pure function, quick (below
0.1 s), and its figure of the same size for all values. `sweep(stepper)` is what the tests call.
"""

from __future__ import annotations

import html
import itertools
import json
import math
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from rnj.viz import figure as pictures
from rnj.viz.figure import Drawing

MOST_FRAMES = 120  # of one stepper: the page holds them all
HERE = Path(__file__).parent
JS = (HERE / "stepper.js").read_text(encoding="utf-8")
CSS = (HERE / "stepper.css").read_text(encoding="utf-8")


@dataclass
class Frame:
    """What `draw` returns: one picture and what is said about it.

    figure: a matplotlib figure or SVG text. text: a sentence below the picture. numbers: label → the function's own
    value (int, float, str, a 0-d tensor), shown by `shown` and kept raw for the tests. alt: what the picture shows.
    """

    figure: Drawing
    text: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    alt: str = ""


@dataclass
class Slider:
    """A slider over an ordered list of numbers.

    name: the argument of `draw`; values: those of the frames; value: the first one shown (by default the first).
    label: the visible name; unit: written behind the value; format: a format spec for it (by default `shown`).
    play: a button that walks through the values, `ms` milliseconds each: only where they are a sequence in time.
    live_step: in a notebook the reader moves in steps of this between the first and the last value; None: evenly
    spaced whole numbers step by 1, other lists keep to their values.
    """

    name: str
    values: Sequence[Any]
    value: Any = None
    label: str = ""
    unit: str = ""
    format: str = ""
    play: bool = False
    ms: int = 700
    live_step: float | None = None

    def __post_init__(self) -> None:
        self.values = [_plain(v) for v in self.values]
        self.value = _first(self.name, self.values, self.value)
        self.label = self.label or self.name.replace("_", " ")
        if list(self.values) != sorted(self.values):
            raise ValueError(f"the values of slider {self.name!r} must rise")

    def say(self, value: Any) -> str:
        text = format(value, self.format).replace("-", "−") if self.format else shown(value)
        return f"{text} {self.unit}".strip()


@dataclass
class Choice:
    """One of a few things: radio buttons up to four, a menu beyond.

    name: the argument of `draw`; values: strings or numbers; value: the first one shown; label: the visible name.
    free: in a notebook the reader may also type a string of their own.
    """

    name: str
    values: Sequence[Any]
    value: Any = None
    label: str = ""
    free: bool = False

    def __post_init__(self) -> None:
        self.values = [_plain(v) for v in self.values]
        self.value = _first(self.name, self.values, self.value)
        self.label = self.label or self.name.replace("_", " ")

    def say(self, value: Any) -> str:
        return value if isinstance(value, str) else shown(value)


Control = Slider | Choice


class Stepper:
    """A titled picture with controls; see the module's docstring.

    title: its heading; controls: in the order they are shown; draw(**values) -> Frame.
    name: its handle for tests (`data-stepper`), by default made from the title.
    Raises ValueError for more than MOST_FRAMES combinations, double or missing names.
    """

    def __init__(self, title: str, controls: Sequence[Control], draw: Callable[..., Frame], name: str = "") -> None:
        self.title = title
        self.controls = list(controls)
        self.draw = draw
        self.name = name or re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        self._frames: list[Frame] | None = None
        names = [c.name for c in self.controls]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"controls need names of their own, not {names}")
        count = math.prod(len(c.values) for c in self.controls)
        if count > MOST_FRAMES:
            raise ValueError(f"{count} frames are more than a page should hold ({MOST_FRAMES}): give fewer values")

    def combinations(self) -> list[dict[str, Any]]:
        """Every combination of the controls' values, the last control fastest: the order of the frames."""
        names = [c.name for c in self.controls]
        return [dict(zip(names, v, strict=True)) for v in itertools.product(*(c.values for c in self.controls))]

    @property
    def start(self) -> dict[str, Any]:
        """The values it opens with."""
        return {c.name: c.value for c in self.controls}

    def frame(self, **values: Any) -> Frame:
        """Draw one frame, its picture turned into SVG text; values left out are those it opens with."""
        unknown = set(values) - set(self.start)
        if unknown:
            raise TypeError(f"{self.title!r} has no control {sorted(unknown)}")
        return self._finish(self.draw(**(self.start | values)))

    def _finish(self, made: Frame) -> Frame:
        if not isinstance(made, Frame):
            raise TypeError(f"draw of {self.title!r} must return a Frame, not {type(made).__name__}")
        numbers = {label: _plain(value) for label, value in made.numbers.items()}
        alt = made.alt or f"{self.title}. {made.text}".strip()
        text = pictures.svg(made.figure, alt, prefix=self.name)
        return Frame(text, made.text, numbers, alt)

    def frames(self) -> list[Frame]:
        """A frame for each combination, made once."""
        if self._frames is None:
            self._frames = [self.frame(**values) for values in self.combinations()]
        return self._frames

    # The page without a kernel

    def html(self) -> str:
        """The stepper as HTML: the opening frame, controls, all frames as data, and the module that joins them."""
        frames = self.frames()
        opening = frames[self.combinations().index(self.start)]
        chunks, pieces = _chunks([str(f.figure) for f in frames])
        state = {
            "controls": [
                {"name": c.name, "shown": [c.say(v) for v in c.values], "index": list(c.values).index(c.value)}
                for c in self.controls
            ],
            "chunks": chunks,
            "frames": [
                {"picture": p, "readout": readout(f), "numbers": _finite(f.numbers)}
                for p, f in zip(pieces, frames, strict=True)
            ],
        }
        numbers = html.escape(json.dumps(_finite(opening.numbers)), quote=True)
        controls = "".join(_control_html(c, self.name) for c in self.controls)
        title, name = html.escape(self.title), html.escape(self.name, quote=True)
        picture = pictures.scroll_box("%s", str(opening.figure)) % f'<div class="rnj-picture">{opening.figure}</div>'
        style = pictures.sheet().replace("</style>", f"\n{CSS}</style>")
        return (
            f'<div class="rnj-stepper" data-stepper="{name}" data-numbers="{numbers}" role="group" '
            f'aria-label="{title}">{style}<p class="rnj-title">{title}</p>'
            f'<form class="rnj-controls" hidden autocomplete="off">{controls}</form>'
            f'<div class="rnj-figure">{picture}</div>'
            f'<div class="rnj-readout" aria-live="polite">{readout(opening)}</div>'
            f'<p class="rnj-note">The controls of this figure need JavaScript; this is its first position.</p>'
            f"<script>{_HOST % {'state': _js(state), 'module': _js(JS)}}</script></div>"
        )

    # The notebook with a kernel

    def widget(self) -> Any:
        """The stepper as an ipywidgets view that calls `draw` for every value; an error is shown beside it."""
        import ipywidgets as W

        style = pictures.sheet().replace("</style>", f"\n{CSS}</style>")
        picture, words, trouble = W.HTML(), W.HTML(), W.HTML()
        inputs, rows = {}, []
        for control in self.controls:
            inputs[control.name], row = _control_widget(W, control)
            rows.append(row)

        def redraw(change: Any = None) -> None:
            values = {c.name: _live_value(c, inputs[c.name].value) for c in self.controls}
            try:
                frame = self.frame(**values)
            except Exception as error:
                said = "".join(traceback.format_exception_only(error)).strip()
                trouble.value = f'<p class="rnj-error" role="alert">{html.escape(said)}</p>'
                return
            trouble.value = ""
            picture.value = f'<div class="rnj-figure"><div class="rnj-scroll">{frame.figure}</div></div>'
            words.value = f'<div class="rnj-readout">{readout(frame)}</div>'

        for control in self.controls:
            inputs[control.name].observe(redraw, "value")
        redraw()
        box = W.VBox([W.HTML(f"{style}<b>{html.escape(self.title)}</b>"), *rows, trouble, picture, words])
        box.inputs = inputs  # type: ignore[attr-defined]
        box.trouble = trouble  # type: ignore[attr-defined]
        box.picture = picture  # type: ignore[attr-defined]
        return box

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = dict(self.widget()._repr_mimebundle_() or {})
        return bundle | {"text/html": self.html(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Stepper: {self.title}"


def sweep(stepper: Stepper, distinct: float = 1.0, inside: bool = True) -> int:
    """Draw every frame and check it: for the tests. Returns how many there are.

    No error; an alt text; at least one number, none missing in any frame; all pictures of one size; nothing written
    over a figure's edge (inside); and the share of pictures that differ from all others is at least `distinct`.
    Raises AssertionError, naming the values.
    """
    seen: dict[str, dict[str, Any]] = {}
    labels: set[str] | None = None
    size = None
    for values in stepper.combinations():
        raw = stepper.draw(**values)
        if inside and isinstance(raw.figure, Figure):
            over = pictures.clipped(raw.figure)
            assert not over, f"{stepper.name} {values}: text over the edge: {over}"
        frame = stepper._finish(raw)
        labels = labels if labels is not None else set(frame.numbers)
        assert frame.numbers, f"{stepper.name} {values}: no numbers"
        assert set(frame.numbers) == labels, f"{stepper.name} {values}: other numbers: {sorted(frame.numbers)}"
        assert frame.alt.strip(), f"{stepper.name} {values}: no alt text"
        text = str(frame.figure)
        box = pictures.svg_size(text)
        assert size is None or box == size, f"{stepper.name} {values}: the picture changes its size"
        size = box
        seen.setdefault(_without_alt(text), values)
    count = len(stepper.combinations())
    assert len(seen) >= distinct * count, f"{stepper.name}: {len(seen)} different pictures for {count} frames"
    return count


# Numbers and words, for both worlds


def shown(value: Any) -> str:
    """A number as the reader sees it: 4,097; 0.3333; 1.2e−06. Strings stay, booleans are yes and no, None a dash."""
    value = _plain(value)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    if isinstance(value, float):
        if math.isfinite(value) and abs(value) >= 10_000:
            return (f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.3e}").replace("-", "−")
        return f"{value:.4g}".replace("-", "−")
    return str(value)


def readout(frame: Frame) -> str:
    """The text and the numbers of a frame as HTML."""
    text = f"<p>{html.escape(frame.text)}</p>" if frame.text else ""
    pairs = " ".join(
        f'<span class="rnj-pair"><span>{html.escape(label)}</span> <b>{html.escape(shown(value))}</b></span>'
        for label, value in frame.numbers.items()
    )
    return text + (f'<p class="rnj-numbers">{pairs}</p>' if pairs else "")


def _plain(value: Any) -> Any:
    """A numpy or torch scalar as a Python number; anything else as it is."""
    return value.item() if hasattr(value, "item") and not isinstance(value, str) else value


def _first(name: str, values: Sequence[Any], value: Any) -> Any:
    if len(values) < 2 or len(set(values)) < len(values):
        raise ValueError(f"control {name!r} needs two different values or more, not {list(values)}")
    value = values[0] if value is None else _plain(value)
    if value not in values:
        raise ValueError(f"control {name!r} opens with {value!r}, which is none of its values")
    return value


def _finite(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """JSON knows no infinity: such numbers become words."""
    return {k: shown(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in numbers.items()}


def _without_alt(text: str) -> str:
    return re.sub(r'aria-label="[^"]*"', "", text, count=1)


# HTML parts

# The state and the module stand in the page itself, so that a page opened from a file works too.
_HOST = """(async () => {
const el = document.currentScript.parentElement, state = %(state)s;
const url = URL.createObjectURL(new Blob([%(module)s], {type: "text/javascript"}));
const module = await import(url);
URL.revokeObjectURL(url);
module.default.render({model: {get: (key) => state[key]}, el});
})();"""


def _js(value: Any) -> str:
    """JSON that cannot close the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for bad, good in (("</", "<\\/"), ("<!--", "<\\u0021--"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(bad, good)
    return text


def _control_html(control: Control, stepper: str) -> str:
    name, label = html.escape(control.name, quote=True), html.escape(control.label)
    key = html.escape(f"{stepper}-{control.name}", quote=True)
    index = list(control.values).index(control.value)
    said = [html.escape(control.say(v)) for v in control.values]
    if isinstance(control, Slider):
        play = ""
        if control.play:
            play = f'<button type="button" class="rnj-play" data-play="{name}" data-ms="{control.ms}">Play</button>'
        return (
            f'<div class="rnj-row"><label for="{key}">{label}</label><span class="rnj-sliding">'
            f'<input type="range" id="{key}" data-control="{name}" min="0" max="{len(said) - 1}" step="1" '
            f'value="{index}" aria-valuetext="{said[index]}">'
            f'<span class="rnj-value" aria-hidden="true">{said[index]}</span>{play}</span></div>'
        )
    if len(said) <= 4:
        options = "".join(
            f'<label><input type="radio" name="{name}" data-control="{name}" value="{i}"'
            f"{' checked' * (i == index)}>{s}</label>"
            for i, s in enumerate(said)
        )
        return (
            f'<div class="rnj-row" role="radiogroup" aria-label="{label}"><span class="rnj-legend" aria-hidden="true">'
            f'{label}</span><span class="rnj-options">{options}</span></div>'
        )
    options = "".join(f'<option value="{i}"{" selected" * (i == index)}>{s}</option>' for i, s in enumerate(said))
    return (
        f'<div class="rnj-row"><label for="{key}">{label}</label>'
        f'<select id="{key}" data-control="{name}">{options}</select></div>'
    )


def _chunks(pictures_: Sequence[str]) -> tuple[list[str], list[list[int]]]:
    """Cut pictures into elements and keep each different one once; elements that always stand together are one piece.

    Returns the pieces, and each picture as a list of their numbers.
    """
    cut = [re.findall(r"<[^<]*", text) for text in pictures_]
    after: dict[str, set[str | None]] = {}
    before: dict[str, set[str | None]] = {}
    for parts in cut:
        for left, right in zip([None, *parts], [*parts, None], strict=True):
            if left is not None:
                after.setdefault(left, set()).add(right)
            if right is not None:
                before.setdefault(right, set()).add(left)
    numbers: dict[str, int] = {}
    lists = []
    for parts in cut:
        joined: list[str] = []
        for i, part in enumerate(parts):
            follows = i > 0 and len(before[part]) == 1 and len(after[parts[i - 1]]) == 1
            if follows:
                joined[-1] += part
            else:
                joined.append(part)
        lists.append([numbers.setdefault(piece, len(numbers)) for piece in joined])
    return list(numbers), lists


# ipywidgets parts


def _control_widget(W: Any, control: Control) -> tuple[Any, Any]:
    """The widget that holds the value, and the row that shows it."""
    look: dict[str, Any] = {"description": control.label, "style": {"description_width": "initial"}}
    wide = W.Layout(width="min(100%, 34em)")
    values = list(control.values)
    if isinstance(control, Choice):
        if control.free:
            made = W.Combobox(value=control.value, options=values, ensure_option=False, continuous_update=False, **look)
        else:
            made = W.Dropdown(options=[(control.say(v), v) for v in values], value=control.value, **look)
        return made, made
    gaps = {b - a for a, b in itertools.pairwise(values)}
    whole = all(isinstance(v, int) for v in values)
    step = control.live_step or (1 if whole and len(gaps) == 1 else None)
    look["layout"] = wide
    if step is None:
        made = W.SelectionSlider(options=[(control.say(v), v) for v in values], value=control.value, **look)
    elif whole and float(step).is_integer():
        made = W.IntSlider(control.value, min=values[0], max=values[-1], step=int(step), **look)
    else:
        look["readout_format"] = control.format or ".4g"
        made = W.FloatSlider(control.value, min=values[0], max=values[-1], step=step, **look)
    if not control.play:
        return made, made
    play = W.Play(min=0, max=len(values) - 1, value=values.index(control.value), interval=control.ms)

    def follow(change: Any) -> None:
        made.value = values[change["new"]]

    play.observe(follow, "value")
    return made, W.HBox([made, play], layout=W.Layout(flex_flow="row wrap"))


def _live_value(control: Control, value: Any) -> Any:
    """A widget's value as `draw` takes it: the frames' own value where it is one (0.30000000000000004 is 0.3)."""
    if isinstance(value, float):
        for known in control.values:
            if math.isclose(known, value, rel_tol=1e-9, abs_tol=1e-12):
                return known
    return value
