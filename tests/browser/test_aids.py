"""What helps a reader along, built and in a browser: questions, words with their definition, the map."""

import re

import pytest
from bs4 import BeautifulSoup
from tools.book import toc_files
from tools.site_map import PAGES as PARTS

from tests.book.reading import NOTEBOOKS, ROOT
from tests.book.test_asking import questions

pytestmark = pytest.mark.browser
ASKING = {str(path.relative_to(ROOT).with_suffix("")): len(questions(path)) for path in NOTEBOOKS}
ASKING = {name: count for name, count in ASKING.items() if count}


def opened(box):
    return [row.get_attribute("open") is not None for row in box.locator("details").all()]


def verdict_fits(row):
    """What an open choice says is what it is."""
    right = "rnj-right" in row.get_attribute("class")
    return row.locator("p").inner_text().startswith("Right." if right else "No:")


@pytest.mark.parametrize("name", list(ASKING))
def test_questions_by_keyboard(visit, name):
    """Each choice opens alone, by Enter or by the space bar, and says whether it is right; none is open before."""
    page = visit(name).page
    boxes = page.locator(".rnj-predict").all()
    assert len(boxes) == ASKING[name]
    for box in boxes:
        rows = box.locator("details").all()
        assert not any(opened(box)) and not box.locator("details p:visible").count(), "the answer shows too early"
        for i, row in enumerate(rows):
            row.locator("summary").focus()
            page.keyboard.press("Enter" if i % 2 else " ")
            assert opened(box) == [j == i for j in range(len(rows))]
            assert verdict_fits(row)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", list(ASKING))
def test_questions_by_finger(visit, name, scheme):
    page = visit(name, width=360, scheme=scheme, has_touch=True, is_mobile=True).page
    for box in page.locator(".rnj-predict").all():
        row = box.locator("details").last
        row.scroll_into_view_if_needed()
        assert row.locator("summary").bounding_box()["height"] >= 40
        row.locator("summary").tap()
        assert opened(box)[-1] and verdict_fits(row)


@pytest.mark.parametrize("name", [next(iter(ASKING))])
def test_questions_without_scripts(browser, address, name):
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(f"{address}/{name}.html")
        box = page.locator(".rnj-predict").first
        box.locator("summary").first.click()
        assert opened(box)[0] and verdict_fits(box.locator("details").first)
    finally:
        context.close()


@pytest.mark.parametrize("name", [name for name in toc_files(ROOT) if re.match(r"book/(\d\d_|index|beyond)", name)])
def test_words_show_their_definition(site, name):
    """Each links to its place in the glossary, which exists, with a definition, once a page."""
    glossary = BeautifulSoup((site / "book" / "glossary.html").read_text(encoding="utf-8"), "html.parser")
    anchors = {term["id"] for term in glossary.select("dl.glossary dt[id]")}
    links = BeautifulSoup((site / f"{name}.html").read_text(encoding="utf-8"), "html.parser").select("a.lot-term")
    assert len(links) >= 5
    used = [link["href"].split("#")[1] for link in links]
    assert set(used) <= anchors and len(set(used)) == len(used)
    assert all(len(link["title"].split()) >= 3 for link in links)
    assert not [link for link in links if link.find_parent(["pre", "code", "h1", "h2", "h3", "figcaption"])]


@pytest.mark.parametrize("width", [1280, 360])
def test_map_is_a_way_to_every_chapter(visit, width):
    page = visit("book/index", width).page
    links = page.locator(".lot-map svg:visible a:not([tabindex='-1'])")
    assert links.count() == len(PARTS)
    to = {link.evaluate("e => e.href.baseVal") for link in links.all()}
    assert to == {f"{part}.html" for part in PARTS.values()}
    page.locator(".lot-map svg:visible a[href='05_yarn.html']").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/05_yarn.html")
