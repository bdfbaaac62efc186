"""A phone on its side has 390 px of height: all of them are for text, and controls stay beside what they move."""

import pytest
from axe import low_contrast
from explorer_page import opened
from lesson_page import LessonPage, has

pytestmark = pytest.mark.browser

WIDE, HIGH = 844, 390  # px
# The share of the window's height in which a place is on top, at the middle of its width.
SHARE = """([selector, index]) => { const place = document.querySelectorAll(selector)[index];
  const { left, width } = place.getBoundingClientRect(), rows = [...Array(innerHeight / 10).keys()];
  return rows.filter(row => place.contains(document.elementFromPoint(left + width / 2, 10 * row + 5))).length
    / rows.length; }"""
WIDER = "document.documentElement.scrollWidth - innerWidth"


def scrolled(page, place, down=0):
    """Scroll the page so that its top is `down` px below the top of a place."""
    page.evaluate("y => scrollBy(0, y)", place.bounding_box()["y"] + down)


def beside(controls, chart):
    """Return whether a chart is on the right of its controls, and as high as the window at most."""
    left, right = controls.bounding_box(), chart.bounding_box()
    return left["x"] + left["width"] <= right["x"] and 0 <= right["y"] <= HIGH - right["height"]


def fits_in(page, scheme, eventually):
    """Assert that a page in light or dark needs no scrolling sideways, and that its words have contrast."""
    page.emulate_media(color_scheme=scheme)
    eventually(lambda: page.evaluate(WIDER) <= 0, what="no scrolling sideways")
    eventually(lambda: low_contrast(page) == [], lambda: str(low_contrast(page)))


@pytest.fixture(scope="module")
def lesson(server, open_lasting_page):
    """A module on a phone on its side, its first figure uncovered."""
    page = LessonPage(open_lasting_page(f"{server[0]}voila/render/05_hybrid_parallel.ipynb", WIDE))
    page.set_viewport_size({"width": WIDE, "height": HIGH})
    has(page.locator(".dlhpc-question"), 32)
    page.commit(0, "10")
    has(page.locator(".dlhpc-page").first.locator(".dlhpc-plot[data-serial] svg"), 3)
    return page


@pytest.fixture(scope="module")
def explorer(server, open_lasting_page):
    """The explorer on a phone on its side."""
    address = f"{server[0]}voila/render/00_what_if_explorer.ipynb"
    page = opened(open_lasting_page(address, WIDE))
    page.set_viewport_size({"width": WIDE, "height": HIGH})
    return page


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_a_module_leaves_its_text_the_window_and_its_controls_the_side_of_a_chart(
    lesson, eventually, scheme
):
    fits_in(lesson, scheme, eventually)
    text = ".dlhpc-row.prose .dlhpc-text"
    scrolled(lesson, lesson.locator(text).first)
    eventually(lambda: lesson.evaluate(SHARE, [text, 0]) > 0.6)
    figures = lesson.locator(".dlhpc-figures").first
    controls, chart = (
        figures.locator(".dlhpc-controls"),
        figures.locator(".dlhpc-figure-view").nth(1),
    )
    scrolled(lesson, chart)
    eventually(
        lambda: beside(controls, chart),
        lambda: str((controls.bounding_box(), chart.bounding_box())),
    )
    eventually(lambda: lesson.evaluate(SHARE, [".dlhpc-figures .dlhpc-results", 0]) == 1)


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_explorer_leaves_its_controls_the_window_beside_the_step(explorer, eventually, scheme):
    fits_in(explorer, scheme, eventually)
    controls, chart = explorer.locator(".dl-controls"), explorer.locator(".dl-top")
    scrolled(explorer, controls, down=100)
    eventually(
        lambda: beside(controls, chart),
        lambda: str((controls.bounding_box(), chart.bounding_box())),
    )
    eventually(lambda: explorer.evaluate(SHARE, [".dl-controls", 0]) == 1)
