"""The search for low contrast looks at one text of each look: no look is left out."""

from collections.abc import Iterator
from typing import Any

import pytest
from axe import findings, low_contrast

pytestmark = pytest.mark.browser

CELL = "<tr><td class='cell'>words</td></tr>"
STYLE = "<style>body { background: white; color: black } .pale { color: #bbb } .night { background: #333 }</style>"
# Among a hundred cells that can be read, one place each that cannot.
HARD = {
    "class": "<p class='pale'>words</p>",
    "style": "<table><tr><td class='cell' style='color: #bbb'>words</td></tr></table>",
    "around": "<div class='night'><table><tr><td class='cell'>words</td></tr></table></div>",
    "above": "<div style='opacity: .3'><p>words</p></div>",
    "size": "<p style='color: #888; font-size: 12px'>words</p>",
    "after one that is hidden": "<p class='pale' hidden>words</p><p class='pale'>words</p>"
    "<p class='pale' hidden>words</p>",
    "after one that is closed": "<details><summary>more</summary><p class='pale'>words</p></details>"
    "<p class='pale'>words</p><details><summary>more</summary><p class='pale'>words</p></details>",
    "input": "<label>words <input class='pale' value='words'></label>",
    "after one that is disabled": "<label>words <input class='pale' value='words' disabled></label>"
    "<label>words <input class='pale' value='words'></label>"
    "<label>words <input class='pale' value='words' disabled></label>",
    "part of a text": "<p>words <b class='pale'>words</b></p>",
}


@pytest.fixture(scope="module")
def page(chromium: Any) -> Iterator[Any]:
    """An empty page."""
    page = chromium.new_page()
    yield page
    page.close()


def of_alike_cells(page: Any, more: str) -> Any:
    """Give the page a hundred cells that look the same, and something else between them."""
    half = f"<table>{CELL * 50}</table>"
    page.set_content(f"<html lang=en><title>t</title>{STYLE}<main>{half}{more}{half}</main>")
    return page


def test_texts_that_can_be_read_are_no_finding(page, eventually):
    of_alike_cells(page, "<p>words</p>")
    eventually(lambda: findings(page) == [], lambda: str(findings(page)))


@pytest.mark.parametrize("place", HARD)
def test_one_place_that_cannot_be_read_is_found(page, eventually, place):
    of_alike_cells(page, HARD[place])
    for look in (low_contrast, findings):
        found = eventually(lambda look=look: look(page))
        assert [each[:2] for each in found] == [["color-contrast", 1]]
