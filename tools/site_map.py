"""Write site/map.html, the front page's map of the model, from rnj.viz.map: every part leads to its chapter.

To be run after the map changed; a test says when.
"""

from pathlib import Path

from rnj.viz import model_map

TARGET = Path(__file__).resolve().parents[1] / "site" / "map.html"
# Where each part of the map is built
PAGES = {
    "text": "01_forward_pass",
    "embedding": "01_forward_pass",
    "block": "01_forward_pass",
    "norm": "02_rmsnorm",
    "mlp": "03_geglu",
    "attention": "04_multi_head_attention",
    "yarn": "05_yarn",
    "core_attention": "06_core_attention",
    "cache": "07_transformer_math",
    "head": "01_forward_pass",
}


def text() -> str:
    """The map with its links, as a part of the front page."""
    shown = model_map(links={part: f"{page}.html" for part, page in PAGES.items()})
    return f"<!-- Written by tools/site_map.py from rnj.viz.map. -->\n{shown.html()}\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
