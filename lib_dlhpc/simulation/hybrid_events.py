"""Steps of a network that is split over ranks, every rank a process and every message a flow.

The programs are those of hybrid.py. An exchange is a schedule that the ranks of a group execute on the links
of the machine, so groups that exchange at the same time contend, and in a halo exchange
a rank waits for its neighbors only. What replicas exchange overlaps the work, in a process of its
own for each rank.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from simpy.events import Event

from lib_dlhpc.costs import compute, groups
from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.network import Network
from lib_dlhpc.costs.stage import extra_reductions, share_of_experts
from lib_dlhpc.costs.stored_activations import AT_ONCE
from lib_dlhpc.layout import alike_group, expert_group, group, parts, place
from lib_dlhpc.schedules import Schedule, messages, within
from lib_dlhpc.schedules.choice import plan
from lib_dlhpc.schedules.pipeline import Forward, Pipeline, Receive, Send
from lib_dlhpc.simulation.events import Script, take_part
from lib_dlhpc.simulation.hybrid import WORDS, exchange_word
from lib_dlhpc.simulation.platform import Platform
from lib_dlhpc.simulation.program import Communication, Program, program
from lib_dlhpc.simulation.simulation import Message, Process, Record, Simulation, Traffic
from lib_dlhpc.simulation.split import offloaded, update_moving
from lib_dlhpc.simulation.watchdog import Progress
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import AUTO

Row: TypeAlias = tuple[int, str, str, str, float, float, int]
Floats = NDArray[np.float64]


class Replay:
    """What the ranks share: the simulation, their programs, scripts of exchanges, and the rows so far."""

    def __init__(
        self, experiment: Experiment, sim: Simulation, pipeline: Pipeline, scale: float
    ) -> None:
        self.experiment, self.sim, self.pipeline, self.scale = experiment, sim, pipeline, scale
        ranks = range(sim.platform.ranks)
        self.held = [parts(experiment, rank) for rank in ranks]
        self.programs = [[program(experiment, part, scale) for part in held] for held in self.held]
        self.moving = [[offloaded(experiment, part)[0] for part in held] for held in self.held]
        self.rows: list[Row] = []
        self.waits: list[Row] = []  # those of the pipeline, some of which is bubble
        self._letters: dict[tuple[Any, ...], Message] = {}
        self._scripts: dict[tuple[Any, ...], tuple[Script, set[int]]] = {}
        self._turns: dict[tuple[Any, ...], int] = {}
        self._met = 0
        self._all = Event(sim.env)

    def letter(self, step: int, what: Send | Receive, source: int, target: int) -> Message:
        """Return the message that one rank sends and the other receives."""
        key = (step, what.what, what.microbatch, what.stage, source, target)
        if key not in self._letters:
            crossed = what.stage - (what.what == "gradient")
            chunk, at = divmod(crossed, self.pipeline.ranks)
            giver = source if what.what == "activation" else target
            assert place(self.experiment, giver).pipeline == at
            size = self.programs[giver][chunk].sends
            (self._letters[key],) = self.sim.messages(source, target, size)
        return self._letters[key]

    def run(
        self, rank: int, members: tuple[int, ...], name: str, of: Callable[[], Schedule]
    ) -> Process:
        """Take part in what `members` do next under this name."""
        key = (members, name)
        turn = self._turns[rank, key] = self._turns.get((rank, key), -1) + 1
        if (key, turn) not in self._scripts:
            self._scripts[key, turn] = Script(self.sim, of(), 1.0), set(members)
        script, missing = self._scripts[key, turn]
        yield from take_part(self.sim, rank, script)
        missing.remove(rank)
        if not missing:
            del self._scripts[key, turn]

    def talk(self, rank: int, talk: Communication) -> Process:
        """Take part in an exchange of a program."""
        if talk.group == "experts":
            members = expert_group(self.experiment, rank)
            size = len(members) * talk.bytes  # the blocks of all with all
            net = groups.expert_network(self.experiment)
            yield from self.collective(rank, members, "all_to_all", size, net, "experts")
            return
        members = group(self.experiment, rank, talk.group)
        if talk.way == "halo":
            yield from self.run(
                rank, members, f"halo {talk.pairs}", lambda: self._halo(members, talk)
            )
        else:
            net = groups.group_network(self.experiment, talk.group)
            goal = groups.GOALS[talk.way]
            yield from self.collective(rank, members, goal, talk.bytes, net, talk.way)

    def collective(
        self,
        rank: int,
        members: tuple[int, ...],
        goal: str,
        size: float,
        net: Network,
        what: str,
        name: str = AUTO,
    ) -> Process:
        """Take part in a collective on `size` bytes, by the algorithm that is named or chosen for it."""
        yield from self.run(
            rank,
            members,
            what,
            lambda: self._within(plan(goal, size, net, len(members), round(size), name), members),
        )

    def meet(self) -> Process:
        """Wait for all ranks."""
        self._met += 1
        if self._met == self.sim.platform.ranks:
            self._met, done, self._all = 0, self._all, Event(self.sim.env)
            done.succeed()
        else:
            yield self._all

    def _within(self, plan: Schedule, members: tuple[int, ...]) -> Schedule:
        """The same schedule for some of all ranks."""
        everyone = self.sim.platform.ranks
        return Schedule(
            plan.name, everyone, plan.elements, lambda: within(plan.rounds(), members), plan.goal
        )

    def _halo(self, members: tuple[int, ...], talk: Communication) -> Schedule:
        """One round in which all neighbors swap rows."""
        source, target, size = zip(*talk.pairs, strict=True)
        at = np.array(members)
        count = np.rint(np.array(size)).astype(np.int64)
        swap = messages(at[list(source)], at[list(target)], 0, count, False)
        return Schedule("halo", self.sim.platform.ranks, int(count.sum()), lambda: [swap])


def simulate_processes(
    experiment: Experiment,
    pipeline: Pipeline,
    on: Platform,
    scale: float,
    factor: Floats,
    fetch: Floats,
    saving: Floats,
    background: Sequence[Traffic] = (),
    record: Record | None = None,
    progress: Progress | None = None,
) -> tuple[list[Row], list[Row]]:
    """Return the rows of what all ranks do, and those of their waits in the pipeline.

    The arguments are those of hybrid.simulate_split. Raises Cancelled, DeadlockError.
    """
    sim = Simulation(on, record=record)
    sim.background(background)
    replay = Replay(experiment, sim, pipeline, scale)
    for rank in range(on.ranks):
        sim.start(_rank(replay, rank, factor[:, rank], fetch[:, rank], saving))
    sim.run(progress)
    if progress is not None:
        progress(float(sim.env.now), sim.delivered)
    return replay.rows, replay.waits


def _rank(replay: Replay, rank: int, factor: Floats, fetch: Floats, saving: Floats) -> Process:
    sim, experiment = replay.sim, replay.experiment
    device, optimizer = experiment.machine.device, experiment.strategy.optimizer
    own = place(experiment, rank)
    data = group(experiment, rank, "data")
    update = sum(compute.update_time(p.model, device, optimizer) for p in replay.held[rank])
    update *= replay.scale / (len(data) if experiment.strategy.zero else 1)

    def row(kind: str, name: str, since: float, stream: str = "compute", size: float = 0) -> None:
        if sim.env.now > since:
            replay.rows.append((rank, stream, kind, name, since, sim.env.now, round(size)))

    def wait(name: str, since: float) -> None:
        if sim.env.now > since:
            replay.waits.append((rank, "compute", "wait", name, since, sim.env.now, 0))

    for step, slow in enumerate(factor.tolist()):
        begin = fetched = sim.env.now
        wire = _Wire(replay, rank, data)
        for instruction in replay.pipeline.streams[own.pipeline]:
            since = sim.env.now
            if isinstance(instruction, Send | Receive):
                peer = group(experiment, rank, "pipeline")[instruction.peer]
                word = f"{instruction.what} {instruction.microbatch}"
                if isinstance(instruction, Send):
                    sim.post(replay.letter(step, instruction, rank, peer), word)
                else:
                    letter = replay.letter(step, instruction, peer, rank)
                    yield sim.exchange(rank, [], [letter], f"receiving the {word}")
                    wait(f"wait for {word}", since)
                continue
            ahead = isinstance(instruction, Forward)
            kind = "forward" if ahead else "backward"
            name = f"{kind} {instruction.microbatch}"
            name += f", chunk {instruction.chunk}" * (replay.pipeline.chunks > 1)
            held: Program = replay.programs[rank][instruction.chunk]
            items = held.forward if ahead else held.backward
            final = instruction.microbatch == _last(
                replay.pipeline, own.pipeline, instruction.chunk
            )
            wire.gather(instruction.chunk, ahead)
            wire.scatter(instruction.chunk, not ahead and (final or experiment.strategy.zero > 1))
            worked = 0.0
            for item in items:
                if isinstance(item, Communication):
                    met = sim.env.now
                    yield from replay.talk(rank, item)
                    row(
                        "communication",
                        f"{WORDS[item.group]}: {name}",
                        met,
                        "communication",
                        item.bytes,
                    )
                    continue
                if item.layer in wire.there:
                    yield wire.there[item.layer]
                if item.seconds:
                    yield sim.compute(rank, item.seconds * slow)
                    worked += item.seconds * slow
                wire.done(item.layer)
            if experiment.strategy.zero > 1 and not ahead:
                yield from wire.drain()
            begun = sim.env.now
            fetched = since + replay.moving[rank][instruction.chunk][not ahead]
            yield sim.until(fetched)
            behind = sim.env.now - begun
            replay.rows.append((rank, "compute", kind, name, since, since + worked, 0))
            if behind:
                end = sim.env.now
                name = "wait for what is offloaded"
                replay.rows.append((rank, "compute", "wait", name, end - behind, end, 0))
            if since + worked < sim.env.now - behind:
                named = f"wait for the {exchange_word(experiment)}"
                replay.rows.append((rank, "compute", "wait", named, since + worked, begun, 0))
        since = sim.env.now
        yield from wire.drain()
        yield from _tables(replay, rank)
        wait("wait for the exchange", since)
        since = sim.env.now
        yield from replay.meet()
        wait("wait for the others", since)
        since = sim.env.now
        yield sim.compute(rank, update * slow)
        row("update", "update", since)
        begun = sim.env.now
        # A layer's weights move as soon as its gradient is complete, during the last backward pass.
        yield sim.until(fetched + update_moving(experiment, replay.held[rank]))
        row("wait", "wait for what is offloaded", begun)
        since = sim.env.now
        if experiment.strategy.zero in (1, 2):
            for size in wire.units():
                yield from replay.collective(
                    rank, data, "allgather", size, wire.net, "weights", wire.named
                )
            row("wait", "wait for the weights", since)
        since = sim.env.now
        yield from replay.meet()
        row("wait", "wait for the others", since)
        since = sim.env.now
        yield sim.until(since + float(saving[step]))
        row("checkpoint", "wait for the checkpoint", since)
        row("checkpoint", "write a checkpoint", since, "checkpoint")
        since = sim.env.now
        yield sim.until(begin + float(fetch[step]))
        row("input", "wait for input", since)


def _tables(replay: Replay, rank: int) -> Process:
    """Swap the gradients of word tables that another stage has as well."""
    pipeline = group(replay.experiment, rank, "pipeline")
    size = compute.BYTES[replay.experiment.strategy.precision]
    for part in replay.held[rank]:
        for name, stages in part.shared.items():
            table = next(layer for layer in part.model.layers if layer.name == name)
            members = tuple(sorted({pipeline[stage % len(pipeline)] for stage in stages}))
            if len(members) > 1:
                swap = partial(_swap, replay, members, float(table.parameters * size))
                yield from replay.run(rank, members, f"table {name}", swap)


def _swap(replay: Replay, members: tuple[int, ...], size: float) -> Schedule:
    swap = messages(np.array(members), np.array(members[::-1]), 0, round(size), True)
    return Schedule("swap", replay.sim.platform.ranks, round(size), lambda: [swap])


class _Wire:
    """What one rank exchanges with the other replicas in a step, one thing after another, beside its work."""

    def __init__(self, replay: Replay, rank: int, data: tuple[int, ...]) -> None:
        self.replay, self.rank, self.data = replay, rank, data
        strategy = replay.experiment.strategy
        self.size = compute.BYTES[strategy.precision]
        self.zero, self.bucket = int(strategy.zero), float(strategy.bucket)
        self.goal = "reduce_scatter" if self.zero else "allreduce"
        self.named = strategy.allreduce
        self.net = groups.group_network(replay.experiment, "data")
        self.early = bool(replay.experiment.overlap)
        self.experts = 0.0
        self.there: dict[int, Event] = {}  # what happens when the weights of a layer are
        self._to_gather: Iterator[tuple[int, float]] = iter(())  # layers and their bytes
        self._completes: dict[int, list[float]] = {}  # bytes of the buckets that a layer completes
        self._summed: Sequence[tuple[str, float]] = ()
        self._free: Event | None = None
        self._number = 0

    def gather(self, chunk: int, ahead: bool) -> None:
        """Begin to gather the weights that a pass needs."""
        if self.zero < 3 or len(self.data) == 1:
            return
        layers = self.replay.held[self.rank][chunk].model.layers
        order = range(len(layers)) if ahead else reversed(range(len(layers)))
        sizes = ((layer, layers[layer].parameters * self.size) for layer in order)
        self.there, self._to_gather = {}, ((layer, size) for layer, size in sizes if size)
        for _ in range(AT_ONCE if self.early else 1):
            self._gather_next()

    def scatter(self, chunk: int, complete: bool) -> None:
        """Get ready to exchange the gradients of a pass if it completes them."""
        model = self.replay.held[self.rank][chunk].model
        self._completes, self._summed = {}, extra_reductions(model)
        if not complete or (len(self.data) == 1 and not self._summed):
            return
        if self.replay.experiment.strategy.experts > 1:
            self.experts = share_of_experts(model)
        cut = buckets(model, self.bucket, self.size)
        for size, layer in zip(cut.sizes, cut.last_layer, strict=True):
            if size:
                self._completes.setdefault(int(layer) if self.early else 0, []).append(float(size))

    def done(self, layer: int) -> None:
        """Let go of a layer's weights, so that others have room, and exchange the gradients it completes."""
        if layer in self.there:
            self._gather_next()
        for size in self._completes.pop(layer, ()):
            self._number += 1
            self._queue(self.goal, size, f"bucket {self._number}", self._summed)

    def _gather_next(self) -> None:
        layer, size = next(self._to_gather, (-1, 0.0))
        if size:
            self.there[layer] = self._queue("allgather", size, "weights")

    def units(self) -> Iterator[float]:
        """Yield the bytes of weights that are gathered at a time after the update."""
        for part in self.replay.held[self.rank]:
            sizes = buckets(part.model, self.bucket, self.size).sizes
            yield from sizes[sizes > 0].tolist()

    def drain(self) -> Process:
        """Wait until all is exchanged."""
        if self._free is not None and not self._free.processed:
            yield self._free

    def _queue(
        self, goal: str, size: float, word: str, summed: Sequence[tuple[str, float]] = ()
    ) -> Event:
        """Exchange once all before is done; return what happens then.

        summed: groups that sum a share of it beside data.
        """
        done, before = Event(self.replay.sim.env), self._free

        def process() -> Process:
            sim = self.replay.sim
            if before is not None and not before.processed:
                yield before
            since = sim.env.now
            take_part, experiment = self.replay.collective, self.replay.experiment
            own = self.experts * size if goal == self.goal else 0.0
            yield from take_part(
                self.rank, self.data, goal, size - own, self.net, f"data {goal}", self.named
            )
            if own:
                alike = alike_group(experiment, self.rank)
                net = groups.alike_network(experiment)
                yield from take_part(self.rank, alike, goal, own, net, "alike", self.named)
            for kind, share in summed:
                members, net = (
                    group(experiment, self.rank, kind),
                    groups.group_network(experiment, kind),
                )
                yield from take_part(
                    self.rank, members, "allreduce", share * size, net, f"sum {kind}"
                )
            ends = (since, sim.env.now, round(size))
            self.replay.rows.append((self.rank, "communication", "communication", word, *ends))
            done.succeed()

        self.replay.sim.start(process())
        self._free = done
        return done


def _last(pipeline: Pipeline, place: int, chunk: int) -> int:
    """Return the microbatch whose backward pass through a chunk is the last."""
    return next(
        step.microbatch
        for step in reversed(pipeline.streams[place])
        if not isinstance(step, Send | Receive | Forward) and step.chunk == chunk
    )
