"""Two plans of a small network on MPI ranks of this machine: what the planner picks, and what the learner bets on.

here(ranks)                     a track: all layouts of a small GPT on that many ranks, by time
picks(planner, bet, track)      the two layouts, as rows of the track
measured(track, rows, comm)     s of a step and loss of each, runs in turn
"""

from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.comparison.steady import WARM_UP, step_ends
from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.findings import Finding, broken, kept
from lib_dlhpc.labs.mistakes import LabError, explained
from lib_dlhpc.labs.race_the_planner.race import Planner, attempt
from lib_dlhpc.labs.race_the_planner.tracks import Track
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.training.threads import one_thread
from lib_dlhpc.training.trainer import train

STEPS, BATCH, TURNS = 10, 16, 2
RANKS = (2, 4)
PLAIN = {"tensor": 1, "pipeline": 1, "microbatches": 1, "zero": 0}
SAME = "Both plans train the same network"
CLOSE = 1e-5  # relative, of the losses: fp32 sums in another order


class Measured(NamedTuple):
    """A plan that was run: s of a step, predicted and the median of its steady steps; the last loss."""

    words: str
    predicted: float
    step: float
    loss: float


def here(ranks: int) -> Track:
    """Return the track of a small GPT on ranks of one node. Raises SpecError for another number of ranks."""
    if ranks not in RANKS:
        raise SpecError(f"{ranks} ranks; legal: {', '.join(map(str, RANKS))}.")
    model = {"family": "gpt", "layers": 4, "hidden": 64, "heads": 4, "sequence": 32}
    tables = {
        "model": model | {"vocabulary": 64, "dropout": 0.0},
        "dataset": {"name": "words", "samples": STEPS * BATCH},
        "machine": {"name": "laptop", "devices_per_node": ranks},
        "strategy": {"devices_per_node": ranks, "batch": BATCH // ranks, "optimizer": "adam"},
        "run": {"epochs": 1},
    }
    choose: dict[str, list[Any]] = {
        "sequence_parallel": [False],
        "microbatches": [1, 2, 4],
        "schedule": ["1f1b"],
        "chunks": [1],
        "zero": [0, 1],
        "recompute": ["none"],
    }
    return Track(read_experiment(tables), "time", choose)


def picks(planner: Planner, bet: Any, track: Track) -> tuple[int, int]:
    """Return the planner's pick and the learner's bet; fields that the bet leaves out are plain. Raises LabError."""
    with explained("bet()"):
        given = bet()
    if not isinstance(given, dict):
        raise LabError("bet() returns a dict of fields.")
    extra = sorted({*given} - {*PLAIN})
    if extra:
        raise LabError(
            f"bet: {', '.join(extra)}: fixed by the task; you may set: {', '.join(PLAIN)}."
        )
    try:
        pick = attempt(planner, track).row
    except LabError as error:
        peaks = ", ".join(track.experiment.machine.device.peak)
        words = (
            f"Your planner on this machine's network, in fp32 (device.peak has {peaks}): {error}"
        )
        raise LabError(words) from None
    return pick, track.row_of(PLAIN | given)


def measured(track: Track, rows: tuple[int, int], comm: Any) -> list[Measured]:
    """Return each plan as it ran on the ranks of `comm`; in turn, as other programs come and go."""
    seconds: list[list[float]] = [[], []]
    losses = [0.0, 0.0]
    for _ in range(TURNS):
        for plan, row in enumerate(rows):
            with one_thread():
                run = train(track.experiment_of(row), comm)
            losses[plan] = run.loss
            if run.timeline is not None:
                ends = step_ends(run.timeline).max(axis=0)
                seconds[plan] += np.diff(ends)[WARM_UP:].tolist()
    return [
        Measured(_words(track, row), track.outcome(row).value, float(np.median(found)), loss)
        for row, found, loss in zip(rows, seconds, losses, strict=True)
        if found
    ]


def _words(track: Track, row: int) -> str:
    return ", ".join(f"{name} {track.layouts[row][name]}" for name in track.fields)


def regret_words(plans: list[Measured], ranks: int) -> str:
    """Return both plans, predicted and measured, and the regret of the planner's pick of the two."""
    lines = [f"{ranks} real ranks, {TURNS} runs of {STEPS} steps each, in turn."]
    for who, one in zip(("Your planner's pick", "Your bet"), plans, strict=True):
        both = f"predicted {show(one.predicted, 's')} per step, measured {show(one.step, 's')}"
        lines.append(f"{who}: {one.words}: {both}.")
    pick, bet = plans
    regrets = (
        max(0.0, getattr(pick, way) / getattr(bet, way) - 1) for way in ("predicted", "step")
    )
    lines.append(
        "Regret of the pick, of these two: {:.0%} predicted, {:.0%} measured. This is not graded: other programs run"
        " here, too, and the laptop in the catalog is not your laptop.".format(*regrets)
    )
    return "\n".join(lines)


def same_finding(plans: list[Measured]) -> Finding:
    """Return whether both plans end with the same loss: a layout changes where numbers are, not what they are."""
    first, second = (one.loss for one in plans)
    words = f"After {STEPS} steps the losses are {first:.6g} and {second:.6g}."
    return (kept if abs(first - second) <= CLOSE * abs(first) else broken)(SAME, words)
