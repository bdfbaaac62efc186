"""The front door: there without a kernel, both controls move the picture, and everybody can use it."""

from collections.abc import Iterator
from typing import Any

import pytest
from axe import findings
from lesson_page import has, kernels, tells

from lib_dlhpc.explore import course
from lib_dlhpc.explore.server.serve import served

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def front(repository: Any) -> Iterator[tuple[str, int]]:
    """Address and process of a server of the course, without kernels kept ready."""
    with served(repository / "modules") as at:
        yield at


@pytest.fixture(scope="module")
def page(front: tuple[str, int], open_lasting_page: Any) -> Any:
    return open_lasting_page(front[0])


def test_it_is_there_without_a_kernel(page: Any, front: tuple[str, int]) -> None:
    has(page.locator("#step rect").first)
    assert not kernels(front[1])
    has(page.locator(".module"), len(course.PATH))


@pytest.mark.parametrize("control", ["GPUs", "Network"])
def test_each_control_moves_picture_and_numbers(page: Any, eventually: Any, control: str) -> None:
    look = "[step.innerHTML, grid.innerHTML, speedup.textContent, minutes.textContent].join()"
    before = page.evaluate(look)
    page.get_by_role("slider", name=control, exact=True).press("ArrowLeft")
    eventually(lambda: page.evaluate(look) != before)
    page.get_by_role("slider", name=control, exact=True).press("ArrowRight")
    eventually(lambda: page.evaluate(look) == before)


def test_what_was_done_is_shown_and_a_newcomer_has_done_nothing(page: Any) -> None:
    has(page.locator(".done:not([hidden])"), 0)
    page.evaluate('localStorage.setItem(\'dlhpc-progress\', \'{"02": {"done": 3, "of": 11}}\')')
    page.reload()
    tells(page.locator(".module[data-number='02'] .done"), "3 of 11 done")


def test_a_point_leads_to_its_row(page: Any) -> None:
    point = page.locator("#proof a").first
    point.focus()
    page.keyboard.press("Enter")
    has(page.locator("tr:target"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_for_everybody_at_every_width(page: Any, eventually: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    for width in (390, 800, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        eventually(lambda w=width: page.evaluate("document.documentElement.scrollWidth") <= w)
    eventually(lambda: findings(page) == [], what=lambda: str(findings(page)))


def test_the_switch_overrides_the_system(page: Any, eventually: Any) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(paper)
    page.get_by_role("button", name="Switch between light and dark").click()
    eventually(lambda: page.evaluate(paper) != before)
