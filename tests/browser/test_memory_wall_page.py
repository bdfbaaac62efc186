"""The lesson on memory as a learner uses it: guesses uncover, every control is seen to move something."""

import pytest
from lesson_page import MOST_MEMORY, everyone_can_use, largest_kernel, tells

from lib_dlhpc.labs.fit_the_model.capped_run import available

pytestmark = pytest.mark.browser

NOTEBOOK = "08_memory_and_out_of_core.ipynb"
PLOTS = 4
QUESTIONS = 33
MOVES = {
    0: {"Batch": "ArrowRight", "Network": "VGG-16"},
    1: {"GPUs": "ArrowRight", "Network": "GPT, 22 billion parameters"},
    2: {"Batch": "ArrowRight", "Network": "VGG-16"},
}
GUESSES = {0: "1", 7: 1, 14: "50", 20: "9", 25: "40"}  # a number: that choice of a list


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(closed):
    before = "7.5 billion parameters, Adam, on each of 64 GPUs"
    closed.a_guess_uncovers(GUESSES, 0, before, "it is 37.1 GB", "a factor of 37.1")


@pytest.mark.parametrize("index", MOVES)
def test_a_slider_and_a_list_are_seen_to_move_a_drawing(page, index):
    page.controls_move_drawings(index, MOVES[index])


def test_walls_say_why(page, eventually):
    eventually(lambda: "50% too much" in page.wall(0))
    page.slider(0, "Batch").press("Home")
    eventually(lambda: "It fits." in page.wall(0))
    eventually(lambda: "The largest term is activations" in page.wall(1))
    page.slider(1, "GPU memory").press("End")
    eventually(lambda: "It fits as it is" in page.wall(1))
    eventually(lambda: "are needed and 25 GB/s are there" in page.wall(2))
    page.slider(2, "Host link").press("End")
    eventually(lambda: "all transfers are hidden" in page.wall(2))


def test_a_search_lists_what_fits(page, eventually):
    page.get_by_role("button", name="Search", exact=True).click()
    rows = page.experiment(1).locator("table").last.locator("tbody tr")
    eventually(lambda: rows.count() == 5)


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page, eventually):
    page.get_by_role("button", name="As many", exact=True).click()
    eventually(lambda: page.get_by_text("ZeRO 3 also all-gathers the weights").count() == 1)
    page.get_by_role("button", name="No, it saves memory and costs time").click()
    eventually(
        lambda: page.get_by_text("Yes: the price is an allreduce in each layer").count() == 1
    )


@pytest.mark.skipif(not available(), reason="this system reports no peak")
def test_a_run_under_a_cap_leaves_the_page_usable_and_is_reported(page, eventually):
    panel = page.experiment(3)
    panel.get_by_role("button", name="Train").click()
    before = page.drawn(0)
    page.slider(0, "Batch").press("ArrowRight")
    eventually(lambda: page.drawn(0) != before)
    tells(panel, "Why they differ", "the system refused it", "bitwise identical")
    tells(panel, "measured peak", "calibrates")


def test_everyone_can_use_the_page_and_it_costs_little_memory(page, server):
    everyone_can_use(page)
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY


def test_rows_of_a_wide_table_are_cards_on_a_phone(page, eventually):
    page.set_viewport_size({"width": 390, "height": 844})
    tables = page.locator(".dlhpc-cards")
    eventually(tables.count, what="a wide table")  # of fine-tuning, and of a run if there was one
    inside = "each => each.scrollWidth <= each.parentElement.clientWidth"
    edges = (
        "each => [...each.querySelectorAll('td')].map(cell => cell.getBoundingClientRect().right)"
    )
    for table in tables.all():
        eventually(lambda t=table: t.evaluate(inside), what="a table as wide as its place")
        eventually(lambda t=table: max(t.evaluate(edges)) <= 390, what="all cells in the window")
    page.set_viewport_size({"width": 1280, "height": 900})
