"""Sphinx extension: where a page first uses a word of the glossary, the word leads there and shows its definition.

It works on the built pages alone, so that the sources stay plain Markdown: the definition is the link's `title`, which
a browser shows under the pointer; a finger or the keyboard follows the link. Roles ({term}`…`) get their title as well.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

GLOSSARY = "book/glossary"
# Words that a page also uses in their everyday sense: no link of their own accord.
EVERYDAY = {
    *("activation", "attention", "batch", "block", "decode", "document", "frequency", "gate", "head", "kernel", "key"),
    *("layer", "loss", "mask", "pair", "position", "projection", "query", "ramp", "row", "score", "state", "target"),
    *("temperature", "tile", "token", "trace", "value", "vocabulary", "window"),
}
# Text inside these is left as it is.
CLOSED = (nodes.reference, nodes.literal, nodes.literal_block, nodes.title, nodes.math, nodes.caption, nodes.raw)


def words_of(term: str) -> list[str]:
    """The words that a glossary line explains: `grouped-query attention, GQA` explains two."""
    return [word.strip() for word in term.split(",")]


def definitions(doctree: nodes.document) -> dict[str, tuple[str, str]]:
    """word → (anchor on the glossary's page, definition)."""
    found = {}
    for item in doctree.findall(nodes.definition_list_item):
        terms = [child for child in item if isinstance(child, nodes.term)]
        text = re.sub(r"\s+", " ", item[-1].astext()).strip()
        text = re.sub(r"\s*\([\d, ]+\)$", "", text)  # the chapters' numbers
        for term in terms:
            for word in words_of(term.astext()):
                found[word] = (term["ids"][0], text)
    return found


def pattern(words: list[str]) -> re.Pattern[str]:
    """Any of the words, longest first, alone or in the plural; a capital at a sentence's start is allowed."""
    forms = [f"(?:{w[0].upper()}|{w[0]}){re.escape(w[1:])}" if w[0].islower() else re.escape(w) for w in words]
    return re.compile(rf"(?<![\w-])({'|'.join(sorted(forms, key=len, reverse=True))})(?:e?s)?(?![\w-])")


def link(doctree: nodes.document, known: dict[str, tuple[str, str]], address: str) -> list[str]:
    """Link the first use of each word in the running text; returns the words in that order."""
    open_words = [word for word in known if word not in EVERYDAY]
    spell = {word.lower(): word for word in open_words}
    seek, used = pattern(open_words), []
    for text in list(doctree.findall(nodes.Text)):
        if not _running(text):
            continue
        pieces, last, said = [], 0, text.astext()
        for match in seek.finditer(said):
            word = spell[match[1].lower()]
            anchor, definition = known[word]
            if anchor in used:
                continue
            used.append(anchor)
            look = {"refuri": f"{address}#{anchor}", "reftitle": definition, "classes": ["lot-term"]}
            pieces += [nodes.Text(said[last : match.start()]), nodes.reference("", match[0], internal=True, **look)]
            last = match.end()
        if pieces:
            text.parent.replace(text, [*pieces, nodes.Text(said[last:])])
    return used


def _running(text: nodes.Text) -> bool:
    """Whether it stands in a paragraph, outside of code, links, headings and what a cell put out."""
    node, inside = text.parent, False
    while node is not None:
        if isinstance(node, CLOSED) or "cell" in node.get("classes", []):
            return False
        inside = inside or isinstance(node, nodes.paragraph)
        node = node.parent
    return inside


def resolved(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Sphinx calls it for each page, its references in place."""
    if app.builder.format != "html" or GLOSSARY not in app.env.found_docs:
        return
    known = definitions(app.env.get_doctree(GLOSSARY))
    address = app.builder.get_relative_uri(docname, GLOSSARY)
    titles = dict(known.values())  # anchor → definition
    for role in doctree.findall(nodes.reference):
        anchor = role.get("refuri", "").rpartition("#")[2] or role.get("refid", "")
        if anchor in titles:
            role["reftitle"] = titles[anchor]
    if docname != GLOSSARY:
        link(doctree, known, address)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-resolved", resolved)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
