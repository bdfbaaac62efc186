"""Steps of a program, every rank a process and every message a flow.

A collective is a schedule that the ranks of a group execute on the links of the machine, so groups that exchange at
the same time contend, and in a halo exchange a rank waits for its neighbors only. Each stream beside the compute
stream is a process of its own for each rank. program_rounds.py is the same in rounds.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from simpy.events import Event

from lib_dlhpc import program
from lib_dlhpc.costs.platform import Platform
from lib_dlhpc.program.calls import FORWARD
from lib_dlhpc.program.intervals import halves, kind_of, message_name, pass_name, segments
from lib_dlhpc.schedules import Schedule, messages, within
from lib_dlhpc.schedules.rounds import stored
from lib_dlhpc.simulation.conditions import Conditions
from lib_dlhpc.simulation.events import Script, take_part
from lib_dlhpc.simulation.messages import Recorder
from lib_dlhpc.simulation.program_rounds import bubble
from lib_dlhpc.simulation.ranked import Schedules
from lib_dlhpc.simulation.simulation import Message, Process, Simulation
from lib_dlhpc.simulation.watchdog import Progress
from lib_dlhpc.timeline import Timeline, from_rows, join, mark_bubble

STORED = 64  # ranks of a group up to which the rounds of its schedules are stored
Row: TypeAlias = tuple[int, str, str, str, float, float, int]


def simulate_events(
    steps: Sequence[program.Program],
    on: Platform,
    conditions: Conditions,
    background: Sequence[Any] = (),
    recorded: int = 0,
    progress: Progress | None = None,
) -> Timeline:
    """Return the events of every rank on a platform; the first `recorded` messages are rows.

    The other arguments are those of program_rounds.simulate_rounds. Raises Cancelled, DeadlockError.
    """
    recorder, step = Recorder(recorded), steps[-1]
    sim = Simulation(on, conditions.speed, record=recorder if recorded else None)
    sim.background(background)
    shared = _Shared(step, sim)
    for rank in range(conditions.ranks):
        sim.start(_Rank(shared, rank).run(steps, conditions))
    sim.run(progress)
    if progress is not None:
        progress(float(sim.env.now), sim.delivered)
    factors = conditions.factor.reshape(-1, step.schedule.ranks, *step.shape)
    idle = sum(bubble(step, list(factor)) for factor in factors)
    waited = from_rows(shared.waits, on.ranks, "simulated")
    waited = mark_bubble(waited, np.asarray(idle), waited.where())
    rows = from_rows(shared.rows, on.ranks, "simulated")
    return join([rows, waited, recorder.timeline(on.ranks)]).sorted()


class _Shared:
    """What the ranks share: the program, messages, scripts of collectives, and the rows so far."""

    def __init__(self, step: program.Program, sim: Simulation) -> None:
        self.step, self.sim, self.calls = step, sim, program.calls(step.schedule)
        self.many = prod(step.shape)
        self.rows: list[Row] = []
        self.waits: list[Row] = []  # of which some is bubble
        self._messages: dict[tuple[int, ...], Message] = {}
        # A script, and how many ranks have not asked for it yet.
        self._scripts: dict[tuple[Any, ...], list[Any]] = {}
        self._turns: dict[tuple[Any, ...], int] = {}
        self._plans, self._placed = Schedules(step), dict[tuple[Any, ...], Schedule]()
        self._groups: dict[tuple[int, str], Members] = {}
        self._merged: dict[tuple[int, int], list[Any]] = {}
        self._met = 0
        self._all = Event(sim.env)

    def message(self, step: int, number: int, source: int, target: int) -> Message:
        """Return the message of a call, which one rank sends and the other receives."""
        key = (step, number, source)
        if key not in self._messages:
            before, chunk = self.calls[number].before
            maker = source if self.calls[number].phase == FORWARD else target
            size = self.chunk(before, chunk).bytes[self.variant(maker)]
            (self._messages[key],) = self.sim.messages(source, target, size)
            return self._messages[key]
        return self._messages.pop(key)

    def chunk(self, place: int, chunk: int) -> program.Chunk:
        """Return a chunk of a stage."""
        return self.step.stages[place][chunk]

    def variant(self, rank: int) -> int:
        """Return which variant of its stage a rank has."""
        _, variants, alike = self.step.shape
        return rank // alike % variants

    def merged(self, block: program.Block, variant: int) -> list[Any]:
        """Return a block with the work between two other instructions as one number, in s."""
        key = (id(block), variant)
        if key not in self._merged:
            runs, seconds = list[Any](), block.prices[variant].seconds
            for work, group in groupby(block.variants[variant].instructions, _is_work):
                members: list[Any] = list(group)
                total = (
                    sum(seconds[compute.phase][compute.layer] for compute in members)
                    if work
                    else 0.0
                )
                runs += ([total] if total else []) if work else members
            self._merged[key] = runs
        return self._merged[key]

    def group(self, rank: int, name: str) -> "Members":
        """Return the group of this name that a rank belongs to."""
        if (rank, name) not in self._groups:
            (place, here), group = divmod(rank, self.many), self.step.groups[name]
            number = int(group.group_of[here])
            ranks = tuple((place * self.many + group.rows[number]).tolist())
            members = Members((name, place, number), ranks)
            self._groups |= dict.fromkeys(((rank, name) for rank in ranks), members)
        return self._groups[rank, name]

    def collective(self, rank: int, what: program.Collective) -> Script:
        """Return the script of a collective of the rank's group."""
        group = self.group(rank, what.group)
        made = self._neighbors if what.pairs else self._planned
        return self._script(rank, group, what.stream, partial(made, group, what))

    def swap(self, rank: int, what: program.PairAllreduce) -> Script:
        """Return the script of the sum of a buffer of two stages."""
        here = rank % self.many
        ranks = tuple(place * self.many + here for place in what.places)
        two = Members((str(what.places), here, 0), ranks)
        return self._script(rank, two, what.name, partial(self._swap, ranks, what.bytes))

    def meet(self) -> Process:
        """Wait for all ranks."""
        self._met += 1
        if self._met == self.sim.platform.ranks:
            self._met, done, self._all = 0, self._all, Event(self.sim.env)
            done.succeed()
        else:
            yield self._all

    def _script(
        self, rank: int, group: "Members", name: str, made: Callable[[], tuple[Schedule, float]]
    ) -> Script:
        """Return what a group does next under this name, once to each: collectives of a stream come in order."""
        key = (group.key, name)
        turn = self._turns[rank, key] = self._turns.get((rank, key), -1) + 1
        if (key, turn) not in self._scripts:
            self._scripts[key, turn] = [Script(self.sim, *made()), len(group.ranks)]
        entry = self._scripts[key, turn]
        entry[1] -= 1
        if not entry[1]:
            del self._scripts[key, turn]
        return entry[0]

    def _planned(self, group: "Members", what: program.Collective) -> tuple[Schedule, float]:
        """Return the schedule of a collective for some of all ranks, and the bytes of an element."""
        schedule, element = self._plans.of(what)
        key, everyone = (group.key, id(schedule)), self.sim.platform.ranks
        if key not in self._placed:
            if group.ranks != tuple(range(everyone)):
                rounds = partial(
                    lambda of, ranks: within(of.rounds(), ranks), schedule, group.ranks
                )
                placed = replace(schedule, ranks=everyone, generate=rounds)
                self._placed[key] = stored(placed) if len(group.ranks) <= STORED else placed
            else:
                self._placed[key] = stored(schedule)
        return self._placed[key], element

    def _neighbors(self, group: "Members", what: program.Collective) -> tuple[Schedule, float]:
        """Return one round of messages between neighbors."""
        element = self.chunk(0, 0).last.prices[0].bytes(what._replace(elements=1.0))
        source, target, size = zip(*what.pairs, strict=True)
        ranks = np.array(group.ranks)
        count = np.rint(np.array(size) * element).astype(np.int64)
        swap = messages(ranks[list(source)], ranks[list(target)], 0, count, False)
        total = int(count.sum())
        return Schedule(what.goal, self.sim.platform.ranks, total, lambda: [swap]), 1.0

    def _swap(self, ranks: tuple[int, ...], size: float) -> tuple[Schedule, float]:
        swap = messages(np.array(ranks), np.array(ranks[::-1]), 0, round(size), True)
        return Schedule("swap", self.sim.platform.ranks, round(size), lambda: [swap]), 1.0


class Members(NamedTuple):
    """The ranks that take part in a collective."""

    key: tuple[str, int, int]  # by which the group is known: shorter than its ranks
    ranks: tuple[int, ...]


class _Rank:
    """A rank: it executes its calls, step after step."""

    def __init__(self, shared: _Shared, rank: int) -> None:
        self.shared, self.rank, self.sim = shared, rank, shared.sim
        self.many = shared.many
        self.place = rank // self.many
        self.variant = shared.variant(rank)
        self.prices = shared.chunk(self.place, 0).last.prices[self.variant]
        self.free: dict[str, Event] = {}  # what is last on each stream
        self.posted: dict[str, Event] = {}  # by key; the first pass of a chunk may wait for it
        self.flushed = False

    def run(self, steps: Sequence[program.Program], conditions: Conditions) -> Process:
        """Execute all steps, whose programs take turns."""
        mine = [
            (number, call)
            for number, call in enumerate(self.shared.calls)
            if call.place == self.place
        ]
        for step, slow in enumerate(conditions.factor[:, self.rank].tolist()):
            begin, self.flushed = self.sim.env.now, False
            conditions.started(step, begin, self.rank)
            for number, call in mine:
                if call.source >= 0:
                    yield from self._receive(step, call)
                if call.computes:
                    yield from self._pass(call, slow)
                if call.target >= 0:
                    peer = self._peer(call.target)
                    message = self.shared.message(step, number, self.rank, peer)
                    self.sim.post(message, message_name(call))
            for row in steps[step % len(steps)].end:
                what = row[self.place]
                if what is not None:
                    yield from self._after(what, slow)
            yield from self._save_and_wait(step, begin, conditions)

    def _save_and_wait(self, step: int, begin: float, conditions: Conditions) -> Process:
        """Write the checkpoint and wait for the next batch."""
        end, saving = self.sim.env.now, float(conditions.saving[step])
        if saving:
            yield self.sim.until(end + saving)
            self._row("checkpoint", "wait for the checkpoint", end)
            self._row("checkpoint", "write a checkpoint", end, "checkpoint")
        since, ready = map(float, conditions.coming(step, begin, self.rank))
        saved = self.sim.env.now
        if ready > saved:
            yield self.sim.until(ready)
            self._row("input", "wait for input", saved)
        if ready > since:
            self.shared.rows.append(
                (self.rank, "input", "input", "fetch the next batch", since, ready, 0)
            )

    def _peer(self, place: int) -> int:
        return self.rank + (place - self.place) * self.many

    def _receive(self, step: int, call: program.Call) -> Process:
        since, source = self.sim.env.now, self.shared.calls[call.source]
        peer, word = self._peer(source.place), message_name(source)
        message = self.shared.message(step, call.source, peer, self.rank)
        yield self.sim.exchange(self.rank, [], [message], f"receiving the {word}")
        self._wait(f"wait for {word}", since)

    def _pass(self, call: program.Call, slow: float) -> Process:
        """Execute a pass of a microbatch through a chunk, with the collectives inside."""
        chunk, since = self.shared.chunk(self.place, call.chunk), self.sim.env.now
        kind, name = kind_of(call), pass_name(self.shared.step, call)
        block = chunk.block(call.phase, call.once)
        waits: dict[str, float] = {}
        filled: list[float] = []
        worked = 0.0
        for what in self.shared.merged(block, self.variant):
            if isinstance(what, float):
                yield self.sim.until(self.sim.env.now + what * slow)
                worked += what * slow
            elif isinstance(what, program.Wait):
                begun, event = (
                    self.sim.env.now,
                    self.posted[what.key] if what.key else self.free.get(what.stream),
                )
                if event is not None and not event.processed:
                    yield event
                waits[what.label] = waits.get(what.label, 0.0) + self.sim.env.now - begun
            elif isinstance(what, program.Collective) and not what.stream:
                begun, size = self.sim.env.now, self.prices.bytes(what)
                yield from take_part(self.sim, self.rank, self.shared.collective(self.rank, what))
                word = self.shared.step.kinds[what.kind]
                self._row("communication", f"{word}: {name}", begun, "communication", size)
                waits[f"the {word}"] = waits.get(f"the {word}", 0.0) + self.sim.env.now - begun
            else:
                self.posted[what.key] = self._post(what)
                if isinstance(what, program.Collective) and what.layers:
                    filled.append(self.sim.env.now)
        at = since + worked
        alone = name == kind and not waits
        for half, start, end in halves(call, block, since, at, self.variant):
            named = pass_name(self.shared.step, half)
            for segment, begin, stop in segments(named, start, filled if alone else [], end):
                self._span(kind_of(half), segment, begin, stop)
        for label, seconds in waits.items():
            if seconds:
                self._span("wait", f"wait for {label}", at, at + seconds)
                at += seconds

    def _after(self, what: program.Instruction, slow: float) -> Process:
        """Execute an instruction of the end of the step."""
        since = self.sim.env.now
        if isinstance(what, program.Update):
            yield self.sim.until(since + what.seconds * slow)
            self._span("update", "update", since, self.sim.env.now)
        elif isinstance(what, program.Barrier):
            yield from self.shared.meet()
            self._idle("the others", since)
            self.flushed = True
        elif isinstance(what, program.PairAllreduce):
            yield from take_part(self.sim, self.rank, self.shared.swap(self.rank, what))
            self._idle(what.label, since)
        elif isinstance(what, program.Wait):
            event = self.free.get(what.stream)
            if event is not None and not event.processed:
                yield event
            self._idle(what.label, since)
        elif isinstance(what, program.Collective | program.Transfer):
            self._post(what)

    def _post(self, what: program.Collective | program.Transfer) -> Event:
        """Start an instruction once all before it on its stream are done; return what happens then."""
        before = self.free.get(what.stream)

        def process() -> Process:
            if before is not None and not before.processed:
                yield before
            since = self.sim.env.now
            if isinstance(what, program.Transfer):
                size, word = what.bytes, what.label or self.shared.step.kinds[what.kind]
                yield self.sim.until(since + what.seconds)
            else:
                size, word = self.prices.bytes(what), what.label or self._word(what)
                yield from take_part(self.sim, self.rank, self.shared.collective(self.rank, what))
            self._row("communication", word, since, "communication", size)

        self.free[what.stream] = done = self.sim.start(process())
        return done

    def _row(
        self, kind: str, name: str, since: float, stream: str = "compute", size: float = 0
    ) -> None:
        now = self.sim.env.now
        if now > since:
            self.shared.rows.append((self.rank, stream, kind, name, since, now, round(size)))

    def _word(self, what: program.Collective) -> str:
        if not what.layers:
            return self.shared.step.kinds[what.kind]
        return "weights" if what.goal == "allgather" else "gradients"

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


def _is_work(what: program.Instruction) -> bool:
    return isinstance(what, program.Compute)
