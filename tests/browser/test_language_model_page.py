"""The lesson on language models as a learner uses it: guesses, controls, walls, a decoder trained on ranks."""

import pytest
from lesson_page import MOST_MEMORY, everyone_can_use, has, largest_kernel, tells

pytestmark = pytest.mark.browser

NOTEBOOK = "12_train_a_language_model.ipynb"
PLOTS = 8
QUESTIONS = 48
MOVES = {
    0: {"Context": "ArrowRight", "Sharded": "gradients too (ZeRO 2)"},
    1: {"Stages": "ArrowLeft", "Schedule": "zero bubble (ZB-H1)"},
    2: {"Sequence": "ArrowRight", "Network": "one NIC per node"},
    3: {"Expert ranks": "ArrowLeft", "Matmuls": "linear layers in fp8"},
    4: {"GPUs that generate": "ArrowRight"},
}
GUESSES = {0: "10", 11: "10", 18: "5", 23: "25", 30: "20", 38: "4"}


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(closed):
    before = "131,072 tokens, 16 context ranks"
    closed.a_guess_uncovers(GUESSES, 11, before, "it is 31.9%", "a factor of 3.19")


def test_walls_say_why(page, eventually):
    eventually(lambda: "within the published" in page.wall(0))
    page.slider(0, "Pipeline").press("Home")
    page.choose(0, "Sharded", "weights too (ZeRO 3, FSDP)")
    eventually(lambda: "but is slow" in page.wall(0))
    page.slider(0, "Tensor").press("Home")
    eventually(lambda: "16,384 replicas, and a step has 2,048" in page.wall(0))
    page.slider(0, "Tensor").press("End")
    page.choose(1, "Schedule", "zero bubble (ZB-H1)")
    eventually(lambda: "Memory:" in page.wall(1))
    page.choose(1, "Schedule", "1F1B")
    page.choose(2, "Exchange", "heads (Ulysses)")
    page.slider(2, "Context").press("End")
    eventually(lambda: "8 heads of keys and values" in page.wall(2))
    page.choose(2, "Exchange", "ring")
    eventually(lambda: "It fits" in page.wall(3))
    eventually(lambda: "times as fast as all GPUs" in page.wall(4))
    page.slider(4, "GPUs that generate").press("Home")
    eventually(lambda: "Balance: generation takes" in page.wall(4))


@pytest.mark.parametrize("index", MOVES)
def test_a_slider_and_a_list_are_seen_to_move_a_drawing(page, index):
    page.controls_move_drawings(index, MOVES[index])


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page, eventually):
    page.get_by_role("button", name="Weights would not fit").click()
    eventually(lambda: page.get_by_text("they are 50 MB each").count() == 1)
    page.get_by_role("button", name="The batch has 2,048 sequences").click()
    has(page.get_by_text("seven of eight replicas would have no sequence"))


def test_a_layout_is_trained_while_the_page_stays_usable(page):
    panel = page.experiment(5)
    page.choose(5, "Divided", "stages, zero bubble (pipeline)")
    page.slider(5, "Ranks").press("Home")
    panel.get_by_role("button", name="Train").click()
    page.slider_moves(3, "Expert ranks", "Home")
    tells(panel, "the same run", "calibrates", "predicted less measured", "Why they differ")


def test_everyone_can_use_the_page(page):
    everyone_can_use(page)


def test_a_learner_costs_no_more_memory_than_the_notes_say(page, server):
    assert 0 < largest_kernel(server[1]) < 2 * MOST_MEMORY  # programs of 1,400 layers, 128 chunks
