"""Ranks: the loop of a training run on one rank, step by step; every rank has the full network."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.storage.snapshots import Stream
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.training import loss as losses
from lib_dlhpc.training.collectives import decided_by_rank_zero, mean
from lib_dlhpc.training.data import Data, global_batches, samples_of, share
from lib_dlhpc.training.exchange import Exchange
from lib_dlhpc.training.network import SINGLE, Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.peak import Memory
from lib_dlhpc.training.rates import batch_at, rate_at
from lib_dlhpc.training.record import MOST_STEPS, Recorder, gather
from lib_dlhpc.training.snapshot import Place, gathered, save
from lib_dlhpc.training.staleness import Updates
from lib_dlhpc.training.versions import Versions

REPORT_INTERVAL = 0.5  # s between two reports of the loss, at least
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

    @property
    def gradients(self) -> int:
        """B of a rank's gradients in a step; of its first stage, if it has several."""
        return int(self.network.table.size * self.network.dtype.itemsize)


@dataclass
class Ranks:
    """One rank of a run."""

    experiment: Experiment
    comm: Any
    data: Data
    network: Network
    optimizer: Optimizer
    exchange: Exchange
    recorder: Recorder
    versions: Versions | None = field(default=None, init=False)

    def run(
        self,
        place: Place,
        folder: Path | None,
        report: Report,
        begins: Callable[[int], None],
        shift: float,
    ) -> Run:
        begun = reported = saved = monotonic()
        loss, samples, interval = np.nan, 0, self.experiment.run.checkpoint_interval
        first = place.step
        accuracy, test_loss = self._test(place.step) if place.step else (None, np.nan)
        for taken, (at, indices) in enumerate(self._batches(place)):
            begins(place.step)
            self.recorder.on = taken < MOST_STEPS
            own_loss = self._step(place.step, at, indices)
            samples += len(indices)
            last, met = self._advance(place), monotonic()
            version = self.versions is not None and self.versions.due(
                place.step, last, self._at(place) >= self.experiment.run.epochs
            )
            apart = self._local_updates and place.step % self.experiment.strategy.local_steps
            if apart and not (last or version):
                continue  # local updates: ranks synchronize only to average
            due = folder is not None and 0 < interval < met - saved
            report_due, keep = decided_by_rank_zero(
                self.comm, met - reported > REPORT_INTERVAL, due
            )
            if last or report_due or version:
                reported, loss = monotonic(), self._mean_loss(own_loss)
                row = {"step": place.step, "epoch": at, "loss": loss}
                row |= {"rate": self._rate(at, len(indices)), "seconds": reported - begun}
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
        sent = self._sent / max(place.step - first, 1)
        run = Run(self.network, timeline, loss, accuracy, test_loss, samples, seconds, sent)
        run.core_wait = self.comm.gather(self.recorder.core_wait.steps) or []
        return run

    @property
    def _sent(self) -> float:
        """B that this rank has sent so far."""
        return self.exchange.sent

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
            for at, indices in islice(batches, place.batch, None):
                if at >= epochs:
                    return
                yield at, indices

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
        batch = int(self.experiment.global_batch)
        return batch_at(self.experiment.training, epoch, batch, len(self.data.x))

    def _step(self, step: int, at: float, indices: Array) -> float:
        """Train on one global batch; return this rank's part of its mean loss."""
        recorder, now, local = self.recorder, self.recorder.now, self._local_updates
        mine = share(len(indices), self.comm.rank, self.comm.size)
        own = indices[mine]
        self.network.context.step, self.network.context.first_sample = step, mine.start
        self.exchange.epoch = at
        begin = now()
        x = samples_of(self.experiment, self.data, step, indices, mine)
        fetched = now()
        recorder.add("input", "fetch the batch", begin, fetched)
        before = None if len(own) else self.network.statistics.copy()
        outputs = self.network.forward(x)
        if before is not None and self.experiment.training.normalization == "local":
            self.network.statistics[...] = before  # a rank without samples has no statistics
        function = losses.softmax_cross_entropy if self.data.classes else losses.mean_squared_error
        loss, dy = function(outputs, self.data.y[own], len(indices))
        if local:  # local samples stand for the global batch
            loss *= self.comm.size
            dy *= dy.dtype.type(self.comm.size)
        if not np.isfinite(loss):
            raise Diverged(self._where(step, x))
        half = self.exchange.wire is not self.network.gradients
        scale = self.experiment.training.loss_scale if half else 1.0
        if half:
            dy *= dy.dtype.type(scale)
        recorder.add("forward", "forward", fetched, now())
        dys = {self.network.gives[0]: dy}
        del outputs, dy  # backward releases them as early as possible
        self._run_backward(dys)
        if half:
            self.network.gradients /= self.network.dtype.type(scale)
        begin = now()
        self.optimizer.update(self.network, self._rate(at, len(indices)))
        recorder.add("update", "update", begin, now())
        if local and (step + 1) % self.experiment.strategy.local_steps == 0:
            begin = now()
            mean(self.comm, self.network.weights)
            self.exchange.sent += self.network.weights.nbytes
            recorder.add("wait", "mean of the weights", begin, now())
        return loss

    def _run_backward(self, dys: dict[str, Array]) -> None:
        """Run backward, and exchange the gradients of each bucket that it completes."""
        recorder, now, local = self.recorder, self.recorder.now, self._local_updates
        edges, first = [now()], [start for start, _ in self.exchange.bounds]

        def filled(start: int) -> None:
            while len(edges) <= len(first) and first[len(edges) - 1] >= start:
                edges.append(now())
            if not local:
                self.exchange.release(start)

        self.network.back(SINGLE, dys, filled)
        end = now()
        for bucket, (start, stop) in enumerate(pairwise(edges), 1):
            recorder.add("backward", f"backward {bucket}", start, stop)
        recorder.add("backward", "backward to the input", edges[-1], end)
        if not local:
            self.exchange.finish()
            recorder.add("wait", "wait for the exchange", end, now())

    def _rate(self, at: float, batch: int) -> float:
        return rate_at(self.experiment.training, at, float(self.experiment.run.epochs), batch)

    def _mean_loss(self, own: float) -> float:
        return float(self.comm.allreduce(own)) / (self.comm.size if self._local_updates else 1)

    def _test(self, step: int) -> tuple[float | None, float]:
        """Return accuracy and loss on the test samples; every rank evaluates its part."""
        begin = self.recorder.now()
        own = self._unite()
        mine = share(len(self.data.test_x), self.comm.rank, self.comm.size)
        right, loss = 0, 0.0
        function = losses.softmax_cross_entropy if self.data.classes else losses.mean_squared_error
        for start in range(mine.start, mine.stop, 256):
            part = slice(start, min(start + 256, mine.stop))
            outputs = self.network.forward(self.data.test_x[part], training=False)
            if self.data.classes:
                right += int(np.sum(outputs.argmax(axis=-1) == self.data.test_y[part]))
            loss += function(outputs, self.data.test_y[part], len(self.data.test_x))[0]
        right, loss = self.comm.allreduce(right), self.comm.allreduce(loss)
        if not np.isfinite(loss):
            raise Diverged(f"the loss on the test samples is not finite: after step {step}")
        for array, values in own:
            array[...] = values
        self.recorder.leave_out(self.comm.allreduce(self.recorder.now() - begin, min))
        return (right / self.data.test_y.size if self.data.classes else None), loss

    def _unite(self) -> list[tuple[Array, Array]]:
        """Average over the ranks what is local to each; return the local values.

        Then all ranks evaluate, and at the end hold, one network: running statistics are local with local
        normalization, and so are weights between two averages of local updates.
        """
        network = self.network
        own = [network.weights] if self._local_updates else []
        own += [network.statistics] if self.experiment.training.normalization == "local" else []
        local = [(array, array.copy()) for array in own if array.size]
        for array, _ in local:
            mean(self.comm, array)
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
        return gathered(self.comm, self.experiment, self.network, self.optimizer, place)

    def _write(self, folder: Path, place: Place) -> None:
        save(folder, self.comm, self.experiment, self.network, self.optimizer, place)

    def _report(self, report: Report, row: dict[str, Any]) -> None:
        if self.comm.rank == 0:
            report(row)

    def _where(self, step: int, x: Array) -> str:
        """Return a message with the rank, step and layer of the first non-finite output."""
        self.network.context.sum_over_ranks = lambda values: (
            values
        )  # the other ranks do not take part
        layer = self.network.first_non_finite(x)
        return f"the loss is not finite: rank {self.comm.rank}, step {step}, first in {layer}"
