"""The site as a reader meets it: wide and narrow, light and dark, by keyboard and finger, served and from the disk."""

import re

import pytest
from bs4 import BeautifulSoup
from tools.book import toc_files

from rnj.viz.stepper import _finite, readout
from tests.book.reading import ROOT
from tests.book.steppers import by_name

PAGES = toc_files(ROOT)
CHAPTERS = [page for page in PAGES if re.match(r"book/\d\d_", page)]
pytestmark = pytest.mark.browser

# Text and the first opaque background behind it, for some of each kind of text on the page.
COLOURS = """() => {
  const kinds = ["h1", "h2", "p", "li", "td", "th", "figcaption p", "a.reference", "code", "pre span", "dt", "dd",
    ".rnj-title", ".rnj-readout dd", ".rnj-row label", ".rnj-legend", "summary", ".lot-doc i", ".lot-start a", "nav a"];
  const folded = "[hidden], .headerlink, details:not([open]) > :not(summary)";
  const clear = (e) => /, 0\\)$|^transparent$/.test(getComputedStyle(e).backgroundColor);
  const found = [];
  for (const kind of kinds) for (const e of [...document.querySelectorAll(".bd-container " + kind)].slice(0, 6)) {
    const box = e.getBoundingClientRect();
    if (!e.textContent.trim() || !box.width || !box.height || e.closest(folded)) continue;
    let back = e;
    while (back.parentElement && clear(back)) back = back.parentElement;
    const colours = [getComputedStyle(e).color, getComputedStyle(back).backgroundColor];
    found.push([kind, e.textContent.trim().slice(0, 30), ...colours]);
  }
  return found;
}"""
# Elements that stand out of the page to the right and are in no box that scrolls.
STICKING_OUT = """() => {
  const wide = document.documentElement.clientWidth, found = [];
  for (const e of document.querySelectorAll(".bd-article *")) {
    const box = e.getBoundingClientRect();
    if (box.right <= wide + 1 || !box.width || !box.height) continue;
    if (e.closest("svg, mjx-assistive-mml, .visually-hidden")) continue;
    let p = e.parentElement, scrolls = false;
    while (p && !scrolls) { scrolls = /auto|scroll/.test(getComputedStyle(p).overflowX); p = p.parentElement; }
    if (!scrolls) found.push(e.tagName + "." + e.className + " " + Math.round(box.right));
  }
  return found.slice(0, 5);
}"""


def luminance(colour):
    channels = [float(x) / 255 for x in re.findall(r"[\d.]+", colour)[:3]]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("name", [*PAGES, "search", "genindex"])
def test_page(visit, name, width, scheme):
    """No foreign request, no message in the console, nothing wider than the screen, text that can be read."""
    seen = visit(name, width, scheme)
    page = seen.page
    assert seen.foreign == []
    assert seen.troubles == []
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), (
        "the page scrolls sideways"
    )
    assert page.evaluate(STICKING_OUT) == []
    assert page.locator("h1:visible").count() == 1
    faint = [
        (kind, text, round(contrast(a, b), 2)) for kind, text, a, b in page.evaluate(COLOURS) if contrast(a, b) < 4.5
    ]
    assert faint == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_formulas_are_set(visit, name):
    """By the site's own MathJax, with its own fonts, and without an error."""
    page = visit(name).page
    if page.locator(".math").count():
        assert page.locator("mjx-container").count() >= page.locator("main .math").count()
    assert page.locator("mjx-merror, mjx-container [data-mjx-error]").count() == 0


def test_search_finds(visit):
    seen = visit("search", query="?q=rotation")
    seen.page.wait_for_selector("ul.search li", timeout=10_000)
    assert seen.page.locator("ul.search li").count() > 0
    assert seen.foreign == [] and seen.troubles == []


# Steppers


def boxes(page):
    """The steppers of a page with the Python objects behind them."""
    registered = by_name()
    found = []
    for box in page.locator(".rnj-stepper").all():
        name = box.get_attribute("data-stepper")
        assert name in registered, f"{name} is in no STEPPERS of rnj.viz: tests could not see it"
        found.append((box, registered[name]))
    return found


def inputs(box, control):
    return box.locator(f'[data-control="{control.name}"]')


def chosen(box, control):
    """The index that a control stands at, read from the page."""
    found = inputs(box, control)
    if found.first.get_attribute("type") == "radio":
        return int(found.evaluate_all("all => all.find(e => e.checked).value"))
    return int(found.input_value())


def agrees(box, stepper):
    """The page shows the numbers and words that the Python function gives for the values the controls stand at."""
    values = {c.name: c.values[chosen(box, c)] for c in stepper.controls}
    frame = stepper.frame(**values)
    assert box.evaluate("e => JSON.parse(e.dataset.numbers)") == _finite(frame.numbers), values
    words = BeautifulSoup(readout(frame), "html.parser").get_text()
    assert box.locator(".rnj-readout").evaluate("e => e.textContent") == words, values
    label = box.locator(".rnj-picture svg").first.get_attribute("aria-label")
    assert label == frame.alt, values
    for control in stepper.controls:
        if inputs(box, control).first.get_attribute("type") == "range":
            assert inputs(box, control).get_attribute("aria-valuetext") == control.say(values[control.name])
    return box.locator(".rnj-picture").evaluate("e => e.innerHTML")


def put_back(box, control):
    """Where it opened."""
    start, found = list(control.values).index(control.value), inputs(box, control)
    kind = found.first.get_attribute("type")
    if kind == "radio":
        found.nth(start).check()
    elif kind == "range":
        found.evaluate("(e, i) => { e.value = i; e.dispatchEvent(new Event('input')); }", start)
    else:
        found.select_option(str(start))
    assert chosen(box, control) == start


def stops(box, page, control):
    """Go to both ends and the middle with the keyboard alone; yield the index that each must be."""
    found, last = inputs(box, control), len(control.values) - 1
    middle = last // 2
    kind = found.first.get_attribute("type")
    if kind == "radio":
        found.nth(chosen(box, control)).focus()
        for _ in range(chosen(box, control)):
            page.keyboard.press("ArrowUp")
        yield 0
        for _ in range(middle):
            page.keyboard.press("ArrowDown")
        yield middle
        for _ in range(last - middle):
            page.keyboard.press("ArrowDown")
        yield last
        return
    found.focus()
    page.keyboard.press("Home")
    yield 0
    for _ in range(middle):
        page.keyboard.press("ArrowRight" if kind == "range" else "ArrowDown")
    yield middle
    page.keyboard.press("End")
    yield last


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", CHAPTERS)
def test_steppers_by_keyboard(visit, name, scheme):
    """Each control of each stepper to its ends and its middle: the picture changes, the numbers are the function's."""
    seen = visit(name, scheme=scheme)
    page = seen.page
    found = boxes(page)
    assert found, "a chapter has at least one stepper"
    for box, stepper in found:
        agrees(box, stepper)
        for control in stepper.controls:
            pictures = []
            for index in stops(box, page, control):
                assert chosen(box, control) == index, (stepper.name, control.name)
                pictures.append(agrees(box, stepper))
            assert len(set(pictures)) > 1, f"{stepper.name}: {control.name} changes nothing"
            put_back(box, control)
        assert box.locator(".rnj-readout").get_attribute("aria-live") == "polite"
    assert seen.foreign == [] and seen.troubles == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_steppers_by_finger(visit, name):
    """On a phone a tap near a slider's end moves it, and the thing to tap is as high as a finger."""
    seen = visit(name, width=360, has_touch=True, is_mobile=True)
    page = seen.page
    for box, stepper in boxes(page):
        for control in stepper.controls:
            found = inputs(box, control)
            if found.first.get_attribute("type") != "range":
                continue
            found.scroll_into_view_if_needed()
            area = found.bounding_box()
            assert area["height"] >= 24, f"{stepper.name}: {control.name} is {area['height']} px high"
            before = chosen(box, control)
            share = 0.04 if before > (len(control.values) - 1) / 2 else 0.96
            page.touchscreen.tap(area["x"] + share * area["width"], area["y"] + area["height"] / 2)
            assert chosen(box, control) != before, f"{stepper.name}: a tap does not move {control.name}"
            agrees(box, stepper)


@pytest.mark.parametrize("name", CHAPTERS)
def test_play_walks_and_stops(visit, name):
    page = visit(name).page
    for box, stepper in boxes(page):
        for button in box.locator(".rnj-play").all():
            control = next(c for c in stepper.controls if c.name == button.get_attribute("data-play"))
            before = chosen(box, control)
            button.click()
            assert chosen(box, control) != before
            if button.inner_text() == "Pause":  # unless it has come to the end by now
                button.click()
            assert button.inner_text() == "Play"
            agrees(box, stepper)


@pytest.mark.parametrize("name", [PAGES[0], *CHAPTERS])
def test_from_the_disk(visit, name):
    """Opened as a file, without a server: formulas and steppers work, nothing is asked of any host."""
    seen = visit(name, file=True)
    assert seen.foreign == [] and seen.troubles == []
    for box, stepper in boxes(seen.page):
        control = stepper.controls[0]
        pictures = {agrees(box, stepper) for _ in stops(box, seen.page, control)}
        assert len(pictures) > 1
