"""The lesson on split networks as a learner uses it: guesses uncover, every control is seen to move something."""

import pytest
from lesson_page import MOST_MEMORY, everyone_can_use, has, largest_kernel, tells

pytestmark = pytest.mark.browser

NOTEBOOK = "04_model_parallel.ipynb"
PLOTS = 9
QUESTIONS = 30
MOVES = {
    0: {"GPUs": "ArrowLeft", "Split": "columns twice"},
    1: {"GPUs": "ArrowLeft", "Schedule": "1F1B"},
    2: {"Stages": "ArrowLeft", "Cut into": "equal weights"},
}
GUESSES = {0: "1.8", 8: "4", 15: "10", 21: 3}  # a number: that choice of a list


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(closed):
    before = "HyPar-Flow, 512 nodes over 1"
    closed.a_guess_uncovers(GUESSES, 8, before, "it is 2.7", "a factor of 1.4")


@pytest.mark.parametrize("index", MOVES)
def test_a_slider_and_a_list_are_seen_to_move_a_drawing(page, index):
    page.controls_move_drawings(index, MOVES[index])


def test_walls_say_why(page, eventually):
    eventually(lambda: "tensor parallelism is bandwidth-starved" in page.wall(0))
    page.slider(0, "GPUs").press("ArrowLeft")
    eventually(lambda: "Computation takes longer" in page.wall(0))
    eventually(lambda: "The bubble: 27%" in page.wall(1))
    page.slider(1, "Batch").press("ArrowRight")
    eventually(lambda: "Memory" in page.wall(1))
    page.choose(1, "Schedule", "1F1B")
    page.slider(1, "Microbatches").press("ArrowRight")
    eventually(lambda: "It fits" in page.wall(1))
    page.slider(1, "Microbatches").press("End")
    eventually(lambda: "more than the 32 samples" in page.wall(1))
    eventually(lambda: "Stage 0 is the slowest" in page.wall(2))
    page.slider(2, "Link").press("Home")
    eventually(lambda: "The message" in page.wall(2))


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page, eventually):
    page.get_by_role("button", name="Yes, model parallelism is for speed").click()
    eventually(lambda: page.get_by_text("It is when the batch cannot grow.").count() == 1)
    page.get_by_role("button", name="No: replicas first").click()
    eventually(lambda: page.get_by_text("Yes, while the batch can still grow.").count() == 1)


def test_the_same_network_trains_on_real_ranks_with_the_loss_of_one(page, eventually):
    panel = page.experiment(3)
    for ranks, said in ((1, "1 rank"), (2, "2 ranks")):
        page.slider(3, "Ranks").press("Home" if ranks == 1 else "ArrowRight")
        eventually(lambda t=said: panel.get_by_text(t).count() >= 1)
        panel.get_by_role("button", name="Train").click()
        eventually(lambda t=said: f"on {t};" in panel.inner_text())
    eventually(lambda: panel.locator("table").count() == 2)
    tells(panel, "predicted less measured", "simulated", "calibrates", "one rank")
    has(panel.locator(".dlhpc-plot svg"))


def test_everyone_can_use_the_page_and_it_costs_little_memory(page, server):
    everyone_can_use(page)
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY
