"""What a Timeline says: where the time of a step goes, what the exchange costs, which ranks are idle.

All causes of a step add up to its time, on every rank. They are counted as `predict` counts them:

    waiting for the slowest   what a rank computes less than the slowest rank of that step
    input stall, checkpoint   that of the rank that is stalled least
    pipeline bubble           what the engine says is bubble
    exposed communication     all other idle time of a rank

In a pipeline no rank waits for the slowest: a rank that computes less idles later, which is bubble.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Array
from lib_dlhpc.results import Columns, Result, Summary
from lib_dlhpc.timeline.spans import covered, in_order
from lib_dlhpc.timeline.table import Timeline

if TYPE_CHECKING:
    import altair as alt

WORK = ("forward", "backward", "update")


@dataclass(frozen=True, eq=False, repr=False)
class Measured(Result):
    """The seconds of a mean step by cause, shape (ranks,) each."""

    step_time: float
    steps: int
    per_rank: Mapping[str, Array]

    @property
    def terms(self) -> dict[str, float]:
        """The mean over the ranks; adds up to step_time. The names are those of a prediction."""
        return {name: float(seconds.mean()) for name, seconds in self.per_rank.items()}

    @property
    def slowest(self) -> int:
        """The rank that computes longest."""
        return int(np.argmax(sum(self.per_rank[kind] for kind in WORK)))

    @property
    def slowest_terms(self) -> dict[str, float]:
        """The terms of the slowest rank."""
        return {name: float(seconds[self.slowest]) for name, seconds in self.per_rank.items()}

    def summary(self) -> Summary:
        """Return step time and terms, in words."""
        from lib_dlhpc.timeline.summary import measured_summary

        return measured_summary(self)

    def to_columns(self) -> Columns:
        """Return a row for each term of each rank: `rank`, `term`, `seconds`."""
        from lib_dlhpc.timeline.summary import measured_columns

        return measured_columns(self)

    def plot(self) -> "alt.Chart":
        """Return the terms of each rank as a stacked bar."""
        from lib_dlhpc.results.charts import stacked_bars

        return stacked_bars(self.to_columns(), "rank", self.summary().title)


def breakdown(timeline: Timeline) -> Measured:
    """Return where the time goes. A step of a rank ends with its update; with no update it is all one step."""
    table = timeline.select(timeline.where("compute")).sorted()
    step, steps = _steps(table)
    work = {kind: _sums(table, step, kind) for kind in WORK}
    compute = sum(work.values(), np.zeros(()))
    total = span(timeline)
    stall, saving = (_sums(table, step, kind).min(axis=0).sum() for kind in ("input", "checkpoint"))
    idle = np.maximum(total - stall - saving - compute.sum(axis=1), 0.0)
    bubble = np.minimum(_sums(table, step, "bubble").sum(axis=1), idle)
    waiting = np.minimum((compute.max(axis=0) - compute).sum(axis=1), idle)
    if bubble.any():
        waiting = np.zeros_like(waiting)
    per_rank = {
        **{kind: seconds.sum(axis=1) for kind, seconds in work.items()},
        "waiting for the slowest": waiting,
        "exposed communication": idle - waiting - bubble,
        "pipeline bubble": bubble,
        "input stall": np.full(timeline.ranks, stall),
        "checkpoint": np.full(timeline.ranks, saving),
    }
    return Measured(
        total / steps, steps, {name: seconds / steps for name, seconds in per_rank.items()}
    )


def span(timeline: Timeline) -> float:
    """Return the seconds from the first to the last event of compute or communication."""
    rows = timeline.where("compute") | timeline.where("communication")
    return float(timeline.stop[rows].max() - timeline.start[rows].min()) if rows.any() else 0.0


def exposed(timeline: Timeline) -> Array:
    """Return the seconds in which each rank communicates and does not compute, shape (ranks,)."""
    timeline = in_order(timeline)
    work = timeline.where("compute", *WORK, "kernel")
    talk = timeline.where("communication")
    return covered(timeline, work | talk) - covered(timeline, work)


def idle(timeline: Timeline) -> Array:
    """Return the seconds in which each rank does not compute, from first to last event, shape (ranks,)."""
    timeline = in_order(timeline)
    return span(timeline) - covered(timeline, timeline.where("compute", *WORK, "kernel"))


def waits(timeline: Timeline) -> Array:
    """Return the idle seconds of each rank, whatever the cause, shape (ranks,)."""
    rows = timeline.where("compute", "wait", "bubble", "input", "checkpoint")
    seconds = (timeline.stop - timeline.start)[rows]
    return np.bincount(timeline.rank[rows], weights=seconds, minlength=timeline.ranks)


def _steps(table: Timeline) -> tuple[NDArray[np.int64], int]:
    """Return the step of each row of a sorted table, and how many steps there are."""
    done = table.where("", "update").astype(np.int64)
    before = np.cumsum(done) - done
    first = np.searchsorted(table.rank, np.arange(table.ranks))
    base = np.append(before, done.sum())[first]
    updates = np.bincount(table.rank, weights=done, minlength=table.ranks)
    return before - base[table.rank], max(int(updates.max(initial=0)), 1)


def _sums(table: Timeline, step: NDArray[np.int64], kind: str) -> Array:
    """Return the seconds of a kind by rank and step, shape (ranks, steps and what comes after)."""
    steps = int(step.max(initial=0)) + 1
    rows = table.where("", kind)
    at = table.rank[rows].astype(np.int64) * steps + step[rows]
    seconds = (table.stop - table.start)[rows]
    return np.bincount(at, weights=seconds, minlength=table.ranks * steps).reshape(-1, steps)
