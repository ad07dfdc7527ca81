"""Each notebook runs from any folder, each cell twice, without a network, in under a minute; prose and cells agree."""

import functools
import time
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from tools.notebooks import SETUP_ID

from rnj import facts
from tests.book.reading import NOTEBOOKS, code_cells, numerals, output_text, prose_numerals, read, source_numbers

MOST_SECONDS = 60
pytestmark = pytest.mark.book

# Runs before the first cell: whoever asks for another host than this machine is told no.
NO_NETWORK = """
import socket
def _guarded(connect):
    def guarded(self, address):
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"a chapter may not use the network: {address}")
        return connect(self, address)
    return guarded
socket.socket.connect, socket.socket.connect_ex = _guarded(socket.socket.connect), _guarded(socket.socket.connect_ex)
"""
FIGURES_CLOSED = (
    "import matplotlib.pyplot as _p; assert not _p.get_fignums(), f'{len(_p.get_fignums())} figures left open'"
)


@dataclass
class Run:
    """What came out of a notebook whose cells were each run twice."""

    seconds: float = 0.0  # of the first runs, the kernel's start included
    outputs: list[str] = field(default_factory=list)
    numbers: set[float] = field(default_factory=set)  # in the code
    trouble: str = ""


@functools.cache
def run(path: Path, folder: Path) -> Run:
    """Run a notebook in a folder that has nothing to do with it."""
    notebook, made = read(path), Run()
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    began = time.monotonic()
    with client.setup_kernel():
        _extra(client, NO_NETWORK)
        made.seconds += time.monotonic() - began
        for index, cell in enumerate(notebook.cells):
            if cell.cell_type != "code":
                continue
            for turn in ("first", "second"):
                began = time.monotonic()
                try:
                    client.execute_cell(cell, index)
                except Exception as error:
                    made.trouble = f"cell {cell.id}, {turn} time: {str(error)[-2000:]}"
                    return made
                if turn == "first":
                    made.seconds += time.monotonic() - began
                    made.outputs.append(output_text(cell.outputs))
        try:
            _extra(client, FIGURES_CLOSED)
        except Exception as error:
            made.trouble = str(error)[-500:]
    for cell in code_cells(notebook):
        made.numbers |= source_numbers(cell.source)
    return made


def _extra(client: NotebookClient, source: str) -> None:
    """Run a cell that is not in the notebook."""
    client.nb.cells.append(nbformat.v4.new_code_cell(source))
    try:
        client.execute_cell(client.nb.cells[-1], len(client.nb.cells) - 1)
    finally:
        client.nb.cells.pop()


def of_notebooks(test):
    """One test for each notebook; those of one notebook in one worker, so that it runs once."""
    marked = [pytest.param(path, id=path.stem, marks=pytest.mark.xdist_group(path.stem)) for path in NOTEBOOKS]
    return pytest.mark.parametrize("path", marked)(test)


@of_notebooks
def test_runs_each_cell_twice_anywhere_without_a_network(path, elsewhere):
    assert not run(path, elsewhere).trouble


@of_notebooks
def test_takes_less_than_a_minute(path, elsewhere):
    made = run(path, elsewhere)
    print(f"{path.stem}: {made.seconds:.1f} s")
    assert made.seconds < MOST_SECONDS


def prose_of(cell) -> str:
    """What a cell says in words: its text, or the caption of its figure."""
    if cell.cell_type == "markdown":
        return cell.source
    return cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "")


@of_notebooks
def test_numbers_of_the_prose_are_those_of_the_cells(path, elsewhere):
    """Each numeral of three digits and more: printed, shown or written in a cell, or in the table of facts."""
    made = run(path, elsewhere)
    assert not made.trouble
    known = made.numbers | {value for text in made.outputs for _, value in numerals(text)}
    known |= {float(text) for text in facts.numbers()}
    strange = {
        f"{cell.id}: {written}"
        for cell in read(path).cells
        for written, value in prose_numerals(prose_of(cell))
        if value not in known
    }
    assert not strange, f"in no output, no code and no fact: {sorted(strange)}"


def test_setup_cell_does_nothing_here():
    """The package is installed, so nothing is fetched: the guard against the network would have stopped it."""
    assert all(any(cell.id == SETUP_ID for cell in read(path).cells) for path in NOTEBOOKS)
