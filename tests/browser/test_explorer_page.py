"""The explorer as a planner uses it: every control moves something, A stays, the address brings it all back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe import findings
from lesson_page import has, judged, tells

from lib_dlhpc.explore.explorer.controls import CONTROLS
from lib_dlhpc.explore.explorer.presets import CHIPS
from lib_dlhpc.explore.server.serve import served

pytestmark = pytest.mark.browser

DRAWN = ".dlhpc-plot[data-serial] svg"
# All that a choice decides: numbers, charts, the groups' summaries.
SHOWN = """() => [...document.querySelectorAll(".dl-main, .dl-top")].map(part => part.innerText).join()
  + [...document.querySelectorAll(".dl-main svg, .dl-top svg")].map(svg => svg.outerHTML).join()"""
WRONG = b"model.name = 'nope'\ndataset.name = 'imagenet'\nmachine.name = 'summit'\n"
GPT3 = "GPT-3 on 1,024 A100"


@pytest.fixture(scope="module")
def explorer(repository: Path, chromium: Any, tmp_path_factory: Any) -> Iterator[tuple[str, int]]:
    """The explorer of somebody who has not calibrated: its address, and the server's process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        with served(repository / "modules" / "00_what_if_explorer.ipynb", preheat=1) as server:
            yield server


@pytest.fixture(scope="module")
def page(explorer: tuple[str, int], open_lasting_page: Any) -> Any:
    """One page for all tests, in their order."""
    page = open_lasting_page(explorer[0])
    page.wait_for_selector(DRAWN)
    return page


def chip(page: Any, name: str, eventually: Any) -> None:
    """Choose a preset, and wait until it is shown."""
    button = page.get_by_role("button", name=name)
    button.click()
    eventually(lambda: button.get_attribute("aria-pressed") == "true", what=name)


def control(page: Any, field: str) -> Any:
    return page.locator(f'[data-field="{field}"]')


def changes(page: Any, eventually: Any, act: Any, what: str) -> None:
    before = page.evaluate(SHOWN)
    act()
    eventually(lambda: page.evaluate(SHOWN) != before, what=f"a change by {what}")


@pytest.mark.parametrize("name", CHIPS.values())
def test_each_preset_is_shown(page: Any, eventually: Any, name: str) -> None:
    chip(page, name, eventually)
    tells(page.locator(".dl-nums"), "Time to train", "MFU")
    has(page.get_by_role("img", name="Where the time of one step goes"))


def test_the_controls_that_apply_move_the_page(page: Any, eventually: Any) -> None:
    chip(page, "Goyal 2017", eventually)
    for field, key in (("strategy.nodes", "ArrowLeft"), ("strategy.batch", "ArrowLeft")):
        group = page.locator(f'details:has([data-field="{field}"])').first
        if group.get_attribute("open") is None:
            group.locator("summary").first.click()
        handle = control(page, field).locator("input[type=range]")
        changes(page, eventually, lambda h=handle, k=key: h.press(k), field)
    has(page.locator("[data-field]"), len(CONTROLS))


def test_undo_and_redo(page: Any, eventually: Any) -> None:
    number = page.locator(".dl-nums dd").first
    now = number.inner_text()
    page.get_by_role("button", name="Undo").click()
    eventually(lambda: number.inner_text() != now)
    page.get_by_role("button", name="Redo").click()
    eventually(lambda: number.inner_text() == now)


def test_why_gpt3_does_not_fit_and_what_makes_it_fit(page: Any, eventually: Any) -> None:
    chip(page, GPT3, eventually)
    for field in ("strategy.tensor", "strategy.pipeline"):
        one = control(page, field).get_by_role("radio", name="1", exact=True)
        changes(page, eventually, lambda part=one: part.check(force=True), field)
    say = page.locator(".dl-say")
    tells(say, "Does not fit", "optimizer state", "Try: ")
    changes(page, eventually, page.get_by_role("button", name="Apply").click, "Apply")
    tells(page.locator(".dl-main"), "✓ fits")


def test_a_pinned_baseline_stays_and_differences_are_named(page: Any, eventually: Any) -> None:
    chip(page, GPT3, eventually)
    page.get_by_role("button", name="Pin as A").click()
    part = control(page, "strategy.recompute").get_by_role("radio", name="selective", exact=True)
    changes(page, eventually, lambda: part.check(force=True), "recompute")
    tells(page.locator(".dl-said"), "recompute")


def test_the_address_brings_it_back(page: Any, eventually: Any) -> None:
    eventually(lambda: "strategy.recompute" in page.evaluate("location.hash"))
    number = page.locator(".dl-nums dd").first
    now = number.inner_text()
    page.reload()
    page.wait_for_selector(DRAWN)
    eventually(lambda: number.inner_text() == now)


def test_an_address_that_is_wrong_names_what_was_ignored(page: Any, eventually: Any) -> None:
    page.evaluate("location.hash = '#v1&preset=goyal-2017&strategy.nodes=many'")
    tells(page.locator(".dlhpc-results, .dl-main").first, "Ignored", "many")


def test_a_file_that_is_wrong_is_explained(page: Any) -> None:
    file = {"name": "mine.toml", "mimeType": "text/plain", "buffer": WRONG}
    page.locator(".dlhpc-file input[type=file]").set_input_files(file)
    tells(page.locator(".dlhpc-file .problem"), "nope", "legal")


@pytest.mark.parametrize("section", ["Simulate this step", "Sweep a setting"])
def test_a_section_opens_and_shows_a_chart(page: Any, eventually: Any, section: str) -> None:
    chip(page, "Goyal 2017", eventually)
    changes(page, eventually, page.get_by_role("button", name=section).click, section)
    page.get_by_role("button", name=section).click()


def test_the_laptop_preset_runs_here_after_one_click(page: Any, eventually: Any) -> None:
    chip(page, "Runs on this laptop", eventually)
    page.get_by_role("button", name="Run here", exact=True).click()
    page.get_by_role("button", name="Run", exact=True).click()
    eventually(lambda: judged(page.locator("body")), what="a comparison")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_for_everybody_at_every_width(page: Any, eventually: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    for width in (390, 800, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        eventually(lambda w=width: page.evaluate("document.documentElement.scrollWidth") <= w)
    eventually(lambda: findings(page) == [], what=lambda: str(findings(page)))
