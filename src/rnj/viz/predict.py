"""Predict, then see: a question before the part of a chapter that answers it.

    viz.predict("How many of the 16 places have a target?", [13, 14, 15, 16],
                answer=(row.targets != -100).sum(), why="The last token of a document has none.")

The answer is what the cell computes, never what somebody typed: where it is not among the choices, the cell fails.
Each choice is a native disclosure (`<details>`): it opens by mouse, finger or keyboard, says what it does to a screen
reader, in a notebook as on a page, and needs neither a kernel nor a script.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnj.viz import palette
from rnj.viz.stepper import _plain, shown

CSS = (Path(__file__).parent / "predict.css").read_text(encoding="utf-8")
FEWEST, MOST = 3, 4  # choices
# JupyterLab binds these keys in command mode: here they belong to the choices.
_KEYS = "if(/^(Enter| )$/.test(event.key))event.stopPropagation()"


class Question:
    """A question with its choices, ready to be displayed. Made by `predict`.

    question: what is asked; choices: as they are shown; right: the index of the right one; why: what the others miss.
    """

    def __init__(self, question: str, choices: Sequence[str], right: int, why: str) -> None:
        self.question = question
        self.choices = list(choices)
        self.right = right
        self.why = why

    def html(self) -> str:
        """The question as HTML that brings its own style along."""
        group = "rnj-predict-" + hashlib.sha256(self.question.encode()).hexdigest()[:10]  # one open at a time
        right = _words(self.choices[self.right])
        told = {
            True: f'<b class="rnj-yes">Right.</b> {_words(self.why)}',
            False: f'<b class="rnj-no">No: {right}.</b> {_words(self.why)}',
        }
        rows = "".join(
            f'<details name="{group}" class="{"rnj-right" if i == self.right else "rnj-wrong"}">'
            f"<summary>{_words(choice)}</summary><p>{told[i == self.right]}</p></details>"
            for i, choice in enumerate(self.choices)
        )
        return (
            f'<div class="rnj-predict" role="group" aria-label="Predict before you read on" onkeydown="{_KEYS}">'
            f'<style>{palette.css()}\n{CSS}</style><p class="rnj-kicker" aria-hidden="true">Predict</p>'
            f'<p class="rnj-title">{_words(self.question)}</p>{rows}</div>'
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Predict: {self.question}"


def predict(question: str, choices: Sequence[Any] | Mapping[str, Any], answer: Any, why: str) -> Question:
    """A question whose right answer is `answer`.

    choices: three or four values, shown as a stepper shows them, or a mapping from what is shown to the value it stands
    for. answer: the value that was computed (a 0-d tensor is a number). why: a sentence or two that explain the answer.
    `Backticks` in any text make code. Raises ValueError where the answer is no choice, or two choices are alike.
    """
    if isinstance(choices, Mapping):
        names, values = list(choices), [_plain(value) for value in choices.values()]
    else:
        values = [_plain(value) for value in choices]
        names = [shown(value) for value in values]
    answer = _plain(answer)
    if not FEWEST <= len(names) <= MOST:
        raise ValueError(f"a question has {FEWEST} or {MOST} choices, not {len(names)}")
    if not question.strip() or not why.strip() or not all(name.strip() for name in names):
        raise ValueError("a question, its choices and its why need words")
    if any(a == b for i, a in enumerate(values) for b in values[:i]) or len(set(names)) < len(names):
        raise ValueError(f"two choices are alike: {dict(zip(names, values, strict=True))}")
    if answer not in values:
        raise ValueError(f"the answer is {answer!r}, which is none of the choices {values}")
    return Question(question, names, values.index(answer), why)


def _words(text: str) -> str:
    """Text as HTML, `code` set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
