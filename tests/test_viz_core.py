"""What all figures and steppers stand on: colours that can be read, clean SVG, one stepper in two worlds, map, card."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

from rnj import SMALL, build
from rnj.viz import card, figure, palette, stepper
from rnj.viz.figure import NARROW, WIDE, clipped, grid, heading, label, limits, panels, show, vector_strip
from rnj.viz.map import PARTS, model_map
from rnj.viz.palette import DARK, DOC1, FAINT, GLOW, INK, LIT, NAMES, PAPER, QUERY
from rnj.viz.stepper import Choice, Frame, Slider, Stepper, sweep

# The page's own backgrounds: sphinx-book-theme, pydata-sphinx-theme, JupyterLab
LIGHT_PAGES = ("#ffffff",)
DARK_PAGES = ("#121212", "#14181e", "#111111")


# Colours


@pytest.mark.parametrize("colour", palette.MARKS, ids=NAMES.get)
def test_marks_stand_out_on_both_pages(colour):
    for page in LIGHT_PAGES:
        assert palette.contrast(colour, page) >= 3
    for page in DARK_PAGES:
        assert palette.contrast(DARK[colour], page) >= 3


@pytest.mark.parametrize("colour", palette.TEXT, ids=NAMES.get)
def test_text_can_be_read_on_both_pages(colour):
    for page in LIGHT_PAGES:
        assert palette.contrast(colour, page) >= 4.5
    for page in DARK_PAGES:
        assert palette.contrast(DARK[colour], page) >= 4.5


@pytest.mark.parametrize("strength", [0.0, 0.1, 0.2, 0.3, 0.4, palette.NUMBERED])
def test_numbers_can_be_read_on_every_tint(strength):
    for colour in palette.MARKS:
        if colour in (INK, LIT):
            continue  # no cell has them
        assert palette.contrast(INK, palette.blend(colour, strength, PAPER)) >= 4.5
        assert palette.contrast(DARK[INK], palette.blend(DARK[colour], strength, DARK[PAPER])) >= 4.5


def test_words_can_be_read_in_the_light():
    assert palette.contrast(LIT, GLOW) >= 4.5 and palette.contrast(DARK[LIT], DARK[GLOW]) >= 4.5
    assert palette.contrast(INK, GLOW) >= 4.5 and palette.contrast(DARK[INK], DARK[GLOW]) >= 4.5


def test_each_colour_has_one_name_and_a_dark_value():
    assert set(DARK) == set(NAMES) and len(set(NAMES.values())) == len(NAMES)
    sheet = palette.css()
    for colour, name in NAMES.items():
        assert sheet.count(f"--rnj-{name}:") == 2, "once for light, once for dark"
        assert f"--rnj-{name}:{colour}" in sheet and f"--rnj-{name}:{DARK[colour]}" in sheet
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)


def test_sign_and_size_of_a_value():
    assert palette.tint(2.0, 4.0) == (palette.POSITIVE, 0.5)
    assert palette.tint(-8.0, 4.0) == (palette.NEGATIVE, 1.0)
    assert palette.tint(0.0, 0.0)[1] == 0
    assert [palette.document(i) for i in (0, 1, 2, 3)] == [palette.PADDING, DOC1, palette.DOC2, DOC1]


# Figures


def picture(values=None, **options):
    fig, ax = panels(NARROW, 2.4)
    grid(ax, np.array([[0.5, -1.0], [2.0, 0.0]]) if values is None else values, **options)
    heading(ax, "A matrix", "[2, 2]")
    return fig


def test_svg_is_clean_and_themed():
    text = show(picture(lit_row=1), alt='Two "rows" & <two> columns').svg
    root = ET.fromstring(text)
    assert root.get("role") == "img" and root.get("aria-label") == 'Two "rows" & <two> columns'
    assert "<style" not in text, "a style sheet inside would reach the whole page"
    assert "metadata" not in text and "<!--" not in text and "matplotlib" not in text.lower()
    assert not re.search(r"\d\.\d{3,}", text), "two decimals are enough"
    bare = re.sub(r"var\([^)]*\)", "", text)
    for colour in NAMES:
        assert colour not in bare.lower(), f"{colour} would not follow the theme"
    for name in ("ink", "glow", "lit", "positive", "negative"):
        assert f"var(--rnj-{name}," in text
    assert "A matrix" in text, "text stays text"


def test_same_figure_same_svg_other_figure_other_ids():
    def curves(slope):
        fig, ax = panels(NARROW, 2, bare=False, left=0.2, bottom=0.2)
        ax.plot([0, 1, 2], [0, slope, 1], marker="o", color=QUERY)
        return show(fig, alt="curve").svg

    assert curves(1) == curves(1)
    first, second = (set(re.findall(r'id="([^"]+)"', curves(slope))) for slope in (1, 3))
    assert first and not first & second
    for text in (curves(1), curves(3)):
        named = set(re.findall(r'id="([^"]+)"', text))
        assert set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'href="#([^"]+)"', text)) == named


def test_nothing_stays_open():
    before = plt.get_fignums()
    show(picture(), alt="x")
    show(plt.figure(), alt="made by pyplot")
    assert plt.get_fignums() == before


def test_alt_is_needed():
    with pytest.raises(ValueError, match="alt"):
        show(picture(), alt="  ")


def test_html_carries_caption_and_a_phone_drawing():
    shown = show(picture(), alt="x", caption="What <to> see", narrow=picture(np.eye(3)))
    page = shown.html()
    assert "What &lt;to&gt; see" in page and 'class="rnj-wide"' in page and 'class="rnj-narrow"' in page
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"} and bundle["text/html"] == page


def test_only_a_wide_figure_is_a_stop_for_the_keyboard():
    wide, _ = panels(WIDE, 2)
    assert 'tabindex="0"' in show(wide, alt="x").html()
    assert "tabindex" not in show(picture(), alt="x").html()
    assert figure.svg_size(show(panels(WIDE, 2)[0], alt="x").svg)[0] == pytest.approx(96 * WIDE, abs=1)


def texts(fig):
    return [t.get_text() for t in fig.axes[0].texts]


def test_grid_writes_numbers_only_where_they_fit():
    assert {"0.50", "−1.00", "2.00", "0.00"} <= set(texts(picture()))
    assert {"1", "0"} <= set(texts(picture(np.eye(2)))), "whole numbers have no decimals"
    crowded = picture(np.random.default_rng(0).normal(size=(40, 40)))
    assert not any(re.fullmatch(r"−?\d.*", t) for t in texts(crowded))
    assert not any(re.fullmatch(r"−?\d.*", t) for t in texts(picture(numbers=False)))


def test_grid_hides_what_is_not_shown():
    allowed = np.array([[True, False], [True, True]])
    fig = picture(np.full((2, 2), 0.5), shown=allowed)
    assert texts(fig).count("0.50") == 3
    text = show(fig, alt="x").svg
    assert f"var(--rnj-faint,{FAINT})" in text
    show(picture(np.array([[np.nan, 1.0], [np.inf, -np.inf]])), alt="no number, no error")
    show(picture(np.zeros((2, 2)), shown=np.zeros((2, 2))), alt="nothing at all")
    with pytest.raises(ValueError, match="two axes"):
        picture(np.zeros(3))


def test_grid_takes_tensors_and_leaves_them_alone():
    values = torch.tensor([[0.25, -0.5]])
    kept = values.clone()
    assert {"0.25", "−0.50"} <= set(texts(picture(values)))
    assert torch.equal(values, kept)
    picture(torch.tensor([[True, False]]))


def test_below_zero_is_hollow_where_no_number_says_so():
    values = np.array([[1.0, -1.0], [-0.5, 0.5]])
    holes = [p for p in picture(values, numbers=False).axes[0].patches if p.get_facecolor()[:3] == (1, 1, 1)]
    assert len(holes) == 1 and len(holes[0].get_path().vertices) == 2 * 5
    assert not [p for p in picture(values).axes[0].patches if p.get_facecolor()[:3] == (1, 1, 1)]


def test_strips_and_numbers():
    fig, ax = panels(WIDE, 1.5)
    limits(ax, -4, 12, -0.5, 3)
    vector_strip(ax, torch.arange(3.0), name="query", after="norm 2.24", colour=QUERY, lit=True)
    assert {"query", "norm 2.24"} <= set(texts(fig))
    assert figure.number(-0.001, ".2f") == "0.00" and figure.number(-1.5, ".1f") == "−1.5"


def test_clipped_finds_what_runs_over_the_edge():
    fig, ax = panels(NARROW, 2)
    limits(ax, 0, 10, 0, 10)
    label(ax, 1, 5, "inside")
    assert clipped(fig) == []
    label(ax, 9.5, 5, "much too long for its place")
    assert clipped(fig) == ["much too long for its place"]
    fig, ax = panels(NARROW, 2, bare=False, left=0.2, bottom=0.2, right=0.9)
    ax.plot([0, 1000], [0, 1])
    assert clipped(fig) == []
    fig, ax = panels(NARROW, 2, bare=False, left=0.0)
    ax.plot([0, 1], [0, 1000])
    assert "1000" in clipped(fig), "tick labels count too"


# Steppers


def draw(position: int, layer: str) -> Frame:
    fig, ax = panels(NARROW, 1.2)
    seen = np.arange(6)[None] <= position
    grid(ax, seen, shown=seen, numbers=False, colour=DOC1 if layer == "local" else QUERY)
    heading(ax, f"position {position}")
    total = {"sum": float(seen.sum()) / 3, "keys": seen.sum(), "kind": layer, "infinite": math.inf}
    return Frame(fig, f"Token {position} </script> of a {layer} layer.", total, f"position {position}, {layer}")


def example() -> Stepper:
    controls = [Slider("position", range(1, 6), value=3, play=True), Choice("layer", ["local", "global"], "global")]
    return Stepper("A <small> example", controls, draw, name="example")


def state(page: str) -> dict:
    found = re.search(r"state = (\{.*?\});\n", page)
    return json.loads(found[1])


def test_page_holds_every_frame():
    made = example()
    data = state(made.html())
    assert [c["name"] for c in data["controls"]] == ["position", "layer"]
    assert data["controls"][0]["shown"] == ["1", "2", "3", "4", "5"] and data["controls"][0]["index"] == 2
    assert len(data["frames"]) == len(made.combinations()) == 10
    for stored, values in zip(data["frames"], made.combinations(), strict=True):
        frame = made.frame(**values)
        assert "".join(data["chunks"][i] for i in stored["picture"]) == frame.figure
        assert stored["numbers"] == stepper._finite(frame.numbers)
        assert stored["numbers"]["keys"] == values["position"] + 1 and stored["numbers"]["infinite"] == "inf"
        assert stored["readout"] == stepper.readout(frame)


def test_page_opens_with_the_first_position_and_without_scripts():
    page = example().html()
    assert page == example().html(), "the same each time"
    before_script = page[: page.index("<script>")]
    assert 'data-stepper="example"' in page and "position 3, global" in before_script
    assert 'data-control="position"' in page and page.count('data-control="layer"') == 2
    assert 'aria-valuetext="3"' in page and 'aria-live="polite"' in page and "A &lt;small&gt; example" in page
    assert '<form class="rnj-controls" hidden' in page, "controls that cannot work are not shown"
    assert page.count("</script>") == 1, "no text of a frame may end the script"


def test_equal_pieces_are_kept_once():
    pages = ["<a/><b/><c/>", "<a/><b/><d/>", "<a/><b/><c/>"]
    chunks, lists = stepper._chunks(pages)
    assert [["".join(chunks[i] for i in numbers)] for numbers in lists] == [[p] for p in pages]
    assert lists[0] == lists[2] and len(chunks) == 3


def test_wrong_steppers_are_refused():
    with pytest.raises(ValueError, match="frames"):
        Stepper("x", [Slider("a", range(50)), Slider("b", range(50))], draw)
    with pytest.raises(ValueError, match="names"):
        Stepper("x", [Slider("a", range(5)), Slider("a", range(5))], draw)
    with pytest.raises(ValueError, match="none of its values"):
        Slider("a", range(5), value=7)
    with pytest.raises(ValueError, match="two different"):
        Choice("a", ["one"])
    with pytest.raises(ValueError, match="rise"):
        Slider("a", [3, 1, 2])
    with pytest.raises(TypeError, match="no control"):
        example().frame(colour=1)
    with pytest.raises(TypeError, match="Frame"):
        Stepper("x", [Slider("a", range(3))], lambda a: None).frame()


def test_sweep_passes_the_good_and_finds_the_bad():
    assert sweep(example()) == 10

    def without(position, **change):
        frame = draw(position, "local")
        for name, value in change.items():
            setattr(frame, name, value)
        return frame

    def bad(make):
        return Stepper("bad", [Slider("position", range(1, 4))], make)

    with pytest.raises(AssertionError, match="numbers"):
        sweep(bad(lambda position: without(position, numbers={})))
    with pytest.raises(AssertionError, match="different pictures"):
        sweep(bad(lambda position: without(position, figure=draw(1, "local").figure)))
    with pytest.raises(ZeroDivisionError):
        sweep(bad(lambda position: without(position, text=str(1 / (position - 2)))))
    with pytest.raises(AssertionError, match="size"):
        sweep(bad(lambda position: without(position, figure=panels(position, 2)[0])))
    with pytest.raises(AssertionError, match="over the edge"):
        sweep(bad(lambda position: without(position, figure=overlong())))


def overlong():
    fig, ax = panels(NARROW, 1)
    label(ax, 0.9, 0.5, "this label runs over the edge")
    return fig


@pytest.mark.parametrize(
    "value, text",
    [
        (4097, "4,097"),
        (-3, "−3"),
        (1 / 3, "0.3333"),
        (1.2e-6, "1.2e−06"),
        (163840.0, "163,840"),
        (0.0, "0"),
        (True, "yes"),
        (None, "–"),
        ("local", "local"),
        (math.inf, "inf"),
        (torch.tensor(7), "7"),
        (np.float32(0.5), "0.5"),
    ],
)
def test_numbers_in_words(value, text):
    assert stepper.shown(value) == text


def test_widget_draws_any_value():
    calls = []

    def noted(x: float, kind: str) -> Frame:
        calls.append((x, kind))
        fig, _ = panels(NARROW, 1)
        return Frame(fig, f"x is {x}", {"x": x}, f"x {x}")

    made = Stepper("Live", [Slider("x", [0.0, 0.5, 1.0], live_step=0.05), Choice("kind", ["a", "b"], free=True)], noted)
    view = made.widget()
    assert calls == [(0.0, "a")], "one draw to open, not one a frame"
    view.inputs["x"].value = 0.35
    view.inputs["kind"].value = "the reader's own"
    assert calls[-1] == (0.35, "the reader's own")
    assert 'aria-label="x 0.35"' in view.picture.value
    view.inputs["x"].value = 0.5 + 1e-13
    assert calls[-1][0] == 0.5, "a frame's value is the frame's value"


def test_widget_shows_an_error_beside_it_and_recovers():
    def picky(position: int) -> Frame:
        if position == 2:
            raise ValueError("no <2> here")
        return draw(position, "local")

    view = Stepper("Picky", [Slider("position", [1, 2, 3])], picky).widget()
    kept = view.picture.value
    view.inputs["position"].value = 2
    assert "ValueError: no &lt;2&gt; here" in view.trouble.value and view.picture.value == kept
    view.inputs["position"].value = 3
    assert view.trouble.value == "" and view.picture.value != kept


@pytest.mark.parametrize(
    "control, kind",
    [
        (Slider("a", range(0, 50, 10)), "IntSlider"),
        (Slider("a", range(5)), "IntSlider"),
        (Slider("a", range(0, 50, 10), live_step=1), "IntSlider"),
        (Slider("a", [1, 10, 100]), "SelectionSlider"),
        (Slider("a", [0.0, 1.0], live_step=0.1), "FloatSlider"),
        (Choice("a", ["x", "y"]), "Dropdown"),
        (Choice("a", ["x", "y"], free=True), "Combobox"),
    ],
)
def test_each_control_has_its_widget(control, kind):
    import ipywidgets

    held, row = stepper._control_widget(ipywidgets, control)
    assert type(held).__name__ == kind and held.value == control.value and row is held


def test_play_walks_through_the_frames_values():
    view = example().widget()
    play = view.children[1].children[1]
    play.value = 0
    assert view.inputs["position"].value == 1
    play.value = 4
    assert view.inputs["position"].value == 5


def test_one_cell_gives_both_worlds_in_a_real_kernel():
    """A kernel shows the widget and the page's HTML from one cell; moving the slider over the comm draws again."""
    source = """
from rnj.viz import Frame, Slider, Stepper, panels
def draw(x):
    fig, _ = panels(3, 1)
    return Frame(fig, f"x is {x}", {"x": x}, f"x {x}")
s = Stepper("In a kernel", [Slider("x", [0, 1, 2])], draw)
s"""
    move = """
from ipywidgets.widgets.widget import _instances
slider = next(w for w in _instances.values() if type(w).__name__ == "IntSlider")
# what the browser sends when the slider is moved
data = {"method": "update", "state": {"value": 2}, "buffer_paths": []}
slider._handle_msg({"content": {"data": data}, "buffers": []})
print([w.value for w in _instances.values() if type(w).__name__ == "HTML" and "x is" in str(w.value)])
print([w.value for w in _instances.values() if type(w).__name__ == "HTML" and 'role="alert"' in str(w.value)])"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in (source, move)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    NotebookClient(notebook, timeout=120).execute()
    data = notebook.cells[0].outputs[0]["data"]
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert 'data-stepper="in-a-kernel"' in data["text/html"]
    words, errors = notebook.cells[1].outputs[0]["text"].strip().split("\n")
    assert "x is 2" in words and errors == "[]"


# Map and card


@pytest.mark.parametrize("part", PARTS)
def test_map_lights_each_part(part):
    plain, lit = model_map(), model_map(part)
    assert plain.svg.count("--rnj-glow") == 0 and lit.svg.count("--rnj-glow") > 0
    assert lit.narrow.count("--rnj-glow") > 0 and PARTS[part] in lit.alt
    assert "24 local" in re.sub("<[^>]+>", "", plain.svg) and "8 global" in re.sub("<[^>]+>", "", plain.narrow)


def test_map_counts_the_configs_layers_and_fits_a_phone():
    shown = model_map("norm", SMALL)
    assert "6 local" in re.sub("<[^>]+>", "", shown.svg) and "8 blocks" in shown.svg
    assert shown.svg.count("--rnj-glow") == 7, "two norms each around attention and MLP, q and k, and the last"
    assert shown.narrow.count("--rnj-glow") == 7
    assert figure.svg_size(shown.narrow)[0] <= 340 and figure.svg_size(shown.svg)[0] <= 96 * WIDE
    assert model_map(["yarn", "cache"]).svg.count("--rnj-glow") == 2
    with pytest.raises(ValueError, match="no part of the map"):
        model_map("magic")


def test_a_linked_map_leads_to_each_part():
    shown = model_map(links={"norm": "2.html", "mlp": "3.html", "cache": "7.html#cache"})
    for picture in (shown.svg, shown.narrow):
        links = ET.fromstring(picture).findall(".//{*}a")
        assert [a.get("href") for a in links].count("2.html") == 7 and len(links) == 9
        stops = [a.get("aria-label") for a in links if a.get("tabindex") != "-1"]
        assert sorted(stops) == sorted(PARTS[part] for part in ("norm", "mlp", "cache")), "each part is one tab stop"
        assert ET.fromstring(picture).get("role") == "group" and "map of the model" in picture.lower()
    assert "<a " not in model_map().svg
    with pytest.raises(ValueError, match="no part of the map"):
        model_map(links={"magic": "8.html"})


@pytest.fixture(scope="module")
def trace():
    model = build(SMALL, seed=0)
    tokens = torch.randint(0, 2000, (1, 16), generator=torch.Generator().manual_seed(0))
    return model.trace(tokens)


def test_card_shows_the_tokens_own_slice(trace):
    shown = card.token_card(trace, "block.3.attn.q_rot", 12, label="<tok>", position=6)
    norm = stepper.shown(float(trace["block.3.attn.q_rot"][0, 12].norm()))
    assert "[N, H] = 6 × 32" in str(shown) and f"norm {norm}" in str(shown)
    first = f"{float(trace['block.3.attn.q_rot'][0, 12, 0, 0]):.2f}".replace("-", "−")
    page = shown.html()
    assert first in page and "&lt;tok&gt;" in page and "token 12, position 6" in page
    assert torch.equal(card.at_token(trace, "block.3.attn.weights", 12), trace["block.3.attn.weights"][0][:, 12])
    with pytest.raises(KeyError, match=r"block\.0\.attn\.q_rot"):
        card.token_card(trace, "block.99.attn.q_rot", 12)


def test_journey_follows_the_token(trace):
    names = ["embed", "block.0.attn.k_rot", "block.3.attn.weights", "block.3.mlp.gate", "block.3.out", "logits"]
    shown = card.journey(trace, names, 12, label="sat")
    lines = str(shown).split("\n")
    assert lines[0] == "sat" and [line.split()[0] for line in lines[1:]] == names
    for name, shape in zip(names, ["[D] = 192", "[K, H] = 2 × 32", "[N, S]", "[F] = 576", "[D]", "[V] = 2,048"]):
        assert any(line.startswith(name) and shape in line for line in lines), (name, lines)
    page = shown.html()
    assert page.count("<tr>") == 1 + len(names) and page.count("<svg") == len(names)


def test_sparkline_keeps_signs_and_survives_what_is_not_finite():
    drawn = card._sparkline(torch.tensor([1.0, -2.0, float("-inf"), float("nan")]))
    assert "--rnj-positive" in drawn and "--rnj-negative" in drawn and "nan" not in drawn and "inf" not in drawn
    assert "<path" not in card._sparkline(torch.tensor([]))


# The page in a browser


@pytest.mark.browser
def test_stepper_by_keyboard_in_a_browser(tmp_path):
    """From a file, without a server: ends and middle by keyboard, both steppers of a page apart, play and pause."""
    from playwright.sync_api import sync_playwright
    from tools import browser as chromium

    other = Stepper(
        "Another", [Choice("layer", list("vwxyz")), Slider("position", range(1, 4))],
        lambda layer, position: draw(position, layer), name="other",
    )  # fmt: skip
    (tmp_path / "page.html").write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>t</title><body>{example().html()}{other.html()}"
    )
    path = chromium.ensure()
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=chromium.flags())
        page = made.new_page(reduced_motion="no-preference")
        troubles: list[str] = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_selector(".rnj-stepper[data-stepper=other][data-ready='1']")
        first, second = page.locator("[data-stepper=example]"), page.locator("[data-stepper=other]")

        def numbers(box):
            return json.loads(box.get_attribute("data-numbers"))

        slider = first.locator("input[type=range]")
        assert slider.bounding_box()["height"] >= 24
        slider.focus()
        for key, keys in (("Home", 2), ("ArrowRight", 3), ("End", 6), ("ArrowLeft", 5)):
            page.keyboard.press(key)
            frame = example().frame(position=keys - 1)
            assert numbers(first) == stepper._finite(frame.numbers)
            assert slider.get_attribute("aria-valuetext") == str(keys - 1)
            assert first.locator(".rnj-picture svg").get_attribute("aria-label") == frame.alt
        first.locator("input[type=radio]").last.focus()
        page.keyboard.press("ArrowUp")
        assert numbers(first)["kind"] == "local" and numbers(first)["keys"] == 5
        assert numbers(second)["kind"] == "v", "the other one has not moved"
        second.locator("select").select_option("4")
        assert numbers(second)["kind"] == "z"
        assert first.locator(".rnj-note").count() == 0

        button = first.locator(".rnj-play")
        button.click()
        assert button.inner_text() == "Pause" and numbers(first)["keys"] == 6
        button.click()
        assert button.inner_text() == "Play"
        button.click()
        assert numbers(first)["keys"] == 2, "from the end it begins again"
        page.emulate_media(reduced_motion="reduce")
        page.wait_for_function("document.querySelector('.rnj-play').textContent === 'Next'", timeout=5000)
        button.click()
        assert numbers(first)["keys"] == 3 and button.inner_text() == "Next"
        assert first.evaluate(
            """e => new Promise(done => { let heard = false;
            document.addEventListener("keydown", () => { heard = true; });
            e.querySelector("input").dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowUp", bubbles: true}));
            done(!heard); })"""
        ), "JupyterLab must not hear the arrows"
        assert troubles == []
        made.close()
