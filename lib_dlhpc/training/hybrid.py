"""Model-parallel training: any mix of data, pipeline, and tensor or spatial parallelism.

layout assigns the parts; a rank executes its instruction stream of the pipeline schedule (one rank is a
pipeline of depth 1), and layers communicate within tensor and spatial groups. Losses are means over the
global batch, so gradients are summed over microbatches and replicas, never averaged.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

from lib_dlhpc import layout
from lib_dlhpc.layers.base.arena import Arena
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.schedules.pipeline import PIPELINES, Backward, Forward, Instruction, Receive, Send
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.storage.snapshots import Stream
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.training import loss as losses
from lib_dlhpc.training.bubble import with_bubble
from lib_dlhpc.training.collectives import mean
from lib_dlhpc.training.data import Data, own_rows, precision_of, samples_of, share
from lib_dlhpc.training.data_parallel import Diverged, Ranks, Report, Run
from lib_dlhpc.training.groups import Groups, groups_of
from lib_dlhpc.training.microbatches import Step, cut, find_non_finite, through
from lib_dlhpc.training.pipe import Pipe
from lib_dlhpc.training.record import Recorder, offset
from lib_dlhpc.training.snapshot import Place
from lib_dlhpc.training.snapshot_parts import restore_stages, save_stages, whole_arrays
from lib_dlhpc.training.stage import Stage
from lib_dlhpc.training.tied import Tied
from lib_dlhpc.training.versions import ROOM, versions_of

TEST_BATCH = 256  # samples


def train_hybrid(
    experiment: Experiment,
    comm: Any,
    data: Data,
    folder: Path | None,
    report: Report,
    begins: Callable[[int], None],
) -> Run:
    """Train on the ranks of `comm`, one for each device; arguments and errors as of `train`."""
    precision = precision_of(experiment)
    recorder = Recorder()
    shift = offset(comm) if comm.size > 1 else 0.0
    with ExitStack() as stack:
        groups = stack.enter_context(groups_of(experiment, comm))
        where, arena = folder or Path(gettempdir()), Arena()
        stages = [
            Stage(experiment, part, groups, precision, recorder, stack, where, arena)
            for part in layout.parts(experiment, comm.rank)
        ]
        number = 0
        for stage in stages:
            number = stage.number_buckets(number)
        first = stages[0]
        common = (experiment, comm, data, first.network, first.optimizer, first.exchange, recorder)
        ranks = layout.group(experiment, comm.rank, "pipeline")
        pipe = Pipe(groups.pipeline, ranks, precision, recorder)
        tied = stack.enter_context(Tied.of(experiment, groups, stages, recorder))
        own = Hybrid(*common, groups, stages, pipe, tied)
        own.versions = stack.enter_context(versions_of(folder, comm, experiment, ROOM))
        place = Place()
        if folder is not None:
            place = restore_stages(folder, experiment, groups, stages, own.versions)
        return own.run(place, folder, report, begins, shift)


@dataclass
class Hybrid(Ranks):
    """One rank of a hybrid run."""

    groups: Groups
    stages: list[Stage]  # one, or one for each chunk
    pipe: Pipe
    tied: Tied

    def __post_init__(self) -> None:
        """Look up this rank's instruction stream and the rows of a sample that it reads."""
        strategy, place = self.experiment.strategy, self.groups.place
        self.depth, self.microbatches = int(strategy.pipeline), int(strategy.microbatches)
        sizes = [self.depth, self.microbatches]
        sizes += [int(strategy.chunks)] if strategy.schedule == "interleaved" else []
        self.pipeline = PIPELINES[strategy.schedule](*sizes)
        self.stream: tuple[Instruction, ...] = self.pipeline.streams[place.pipeline]
        self.rows: slice | None = None
        if strategy.spatial > 1:
            rows = layout.rows_read(self.experiment.model, int(strategy.spatial))
            self.rows = slice(*rows[place.spatial])

    def _refined(self, timeline: Timeline | None) -> Timeline | None:
        return timeline and with_bubble(self.experiment, self.pipeline, timeline)

    @property
    def _sent(self) -> float:
        return self.recorder.sent

    def _step(self, step: int, at: float, indices: Array) -> float:
        """Train on one global batch; return this rank's part of its mean loss."""
        rate = self._rate(at, len(indices))
        now = self._begin(step, indices, rate)
        for number, instruction in enumerate(self.stream):
            if not isinstance(instruction, Receive):
                self._expect(now, number)
            self._carry_out(now, instruction)
        self.pipe.finish()
        self._reduce()
        if self._is_bad(now):
            rank, layer = find_non_finite(now, self.pipe, self.groups)
            raise Diverged(f"the loss is not finite: rank {rank}, step {step}, first in {layer}")
        with self.recorder.working("update", "update"):
            for stage in self.stages:
                stage.update(rate)
        for stage in self.stages:
            stage.gather_weights()
        return now.loss

    def _reduce(self) -> None:
        """Reduce the gradients; with ZeRO over replicas last: afterwards each rank only has its shard."""
        for stage in self.stages:
            if stage.level == 0:
                stage.reduce_replicas()
        for stage in self.stages:
            stage.reduce_groups()
        self.tied.sum()
        for stage in self.stages:
            if stage.level:
                stage.reduce_replicas()

    def _is_bad(self, now: Step) -> bool:
        """Return whether any rank has met a non-finite loss."""
        begin = self.recorder.now()
        bad = self.comm.allreduce(now.bad + 1)
        self.recorder.add("wait", "wait for the others", begin, self.recorder.now())
        return bool(bad)

    def _begin(self, step: int, indices: Array, rate: float) -> Step:
        """Cut this replica's share of a global batch into microbatches."""
        mine = share(len(indices), self.groups.place.data, self.groups.data.size)
        slices = cut(mine, self.microbatches)

        def inputs(microbatch: int) -> Array:
            begin = self.recorder.now()
            part = slices[microbatch]
            x = samples_of(self.experiment, self.data, step, indices, part, self.rows)
            self.recorder.add("input", "fetch the batch", begin, self.recorder.now())
            return x

        def targets(microbatch: int) -> Array:
            return self.data.y[indices[slices[microbatch]]]

        for stage in self.stages:
            stage.begin(step, [part.stop - part.start for part in slices], rate)
        return Step(self.stages, self.depth, slices, inputs, targets, len(indices))

    def _expect(self, now: Step, number: int) -> None:
        """Post this rank's next receive, so that it overlaps computation."""
        for instruction in self.stream[number + 1 :]:
            if isinstance(instruction, Receive):
                self.pipe.expect(instruction, now.shapes(instruction))
                return

    def _carry_out(self, now: Step, instruction: Instruction) -> None:
        microbatch = instruction.microbatch
        if isinstance(instruction, Forward):
            self._forward(now, microbatch, instruction.chunk)
        elif isinstance(instruction, Backward):
            self._backward(now, microbatch, instruction.chunk)
        else:
            message = instruction.what, microbatch, instruction.stage
            if isinstance(instruction, Send):
                self.pipe.send(instruction, now.arrived.pop(message))
            else:
                self.pipe.expect(instruction, now.shapes(instruction))
                now.arrived[message] = self.pipe.receive(instruction)

    def _forward(self, now: Step, microbatch: int, chunk: int) -> None:
        stage, number = self.stages[chunk], self.stages[chunk].part.stage
        x = now.inputs(microbatch) if stage.reads else None
        received = now.arrived.pop(("activation", microbatch, number - 1), {})
        stage.network.context.first_sample = now.slices[microbatch].start
        with self.recorder.working("forward", self._name("forward", microbatch, chunk)):
            given = stage.network.run(microbatch, x, received)
            if stage.last:
                (outputs,) = given.values()
                targets = now.targets(microbatch)
                loss, dy = self._loss(outputs, targets, now.samples)
                now.arrived["gradient", microbatch, number + 1] = dict.fromkeys(given, dy)
                if not np.isfinite(loss) and now.bad < 0:
                    now.bad = microbatch
                now.loss += loss if self.groups.first else 0.0
            else:
                now.arrived["activation", microbatch, number] = given

    def _backward(self, now: Step, microbatch: int, chunk: int) -> None:
        stage, number = self.stages[chunk], self.stages[chunk].part.stage
        dys = now.arrived.pop(("gradient", microbatch, number + 1))
        with self.recorder.working("backward", self._name("backward", microbatch, chunk)):
            given = stage.network.back(microbatch, dys, stage.filled)
        if number:
            now.arrived["gradient", microbatch, number] = given

    def _name(self, kind: str, microbatch: int, chunk: int) -> str:
        return f"{kind} {microbatch}" + (f", chunk {chunk}" if len(self.stages) > 1 else "")

    def _loss(self, outputs: Array, targets: Array, samples: int) -> tuple[float, Array]:
        function = losses.softmax_cross_entropy if self.data.classes else losses.mean_squared_error
        return function(outputs, targets, samples)

    def _mean_loss(self, own: float) -> float:
        return float(self.comm.allreduce(own))

    def _test(self, step: int) -> tuple[float | None, float]:
        """Return accuracy and loss on the test samples: a forward-only pipeline."""
        begin = self.recorder.now()
        before = self.recorder.on, self.recorder.sent
        self.recorder.on = False
        own, right, loss = self._unite(), 0, 0.0
        for part in self._test_batches():
            outputs = self._evaluate(part)
            if outputs is None or not self.groups.first:
                continue
            targets = self.data.test_y[part]
            if self.data.classes:
                right += int(np.sum(outputs.argmax(axis=-1) == targets))
            loss += self._loss(outputs, targets, len(self.data.test_x))[0]
        self.pipe.finish()
        right, loss = self.comm.allreduce(right), self.comm.allreduce(loss)
        if not np.isfinite(loss):
            raise Diverged(f"the loss on the test samples is not finite: after step {step}")
        for array, values in own:
            array[...] = values
        self.recorder.on, self.recorder.sent = before
        self.recorder.leave_out(self.comm.allreduce(self.recorder.now() - begin, min))
        return (right / self.data.test_y.size if self.data.classes else None), loss

    def _test_batches(self) -> Iterator[slice]:
        mine = share(len(self.data.test_x), self.groups.place.data, self.groups.data.size)
        for start in range(mine.start, mine.stop, TEST_BATCH):
            yield slice(start, min(start + TEST_BATCH, mine.stop))

    def _evaluate(self, part: slice) -> Array | None:
        """Take test samples through all stages; return the outputs on ranks of the last one."""
        x, y = self.data.test_x, self.data.test_y
        read = own_rows(x, self.rows)
        now = Step(self.stages, self.depth, [part], lambda _: read[part], lambda _: y[part], 0)
        outputs = None
        for stage, _, _, given in through(now, self.pipe, 0, training=False):
            if stage.last:
                outputs = next(iter(given.values()))
        return outputs

    def _unite(self) -> list[tuple[Array, Array]]:
        """Average running statistics over the replicas where they are local; return the local ones."""
        if self.experiment.training.normalization != "local" or self.groups.data.size == 1:
            return []
        arrays = [stage.network.statistics for stage in self.stages]
        local = [(array, array.copy()) for array in arrays if array.size]
        for array, _ in local:
            mean(self.groups.data, array)
        return local

    def _write(self, folder: Path, place: Place) -> None:
        self._rest()
        save_stages(folder, self.experiment, self.groups, self.stages, place)

    def _state(self, place: Place) -> Iterator[Stream]:
        self._rest()
        return whole_arrays(self.experiment, self.groups, self.stages, place)

    def _rest(self) -> None:
        if self.experiment.strategy.offload != "none":  # full tensors are assembled in that memory
            for stage in self.stages:
                stage.network.context.arena.release()
