"""Questions and exercises of the chapters: right answers are computed, stubs fail, solutions pass."""

import ast
import itertools
import re

import pytest

from tests.book.reading import NOTEBOOKS, code_cells, read, tree
from tests.book.test_running import of_notebooks, run

pytestmark = pytest.mark.book
CHAPTERS = [path for path in NOTEBOOKS if re.match(r"\d\d_", path.stem)]


def questions(path):
    """cell → the call of viz.predict in it."""
    found = {}
    for cell in code_cells(read(path)):
        for node in ast.walk(tree(cell.source)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "viz.predict":
                found[cell.id] = (cell, node)
    return found


@pytest.mark.parametrize("path", CHAPTERS, ids=[path.stem for path in CHAPTERS])
def test_five_questions_a_chapter_and_not_in_a_heap(path):
    ids = [cell.id for cell in read(path).cells]
    places = [ids.index(cell) for cell in questions(path)]
    assert len(places) == 5
    assert all(b - a > 2 for a, b in itertools.pairwise(places)), "questions stand before their answers"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_answers_are_computed_and_out_of_sight(path):
    """The answer is an expression with a name or a call in it; its cell is folded, on the site and in Jupyter."""
    for cell, call in questions(path).values():
        answer = {word.arg: word.value for word in call.keywords}["answer"]
        assert any(isinstance(node, ast.Name | ast.Call) for node in ast.walk(answer)), cell.id
        assert "hide-input" in cell.metadata.get("tags", []), cell.id
        assert cell.metadata.get("jupyter", {}).get("source_hidden") is True, cell.id


@of_notebooks
def test_each_question_has_one_right_choice(path, elsewhere):
    """As it comes out of the cell: one choice is right, the others say which; not always at the same place."""
    made = run(path, elsewhere)
    assert not made.trouble
    cells = [cell.id for cell in read(path).cells if cell.cell_type == "code"]
    places = []
    for cell in questions(path):
        verdicts = re.findall(r"Right\.|No:", made.outputs[cells.index(cell)])
        assert verdicts.count("Right.") == 1 and len(verdicts) in (3, 4), f"{cell}: {verdicts}"
        places.append(verdicts.index("Right."))
    assert len(set(places)) > 1 or not places, "a reader would learn the place"


@of_notebooks
def test_stubs_fail_and_solutions_pass(path, elsewhere):
    """Every exercise: as it stands it is not yet right; its folded solution is, and the planted or empty one is not."""
    made = run(path, elsewhere)
    assert not made.trouble
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    stubs = solutions = 0
    for cell, said in zip(cells, made.outputs, strict=True):
        if not re.search(r"\battempt\(\w+, ", cell.source):
            continue
        if "hide-cell" in cell.metadata.get("tags", []):
            solutions += 1
            assert "Right." in said and "Not yet:" in said, f"{cell.id}: {said}"
        else:
            stubs += 1
            assert "Not yet:" in said and "Right." not in said, f"{cell.id}: {said}"
    assert stubs == solutions and (stubs >= 5 or path not in CHAPTERS)
