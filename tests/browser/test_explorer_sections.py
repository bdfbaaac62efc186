"""The explorer's sections: a plan, a simulated step, a sweep, a run here; each control is seen to move its chart."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from explorer_page import (
    GANTT,
    NUMBERS,
    changes,
    chip,
    control,
    move,
    opened,
    part,
    section,
    settled,
    use,
)
from lesson_page import has, judged, tells

from lib_dlhpc.explore.one_step.machines import MACHINE, SHIPPED
from lib_dlhpc.explore.server.serve import served

pytestmark = pytest.mark.browser

GOYAL = "Goyal 2017"
DIGITS = """
[model]
name = "mlp-digits"
[dataset]
name = "digits"
[machine]
name = "laptop"
[strategy]
devices_per_node = {ranks}
batch = {batch}
"""
VARIED = ["Ranks that share a step's samples", "Ranks, a batch on each", "Allreduce", "Bucket"]


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: Any) -> Path:
    """What a user who has calibrated has in the folder of settings."""
    file: Path = tmp_path_factory.mktemp("config") / "dlhpc" / "machine.toml"
    file.parent.mkdir()
    file.write_text((SHIPPED / MACHINE).read_text("utf-8"), "utf-8")
    return file


@pytest.fixture(scope="module")
def explorer(
    repository: Path, chromium: Any, ranks_can_start: None, calibration: Path
) -> Iterator[tuple[str, int]]:
    """The explorer of this user, on a machine with MPI."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(calibration.parents[1]))
        with served(repository / "modules" / "00_what_if_explorer.ipynb") as server:
            yield server


@pytest.fixture(scope="module")
def page(explorer: tuple[str, int], open_lasting_page: Callable[..., Any]) -> Any:
    """One page for all tests, in their order."""
    return opened(open_lasting_page(explorer[0]))


def dropdown(page: Any, label: str) -> Any:
    return page.get_by_role("combobox", name=label, exact=True)


def results(page: Any) -> Any:
    return page.locator(".dl-below")


# plan -----------------------------------------------------------------------------------------------


def test_a_plan_is_found_applied_and_undone(page, eventually):
    def number() -> str:
        return str(page.evaluate(NUMBERS).split(",")[0])

    chip(page, "Runs on this laptop")
    part(page, "strategy.pipeline", "2").check()
    eventually(lambda: "pipeline=2" in page.evaluate("location.hash"), what="two stages shown")
    before, layouts = number(), page.locator(".dl-plan > *")
    section(page, "Plan this")
    tells(results(page), "roved best", "less time")
    tells(layouts.first, "pipeline 2 → 1")
    layouts.first.get_by_role("button", name="Apply").click()
    eventually(lambda: number() != before, what="the headline of the plan")
    tells(layouts.first, "This is what is shown now")
    page.get_by_role("button", name="Undo").click()
    eventually(lambda: number() == before, what="the headline from before")
    tells(layouts.first, "pipeline 2 → 1")


def test_a_plan_says_how_far_it_is_and_can_be_cancelled(page, eventually):
    chip(page, "GPT-3 on 1,024 A100")
    again = page.get_by_role("button", name="Plan again")
    changes(page, again.click, "Plan again")
    tells(results(page), "layouts, the most promising first")
    again.locator("xpath=..").get_by_role("button", name="Cancel").click()
    tells(results(page), "Cancelled.")
    eventually(again.is_enabled)
    page.get_by_role("button", name="Plan this").click()


@pytest.mark.parametrize("name", [".dl-bar > span", ".dl-sections > *"])
def test_the_buttons_are_in_one_row(page, name):
    tops = page.locator(name).evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    assert len(tops) > 1 and len(set(tops)) == 1


# simulate -------------------------------------------------------------------------------------------


def test_a_step_is_simulated_beside_its_prediction_and_why_they_differ(page):
    chip(page, GOYAL)
    section(page, "Simulate this step")
    words = ("predicted", "simulated, rounds", "one step", "waiting for the slowest")
    why = ("Why they differ", "draws the jitter", "computes longest", "hidden behind")
    tells(results(page), *words, *why)
    has(page.locator(f"{GANTT}[aria-label*='The others wait for it']"))


def test_each_control_of_the_simulation_moves_something(page, eventually):
    pictures = page.locator(f"{GANTT} svg")
    dropdown(page, "Fidelity").select_option(index=1)
    tells(results(page), "simulated, events")
    dropdown(page, "Fidelity").select_option(index=0)
    eventually(lambda: "simulated, events" not in results(page).inner_text())
    before = pictures.inner_html()
    seed = page.get_by_role("spinbutton", name="Seed")
    seed.fill("7")
    seed.press("Enter")
    tells(results(page), "seed 7")
    eventually(lambda: pictures.inner_html() != before)
    steps = page.get_by_role("slider", name="Steps", exact=True)
    steps.press("ArrowRight")
    tells(results(page), "2 steps on 256 ranks")
    steps.press("ArrowLeft")
    tells(results(page), "One step on 256 ranks")


def test_a_simulation_follows_the_page_or_is_marked_as_of_other_settings(page, eventually):
    handle = control(page, "strategy.nodes").locator("input")
    handle.press("ArrowLeft")
    tells(results(page), "One step on 128 ranks")
    dropdown(page, "Fidelity").select_option(index=1)
    tells(results(page), "simulated, events")
    handle.press("ArrowRight")
    tells(results(page), "for other settings")
    has(page.locator(".dlhpc-stale"))
    page.get_by_role("button", name="Simulate again").click()
    tells(results(page), "One step on 256 ranks")
    has(page.locator(".dlhpc-stale"), 0)
    dropdown(page, "Fidelity").select_option(index=0)
    eventually(lambda: "simulated, events" not in results(page).inner_text())


def test_too_many_messages_are_reported_and_not_simulated(page, eventually):
    chip(page, GOYAL)
    control(page, "strategy.allreduce").locator("select").select_option(label="ring")
    dropdown(page, "Fidelity").select_option(index=1)
    tells(results(page), "messages, each followed on its own", "Choose fewer nodes")
    dropdown(page, "Fidelity").select_option(index=0)
    eventually(lambda: "each followed on its own" not in results(page).inner_text())


def test_a_bar_says_what_it_is(page):
    bar = page.locator(f"{GANTT} svg .mark-rect path").nth(3)
    settled(page)
    bar.hover()
    bubble = page.locator(".dlhpc-bubble:visible")
    has(bubble)
    tells(bubble, "rank ", " from ")
    section_closed(page, "Simulate this step")


def section_closed(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()
    has(page.locator(GANTT), 0)


# sweep ----------------------------------------------------------------------------------------------


def test_what_is_too_large_for_this_machine_is_predicted_all_the_same(page, eventually):
    chip(page, GOYAL)
    section(page, "Sweep a setting")
    tells(results(page), "No setting can be run here.", "shortest at 256")
    eventually(page.get_by_role("button", name="Run them here").is_disabled)


@pytest.mark.parametrize("varied", VARIED)
def test_whatever_is_varied_has_a_chart_of_its_own(page, varied):
    if varied == VARIED[0]:
        use(page, DIGITS.format(ranks=2, batch=32))
        tells(page.locator(".dl-nums"), "epoch of digits")
    dropdown(page, "Vary").select_option(label=varied)
    tells(results(page), f"{varied}: predicted, one step")


def test_own_values_move_the_chart_and_a_mistake_is_reported(page):
    dropdown(page, "Vary").select_option(label="Batch per device")
    tells(results(page), "Batch per device: predicted, one step")
    settled(page)
    values = page.get_by_role("textbox", name="Values", exact=True)
    values.fill("8, 24, 48")
    values.press("Enter")
    tells(results(page), "shortest at 8", "longest at 48")
    values.fill("8, many")
    values.press("Enter")
    tells(results(page), "Batch per replica 'many'", "at 8.")


def test_the_own_machine_gives_bands(page):
    control(page, "machine.name").locator("select").select_option(index=0)
    tells(results(page), "90% bands: by the intervals", "calibrated on")
    has(page.locator(".dlhpc-plot[aria-label*='One step takes'][aria-label*=' to ']"))


def test_a_click_measures_what_can_be_run_here(page, eventually):
    use(page, DIGITS.format(ranks=1, batch=32))  # two ranks run below
    calibrated = "90% bands: by the intervals"
    eventually(lambda: calibrated not in results(page).inner_text(), what="another machine")
    tells(page.locator(".dl-nums"), "epoch of digits")
    settled(page)
    dropdown(page, "Vary").select_option(label="Batch per device")
    tells(results(page), "Batch per device: predicted, one step")
    values = page.get_by_role("textbox", name="Values", exact=True)
    values.fill("16, 24")
    values.press("Enter")
    eventually(lambda: page.locator(".dlhpc-wide tbody tr").count() == 2, what="two settings")
    settled(page)
    page.get_by_role("button", name="Run them here").click()
    shown = page.locator(".dlhpc-wide").first
    tells(shown, "measured", "rounds off", "90% band")
    eventually(lambda: shown.locator("tbody tr").count() == 2, what="two rows")
    move(page, "strategy.batch")
    eventually(lambda: "measured" not in shown.inner_text(), what="the end of what was measured")
    page.get_by_role("button", name="Sweep a setting").click()
    has(dropdown(page, "Vary"), 0)


# run here -------------------------------------------------------------------------------------------


def test_what_is_too_large_for_this_machine_says_why(page, eventually, calibration):
    calibration.unlink()  # with one, ranks train sixteen small runs before and after; those of the sweep have
    chip(page, GOYAL)
    section(page, "Run here")
    run = page.get_by_role("button", name="Run", exact=True)
    tells(results(page), "Cannot be run here.", "imagenet")
    eventually(run.is_disabled)
    chip(page, "Runs on this laptop")
    tells(results(page), "Nothing run yet.")
    eventually(run.is_enabled)


def test_a_click_runs_it_and_another_experiment_takes_the_result_away(page, eventually):
    use(page, DIGITS.format(ranks=2, batch=32))  # the steps of the chip's run take five seconds
    tells(page.locator(".dl-nums"), "epoch of digits")
    settled(page)
    page.get_by_role("button", name="Run", exact=True).click()
    eventually(lambda: judged(results(page)), what="the run")
    tells(results(page), "measured here", "simulated (events)", "one step", "backward")
    has(page.locator(".dlhpc-plot[aria-label*='measured here'][aria-label*='One step: predicted']"))
    use(page, DIGITS.format(ranks=1, batch=64))
    eventually(lambda: "measured here" not in results(page).inner_text())


def test_calibration_shows_how_far_it_is_and_can_be_cancelled(page, eventually):
    start = page.get_by_role("button", name="Calibrate this machine")
    changes(page, start.click, "Calibrate")
    tells(results(page), "Measuring matmuls")
    start.locator("xpath=..").get_by_role("button", name="Cancel").click()
    tells(results(page), "Cancelled.")
    eventually(start.is_enabled)


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_open_sections_are_as_wide_as_their_window(page, eventually, width):
    page.set_viewport_size({"width": width, "height": 900})
    for name in ("Simulate this step", "Sweep a setting"):
        section(page, name)
    eventually(lambda: page.evaluate("document.documentElement.scrollWidth") <= width)
