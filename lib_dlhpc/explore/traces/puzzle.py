"""Find the planted wait: a trace without its analysis; name the trouble and the rank, then the analysis opens.

find_it()    the experiment: number of the puzzle, kind, rank, an answer, and how many were right
"""

from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, workbench
from lib_dlhpc.explore.traces.panel import TracePanel
from lib_dlhpc.explore.traces.waits import KINDS, NOBODY, RANKS, WORK, Setting, said, trace
from lib_dlhpc.timeline.analysis import Finding

PUZZLES = tuple(range(1, 13))
TROUBLES = ("sends late", "computes longer", "slow link", "reads slowly")
LEAST, MOST = 0.3, 0.9  # of a step's work
SIZE, NETWORK = 2e6, 10e9  # B of a message; bit/s
# What somebody has in mind who answers with the one where it is the other: (answered, planted).
MISTAKES = {
    (
        "computes longer",
        "sends late",
    ): "Each rank has as much work as the others; look at when it sends.",
    (
        "sends late",
        "computes longer",
    ): "Nobody waits for its messages: the others wait where all meet.",
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
    ): "Messages take equally long everywhere; one rank comes late to the allreduce.",
    (
        "sends late",
        "slow link",
    ): "It sends in time: where the data are under way, the receive is not hatched.",
    ("computes longer", "slow link"): "All work alike. Who moves data for longer than the others?",
    ("reads slowly", "slow link"): "All read alike. Who moves data for longer than the others?",
    (
        "computes longer",
        "reads slowly",
    ): "It works no longer than the others: its work begins late.",
    (
        "sends late",
        "reads slowly",
    ): "It does send late, and not by its own choice: what came before its work?",
    ("reads slowly", "sends late"): "All read alike; look at what this rank does before it sends.",
    ("reads slowly", "computes longer"): "All read alike; look at the length of the work.",
}


class Planted(NamedTuple):
    """What is wrong in a puzzle; rank: the late one, or the end of the slow link before the other."""

    trouble: str
    rank: int
    setting: Setting


@lru_cache(maxsize=32)
def puzzle(number: int) -> Planted:
    """Return a puzzle; the same number gives the same one."""
    dice = np.random.default_rng(1100 + number)
    block, place = divmod(number - 1, len(TROUBLES))
    order = np.random.default_rng(block).permutation(len(TROUBLES))
    trouble, rank = TROUBLES[order[place]], int(dice.integers(RANKS))
    late = float(dice.uniform(LEAST, MOST))
    if trouble == "slow link":
        # As much more on the way as the others are late.
        share = 1 / (1 + late * WORK * NETWORK / (8 * SIZE))
        own = Setting(NOBODY, size=SIZE, network=NETWORK, share=share, slow=rank, seed=number)
    else:
        own = Setting(rank, trouble, late, SIZE, NETWORK, seed=number)
    return Planted(trouble, rank, own)


def is_right(planted: Planted, trouble: str, rank: int) -> bool:
    """Return whether an answer names it; either end of a slow link will do."""
    ends = {planted.rank}
    if planted.trouble == "slow link":
        ends.add((planted.rank + 1) % RANKS)
    return trouble == planted.trouble and rank in ends


def the_finding(planted: Planted) -> Finding | None:
    """Return what the analysis says of it."""
    kind = KINDS.get(planted.trouble, "slow link")
    every = said(planted.setting).findings
    return next((one for one in every if one.kind == kind), None)


def feedback(planted: Planted, trouble: str, rank: int) -> str:
    """Return what to say to an answer: what it got right, and the misconception behind the rest."""
    if is_right(planted, trouble, rank):
        found = the_finding(planted)
        return "Yes. " + (found.sentence if found else "")
    if trouble != planted.trouble:
        return "Not that. " + MISTAKES[trouble, planted.trouble]
    waits = sum(said(planted.setting).waits.values())
    if rank == int(np.argmax(waits)):
        return "The trouble, yes; the rank, no: this one waits longest. For whom does it wait?"
    return "The trouble, yes; the rank, no. Follow the lines from where somebody waits to their other end."


def find_it() -> ipywidgets.Box:
    """Return the experiment."""
    kinds = [("choose", ""), *((name, name) for name in TROUBLES)]
    controls = {
        "number": slider("Puzzle", "Each has one trouble", [(str(n), n) for n in PUZZLES], 1),
        "trouble": dropdown("Trouble", "What is wrong", kinds, ""),
        "rank": slider(
            "Rank",
            "Whose doing it is; of a link, either end",
            [(f"rank {r}", r) for r in range(RANKS)],
            0,
        ),
    }
    answer = ipywidgets.Button(
        description="Answer", button_style="primary", tooltip="Opens the analysis if it is right"
    )
    give_up = ipywidgets.Button(description="Show me", tooltip="Opens the analysis")
    told, score, panel = ipywidgets.HTML(), ipywidgets.HTML(), TracePanel(closed=True)
    tries: dict[int, int] = {}
    done: dict[int, bool] = {}
    shown: dict[str, Any] = {"number": None}

    def update() -> None:
        number = controls["number"].value
        if number != shown["number"]:
            shown["number"] = number
            panel.closed = number not in done
            panel.show(trace(puzzle(number).setting))
            told.value = ""
        words = f"{sum(done.values())} of {len(done)} found" if done else "None found yet"
        trouble, rank = controls["trouble"].value, controls["rank"].value
        given = f"Your answer: {trouble}, rank {rank}. " if trouble else ""
        score.value = f"<p>{given}{words}; a first answer counts.</p>"

    def answered(_: Any) -> None:
        number = controls["number"].value
        planted, trouble, rank = puzzle(number), controls["trouble"].value, controls["rank"].value
        if not trouble:
            told.value = verdict_html("✗ Choose a trouble first.")
            return
        tries[number] = tries.get(number, 0) + 1
        right = is_right(planted, trouble, rank)
        mark = "✓" if right else "✗"
        told.value = verdict_html(f"{mark} {feedback(planted, trouble, rank)}")
        if right:
            done.setdefault(number, tries[number] == 1)
            reveal(planted)

    def shown_it(_: Any) -> None:
        number = controls["number"].value
        planted = puzzle(number)
        done.setdefault(number, False)
        who = f"rank {planted.rank}"
        if planted.trouble == "slow link":
            who = f"ranks {planted.rank} and {(planted.rank + 1) % RANKS}"
        told.value = verdict_html(f"It was: {planted.trouble}, {who}.")
        reveal(planted)

    def reveal(planted: Planted) -> None:
        panel.open(True)
        panel.point(the_finding(planted))
        update()

    answer.on_click(answered)
    give_up.on_click(shown_it)
    row = ipywidgets.HBox([answer, give_up], layout={"flex_flow": "row wrap"})
    note = "where a hatched bar ends: what happens elsewhere at that moment is what it waited for."
    return workbench(controls, [row, told, score, *panel.widgets], update, note)
