"""step_terms: what each rank does in each step; the terms of a step add up to it exactly.

A moment belongs to the first of these that is active in it:

    checkpoint               the rank is idle until a checkpoint is written
    input wait               the rank is idle until it has the next batch
    compute                  forward, backward, update, or a kernel
    exposed communication    a collective or message, beside no compute
    input wait               a batch is fetched or copied, beside none of these
    idle                     nothing: launches, Python, a pipeline's bubble

Where a trace records calls alone, as of MPI, a rank computes whenever it is in none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lib_dlhpc.arrays import Array
from lib_dlhpc.timeline.collective_names import collective_name
from lib_dlhpc.timeline.measure import WORK
from lib_dlhpc.timeline.spans import in_order, union
from lib_dlhpc.timeline.steps.edges import Steps, find_steps
from lib_dlhpc.timeline.table import Timeline

TERMS = ("compute", "exposed communication", "input wait", "checkpoint", "idle")


class Exchange(NamedTuple):
    """The collectives or messages of one kind and size."""

    name: str
    bytes: int  # of one; 0: the trace does not have it
    calls: float  # a step and rank
    seconds: float  # in flight, a step and rank


@dataclass(frozen=True, eq=False)
class StepTerms:
    """The steps of a trace. Seconds of each rank and step have shape (ranks, steps)."""

    ranks: int  # of the job
    rank: list[int]  # those that have events
    found: str  # how steps were found: "annotations", "updates" or "repetition"
    terms: Mapping[str, Array]  # by TERMS; their sum is `seconds`
    communication: Array  # in flight, exposed or not
    exchanges: list[Exchange]  # the longest first

    @property
    def seconds(self) -> Array:
        """The time of each step, (ranks, steps)."""
        return sum(self.terms.values(), np.zeros(()))

    @property
    def steps(self) -> int:
        """The number of steps."""
        return int(self.communication.shape[1])

    @property
    def exposed_share(self) -> float:
        """The part of the communication that is beside no compute; 0 without communication."""
        total = float(self.communication.sum())
        return float(self.terms["exposed communication"].sum()) / total if total else 0.0

    @property
    def exchanged(self) -> float:
        """The bytes of a rank's collectives and messages in a step."""
        return sum(exchange.bytes * exchange.calls for exchange in self.exchanges)


def step_terms(timeline: Timeline) -> StepTerms:
    """Return the steps of a timeline. Raises SpecError where it has none."""
    table = in_order(timeline)
    steps = find_steps(table)
    waits = table.where("compute", "input")
    saves = table.where("compute", "checkpoint")
    work = table.where("compute", *WORK, "kernel")
    talk = table.where("communication")
    layers = {
        "checkpoint": saves,
        "waits": waits,
        "compute": work,
        "exposed communication": talk,
        "fetches": table.where("input"),
    }
    found, rows, before = dict[str, Array](), np.zeros(len(table), np.bool_), np.zeros(())
    for name, more in layers.items():
        rows = rows | more
        covered = _inside(table, rows, steps)
        found[name], before = covered - before, covered
    found["input wait"] = found.pop("waits") + found.pop("fetches")
    found["idle"] = np.diff(steps.edges, axis=1) - before
    if not work.any():
        found["compute"], found["idle"] = found["idle"], found["compute"]
    terms = {name: np.maximum(found[name], 0.0) for name in TERMS}
    return StepTerms(
        ranks=table.ranks,
        rank=steps.rank,
        found=steps.found,
        terms=terms,
        communication=_inside(table, talk, steps),
        exchanges=_exchanges(table, steps),
    )


def _inside(table: Timeline, rows: Array, steps: Steps) -> Array:
    """Return for how long one of the rows is active in each step, (ranks, steps)."""
    spans = union(table, rows)
    rank = np.repeat(np.array(steps.rank, np.int32), steps.edges.shape[1])
    until = spans.before(rank, steps.edges.reshape(-1)).reshape(steps.edges.shape)
    return np.diff(until, axis=1)


def _exchanges(table: Timeline, steps: Steps) -> list[Exchange]:
    """Return what begins within the steps; one message of a bucket, which is detail within it, does not count."""
    detail = table.where("communication", "communication") & (table.peer >= 0)
    first, last = np.full((2, table.ranks), np.inf)
    first[steps.rank], last[steps.rank] = steps.edges[:, 0], steps.edges[:, -1]
    rows = table.where("communication") & ~detail
    rows &= (table.start >= first[table.rank]) & (table.start < last[table.rank])
    names = [collective_name(name) for name in table.names]
    sums: dict[tuple[str, int], list[float]] = {}
    length = table.stop - table.start
    for name, size, seconds in zip(
        table.name[rows].tolist(), table.bytes[rows].tolist(), length[rows].tolist(), strict=True
    ):
        found = sums.setdefault((names[name], size), [0, 0.0])
        found[0] += 1
        found[1] += seconds
    every = len(steps.rank) * (steps.edges.shape[1] - 1)
    exchanges = [
        Exchange(name, size, calls / every, seconds / every)
        for (name, size), (calls, seconds) in sums.items()
    ]
    return sorted(exchanges, key=lambda each: -each.seconds)
