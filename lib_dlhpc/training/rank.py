"""Rank: the loop of a training run on one rank, step by step; what a step is, subclasses know."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

import numpy as np

from lib_dlhpc import layout
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.layout import is_partitioned
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.storage.snapshots import Stream
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.training import loss as losses
from lib_dlhpc.training.collectives import Decisions, mean
from lib_dlhpc.training.data import Data, global_batches, own_rows, share
from lib_dlhpc.training.expert_load import ExpertLoad, expert_load
from lib_dlhpc.training.groups import Groups
from lib_dlhpc.training.input.readers import Readers
from lib_dlhpc.training.learning_rate import batch_at, rate_at
from lib_dlhpc.training.messages.exchange import classes_before
from lib_dlhpc.training.microbatches import Step, through
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.peak_memory import Memory
from lib_dlhpc.training.pipeline_messages import Pipe
from lib_dlhpc.training.record import MOST_STEPS, Recorder, gather
from lib_dlhpc.training.snapshot import Place, gathered, restore, save
from lib_dlhpc.training.snapshot_parts import restore_stages, save_stages, whole_arrays
from lib_dlhpc.training.stage import Stage
from lib_dlhpc.training.staleness import Updates
from lib_dlhpc.training.versions import Versions

REPORT_INTERVAL = 0.5  # s between two reports of the loss, at least
LOOK = 0.05  # s between two looks of rank 0 at its clock
TEST_BATCH = 256  # samples
Report = Callable[[dict[str, Any]], None]


class Diverged(ArithmeticError):
    """The loss is not finite, or far above that of a guess at the end of the run."""


@dataclass
class Run:
    """The result of a run."""

    network: Network
    timeline: Timeline | None  # of all ranks, on rank 0
    loss: float  # the last one reported
    accuracy: float | None  # on the test samples; None for regression
    test_loss: float
    samples: int  # trained on, over all ranks
    seconds: float
    sent: float = 0.0  # B that a rank sends in a mean step
    updates: Updates | None = None  # of an asynchronous run
    memory: list[Memory] = field(default_factory=list)  # of each rank, on rank 0
    # s that each rank waited for a core, (ranks, steps), on rank 0; empty if unknown
    core_wait: list[list[float]] = field(default_factory=list)
    experts: list[ExpertLoad] = field(default_factory=list)  # of each layer of experts, on rank 0

    @property
    def gradients(self) -> int:
        """B of a rank's gradients in a step; of its first stage, if it has several."""
        return int(self.network.table.size * self.network.dtype.itemsize)


@dataclass
class Rank:
    """One rank of a run."""

    experiment: Experiment
    groups: Groups
    data: Data
    stages: list[Stage]  # one, or one for each chunk
    pipe: Pipe
    recorder: Recorder
    versions: Versions | None = field(default=None, init=False)
    readers: Readers | None = field(default=None, init=False)  # None: samples are in memory
    # _step(step, at, indices): train on one global batch; return this rank's part of its mean loss.
    _step: ClassVar[Callable[..., float]]

    @property
    def comm(self) -> Any:
        """The communicator of all ranks."""
        return self.groups.world

    @property
    def network(self) -> Network:
        """The network; if it is partitioned, this rank's first part."""
        return self.stages[0].network

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer of `network`."""
        return self.stages[0].optimizer

    @cached_property
    def rows(self) -> slice | None:
        """The rows of each sample that this rank reads; None for all."""
        spatial = int(self.experiment.strategy.spatial)
        if spatial == 1:
            return None
        return slice(*layout.rows_read(self.experiment.model, spatial)[self.groups.place.spatial])

    @property
    def reads(self) -> bool:
        """Whether this rank reads samples."""
        return any(stage.reads for stage in self.stages)

    def upcoming(self, place: Place) -> Iterator[Array]:
        """Yield the numbers of this rank's samples of each step from `place` on."""
        for epoch in range(place.epoch, ceil(self.experiment.run.epochs)):
            batches = global_batches(self.experiment, len(self.data.x), epoch)
            first = place.batch if epoch == place.epoch else 0
            for at, indices in islice(batches, first, None):
                if at < self.experiment.run.epochs:
                    yield indices[self._own(len(indices))]

    def run(
        self,
        place: Place,
        folder: Path | None,
        report: Report,
        begins: Callable[[int], None],
        shift: float,
    ) -> Run:
        """Train from `place` on; arguments as of `train`. shift: from this rank's clock to that of rank 0, in s."""
        begun = reported = saved = monotonic()
        loss, samples, interval = np.nan, 0, self.experiment.run.checkpoint_interval
        decisions = Decisions(self.comm, min(LOOK, interval or LOOK))
        first = place.step
        accuracy, test_loss = self._test(place.step) if place.step else (None, np.nan)
        for taken, (epoch, indices) in enumerate(self._batches(place)):
            begins(place.step)
            self.recorder.on = taken < MOST_STEPS
            own_loss = self._step(place.step, epoch, indices)
            samples += len(indices)
            last, met = self._advance(place), monotonic()
            version = self.versions is not None and self.versions.due(
                place.step, last, self._at(place) >= self.experiment.run.epochs
            )
            unaveraged = self._local_updates and place.step % self.experiment.strategy.local_steps
            if unaveraged and not (last or version):
                continue  # local updates: ranks synchronize only to average
            due = folder is not None and 0 < interval < met - saved
            report_due, keep = decisions.decided(met - reported > REPORT_INTERVAL, due)
            if last or report_due or version:
                reported, loss = monotonic(), self._mean_loss(own_loss)
                row = {"step": place.step, "epoch": epoch, "loss": loss}
                row |= {"rate": self._rate(epoch, len(indices)), "seconds": reported - begun}
                self._report(report, row)
            if last:
                accuracy, test_loss = self._test(place.step)
                tested = {"test_loss": test_loss, "accuracy": accuracy}
                self._report(report, {"epoch": self._at(place), **tested})
            if folder is not None and (version if self.versions else last or keep):
                metrics = {"epoch": self._at(place), "loss": loss} | (tested if last else {})
                self._save(folder, place, metrics)
                saved = monotonic()
        self._settle()
        seconds = monotonic() - begun
        self._unite()
        timeline = self._refined(gather(self.recorder, self.comm, shift))
        sent = self.recorder.sent / max(place.step - first, 1)
        run = Run(self.network, timeline, loss, accuracy, test_loss, samples, seconds, sent)
        run.core_wait = self.comm.gather(self.recorder.core_wait.steps) or []
        return replace(run, experts=expert_load(self.groups, self.stages))

    @property
    def _local_updates(self) -> bool:
        """Whether a rank updates by its own gradients only."""
        return self.experiment.strategy.update == "local"

    def _refined(self, timeline: Timeline | None) -> Timeline | None:
        """Return the timeline of all ranks, on rank 0, refined by the engine."""
        return timeline

    def _batches(self, place: Place) -> Iterator[tuple[float, Array]]:
        """Yield the global batches from `place` on; the caller advances `place`."""
        epochs = self.experiment.run.epochs
        while place.epoch < epochs:
            batches = global_batches(self.experiment, len(self.data.x), place.epoch)
            for epoch, indices in islice(batches, place.batch, None):
                if epoch >= epochs:
                    return
                yield epoch, indices

    def _advance(self, place: Place) -> bool:
        """Advance `place` by a batch; return whether an epoch or the run ends there."""
        place.step, place.batch = place.step + 1, place.batch + 1
        done = place.batch * self._batch_size(place.epoch) / len(self.data.x)
        if done >= 1:
            place.epoch, place.batch = place.epoch + 1, 0
        return done >= 1 or place.epoch + done >= self.experiment.run.epochs

    def _at(self, place: Place) -> float:
        """Return the number of completed epochs."""
        return place.epoch + place.batch * self._batch_size(place.epoch) / len(self.data.x)

    def _batch_size(self, epoch: int) -> int:
        return batch_at(self.experiment.training, epoch, self._first_batch, len(self.data.x))

    @cached_property
    def _first_batch(self) -> int:
        return int(self.experiment.global_batch)

    def _rate(self, at: float, batch: int) -> float:
        return rate_at(self.experiment.training, at, float(self.experiment.run.epochs), batch)

    def _own(self, batch: int) -> slice:
        """Return this replica's samples of a global batch."""
        return share(batch, *self.groups.reads)

    def _fetch(self, indices: Array) -> Array | None:
        """Wait for this rank's samples of a step, and record the wait; None where they are in memory."""
        if self.readers is None:
            return None
        begin = self.recorder.now()
        batch = self.readers.take()
        assert np.array_equal(batch.indices, indices)
        self.recorder.add("input", "wait for input", begin, self.recorder.now())
        self.recorder.add("input", "fetch the next batch", batch.ordered, batch.ready, "input")
        return batch.x

    def _mean_loss(self, loss: float) -> float:
        return float(self.comm.allreduce(loss)) / (self.comm.size if self._local_updates else 1)

    @cached_property
    def _classes_before(self) -> int | None:
        """Where this rank's classes begin if the ranks of its tensor group have some each, else None."""
        return classes_before(self.stages[-1].part.model.layers[-1])

    @property
    def _counts(self) -> bool:
        """Whether this rank's part of a loss is not another's as well."""
        return self.groups.first or self._classes_before is not None

    def _loss(self, outputs: Array, targets: Array, samples: int) -> tuple[float, Array]:
        if self._classes_before is not None:
            of_all = samples * self.groups.context.size
            return losses.split_cross_entropy(outputs, targets, of_all, self._classes_before)
        function = losses.softmax_cross_entropy if self.data.classes else losses.mean_squared_error
        return function(outputs, targets, samples * self.groups.context.size)

    def _test(self, step: int) -> tuple[float | None, float]:
        """Return accuracy and loss on the test samples: a forward-only pipeline."""
        begin = self.recorder.now()
        before = self.recorder.on, self.recorder.sent
        self.recorder.on = False
        averaged, right, loss = self._unite(), 0, 0.0
        for part in self._test_batches():
            outputs = self._evaluate(part)
            if outputs is None or not self._counts:
                continue
            targets = self.data.test_y[part]
            if self.data.classes:
                right += self._right(outputs, targets)
            loss += self._loss(outputs, targets, len(self.data.test_x))[0]
        self.pipe.finish()
        right, loss = self.comm.allreduce(right), self.comm.allreduce(loss)
        if not np.isfinite(loss):
            raise Diverged(f"the loss on the test samples is not finite: after step {step}")
        for array, values in averaged:
            array[...] = values
        self.recorder.on, self.recorder.sent = before
        self.recorder.leave_out(self.comm.allreduce(self.recorder.now() - begin, min))
        tested = self.data.test_y.size * self.groups.context.size
        return (right / tested if self.data.classes else None), loss

    def _right(self, outputs: Array, targets: Array) -> int:
        """Return how many positions have their target as the most probable class; of split classes, on one rank."""
        if self._classes_before is not None:
            of_ranks = self.groups.tensor.allgather(outputs)
            outputs = np.concatenate(of_ranks, axis=-1)
        return int(np.sum(outputs.argmax(axis=-1) == targets)) * self.groups.first

    def _test_batches(self) -> Iterator[slice]:
        """Yield this replica's batches of test samples; all have as many, as they may gather weights together."""
        (here, replicas), samples = self.groups.reads, len(self.data.test_x)
        mine = share(samples, here, replicas)
        for number in range(ceil(ceil(samples / replicas) / TEST_BATCH)):
            ends = (mine.start + (number + more) * TEST_BATCH for more in (0, 1))
            yield slice(*(min(end, mine.stop) for end in ends))

    def _evaluate(self, part: slice) -> Array | None:
        """Take test samples through all stages; return the outputs on ranks of the last one."""
        read, y = own_rows(self.data.test_x, self.rows), self.data.test_y
        depth = self.groups.pipeline.size
        now = Step(self.stages, depth, [part], lambda _: read[part], lambda _: y[part], 0)
        outputs = None
        for stage, _, _, given in through(now, self.pipe, 0, training=False):
            if stage.last:
                outputs = next(iter(given.values()))
        return outputs

    def _unite(self) -> list[tuple[Array, Array]]:
        """Average over the replicas what is local to each; return the local values.

        Then all ranks evaluate, and at the end hold, one network: running statistics are local with local
        normalization, and so are weights between two averages of local updates.
        """
        if self.groups.data.size == 1:
            return []
        weights = [self.network.weights] if self._local_updates else []
        if self.experiment.training.normalization == "local":
            weights += [stage.network.statistics for stage in self.stages]
        local = [(array, array.copy()) for array in weights if array.size]
        for array, _ in local:
            mean(self.groups.data, array)
        return local

    def _save(self, folder: Path, place: Place, metrics: dict[str, Any]) -> None:
        begin = self.recorder.now()
        if self.versions is not None:
            self.versions.save(self._state(place), place.step, metrics, self.recorder)
        else:
            self._write(folder, place)
        end = self.recorder.now()
        self.recorder.add("checkpoint", "wait for the checkpoint", begin, end)
        if self.versions is None:
            self.recorder.add("checkpoint", "write a checkpoint", begin, end, "checkpoint")

    def _settle(self) -> None:
        """Wait until everything saved is on disk, so that any rank can read it."""
        begin = self.recorder.now()
        if self.versions is not None:
            self.versions.settle(self.recorder)
            self.comm.Barrier()
        self.recorder.add("checkpoint", "wait for the checkpoint", begin, self.recorder.now())

    def _state(self, place: Place) -> Mapping[str, Array] | Iterable[Stream]:
        """Return the arrays of a version, on rank 0; all ranks must consume them."""
        if is_partitioned(self.experiment):
            self._rest()
            return whole_arrays(self.experiment, self.groups, self.stages, place)
        return gathered(self.comm, self.experiment, self.network, self.optimizer, place)

    def _write(self, folder: Path, place: Place) -> None:
        if is_partitioned(self.experiment):
            self._rest()
            save_stages(folder, self.experiment, self.groups, self.stages, place)
        else:
            save(folder, self.comm, self.experiment, self.network, self.optimizer, place)

    def restore(self, folder: Path) -> Place:
        """Restore the snapshot of a run folder, if there is one; return where training resumes."""
        if is_partitioned(self.experiment):
            how = (self.experiment, self.groups, self.stages, self.versions)
            return restore_stages(folder, *how)
        return restore(folder, self.comm, self.network, self.optimizer, self.versions)

    def _rest(self) -> None:
        if self.experiment.strategy.offload != "none":  # full tensors are assembled in that memory
            for stage in self.stages:
                stage.network.context.arena.release()

    def _report(self, report: Report, row: dict[str, Any]) -> None:
        if self.comm.rank == 0:
            report(row)

    def _where(self, step: int, x: Array) -> str:
        """Return a message with the rank, step and layer of the first non-finite output."""
        # The other ranks do not search, so they would not join a sum.
        self.network.context.sum_over_ranks = lambda values: values
        layer = self.network.first_non_finite(x)
        return f"the loss is not finite: rank {self.comm.rank}, step {step}, first in {layer}"
