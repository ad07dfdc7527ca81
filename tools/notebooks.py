"""Bring the notebooks into the form in which they are committed, or say what is not in it.

No outputs, no execution counts; and, second, the cell that fetches the package where it is not installed (Colab).

    python tools/notebooks.py            say what is not as it should be; 1 if anything is
    python tools/notebooks.py --write    put it right
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parents[1]
KEPT = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SETUP_ID = "setup"


def notebooks(root: Path = ROOT) -> list[Path]:
    """All notebooks of the book."""
    return sorted(p for p in (root / "book").rglob("*.ipynb") if not any(part.startswith(".") for part in p.parts))


def setup_source(root: Path = ROOT) -> str:
    """The cell that makes a chapter run where only the notebook is: the public copy's address stands in _config.yml."""
    url = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
    return (
        "try:\n    import rnj\nexcept ModuleNotFoundError:  # on Colab: fetch the package first\n"
        f'    %pip install -q "rnj @ git+{url}"'
    )


def put_right(notebook: nbformat.NotebookNode, root: Path = ROOT) -> nbformat.NotebookNode:
    """The same notebook in its committed form."""
    made = nbformat.from_dict(notebook)
    made.metadata = nbformat.from_dict(KEPT)
    for cell in made.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    made.cells = [cell for cell in made.cells if cell.id != SETUP_ID]
    setup = nbformat.v4.new_code_cell(setup_source(root), id=SETUP_ID, metadata={"tags": ["remove-cell"]})
    made.cells.insert(1, setup)
    return made


def text(notebook: nbformat.NotebookNode) -> str:
    """As it stands in the file."""
    return nbformat.writes(notebook) + "\n"


def main(arguments: list[str]) -> int:
    wrong = 0
    for path in notebooks():
        old = path.read_text(encoding="utf-8")
        new = text(put_right(nbformat.reads(old, as_version=4)))
        if new == old:
            continue
        wrong += 1
        if "--write" in arguments:
            path.write_text(new, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'put right' if '--write' in arguments else 'not in its committed form'}")
    return 1 if wrong and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
