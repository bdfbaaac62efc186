"""Find the planted wait: a trace without its analysis; name the problem and the rank, then the analysis opens.

find_it()    the experiment: number of the puzzle, kind, rank, an answer, and how many were right
"""

from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, workbench
from lib_dlhpc.explore.traces.panel import TracePanel
from lib_dlhpc.explore.traces.waits import KINDS, NOBODY, RANKS, WORK, Setting, analyzed, trace
from lib_dlhpc.timeline.analysis import Finding

PUZZLES = tuple(range(1, 13))
PROBLEMS = ("sends late", "computes longer", "slow link", "reads slowly")
LEAST, MOST = 0.3, 0.9  # of a step's work
SIZE, NETWORK = 2e6, 10e9  # B of a message; bit/s
# The misconception behind an answer: (answered, planted).
MISTAKES = {
    (
        "computes longer",
        "sends late",
    ): "Each rank has as much work as the others; look at when it sends.",
    (
        "sends late",
        "computes longer",
    ): "No rank waits for its messages: the others wait in the allreduce.",
    (
        "slow link",
        "sends late",
    ): "A message is not slow that has not been sent: the receive is hatched, so it waits.",
    (
        "slow link",
        "reads slowly",
    ): "The wait for a message begins before it is sent. What does its sender do then?",
    (
        "slow link",
        "computes longer",
    ): "Messages take equally long everywhere; one rank is late in the allreduce.",
    (
        "sends late",
        "slow link",
    ): "It sends in time: while the data is in flight, the receive is not hatched.",
    (
        "computes longer",
        "slow link",
    ): "All compute equally long. Who moves data for longer than the others?",
    (
        "reads slowly",
        "slow link",
    ): "All read equally long. Who moves data for longer than the others?",
    (
        "computes longer",
        "reads slowly",
    ): "It works no longer than the others: its work begins late.",
    ("sends late", "reads slowly"): "It does send late, but why? What came before its work?",
    (
        "reads slowly",
        "sends late",
    ): "All read equally long; look at what this rank does before it sends.",
    ("reads slowly", "computes longer"): "All read equally long; look at the length of the work.",
}


class Planted(NamedTuple):
    """What is wrong in a puzzle; rank: the late one, or the end of the slow link before the other."""

    problem: str
    rank: int
    setting: Setting


@lru_cache(maxsize=32)
def puzzle(number: int) -> Planted:
    """Return a puzzle; the same number gives the same one."""
    dice = np.random.default_rng(1100 + number)
    block, place = divmod(number - 1, len(PROBLEMS))
    order = np.random.default_rng(block).permutation(len(PROBLEMS))
    problem, rank = PROBLEMS[order[place]], int(dice.integers(RANKS))
    late = float(dice.uniform(LEAST, MOST))
    if problem == "slow link":
        # As much longer in flight as the others are late.
        share = 1 / (1 + late * WORK * NETWORK / (8 * SIZE))
        own = Setting(NOBODY, size=SIZE, network=NETWORK, share=share, slow=rank, seed=number)
    else:
        own = Setting(rank, problem, late, SIZE, NETWORK, seed=number)
    return Planted(problem, rank, own)


def is_right(planted: Planted, problem: str, rank: int) -> bool:
    """Return whether an answer names it; either end of a slow link will do."""
    ends = {planted.rank}
    if planted.problem == "slow link":
        ends.add((planted.rank + 1) % RANKS)
    return problem == planted.problem and rank in ends


def the_finding(planted: Planted) -> Finding | None:
    """Return the finding of the analysis."""
    kind = KINDS.get(planted.problem, "slow link")
    every = analyzed(planted.setting).findings
    return next((one for one in every if one.kind == kind), None)


def feedback(planted: Planted, problem: str, rank: int) -> str:
    """Return what to say to an answer: what it got right, and the misconception behind the rest."""
    if is_right(planted, problem, rank):
        found = the_finding(planted)
        return "Yes. " + (found.sentence if found else "")
    if problem != planted.problem:
        return "Not that. " + MISTAKES[problem, planted.problem]
    waits = sum(analyzed(planted.setting).waits.values())
    if rank == int(np.argmax(waits)):
        return "The problem, yes; the rank, no: this one waits longest. For whom does it wait?"
    return "The problem, yes; the rank, no. Follow the lines from where somebody waits to their other end."


def find_it() -> ipywidgets.Box:
    """Return the experiment."""
    kinds = [("choose", ""), *((name, name) for name in PROBLEMS)]
    controls = {
        "number": slider("Puzzle", "Each has one problem", [(str(n), n) for n in PUZZLES], 1),
        "problem": dropdown("Problem", "What is wrong", kinds, ""),
        "rank": slider(
            "Rank",
            "The cause; of a slow link, either end",
            [(f"rank {r}", r) for r in range(RANKS)],
            0,
        ),
    }
    answer = ipywidgets.Button(
        description="Answer", button_style="primary", tooltip="Opens the analysis if it is right"
    )
    give_up = ipywidgets.Button(description="Show me", tooltip="Opens the analysis")
    answer_words, score, panel = ipywidgets.HTML(), ipywidgets.HTML(), TracePanel(closed=True)
    tries: dict[int, int] = {}
    done: dict[int, bool] = {}
    shown: dict[str, Any] = {"number": None}

    def update() -> None:
        number = controls["number"].value
        if number != shown["number"]:
            shown["number"] = number
            panel.closed = number not in done
            panel.show(trace(puzzle(number).setting))
            answer_words.value = ""
        words = f"{sum(done.values())} of {len(done)} found" if done else "None found yet"
        problem, rank = controls["problem"].value, controls["rank"].value
        given = f"Your answer: {problem}, rank {rank}. " if problem else ""
        score.value = f"<p>{given}{words}; a first answer counts.</p>"

    def answered(_: Any) -> None:
        number = controls["number"].value
        planted, problem, rank = puzzle(number), controls["problem"].value, controls["rank"].value
        if not problem:
            answer_words.value = verdict_html("✗ Choose a problem first.")
            return
        tries[number] = tries.get(number, 0) + 1
        right = is_right(planted, problem, rank)
        mark = "✓" if right else "✗"
        answer_words.value = verdict_html(f"{mark} {feedback(planted, problem, rank)}")
        if right:
            done.setdefault(number, tries[number] == 1)
            reveal(planted)

    def shown_it(_: Any) -> None:
        number = controls["number"].value
        planted = puzzle(number)
        done.setdefault(number, False)
        who = f"rank {planted.rank}"
        if planted.problem == "slow link":
            who = f"ranks {planted.rank} and {(planted.rank + 1) % RANKS}"
        answer_words.value = verdict_html(f"It was: {planted.problem}, {who}.")
        reveal(planted)

    def reveal(planted: Planted) -> None:
        panel.open(True)
        panel.point(the_finding(planted))
        update()

    answer.on_click(answered)
    give_up.on_click(shown_it)
    row = ipywidgets.HBox([answer, give_up], layout={"flex_flow": "row wrap"})
    note = "where a hatched bar ends: what happens on another rank at that moment ended the wait."
    return workbench(controls, [row, answer_words, score, *panel.widgets], update, note)
