"""Simulation of a program whose ranks exchange messages with two neighbors, its calls as a recorder records them.

Ranks stand in a ring. In each step a rank reads, works, sends to both neighbors without blocking, receives from the
one before it and then from the one behind it, works again, and meets all others in an allreduce of 8 B by
recursive doubling. Sends never wait; their bytes share the links of the machine with those of others.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs.platform import NO_LINK, Platform, platform
from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules import schedule
from lib_dlhpc.simulation.events import Script, take_part
from lib_dlhpc.simulation.simulation import Message, Process, Simulation
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.timeline import Timeline, from_rows

LEAST_RANKS = 3  # with fewer, both neighbors are the same
ELEMENT = 8  # B of the allreduce


@dataclass(frozen=True, eq=False)
class Program:
    """What all ranks do: s of each step and rank, (steps, ranks) or what broadcasts to it; B of a message."""

    before: Floats  # work before the messages
    after: Floats  # work behind them
    reading: Floats
    size: float

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(self.before)


def program(
    steps: int, ranks: int, before: ArrayLike, after: ArrayLike, reading: ArrayLike, size: float
) -> Program:
    """Return a Program of N steps and ranks. Raises SpecError for too few of them and for times below 0."""
    if ranks < LEAST_RANKS or steps < 1:
        raise SpecError(
            f"{ranks} ranks, {steps} steps: expected at least {LEAST_RANKS} ranks and 1 step."
        )
    columns = {}
    for name, given in (("before", before), ("after", after), ("reading", reading)):
        column = np.broadcast_to(np.asarray(given, np.float64), (steps, ranks))
        if not (column >= 0).all():
            raise SpecError(f"{name} = {column.min():g}: expected seconds, 0 or more.")
        columns[name] = column
    return Program(**columns, size=float(size))


def ring(machine: Machine, ranks: int, slow: int = -1, share: float = 1.0) -> Platform:
    """Return nodes of one rank each, joined in a ring of the machine's links between nodes.

    A node has a NIC towards each neighbor: messages to both do not share one.
    slow: the rank whose link to the one behind it has that share of a link's bandwidth, both ways; -1: none.
    Raises SpecError for a share that is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise SpecError(f"share = {share:g}: expected a number above 0, at most 1.")
    on = replace(platform(replace(machine, topology="torus"), ranks, 1), columns=ranks)
    capacity = on.capacity.copy()
    capacity[2 * ranks : 4 * ranks] *= 2  # NICs, out and in
    if slow >= 0:
        for ends in ((slow, (slow + 1) % ranks), ((slow + 1) % ranks, slow)):
            links, _ = on.routes([ends[0]], [ends[1]])
            inner = [link for link in links[0].tolist() if link != NO_LINK][1:-1]
            capacity[inner] *= share
    return replace(on, capacity=capacity)


def simulate_neighbors(what: Program, on: Platform, barrier: bool = False) -> Timeline:
    """Return the Timeline of all ranks.

    barrier: whether all leave a barrier at 0 s, so that the trace begins there and not with the first call.
    Rows: calls, with who sent what to whom; input on the streams compute and input. Work is what lies between.
    """
    ranks = what.before.shape[1]
    if ranks != on.ranks:
        raise SpecError(f"{ranks} ranks in the program, {on.ranks} on the platform.")
    sim = Simulation(on)
    running = _Program(sim, what)
    if barrier:
        running.begin()
    for rank in range(ranks):
        sim.start(running.rank(rank))
    sim.run()
    return from_rows(running.rows, ranks, "simulated").sorted()


class _Program:
    """The messages of all steps, and the rows of what has happened."""

    def __init__(self, sim: Simulation, what: Program) -> None:
        self.sim, self.what, self.rows = sim, what, list[tuple[Any, ...]]()
        ranks = sim.platform.ranks
        every = np.arange(ranks)
        self.messages: list[dict[tuple[int, int], Message]] = []
        for _ in range(what.steps):
            made = [
                *sim.messages(every, (every + 1) % ranks, what.size),
                *sim.messages(every, (every - 1) % ranks, what.size),
            ]
            self.messages.append({(m.source, m.target): m for m in made})
        # Numbers that no message has.
        self.first = 1 + max(m.tag for messages in self.messages for m in messages.values())
        plan = schedule("recursive_doubling", ranks, ranks)
        self.met = [Script(sim, plan, ELEMENT / ranks) for _ in range(what.steps)]

    def begin(self) -> None:
        """Record that all have met at 0 s."""
        for rank in range(self.sim.platform.ranks):
            row = (rank, "communication", "collective", "MPI_Barrier", 0.0, 0.0)
            self.rows.append((*row, 0, -1, 0, self.first + self.what.steps))

    def rank(self, rank: int) -> Process:
        """What a rank does, from its first step to its last."""
        sim, ranks = self.sim, self.sim.platform.ranks
        sides = ((rank + 1) % ranks, (rank - 1) % ranks)
        for step, messages in enumerate(self.messages):
            since = sim.env.now
            yield sim.until(since + self.what.reading[step, rank])
            if sim.env.now > since:
                for stream in ("compute", "input"):
                    self.rows.append((rank, stream, "input", "read", since, sim.env.now))
            yield sim.until(sim.env.now + self.what.before[step, rank])
            for peer in sides:
                self.call(rank, "send", "MPI_Isend", sim.env.now, messages[rank, peer], peer)
                sim.post(messages[rank, peer], "MPI_Isend")
            for peer in reversed(sides):
                since = sim.env.now
                yield sim.exchange(rank, [], [messages[peer, rank]], "MPI_Recv")
                self.call(rank, "receive", "MPI_Recv", since, messages[peer, rank], peer)
            yield sim.until(sim.env.now + self.what.after[step, rank])
            since = sim.env.now
            yield from take_part(sim, rank, self.met[step])
            row = (rank, "communication", "collective", "MPI_Allreduce", since, sim.env.now)
            self.rows.append((*row, ELEMENT, -1, 0, self.first + step))

    def call(
        self, rank: int, kind: str, name: str, since: float, message: Message, peer: int
    ) -> None:
        """Record a call that has ended now."""
        row = (rank, "communication", kind, name, since, self.sim.env.now)
        self.rows.append((*row, int(message.bytes), peer, 0, message.tag))
