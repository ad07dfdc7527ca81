"""The pages that are no notebooks, and what the site is configured with: they agree with the package."""

import re

import pytest
import yaml
from bs4 import BeautifulSoup
from pybtex.database import parse_file
from tools import site_palette
from tools.book import toc_files
from tools.notebooks import setup_source

import rnj
from rnj import accounting, example
from tests.book.reading import NOTEBOOKS, ROOT, code_cells, read

REPOSITORY = site_palette.TARGET.parents[2]
pytestmark = pytest.mark.book


def page(name):
    return (ROOT / "book" / f"{name}.md").read_text(encoding="utf-8")


def config():
    return yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))


def table(text, first):
    """The rows of the Markdown table whose header begins with `first`, as lists of cells."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} "))
    rows = [[cell.strip(" `") for cell in line.strip().strip("|").split("|")] for line in lines[start:]]
    return rows[2 : next((i for i, line in enumerate(lines[start:]) if not line.startswith("|")), None)]


def test_front_page_counts_the_parameters():
    counted = {name: int(count.replace(",", "")) for name, count, _ in table(page("index"), "size")}
    assert counted == {n: accounting.parameters(getattr(rnj, n)).total for n in ("RNJ_1_5", "SMALL", "TINY")}


def test_front_page_shows_the_running_row():
    chips = BeautifulSoup(page("index"), "html.parser").select(".lot-row i")
    row = example.row()
    assert [chip.get_text() for chip in chips] == example.labels(row)
    assert [int(chip.parent["class"][-1][-1]) for chip in chips] == row.segments[0].tolist()
    assert [i for i, chip in enumerate(chips) if "lot-lit" in chip.get("class", [])] == [example.FOLLOWED]


def test_front_page_says_how_long_the_context_is():
    assert f"context of {rnj.RNJ_1_5.max_positions:,} tokens" in page("index").replace("\n", " ")


def test_front_page_links_every_chapter():
    linked = re.findall(r"\]\((\d\d_\w+)\.ipynb\)", page("index"))
    assert linked == [path.split("/")[1] for path in toc_files(ROOT) if re.match(r"book/\d\d_", path)]


def test_notation_gives_the_sizes():
    fields = {"D": "d_model", "F": "d_ff", "N": "n_heads", "K": "n_kv_heads", "G": "group", "H": "head_dim"}
    fields |= {"V": "vocab_size", "L": "n_layers", "C": "block_size"}
    for letter, _, large, small in table(page("notation"), "letter"):
        if letter in fields:
            assert large == f"{getattr(rnj.RNJ_1_5, fields[letter]):,}", letter
            assert small == f"{getattr(rnj.SMALL, fields[letter]):,}", letter


def test_notation_names_what_trace_returns():
    row = example.row()
    trace = rnj.build(rnj.SMALL).trace(row.tokens, row.positions, row.segments)
    known = set(trace)
    names = []
    for first, *_ in table(page("notation"), "name"):
        parts = [part.strip(" `") for part in first.split(",")]
        stem = parts[0].rsplit(".", 1)[0]
        names += [stem + part if part.startswith(".") else part for part in parts]
    assert set(names) <= known, sorted(set(names) - known)
    block = {name for name in known if name.startswith("block.3.")} | {n for n in known if not n.startswith("block.")}
    missing = block - set(names) - {"block.3.attn.allowed"}
    assert not missing, f"not on the page: {sorted(missing)}"


def test_all_references_of_the_post_with_checked_titles():
    works = parse_file(str(ROOT / "book" / "references.bib")).entries
    post = sorted((e.fields["keywords"], key) for key, e in works.items() if "keywords" in e.fields)
    assert [name for name, _ in post] == [f"post{n:02d}" for n in range(1, 14)]
    plain = {name: re.sub(r"[{}]", "", works[key].fields["title"]) for name, key in post}
    assert plain["post04"] == "Attention Residuals"
    assert plain["post13"].startswith("DeepSeek-V3.2")
    text = page("references")
    for name, key in post:
        assert f"| {int(name[4:])} | *{plain[name]}* {{cite}}`{key}` |" in text
    assert all(entry.fields["url"].startswith("https://") for entry in works.values())


def test_credits():
    for text in (page("index"), (REPOSITORY / "README.md").read_text(encoding="utf-8")):
        assert "https://www.aleksagordic.com/blog/transformer" in text and "Aleksa Gordić" in text


def test_colours_are_those_of_the_figures():
    assert site_palette.TARGET.read_text(encoding="utf-8") == site_palette.text(), "run python tools/site_palette.py"


def test_style_sheet_uses_known_colours():
    known = set(re.findall(r"--rnj-[\w]+", site_palette.text())) | {"--rnj-rule"}
    used = set(re.findall(r"--rnj-[\w]+", (REPOSITORY / "site" / "static" / "book.css").read_text(encoding="utf-8")))
    assert used <= known


def test_public_address_stands_in_one_place():
    """_config.yml has it; the cell that fetches the package follows, as tools/notebooks.py writes it."""
    url = config()["repository"]["url"]
    assert url.startswith("https://github.com/") and url in setup_source(ROOT)


def test_site_asks_nobody():
    settings = config()["sphinx"]["config"]
    assert not settings["mathjax_path"].startswith("http") and settings["nb_ipywidgets_js"] == {}
    assert config()["launch_buttons"]["thebe"] is False


def test_pins_of_binder_are_those_of_requirements():
    def pins(path):
        lines = (REPOSITORY / path).read_text(encoding="utf-8").split("# book")[0].splitlines()
        return [line.replace("+cpu", "") for line in lines if line and not line.startswith(("#", "-"))]

    assert pins(".binder/requirements.txt") == pins("requirements.txt")


def test_ci_runs_make_test_and_nothing_else():
    lines = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert lines == ["#!/bin/sh", "set -e", 'cd "$(dirname "$0")/.."', "exec make test"]


def test_followed_token_is_never_painted_over():
    """Chapters take the followed token from the package, so that one change moves all figures."""
    for path in NOTEBOOKS:
        for cell in code_cells(read(path)):
            assert not re.search(r"^\s*FOLLOWED\s*=", cell.source, flags=re.M), f"{path.stem} {cell.id}"
