"""Synchronous and local updates: a rank carries out the program of its step, instruction by instruction.

The program is the one that prediction prices and simulation simulates (parallel.steps). Layers communicate within
tensor and spatial groups themselves, and what is offloaded moves with its layer; all else in a step is
here because an instruction says so. Losses are means over the global batch, so gradients are summed over microbatches
and replicas, never averaged, and shares may be uneven; with local updates a rank's samples stand for all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

from lib_dlhpc import layout, parallel
from lib_dlhpc.costs.outer_optimizer import has_outer
from lib_dlhpc.costs.wire_format import wire_format
from lib_dlhpc.layers.base.arena import Arena
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.parallel import data_parallel as data_parallelism
from lib_dlhpc.program import (
    Barrier,
    Block,
    Collective,
    Instruction,
    PairAllreduce,
    Program,
    Transfer,
    Update,
    Wait,
    prove,
    sums,
)
from lib_dlhpc.program.calls import WEIGHTS
from lib_dlhpc.program.intervals import NAMES
from lib_dlhpc.schedules.pipeline import Backward, Forward, Receive, Send, WeightGradients
from lib_dlhpc.schedules.pipeline import Instruction as StreamInstruction
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.training.bubble import with_bubble
from lib_dlhpc.training.data import Data, precision_of, samples_of, tokens_of, with_own_tokens
from lib_dlhpc.training.groups import Groups, groups_of
from lib_dlhpc.training.microbatches import Step, cut, find_non_finite
from lib_dlhpc.training.outer_optimizer import Outer
from lib_dlhpc.training.passes import Order, executed
from lib_dlhpc.training.pipeline_messages import Pipe
from lib_dlhpc.training.rank import Diverged, Rank
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.stage import Stage, StageProgram
from lib_dlhpc.training.tied_weights import Tied


@contextmanager
def synchronous(
    experiment: Experiment,
    comm: Any,
    data: Data,
    recorder: Recorder,
    folder: Path | None = None,
    kind: "type[Synchronous] | None" = None,
) -> "Iterator[Synchronous]":
    """Yield this rank of a run. Raises SpecError unless there is a rank for each device of a partitioned network."""
    with ExitStack() as stack:
        on = on_ranks(experiment, comm.size)
        groups = stack.enter_context(groups_of(on, comm))
        # Ranks progress messages between layers, so exchanges overlap; the machine decides how much that hides.
        cycle = parallel.steps(replace(on, machine=replace(on.machine, progress=True)))
        prove(cycle)
        stages = stages_of(experiment, groups, recorder, stack, folder, cycle[-1])
        ranks = layout.group(on, comm.rank, "pipeline")
        pipe = Pipe(groups.pipeline, ranks, precision_of(experiment), recorder)
        tied = stack.enter_context(Tied.of(on, groups, stages, recorder))
        data = with_own_tokens(on, groups.context.rank, data)
        common = (experiment, groups, data, stages, pipe, recorder)
        rank = (kind or Synchronous)(*common, tied, cycle)
        stack.callback(rank.ends.clear)  # their callbacks refer to this rank
        yield rank


def on_ranks(experiment: Experiment, ranks: int) -> Experiment:
    """Return the experiment on that many ranks: replicas may be more or fewer than it has devices."""
    experiment = layout.folded(experiment)
    if layout.is_partitioned(experiment):
        return experiment
    strategy = replace(experiment.strategy, nodes=1, devices_per_node=ranks)
    return replace(experiment, strategy=strategy)


def stages_of(
    experiment: Experiment,
    groups: Groups,
    recorder: Recorder,
    stack: ExitStack,
    folder: Path | None,
    program: Program | None = None,
) -> list[Stage]:
    """Return this rank's stages; `stack` closes what they hold. Without a program nothing is exchanged."""
    where, arena, number = folder or Path(gettempdir()), Arena(), 1
    precision, stages = precision_of(experiment), []
    on = on_ranks(experiment, groups.world.size)
    for chunk, part in enumerate(layout.parts(on, groups.world.rank)):
        own_program = stage_program(program, groups, chunk, part) if program else StageProgram()
        common = (experiment, part, groups, precision, recorder, stack)
        stages.append(Stage(*common, where, arena, own_program))
    for stage in stages:
        stage.beside = stages
    for stage in reversed(stages):  # backward goes through the chunks from the last
        number = stage.number_buckets(number)
    return stages


def stage_program(program: Program, groups: Groups, chunk: int, part: layout.Part) -> StageProgram:
    """Return the part of the program that a stage of this rank executes."""
    place, space = groups.place.pipeline, groups.place.spatial
    chunk_program = program.stages[place][chunk]

    def instructions(block: Block, waits: bool = False) -> list[Instruction]:
        return executed(part.model, block.variants[space].instructions, waits)

    order = Order(
        instructions(chunk_program.forward),
        instructions(chunk_program.backward),
        instructions(chunk_program.last),
        instructions(chunk_program.weights) if chunk_program.weights else None,
        instructions(chunk_program.first, waits=True) if chunk_program.first else None,
    )
    posted = (*order.last, *(row[place] for row in program.end))
    layers = (collective.layers for collective in posted if sums(collective))
    buckets = dict.fromkeys((first, stop) for owner, first, stop in layers if owner == chunk)
    return StageProgram(order, list(buckets))


@dataclass
class Synchronous(Rank):
    """One rank of a run whose ranks take every step together."""

    tied: Tied
    cycle: Sequence[Program]  # of the steps, which take turns
    now: Step = field(init=False)  # in progress
    rate: float = 0.0

    def __post_init__(self) -> None:
        """Look up this rank's stream of the pipeline, and the scale of its losses."""
        self.schedule = self.cycle[-1].schedule
        self.stream = list(_with_receives(self.schedule.streams[self.groups.place.pipeline]))
        strategy = self.experiment.strategy
        half = wire_format(strategy) == "fp16" and strategy.update == "synchronous"
        # Small gradients would be zero in 16 bits.
        self.scale = float(self.experiment.training.loss_scale) if half else 1.0
        # Of this rank's samples in its loss: with local updates, ranks average their weights, not their gradients.
        self.weight = self.comm.size if self._local_updates else 1
        fields = self.experiment.training, self.network, self.optimizer
        self.outer = Outer(*fields) if has_outer(self.experiment) else None
        self.ends = [self._end(program) for program in self.cycle]
        groups, passes = self.groups, self.schedule.ranks * self.schedule.microbatches
        if passes * groups.tensor.size * groups.spatial.size == 1 and self.stages[0].level < 2:
            # Backward is recorded in segments, each of which ends where a bucket is filled.
            self.network.post = self._filled

    def _refined(self, timeline: Timeline | None) -> Timeline | None:
        return timeline and with_bubble(self.experiment, self.schedule, timeline)

    def _step(self, step: int, at: float, indices: Array) -> float:
        """Train on one global batch; return this rank's part of its mean loss."""
        self.rate = self._rate(at, len(indices))
        self.now = now = self._begin(step, indices)
        self.stages[0].exchange.begin(at)
        for instruction, following in self.stream:
            microbatch = instruction.microbatch
            if isinstance(instruction, Receive):
                message = instruction.what, microbatch, instruction.stage
                self.pipe.expect(instruction, now.shapes(instruction))
                now.arrived[message] = self.pipe.receive(instruction)
                continue
            if following:  # posted before, so that it overlaps computation
                self.pipe.expect(following, now.shapes(following))
            if isinstance(instruction, Forward):
                self._forward(microbatch, instruction.chunk)
            elif isinstance(instruction, Backward):
                self._backward(microbatch, instruction.chunk)
            elif isinstance(instruction, WeightGradients):
                self._backward_weights(microbatch, instruction.chunk)
            elif isinstance(instruction, Send):
                message = instruction.what, microbatch, instruction.stage
                self.pipe.send(instruction, now.arrived.pop(message))
        self.pipe.finish()
        for action in self.ends[step % len(self.ends)]:
            action()
        del self.now  # it refers to this rank
        return now.loss

    def _end(self, program: Program) -> list[Callable[[], None]]:
        """Return what this rank does after its last pass, in order."""
        actions: list[Callable[[], None]] = []
        tied = dict.fromkeys(self.tied.shared)  # to be summed over their stages, once
        posted = any(stage.program.buckets for stage in self.stages)
        for what in (row[self.groups.place.pipeline] for row in program.end):
            if isinstance(what, Collective | Transfer):
                posted = True
                if isinstance(what, Collective) and what.layers:
                    actions.append(partial(self.stages[what.layers[0]].post, what))
            elif isinstance(what, Wait) and posted and what.stream == data_parallelism.STREAM:
                posted = False
                actions += [partial(stage.post, what) for stage in self.stages]
                if self._local_updates:
                    actions.append(self._average)
            # The first pair sums over all stages, although the program has an instruction for each pair.
            elif isinstance(what, PairAllreduce) and what.name in tied:
                actions.append(partial(self.tied.sum, what.name))
                del tied[what.name]
            elif isinstance(what, Barrier) and self._meet not in actions:
                actions.append(self._meet)
            elif isinstance(what, Update):  # after the tables that only chunks of this rank share
                actions += [*(partial(self.tied.sum, name) for name in tied), self._update]
        return actions

    def _average(self) -> None:
        """Make the sum of all ranks' weights their mean, which the outer optimizer updates, if there is one."""
        self.network.weights /= self.network.dtype.type(self.weight)
        if self.outer is not None:
            with self.recorder.communicates("outer update", 0):
                self.outer.update()

    def _filled(self, what: Instruction) -> None:
        """Post a bucket, and record what has filled it."""
        self.recorder.fills()
        self.stages[0].post(what)

    def _update(self) -> None:
        with self.recorder.working("update", "update"):
            for stage in self.stages:
                if self.scale != 1:
                    stage.network.gradients /= stage.network.dtype.type(self.scale)
                stage.update(self.rate)

    def _meet(self) -> None:
        """Wait for all ranks, to learn whether any has met a non-finite loss; after the update Rank.run does."""
        now, begin = self.now, self.recorder.now()
        bad = self.comm.allreduce(now.bad + 1)
        self.recorder.add("wait", "wait for the others", begin, self.recorder.now())
        if bad:
            rank, layer = find_non_finite(now, self.pipe, self.groups)
            step = self.network.context.step
            raise Diverged(f"the loss is not finite: rank {rank}, step {step}, first in {layer}")

    def _begin(self, step: int, indices: Array) -> Step:
        """Cut this replica's share of a global batch into microbatches."""
        mine = self._own(len(indices))
        slices = cut(mine, self.schedule.microbatches)
        read = self._fetch(indices[mine])
        if read is not None:
            read = tokens_of(self.experiment, self.groups.context.rank, read)

        def inputs(microbatch: int) -> Array:
            begin = self.recorder.now()
            part = slices[microbatch]
            own = None if read is None else read[part.start - mine.start : part.stop - mine.start]
            x = samples_of(self.experiment, self.data, step, indices, part, self.rows, own)
            self.recorder.add("input", "fetch the batch", begin, self.recorder.now())
            return x

        def targets(microbatch: int) -> Array:
            return self.data.y[indices[slices[microbatch]]]

        for stage in self.stages:
            stage.begin(step, [part.stop - part.start for part in slices], self.rate)
        return Step(self.stages, self.schedule.ranks, slices, inputs, targets, len(indices))

    def _forward(self, microbatch: int, chunk: int) -> None:
        now, stage, number = self.now, self.stages[chunk], self.stages[chunk].part.stage
        x = now.inputs(microbatch) if stage.reads else None
        received = now.arrived.pop(("activation", microbatch, number - 1), {})
        stage.network.context.first_sample = now.slices[microbatch].start
        before = None if now.size(microbatch) else stage.network.statistics.copy()
        with self.recorder.working("forward", self._name("forward", microbatch, chunk)):
            sent = stage.network.run(microbatch, x, received)
            if stage.last:
                (outputs,) = sent.values()
                loss, dy = self._loss(outputs, now.targets(microbatch), now.samples)
                if not np.isfinite(loss) and now.bad < 0:
                    now.bad = microbatch
                    self._diverged(x)
                now.loss += loss * self.weight if self._counts else 0.0
                if self.weight * self.scale != 1:
                    dy *= dy.dtype.type(self.weight * self.scale)
                now.arrived["gradient", microbatch, number + 1] = dict.fromkeys(sent, dy)
            else:
                now.arrived["activation", microbatch, number] = sent
        if before is not None and self.experiment.training.normalization == "local":
            stage.network.statistics[...] = before  # a rank without samples has no statistics

    def _diverged(self, x: Array | None) -> None:
        """Raise Diverged, unless a barrier before the update informs all ranks."""
        if self._meet not in self.ends[-1]:
            assert x is not None
            raise Diverged(self._where(self.network.context.step, x))

    def _backward(self, microbatch: int, chunk: int) -> None:
        now, stage, number = self.now, self.stages[chunk], self.stages[chunk].part.stage
        dys = now.arrived.pop(("gradient", microbatch, number + 1))
        with self.recorder.working("backward", self._name("backward", microbatch, chunk)):
            dxs = stage.network.back(microbatch, dys, self._progress)
        if number:
            now.arrived["gradient", microbatch, number] = dxs

    def _backward_weights(self, microbatch: int, chunk: int) -> None:
        with self.recorder.working("backward", self._name(NAMES[WEIGHTS], microbatch, chunk)):
            self.stages[chunk].network.backward_weights(microbatch)
        self._progress(0)

    def _progress(self, _: int) -> None:
        """Progress messages in flight, after each layer."""
        for stage in self.stages:
            stage.exchange.progress()

    def _name(self, kind: str, microbatch: int, chunk: int) -> str:
        several = self.schedule.ranks * self.schedule.microbatches > 1
        name = f"{kind} {microbatch}" if several else kind
        return name + (f", chunk {chunk}" if len(self.stages) > 1 else "")


def _with_receives(
    stream: Sequence[StreamInstruction],
) -> Iterator[tuple[StreamInstruction, Receive | None]]:
    """Yield the instructions of a stream, each with the receive that follows next."""
    pairs: list[tuple[StreamInstruction, Receive | None]] = []
    following: Receive | None = None
    for instruction in reversed(stream):
        pairs.append((instruction, following))
        following = instruction if isinstance(instruction, Receive) else following
    yield from reversed(pairs)
