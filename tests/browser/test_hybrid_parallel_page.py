"""The lesson on hybrid parallelism as a learner uses it: guesses uncover, every control is seen to move something."""

from functools import partial
from typing import Any

import pytest
from lesson_page import MOST_MEMORY, everyone_can_use, has, largest_kernel, tells

pytestmark = pytest.mark.browser

NOTEBOOK = "05_hybrid_parallel.ipynb"
PLOTS = 9
QUESTIONS = 32
# First of all what leaves less to compute for the controls after it.
MOVES = {
    0: {"Edge": "ArrowLeft", "Cubes are in": "GPFS, shared by all"},
    1: {"Run": "18 B, 256 GPUs", "Microbatch": "ArrowRight"},
    2: {  # the image alone lets a change of devices show nothing
        "Image": "Home",
        "Devices per replica": "Home",
        "Devices": "ArrowLeft",
        "Samples per device": "ArrowLeft",
        "Microbatch": "ArrowRight",
        "Devices are": "Xeon sockets of 96 GB (Frontera)",
    },
    3: {"Ranks": "ArrowLeft", "Nodes of 8": "H100"},
}
GUESSES = {0: "10", 7: "3", 13: 3, 17: "20", 23: "8"}  # a number: that choice of a list
# The map or the bars of an experiment, when all layouts of a setting are there.
DONE = {0: "per step:", 1: "layouts", 2: "fit", 3: "of a step waits"}


def verdict(page: Any, index: int) -> str:
    return str(page.experiment(index).locator(".dlhpc-results").inner_text())


def settled(page: Any, eventually: Any, index: int) -> None:
    """Wait until the computation aside is done."""
    eventually(
        lambda: DONE[index] in verdict(page, index) and "computed ..." not in verdict(page, index),
        what=f"experiment {index}",
    )


def drawn(page: Any, eventually: Any, index: int) -> str:
    """Return the drawings of an experiment: all layouts are there, and nothing is drawn any more."""
    settled(page, eventually, index)
    looks = [""]

    def same() -> bool:
        looks.append(page.drawn(index))
        return looks[-1] == looks[-2]

    eventually(same, what=f"drawings of experiment {index} at rest")
    return looks[-1]


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(closed):
    before = "Oyama et al. 2019: cubes of 512³"
    closed.a_guess_uncovers(GUESSES, 0, before, "it is 21.8 GB", "a factor of 2.18")


@pytest.mark.parametrize("index", MOVES)
def test_a_slider_and_a_list_are_seen_to_move_a_drawing(page, eventually, index):
    rest = partial(drawn, page, eventually, index)
    page.controls_move_drawings(index, MOVES[index], at_rest=rest)


def test_a_control_that_moves_ends_the_computation_in_progress(page):
    handle = page.slider(1, "Microbatch")
    for _ in range(3):
        handle.press("ArrowRight")
    for _ in range(3):
        handle.press("ArrowLeft")
    results = page.experiment(1).locator(".dlhpc-results")
    tells(results, "It took", "The published 8 × 12 × 4 would take")


def test_walls_say_why(page, eventually):
    page.slider(0, "GPUs per sample").press("Home")
    eventually(lambda: "Memory: a GPU needs" in page.wall(0))
    page.slider(0, "GPUs per sample").press("End")
    page.choose(0, "Cubes are in", "GPFS, shared by all")
    eventually(lambda: "Input: a batch is" in page.wall(0))
    page.choose(1, "Run", MOVES[1]["Run"])  # the least to compute
    page.slider(1, "GPUs per node").press("Home")
    eventually(lambda: "tensor groups of 8 span 8 nodes" in page.wall(1))
    eventually(lambda: "Memory: data alone needs" in page.wall(2))


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page, eventually):
    page.get_by_role("button", name="Tensor: each GPU has less to compute").click()
    eventually(lambda: page.get_by_text("It allreduces in every layer.").count() == 1)
    page.get_by_role("button", name="Data: replicas allreduce gradients", exact=True).click()
    eventually(lambda: page.get_by_text("Yes: one allreduce per step").count() == 1)


def test_a_network_split_for_real_equals_one_rank(page, eventually):
    panel = page.experiment(4)
    page.choose(4, "Network", "GPT, tensor ranks")
    for label in ("Stages", "Microbatches", "Microbatches"):
        page.slider(4, label).press("ArrowRight")
    eventually(lambda: "= 4 ranks" in panel.inner_text())
    panel.get_by_role("button", name="Train").click()
    eventually(lambda: "It is the same run, split" in panel.inner_text())
    tells(panel, "predicted", "simulated", "measured", "predicted less measured", "inside layers")
    has(panel.locator(".dlhpc-plot svg"))


def test_everyone_can_use_the_page(page):
    everyone_can_use(page)


def test_a_learner_costs_little_memory(page, eventually, server):
    settled(page, eventually, 1)
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY
