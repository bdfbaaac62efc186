"""The lesson on energy and planning as a learner uses it: guesses, controls, walls, two plans trained."""

from typing import Any

import pytest
from lesson_page import (
    DRAWN,
    MOST_MEMORY,
    a_guess_uncovers,
    choice_moves,
    choose,
    everyone_can_use,
    experiment,
    has,
    largest_kernel,
    slider,
    slider_moves,
    tells,
    wall,
)

pytestmark = pytest.mark.browser

NOTEBOOK = "10_energy_and_planning.ipynb"
PLOTS = 7
QUESTIONS = 38
SLIDERS = {
    0: {
        "GPUs": "ArrowLeft",
        "Batch": "ArrowLeft",
        "Power limit": "ArrowRight",
        "Target": "ArrowRight",
    },
    1: {"Time": "ArrowRight", "Energy": "ArrowRight"},
    2: {"GPUs": "ArrowRight", "Days": "ArrowRight", "Served tokens": "ArrowRight"},
    3: {"Stages": "ArrowLeft", "Microbatches": "ArrowRight"},
    4: {"GPUs": "ArrowLeft", "Batch": "ArrowRight", "Jobs": "ArrowRight"},
}
DROPDOWNS = {
    1: [("Then", "shortest time"), ("Between nodes", "eight 200 Gb/s InfiniBand")],
    2: [("Machine", "H100, 1 × 100 Gb/s")],
    3: [("Network", "GPT-3, 175 G weights"), ("Schedule", "GPipe")],
    4: [("Floor", "80%"), ("Battery", "nine tenths"), ("All wait for", "checkpoint, a minute")],
}
GUESSES = {0: "82.6", 7: 1, 12: 2, 17: "5", 22: "10", 27: "2"}  # a number: that choice of a list


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(
    closed: Any, eventually: Any
) -> None:
    before = "LLaMA 65B: the same"
    a_guess_uncovers(closed, eventually, GUESSES, 17, before, "it is 11.6%", "a factor of 2.31")


@pytest.mark.parametrize("index", SLIDERS)
def test_every_control_is_seen_to_move_a_drawing(page: Any, eventually: Any, index: int) -> None:
    for label, key in SLIDERS[index].items():
        slider_moves(page, eventually, index, label, key)
    for label, choice in DROPDOWNS.get(index, ()):
        choice_moves(page, eventually, index, label, choice, DRAWN)


def test_walls_say_why(page: Any, eventually: Any) -> None:
    slider(page, 0, "Target").press("Home")
    eventually(lambda: "The target was met" in wall(page, 0))
    slider(page, 0, "Batch").press("End")
    eventually(lambda: "too much" in wall(page, 0))
    slider(page, 0, "Target").press("ArrowRight")
    eventually(lambda: "65,536 is beyond 8,192" in wall(page, 0))
    eventually(lambda: "within the budget" in wall(page, 1))
    slider(page, 1, "Time").press("Home")
    eventually(lambda: "no layout on up to 64 GPUs" in wall(page, 1))
    eventually(lambda: "In GPipe" in wall(page, 3))
    choose(page, 3, "Schedule", "1F1B")
    slider(page, 3, "Stages").press("Home")
    eventually(lambda: "GPUs compute for" in wall(page, 3))


def test_a_size_beyond_the_law_and_a_budget_that_serving_uses_up_say_so(
    page: Any, eventually: Any
) -> None:
    choose(page, 2, "Machine", "H100, 8 × 400 Gb/s")
    slider(page, 2, "Served tokens").press("Home")
    slider(page, 2, "Days").press("End")
    eventually(lambda: "Extrapolated" in wall(page, 2))
    slider(page, 2, "GPUs").press("Home")
    slider(page, 2, "Days").press("Home")
    eventually(lambda: "within what was measured" in wall(page, 2))
    slider(page, 2, "Served tokens").press("End")
    eventually(lambda: "does not cover" in wall(page, 2))


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page: Any, eventually: Any) -> None:
    page.get_by_role("button", name="always saves energy").click()
    eventually(lambda: page.get_by_text("Goyal's run takes more joules").count() == 1)
    page.get_by_role("button", name="No: accuracy is not assessed").click()
    has(page.get_by_text("what leaves the arithmetic alone"))


def test_two_plans_are_trained_while_the_page_stays_usable(page: Any, eventually: Any) -> None:
    panel = experiment(page, 5)
    slider(page, 0, "Batch").press("Home")
    eventually(lambda: "The target was met" in wall(page, 0))
    panel.get_by_role("button", name="Train").click()
    slider_moves(page, eventually, 0, "GPUs", "ArrowRight")
    tells(panel, "Accuracy: A", "plan B, batch 512", "time, predicted", "Why they differ")


def test_everyone_can_use_the_page(page: Any, eventually: Any) -> None:
    everyone_can_use(page, eventually)


def test_a_learner_costs_little_memory(page: Any, server: tuple[str, int]) -> None:
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY
