"""A schedule simulated by processes, message by message, on links shared max-min fairly.

A rank begins a round when it has finished the one before. It sends its messages of the round in order,
one after another, each when its receiver has reached that round too. It finishes when these are sent,
those for it have arrived, and what has to be combined is combined: gamma a byte, more on a slow rank.
In a round of a switch (schedules/in_network.py) it sends all its messages at once and continues when those for it
have arrived; the switch combines.
Ranks without a message in a round continue.

With every link to itself a schedule takes what its closed form says. What more it takes here is
contention, or ranks out of step.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lib_dlhpc.costs.platform import platform
from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules.rounds import Round, Schedule, as_sent
from lib_dlhpc.simulation import uncontended
from lib_dlhpc.simulation.merging import merged
from lib_dlhpc.simulation.simulation import Process, Record, Simulation, Traffic
from lib_dlhpc.simulation.watchdog import Progress
from lib_dlhpc.spec.machine import Machine


def finish_times(
    schedule: Schedule,
    machine: Machine,
    nodes: int,
    devices_per_node: int,
    element_bytes: float = 4,
    arrival: ArrayLike = 0.0,
    background: Sequence[Traffic] = (),
    **options: Any,
) -> NDArray[np.float64]:
    """Return when each rank finishes the schedule, in s, shape (ranks,).

    element_bytes: B an element. arrival: s at which each rank starts, (ranks,) or one for all.
    background: others' traffic on the same links. options: see `simulate_schedules`.
    """
    arrivals = np.asarray(arrival, dtype=np.float64)[None]
    sizes = (machine, nodes, devices_per_node, element_bytes)
    return simulate_schedules([schedule], *sizes, arrivals, background, **options)[0]


def simulate_schedules(
    schedules: Sequence[Schedule],
    machine: Machine,
    nodes: int,
    devices_per_node: int,
    element_bytes: float = 4,
    arrivals: ArrayLike = 0.0,
    background: Sequence[Traffic] = (),
    *,
    speed: ArrayLike = 1.0,
    sharing: bool = True,
    eager: float = 0.0,
    failures: Mapping[int, float] | None = None,
    progress: Progress | None = None,
    record: Record | None = None,
) -> NDArray[np.float64]:
    """Return when each rank finishes each of the schedules, in s, shape (schedules, ranks).

    One schedule after another, as gradient buckets are: a rank joins the next when it has finished
    the last, and not before its arrival, (schedules, ranks). Ranks need not be in the same schedule at
    the same time. Where messages never meet on a link, those of a round are simulated at once, to the same
    bit (uncontended.py). speed, sharing, eager, record: see Simulation. failures: s at which a rank stops, between
    rounds. Raises SpecError if the schedules are not for nodes * devices_per_node ranks, DeadlockError
    if ranks wait for one that has stopped, Cancelled if `progress` returns False.
    """
    on = platform(machine, nodes, devices_per_node)
    for schedule in schedules:
        if schedule.ranks != on.ranks:
            raise SpecError(
                f"{nodes} nodes x {devices_per_node} devices: {on.ranks} ranks, but the schedule"
                f" {schedule.name} is for {schedule.ranks}."
            )
    sim = Simulation(on, speed, sharing, eager, record)
    if not (background or failures or progress or record):
        sizes = (element_bytes, arrivals, sim.speed, sharing, eager)
        if (times := uncontended.finish_times(on, schedules, *sizes)) is not None:
            return times
    sim.background(background)
    ends = start_schedules(sim, schedules, element_bytes, arrivals, failures)
    sim.run(progress)
    return ends


def start_schedules(
    sim: Simulation,
    schedules: Sequence[Schedule],
    element_bytes: float = 4,
    arrivals: ArrayLike = 0.0,
    failures: Mapping[int, float] | None = None,
) -> NDArray[np.float64]:
    """Start all ranks of a simulation; return the array that `sim.run` fills with times, as in `simulate_schedules`."""
    ranks = sim.platform.ranks
    shape = (len(schedules), ranks)
    starts = np.broadcast_to(np.asarray(arrivals, dtype=np.float64), shape).tolist()
    ends = np.full(shape, inf)  # a rank that fails never ends
    scripts = [Script(sim, schedule, element_bytes) for schedule in schedules]
    stop = failures or {}
    for rank in range(ranks):
        of_rank = [start[rank] for start in starts]
        sim.start(_rank(sim, rank, scripts, of_rank, ends, stop.get(rank, inf)))
    return ends


def _rank(
    sim: Simulation,
    rank: int,
    scripts: Sequence["Script"],
    starts: Sequence[float],
    ends: NDArray[np.float64],
    stop: float,
) -> Process:
    """What a rank does, from its arrival to its end."""
    for number, (script, start) in enumerate(zip(scripts, starts, strict=True)):
        if start > sim.env.now:
            yield sim.until(start)
        yield from take_part(sim, rank, script, stop)
        if rank in sim.stopped:
            return
        ends[number, rank] = sim.env.now


def take_part(sim: Simulation, rank: int, script: "Script", stop: float = inf) -> Process:
    """What a rank does in a schedule. It stops for good before the first round that begins at `stop` or later."""
    for part in script.rounds_of(rank):
        if sim.env.now >= stop:
            sim.stopped.append(rank)
            return
        if part.merged:
            yield from _pass_the_switch(sim, rank, part)
            continue
        yield sim.exchange(rank, part.sends[rank], part.receives[rank], part.number)
        reduced = part.reduced[rank]
        if reduced:
            yield sim.compute(rank, reduced * sim.platform.gamma)


def _pass_the_switch(sim: Simulation, rank: int, part: "_Part") -> Process:
    since, sends = sim.env.now, part.sends[rank]
    for message in sends:
        sim.post(message, part.number)
    if part.receives[rank]:
        yield sim.exchange(rank, [], part.receives[rank], part.number)
    yield sim.until(since + max((message.latency for message in sends), default=0.0))


class _ByRank:
    """What all calls of a round have in common: its messages, by number, and what each rank does with them."""

    def __init__(self, sim: Simulation, part: Round, element_bytes: float) -> None:
        self.merged = part.switch != ""
        self.sends: dict[int, list[int]] = {}
        self.receives: dict[int, list[int]] = {}
        self.reduced: dict[int, float] = {}  # B that a rank combines
        size = part.count * float(element_bytes)
        reduced = (size * part.reduce).tolist()
        sent = sim.messages(part.source, part.target, size)
        self.messages = merged(part, sent, sim.platform) if part.switch else sent
        for number, (message, each) in enumerate(zip(self.messages, reduced, strict=True)):
            for side in (message.source, message.target):
                if side not in self.reduced:
                    self.sends[side], self.receives[side], self.reduced[side] = [], [], 0.0
            self.sends[message.source].append(number)
            self.receives[message.target].append(number)
            self.reduced[message.target] += each


class _Part:
    """A round of one call, sorted by rank."""

    def __init__(self, sim: Simulation, known: _ByRank, number: int) -> None:
        self.number, self.readers, self.merged = number, sim.platform.ranks, known.merged
        sent = sim.anew(known.messages)
        self.sends = {rank: [sent[each] for each in some] for rank, some in known.sends.items()}
        self.receives = {
            rank: [sent[each] for each in some] for rank, some in known.receives.items()
        }
        self.reduced = known.reduced


class Script:
    """The rounds of a schedule, each prepared for the first rank that reaches it and cached until the last."""

    def __init__(self, sim: Simulation, schedule: Schedule, element_bytes: float) -> None:
        self.sim, self.schedule, self.element_bytes = sim, schedule, element_bytes
        self.coming = enumerate(schedule.rounds())
        self.parts: dict[int, _Part] = {}

    def rounds_of(self, rank: int) -> Iterator[_Part]:
        """Yield the rounds in which `rank` has a part."""
        number = 0
        while True:
            if number not in self.parts:
                coming = next(self.coming, None)
                if coming is None:
                    return
                self.parts[number] = self._prepared(*coming)
            part = self.parts[number]
            if rank in part.reduced:
                yield part
            part.readers -= 1
            if not part.readers:
                del self.parts[number]
            number += 1

    def _prepared(self, number: int, part: Round) -> _Part:
        known = self.sim.rounds.setdefault(part, {})
        if self.element_bytes not in known:
            self._check(number, part)
            known[self.element_bytes] = _ByRank(self.sim, as_sent(part), self.element_bytes)
        return _Part(self.sim, known[self.element_bytes], number)

    def _check(self, number: int, part: Round) -> None:
        sides = np.concatenate([part.source, part.target])
        wrong = (sides < 0) | (sides >= self.schedule.ranks)
        if wrong.any():
            raise SpecError(
                f"{self.schedule.name}, round {number}: no rank {sides[wrong][0]};"
                f" there are 0 to {self.schedule.ranks - 1}."
            )
