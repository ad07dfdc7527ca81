"""A question before its answer: the right choice is the computed one, and all of it works without a script."""

from __future__ import annotations

import re

import pytest
import torch
from bs4 import BeautifulSoup

from rnj.viz import palette, predict
from rnj.viz.predict import CSS

CHOICES = [4_095, 4_096, 4_097]


def made(**changed):
    given = {"question": "How many keys?", "choices": CHOICES, "answer": 4_097, "why": "One block and one more."}
    return predict(**(given | changed))


def page(question):
    return BeautifulSoup(question.html(), "html.parser")


def test_the_computed_answer_is_the_right_one():
    question = made(answer=torch.tensor(4_097))
    assert question.choices == ["4,095", "4,096", "4,097"] and question.right == 2
    told = [row.p.get_text() for row in page(question).find_all("details")]
    assert told == ["No: 4,097. One block and one more."] * 2 + ["Right. One block and one more."]


def test_names_stand_for_values():
    question = made(choices={"it grows": 1, "it stays": 0, "it falls": -1}, answer=torch.tensor(0.0))
    assert question.choices[question.right] == "it stays"
    assert page(question).select_one("details.rnj-right summary").get_text() == "it stays"
    assert len(page(question).select("details.rnj-wrong")) == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"answer": 4_098}, "the answer is 4098, which is none of the choices"),
        ({"answer": float("nan")}, "none of the choices"),
        ({"choices": [4_096, 4_097]}, "3 or 4 choices, not 2"),
        ({"choices": range(4_095, 4_100)}, "3 or 4 choices, not 5"),
        ({"choices": [4_096, 4_097, 4_097]}, "two choices are alike"),
        ({"choices": {"a": 4_097, "b": 4_097, "c": 1}}, "two choices are alike"),
        ({"choices": [1.00001, 1.00002, 4_097]}, "two choices are alike"),  # both are shown as 1
        ({"why": " "}, "need words"),
        ({"question": ""}, "need words"),
        ({"choices": {"": 1, "b": 2, "c": 4_097}}, "need words"),
    ],
)
def test_a_question_that_cannot_be_asked_is_an_error(changed, message):
    with pytest.raises(ValueError, match=message):
        made(**changed)


def test_native_and_named():
    """Each choice is a disclosure of one group: reached by Tab, opened by Enter; no script, nothing fetched."""
    soup = page(made())
    assert soup.div["role"] == "group" and soup.div["aria-label"]
    assert all(row.find(True).name == "summary" for row in soup.find_all("details"))
    groups = {row["name"] for row in soup.find_all("details")}
    assert len(groups) == 1 and groups != {page(made(question="Another?")).details["name"]}
    assert not soup.find("script") and not soup.find(src=True) and not soup.find(href=True)
    assert not any(row.has_attr("open") for row in soup.find_all("details")), "the answer shows too early"


def test_text_is_text_and_backticks_are_code():
    question = made(question="Is `a < b` & c?", choices=["`<b>`", "no", "4"], answer="no", why="`x` is <i>.")
    soup = page(question)
    assert soup.select_one(".rnj-title").get_text() == "Is a < b & c?" and soup.select_one(".rnj-title code")
    assert soup.find("summary").code.get_text() == "<b>" and not soup.find("i")
    assert "Predict: Is" in repr(question) and question._repr_mimebundle_()["text/html"] == question.html()


def test_colours_are_the_palettes():
    """Every colour is a variable of the palette, with its light value for pages that know none."""
    light = {name: colour for colour, name in palette.NAMES.items()}
    used = re.findall(r"var\(--rnj-([\w]+), (#[0-9a-f]+)\)", CSS)
    assert len(used) >= 10 and len(used) == CSS.count("#")
    for name, colour in used:
        whole = colour if len(colour) == 7 else "#" + "".join(2 * c for c in colour[1:])
        assert light[name] == whole
