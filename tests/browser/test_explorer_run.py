"""The explorer's section "Run this here": why not, where it cannot be; a real run and its comparison, where it can."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lesson_page import has, judged, tells

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.server.serve import served

pytestmark = pytest.mark.browser

DRAWN = "document.querySelectorAll('.dlhpc-plot[data-serial] svg').length === {}"
DIGITS = """
[model]
name = "mlp-digits"
[dataset]
name = "digits"
[machine]
name = "laptop"
[strategy]
devices_per_node = 1
batch = {batch}
"""


@pytest.fixture(scope="module")
def explorer(
    repository: Path, chromium: Any, require: Any, tmp_path_factory: Any
) -> Iterator[tuple[str, int]]:
    from lib_dlhpc.launch.mpi import mpiexec

    try:
        mpiexec()
    except SpecError as error:
        require(False, str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        with served(repository / "modules" / "00_what_if_explorer.ipynb", preheat=1) as server:
            yield server


@pytest.fixture(scope="module")
def page(explorer: tuple[str, int], open_lasting_page: Callable[..., Any]) -> Any:
    """One page for all tests, in their order."""
    page = open_lasting_page(explorer[0])
    page.wait_for_function(DRAWN.format(6))
    page.get_by_role("button", name="Run this here").focus()
    page.keyboard.press("Enter")
    return page


def use(page: Any, text: str) -> None:
    file = {"name": "mine.toml", "mimeType": "text/plain", "buffer": text.encode()}
    page.locator(".dlhpc-file input[type=file]").set_input_files(file)


def test_what_is_too_large_for_this_machine_says_why(page: Any, eventually: Any) -> None:
    results, run = (
        page.locator(".dlhpc-results"),
        page.get_by_role("button", name="Run", exact=True),
    )
    tells(results, "Cannot be run here.", "imagenet")
    eventually(run.is_disabled)
    use(page, DIGITS.format(batch=32))
    tells(results, "Nothing run yet.")
    eventually(run.is_enabled)


def test_a_click_runs_it_and_another_experiment_takes_the_result_away(
    page: Any, eventually: Any
) -> None:
    results = page.locator(".dlhpc-results")
    use(page, DIGITS.format(batch=32))
    eventually(lambda: "Nothing run yet." in results.inner_text())
    page.get_by_role("button", name="Run", exact=True).click()
    eventually(lambda: judged(results), what="the run")
    page.wait_for_function(DRAWN.format(7))
    tells(
        results, "measured here", "simulated (events)", "one step", "backward", "is not calibrated"
    )
    has(page.locator(".dlhpc-plot[aria-label*='measured here'][aria-label*='One step: predicted']"))
    element = "document.documentElement"
    eventually(lambda: page.evaluate(f"{element}.scrollWidth - {element}.clientWidth") <= 0)
    use(page, DIGITS.format(batch=64))
    eventually(lambda: "measured here" not in results.inner_text())
