"""train: a run on the ranks of a communicator, equal to the same run on one rank.

Every rank takes its share of each global batch; losses are means over the global batch, so gradients are
summed, never averaged over ranks, and shares may be uneven. With local updates every rank moves its
own weights, and every so many steps all take the mean of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.train import loss as losses
from lib_dlhpc.train.data import Data, global_batches, load, share
from lib_dlhpc.train.exchange import Exchange, exchange_of
from lib_dlhpc.train.layers.kept import Array
from lib_dlhpc.train.network import Network
from lib_dlhpc.train.optimizers import Optimizer
from lib_dlhpc.train.rates import rate_at
from lib_dlhpc.train.record import MOST_STEPS, Recorder, gather, offset
from lib_dlhpc.train.snapshot import Place, restore, save

TOLD = 0.5  # s between two reports of the loss, at least
Report = Callable[[dict[str, Any]], None]


class Diverged(ArithmeticError):
    """The loss is no number any more."""


@dataclass
class Run:
    """What came of a run."""

    network: Network
    timeline: Timeline | None  # of all ranks, on rank 0
    loss: float  # the last that was reported
    accuracy: float | None  # on the test samples; None where targets are no classes
    test_loss: float
    samples: int  # trained on, all ranks together
    seconds: float


def train(
    experiment: Experiment,
    comm: Any,
    folder: Path | None = None,
    report: Report = lambda row: None,
) -> Run:
    """Train on the ranks of `comm`; all of them call this.

    folder: snapshots are read from there and written there, at the end of each epoch and every
    run.checkpoint_interval seconds. report: called on rank 0 with what is new: {"step", "epoch", "loss",
    "rate", "seconds"}, and at the end of an epoch {"epoch", "accuracy", "test_loss"}. Raises Diverged with
    rank, step and layer when the loss is no number, SpecError for what cannot be trained.
    """
    precision = np.float64 if experiment.strategy.precision == "fp64" else np.float32
    data = load(experiment, precision)
    network = Network(experiment.model, precision, experiment.run.seed)
    if experiment.training.normalisation == "global" and comm.size > 1:
        network.context.sum_over_ranks = _sums(comm)
    optimizer = Optimizer(experiment.strategy.optimizer, experiment.training)
    place = Place()
    if folder is not None:
        # One rank reads, so that all take up the same snapshot even if one is being written.
        if comm.rank == 0:
            place = restore(folder, network, optimizer)
        place = _spread(comm, network, optimizer, place)
    recorder = Recorder()
    shift = offset(comm) if comm.size > 1 else 0.0
    with exchange_of(experiment, network.gradients, comm, recorder) as exchange:
        own = _Ranks(experiment, comm, data, network, optimizer, exchange, recorder)
        return own.run(place, folder, report, shift)


@dataclass
class _Ranks:
    """One rank of a run."""

    experiment: Experiment
    comm: Any
    data: Data
    network: Network
    optimizer: Optimizer
    exchange: Exchange
    recorder: Recorder

    def run(self, place: Place, folder: Path | None, report: Report, shift: float) -> Run:
        begun = told = saved = monotonic()
        loss, samples = np.nan, 0
        accuracy, test_loss = self._test() if place.step else (None, np.nan)
        for at, indices in self._batches(place):
            self.recorder.on = samples < MOST_STEPS * len(indices)
            own_loss = self._step(place.step, at, indices)
            samples += len(indices)
            place.step += 1
            place.batch += 1
            last = place.batch * self._batch_size(place.epoch) >= len(self.data.x)
            if last or self._agree(monotonic() - told > TOLD):
                told, loss = monotonic(), self._mean_loss(own_loss)
                row = {"step": place.step, "epoch": at, "loss": loss}
                row |= {"rate": self._rate(at, len(indices)), "seconds": told - begun}
                self._tell(report, row)
            if last:
                place.epoch, place.batch = place.epoch + 1, 0
                accuracy, test_loss = self._test()
                told_epoch = {"epoch": float(place.epoch), "test_loss": test_loss}
                self._tell(report, told_epoch | {"accuracy": accuracy})
            due = 0 < self.experiment.run.checkpoint_interval < monotonic() - saved
            if folder is not None and self._agree(last or due):
                self._save(folder, place)
                saved = monotonic()
        seconds = monotonic() - begun
        timeline = gather(self.recorder, self.comm, shift)
        return Run(self.network, timeline, loss, accuracy, test_loss, samples, seconds)

    def _batches(self, place: Place) -> Iterator[tuple[float, Array]]:
        """Yield the global batches that are left, from `place` on; the caller moves `place`."""
        epochs = self.experiment.run.epochs
        while place.epoch < epochs:
            epoch, skip = place.epoch, place.batch
            batches = list(global_batches(self.experiment, len(self.data.x), epoch))
            for at, indices in batches[skip:]:
                if at >= epochs:
                    return
                yield at, indices

    def _batch_size(self, epoch: int) -> int:
        _, first = next(global_batches(self.experiment, len(self.data.x), epoch))
        return len(first)

    def _step(self, step: int, at: float, indices: Array) -> float:
        """Train on one global batch; return this rank's share of its mean loss."""
        strategy, recorder, now = self.experiment.strategy, self.recorder, self.recorder.now
        mine = share(len(indices), self.comm.rank, self.comm.size)
        own = indices[mine]
        self.network.context.step, self.network.context.first_sample = step, mine.start
        alone = strategy.update == "local"
        # A rank that is to move by itself takes its samples for as many as all ranks have.
        total = len(indices) / self.comm.size if alone else len(indices)
        begin = now()
        outputs = self.network.forward(self.data.x[own])
        function = losses.softmax_cross_entropy if self.data.classes else losses.mean_squared_error
        loss, dy = function(outputs, self.data.y[own], total)
        if not np.isfinite(loss):
            raise Diverged(self._where(step, own))
        half = self.exchange.wire is not self.network.gradients
        scale = self.experiment.training.loss_scale if half else 1.0
        if half:
            dy *= dy.dtype.type(scale)
        middle = now()
        recorder.add("forward", "forward", begin, middle)
        marks = [middle]

        def filled(start: int) -> None:
            marks.append(now())
            if not alone:
                self.exchange.release(start)

        self.network.backward(dy, filled)
        end = now()
        recorder.add("backward", "backward", middle, end)
        if not alone:
            self.exchange.finish()
            recorder.add("wait", "wait for the exchange", end, now())
        if half:
            self.network.gradients /= self.network.dtype.type(scale)
        begin = now()
        self.optimizer.update(self.network, self._rate(at, len(indices)))
        recorder.add("update", "update", begin, now())
        if alone and (step + 1) % strategy.local_steps == 0:
            begin = now()
            _mean(self.comm, self.network.weights)
            recorder.add("wait", "mean of the weights", begin, now())
        return loss

    def _rate(self, at: float, batch: int) -> float:
        return rate_at(self.experiment.training, at, float(self.experiment.run.epochs), batch)

    def _mean_loss(self, own: float) -> float:
        local = self.experiment.strategy.update == "local"
        return float(self.comm.allreduce(own)) / (self.comm.size if local else 1)

    def _test(self) -> tuple[float | None, float]:
        """Return accuracy and loss on the test samples; every rank takes its share of them."""
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
        return (right / self.data.test_y.size if self.data.classes else None), loss

    def _save(self, folder: Path, place: Place) -> None:
        if self.comm.rank == 0:
            save(folder, self.network, self.optimizer, place)
        self.comm.Barrier()

    def _agree(self, mine: bool) -> bool:
        """Do what rank 0 says: clocks differ, and all ranks must take the same way."""
        return bool(self.comm.bcast(mine)) if self.comm.size > 1 else mine

    def _tell(self, report: Report, row: dict[str, Any]) -> None:
        if self.comm.rank == 0:
            report(row)

    def _where(self, step: int, own: Array) -> str:
        """Say where numbers stopped being numbers."""
        layer = self.network.first_without_numbers(self.data.x[own])
        return (
            f"the loss is no number any more: rank {self.comm.rank}, step {step}, first in {layer}"
        )


def _sums(comm: Any) -> Callable[[Array], Array]:
    from mpi4py import MPI

    def total(values: Array) -> Array:
        result = np.ascontiguousarray(values)
        comm.Allreduce(MPI.IN_PLACE, result, MPI.SUM)
        return result

    return total


def _mean(comm: Any, weights: Array) -> None:
    weights[...] = _sums(comm)(weights)
    weights /= weights.dtype.type(comm.size)


def _spread(comm: Any, network: Network, optimizer: Optimizer, place: Place) -> Place:
    """Give all ranks what rank 0 has."""
    comm.Bcast(network.weights)
    comm.Bcast(network.statistics)
    optimizer.state, optimizer.updates, place = comm.bcast(
        (optimizer.state, optimizer.updates, place)
    )
    return place
