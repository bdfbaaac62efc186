"""Steps of a program, every rank a process and every message a flow.

A collective is a schedule that the ranks of a group execute on the links of the machine, so groups that exchange at
the same time contend, and in a halo exchange a rank waits for its neighbors only. Each stream beside the compute
stream is a process of its own for each rank. program_rounds.py is the same in rounds.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from simpy.events import Event

from lib_dlhpc.program import (
    Call,
    Chunk,
    Collective,
    Compute,
    Instruction,
    Meet,
    Move,
    Program,
    Swap,
    Update,
    Wait,
    calls,
)
from lib_dlhpc.program.intervals import message_name
from lib_dlhpc.schedules import Schedule, messages, within
from lib_dlhpc.schedules.choice import plan
from lib_dlhpc.schedules.rounds import stored
from lib_dlhpc.simulation.events import Script, take_part
from lib_dlhpc.simulation.messages import Recorder
from lib_dlhpc.simulation.platform import Platform
from lib_dlhpc.simulation.program_rounds import bubble
from lib_dlhpc.simulation.simulation import Message, Process, Simulation
from lib_dlhpc.simulation.watchdog import Progress
from lib_dlhpc.timeline import Timeline, from_rows, join, mark_bubble

Floats = NDArray[np.float64]
STORED = 64  # ranks of a group up to which the rounds of its schedules are stored
Row: TypeAlias = tuple[int, str, str, str, float, float, int]


def simulate_events(
    step: Program,
    on: Platform,
    factor: Floats,
    fetch: Floats,
    saving: Floats,
    background: Sequence[Any] = (),
    recorded: int = 0,
    progress: Progress | None = None,
) -> Timeline:
    """Return the events of every rank on a platform; the first `recorded` messages are rows.

    The other arguments are those of program_rounds.simulate_rounds. Raises Cancelled, DeadlockError.
    """
    recorder = Recorder(recorded)
    sim = Simulation(on, record=recorder if recorded else None)
    sim.background(background)
    shared = _Shared(step, sim)
    for rank in range(on.ranks):
        sim.start(_Rank(shared, rank).run(factor[:, rank], fetch[:, rank], saving))
    sim.run(progress)
    if progress is not None:
        progress(float(sim.env.now), sim.delivered)
    size = (step.schedule.ranks, *step.shape)
    idle = sum(bubble(step, list(slow.reshape(size))) for slow in factor)
    waited = from_rows(shared.waits, on.ranks, "simulated")
    waited = mark_bubble(waited, np.asarray(idle), waited.where())
    rows = from_rows(shared.rows, on.ranks, "simulated")
    return join([rows, waited, recorder.timeline(on.ranks)]).sorted()


class _Shared:
    """What the ranks share: the program, messages, scripts of collectives, and the rows so far."""

    def __init__(self, step: Program, sim: Simulation) -> None:
        self.step, self.sim, self.calls = step, sim, calls(step.schedule)
        self.many = prod(step.shape)
        self.rows: list[Row] = []
        self.waits: list[Row] = []  # of which some is bubble
        self._messages: dict[tuple[int, ...], Message] = {}
        self._scripts: dict[tuple[Any, ...], tuple[Script, set[int]]] = {}
        self._turns: dict[tuple[Any, ...], int] = {}
        self._members: dict[tuple[int, str], tuple[int, ...]] = {}
        self._plans: dict[tuple[Any, ...], Schedule] = {}
        self._met = 0
        self._all = Event(sim.env)

    def message(self, step: int, number: int, source: int, target: int) -> Message:
        """Return the message of a call, which one rank sends and the other receives."""
        key = (step, number, source)
        if key not in self._messages:
            before, chunk = self.calls[number].before
            maker = target if self.calls[number].backward else source
            size = self.chunk(before, chunk).bytes[self.variant(maker)]
            (self._messages[key],) = self.sim.messages(source, target, size)
            return self._messages[key]
        return self._messages.pop(key)

    def chunk(self, place: int, chunk: int) -> Chunk:
        """Return a chunk of a stage."""
        return self.step.stages[place][chunk]

    def variant(self, rank: int) -> int:
        """Return which variant of its stage a rank has."""
        _, variants, alike = self.step.shape
        return rank // alike % variants

    def members(self, rank: int, name: str) -> tuple[int, ...]:
        """Return the ranks of the group of this name that a rank belongs to."""
        if (rank, name) not in self._members:
            (place, here), group = divmod(rank, self.many), self.step.groups[name]
            ranks = place * self.many + group.rows[group.group_of[here]]
            self._members[rank, name] = tuple(ranks.tolist())
        return self._members[rank, name]

    def collective(self, rank: int, what: Collective, size: float) -> Process:
        """Take part in a collective of the rank's group."""
        members = self.members(rank, what.group)
        if what.goal == "halo":
            made = partial(self._halo, members, what)
        else:
            size *= len(members) if what.goal == "all_to_all" else 1
            made = partial(self._planned, members, what, size)
        yield from self._take_part(rank, members, what.stream, made)

    def swap(self, rank: int, what: Swap, size: float) -> Process:
        """Take part in the sum of a buffer of two stages."""
        members = tuple(place * self.many + rank % self.many for place in what.places)
        yield from self._take_part(rank, members, what.name, partial(self._swap, members, size))

    def meet(self) -> Process:
        """Wait for all ranks."""
        self._met += 1
        if self._met == self.sim.platform.ranks:
            self._met, done, self._all = 0, self._all, Event(self.sim.env)
            done.succeed()
        else:
            yield self._all

    def _take_part(
        self, rank: int, members: tuple[int, ...], name: str, made: Callable[[], Schedule]
    ) -> Process:
        """Take part in what `members` do next under this name: collectives of a stream come in order."""
        key = (members, name)
        turn = self._turns[rank, key] = self._turns.get((rank, key), -1) + 1
        if (key, turn) not in self._scripts:
            self._scripts[key, turn] = Script(self.sim, made(), 1.0), set(members)
        script, missing = self._scripts[key, turn]
        yield from take_part(self.sim, rank, script)
        missing.remove(rank)
        if not missing:
            del self._scripts[key, turn]

    def _planned(self, members: tuple[int, ...], what: Collective, size: float) -> Schedule:
        """Return the schedule of a collective for some of all ranks; equal ones are made once."""
        key = (members, what.goal, size, what.algorithm)
        if key not in self._plans:
            net = self.step.groups[what.group].network
            found = plan(what.goal, size, net, len(members), round(size), what.algorithm)
            placed = Schedule(
                found.name,
                self.sim.platform.ranks,
                found.elements,
                lambda: within(found.rounds(), members),
                found.goal,
            )
            self._plans[key] = stored(placed) if len(members) <= STORED else placed
        return self._plans[key]

    def _halo(self, members: tuple[int, ...], what: Collective) -> Schedule:
        """Return one round in which all neighbors swap rows."""
        element = self.chunk(0, 0).last.prices[0].bytes(what._replace(elements=1.0))
        source, target, size = zip(*what.pairs, strict=True)
        at = np.array(members)
        count = np.rint(np.array(size) * element).astype(np.int64)
        swap = messages(at[list(source)], at[list(target)], 0, count, False)
        return Schedule("halo", self.sim.platform.ranks, int(count.sum()), lambda: [swap])

    def _swap(self, members: tuple[int, ...], size: float) -> Schedule:
        swap = messages(np.array(members), np.array(members[::-1]), 0, round(size), True)
        return Schedule("swap", self.sim.platform.ranks, round(size), lambda: [swap])


class _Rank:
    """A rank: it executes its calls, step after step."""

    def __init__(self, shared: _Shared, rank: int) -> None:
        self.shared, self.rank, self.sim = shared, rank, shared.sim
        self.many = shared.many
        self.place = rank // self.many
        self.variant = shared.variant(rank)
        self.prices = shared.chunk(self.place, 0).last.prices[self.variant]
        self.free: dict[str, Event] = {}  # what is last on each stream
        self.flushed = False
        self._merged: dict[int, list[Any]] = {}

    def run(self, factor: Floats, fetch: Floats, saving: Floats) -> Process:
        """Execute a step for each factor of the compute time."""
        mine = [
            (number, call)
            for number, call in enumerate(self.shared.calls)
            if call.place == self.place
        ]
        steps = zip(factor.tolist(), fetch.tolist(), saving.tolist(), strict=True)
        for step, (slow, late, saved) in enumerate(steps):
            begin, self.flushed = self.sim.env.now, False
            for number, call in mine:
                if call.source >= 0:
                    yield from self._receive(step, call)
                yield from self._pass(call, slow)
                if call.target >= 0:
                    peer = self._peer(call.target)
                    message = self.shared.message(step, number, self.rank, peer)
                    self.sim.post(message, message_name(call))
            for row in self.shared.step.end:
                what = row[self.place]
                if what is not None:
                    yield from self._after(what, slow)
            since = self.sim.env.now
            yield self.sim.until(since + saved)
            self._row("checkpoint", "wait for the checkpoint", since)
            self._row("checkpoint", "write a checkpoint", since, "checkpoint")
            since = self.sim.env.now
            yield self.sim.until(begin + late)
            self._row("input", "wait for input", since)

    def _peer(self, place: int) -> int:
        return self.rank + (place - self.place) * self.many

    def _receive(self, step: int, call: Call) -> Process:
        since, source = self.sim.env.now, self.shared.calls[call.source]
        peer, word = self._peer(source.place), message_name(source)
        message = self.shared.message(step, call.source, peer, self.rank)
        yield self.sim.exchange(self.rank, [], [message], f"receiving the {word}")
        self._wait(f"wait for {word}", since)

    def _pass(self, call: Call, slow: float) -> Process:
        """Compute a microbatch through a chunk, forward or backward, with the collectives inside."""
        chunk, since = self.shared.chunk(self.place, call.chunk), self.sim.env.now
        kind = "backward" if call.backward else "forward"
        name = f"{kind} {call.microbatch}"
        if self.shared.step.schedule.chunks > 1:
            name += f", chunk {call.chunk}"
        block = chunk.block(call.backward, call.last)
        posted: dict[str, Event] = {}
        waits: dict[str, float] = {}
        worked = 0.0
        for what in self._instructions(block):
            if isinstance(what, float):
                yield self.sim.compute(self.rank, what * slow)
                worked += what * slow
            elif isinstance(what, Wait):
                begun, event = (
                    self.sim.env.now,
                    posted[what.key] if what.key else self.free.get(what.stream),
                )
                if event is not None and not event.processed:
                    yield event
                waits[what.label] = waits.get(what.label, 0.0) + self.sim.env.now - begun
            elif isinstance(what, Collective) and not what.stream:
                begun, size = self.sim.env.now, self.prices.bytes(what)
                yield from self.shared.collective(self.rank, what, size)
                word = self.shared.step.kinds[what.kind]
                self._row("communication", f"{word}: {name}", begun, "communication", size)
                waits[f"the {word}"] = waits.get(f"the {word}", 0.0) + self.sim.env.now - begun
            else:
                posted[what.key] = self._post(what)
        self._span(kind, name, since, since + worked)
        at = since + worked
        for label, seconds in waits.items():
            if seconds:
                self._span("wait", f"wait for {label}", at, at + seconds)
                at += seconds

    def _instructions(self, block: Any) -> list[Any]:
        """Return a block with the work between two other instructions as one number, in s."""
        if id(block) not in self._merged:
            found: list[Any] = []
            prices = block.prices[self.variant]
            for work, each in groupby(block.variants[self.variant].instructions, _is_work):
                if work:
                    seconds = sum(prices.seconds[one.phase][one.layer] for one in each)
                    found += [seconds] if seconds else []
                else:
                    found += each
            self._merged[id(block)] = found
        return self._merged[id(block)]

    def _after(self, what: Instruction, slow: float) -> Process:
        """Execute an instruction of the end of the step."""
        since = self.sim.env.now
        if isinstance(what, Update):
            yield self.sim.compute(self.rank, what.seconds * slow)
            self._row("update", "update", since)
        elif isinstance(what, Meet):
            yield from self.shared.meet()
            self._idle("the others", since)
            self.flushed = True
        elif isinstance(what, Swap):
            yield from self.shared.swap(self.rank, what, what.bytes)
            self._idle(what.label, since)
        elif isinstance(what, Wait):
            event = self.free.get(what.stream)
            if event is not None and not event.processed:
                yield event
            self._idle(what.label, since)
        elif isinstance(what, Collective | Move):
            self._post(what)

    def _post(self, what: Collective | Move) -> Event:
        """Start an instruction once all before it on its stream are done; return what happens then."""
        done, before = Event(self.sim.env), self.free.get(what.stream)

        def process() -> Iterator[Event]:
            if before is not None and not before.processed:
                yield before
            since = self.sim.env.now
            if isinstance(what, Move):
                size, word = what.bytes, self.shared.step.kinds[what.kind]
                yield self.sim.until(since + what.seconds)
            else:
                size, word = self.prices.bytes(what), what.label or _word(what)
                yield from self.shared.collective(self.rank, what, size)
            self._row("communication", word, since, "communication", size)
            done.succeed()

        self.sim.start(process())  # type: ignore[arg-type]
        self.free[what.stream] = done
        return done

    def _row(
        self, kind: str, name: str, since: float, stream: str = "compute", size: float = 0
    ) -> None:
        now = self.sim.env.now
        if now > since:
            self.shared.rows.append((self.rank, stream, kind, name, since, now, round(size)))

    def _span(self, kind: str, name: str, start: float, stop: float) -> None:
        self.shared.rows.append((self.rank, "compute", kind, name, start, stop, 0))

    def _idle(self, label: str, since: float) -> None:
        """Add a wait after the passes: some of it may be bubble until all ranks have met."""
        if self.flushed:
            self._row("wait", f"wait for {label}", since)
        else:
            self._wait(f"wait for {label}", since)

    def _wait(self, name: str, since: float) -> None:
        """Add a wait of the pipeline, some of which is bubble."""
        if self.sim.env.now > since:
            row: Row = (self.rank, "compute", "wait", name, since, self.sim.env.now, 0)
            self.shared.waits.append(row)


def _is_work(what: Instruction) -> bool:
    return isinstance(what, Compute)


def _word(what: Collective) -> str:
    return "weights" if what.goal == "allgather" else "gradients"
