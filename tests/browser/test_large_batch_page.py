"""The lesson on large batches as a learner uses it: guesses uncover, controls move drawings, runs can be cancelled."""

from typing import Any

import pytest
from lesson_page import MOST_MEMORY, can_be_cancelled, everyone_can_use, largest_kernel, tells

pytestmark = pytest.mark.browser

NOTEBOOK = "06_large_batch_lars.ipynb"
PLOTS = 5
QUESTIONS = 21
MOVES = {
    0: {"Batch": "ArrowLeft", "Rule": "LARS"},
    1: {"Batch": "ArrowLeft", "Compare": "LAMB", "with": "linear scaling"},
    2: {"GPUs": "ArrowLeft", "Machine": "abci, V100"},
}
GUESSES = {0: "50", 6: "80", 11: "10", 14: "4"}  # a number: that choice of a list
REAL = "Train on 4 MPI ranks"


def press(page: Any, index: int, name: str) -> None:
    page.experiment(index).get_by_role("button", name=name, exact=True).click()


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(closed):
    before = "How far did others get?"
    closed.a_guess_uncovers(GUESSES, 0, before, "close to chance, 10%", "a factor of")


@pytest.mark.parametrize("index", MOVES)
def test_a_slider_and_lists_are_seen_to_move_something(page, index):
    for label, move in MOVES[index].items():
        page.controls_move_drawings(
            index, {label: move}, worded=("Rule", "Compare", "with", "Machine")
        )


def test_walls_say_why(page, eventually):
    eventually(lambda: "Linear scaling collapses" in page.wall(1))
    page.slider(1, "Batch").press("Home")
    eventually(lambda: "Linear scaling works" in page.wall(1))
    page.slider(2, "GPUs").press("End")
    eventually(lambda: "critical batch" in page.wall(2))
    page.slider(2, "Images per GPU").press("End")
    eventually(lambda: "Memory" in page.wall(2))


def test_live_runs_break_are_repaired_and_differ_by_seed(page, eventually):
    box, handle = page.experiment(0), page.slider(0, "Batch")
    for _ in range(2):
        handle.press("ArrowRight")
    # A key that comes while the kernel is busy waits in the page; the button's click would overtake it.
    eventually(lambda: "32 times the base batch" in box.inner_text())
    press(page, 0, "Train")
    eventually(lambda: "Wall. linear 512" in page.wall(0))
    page.choose(0, "Rule", "LARS")
    press(page, 0, "Train")
    eventually(lambda: "This run learned." in page.wall(0))
    page.slider(0, "Seed").press("ArrowRight")
    eventually(lambda: "seed 1" in box.inner_text())
    press(page, 0, "Train")
    eventually(lambda: "3: LARS 512" in box.inner_text())
    press(page, 0, "Clear")
    eventually(lambda: "Nothing trained yet." in box.inner_text())


def test_a_live_run_can_be_cancelled_while_the_page_lives(page, eventually):
    page.choose(0, "Rule", "linear scaling")
    page.slider(0, "Seed").press("Home")
    eventually(lambda: "seed 0" in page.experiment(0).inner_text())
    page.slider(0, "Batch").press("Home")  # the longest
    eventually(lambda: "1 times the base batch of 16" in page.experiment(0).inner_text())
    trains = page.passing("linear 16 is training")
    press(page, 0, "Train")
    cancel = page.experiment(0).get_by_role("button", name="Cancel", exact=True)
    eventually(trains, what="a run")  # even one that ends between two looks
    before = page.drawn(1)
    page.slider(1, "Batch").press("ArrowRight")
    eventually(lambda: page.drawn(1) != before)
    cancel.evaluate("button => button.click()")  # nothing, if the run is over by now
    said = page.experiment(0).get_by_text("linear 16: ")
    eventually(lambda: said.first.is_visible() and "training" not in said.first.inner_text())
    eventually(page.experiment(0).get_by_role("button", name="Train", exact=True).is_enabled)


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page, eventually):
    page.get_by_role("button", name="always works, with a warm-up", exact=True).click()
    eventually(lambda: page.get_by_text("helps only at the start").count() == 1)
    page.get_by_role("button", name="They are right", exact=True).click()
    eventually(lambda: page.get_by_text("All replicas can agree on a wrong gradient").count() == 1)


def test_a_real_run_is_drawn_live_and_shown_beside_its_prediction(page, eventually):
    at_work = page.passing("4 ranks are at work")
    page.get_by_role("button", name=REAL).click()
    eventually(at_work)
    page.slider(2, "GPUs").press("ArrowRight")
    eventually(lambda: page.get_by_text("times the prediction").count() == 1)
    card = page.locator(".dlhpc-card").filter(has_text="Because of a bug")
    tells(card, "1: 4 ranks", "2: one rank")
    tells(card.locator("table").first, "predicted", "simulated", "measured")


def test_a_real_run_can_be_cancelled(page):
    can_be_cancelled(page.locator(".dlhpc-card").filter(has_text="Because of a bug"), REAL)


def test_everyone_can_use_the_page_and_it_costs_little_memory(page, server):
    everyone_can_use(page)
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY
