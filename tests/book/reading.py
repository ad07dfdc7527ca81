"""What the tests read out of the notebooks: code without magics, assertions that say nothing, numerals of prose.

The book under test is this repository's; BOOK_ROOT names another folder that has _toc.yml and book/.
"""

from __future__ import annotations

import ast
import html
import io
import json
import os
import re
import tokenize
from pathlib import Path

import nbformat
from bs4 import BeautifulSoup
from IPython.core.inputtransformer2 import TransformerManager
from tools import notebooks as tool

ROOT = Path(os.environ.get("BOOK_ROOT", Path(__file__).resolve().parents[2]))
NOTEBOOKS = tool.notebooks(ROOT)
NAMES = [path.stem for path in NOTEBOOKS]


def read(path: Path) -> nbformat.NotebookNode:
    """A notebook as it stands in the file."""
    return nbformat.read(path, as_version=4)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The code cells, without the one that fetches the package."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.id != tool.SETUP_ID]


def tree(source: str) -> ast.Module:
    """The syntax tree of a cell; magics become calls."""
    return ast.parse(TransformerManager().transform_cell(source))


# Assertions that say nothing

EQUALITIES = {"equal", "allclose", "array_equal", "isclose", "assert_close", "assert_allclose", "assert_array_equal"}


def _same(a: ast.expr, b: ast.expr) -> bool:
    return ast.dump(a) == ast.dump(b)


def _fixed(node: ast.expr) -> bool:
    """Nothing in it can change from run to run: no name, no call."""
    return not any(isinstance(n, ast.Name | ast.Call | ast.Await) for n in ast.walk(node))


def _call_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _always(node: ast.expr) -> str:
    """Why an asserted expression is always true, or an empty string."""
    if isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.Set) and ast.unparse(node) not in ("()", "[]", "{}"):
        return "a display that is not empty is true"
    if isinstance(node, ast.JoinedStr | ast.Lambda | ast.GeneratorExp):
        return "true whatever it holds"
    if _fixed(node):
        return "a constant"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and _fixed(node.operand):
        return "a constant"
    if isinstance(node, ast.BoolOp):
        whys = [_always(value) for value in node.values]
        if isinstance(node.op, ast.Or):
            return next((why for why in whys if why), "")
        return whys[0] if all(whys) else ""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        reflexive = (ast.Eq, ast.Is, ast.GtE, ast.LtE)
        if all(isinstance(op, reflexive) and _same(a, b) for a, op, b in zip(sides, node.ops, sides[1:], strict=False)):
            return "a thing compared with itself"
        if len(node.ops) == 1 and isinstance(node.left, ast.Call) and isinstance(node.comparators[0], ast.Constant):
            least = node.comparators[0].value
            never_less = _call_name(node.left) in ("len", "abs", "norm", "numel")
            if never_less and isinstance(node.ops[0], ast.GtE) and least == 0:
                return "never below zero anyway"
    if isinstance(node, ast.Call):
        name = _call_name(node)
        if name in EQUALITIES and len(node.args) >= 2 and _same(node.args[0], node.args[1]):
            return "a thing compared with itself"
        if name == "isinstance" and ast.unparse(node.args[-1]) == "object":
            return "everything is an object"
        if name in ("all", "any") and isinstance(node.func, ast.Name) and len(node.args) == 1:
            inner = node.args[0]
            if isinstance(inner, ast.List | ast.Tuple) and not inner.elts:
                return "nothing is asked"
            if isinstance(inner, ast.GeneratorExp | ast.ListComp):
                return _always(inner.elt)
    return ""


def empty_assertions(source: str) -> list[str]:
    """The assertions of a cell that cannot fail, and the places that swallow those that can."""
    found = []
    for node in ast.walk(tree(source)):
        if isinstance(node, ast.Assert):
            why = _always(node.test)
            if why:
                found.append(f"`{ast.unparse(node)}`: {why}")
        elif isinstance(node, ast.Try):
            asserts = any(isinstance(n, ast.Assert) for statement in node.body for n in ast.walk(statement))
            for handler in node.handlers:
                names = ast.unparse(handler.type) if handler.type else "everything"
                raises = any(isinstance(n, ast.Raise | ast.Assert) for s in handler.body for n in ast.walk(s))
                if asserts and re.search(r"everything|AssertionError|Exception\b", names) and not raises:
                    found.append(f"an assertion whose failure is caught ({names})")
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Constant) and not node.test.value:
            if any(isinstance(n, ast.Assert) for statement in node.body for n in ast.walk(statement)):
                found.append("an assertion that never runs")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _always(node.value):
            found.append(f"`{ast.unparse(node)}`: {_always(node.value)}")
    return found


def count_assertions(source: str) -> int:
    """How many assertions a cell holds, torch's and numpy's own among them."""
    nodes = list(ast.walk(tree(source)))
    calls = [n for n in nodes if isinstance(n, ast.Call) and _call_name(n).startswith("assert_")]
    return sum(isinstance(n, ast.Assert) for n in nodes) + len(calls)


# Numerals

NUMERAL = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w]|\.\d)")
YEAR = re.compile(r"(?:19[5-9]|20[0-4])\d")


def _plain(text: str) -> str:
    """Numerals written alike: no thin or TeX separators, ASCII minus in exponents."""
    text = text.replace("{,}", ",").replace("\\,", "\u202f").replace("−", "-")
    return re.sub(r"(?<=\d)[\u202f\u2009\u00a0'](?=\d{3}(?!\d))", ",", text)


def numerals(text: str) -> list[tuple[str, float]]:
    """Numerals as written, with their values. Digits inside names (block_3, RNJ_1_5, fp16) are none."""
    found = []
    for match in NUMERAL.finditer(_plain(text)):
        written = match.group()
        if "," in written and not re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", written):
            found += [(part, float(part)) for part in written.split(",")]
        else:
            found.append((written, float(written.replace(",", ""))))
    return found


def prose(markdown: str) -> str:
    """A Markdown cell without what is no prose: code blocks, addresses, roles, labels, raw HTML's tags."""
    text = re.sub(r"^([ \t]*)(`{3,}|~{3,}|:{3,})[^\n]*\n.*?^\1\2[ \t]*$", _fence, markdown, flags=re.M | re.S)
    text = re.sub(r"\{[\w:]+\}`[^`]*`", " ", text)  # roles: {cite}`…`, {numref}`…`
    text = re.sub(r"^\([\w-]+\)=\s*$", " ", text, flags=re.M)  # labels
    text = re.sub(r"(\]\()[^)]*\)", "] ", text)  # the targets of links
    text = re.sub(r"<?https?://\S+|arXiv:\s?\S+", " ", text)
    return re.sub(r"<[^>\n]*>", " ", text)


def _fence(match: re.Match[str]) -> str:
    """A fenced block: code is dropped, a directive's text is prose."""
    lines = match.group().splitlines()
    return "\n".join(lines[1:-1]) if lines[0].lstrip("`~: ").startswith("{") and "code" not in lines[0] else " "


def is_year(written: str, before: str) -> bool:
    """A year of a citation or a date: bare, and after a name, a bracket, a month or 'in', 'of', 'since'."""
    if not YEAR.fullmatch(written):
        return False
    return bool(
        re.search(r"(?:[A-Z][\w’'.-]*|et al\.?|\(|\bin|\bof|\bsince|\bfrom|\bby|,|;|–|-|\d)\s?[,(]?\s?$", before)
    )


def prose_numerals(markdown: str) -> list[tuple[str, float]]:
    """The numerals of three digits and more in a Markdown cell's prose, years of citations and dates left out."""
    text = _plain(prose(markdown))
    found = []
    for match in NUMERAL.finditer(text):
        before = text[max(0, match.start() - 40) : match.start()]
        for written, value in numerals(match.group()):
            digits = sum(c.isdigit() for c in re.sub(r"[eE].*", "", written))
            if digits >= 3 and not is_year(written, before):
                found.append((written, value))
    return found


def output_text(outputs: list[nbformat.NotebookNode]) -> str:
    """All that a reader can see of a cell's outputs, the other frames of a stepper included."""
    parts = []
    for output in outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        data = output.get("data", {})
        for kind in ("text/plain", "text/markdown", "text/latex"):
            parts.append(data.get(kind, ""))
        if "text/html" in data:
            page = data["text/html"]
            parts += [_words(json.loads(f'"{text}"')) for text in re.findall(r'"readout":"((?:[^"\\]|\\.)*)"', page)]
            parts += [html.unescape(alt) for alt in re.findall(r'aria-label="([^"]*)"', page)]
            parts.append(_words(page))
    return "\n".join(parts)


def _words(page: str) -> str:
    soup = BeautifulSoup(page, "html.parser")
    for hidden in soup(["script", "style"]):
        hidden.decompose()
    return soup.get_text(" ")


def source_numbers(source: str) -> set[float]:
    """The numbers that a cell's code holds, comments and strings left out."""
    code = TransformerManager().transform_cell(source)
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.NUMBER:
            value = ast.literal_eval(token.string)
            if not isinstance(value, complex):
                found.add(float(value))
    return found
