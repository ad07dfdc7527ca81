"""The glossary's words on the pages: each linked where it is first used, with its definition, and nowhere else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from docutils import nodes
from docutils.core import publish_doctree

PATH = Path(__file__).resolve().parents[1] / "site" / "glossary_hover.py"
spec = importlib.util.spec_from_file_location("glossary_hover", PATH)
hover = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hover)

GLOSSARY = """
logits
  One number for each token. (1)

grouped-query attention, GQA
  Query heads share keys,
  some to each. (4, 7)

key
  What a position offers.
"""


@pytest.fixture
def known():
    doctree = publish_doctree(GLOSSARY)
    for number, term in enumerate(doctree.findall(nodes.term)):
        term["ids"] = [f"term-{number}"]
    return hover.definitions(doctree)


def linked(text, known):
    doctree = publish_doctree(text)
    used = hover.link(doctree, known, "glossary.html")
    links = [(r.astext(), r["refuri"], r["reftitle"]) for r in doctree.findall(nodes.reference) if "reftitle" in r]
    return used, links, doctree.astext()


def test_a_line_may_explain_two_words(known):
    assert set(known) == {"logits", "grouped-query attention", "GQA", "key"}
    assert known["GQA"] == known["grouped-query attention"] == ("term-1", "Query heads share keys, some to each.")


def test_the_first_use_is_linked_once(known):
    used, links, text = linked("Logits are numbers; logits again.\n\nHere GQA, and grouped-query attention.", known)
    assert used == ["term-0", "term-1"], "both words of a line have one link together"
    assert links[0] == ("Logits", "glossary.html#term-0", "One number for each token.")
    assert links[1][0] == "GQA" and len(links) == 2
    assert text == "Logits are numbers; logits again.\n\nHere GQA, and grouped-query attention.", "no word is lost"


@pytest.mark.parametrize(
    "text",
    [
        "``logits`` in code",
        "`logits <https://example.org>`_ in a link",
        "pre-logits and logits2 and gqa and the key of a dict",  # parts of words, another spelling, an everyday word
        "Logits\n======\n\nUnder a heading.",
        "::\n\n  logits = 3",
    ],
)
def test_the_rest_stays_as_it_is(known, text):
    used, links, _ = linked(text, known)
    assert used == [] and links == []


def test_what_cells_put_out_stays_as_it_is(known):
    doctree = publish_doctree(".. container:: cell\n\n   The logits are printed.\n\nThe logits are explained.")
    hover.link(doctree, known, "g.html")
    assert [p.astext() for p in doctree.findall(nodes.paragraph) if list(p.findall(nodes.reference))] == [
        "The logits are explained."
    ]


def test_plurals_and_longest_first():
    known = {"local layer": ("a", "x"), "MLP": ("b", "y"), "layer norm": ("c", "z")}
    used, links, _ = linked("Local layers have MLPs.", known)
    assert used == ["a", "b"] and [word for word, *_ in links] == ["Local layers", "MLPs"]
