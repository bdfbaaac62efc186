"""Steps of a network that is split over ranks.

A rank of a pipeline executes its instruction stream. What it does in one instruction is its program:
work, and exchanges in which the ranks of its tensor or spatial group meet. Behind the last backward pass
of a layer its gradients are exchanged with the replicas, bucket by bucket. When all ranks are through, all
update.

In rounds, all replicas are simulated at once on arrays. Messages from one stage to another occupy the link in
the order in which they are sent, each for bytes beta, and arrive alpha later; no other link is contended for
but the NICs. hybrid_events.py is the simulation with events.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import compute, groups
from lib_dlhpc.costs.buckets import buckets, ready_times
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.costs.sharded import handed_out
from lib_dlhpc.costs.stage import extra_reductions, share_of_experts, stage_cost
from lib_dlhpc.layout import Part, Place, parts, rank_at, sizes
from lib_dlhpc.schedules.pipeline import Backward, Forward, Pipeline, Receive, Send
from lib_dlhpc.simulation.clock import StepProgress
from lib_dlhpc.simulation.replica_exchange import alike_exchange, data_exchange
from lib_dlhpc.simulation.split import (
    Floats,
    Stage,
    exchange_word,
    pipeline_of,
    stages,
    update_moving,
    update_time,
)
from lib_dlhpc.simulation.split_rows import Span, table
from lib_dlhpc.simulation.watchdog import Cancelled
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Timeline, join, mark_bubble


def simulate_split(
    experiment: Experiment,
    scale: float,
    factor: NDArray[np.float64],
    fetch: NDArray[np.float64],
    saving: NDArray[np.float64],
    progress: StepProgress | None = None,
) -> Timeline:
    """Return the events of every rank in `len(factor)` steps, simulated in rounds.

    scale: compute over roofline time. factor: (steps, ranks) of the compute time. fetch: (steps, ranks)
    s that the next batch takes. saving: (steps,) s in which all ranks are idle for a checkpoint. progress:
    called after each stage's turn with simulated seconds, instructions done, and all there are. Raises
    Cancelled when it returns False.
    """
    pipeline = pipeline_of(experiment)
    every = [stages(experiment, place, scale) for place in range(pipeline.ranks)]
    begin, tables = 0.0, []
    each = sum(map(len, pipeline.streams))

    def report(step: int, seconds: float, done: int) -> None:
        done += step * each
        if progress is not None and progress(seconds, done, len(factor) * each) is False:
            raise Cancelled(seconds, done)

    for number, (slow, late, saved) in enumerate(zip(factor, fetch, saving.tolist(), strict=True)):
        of_rank = slow.reshape(sizes(experiment))
        step = _Step(experiment, pipeline, every, of_rank, begin)
        step.run(partial(report, number))
        end = step.exchange_and_update(scale)
        begin = step.save_and_wait(end, saved, late.reshape(sizes(experiment)))
        waits = table(step.waits, step.size)
        idle = bubble(experiment, pipeline, every, of_rank)
        tables += [table(step.rows, step.size), mark_bubble(waits, idle, waits.where())]
    return join(tables).sorted()


def bubble(
    experiment: Experiment, pipeline: Pipeline, every: list[list[Stage]], factor: NDArray[Any]
) -> NDArray[np.float64]:
    """Return for each rank its idle time in a step if messages between stages are free.

    With one stage that is no bubble: an idle rank waits for the others of its group.
    """
    if pipeline.ranks == 1:
        return np.zeros(factor.size)
    step = _Step(experiment, pipeline, every, factor, 0.0, free=True)
    step.run()
    # All wait for all replicas at the end of a step, but each replica's bubble is its own.
    end = np.max([place.max(axis=(1, 2)) for place in step.clock], axis=0)[:, None, None]
    idle = [wait + end - at for wait, at in zip(step.waited, step.clock, strict=True)]
    return np.concatenate([each.ravel() for each in idle])


class _Step:
    """A step in simulation: what is collected holds the ranks at one place of the pipeline as one array."""

    def __init__(
        self,
        experiment: Experiment,
        pipeline: Pipeline,
        every: list[list[Stage]],
        factor: NDArray[Any],
        begin: float,
        free: bool = False,
    ) -> None:
        self.experiment, self.pipeline, self.every = experiment, pipeline, every
        self.factor, self.begin, self.free = factor, begin, free
        self.size = sizes(experiment)
        self.clock = [np.full(self.size[1:], begin) for _ in range(self.size.pipeline)]
        self.waited = [np.zeros(self.size[1:]) for _ in self.clock]  # for messages of the pipeline
        self.last: dict[tuple[int, int], tuple[Floats, Floats]] = {}  # backward pass of a chunk
        self.rows: list[Span] = []
        self.waits: list[Span] = []  # those of the pipeline, some of which is bubble
        self._in_flight: dict[tuple[int, int, Receive], Floats] = {}
        self._link: dict[tuple[int, int], Floats] = {}  # when it is free, by the places at its ends

    def run(self, report: Callable[[float, int], object] = lambda seconds, done: None) -> None:
        """Simulate all microbatches; `report` is called with the simulated s and the count of instructions done."""
        todo, done = [deque(stream) for stream in self.pipeline.streams], 0
        moved = True
        while moved:
            moved = False
            for place, stream in enumerate(todo):
                while stream and self._do(place, stream[0]):
                    stream.popleft()
                    done += 1
                    moved = True
                report(float(self.clock[place].max()), done)

    def exchange_and_update(self, scale: float) -> float:
        """Sum the gradients over the replicas, wait for all, update; return when the last rank is done."""
        held = [
            parts(self.experiment, rank_at(self.experiment, Place(place, 0, 0, 0)))
            for place in range(self.size.pipeline)
        ]
        done = [self._gradients(place, held[place], scale) for place in range(self.size.pipeline)]
        self._tables(held, done)
        flush = max(float(each.max()) for each in done)
        handed = []
        for place, (through, finished) in enumerate(zip(self.clock, done, strict=True)):
            # Some of both is bubble: a rank that is through early would wait for the others anyway.
            for name, since, until in (
                ("wait for the exchange", through, finished),
                ("wait for the others", finished, flush),
            ):
                self._add(place, "compute", "wait", name, since, until, into=self.waits)
            updated = flush + self.factor[place] * update_time(self.experiment, held[place], scale)
            self._add(place, "compute", "update", "update", flush, updated)
            moving = update_moving(self.experiment, held[place])
            moved = np.maximum(updated, self._fetched(place) + moving)
            self._add(place, "compute", "wait", "wait for what is offloaded", updated, moved)
            updated = moved
            given = float(handed_out(self.experiment, held[place]).total)
            handed.append(np.maximum(updated, updated.max() + given) if given else updated)
            self._add(place, "compute", "wait", "wait for the weights", updated, handed[-1])
        end = max(float(each.max()) for each in handed)
        for place, through in enumerate(handed):
            self._add(place, "compute", "wait", "wait for the others", through, end)
        return end

    def _fetched(self, place: int) -> Floats:
        """Return from when on the host link is free: weights move during the last backward pass."""
        every = enumerate(self.every[place])
        ends = [self.last[place, chunk][0] + stage.moving[True] for chunk, stage in every]
        return np.max(ends, axis=0)

    def save_and_wait(self, end: float, saving: float, fetch: NDArray[Any]) -> float:
        """Write the checkpoint and wait for the next batch; return when the next step begins."""
        saved = end + saving
        ready = self.begin + fetch
        begin = max(saved, float(ready.max()))
        for place in range(self.size.pipeline):
            name = "wait for the checkpoint"
            self._add(place, "compute", "checkpoint", name, end, saved)
            self._add(place, "checkpoint", "checkpoint", "write a checkpoint", end, saved)
            self._add(place, "input", "input", "fetch the next batch", self.begin, ready[place])
            self._add(place, "compute", "input", "wait for input", saved, begin)
        return begin

    def _do(self, place: int, step: Any) -> bool:
        """Carry out one instruction, unless what it needs has not been sent."""
        start = self.clock[place]
        if isinstance(step, Receive):
            arrived = self._in_flight.pop((step.peer, place, step), None)
            if arrived is None:
                return False
            self.clock[place] = np.maximum(start, arrived)
            self.waited[place] += self.clock[place] - start
            name = f"wait for {step.what} {step.microbatch}"
            ends = (start, self.clock[place])
            self._add(place, "compute", "wait", name, *ends, into=self.waits)
        elif isinstance(step, Send):
            crossed = step.stage if step.what == "activation" else step.stage - 1
            stage = self.every[crossed % self.size.pipeline][crossed // self.size.pipeline]
            leaves, arrives = self._carry((place, step.peer), start, stage.sends)
            received = Receive(step.what, step.microbatch, step.stage, place)
            self._in_flight[place, step.peer, received] = arrives
            name = f"{step.what} {step.microbatch}"
            self._communicate(place, name, leaves, arrives, stage.bytes)
        else:
            self._compute(place, step)
        return True

    def _carry(self, ends: tuple[int, int], start: Floats, sends: Cost) -> tuple[Floats, Floats]:
        """Return when a message leaves, the messages before it being through, and when it arrives."""
        if self.free:
            return start, start
        leaves = np.maximum(start, self._link.get(ends, start))
        self._link[ends] = leaves + sends.bandwidth
        return leaves, leaves + sends.total

    def _compute(self, place: int, step: Forward | Backward) -> None:
        stage, start = self.every[place][step.chunk], self.clock[place]
        back = isinstance(step, Backward)
        kind, work = ("backward", stage.backward) if back else ("forward", stage.forward)
        name = f"{kind} {step.microbatch}"
        if self.pipeline.chunks > 1:
            name += f", chunk {step.chunk}"
        met, worked = work.ends(start, self.factor[place])
        end, between = met, start + worked
        self._add(place, "compute", kind, name, start, between)
        if work.talk:
            word = exchange_word(self.experiment)
            self._add(place, "compute", "wait", f"wait for the {word}", between, met)
            self._communicate(place, f"{word}: {name}", between, met, work.bytes)
        if stage.sharded is not None:
            comes = stage.sharded[back]
            end = comes.ends(start, met)
            self._add(place, "compute", "wait", "wait for weights and gradients", met, end)
            self._communicate(place, f"weights and gradients: {name}", start, end, comes.bytes)
        if stage.moving[back]:
            fetched = start + stage.moving[back]
            name = "wait for what is offloaded"
            self._add(place, "compute", "wait", name, end, np.maximum(end, fetched))
            self._communicate(place, f"offloaded: {name}", start, fetched, stage.moved[back])
            end = np.maximum(end, fetched)
        if back:
            self.last[place, step.chunk] = (start, end)
        self.clock[place] = end

    def _gradients(self, place: int, held: tuple[Part, ...], scale: float) -> Floats:
        """Exchange the buckets of all chunks, the last chunk's first; return when each rank is through."""
        strategy, through = self.experiment.strategy, self.clock[place]
        if strategy.zero > 1 or all(held_by == 1 for held_by in self.size[1:]):
            return through
        exchange = data_exchange(self.experiment)
        alike = alike_exchange(self.experiment)
        free, number = np.full_like(through, -np.inf), 0
        for chunk in reversed(range(len(held))):
            cut = buckets(
                held[chunk].model, float(strategy.bucket), compute.BYTES[strategy.precision]
            )
            start, stop = self.last[place, chunk]
            batch = strategy.batch / strategy.microbatches
            work = stage_cost(self.experiment, held[chunk], batch, scale).layer_backward
            ready = ready_times(work, cut.last_layer) / max(float(work.sum()), 1e-300)
            groups_of = extra_reductions(held[chunk].model)
            experts = share_of_experts(held[chunk].model) if strategy.experts > 1 else 0.0
            if self.size.data == 1 and not groups_of:
                continue
            for size, share in zip(cut.sizes.tolist(), ready.tolist(), strict=True):
                if size:
                    number += 1
                    filled = start + (stop - start) * share if self.experiment.overlaps else through
                    joined = np.maximum(filled, free)
                    free = exchange(size * (1 - experts), joined)
                    free = alike(size * experts, free) if experts else free
                    for group, part in groups_of:
                        net = groups.group_network(self.experiment, group)
                        met = np.broadcast_to(free.max(axis=(1, 2), keepdims=True), free.shape)
                        free = met + float(groups.everyone(part * size, net).total)
                    self._communicate(place, f"bucket {number}", joined, free, size)
        return np.maximum(through, free)

    def _tables(self, held: list[tuple[Part, ...]], done: list[Floats]) -> None:
        """Swap the gradients of word tables that two stages have."""
        size = compute.BYTES[self.experiment.strategy.precision]
        for place, of_rank in enumerate(held):
            for part in of_rank:
                for name, of_stages in part.shared.items():
                    table = next(layer for layer in part.model.layers if layer.name == name)
                    others = {stage % self.size.pipeline for stage in of_stages} - {place}
                    for other in sorted(others):
                        if other > place:
                            met = np.maximum(done[place], done[other])
                            way = groups.wire(self.experiment, *self._ends(place, other), 1)
                            taken = float(way.cost(float(table.parameters * size)).total)
                            done[place] = done[other] = met + taken

    def _ends(self, place: int, other: int) -> tuple[int, int]:
        return (
            rank_at(self.experiment, Place(place, 0, 0, 0)),
            rank_at(self.experiment, Place(other, 0, 0, 0)),
        )

    def _communicate(self, place: int, name: str, start: Floats, stop: Floats, size: float) -> None:
        self._add(place, "communication", "communication", name, start, stop, size)

    def _add(
        self,
        place: int,
        stream: str,
        kind: str,
        name: str,
        start: Any,
        stop: Any,
        size: float = 0.0,
        into: list[Span] | None = None,
    ) -> None:
        """Add an event of every rank at one place of the pipeline."""
        if not self.free:
            span = Span(place, stream, kind, name, start, stop, size)
            (self.rows if into is None else into).append(span)
