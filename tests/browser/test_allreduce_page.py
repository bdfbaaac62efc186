"""The allreduce lesson as a learner uses it: guesses uncover, every control moves something, chunks fly."""

from collections.abc import Callable
from typing import Any

import pytest
from axe import findings
from lesson_page import MOST_MEMORY, SHOWN, everyone_can_use, has, largest_kernel, tells

pytestmark = pytest.mark.browser

NOTEBOOK = "03_allreduce.ipynb"
PLOTS = 4
QUESTIONS = 22
MOVES = {
    0: {
        "Ranks": "ArrowLeft",
        "Latency": "ArrowLeft",
        "Bandwidth": "ArrowLeft",
        "Reduction": "ArrowRight",
        "Message": "ArrowLeft",
    },
    1: {"Ranks": "ArrowLeft", "Elements": "ArrowLeft", "Algorithm": "Rabenseifner"},
    2: {
        "Nodes": "ArrowLeft",
        "Devices per node": "ArrowLeft",
        "NICs per node": "ArrowRight",
        "NIC": "ArrowLeft",
        "Message": "ArrowLeft",
        "Inside a node": "PCIe, 12 GB/s",
    },
}
GUESSES = {0: 1, 6: "14", 9: "40", 16: "1", 17: "50"}  # a number: that choice of a list


def changed(page: Any, index: int, act: Callable[[], Any], eventually: Any) -> None:
    before = page.evaluate(SHOWN, index)
    act()
    eventually(lambda: page.evaluate(SHOWN, index) != before, what="a change")


def test_nothing_is_shown_before_a_guess_and_all_after(closed, eventually):
    covered = closed.locator(".dlhpc-stage.covered[inert]")
    has(covered, len(GUESSES))
    closed.commit(6, GUESSES[6])
    has(covered, len(GUESSES) - 1)
    feedback = closed.locator(".dlhpc-question").nth(6).locator(".dlhpc-feedback")
    eventually(lambda: "it is 14 rounds" in feedback.first.inner_text())
    eventually(lambda: "close" in closed.locator("table").last.inner_text())


@pytest.mark.parametrize("index", MOVES)
def test_every_control_is_seen_to_move_a_drawing(page, index):
    page.controls_move_drawings(index, MOVES[index])


def test_chunks_play_step_and_drag_and_the_diagram_follows(page, eventually):
    box = page.experiment(1)
    chunks, plot = box.locator(".dlhpc-chunks"), box.locator(".dlhpc-plot")
    stage = chunks.locator(".stage")
    before = plot.locator("svg").evaluate("svg => svg.outerHTML")
    chunks.get_by_role("button", name="One round on").press("Enter")
    eventually(lambda: stage.get_attribute("data-round") == "1")
    eventually(lambda: plot.locator("svg").evaluate("svg => svg.outerHTML") != before)
    page.emulate_media(reduced_motion="no-preference")
    chunks.get_by_role("button", name="Play").click()
    eventually(lambda: chunks.locator(".flying").count() > 0, what="chunks in the air")
    eventually(lambda: int(stage.get_attribute("data-round")) >= 3)
    chunks.get_by_role("button", name="Pause").click()  # it plays for ten rounds more
    handle = chunks.get_by_role("slider", name="Round")
    handle.press("End")
    eventually(lambda: stage.get_attribute("data-round") == "14")
    tells(chunks.locator("p.words"), "64 of 64 blocks are complete")
    has(chunks.locator("g.all"), 64)


def test_walls_say_why(page, eventually):
    sizes, rounds, nodes = (page.experiment(i).locator(".dlhpc-walls") for i in range(3))
    page.experiment(0).get_by_role("slider", name="Message", exact=True).press("Home")
    eventually(lambda: "The latency floor" in sizes.inner_text())
    page.experiment(1).get_by_role("slider", name="Elements", exact=True).press("Home")
    eventually(lambda: "messages are empty" in rounds.inner_text())
    tells(nodes, "recursive doubling")
    page.experiment(2).get_by_role("slider", name="Devices per node", exact=True).press("Home")
    eventually(lambda: "No algorithm floods" in nodes.inner_text())


def test_a_wrong_algorithm_and_a_right_one_show_their_results(page, eventually):
    walls = page.locator(".dlhpc-walls")
    for words in (("Not an allreduce yet", "twice"), ("Proved: allreduce in 2 rounds",)):
        eventually(
            lambda words=words: any(
                all(word in text for word in words) for text in walls.all_inner_texts()
            ),
            what=words[0],
        )
    eventually(lambda: page.locator(".dlhpc-chunks g.twice").count() >= 4)


def test_a_real_run_leaves_the_page_usable_and_shows_measurement_and_prediction(
    page, eventually, server
):
    run = page.get_by_role("button", name="Run on 4 MPI ranks")
    page.moves_meanwhile(0, "Message", run, "4 ranks are at work", server[1])
    eventually(lambda: page.get_by_text("Symbol: median measured").count() == 1)
    has(page.get_by_text("There is no network: messages are copies"))


def test_everyone_can_use_the_page_and_it_costs_little_memory(page, server):
    everyone_can_use(page)
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY


def test_no_table_of_a_wide_page_scrolls_up_and_down(page, eventually):
    page.set_viewport_size({"width": 1280, "height": 900})
    eventually(lambda: findings(page) == [], lambda: str(findings(page)))
