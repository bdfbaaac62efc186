"""The allreduce lesson as a learner uses it: guesses unlock, every control moves something, chunks fly."""

from collections.abc import Callable
from typing import Any

import pytest
from lesson_page import MOST_MEMORY, SHOWN, commit, experiment, largest_kernel

pytestmark = pytest.mark.browser

NOTEBOOK = "03_allreduce.ipynb"
PLOTS = 4
QUESTIONS = 9
SLIDERS = {
    0: ["Ranks", "Latency", "Bandwidth", "Reduction", "Message"],
    1: ["Ranks", "Elements"],
    2: ["Nodes", "Devices a node", "NICs a node", "NIC", "Message"],
}
DROPDOWNS = {1: ("Algorithm", "Rabenseifner"), 2: ("Inside a node", "PCIe, 12 GB/s")}
GUESSES = {0: 1, 1: "14", 2: "40", 3: "1", 4: "50"}  # a number: that choice of a list


def changed(page: Any, index: int, act: Callable[[], Any], eventually: Any) -> None:
    before = page.evaluate(SHOWN, index)
    act()
    eventually(lambda: page.evaluate(SHOWN, index) != before, what="a change")


def test_nothing_is_shown_before_a_guess_and_all_after(closed: Any, eventually: Any) -> None:
    assert closed.locator(".dlhpc-page").count() == 0
    assert closed.get_by_text("Locked until you commit a guess.").count() == len(GUESSES)
    commit(closed, 1, GUESSES[1])
    eventually(lambda: closed.locator(".dlhpc-page").count() == 1)
    told = closed.locator(".dlhpc-question").nth(1).locator(".dlhpc-feedback")
    eventually(lambda: "it is 14 rounds" in told.first.inner_text())
    eventually(lambda: "close" in closed.locator("table").last.inner_text())


@pytest.mark.parametrize("index", SLIDERS)
def test_every_control_moves_something_by_keyboard(page: Any, eventually: Any, index: int) -> None:
    box = experiment(page, index)
    for label in SLIDERS[index]:
        handle = box.get_by_role("slider", name=label, exact=True)
        eventually(lambda h=handle: h.count() == 1, what=f"a name for {label}")
        key = "ArrowLeft" if label not in ("NICs a node", "Reduction") else "ArrowRight"
        changed(page, index, lambda h=handle, k=key: h.press(k), eventually)
    if index in DROPDOWNS:
        label, choice = DROPDOWNS[index]
        select = box.locator(f".widget-dropdown:has(label:text-is('{label}')) select")
        changed(page, index, lambda: select.select_option(label=choice), eventually)


def test_chunks_play_step_and_drag_and_the_diagram_follows(page: Any, eventually: Any) -> None:
    box = experiment(page, 1)
    chunks, plot = box.locator(".dlhpc-chunks"), box.locator(".dlhpc-plot")
    stage = chunks.locator(".stage")
    before = plot.locator("svg").evaluate("svg => svg.outerHTML")
    chunks.get_by_role("button", name="One round on").press("Enter")
    eventually(lambda: stage.get_attribute("data-round") == "1")
    eventually(lambda: plot.locator("svg").evaluate("svg => svg.outerHTML") != before)
    chunks.get_by_role("button", name="Play").click()
    eventually(lambda: chunks.locator(".flying").count() > 0, what="chunks in the air")
    eventually(lambda: int(stage.get_attribute("data-round")) >= 3)
    chunks.get_by_role("button", name="Pause").click()
    handle = chunks.get_by_role("slider", name="Round")
    handle.press("End")
    eventually(lambda: stage.get_attribute("data-round") == "14")
    assert "64 of 64 blocks are complete" in chunks.locator("p.words").inner_text()
    assert chunks.locator("g.all").count() == 64


def test_walls_say_why(page: Any, eventually: Any) -> None:
    sizes, rounds, nodes = (experiment(page, i).locator(".dlhpc-walls") for i in range(3))
    experiment(page, 0).get_by_role("slider", name="Message", exact=True).press("Home")
    eventually(lambda: "The latency floor" in sizes.inner_text())
    experiment(page, 1).get_by_role("slider", name="Elements", exact=True).press("Home")
    eventually(lambda: "messages are empty" in rounds.inner_text())
    assert "recursive doubling" in nodes.inner_text()
    experiment(page, 2).get_by_role("slider", name="Devices a node", exact=True).press("Home")
    eventually(lambda: "No algorithm floods" in nodes.inner_text())


def test_a_wrong_algorithm_and_a_right_one_show_their_results(page: Any) -> None:
    told = page.locator(".dlhpc-walls").all_inner_texts()
    assert any("Not an allreduce yet" in text and "twice" in text for text in told)
    assert any("Proved: allreduce in 2 rounds" in text for text in told)
    assert page.locator(".dlhpc-chunks g.twice").count() >= 4


def test_a_real_run_leaves_the_page_usable_and_shows_measurement_and_price(
    page: Any, eventually: Any
) -> None:
    page.get_by_role("button", name="Run on 4 MPI ranks").click()
    handle = experiment(page, 0).get_by_role("slider", name="Message", exact=True)
    changed(page, 0, lambda: handle.press("ArrowRight"), eventually)
    assert page.get_by_text("4 ranks are at work").count() == 1
    eventually(lambda: page.get_by_text("Measured (symbol: median").count() == 1)
    assert page.get_by_text("There is no network: messages are copies").count() == 1


@pytest.mark.parametrize("width", [1280, 800])
def test_the_page_is_as_wide_as_its_window(page: Any, eventually: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    eventually(lambda: page.evaluate("document.documentElement.scrollWidth") <= width)
    for stage in page.locator(".dlhpc-chunks .stage").all():
        eventually(lambda s=stage: s.locator("svg").bounding_box()["width"] <= width)


def test_a_learner_costs_little_memory(page: Any, lesson: tuple[str, int]) -> None:
    assert 0 < largest_kernel(lesson[1]) < MOST_MEMORY
