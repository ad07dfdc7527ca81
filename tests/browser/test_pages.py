"""The files of the built site: all pages, whole, and nothing in them that asks for another host."""

import re

import pytest
import yaml
from bs4 import BeautifulSoup
from tools.book import faults, toc_files

from tests.book.reading import ROOT

PAGES = toc_files(ROOT)
CHAPTERS = [page for page in PAGES if re.match(r"book/\d\d_", page)]
pytestmark = pytest.mark.browser


def soup(site, name):
    return BeautifulSoup((site / f"{name}.html").read_text(encoding="utf-8"), "html.parser")


def test_all_pages_are_there_and_whole(site):
    assert faults(ROOT) == []


def test_front_page_leads_to_the_book(site):
    assert "book/index.html" in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*PAGES, "search", "genindex"])
def test_nothing_is_asked_of_another_host(site, name):
    page = soup(site, name)
    asked = [t.get("src") for t in page(["script", "img", "iframe", "source", "video", "audio", "embed"])]
    asked += [t.get("href") for t in page("link") if not {"canonical", "alternate"} & set(t.get("rel") or [])]
    assert not [url for url in asked if url and re.match(r"(https?:)?//", url)]
    for style in page("style"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", style.get_text())


def test_style_sheets_ask_no_other_host(site):
    for sheet in (site / "_static").rglob("*.css"):
        assert not re.search(r"(url\(\s*['\"]?|@import\s+['\"]?)(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_mathjax_is_the_sites_own(site):
    folder = site / "_static" / "vendor" / "mathjax"
    assert (folder / "tex-mml-chtml.js").is_file() and (folder / "LICENSE").is_file()
    assert len(list((folder / "output" / "chtml" / "fonts" / "woff-v2").glob("*.woff"))) == 23
    assert "_static/vendor/mathjax/tex-mml-chtml.js" in (site / f"{CHAPTERS[0]}.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_can_be_taken_away(site, name):
    """The notebook can be downloaded, and opened on Colab and Binder from the public copy."""
    page = soup(site, name)
    links = [a.get("href", "") for a in page("a")]
    source = f"_sources/{name}.ipynb"
    assert any(link.endswith(source) for link in links) and (site / source).is_file()
    public = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]
    where = public["url"].removeprefix("https://github.com/")
    assert f"https://colab.research.google.com/github/{where}/blob/{public['branch']}/{name}.ipynb" in links
    assert any(
        link.startswith(f"https://mybinder.org/v2/gh/{where}/{public['branch']}?") and name in link for link in links
    )


@pytest.mark.parametrize("name", PAGES)
def test_pictures_have_alternatives(site, name):
    page = soup(site, name)
    for svg in page("svg"):
        if svg.get("aria-hidden") != "true" and svg.get("role") != "presentation":
            assert svg.get("aria-label", "").strip(), str(svg)[:200]
    for image in page.select("main img"):
        assert image.get("alt", "").strip() and "/" not in image["alt"], str(image)[:200]
    ids = [t["id"] for t in page(id=True)]
    assert len(ids) == len(set(ids)), sorted({i for i in ids if ids.count(i) > 1})[:5]


@pytest.mark.parametrize("name", PAGES)
def test_no_markup_is_left_raw(site, name):
    """A role or directive that was not understood stands in the text as it was typed."""
    page = soup(site, name)
    for code in page(["code", "pre", "script", "style", "svg"]):
        code.decompose()
    text = page.select_one("main").get_text(" ")
    assert not re.search(r"\{[a-z:]+\}`|:::|\$\$|```", text)
    assert "[?" not in text and "Figure ??" not in text


def test_sizes(site, capsys):
    """For the record; a chapter's page stays below 8 MB."""
    lines = []
    for name in PAGES:
        page = site / f"{name}.html"
        lines.append(f"{name}: {page.stat().st_size / 1e3:,.0f} kB")
        assert page.stat().st_size < 8e6, name
    scripts = {s["src"].split("?")[0] for s in soup(site, CHAPTERS[0])("script", src=True)}
    total = sum(((site / CHAPTERS[0]).parent / s).resolve().stat().st_size for s in scripts)
    with capsys.disabled():
        print("\n" + "\n".join(lines) + f"\nscripts of a chapter: {total / 1e6:.2f} MB")
