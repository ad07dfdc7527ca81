"""The form of the notebooks: what is in the file, before anything runs."""

import ast
import itertools
import re
import subprocess
import sys

import pytest
from tools import notebooks as tool
from tools.book import toc_files

from tests.book.reading import NAMES, NOTEBOOKS, ROOT, code_cells, count_assertions, empty_assertions, prose, read, tree

CHAPTERS = [path for path in NOTEBOOKS if re.match(r"\d\d_", path.stem)]
pytestmark = pytest.mark.book


@pytest.fixture(params=NOTEBOOKS, ids=NAMES)
def notebook(request):
    return read(request.param)


def test_all_chapters_are_here_and_in_the_contents():
    pages = toc_files(ROOT)
    assert [p for p in pages if re.match(r"book/\d\d_", p)] == [f"book/{path.stem}" for path in CHAPTERS]
    assert len(CHAPTERS) == 7
    here = {str(path.relative_to(ROOT).with_suffix("")) for path in NOTEBOOKS}
    assert here <= set(pages), "a notebook that is in no table of contents"


def test_no_outputs():
    """Outputs in git are megabytes and unreadable diffs: notebooks are kept without."""
    command = [sys.executable, "-m", "nbstripout", "--verify", "--keep-id", *map(str, NOTEBOOKS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"run `make fmt`\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_committed_form(path):
    """No outputs, one metadata, the cell that fetches the package on Colab: `make fmt` sees to all of it."""
    assert path.read_text(encoding="utf-8") == tool.text(tool.put_right(read(path), ROOT)), "run `make fmt`"


def test_ids_are_there_once(notebook):
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)


def test_one_title_and_steps_of_headings(notebook):
    """The table of contents gives the numbers; a level is never skipped."""
    text = "\n".join(prose(cell.source) for cell in notebook.cells if cell.cell_type == "markdown")
    headings = re.findall(r"^(#+) +(.+)$", text, flags=re.M)
    levels = [len(marks) for marks, _ in headings]
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    assert levels[0] == 1 and levels.count(1) == 1
    assert not re.match(r"(chapter\s*)?\d", headings[0][1], flags=re.I), "the site numbers the chapters"
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))


def test_cells_are_short(notebook):
    long = {
        cell.id: len(cell.source.splitlines()) for cell in code_cells(notebook) if len(cell.source.splitlines()) > 15
    }
    assert not long, f"cells of more than 15 lines: {long}"


def test_code_parses_and_stays_with_the_package(notebook):
    """No classes and no plotting in a notebook, and no path tricks: the package is installed and draws."""
    for cell in code_cells(notebook):
        nodes = list(ast.walk(tree(cell.source)))
        assert not any(isinstance(n, ast.ClassDef) for n in nodes), f"{cell.id}: a class in a notebook"
        imported = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
        imported |= {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}
        assert not any(name.split(".")[0] in ("matplotlib", "plotly", "seaborn") for name in imported), cell.id
        assert "sys.path" not in cell.source and "chdir" not in cell.source, f"{cell.id}: a path trick"


def test_assertions_can_fail(notebook):
    empty = {cell.id: found for cell in code_cells(notebook) if (found := empty_assertions(cell.source))}
    assert not empty


@pytest.mark.parametrize("path", CHAPTERS, ids=[path.stem for path in CHAPTERS])
def test_a_chapter_asserts(path):
    assert sum(count_assertions(cell.source) for cell in code_cells(read(path))) >= 3


def test_display_formulas_stand_alone(notebook):
    """`$$` without blank lines around it is not rendered everywhere."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"```.*?```", "", cell.source, flags=re.S)
            assert text.count("$$") % 2 == 0, cell.id
            for block in re.findall(r"(?:^|(?<=\n))[^\n]*\n?\$\$.*?\$\$[^\n]*(?:\n[^\n]*)?", text, flags=re.S):
                lines = block.split("\n")
                before = lines[0].split("$$")[0] if "$$" in lines[0] else lines[0]
                after = lines[-1].rsplit("$$", 1)[-1] if "$$" in lines[-1] else lines[-1]
                assert not before.strip(" >") and not after.strip(" >"), f"{cell.id}: {block[:60]!r}"


def test_figures_have_names_and_captions(notebook):
    """A numbered figure needs a label of its own and a caption that says what to see."""
    seen = []
    for cell in code_cells(notebook):
        figure = cell.metadata.get("mystnb", {}).get("figure")
        if figure is not None:
            assert re.fullmatch(r"fig-[a-z0-9-]+", figure.get("name", "")), cell.id
            assert len(figure.get("caption", "").split()) >= 4, f"{cell.id}: a caption says what to see"
            seen.append(figure["name"])
    assert len(set(seen)) == len(seen)
