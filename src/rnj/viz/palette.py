"""The book's colours: few, each with one meaning in every chapter, each with a value for light and one for dark pages.

A figure is drawn with the light values, which are plain hex strings and so matplotlib colours:

    ax.plot(x, y, color=QUERY)

and `figure.show` turns each of them into a CSS variable, so that the picture follows the reader's theme.
The hues start from Okabe & Ito's and Paul Tol's schemes for colour-blind readers, darkened or lightened until
every one of them can be read as text (4.5 : 1) on the page it stands on; tests/test_viz_core.py holds that.
Colour never stands alone: every mark has its label beside it.
"""

from __future__ import annotations

from matplotlib import rcParams
from matplotlib.colors import to_rgb

DOC1 = "#0072b2"  # document 1, blue
DOC2 = "#b94a00"  # document 2, vermilion
PADDING = "#757575"  # padding, grey
QUERY = "#a2378d"  # queries, purple
KEY = "#007a56"  # keys, green
VALUE = "#866200"  # values, ochre
LOCAL = "#0e7490"  # local layers, petrol
GLOBAL = "#5145b5"  # global layers, indigo
POSITIVE = "#37506b"  # numbers above zero, and quantities that have no sign: slate
NEGATIVE = "#c2253b"  # numbers below zero, red as in a ledger
LIT = "#0a0a0a"  # the followed token, the part of the map in question: an outline, over GLOW
GLOW = "#ffdf80"  # the light behind what is lit; never without LIT
INK = "#222222"  # text and axes
MUTED = "#666666"  # second text
FAINT = "#e6e6e6"  # empty cells, hairlines: what may be missed
PAPER = "#ffffff"  # the page

# What each colour becomes on a dark page.
DARK = {
    DOC1: "#56b4e9",
    DOC2: "#ff8f52",
    PADDING: "#8c8c8c",
    QUERY: "#e596d3",
    KEY: "#35c796",
    VALUE: "#e0b52c",
    LOCAL: "#5ac3dd",
    GLOBAL: "#aba4ff",
    POSITIVE: "#a9bfd6",
    NEGATIVE: "#ff7f85",
    LIT: "#fafafa",
    GLOW: "#665117",
    INK: "#e8e8e8",
    MUTED: "#a8a8a8",
    FAINT: "#2f2f2f",
    PAPER: "#121212",
}
# The CSS variable of each colour is --rnj-<name>.
NAMES = {
    DOC1: "doc1",
    DOC2: "doc2",
    PADDING: "padding",
    QUERY: "query",
    KEY: "key",
    VALUE: "value",
    LOCAL: "local",
    GLOBAL: "global",
    POSITIVE: "positive",
    NEGATIVE: "negative",
    LIT: "lit",
    GLOW: "glow",
    INK: "ink",
    MUTED: "muted",
    FAINT: "faint",
    PAPER: "paper",
}
DOCUMENTS = (PADDING, DOC1, DOC2)  # by segment id: 0 is padding, 1 and 2 the documents
TEXT = (INK, MUTED, DOC1, DOC2, QUERY, KEY, VALUE, LOCAL, GLOBAL, POSITIVE, NEGATIVE, LIT)  # may be text: 4.5 : 1
MARKS = (*TEXT, PADDING)  # may be a mark: 3 : 1
FONT = "'DejaVu Sans', Verdana, 'Bitstream Vera Sans', Geneva, sans-serif"  # one typeface; Verdana is as wide
NUMBERED = 0.5  # the strongest tint on which INK still reads at 4.5 : 1, in both themes


def document(segment: int) -> str:
    """The colour of a segment id: 0 padding, 1 the first document, 2 the second, and so on in turn."""
    return DOCUMENTS[0] if segment == 0 else DOCUMENTS[1 + (segment - 1) % 2]


def luminance(colour: str) -> float:
    """Relative luminance of a colour, 0 to 1 (WCAG 2.2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """The contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def blend(colour: str, alpha: float, under: str) -> str:
    """The hex of `colour` laid over `under` with that opacity."""
    mixed = [alpha * c + (1 - alpha) * u for c, u in zip(to_rgb(colour), to_rgb(under), strict=True)]
    return "#" + "".join(f"{round(255 * m):02x}" for m in mixed)


def tint(value: float, vmax: float, strongest: float = 1.0) -> tuple[str, float]:
    """The colour and the opacity of a real value: red below zero, slate above, nothing at zero; full at ±vmax.

    Opacity over the page is the scale, so zero is the page itself, in both themes.
    """
    share = min(abs(value) / vmax, 1.0) if vmax else 0.0
    return (NEGATIVE if value < 0 else POSITIVE), strongest * share


def css() -> str:
    """The variables as a style sheet: light, and dark where the site, JupyterLab, Colab or VS Code is dark."""
    light = ";".join(f"--rnj-{name}:{colour}" for colour, name in NAMES.items())
    dark = ";".join(f"--rnj-{name}:{DARK[colour]}" for colour, name in NAMES.items())
    themes = "html[data-theme=dark],body[data-jp-theme-light=false],html[theme=dark],body.vscode-dark"
    return f":root{{{light}}}\n{themes}{{{dark}}}"


def style() -> None:
    """Set matplotlib to the book's look: one typeface, thin lines, two spines, no frame; SVG with real text."""
    rcParams.update(
        {
            "font.family": "sans-serif",
            "font.sans-serif": ["DejaVu Sans"],
            "font.size": 9,
            "mathtext.fontset": "dejavusans",
            "text.color": INK,
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "savefig.facecolor": "none",
            "figure.dpi": 96,
            "axes.edgecolor": MUTED,
            "axes.labelcolor": MUTED,
            "axes.labelsize": 9,
            "axes.titlesize": 10,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.titlecolor": INK,
            "axes.linewidth": 0.6,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": False,
            "axes.unicode_minus": True,
            "xtick.color": MUTED,
            "ytick.color": MUTED,
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
            "xtick.major.width": 0.6,
            "ytick.major.width": 0.6,
            "xtick.major.size": 3,
            "ytick.major.size": 3,
            "lines.linewidth": 1.4,
            "lines.solid_capstyle": "round",
            "patch.linewidth": 0.0,
            "legend.frameon": False,
            "svg.fonttype": "none",
            "svg.hashsalt": "rnj",
        }
    )
