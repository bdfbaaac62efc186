"""The lesson on traces as a learner uses it: findings are clicked, a puzzle is solved, a program is traced for real."""

import json
from typing import Any

import pytest
from lesson_page import DRAWN, MOST_MEMORY, can_be_cancelled, everyone_can_use, largest_kernel

from lib_dlhpc.explore.traces.puzzle import PROBLEMS, puzzle

pytestmark = pytest.mark.browser

NOTEBOOK = "11_traces_and_waits.ipynb"
PLOTS = 5
QUESTIONS = 32
SLIDERS = {
    0: ["Who", "By", "Messages", "Network", "Link 1–2"],
    2: ["Simulate", "A sample", "Buffer", "Varies"],
}
DRAWING = "document.querySelector('.dlhpc-results').innerHTML"
GUESSES = {0: "10", 9: 3, 13: "2", 18: "100", 23: "50"}  # a number: that choice of a list


def results(page: Any, index: int) -> str:
    return str(page.experiment(index).locator(".dlhpc-results").inner_text())


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(closed):
    before = "in each of eight steps. On average a rank does not compute for 30% of the time"
    closed.a_guess_uncovers(GUESSES, 0, before, "it is 2.09%", "a factor of 4.77")


def test_findings_are_clicked_a_puzzle_is_solved_and_a_check_answers(page, eventually):
    finding = page.experiment(0).get_by_role("button", name="load imbalance: rank 2, 120 ms")
    finding.click()
    eventually(lambda: "Marked: rank 2, computation" in results(page, 0))
    eventually(lambda: "here: computation" in page.evaluate(DRAWING))
    page.experiment(0).get_by_role("button", name="Whole run").click()
    eventually(lambda: "Marked" not in results(page, 0))
    eventually(lambda: "here: computation" not in page.evaluate(DRAWING))

    planted, panel = puzzle(1), page.experiment(1)
    assert planted.rank == 0  # where the slider stands
    eventually(lambda: "Efficiencies" not in results(page, 1))
    wrong = next(t for t in PROBLEMS if t != planted.problem)
    page.choose(1, "Problem", wrong)
    eventually(lambda: f"Your answer: {wrong}, rank 0." in results(page, 1))
    panel.get_by_role("button", name="Answer").click()
    eventually(lambda: "Not that." in results(page, 1) and "Efficiencies" not in results(page, 1))
    page.choose(1, "Problem", planted.problem)
    eventually(lambda: f"Your answer: {planted.problem}, rank 0." in results(page, 1))
    panel.get_by_role("button", name="Answer").click()
    eventually(lambda: "✓ Yes." in results(page, 1) and "Efficiencies" in results(page, 1))
    eventually(lambda: "0 of 1 found" in results(page, 1))  # the first answer counts
    page.slider(1, "Puzzle").press("ArrowRight")
    eventually(lambda: "Efficiencies" not in results(page, 1))

    page.get_by_role("button", name="is the slow one").click()
    eventually(
        lambda: page.get_by_text("The slow rank arrives last, and does not wait").count() == 1
    )


def test_controls_move_drawings_and_walls_say_why(page, eventually):
    eventually(lambda: "No network is fast enough" in page.wall(0))
    eventually(lambda: "training waits for samples" in page.wall(2))
    for index, labels in SLIDERS.items():
        for label in labels:
            page.slider_moves(index, label, "ArrowRight")
    page.choice_moves(0, "It", "reads slowly", DRAWN)
    page.slider(0, "Who").press("Home")
    page.slider(0, "Network").press("Home")
    eventually(lambda: "The network is the bottleneck" in page.wall(0))
    page.slider(2, "A sample").press("Home")
    page.slider(2, "Simulate").press("End")
    eventually(lambda: "simulation waits for room" in page.wall(2))
    page.slider(2, "Simulate").press("Home")
    eventually(lambda: "Neither side waits" in page.wall(2))


def test_a_program_is_traced_while_the_page_lives_and_its_trace_is_saved_and_runs_are_cancelled(
    page, eventually, tmp_path
):
    panel = page.experiment(3)
    at_work = page.passing("ranks at work, traced")
    panel.get_by_role("button", name="Run and trace").click()
    eventually(at_work)
    before = page.drawn(2)
    page.slider(2, "Simulate").press("End")
    eventually(lambda: page.drawn(2) != before)
    eventually(lambda: "Why they differ" in results(page, 3))
    eventually(lambda: panel.locator(".dlhpc-plot[data-serial] svg").count() >= 3)
    for words in ("Rank 2 was late", "predicted", "simulated", "measured", "error", "Efficiencies"):
        eventually(lambda words=words: words in results(page, 3), what=words)
    with page.expect_download() as download:
        panel.get_by_role("link", name="Save for Perfetto").click()
    download.value.save_as(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    assert any(event.get("name") == "MPI_Allreduce" for event in events)

    for index, name in ((3, "Run and trace"), (4, "Couple")):
        can_be_cancelled(page.experiment(index), name)


def test_everyone_can_use_the_page_and_it_costs_little_memory(page, server):
    everyone_can_use(page)
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY
