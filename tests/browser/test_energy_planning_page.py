"""The lesson on energy and planning as a learner uses it: guesses, controls, walls, two plans trained."""

import pytest
from lesson_page import MOST_MEMORY, everyone_can_use, has, largest_kernel, tells

pytestmark = pytest.mark.browser

NOTEBOOK = "10_energy_and_planning.ipynb"
PLOTS = 7
QUESTIONS = 38
MOVES = {
    0: {"GPUs": "ArrowLeft"},
    1: {"Time": "ArrowRight", "Then": "shortest time"},
    2: {"GPUs": "ArrowRight", "Machine": "H100, 1 × 100 Gb/s"},
    3: {"Stages": "ArrowLeft", "Network": "GPT-3, 175 billion parameters"},
    4: {"GPUs": "ArrowLeft", "Floor": "80%"},
}
GUESSES = {0: "82.6", 7: 1, 12: 2, 17: "5", 22: "10", 27: "2"}  # a number: that choice of a list


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(closed):
    before = "LLaMA 65B: the same"
    closed.a_guess_uncovers(GUESSES, 17, before, "it is 11.6%", "a factor of 2.31")


@pytest.mark.parametrize("index", MOVES)
def test_a_slider_and_a_list_are_seen_to_move_a_drawing(page, index):
    page.controls_move_drawings(index, MOVES[index])


def test_walls_say_why(page, eventually):
    page.slider(0, "Target").press("Home")
    eventually(lambda: "The target was met" in page.wall(0))
    page.slider(0, "Batch").press("End")
    eventually(lambda: "too much" in page.wall(0))
    page.slider(0, "Target").press("ArrowRight")
    eventually(lambda: "65,536 is beyond 8,192" in page.wall(0))
    eventually(lambda: "within the budget" in page.wall(1))
    page.slider(1, "Time").press("Home")
    eventually(lambda: "no layout on up to 64 GPUs" in page.wall(1))
    page.choose(3, "Schedule", "GPipe")
    page.slider(3, "Stages").press("Home")
    eventually(lambda: "In GPipe" in page.wall(3))
    page.choose(3, "Schedule", "1F1B")
    eventually(lambda: "GPUs compute for" in page.wall(3))


def test_a_size_beyond_the_law_and_a_budget_that_serving_uses_up_say_so(page, eventually):
    page.choose(2, "Machine", "H100, 8 × 400 Gb/s")
    page.slider(2, "Served tokens").press("Home")
    page.slider(2, "Days").press("End")
    eventually(lambda: "Extrapolated" in page.wall(2))
    page.slider(2, "GPUs").press("Home")
    page.slider(2, "Days").press("Home")
    eventually(lambda: "within what was measured" in page.wall(2))
    page.slider(2, "Served tokens").press("End")
    eventually(lambda: "does not cover" in page.wall(2))


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page, eventually):
    page.get_by_role("button", name="always saves energy").click()
    eventually(lambda: page.get_by_text("Goyal's run takes more joules").count() == 1)
    page.get_by_role("button", name="No: accuracy is not assessed").click()
    has(page.get_by_text("what leaves the arithmetic alone"))


def test_two_plans_are_trained_while_the_page_stays_usable(page, eventually):
    panel = page.experiment(5)
    page.slider(0, "Batch").press("Home")
    eventually(lambda: "The target was met" in page.wall(0))
    panel.get_by_role("button", name="Train").click()
    page.slider_moves(0, "GPUs", "ArrowRight")
    tells(panel, "Accuracy: A", "plan B, batch 512", "time, predicted", "Why they differ")


def test_everyone_can_use_the_page_and_it_costs_little_memory(page, server):
    everyone_can_use(page)
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY
