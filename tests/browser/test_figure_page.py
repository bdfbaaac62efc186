"""Figures on a page: they draw, follow the controls, share one Vega, and leave nothing behind."""

from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from lesson_page import MOST_MEMORY, has, kernels, largest_kernel, tells
from patience import PATIENCE, POLLING

from lib_dlhpc.explore.server.serve import served

pytestmark = pytest.mark.browser

TWO_FIGURES = """
import ipywidgets as widgets
from lib_dlhpc.explore.blocks.built import compiled
from lib_dlhpc.explore.blocks.figure import Figure

spec = compiled({
    "title": "Bars", "height": 120, "autosize": "none",
    "padding": {"left": 40, "right": 20, "top": 5, "bottom": 40},
    "data": {"name": "bars"}, "mark": "bar",
    "encoding": {
        "x": {"field": "value", "type": "quantitative", "scale": {"domain": [0, 100]}},
        "y": {"field": "name", "type": "nominal"},
    },
    "usermeta": {"table": {"bars": {"name": "bar", "value": "how long"}}},
})

def bars(value):
    return {"bars": {"name": ["a", "b"], "value": [value, 100 - value]}}

figures = [Figure(spec, bars(10), "Bar a is 10.") for _ in range(2)]
slider = widgets.IntSlider(10, 0, 100, description="value")

def follow(change):
    for figure in figures:
        figure.update(bars(change.new), f"Bar a is {change.new}.")

slider.observe(follow, "value")
widgets.VBox([slider, *figures])
"""

# Lines with names at their ends and bars with names on the left; prose: a formula wider than a phone, no figure.
LINES = """
import ipywidgets as widgets
import numpy as np
from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.lines import line_columns

x = np.array([8.0, 64.0, 512.0])
now = {"x": [64], "y": [1e7], "words": ["read 10 MB"], "dy": [-14]}
lines = {**line_columns({"read": (x, 1e6 * x), "sent": (x, 2e8 + 0 * x)}), "now": now}
bars = stacks({"a row": {"weights": 4e10}, "and another": {"weights": 2e10}}, {"weights": "#0072b2"}, "B")
widgets.VBox([chart("io_volume", lines, "Two lines."), chart("serving_memory", bars, "Two bars.")])
"""
PARTS = """
import ipywidgets as widgets
from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.charts import chart

def parts(cache):
    return stacks({"a row": {"weights": 4e10, "cache": cache}}, {"weights": "#0072b2", "cache": "#e69f00"}, "B")

figure, slider = chart("serving_memory", parts(0.0), "A bar."), widgets.IntSlider(0, 0, 1, description="cache")
slider.observe(lambda change: figure.update(parts(1e10 * change.new), "A bar."), "value")
widgets.VBox([slider, figure])
"""
SECTION = r"""## In a section

Some words without a figure.

$$t = (a_1 + a_2 + a_3 + a_4 + a_5) (b_1 + b_2 + b_3 + b_4) + c_1$$"""

DRAWN = ".dlhpc-plot[data-serial] svg"
# Lengths of the bars of a figure, read off the drawing itself.
BARS = """index => [...document.querySelectorAll(".dlhpc-plot")[index].querySelectorAll(".mark-rect path")]
          .map(path => Math.round(path.getBBox().width))"""

# As a tab behind others has it: a timer rings each second, and what the kernel says comes between two of these.
LATE = """{ const soon = setTimeout, Socket = WebSocket, unheard = [];
  window.setTimeout = (call, ms, ...more) => soon(call, ms === 100 ? 1000 : ms, ...more);
  const hear = () => { while (unheard.length) unheard.shift()(); };
  const looks = new MutationObserver(() => {
    if (document.body?.textContent.includes("Loading widget...")) { looks.disconnect(); soon(() => {
      const place = document.querySelector(".lm-Panel.jp-OutputArea-output");
      window.meanwhile = [document.getElementById("dlhpc-loading") !== null, getComputedStyle(place).color];
      window.WebSocket.late = false; hear(); }, 1300); } });
  looks.observe(document, { subtree: true, childList: true });
  window.WebSocket = class extends Socket {
    static late = true;
    set onmessage(call) { super.onmessage = event => {
      unheard.push(() => call.call(this, event)); window.WebSocket.late || hear(); }; } }; }"""


@pytest.fixture(scope="module")
def gallery(
    tmp_path_factory: pytest.TempPathFactory, notebook: Any, chromium: Any
) -> Iterator[tuple[str, int]]:
    """Address and process of a server of a folder that all tests here share; each page has its own kernel."""
    folder = tmp_path_factory.mktemp("gallery")
    about = "# 01 Two figures\n\nWhat do they show?\n\n$a^2$"
    notebook(folder / "01_two.ipynb", about, TWO_FIGURES)
    notebook(folder / "02_text.ipynb", "# Text only", "1 + 1")
    notebook(folder / "04_lines.ipynb", "# Lines", LINES)
    notebook(folder / "05_prose.ipynb", "# Prose", SECTION)
    notebook(folder / "06_parts.ipynb", "# Parts", PARTS)
    notebook(folder / "03_bad.ipynb", "# Bad", "entrusted_word = 1\n1 / 0")
    with served(folder) as at:
        yield at


def drawn(page: Any, figures: int = 2) -> Any:
    there = f"document.querySelectorAll('{DRAWN}').length === {figures}"
    page.wait_for_function(there, polling=POLLING)
    return page


@pytest.fixture(scope="module")
def page(gallery: tuple[str, int], open_lasting_page: Callable[..., Any]) -> Any:
    """One page for the tests that only look at it and move its control, in their order."""
    return drawn(open_lasting_page(f"{gallery[0]}voila/render/01_two.ipynb"))


def test_the_words_and_numbers_say_what_the_drawing_shows(eventually, page):
    plot = page.get_by_role("img", name="Bars. Bar a is 10.").first
    plot.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # opens the table without a mouse
    cells = page.locator(".dlhpc-figure").first.locator("td")
    eventually(lambda: cells.all_inner_texts() == ["a", "10", "b", "90"])
    page.get_by_role("slider").press("ArrowRight")
    eventually(lambda: cells.all_inner_texts() == ["a", "11", "b", "89"])


def test_figures_share_one_vega_that_the_browser_may_keep(eventually, page):
    entries = "performance.getEntriesByType('resource').map(e => [e.name, e.decodedBodySize])"
    vega = eventually(lambda: [size for name, size in page.evaluate(entries) if "/vega-" in name])
    assert len(vega) == 1 and vega[0] < 1e6
    # Neither figure carries the library in its state: the websocket stays light.
    eventually(lambda: page.evaluate("document.documentElement.outerHTML.length") < 500_000)


def test_mathematics_is_set_without_a_network(page):
    page.wait_for_selector("mjx-container")


def test_a_control_moves_the_bars_of_all_figures(eventually, page):
    before = eventually(lambda: (bars := page.evaluate(BARS, 0)) and bars[1] > bars[0] > 0 and bars)
    picture = page.locator(".dlhpc-plot").first.screenshot()
    page.get_by_role("slider").press("PageUp")
    for index in (0, 1):
        eventually(lambda index=index: page.evaluate(BARS, index)[0] > before[0])
    eventually(lambda: page.locator(".dlhpc-plot").first.screenshot() != picture)


def test_the_last_state_wins_under_fast_dragging(eventually, page):
    box = page.get_by_role("slider").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(120):
        page.mouse.move(x + 40 + 35 * (-1) ** step, y)
    page.mouse.move(x + 600, y)
    page.mouse.up()
    full = page.evaluate("document.querySelector('.dlhpc-plot').clientWidth") - 60
    eventually(lambda: page.evaluate(BARS, 0) == page.evaluate(BARS, 1))
    eventually(lambda: abs(page.evaluate(BARS, 0)[0] - full) <= 1)
    tells(page.locator(".dlhpc-words").first, "Bar a is 100.")


def test_a_narrow_page_has_names_of_lines_in_its_legend_and_names_of_bars_above_them(
    eventually, gallery, open_page
):
    page = drawn(open_page(f"{gallery[0]}voila/render/04_lines.ipynb"), 2)
    at_ends = "() => [...document.querySelectorAll('.dlhpc-plot text')].filter(t => t.textContent === 'sent').length"
    plotted = "n => document.querySelectorAll('.dlhpc-plot')[n].querySelector('.background').getBBox().width"
    legend = page.locator(".dlhpc-figure").first.locator(".dlhpc-key li")
    for _ in range(2):  # there and back
        page.set_viewport_size({"width": 1280, "height": 900})
        eventually(lambda: page.evaluate(at_ends) == 1 and legend.count() == 0)
        page.set_viewport_size({"width": 390, "height": 900})
        eventually(lambda: legend.all_inner_texts() == ["read", "sent"])
        eventually(lambda: page.evaluate(at_ends) == 0)
        for n, least in ((0, 0.6), (1, 0.55)):
            eventually(lambda n=n, b=least: page.evaluate(plotted, n) > b * 390, f"figure {n}")


def test_a_legend_names_what_is_there_and_forgets_nothing(
    eventually: Any, gallery: tuple[str, int], open_page: Any
) -> None:
    page = drawn(open_page(f"{gallery[0]}voila/render/06_parts.ipynb"), 1)
    note = "H100; sequences are added until it is full."  # what the marks mean, of this drawing
    legend = page.locator(".dlhpc-key li")
    eventually(lambda: legend.all_inner_texts() == ["weights", note])
    has(legend.locator("svg"))  # the note begins where signs do
    for key, parts in (("ArrowRight", ["weights", "cache"]), ("ArrowLeft", ["weights", "cache"])):
        before = page.locator("[data-serial]").get_attribute("data-serial")
        page.get_by_role("slider").press(key)
        eventually(lambda b=before: page.locator("[data-serial]").get_attribute("data-serial") != b)
        eventually(lambda p=parts: legend.all_inner_texts() == [*p, note])


def test_a_track_is_filled_up_to_its_handle(page: Any, eventually: Any) -> None:
    ends = """() => { const base = document.querySelector(".noUi-base").getBoundingClientRect();
      const origin = document.querySelector(".noUi-origin"), fill = getComputedStyle(origin, "::before");
      return [parseFloat(fill.width) - base.width, fill.backgroundColor]; }"""
    accent = "getComputedStyle(document.querySelector('.noUi-handle')).backgroundColor"
    eventually(lambda: page.evaluate(ends)[1] == page.evaluate(accent))
    eventually(lambda: abs(page.evaluate(ends)[0] - 8) < 1)


def test_a_section_without_a_figure_fills_both_columns_and_its_formula_fits_a_phone(
    eventually, gallery, open_page
):
    page = open_page(f"{gallery[0]}voila/render/05_prose.ipynb")
    page.wait_for_selector("mjx-container")
    left = "name => document.querySelector(name).getBoundingClientRect().left"
    eventually(lambda: page.evaluate(left, "h2") < 100 and page.evaluate(left, "h2 ~ p") > 500)
    page.set_viewport_size({"width": 390, "height": 900})
    eventually(lambda: page.evaluate(left, "h2") == page.evaluate(left, "h2 ~ p"))
    wider = "(math => math.scrollWidth - math.clientWidth)(document.querySelector('mjx-container[display]'))"
    eventually(lambda: page.evaluate(wider) <= 1, what=lambda: page.evaluate(wider))


@pytest.mark.parametrize("width", [1280, 800])
def test_a_figure_fits_its_page(eventually, page, width):
    page.set_viewport_size({"width": width, "height": 900})
    eventually(lambda: page.evaluate("document.documentElement.scrollWidth") <= width)

    def fits() -> bool:
        svg = page.locator(DRAWN).first.bounding_box()
        return svg["width"] > 0.85 * width and svg["x"] + svg["width"] <= width

    eventually(fits)
    page.set_viewport_size({"width": 640, "height": 900})
    eventually(lambda: page.locator(DRAWN).first.bounding_box()["width"] <= 640)


def test_a_figure_out_of_sight_follows_when_the_controls_rest(eventually, page):
    before = page.evaluate(BARS, 1)[0]
    page.add_style_tag(content=".dlhpc-figure-view:last-child { margin-top: 3000px; }")
    page.get_by_role("slider").press("PageDown")
    eventually(lambda: page.evaluate(BARS, 1)[0] < before)


def test_the_page_can_be_dark(eventually, page):
    page.emulate_media(color_scheme="dark")
    ink = "getComputedStyle(document.querySelector('.dlhpc-plot .role-axis-label text')).fill"
    paper = "getComputedStyle(document.body).backgroundColor"

    def light(expression: str) -> float:
        return sum(int(c) for c in page.evaluate(expression).strip("rgba()").split(",")[:3]) / 765

    eventually(lambda: light(ink) > 0.7 and light(paper) < 0.2)


def test_a_visitor_costs_little_memory(page, gallery):
    assert 0 < largest_kernel(gallery[1]) < MOST_MEMORY


def test_a_page_that_hears_late_is_whole_and_takes_its_kernel_with_it(eventually, page, gallery):
    server = gallery[1]
    (first,) = eventually(lambda: len(found := kernels(server)) == 1 and found)
    page.add_init_script(LATE)
    page.reload()
    drawn(page)
    # Until its widgets came, the page said so in its own words and not in "Loading widget...".
    eventually(lambda: page.evaluate("window.meanwhile") == [True, "rgba(0, 0, 0, 0)"])
    eventually(lambda: len(found := kernels(server)) == 1 and found != [first])
    page.goto("about:blank")
    eventually(lambda: kernels(server) == [])


def test_a_stopped_server_leaves_no_kernel(eventually, notebook, tmp_path):
    with served(notebook(tmp_path / "one.ipynb", "1 + 1"), preheat=1) as (_, server):
        left = eventually(lambda: kernels(server))
    assert psutil.wait_procs(left, timeout=PATIENCE)[1] == []


def test_a_folder_is_a_gallery(gallery, open_page, eventually):
    page = open_page(gallery[0])
    eventually(lambda: page.title() == "What-if lab for deep learning on HPC")
    names = page.locator(".name")
    shown = ["Two figures", "Text only", "Bad", "Lines", "Prose", "Parts"]
    eventually(lambda: names.all_inner_texts() == shown)
    eventually(lambda: page.locator(".about").first.inner_text() == "What do they show?")
    page.get_by_text("Two figures").click()
    drawn(page)
    eventually(lambda: page.title() == "Two figures")
    page.get_by_role("link", name="What-if lab").click()
    page.wait_for_selector(".dlhpc-gallery")


def test_sources_and_tracebacks_stay_on_the_server(gallery, open_page, eventually):
    page = open_page(f"{gallery[0]}voila/render/03_bad.ipynb")
    page.wait_for_selector("text=error when executing")
    for words in ("entrusted_word", "ZeroDivisionError"):
        eventually(lambda words=words: words not in page.content(), what=f"no {words}")
