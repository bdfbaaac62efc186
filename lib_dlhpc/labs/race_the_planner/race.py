"""A planner on a track: its predictions are counted, and its layout is compared with the best of all.

attempt(planner, track)         an Attempt: the layout, what was predicted, regret
attempts_of(planner, track)     several, each with the layouts in another order: a lucky draw does not last
greedy, ours                    planners beside the learner's: one field after the other; the library's search
luck(track)                     the mean regret of as many layouts drawn at random
race_lines(planner, tracks)     all of them as a table
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, inf
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.endless import limited
from lib_dlhpc.labs.mistakes import Endless, LabError, explained
from lib_dlhpc.labs.race_the_planner.tracks import Layout, Outcome, Track
from lib_dlhpc.planner import plan

BUDGET = 24  # predictions
ORDERS = 3  # of the layouts, in which a planner is judged
PATIENCE = 20.0  # s of CPU on a track; a planner takes a second or two
Planner = Callable[..., Any]


@dataclass(frozen=True)
class Attempt:
    """What a planner did on a track: the layouts that it predicted, in order, and the one that it returned."""

    track: Track
    asked: tuple[int, ...]
    row: int

    @property
    def value(self) -> float:
        """The objective of the layout; infinite where it does not fit."""
        return self.track.outcome(self.row).value

    @property
    def regret(self) -> float:
        """By how much it is above the best of all, as a fraction of that."""
        return self.track.regret(self.value)

    @property
    def best_asked(self) -> float:
        """The least objective of what was predicted; infinite where nothing was, or nothing fits."""
        return min((self.track.outcome(row).value for row in self.asked), default=inf)


class OverBudget(LabError):
    """A planner asked for more predictions than it may."""


def attempts_of(planner: Planner, track: Track) -> list[Attempt]:
    """Return what a planner does on a track, in each of the orders. Raises as `attempt` does."""
    return [attempt(planner, track, order=order) for order in range(ORDERS)]


def attempt(planner: Planner, track: Track, budget: int = BUDGET, order: int = 0) -> Attempt:
    """Return what a planner does on a track. order: of the layouts; 0 is the track's own.

    Raises LabError where it stops, goes over budget or gives no layout; Endless where it does not end.
    """
    asked: list[int] = []

    def predict(layout: Layout) -> Outcome:
        row = track.row_of(layout)
        if len(asked) == budget:
            raise OverBudget(f"It asked for prediction {budget + 1} of {budget}.")
        asked.append(row)
        return track.outcome(row)

    def endless() -> str:
        return (
            f"It is still computing after {PATIENCE:g} s, with {len(asked)} of {budget} predictions made. The usual"
            " cause is a loop that waits for a change that never comes: the best layout stays the same, or no new"
            " layout is left."
        )

    rows = np.arange(len(track.layouts))
    if order:
        rows = np.random.default_rng(order).permutation(rows)
    layouts = tuple(dict(track.layouts[row]) for row in rows)
    try:
        with explained("It", SpecError, KeyError):
            found = limited(
                lambda: planner(track.experiment, layouts, predict, budget), PATIENCE, endless
            )
            row = track.row_of(found)
    except KeyError as error:
        raise LabError(f"It stopped with KeyError: a dict has no key {error}.") from None
    return Attempt(track, tuple(asked), row)


def greedy(
    experiment: Any, layouts: Sequence[Layout], predict: Callable[[Layout], Outcome], budget: int
) -> Layout:
    """Return where coordinate descent ends: the best value of one field after the other, others unchanged.

    Where nothing fits, less memory is better.
    """
    seen: dict[int, Outcome] = {}
    names = [name for name in layouts[0] if name not in ("data", "batch")]

    def rank(row: int) -> tuple[float, float]:
        if row not in seen and len(seen) < budget:
            seen[row] = predict(layouts[row])
        return (seen[row].value, seen[row].memory) if row in seen else (inf, inf)

    now, before = 0, -1
    while now != before:
        before = now
        for name in names:
            at = layouts[now]
            rows = [
                row
                for row, one in enumerate(layouts)
                if all(one[other] == at[other] for other in names if other != name)
            ]
            now = min(rows, key=rank)
    return layouts[now]


def ours(track: Track, budget: int = BUDGET) -> tuple[float, int]:
    """Return regret and predictions of the library's search. Raises SpecError where it finds nothing that fits."""
    found = plan(track.experiment, track.objective, choose=track.choose, most=budget, best=1)
    changes = {name.removeprefix("strategy."): each for name, each in found.best.changes.items()}
    return track.regret(track.outcome(track.row_of(changes)).value), found.predicted


def luck(track: Track, budget: int = BUDGET) -> float:
    """Return the mean regret of the best of `budget` different layouts drawn at random, where one of them fits."""
    values = sorted(value for value in track.values if value < inf)
    count = len(track.layouts)
    ways = [comb(count - place - 1, min(budget, count) - 1) for place in range(len(values))]
    mean = sum(v * (way / sum(ways)) for v, way in zip(values, ways, strict=True))
    return track.regret(mean)


def race_lines(planner: Planner, tracks: Sequence[Track]) -> list[list[str]]:
    """Return the regret of each planner on each track, and its predictions, as lines of text, the first the head.

    Raises Endless where the learner's does not end.
    """
    head = ["planner", *(f"{t.objective}, {len(t.layouts)} layouts" for t in tracks), "mean regret"]
    lucky = [luck(track) for track in tracks]
    exhaustive = [(0.0, len(track.layouts)) for track in tracks]
    return [
        head,
        _line("yours", [_tried(lambda t: _run(planner, t), track) for track in tracks]),
        _line("random, on average", [(regret, BUDGET) for regret in lucky]),
        _line("greedy", [_run(greedy, track) for track in tracks]),
        _line("the library's search", [_tried(ours, track) for track in tracks]),
        _line("exhaustive", exhaustive),
    ]


def _run(planner: Planner, track: Track) -> tuple[float, int]:
    one = attempt(planner, track)
    return one.regret, len(one.asked)


def _tried(race: Callable[[Track], tuple[float, int]], track: Track) -> tuple[float, int] | None:
    try:
        return race(track)
    except Endless:  # nobody waits for the same again
        raise
    except (LabError, SpecError):
        return None


def _line(name: str, results: Sequence[tuple[float, int] | None]) -> list[str]:
    """Return regrets and predictions in words."""
    cells = [
        f"{_percent(one[0])} ({one[1]})" if one is not None else "no layout" for one in results
    ]
    return [name, *cells, _percent(float(np.mean([one[0] if one else inf for one in results])))]


def _percent(regret: float) -> str:
    return f"{regret:.1%}" if regret < inf else "does not fit"
