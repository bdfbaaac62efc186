"""The lesson on language models as a learner uses it: guesses, controls, walls, a decoder trained on ranks."""

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

NOTEBOOK = "12_train_a_language_model.ipynb"
PLOTS = 8
QUESTIONS = 43
SLIDERS = {
    0: {"Context": "ArrowRight", "Pipeline": "ArrowRight"},
    1: {"Stages": "ArrowLeft", "Microbatches": "ArrowRight"},
    2: {"Sequence": "ArrowRight", "Context": "ArrowLeft"},
    3: {"Expert ranks": "ArrowLeft", "Pipeline": "ArrowLeft", "Busiest rank": "ArrowRight"},
    4: {
        "GPUs that generate": "ArrowRight",
        "Answer": "ArrowRight",
        "Spread": "ArrowLeft",
        "Samples": "ArrowRight",
    },
}
DROPDOWNS = {
    0: [("Sharded", "gradients too (ZeRO 2)"), ("Recomputed", "all of a block")],
    1: [("Schedule", "zero bubble (ZB-H1)")],
    2: [("Network", "one NIC per node")],
    3: [("Matmuls", "linear layers in fp8"), ("Recomputed", "nothing")],
    4: [],
}
GUESSES = {0: "10", 9: "10", 15: "5", 20: "25", 26: "20", 33: "4"}


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(
    closed: Any, eventually: Any
) -> None:
    before = "131,072 tokens, 16 context ranks"
    a_guess_uncovers(closed, eventually, GUESSES, 9, before, "it is 31.8%", "a factor of 3.18")


def test_walls_say_why(page: Any, eventually: Any) -> None:
    eventually(lambda: "within the published" in wall(page, 0))
    slider(page, 0, "Pipeline").press("Home")
    choose(page, 0, "Sharded", "weights too (ZeRO 3, FSDP)")
    eventually(lambda: "but is slow" in wall(page, 0))
    slider(page, 0, "Tensor").press("Home")
    eventually(lambda: "16,384 replicas, and a step has 2,048" in wall(page, 0))
    slider(page, 0, "Tensor").press("End")
    choose(page, 1, "Schedule", "zero bubble (ZB-H1)")
    eventually(lambda: "Memory:" in wall(page, 1))
    choose(page, 1, "Schedule", "1F1B")
    choose(page, 2, "Exchange", "heads (Ulysses)")
    slider(page, 2, "Context").press("End")
    eventually(lambda: "8 heads of keys and values" in wall(page, 2))
    choose(page, 2, "Exchange", "ring")
    eventually(lambda: "It fits" in wall(page, 3))
    eventually(lambda: "times as fast as all GPUs" in wall(page, 4))
    slider(page, 4, "GPUs that generate").press("Home")
    eventually(lambda: "Balance: generation takes" in wall(page, 4))


@pytest.mark.parametrize("index", SLIDERS)
def test_every_control_is_seen_to_move_a_drawing(page: Any, eventually: Any, index: int) -> None:
    for label, key in SLIDERS[index].items():
        slider_moves(page, eventually, index, label, key)
    for label, choice in DROPDOWNS[index]:
        choice_moves(page, eventually, index, label, choice, DRAWN)


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page: Any, eventually: Any) -> None:
    page.get_by_role("button", name="Weights would not fit").click()
    eventually(lambda: page.get_by_text("they are 50 MB each").count() == 1)
    page.get_by_role("button", name="The batch has 2,048 sequences").click()
    has(page.get_by_text("seven of eight replicas would have none"))


def test_a_layout_is_trained_while_the_page_stays_usable(page: Any, eventually: Any) -> None:
    panel = experiment(page, 5)
    choose(page, 5, "Divided", "stages, zero bubble (pipeline)")
    slider(page, 5, "Ranks").press("Home")
    panel.get_by_role("button", name="Train").click()
    slider_moves(page, eventually, 3, "Expert ranks", "Home")
    tells(panel, "the same run", "calibrates", "predicted less measured", "Why they differ")


def test_everyone_can_use_the_page(page: Any, eventually: Any) -> None:
    everyone_can_use(page, eventually)


def test_a_learner_costs_no_more_memory_than_the_notes_say(
    page: Any, server: tuple[str, int]
) -> None:
    assert 0 < largest_kernel(server[1]) < 2 * MOST_MEMORY  # programs of 1,400 layers, 128 chunks
