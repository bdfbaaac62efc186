"""Steps of a network that is split over ranks, every rank a process and every message a flow.

The programs are those of hybrid.py. An exchange is a schedule that the ranks of a group execute on the links
of the machine, so groups that exchange at the same time contend, and in a halo exchange
a rank waits for its neighbors only. What replicas exchange overlaps the work, in a process of its
own for each rank (hybrid_data_stream.py).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import compute
from lib_dlhpc.layout import group, place, sizes
from lib_dlhpc.schedules.pipeline import Backward, Forward, Pipeline, Receive, Send
from lib_dlhpc.simulation.hybrid import bubble
from lib_dlhpc.simulation.hybrid_data_stream import DataStream
from lib_dlhpc.simulation.hybrid_replay import Replay, Row, swap_tables
from lib_dlhpc.simulation.messages import Recorder
from lib_dlhpc.simulation.platform import platform
from lib_dlhpc.simulation.program import Communication
from lib_dlhpc.simulation.simulation import Process, Simulation
from lib_dlhpc.simulation.split import WORDS, exchange_word, pipeline_of, stages, update_moving
from lib_dlhpc.simulation.watchdog import Progress
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Timeline, from_rows, join, mark_bubble

Floats = NDArray[np.float64]


def simulate_split_events(
    experiment: Experiment,
    scale: float,
    factor: Floats,
    fetch: Floats,
    saving: Floats,
    background: Sequence[Any] = (),
    messages: int = 0,
    progress: Progress | None = None,
) -> Timeline:
    """Return the events of every rank; the first `messages` messages are rows.

    The other arguments are those of hybrid.simulate_split. Raises Cancelled, DeadlockError.
    """
    nodes, each = int(experiment.strategy.nodes), int(experiment.devices_per_node)
    on = platform(experiment.calibrated_machine, nodes, each)
    recorder = Recorder(messages)
    sim = Simulation(on, record=recorder if messages else None)
    sim.background(background)
    pipeline = pipeline_of(experiment)
    replay = Replay(experiment, sim, pipeline, scale)
    for rank in range(on.ranks):
        sim.start(_Rank(replay, rank).run(factor[:, rank], fetch[:, rank], saving))
    sim.run(progress)
    if progress is not None:
        progress(float(sim.env.now), sim.delivered)
    every = [stages(experiment, at, scale) for at in range(pipeline.ranks)]
    steps = [bubble(experiment, pipeline, every, s.reshape(sizes(experiment))) for s in factor]
    waited = from_rows(replay.waits, on.ranks, "simulated")
    idle = mark_bubble(waited, np.sum(steps, axis=0), waited.where())
    tables = [from_rows(replay.rows, on.ranks, "simulated"), idle]
    return join([*tables, recorder.timeline(on.ranks)]).sorted()


class _Rank:
    """A rank: it executes its instruction stream step after step."""

    def __init__(self, replay: Replay, rank: int) -> None:
        self.replay, self.rank, self.sim = replay, rank, replay.sim
        self.experiment, self.held = replay.experiment, replay.held[rank]
        self.zero = int(self.experiment.strategy.zero)
        self.place = place(self.experiment, rank).pipeline
        self.stages = group(self.experiment, rank, "pipeline")
        self.replicas = group(self.experiment, rank, "data")
        device, optimizer = self.experiment.machine.device, self.experiment.strategy.optimizer
        update = sum(compute.update_time(part.model, device, optimizer) for part in self.held)
        self.update = update * replay.scale / (len(self.replicas) if self.zero else 1)
        self.moved = 0.0  # when what the last pass moves from or to the host is there

    def run(self, factor: Floats, fetch: Floats, saving: Floats) -> Process:
        """Execute a step for each factor of the compute time."""
        steps = zip(factor.tolist(), fetch.tolist(), saving.tolist(), strict=True)
        for number, (slow, late, saved) in enumerate(steps):
            begin = self.moved = self.sim.env.now
            data = DataStream(self.replay, self.rank, self.replicas)
            for instruction in self.replay.pipeline.streams[self.place]:
                if isinstance(instruction, Send | Receive):
                    yield from self._message(number, instruction)
                else:
                    yield from self._pass(instruction, data, slow)
            yield from self._end(data, slow)
            since = self.sim.env.now
            yield self.sim.until(since + saved)
            self._row("checkpoint", "wait for the checkpoint", since)
            self._row("checkpoint", "write a checkpoint", since, "checkpoint")
            since = self.sim.env.now
            yield self.sim.until(begin + late)
            self._row("input", "wait for input", since)

    def _message(self, step: int, what: Send | Receive) -> Process:
        """Send an activation or a gradient to another stage, or wait for one."""
        since, peer = self.sim.env.now, self.stages[what.peer]
        word = f"{what.what} {what.microbatch}"
        if isinstance(what, Send):
            self.sim.post(self.replay.message(step, what, self.rank, peer), word)
            return
        message = self.replay.message(step, what, peer, self.rank)
        yield self.sim.exchange(self.rank, [], [message], f"receiving the {word}")
        self._wait(f"wait for {word}", since)

    def _pass(self, step: Forward | Backward, data: DataStream, slow: float) -> Process:
        """Compute a microbatch through a chunk, forward or backward, with the collectives inside."""
        ahead, chunk, since = isinstance(step, Forward), step.chunk, self.sim.env.now
        kind = "forward" if ahead else "backward"
        name = f"{kind} {step.microbatch}" + f", chunk {chunk}" * (self.replay.pipeline.chunks > 1)
        final = step.microbatch == _last(self.replay.pipeline, self.place, chunk)
        data.gather(chunk, ahead)
        data.scatter(chunk, not ahead and (final or self.zero > 1))
        program, worked = self.replay.programs[self.rank][chunk], 0.0
        for item in program.forward if ahead else program.backward:
            if isinstance(item, Communication):
                met, word = self.sim.env.now, f"{WORDS[item.group]}: {name}"
                yield from self.replay.communicate(self.rank, item)
                self._row("communication", word, met, "communication", item.bytes)
                continue
            if item.layer in data.there:
                yield data.there[item.layer]
            if item.seconds:
                yield self.sim.compute(self.rank, item.seconds * slow)
                worked += item.seconds * slow
            data.done(item.layer)
        if self.zero > 1 and not ahead:
            yield from data.drain()
        begun = self.sim.env.now
        self.moved = since + self.replay.moving[self.rank][chunk][not ahead]
        yield self.sim.until(self.moved)
        behind = self.sim.env.now - begun
        self._span(kind, name, since, since + worked)
        if behind:
            end = self.sim.env.now
            self._span("wait", "wait for what is offloaded", end - behind, end)
        if since + worked < self.sim.env.now - behind:
            named = f"wait for the {exchange_word(self.experiment)}"
            self._span("wait", named, since + worked, begun)

    def _end(self, data: DataStream, slow: float) -> Process:
        """Finish the gradients, wait for all ranks, update, gather the weights of ZeRO."""
        since = self.sim.env.now
        yield from data.drain()
        yield from swap_tables(self.replay, self.rank)
        self._wait("wait for the exchange", since)
        since = self.sim.env.now
        yield from self.replay.meet()
        self._wait("wait for the others", since)
        since = self.sim.env.now
        yield self.sim.compute(self.rank, self.update * slow)
        self._row("update", "update", since)
        begun = self.sim.env.now
        # A layer's weights move as soon as its gradient is complete, during the last backward pass.
        yield self.sim.until(self.moved + update_moving(self.experiment, self.held))
        self._row("wait", "wait for what is offloaded", begun)
        since = self.sim.env.now
        if self.zero in (1, 2):
            for size in data.units():
                gathered = ("allgather", size, data.net, "weights", data.named)
                yield from self.replay.collective(self.rank, self.replicas, *gathered)
            self._row("wait", "wait for the weights", since)
        since = self.sim.env.now
        yield from self.replay.meet()
        self._row("wait", "wait for the others", since)

    def _row(
        self, kind: str, name: str, since: float, stream: str = "compute", size: float = 0
    ) -> None:
        now = self.sim.env.now
        if now > since:
            self.replay.rows.append((self.rank, stream, kind, name, since, now, round(size)))

    def _span(self, kind: str, name: str, start: float, stop: float) -> None:
        self.replay.rows.append((self.rank, "compute", kind, name, start, stop, 0))

    def _wait(self, name: str, since: float) -> None:
        """Add a wait of the pipeline, some of which is bubble."""
        if self.sim.env.now > since:
            row: Row = (self.rank, "compute", "wait", name, since, self.sim.env.now, 0)
            self.replay.waits.append(row)


def _last(pipeline: Pipeline, at: int, chunk: int) -> int:
    """Return the microbatch whose backward pass through a chunk is the last."""
    return next(
        step.microbatch
        for step in reversed(pipeline.streams[at])
        if not isinstance(step, Send | Receive | Forward) and step.chunk == chunk
    )
