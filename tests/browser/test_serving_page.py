"""The lesson on serving as a learner uses it: guesses, controls, walls, a decoder."""

import pytest
from lesson_page import MOST_MEMORY, everyone_can_use, has, largest_kernel, tells

pytestmark = pytest.mark.browser

NOTEBOOK = "13_serving.ipynb"
PLOTS = 15
QUESTIONS = 51
MOVES = {
    0: {"Batch": "ArrowRight", "GPU": "H200 141 GB"},
    1: {"GPUs": "ArrowRight", "Network": "Llama 2 13B"},
    2: {"Tokens": "ArrowRight", "Time of": "a token of each answer"},
    3: {"Requests/s": "ArrowRight", "Batching": "continuous"},
    4: {"Shared": "ArrowLeft", "Memory": "H200"},
    5: {"GPUs per replica": "ArrowLeft", "Weights": "fp8, 1 byte"},
    6: {"Prompt": "ArrowLeft", "Network": "Ethernet, 25 Gb/s a GPU"},
    7: {"Drafts": "ArrowRight", "Draft model": "Llama 3 8B"},
}
# A number: that choice of a list.
GUESSES = {0: "1.5", 7: "17", 12: "8", 16: "100", 21: "5", 26: 2, 32: "13", 37: "1", 43: "5"}


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(closed):
    before = "Llama 2 7B, A100, prompt of 2,048 tokens"
    closed.a_guess_uncovers(GUESSES, 16, before, "it is 40.8 ms", "a factor of 2.45")


@pytest.mark.parametrize("index", MOVES)
def test_a_slider_and_a_list_are_seen_to_move_a_drawing(page, index):
    page.controls_move_drawings(index, MOVES[index])


def test_problems_come_after_a_click_and_take_an_answer_with_its_unit(page):
    has(page.locator(".dlhpc-practice .dlhpc-question"), 0)
    page.get_by_role("button", name="Show the problems").click()
    has(page.locator(".dlhpc-practice .dlhpc-question"), 13)
    own = page.locator(".dlhpc-practice .dlhpc-question").nth(1)
    own.locator("input").fill("3333 ms")
    own.get_by_role("button", name="Check").click()
    tells(own, "Yes: 3.33 s.")


def test_walls_say_why(page, eventually):
    eventually(lambda: "waits for the" in page.wall(0))
    page.slider(0, "Batch").press("End")
    eventually(lambda: "Memory" in page.wall(0))
    page.slider(1, "Tokens").press("End")
    eventually(lambda: "Memory" in page.wall(1))
    page.slider(2, "Tokens").press("End")
    eventually(lambda: "Memory: full attention" in page.wall(2))
    page.choose(3, "Batching", "continuous")
    page.slider(3, "Requests/s").press("End")
    eventually(lambda: "9 of 10 users" in page.wall(3))
    page.slider(4, "Shared").press("End")
    page.slider(4, "Prefixes").press("End")
    eventually(lambda: "are evicted" in page.wall(4))
    page.choose(5, "Weights", "fp8, 1 byte")
    page.slider(5, "Sequences").press("End")
    page.slider(5, "GPUs per replica").press("Home")
    eventually(lambda: "wait in the queue" in page.wall(5))
    page.slider(6, "Prompt").press("End")
    page.slider(6, "Requests/s").press("End")
    page.slider(6, "Prefill replicas").press("Home")
    eventually(lambda: "grows without end" in page.wall(6))
    page.slider(7, "Batch").press("End")
    eventually(lambda: "slower than without drafts" in page.wall(7))


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page, eventually):
    page.get_by_role("button", name="twice as fast", exact=True).click()
    eventually(lambda: page.get_by_text("Peak FLOP/s predicts time only where").count() == 1)
    page.get_by_role("button", name="hardly faster; the prompt is read faster").click()
    has(page.get_by_text("decode is memory-bound, prefill is compute-bound"))


def test_a_decoder_runs_and_its_error_is_discussed(page, eventually):
    panel = page.experiment(8)
    for label in ("Width", "Batch", "Answer"):
        page.slider(8, label).press("Home")
    eventually(lambda: "8 tokens each" in panel.inner_text())
    panel.get_by_role("button", name="Decode").click()
    tells(panel, "A batch of 2 gets", "2 sequences, measured", "calibrated here", "Why they differ")


def test_everyone_can_use_the_page_and_it_costs_little_memory(page, server):
    everyone_can_use(page)
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY
