"""The explorer's section "Sweep a setting" as a visitor uses it: every control moves the chart, a click measures."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lesson_page import has, tells

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.one_step.machines import MACHINE, SHIPPED
from lib_dlhpc.explore.server.serve import served

pytestmark = pytest.mark.browser

DRAWN = "document.querySelectorAll('.dlhpc-plot[data-serial] svg').length === {}"
# The seventh drawing is the section's own.
CHART = "() => [...document.querySelectorAll('.dlhpc-plot svg')].slice(6).map(svg => svg.outerHTML).join('')"
VARIED = ["Ranks, a batch on each", "Batch a device", "Allreduce", "Bucket"]
DIGITS = """
[model]
name = "mlp-digits"
[dataset]
name = "digits"
[machine]
name = "laptop"
[strategy]
devices_per_node = 2
batch = 32
"""


@pytest.fixture(scope="module")
def explorer(repository: Path, chromium: Any, tmp_path_factory: Any) -> Iterator[tuple[str, int]]:
    """The explorer of a user who has calibrated."""
    home = tmp_path_factory.mktemp("config")
    (home / "dlhpc").mkdir()
    (home / "dlhpc" / "machine.toml").write_text((SHIPPED / MACHINE).read_text("utf-8"), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(home))
        with served(repository / "modules" / "00_what_if_explorer.ipynb", preheat=1) as server:
            yield server


def opened(page: Any) -> Any:
    """Upload digits on two ranks, and open the section by keyboard."""
    page.wait_for_function(DRAWN.format(6))
    file = {"name": "mine.toml", "mimeType": "text/plain", "buffer": DIGITS.encode()}
    page.locator(".dlhpc-file input[type=file]").set_input_files(file)
    tells(page.locator(".dlhpc-headline"), "on 2")
    page.get_by_role("button", name="Sweep a setting").focus()
    page.keyboard.press("Enter")
    page.wait_for_function(DRAWN.format(7))
    return page


@pytest.fixture
def page(explorer: tuple[str, int], open_page: Callable[..., Any]) -> Any:
    return opened(open_page(explorer[0]))


@pytest.fixture(scope="module")
def shared(explorer: tuple[str, int], open_lasting_page: Callable[..., Any]) -> Any:
    """One page for tests that do not care what others have set."""
    return opened(open_lasting_page(explorer[0]))


@pytest.fixture
def redrawn(eventually: Callable[..., Any]) -> Callable[[Any, Callable[[], Any]], None]:
    """A function: redrawn(page, act) acts and waits until the section's chart is another."""

    def redrawn(page: Any, act: Callable[[], Any]) -> None:
        before = page.evaluate(CHART)
        act()
        eventually(lambda: page.evaluate(CHART) not in (before, ""), what="another chart")

    return redrawn


def dropdown(page: Any, label: str) -> Any:
    return page.get_by_role("combobox", name=label, exact=True)


def values(page: Any) -> Any:
    return page.get_by_role("textbox", name="Values", exact=True)


@pytest.mark.parametrize("varied", VARIED)
def test_whatever_is_varied_has_a_chart_of_its_own(shared: Any, redrawn: Any, varied: str) -> None:
    page = shared
    redrawn(page, lambda: dropdown(page, "Vary").select_option(label=varied))
    tells(page.locator(".dlhpc-results"), f"{varied}: predicted, one step")


def test_own_values_move_the_chart_and_a_mistake_is_told(shared: Any, redrawn: Any) -> None:
    page = shared
    redrawn(page, lambda: dropdown(page, "Vary").select_option(label="Batch a device"))
    values(page).fill("8, 24, 48")
    redrawn(page, lambda: values(page).press("Enter"))
    tells(page.locator(".dlhpc-results"), "shortest at 8", "longest at 48")
    values(page).fill("8, many")
    redrawn(page, lambda: values(page).press("Enter"))
    tells(page.locator(".dlhpc-results"), "strategy.batch = 'many'", "at 8.")


def test_the_controls_of_the_page_move_the_chart(page: Any, redrawn: Any) -> None:
    batch = page.get_by_role("slider", name="Batch a device", exact=True)
    redrawn(page, lambda: batch.press("ArrowRight"))
    machine = page.locator(".widget-dropdown:has(label:text-is('Machine')) select")
    redrawn(page, lambda: machine.select_option(index=0))
    tells(page.locator(".dlhpc-results"), "90 % bands: by the intervals", "calibrated on")
    has(page.locator(".dlhpc-plot[aria-label*='One step takes'][aria-label*=' to ']"))


def test_a_click_measures_what_can_be_run_here(
    page: Any, redrawn: Any, require: Any, eventually: Any
) -> None:
    from lib_dlhpc.launch.mpi import mpiexec

    try:
        mpiexec()
    except SpecError as error:
        require(False, str(error))
    values(page).fill("1, 2")
    redrawn(page, lambda: values(page).press("Enter"))
    redrawn(page, lambda: page.get_by_role("button", name="Run them here").click())
    shown = page.locator(".dlhpc-wide")
    tells(shown, "measured", "rounds off", "90 % band")
    eventually(lambda: shown.locator("tbody tr").count() == 2, what="two rows")
    batch = page.get_by_role("slider", name="Batch a device", exact=True)
    redrawn(page, lambda: batch.press("ArrowRight"))
    eventually(lambda: "measured" not in shown.inner_text(), what="the end of what was measured")


def test_what_is_too_large_for_this_machine_is_foretold_all_the_same(
    explorer: Any, open_page: Any, eventually: Any
) -> None:
    page = open_page(explorer[0])
    page.wait_for_function(DRAWN.format(6))
    page.get_by_role("button", name="Sweep a setting").click()
    page.wait_for_function(DRAWN.format(7))
    tells(page.locator(".dlhpc-results"), "No setting can be run here.", "shortest at 256")
    eventually(page.get_by_role("button", name="Run them here").is_disabled)


@pytest.mark.parametrize("width", [1200, 420])
def test_the_section_is_as_wide_as_its_window(shared: Any, eventually: Any, width: int) -> None:
    page = shared
    page.set_viewport_size({"width": width, "height": 900})
    element = "document.documentElement"
    eventually(lambda: page.evaluate(f"{element}.scrollWidth - {element}.clientWidth") <= 0)
    eventually(lambda: page.locator(".dlhpc-plot svg").last.bounding_box()["width"] <= width)
