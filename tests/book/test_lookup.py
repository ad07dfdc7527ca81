"""The pages to look things up in, the map on the front page, and what lies beyond: they agree with the package."""

import importlib
import re

import pytest
import torch
from bs4 import BeautifulSoup
from pybtex.database import parse_file
from tools import site_map
from tools.book import toc_files

import rnj
from rnj import accounting, example
from tests.book.reading import ROOT
from tests.book.test_site import REPOSITORY, page, table

pytestmark = pytest.mark.book
LETTERS = {"D": "d_model", "F": "d_ff", "N": "n_heads", "K": "n_kv_heads", "H": "head_dim", "V": "vocab_size"}


@pytest.fixture(scope="module")
def traces():
    """The running row through both models: the large one has shapes alone."""
    row = example.row()
    small = rnj.build(rnj.SMALL).trace(row.tokens, row.positions, row.segments)
    large = rnj.meta(rnj.RNJ_1_5).to(torch.bfloat16).trace(row.tokens.to("meta"))
    return {rnj.SMALL: small, rnj.RNJ_1_5: large}


def names_of(cell):
    """`block.3.attn.k`, `.v` are two names."""
    parts = [part.strip(" `") for part in cell.split(",")]
    stem = parts[0].rsplit(".", 1)[0]
    return [stem + part if part.startswith(".") else part for part in parts]


def test_notation_gives_every_tensors_shape(traces):
    """In letters and in numbers, for both models; no tensor of a block or of the model is left out."""
    row, told = example.row(), []
    for first, letters, small, large, _ in table(page("notation"), "name"):
        for config, shape in ((rnj.SMALL, small), (rnj.RNJ_1_5, large)):
            sizes = {"B": 1, "T": row.tokens.shape[1], "S": row.tokens.shape[1]}
            sizes |= {letter: getattr(config, field) for letter, field in LETTERS.items()}
            assert str([sizes[letter] for letter in letters.strip("[]").split(", ")]) == shape, first
            for name in names_of(first):
                assert str(list(traces[config][name].shape)) == shape, name
        told += names_of(first)
    assert len(set(told)) == len(told)
    outside = {name for name in traces[rnj.SMALL] if not name.startswith("block.")}
    assert set(told) == outside | {name for name in traces[rnj.SMALL] if name.startswith("block.3.")}


def test_glossary_is_in_order_and_numbers_chapters():
    text = page("glossary")
    terms = re.findall(r"^(?![# `]|The words)(\S.*)$", text, flags=re.M)
    plain = [re.sub(r"[^a-z0-9 ]", "", term.lower().replace("-", " ")) for term in terms]
    assert plain == sorted(plain) and len(set(plain)) == len(plain) > 90
    for numbers in re.findall(r"\(([\d, ]+)\)$", text, flags=re.M):
        assert all(1 <= int(n) <= 7 for n in numbers.split(","))


@pytest.mark.parametrize("letter", ["B", "T", "S", *LETTERS, "G", "L", "C"])
def test_notation_has_every_axis(letter):
    assert letter in [row[0] for row in table(page("notation"), "letter")]


def sections():
    """heading → text of Beyond this model."""
    parts = re.split(r"^## (.+)$", page("beyond"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_beyond_names_all_of_it():
    wanted = ["Weight sharing", "Attention residuals", "latent attention", "Linear attention", "Mixture of experts"]
    wanted += ["Muon", "Multi-token prediction", "Sparse attention"]
    assert [any(name in heading for heading in sections()) for name in wanted] == [True] * 8


@pytest.mark.parametrize("heading", list(sections()))
def test_beyond_cites_and_names_what_there_is(heading):
    """Each paragraph has its work, and names files of the package and functions that stand in them."""
    text = sections()[heading]
    works = parse_file(str(ROOT / "book" / "references.bib")).entries
    cited = re.findall(r"\{cite\}`([\w,]+)`", text)
    assert cited and set(cited) <= set(works)
    story, code = text.split("**In this code.**")
    files = re.findall(r"`src/rnj/(\w+)\.py`", code)
    assert files and not re.search(r"src/rnj", story)
    for file in files:
        assert (REPOSITORY / "src" / "rnj" / f"{file}.py").is_file(), file
    modules = [importlib.import_module(f"rnj.{file}") for file in files]
    for name in re.findall(r"`([A-Z]\w+(?:\.\w+)?|\w+_\w+)`", code):
        first, *rest = name.split(".")
        known = any(hasattr(module, first) for module in modules)
        field = first in rnj.Config.__dataclass_fields__ or first in dict(
            rnj.meta(rnj.SMALL).blocks[0].attn.named_children()
        )
        assert known or field, name
        for module in modules if rest else []:
            assert not hasattr(module, first) or hasattr(getattr(module, first), rest[0]), name


def test_beyond_counts_the_cache():
    numbers = accounting.kv_bytes_per_token_per_layer(rnj.RNJ_1_5) // 2
    assert f"Rnj 1.5 keeps 2 · K · H = {numbers:,}" in page("beyond").replace("\n", " ")


def test_front_page_has_the_map():
    assert (REPOSITORY / "site" / "map.html").read_text(encoding="utf-8") == site_map.text(), (
        "run python -m tools.site_map"
    )
    assert "../site/map.html" in page("index")


def test_map_leads_to_every_chapter():
    links = {a["href"] for a in BeautifulSoup(site_map.text(), "html.parser")("a")}
    chapters = [name.split("/")[1] for name in toc_files(ROOT) if re.match(r"book/\d\d_", name)]
    assert links == {f"{name}.html" for name in chapters}


@pytest.mark.parametrize("name", toc_files(ROOT)[1:])
def test_front_page_leads_to_every_page(name):
    assert re.search(rf"\]\({name.removeprefix('book/')}\.(ipynb|md)\)", page("index"))
