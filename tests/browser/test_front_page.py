"""The front door: there without a kernel, both controls move the picture, and everybody can use it."""

from typing import Any

import pytest
from lesson_page import WIDTHS, everyone_can_use, has, kernels, tells

from lib_dlhpc.explore import course

pytestmark = pytest.mark.browser


# Words of a picture that end outside of it, or that cover a point.
OUTSIDE = """() => ["step", "proof"].flatMap(id => {
  const svg = document.getElementById(id), room = svg.getBoundingClientRect();
  const points = [...svg.querySelectorAll("circle")].map(point => point.getBoundingClientRect());
  return [...svg.querySelectorAll("text")].filter(text => {
    const own = text.getBoundingClientRect(), middle = own.top + own.height / 2;
    return own.left < room.left - 1 || own.right > room.right + 1 || points.some(point =>
      point.left < own.right && own.left < point.right && point.top < middle && middle < point.bottom); })
    .map(text => text.textContent); })"""


@pytest.fixture(scope="module")
def page(server: tuple[str, int], open_lasting_page: Any, eventually: Any) -> Any:
    """The front door of a server without kernels: those of other files' pages have ended."""
    eventually(lambda: kernels(server[1]) == [], what="a server without kernels")
    return open_lasting_page(server[0], reduced_motion="no-preference")


def test_it_is_there_without_a_kernel(page, server):
    has(page.locator("#step rect").first)
    assert not kernels(server[1])
    has(page.locator(".module"), len(course.PATH))


@pytest.mark.parametrize("control", ["GPUs", "Network"])
def test_each_control_moves_picture_and_numbers(page, eventually, control):
    look = "[step.innerHTML, grid.innerHTML, speedup.textContent, minutes.textContent].join()"
    before = page.evaluate(look)
    page.get_by_role("slider", name=control, exact=True).press("ArrowLeft")
    eventually(lambda: page.evaluate(look) != before)
    page.get_by_role("slider", name=control, exact=True).press("ArrowRight")
    eventually(lambda: page.evaluate(look) == before)


def test_a_step_is_seen_at_any_of_its_moments(page, eventually):
    moment, words = page.get_by_role("slider", name="Moment of the step"), page.locator("#then")
    tells(words, "Drag to any moment")
    moment.press("Home")
    tells(words, "At 0 ms: all ranks compute.")
    moment.press("End")
    moment.press("PageDown")  # a tenth before the end: the slowest still computes, others do not
    tells(words, "of 8 ranks", "Waiting has cost")
    waiting = int(words.inner_text().split()[6])
    has(page.locator("#step .soft.strong"), waiting)
    moment.press("End")
    has(page.locator("#step .soft.strong"), 0)
    tells(words, "Drag to any moment")


def test_a_step_is_played_slowly_until_it_is_stopped(page, eventually):
    button, words = page.locator("#play"), page.locator("#then")
    eventually(lambda: button.inner_text() == "▶ Slow motion")
    button.click()
    tells(words, "At ")
    button.click()
    eventually(lambda: button.inner_text() == "▶ Slow motion")
    tells(words, "At ")
    page.get_by_role("slider", name="Network").press("ArrowLeft")  # another step is shown whole
    tells(words, "Drag to any moment")
    page.get_by_role("slider", name="Network").press("ArrowRight")
    page.emulate_media(reduced_motion="reduce")
    eventually(lambda: not button.is_visible(), what="no motion for those who want none")
    page.emulate_media(reduced_motion="no-preference")


def test_every_link_leads_to_a_page(page, eventually):
    """Notebooks, which would start a kernel each, are files of modules/: see tests/explore."""
    links = "[...document.links].map(each => each.href.split('#')[0])"
    found = {to for to in page.evaluate(links) if to.startswith(page.url.split("#")[0])}
    for to in (to for to in found if not to.split("?")[0].endswith(".ipynb")):
        assert page.request.get(to).status == 200, to
    tells(page.locator("footer"), "BSD-3-Clause", "How to cite")
    image = page.locator("meta[property='og:image']")
    picture = eventually(lambda: image.get_attribute("content"))
    assert picture.startswith(page.url.split("#")[0])  # a site that shows the link needs all of it
    assert page.request.get(picture).status == 200


def test_words_point_at_their_part_of_the_picture(page, eventually):
    shown = "part => getComputedStyle(document.querySelector(`#step .part.${part}`)).opacity"
    page.locator("#step-words [data-part='waits']").hover()
    eventually(lambda: page.evaluate(shown, "waits") == "1" != page.evaluate(shown, "forward"))
    page.mouse.move(0, 0)
    eventually(lambda: page.evaluate(shown, "forward") == "1")


def test_what_was_done_is_shown_and_a_newcomer_has_done_nothing(page):
    has(page.locator(".done:not([hidden])"), 0)
    page.evaluate(
        'localStorage.setItem(\'dlhpc-progress\', \'{"02": {"done": 3, "skipped": 2, "of": 11}}\')'
    )
    page.reload()
    tells(page.locator(".module[data-number='02'] .done"), "3 of 11 done, 2 skipped")


def test_a_point_leads_to_its_row(page):
    has(page.locator("#proof a[tabindex='0']"), 1)  # hundreds of points, one stop of the tab key
    page.locator("#proof a").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    has(page.locator("tr:target"))


def test_it_is_for_everybody_at_every_width(page, eventually):
    page.emulate_media(reduced_motion="reduce")
    everyone_can_use(page)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        eventually(lambda: page.evaluate(OUTSIDE) == [], what=lambda: page.evaluate(OUTSIDE))
        eventually(
            lambda: (
                page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
            )
        )


def test_every_row_of_the_table_is_read_without_scrolling_sideways(page, eventually):
    wider = "(box => box.scrollWidth - box.clientWidth)(document.querySelector('.scroll'))"
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        eventually(lambda: page.evaluate(wider) <= 0, what=lambda: page.evaluate(wider))


def test_the_table_of_labs_takes_the_room_of_a_wide_window(open_page, server, eventually):
    labs = open_page(f"{server[0]}voila/labs/README.md")
    ends = "[...document.querySelectorAll('main > p, .cards')].map(e => e.getBoundingClientRect().right)"
    eventually(
        lambda: max(labs.evaluate(ends)) > min(labs.evaluate(ends)) + 200, what="a wide table"
    )
    for width in WIDTHS:
        labs.set_viewport_size({"width": width, "height": 900})
        eventually(lambda w=width: labs.evaluate("document.documentElement.scrollWidth") <= w)


def test_the_switch_overrides_the_system(page, eventually):
    paper = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(paper)
    page.get_by_role("button", name="Switch between light and dark").click()
    eventually(lambda: page.evaluate(paper) != before)
