"""Write site/static/palette.css from rnj.viz.palette, so that page and figures share their colours.

To be run after the palette changed; a test says when.
"""

from pathlib import Path

from rnj.viz import palette

TARGET = Path(__file__).resolve().parents[1] / "site" / "static" / "palette.css"


def text() -> str:
    """The style sheet: the palette's variables with a line that says where they come from."""
    return f"/* Written by tools/site_palette.py from rnj.viz.palette. */\n{palette.css()}\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
