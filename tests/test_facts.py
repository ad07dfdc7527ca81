"""The table of quoted facts: complete, sourced, and nothing in it that the package computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rnj import RNJ_1_5, accounting, facts

REFERENCES = Path(__file__).parent.parent / "book" / "references.bib"


def test_every_fact_has_a_name_of_its_own_a_value_and_a_source():
    everything = facts.facts()
    assert len({fact.name for fact in everything}) == len(everything)
    for fact in everything:
        assert fact.name and fact.source and fact.value != ""
        assert fact.group in facts.GROUPS


def test_groups_make_up_the_whole():
    assert [fact for group in facts.GROUPS for fact in facts.facts(group)] == facts.facts()
    assert all(facts.facts(group) for group in facts.GROUPS)
    with pytest.raises(ValueError, match="release"):
        facts.facts("hearsay")


@pytest.mark.parametrize(
    "name, value",
    [
        ("Rnj 1.5, context window", "160k"),
        ("Rnj 1.5, RULER score", 79),
        ("Llama 2 70B, GPU-hours", 1_720_320),
        ("Llama 3.1 405B, GPU-hours", 30_840_000),
        ("A100, dense bfloat16 peak", 312e12),
        ("H100, dense bfloat16 peak", 989.4e12),
        ("RMSNorm, eps", RNJ_1_5.norm_eps),
        ("soft cap of the logits", RNJ_1_5.final_logit_softcap),
        ("the Transformer", 2017),
    ],
)
def test_values(name, value):
    assert facts.value(name) == value


def test_what_is_open_is_marked_and_says_so():
    still_open = {fact.name for fact in facts.facts() if not fact.sure}
    assert still_open == {
        "ids that end a generation",
        "id of the padding token",
        "RMSNorm, eps",
        "query_pre_attn_scalar",
        "YaRN, beta_fast",
        "YaRN, beta_slow",
        "YaRN, ends of the ramp rounded",
        "YaRN, attention factor",
        "order of local and global layers",
        "blocks of packed documents counted from",
        "soft cap of the logits",
    }
    assert all(fact.group == "model" for fact in facts.facts() if not fact.sure)


def test_a_number_is_asked_for_by_name():
    assert facts.number("Rnj 1.5, RULER score") == 79
    with pytest.raises(ValueError, match="160k"):
        facts.number("Rnj 1.5, context window")
    with pytest.raises(ValueError, match="Llama 9"):
        facts.value("Llama 9, tokens")


@pytest.mark.parametrize(
    "name, text",
    [
        ("Rnj 1.5, RULER score", "79 %"),
        ("Llama 2 70B, GPU-hours", "1,720,320 A100-hours"),
        ("Llama 3.1 405B, GPU-hours", "30.84 million H100-hours"),
        ("Llama 3.1 405B, tokens", "15.6 trillion tokens"),
        ("GPT-3 175B, tokens", "300 billion tokens"),
        ("GPT-3 175B, training FLOPs as published", "3.14e23 FLOPs"),
        ("H100, dense bfloat16 peak", "989.4 TFLOP/s"),
        ("H100, memory bandwidth", "3.35 TB/s"),
        ("RMSNorm, eps", "1e-06"),
        ("the Transformer", "2017"),
        ("layers, L", "32"),
        ("ids that end a generation", "128,001 and 128,008"),
        ("id of the padding token", "128,002"),
    ],
)
def test_values_as_a_page_writes_them(name, text):
    fact = next(fact for fact in facts.facts() if fact.name == name)
    assert facts.shown(fact) == text
    assert f"| {name} | {text} |" in facts.table()


def test_numerals_that_a_page_may_quote():
    numbers = facts.numbers()
    assert {"160", "128", "79", "1720320", "30840000", "30.84", "15.6", "989.4", "312", "3640", "2017"} <= numbers
    assert all(re.fullmatch(r"\d+(\.\d+)?(e-?\d+)?", numeral) for numeral in numbers)
    assert "706.03762" not in numbers and "1706.03762" not in numbers  # a source lends no numerals


def test_nothing_stands_here_that_the_package_computes():
    computed = {
        accounting.parameters(RNJ_1_5).total,
        accounting.seven_matrices(RNJ_1_5),
        accounting.weight_bytes(RNJ_1_5),
        accounting.kv_bytes_per_token(RNJ_1_5),
        accounting.tokens_until_attention_equals(RNJ_1_5),
        accounting.tokens_until_attention_equals(RNJ_1_5, "no causal half"),
        RNJ_1_5.max_positions,
        *(model.parameters() for model in accounting.KNOWN_MODELS),
    }
    assert {str(number) for number in computed}.isdisjoint(facts.numbers())


def test_the_year_of_a_paper_is_that_of_its_arxiv_number():
    checked = 0
    for fact in facts.facts("paper"):
        number = re.search(r"arXiv:(\d\d)\d\d\.\d{4,5}$", fact.source)
        if number:
            assert fact.value == 2000 + int(number[1]), fact.name
            checked += 1
    assert checked > 30


def test_the_papers_of_the_reference_list_are_here():
    listed = set(re.findall(r"arxiv\.org/abs/(\d+\.\d+)", REFERENCES.read_text(encoding="utf-8")))
    assert len(listed) >= 10
    here = {number for fact in facts.facts("paper") for number in re.findall(r"arXiv:(\d+\.\d+)", fact.source)}
    assert listed <= here


def test_the_table_is_markdown_with_one_row_a_fact():
    for group in (None, *facts.GROUPS):
        lines = facts.table(group).splitlines()
        assert len(lines) == 2 + len(facts.facts(group))
        assert {line.count("|") for line in lines} == {5}
    assert facts.table("model").count("| open |") == 11
