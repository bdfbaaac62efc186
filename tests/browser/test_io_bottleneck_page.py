"""The lesson on input as a learner uses it: guesses uncover, every control is seen to move something."""

import pytest
from lesson_page import MOST_MEMORY, can_be_cancelled, everyone_can_use, has, largest_kernel

pytestmark = pytest.mark.browser

NOTEBOOK = "07_io_bottlenecks.ipynb"
PLOTS = 8
QUESTIONS = 38
MOVES = {
    0: {"A file": "ArrowRight", "GPU": "V100"},
    1: {"Cached": "ArrowRight", "Policy": "random"},
    2: {"Nodes": "ArrowLeft", "A node has": "four V100 (what if)"},
    3: {"Batch": "ArrowRight", "Network": "VGG-16"},
    4: {"Stripe count": "ArrowRight"},
}
GUESSES = {0: "20", 10: "50", 16: 3, 21: 2, 24: "5", 29: "100"}  # a number: that choice of a list


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(closed):
    before = "files looked up, opened, closed"
    closed.a_guess_uncovers(GUESSES, 0, before, "it is 0.729 GB/s", "a factor of 27.5")


@pytest.mark.parametrize("index", MOVES)
def test_a_slider_and_a_list_are_seen_to_move_a_drawing(page, index):
    page.controls_move_drawings(index, MOVES[index])


def test_walls_say_why(page, eventually):
    eventually(lambda: "metadata servers of lustre cannot handle more" in page.wall(0))
    page.choose(0, "Read from", "each node's SSD, copied")
    eventually(lambda: "133% too much" in page.wall(0))
    page.choose(0, "Read from", "FanStore, over the SSDs")
    eventually(lambda: "Input keeps up with the GPUs." in page.wall(0))
    eventually(lambda: "evicts what it needs" in page.wall(1))
    page.slider(1, "Nodes").press("End")
    eventually(lambda: "no policy that does not know the order" in page.wall(1))
    eventually(lambda: "The data fits" in page.wall(2))
    page.choose(2, "Data set", "neural images, 455 GB")
    page.slider(2, "Nodes").press("Home")
    eventually(lambda: "4 nodes are needed" in page.wall(2))
    page.slider(3, "Batch").press("End")
    eventually(lambda: "Memory" in page.wall(3))
    eventually(lambda: "1 of 16 targets: the others are idle" in page.wall(4))
    page.slider(4, "Stripe count").press("End")
    eventually(lambda: "All targets are busy." in page.wall(4))


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page, eventually):
    page.get_by_role("button", name="Twice the bandwidth").click()
    eventually(lambda: page.get_by_text("Bandwidth is not the limit").count() == 1)
    page.get_by_role("button", name="Packed files", exact=True).click()
    eventually(lambda: page.get_by_text("its index is in memory.").count() == 1)


def test_files_are_read_for_real_and_their_prediction_stands_beside_it(page, eventually):
    live = page.experiment(5)
    page.slider(5, "A file").press("Home")
    live.get_by_role("button", name="Read").click()
    eventually(lambda: live.get_by_text("the same samples in the same order").count() == 1)
    eventually(lambda: live.locator(".dlhpc-plot[data-serial] svg").count() == 1)
    has(live.get_by_text("Why they differ."))
    eventually(lambda: live.locator("table tbody tr").count() >= 3 + 7)


def test_a_reading_can_be_cancelled(page):
    can_be_cancelled(page.experiment(5), "Read")


def test_everyone_can_use_the_page_and_it_costs_little_memory(page, server):
    everyone_can_use(page)
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY
