"""Find the planted wait: a trace without its analysis; name the problem and the rank, then the analysis opens."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, controls_of
from lib_dlhpc.explore.blocks.workbench import verdict_html, workbench
from lib_dlhpc.explore.traces.panel import TracePanel
from lib_dlhpc.explore.traces.waits import KINDS, NOBODY, RANKS, WORK, Setting, analyzed, trace
from lib_dlhpc.sentences import sentences
from lib_dlhpc.timeline.analysis import Finding

say = sentences(__file__)

PUZZLES = tuple(range(1, 13))
PROBLEMS = ("sends late", "computes longer", "slow link", "reads slowly")
LEAST, MOST = 0.3, 0.9  # of a step's work
SIZE, NETWORK = 2e6, 10e9  # B of a message; bit/s
LINK = "Who moves data for longer than the others?"
LOOK = "where a hatched bar ends: what happens on another rank at that moment ended the wait."
# The misconception behind an answer, by what is planted.
KIND = {"choose": "", **{name: name for name in PROBLEMS}}
RANK = {f"rank {rank}": rank for rank in range(RANKS)}


class Answer(NamedTuple):
    """What the learner takes for the problem of a puzzle."""

    number: Annotated[int, Slider("Puzzle", "Each has one problem", PUZZLES)] = 1
    problem: Annotated[str, Dropdown("Problem", "What is wrong", KIND)] = ""
    rank: Annotated[int, Slider("Rank", "The cause; of a slow link, either end", RANK)] = 0


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


def causes(planted: Planted) -> tuple[int, ...]:
    """Return the ranks that may be named: either end of a slow link will do."""
    other = (planted.rank + 1) % RANKS
    return (planted.rank, other) if planted.problem == "slow link" else (planted.rank,)


def is_right(planted: Planted, problem: str, rank: int) -> bool:
    """Return whether an answer names it."""
    return problem == planted.problem and rank in causes(planted)


def the_finding(planted: Planted) -> Finding | None:
    """Return the finding of the analysis."""
    kind = KINDS.get(planted.problem, "slow link")
    every = analyzed(planted.setting).findings
    return next((one for one in every if one.kind == kind), None)


def feedback(planted: Planted, problem: str, rank: int) -> str:
    """Return what to say to an answer: what it got right, and the misconception behind the rest."""
    if is_right(planted, problem, rank):
        found = the_finding(planted)
        return "✓ Yes. " + (found.sentence if found else "")
    if problem != planted.problem:
        return "✗ Not that. " + say.mistakes[planted.problem][problem]
    if rank == int(np.argmax(sum(analyzed(planted.setting).waits.values()))):
        return "✗ The problem is right, but not the rank: this one waits longest. For whom does it wait?"
    return "✗ The problem is right, but not the rank. Follow the lines from where a rank waits to their other end."


def solution(planted: Planted) -> str:
    """Say what was planted."""
    ranks = causes(planted)
    who = f"rank{'s' * (len(ranks) > 1)} {' and '.join(map(str, ranks))}"
    return f"It was: {planted.problem}, {who}."


def score_words(now: Answer, solved: list[bool]) -> str:
    """Say what is answered, and how many puzzles were found. solved: whether the first answer to each was right."""
    yours = f"Your answer: {now.problem}, rank {now.rank}. " if now.problem else ""
    words = f"{sum(solved)} of {len(solved)} found" if solved else "None found yet"
    return f"{yours}{words}; only first answers count."


def find_it() -> ipywidgets.Box:
    """Return the experiment."""
    controls, panel = controls_of(Answer()), TracePanel()
    said, score = ipywidgets.HTML(), ipywidgets.HTML()
    answer, give_up = (ipywidgets.Button(description=name) for name in ("Answer", "Show me"))
    answer.button_style, answer.tooltip = "primary", "Opens the analysis if it is right"
    give_up.tooltip = "Opens the analysis"
    first: dict[int, bool] = {}  # whether the first answer to a puzzle was right
    solved: set[int] = set()
    shown = 0

    def given() -> Answer:
        return Answer(**{name: control.value for name, control in controls.items()})

    def update() -> None:
        nonlocal shown
        now = given()
        if now.number != shown:
            shown = now.number
            panel.show(trace(puzzle(shown).setting), shown in solved)
            said.value = ""
        score.value = f"<p>{score_words(now, [first[number] for number in solved])}</p>"

    def reveal(number: int) -> None:
        solved.add(number)
        panel.open()
        panel.point(the_finding(puzzle(number)))
        update()

    def answered(_: Any) -> None:
        number, problem, rank = given()
        if not problem:
            said.value = verdict_html("✗ Choose a problem first.")
            return
        said.value = verdict_html(feedback(puzzle(number), problem, rank))
        right = is_right(puzzle(number), problem, rank)
        first.setdefault(number, right)
        if right:
            reveal(number)

    def shown_it(_: Any) -> None:
        number = given().number
        said.value = verdict_html(solution(puzzle(number)))
        first.setdefault(number, False)
        reveal(number)

    answer.on_click(answered)
    give_up.on_click(shown_it)
    row = ipywidgets.HBox([answer, give_up], layout={"flex_flow": "row wrap"})
    return workbench(controls, [row, said, score, *panel.widgets], update, LOOK)
