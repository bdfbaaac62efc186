"""The lesson on one step as a learner uses it: guesses uncover, controls move drawings, this machine is measured."""

import pytest
from lesson_page import (
    MOST_MEMORY,
    can_be_cancelled,
    click_soon,
    everyone_can_use,
    has,
    judged,
    largest_kernel,
    tells,
)

pytestmark = pytest.mark.browser

NOTEBOOK = "01_one_step.ipynb"
PLOTS = 8
QUESTIONS = 37
MOVES = {
    0: {"Batch": "ArrowRight", "Layer": "convolution, 3 × 3"},
    1: {"Batch": "ArrowRight", "Network": "LeNet-5"},
    2: {"Edge": "ArrowRight", "Message": "ArrowRight", "Array": "ArrowRight"},
    3: {"Sequence": "ArrowLeft", "Network": "OPT, 125 M"},
}
GUESSES = {0: "0.3", 7: "2", 13: "512", 19: "9", 24: "8", 28: "50"}


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(closed):
    before = "This is the first module after"
    closed.a_guess_uncovers(GUESSES, 0, before, "it is 42.3 µs", "a factor of 141")


@pytest.mark.parametrize("index", MOVES)
def test_a_slider_and_a_list_are_seen_to_move_a_drawing(page, index):
    page.controls_move_drawings(index, MOVES[index])


def test_walls_say_why_and_a_check_answers_the_mistake(page, eventually):
    eventually(lambda: "Memory-bound: 33.6 MB are moved" in page.wall(0))
    page.slider(0, "Width").press("Home")
    eventually(lambda: "Launch-bound" in page.wall(0))
    page.slider(0, "Width").press("End")
    page.slider(0, "Batch").press("End")
    eventually(lambda: "✓ Compute-bound" in page.wall(0))
    page.choose(1, "Network", "ResNet-50")
    page.choose(1, "Device", "V100, 16 bits")
    page.slider(1, "Batch").press("End")
    eventually(lambda: "Wall. Memory" in page.wall(1))
    page.get_by_role("button", name="It is 8 times as fast").click()
    has(page.get_by_text("one FLOP per byte, so it is memory-bound."))
    page.get_by_role("button", name="It takes as long as before").click()
    has(page.get_by_text("its weights are read no faster."))


def test_a_measurement_can_be_cancelled_and_a_run_stands_beside_what_was_predicted(
    page, eventually
):
    measured, run = page.experiment(2), page.experiment(5)
    tells(measured, "not this machine")
    can_be_cancelled(measured, "Measure")
    tells(run, "Not measured on this page yet")
    click_soon(run.get_by_role("button", name="Run this here"))
    eventually(lambda: judged(run), what="the run")
    tells(run, "measured here", "backward")
    has(run.locator(".dlhpc-plot[data-serial] svg"))


def test_passes_run_here_beside_what_was_predicted(page, eventually):
    passes = page.experiment(4)
    page.slider(4, "Array").press("Home")
    tells(passes, "8 passes over 1.05 MB")
    click_soon(passes.get_by_role("button", name="Run the passes"))
    eventually(lambda: "times as fast; predicted" in passes.inner_text(), what="the passes")
    has(passes.locator(".dlhpc-plot[data-serial] svg"))


def test_everyone_can_use_the_page_and_it_costs_little_memory(page, server):
    everyone_can_use(page)
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY
