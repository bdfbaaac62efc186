"""The lesson on serving as a learner uses it: guesses, controls, walls, a decoder."""

from typing import Any

import pytest
from lesson_page import (
    DRAWN,
    MOST_MEMORY,
    a_guess_uncovers,
    choice_moves,
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

NOTEBOOK = "13_serving.ipynb"
PLOTS = 15
QUESTIONS = 51
SLIDERS = {
    0: {"Batch": "ArrowRight", "Prompt": "ArrowRight"},
    1: {"GPUs": "ArrowRight", "Tokens": "ArrowLeft"},
    2: {
        "Tokens": "ArrowRight",
        "Window": "ArrowLeft",
        "One full in": "ArrowRight",
        "Batch": "ArrowRight",
    },
    3: {"Requests/s": "ArrowRight"},
    4: {"Shared": "ArrowLeft", "Own": "ArrowRight", "Prefixes": "ArrowRight"},
    5: {"GPUs per replica": "ArrowLeft", "Sequences": "ArrowLeft", "Price": "ArrowRight"},
    6: {
        "Prompt": "ArrowLeft",
        "Requests/s": "ArrowLeft",
        "Prefill replicas": "ArrowLeft",
        "Limit": "ArrowRight",
    },
    7: {"Drafts": "ArrowRight", "Acceptance": "ArrowLeft", "Batch": "ArrowRight"},
}
DROPDOWNS = {
    0: [("GPU", "H200 141 GB"), ("Weights", "fp8, 1 byte")],
    1: [("Network", "Llama 2 13B"), ("Cache", "fp8, 1 byte")],
    2: [("Time of", "a token of each answer")],
    3: [("Batching", "continuous"), ("Latency", "longest pause, 90%")],
    4: [("Memory", "H200")],
    5: [("Weights", "fp8, 1 byte"), ("Cost in", "joules")],
    6: [("Network", "Ethernet, 25 Gb/s a GPU"), ("Latency", "first token")],
    7: [("Draft model", "Llama 3 8B")],
}
GUESSES = {
    0: "1.5",
    7: "17",
    12: "8",
    16: "100",
    21: "5",
    26: 2,
    32: "13",
    37: "1",
    43: "5",
}  # a number: that choice of a list


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(
    closed: Any, eventually: Any
) -> None:
    before = "Llama 2 7B, A100, prompt of 2,048 tokens"
    a_guess_uncovers(closed, eventually, GUESSES, 16, before, "it is 40.9 ms", "a factor of 2.45")


@pytest.mark.parametrize("index", SLIDERS)
def test_every_control_is_seen_to_move_a_drawing(page: Any, eventually: Any, index: int) -> None:
    for label, key in SLIDERS[index].items():
        slider_moves(page, eventually, index, label, key)
    for label, choice in DROPDOWNS[index]:
        choice_moves(page, eventually, index, label, choice, DRAWN)


def test_problems_come_after_a_click_and_take_an_answer_with_its_unit(
    page: Any, eventually: Any
) -> None:
    has(page.locator(".dlhpc-practice .dlhpc-question"), 0)
    page.get_by_role("button", name="Show the problems").click()
    has(page.locator(".dlhpc-practice .dlhpc-question"), 4)
    own = page.locator(".dlhpc-practice .dlhpc-question").nth(1)
    own.locator("input").fill("3333 ms")
    own.get_by_role("button", name="Check").click()
    tells(own, "Yes: 3.33 s.")


def test_walls_say_why(page: Any, eventually: Any) -> None:
    eventually(lambda: "waits for the" in wall(page, 0))
    slider(page, 0, "Batch").press("End")
    eventually(lambda: "Memory" in wall(page, 0))
    slider(page, 1, "Tokens").press("End")
    eventually(lambda: "Memory" in wall(page, 1))
    slider(page, 2, "Tokens").press("End")
    eventually(lambda: "Memory: full attention" in wall(page, 2))
    slider(page, 3, "Requests/s").press("End")
    eventually(lambda: "9 of 10 users" in wall(page, 3))
    slider(page, 4, "Shared").press("End")
    slider(page, 4, "Prefixes").press("End")
    eventually(lambda: "are evicted" in wall(page, 4))
    slider(page, 5, "Sequences").press("End")
    slider(page, 5, "GPUs per replica").press("Home")
    eventually(lambda: "wait in the queue" in wall(page, 5))
    slider(page, 6, "Prompt").press("End")
    slider(page, 6, "Requests/s").press("End")
    slider(page, 6, "Prefill replicas").press("Home")
    eventually(lambda: "grows without end" in wall(page, 6))
    slider(page, 7, "Batch").press("End")
    eventually(lambda: "slower than without drafts" in wall(page, 7))


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page: Any, eventually: Any) -> None:
    page.get_by_role("button", name="twice as fast", exact=True).click()
    eventually(lambda: page.get_by_text("Peak FLOP/s predicts time where").count() == 1)
    page.get_by_role("button", name="hardly faster; the prompt is read faster").click()
    has(page.get_by_text("a token waits for the weights, the prompt for arithmetic"))


def test_a_decoder_runs_and_its_error_is_discussed(page: Any, eventually: Any) -> None:
    panel = experiment(page, 8)
    for label in ("Width", "Batch", "Answer"):
        slider(page, 8, label).press("Home")
    eventually(lambda: "8 tokens each" in panel.inner_text())
    panel.get_by_role("button", name="Decode").click()
    tells(panel, "A batch of 2 gets", "2 sequences, measured", "calibrated here", "Why they differ")


def test_everyone_can_use_the_page(page: Any, eventually: Any) -> None:
    everyone_can_use(page, eventually)


def test_a_learner_costs_little_memory(page: Any, server: tuple[str, int]) -> None:
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY
