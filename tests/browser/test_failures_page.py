"""The lesson on failures as a learner uses it: guesses, controls, versions, a killed run."""

from typing import Any

import pytest
from lesson_page import MOST_MEMORY, can_be_cancelled, everyone_can_use, has, largest_kernel, tells

pytestmark = pytest.mark.browser

NOTEBOOK = "09_state_and_failures.ipynb"
PLOTS = 8
QUESTIONS = 48
MOVES = {
    0: {"GPUs": "ArrowLeft", "Network": "GPT-3, 175 billion parameters"},
    1: {"Interval": "ArrowLeft", "Network": "GPT, 1 T weights"},
    2: {"GPUs": "ArrowLeft"},
    4: {"GPUs": "ArrowLeft"},
}
# A number: that choice of a list.
GUESSES = {0: "10", 9: "10", 16: "8", 23: "10", 28: "12", 35: "5"}
GO = "Train from here"


def versions(page: Any) -> Any:
    return page.locator(".dlhpc-versions button")


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(closed):
    before = "BLOOM, 720 checkpoints of 40 s in 90 days"
    closed.a_guess_uncovers(GUESSES, 0, before, "it is 18.6 min", "a factor of 1.86")


@pytest.mark.parametrize("index", MOVES)
def test_a_slider_and_a_list_are_seen_to_move_a_drawing(page, index):
    page.controls_move_drawings(index, MOVES[index])


def test_walls_say_why(page, eventually):
    eventually(lambda: "makes progress" in page.wall(0))
    page.slider(0, "Interval").press("End")
    eventually(lambda: "Save more often" in page.wall(0))
    eventually(lambda: "Every copy fits" in page.wall(1))
    page.choose(1, "Who writes", "the first node")
    eventually(lambda: "let all nodes write" in page.wall(1))
    page.slider(1, "File system").press("Home")
    eventually(lambda: "training waits" in page.wall(1))


def test_simulated_runs_stand_beside_the_formula(page, eventually):
    before = page.drawn(0)
    page.get_by_role("button", name="Simulate 200 runs").click()
    eventually(lambda: "of the formula at each of 5" in page.experiment(0).inner_text())
    eventually(lambda: page.drawn(0) != before)


def test_a_version_is_clicked_and_continued(page, eventually):
    panel, train = page.experiment(3), page.get_by_role("button", name=GO)
    eventually(lambda: versions(page).count() == 1)
    train.click()
    eventually(lambda: versions(page).count() == 5)
    before = page.drawn(3)
    page.choose(3, "Train", "the last layer")
    page.slider(3, "Epochs").press("Home")
    eventually(lambda: "1 epoch, the last layer" in panel.inner_text())
    train.click()
    eventually(lambda: versions(page).count() == 6)
    eventually(lambda: "all of it" in panel.inner_text())
    eventually(lambda: page.drawn(3) != before)
    versions(page).nth(2).click()
    eventually(
        lambda: "from version 3" in panel.inner_text() and "new branch" in panel.inner_text()
    )
    versions(page).nth(1).focus()
    page.keyboard.press("Enter")  # no mouse is needed
    eventually(lambda: "from version 2" in panel.inner_text())
    eventually(lambda: versions(page).nth(1).get_attribute("aria-pressed") == "true")
    page.choose(3, "Train", "all layers")
    page.slider(3, "Rate").press("End")
    eventually(lambda: "rate 2" in panel.inner_text())
    train.click()
    eventually(lambda: "has unlearned" in page.wall(3))
    has(versions(page), 7)
    tells(panel, "branch-2")


def test_a_run_that_is_killed_leaves_the_page_usable_and_ends_with_the_same_weights(
    page, eventually
):
    panel = page.experiment(5)
    begins = page.passing("First undisturbed")
    panel.get_by_role("button", name="Let it fail").click()
    eventually(begins)
    before = page.drawn(0)
    page.slider(0, "Interval").press("ArrowLeft")
    eventually(lambda: page.drawn(0) != before)
    tells(panel, "Why they differ", "bitwise identical", "at its own speed", "measured", "error")


def test_a_run_can_be_cancelled(page):
    can_be_cancelled(page.experiment(5), "Let it fail")


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page, eventually):
    page.get_by_role("button", name="are rare, so ignore them").click()
    eventually(lambda: page.get_by_text("one fails every thirteen hours").count() == 1)
    page.get_by_role("button", name="As long as a copy to the host takes").click()
    eventually(lambda: page.get_by_text("if the host has room").count() == 1)


def test_everyone_can_use_the_page_and_it_costs_little_memory(page, server):
    everyone_can_use(page)
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY
