"""The lesson on input as a learner uses it: guesses uncover, every control is seen to move something."""

from typing import Any

import pytest
from lesson_page import (
    MOST_MEMORY,
    a_guess_uncovers,
    can_be_cancelled,
    choose,
    every_control_moves,
    everyone_can_use,
    experiment,
    has,
    largest_kernel,
    slider,
    wall,
)

pytestmark = pytest.mark.browser

NOTEBOOK = "07_io_bottlenecks.ipynb"
PLOTS = 8
QUESTIONS = 38
MOVES = {
    0: {
        "A file": "ArrowRight",
        "Nodes": "ArrowRight",
        "Readers": "ArrowRight",
        "GPU": "V100",
        "Files": "packed",
        "Read from": "FanStore, over the SSDs",
    },
    1: {
        "Cached": "ArrowRight",
        "Nodes": "ArrowRight",
        "Policy": "random",
        "Order": "the same in each epoch",
    },
    2: {
        "Nodes": "ArrowLeft",
        "SSD": "ArrowLeft",
        "Data set": "neural images, 455 GB",
        "A node has": "four V100 (what if)",
        "Stored": "2 : 1, fast (1 GB/s a reader)",
    },
    3: {"Batch": "ArrowRight", "Nodes": "ArrowRight", "Network": "VGG-16", "In": "one epoch"},
    4: {"Stripe count": "ArrowRight", "Ranks": "Home", "A request": "Home", "Aggregators": "Home"},
}
GUESSES = {0: "20", 10: "50", 16: 3, 21: 2, 24: "5", 29: "100"}  # a number: that choice of a list


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(
    closed: Any, eventually: Any
) -> None:
    before = "files looked up, opened, closed"
    a_guess_uncovers(closed, eventually, GUESSES, 0, before, "it is 0.729 GB/s", "a factor of 27.5")


@pytest.mark.parametrize("index", MOVES)
def test_every_control_is_seen_to_move_a_drawing(page: Any, eventually: Any, index: int) -> None:
    every_control_moves(page, eventually, index, MOVES[index], ["Data set"])


def test_walls_say_why(page: Any, eventually: Any) -> None:
    eventually(lambda: "metadata servers of lustre cannot handle more" in wall(page, 0))
    choose(page, 0, "Read from", "each node's SSD, copied")
    eventually(lambda: "133% too much" in wall(page, 0))
    choose(page, 0, "Read from", "FanStore, over the SSDs")
    eventually(lambda: "Input keeps up with the GPUs." in wall(page, 0))
    eventually(lambda: "evicts what it needs" in wall(page, 1))
    slider(page, 1, "Nodes").press("End")
    eventually(lambda: "no policy that does not know the order" in wall(page, 1))
    eventually(lambda: "The data fits" in wall(page, 2))
    choose(page, 2, "Data set", "neural images, 455 GB")
    slider(page, 2, "Nodes").press("Home")
    eventually(lambda: "4 nodes are needed" in wall(page, 2))
    slider(page, 3, "Batch").press("End")
    eventually(lambda: "Memory" in wall(page, 3))
    eventually(lambda: "1 of 16 targets: the others are idle" in wall(page, 4))
    slider(page, 4, "Stripe count").press("End")
    eventually(lambda: "All targets are busy." in wall(page, 4))


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page: Any, eventually: Any) -> None:
    page.get_by_role("button", name="Twice the bandwidth").click()
    eventually(lambda: page.get_by_text("Bandwidth is not the limit").count() == 1)
    page.get_by_role("button", name="Packed files", exact=True).click()
    eventually(lambda: page.get_by_text("an index in memory.").count() == 1)


def test_files_are_read_for_real_and_their_prediction_stands_beside_it(
    page: Any, eventually: Any
) -> None:
    live = experiment(page, 5)
    slider(page, 5, "A file").press("Home")
    live.get_by_role("button", name="Read").click()
    eventually(lambda: live.get_by_text("the same samples in the same order").count() == 1)
    eventually(lambda: live.locator(".dlhpc-plot[data-serial] svg").count() == 1)
    has(live.get_by_text("Why they differ."))
    eventually(lambda: live.locator("table tbody tr").count() >= 3 + 7)


def test_a_reading_can_be_cancelled(page: Any) -> None:
    can_be_cancelled(experiment(page, 5), "Read")


def test_everyone_can_use_the_page(page: Any, eventually: Any) -> None:
    everyone_can_use(page, eventually)


def test_a_visitor_is_cheap(page: Any, server: tuple[str, int]) -> None:
    assert largest_kernel(server[1]) < MOST_MEMORY
