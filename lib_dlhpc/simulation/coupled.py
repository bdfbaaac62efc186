"""A coupled workflow simulated: two sides as processes, a buffer between them, every rank with its own jitter.

What each side takes for a batch is priced as in the closed form; that ranks vary, wait for the slowest of their
side, find the buffer full or empty, is simulated. A place in the buffer is free when all training ranks have
taken the batch out, which is where their step begins.
"""

from collections.abc import Generator
from typing import Any

import numpy as np
import simpy
from simpy.events import Event

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs.coupled import Side, rows_computed, sides_of
from lib_dlhpc.spec.workflow import Costs, Workflow, share
from lib_dlhpc.timeline import Timeline, from_rows
from lib_dlhpc.timeline.coupled import ROOM, SAMPLES


def simulate_coupled(workflow: Workflow, costs: Costs, ranks: int, seed: int = 0) -> Timeline:
    """Return the Timeline of all ranks, with the jitter of `costs`. Raises SpecError for too few ranks."""
    simulating, training = workflow.sides(ranks)
    running = _Workflow(workflow, costs, ranks, np.random.default_rng(seed))
    if workflow.coupling.placement == "shared":
        running.env.process(running.in_turn(simulating))
    else:
        running.env.process(running.simulation(simulating))
        running.env.process(running.training(training))
    running.env.run()
    return from_rows(running.rows, ranks, "simulated").sorted()


class _Workflow:
    """The environment, the buffer, and the recorded rows."""

    def __init__(
        self, workflow: Workflow, costs: Costs, ranks: int, rng: np.random.Generator
    ) -> None:
        self.workflow, self.costs, self.rng = workflow, costs, rng
        self.env = simpy.Environment()
        depth = workflow.coupling.depth
        self.room = simpy.Container(self.env, depth, init=depth)
        self.buffer = simpy.Store(self.env)
        self.left, self.right = sides_of(workflow, costs, ranks)
        self.rows: list[tuple[Any, ...]] = []
        self.simulating, self.training_ranks = workflow.sides(ranks)
        self.rows_of = np.array(rows_computed(workflow, self.left.ranks), dtype=np.float64)
        self.samples_of = _shares(workflow.batch, self.right.ranks)

    def simulation(self, who: range) -> Generator[Event, Any, None]:
        """Make all batches, and wait where there is no room for one."""
        for number in range(self.workflow.batches):
            yield from self.make(who)
            since = self.env.now
            yield self.room.get(1)
            self.wait(who, ROOM, since)
            if number >= self.workflow.coupling.depth:
                self.messages(GOT_ROOM, number - self.workflow.coupling.depth, since)
            since = self.env.now
            yield from self.pause(who, "give a batch", self.left.between)
            self.messages(GAVE_BATCH, number, since)
            yield self.buffer.put(number)

    def training(self, who: range) -> Generator[Event, Any, None]:
        """Train on all batches, and wait, or train again, where there is none."""
        again = self.workflow.coupling.empty == "again"
        for number in range(self.workflow.batches):
            while again and number and not self.buffer.items:
                yield from self.train(who)
            since = self.env.now
            yield self.buffer.get()
            self.wait(who, SAMPLES, since)
            self.messages(GOT_BATCH, number, since)
            self.messages(GAVE_ROOM, number, self.env.now)
            yield self.room.put(1)
            yield from self.train(who)

    def in_turn(self, who: range) -> Generator[Event, Any, None]:
        """Make as many batches as the buffer holds, then train on them."""
        left = self.workflow.batches
        while left:
            many = min(self.workflow.coupling.depth, left)
            for _ in range(many):
                yield from self.make(who)
                yield from self.pause(who, "give a batch", self.left.between)
            for _ in range(many):
                yield from self.train(who)
            left -= many

    def make(self, who: range) -> Generator[Event, Any, None]:
        """Simulate until a batch has arrived."""
        compute = self.compute(self.left, self.rows_of)
        yield from self.work(
            who, compute, (("region", "simulate"),), "exchange rows", self.left.within
        )

    def train(self, who: range) -> Generator[Event, Any, None]:
        """Take a batch out and train on it."""
        yield from self.pause(who, "take a batch", self.right.between)
        compute = self.compute(self.right, self.samples_of)
        kinds = (("forward", "forward"), ("backward", "backward"), ("update", "update"))
        yield from self.work(who, compute, kinds, "wait for the exchange", self.right.within)

    def compute(self, side: Side, shares: Floats) -> Floats:
        """Return the s that each rank of a side computes for a batch."""
        spare = (side.compute - side.mean) / max(float(shares.max() - shares.mean()), 1e-12)
        fixed = side.compute - spare * float(shares.max())
        if shares.max() == shares.min():
            fixed, spare = side.compute, 0.0
        vary = np.maximum(self.rng.normal(1.0, self.costs.jitter, side.ranks), 0.0)
        return (fixed + spare * shares) * vary

    def work(
        self,
        who: range,
        compute: Floats,
        kinds: tuple[tuple[str, str], ...],
        wait: str,
        within: float,
    ) -> Generator[Event, Any, None]:
        """Compute on all ranks of a side; the slowest decides, messages among them come on top."""
        now = self.env.now
        end = now + float(compute.max()) + within
        for rank, seconds in zip(who, compute.tolist(), strict=True):
            edges = now + seconds * _PARTS[len(kinds)]
            for (kind, name), start, stop in zip(kinds, edges[:-1], edges[1:], strict=True):
                self.row(rank, kind, name, start, stop)
            self.row(rank, "wait", wait, edges[-1], end)
        yield self.env.timeout(end - now)

    def pause(self, who: range, name: str, seconds: float) -> Generator[Event, Any, None]:
        """Let all ranks of a side do something that is neither simulating nor training."""
        now = self.env.now
        yield self.env.timeout(seconds)
        self.wait(who, name, now)

    def wait(self, who: range, name: str, since: float) -> None:
        """Record that a side was idle until now."""
        for rank in who:
            self.row(rank, "wait", name, since, self.env.now)

    def messages(self, what: tuple[str, str, bool], number: int, since: float) -> None:
        """Record one end of the messages of a batch, or of the news that there is room, until now.

        On separate ranks only: where all do both, in turn, no side waits for the other.
        """
        kind, side, batch = what
        size = 2 * self.workflow.batch * self.workflow.simulation.field_bytes
        for place, giver in enumerate(self.simulating):
            for other, taker in enumerate(self.training_ranks):
                rank, peer = (giver, taker) if side == "simulation" else (taker, giver)
                pairs = len(self.simulating) * len(self.training_ranks)
                pair = place * len(self.training_ranks) + other
                match = 2 * (number * pairs + pair) + batch
                row = (
                    rank,
                    "communication",
                    kind,
                    "batch" if batch else "room",
                    since,
                    self.env.now,
                )
                self.rows.append((*row, size // pairs if batch else 0, peer, 0, match))

    def row(self, rank: int, kind: str, name: str, start: float, stop: float) -> None:
        """Record an event whose duration is above 0."""
        if stop > start:
            self.rows.append((rank, "compute", kind, name, float(start), float(stop)))


# What is sent and received between the sides: the kind of its row, by whom, and whether it is a batch.
GAVE_BATCH, GOT_BATCH = ("send", "simulation", True), ("receive", "training", True)
GAVE_ROOM, GOT_ROOM = ("send", "training", False), ("receive", "simulation", False)

# How a training step is drawn: forward a third, backward nearly two, and the update.
_PARTS = {1: np.array([0.0, 1.0]), 3: np.array([0.0, 0.33, 0.97, 1.0])}


def _shares(many: int, ranks: int) -> Floats:
    parts = [share(many, rank, ranks) for rank in range(ranks)]
    return np.array([part.stop - part.start for part in parts], dtype=np.float64)
