"""Asynchronous updates: workers push gradients to parameter servers and pull weights, without waiting for each other.

Workers are ranks 0 .. W - 1, the servers the ranks after them, each with an equal part of the weights and of the
optimizer state. The mini-batches of an epoch, of strategy.batch samples each, are assigned to the workers round
robin; both sides know this order and the rate, so a message holds gradients or weights only. A server applies
gradients in the order of arrival and sends its part of the weights back: at once, or, with a bound s, when the
worker is at most s steps ahead of the slowest.

An epoch ends when all its updates are applied. Then all ranks synchronize, evaluate together and write a snapshot;
run.checkpoint_interval is ignored. A resumed run continues from a consistent state but is not bitwise
reproducible, because the order of arrival differs from run to run. Sources: Dean et al., "Large scale
distributed deep networks" (2012); Ho et al., "More effective distributed ML via a stale synchronous
parallel parameter server" (2013).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.collectives import allreduce_of
from lib_dlhpc.training.data import Data, global_batches, precision_of, samples_of, share
from lib_dlhpc.training.groups import groups_of
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.pipeline_messages import Pipe
from lib_dlhpc.training.rank import REPORT_INTERVAL, Diverged, Rank, Report, Run
from lib_dlhpc.training.record import MOST_STEPS, Recorder, gather
from lib_dlhpc.training.snapshot import Place
from lib_dlhpc.training.staleness import Log, ServerTimes, WorkerTimes, add_rows
from lib_dlhpc.training.synchronous import on_ranks, stages_of

PUSH, PULL = 1, 2  # tags
Batches: TypeAlias = list[tuple[float, Array]]  # epoch as a fraction, indices


@contextmanager
def asynchronous(
    experiment: Experiment, comm: Any, data: Data, recorder: Recorder, folder: Path | None = None
) -> "Iterator[Asynchronous]":
    """Yield this rank of a run. Raises SpecError if no rank is left as a worker."""
    with ExitStack() as stack:
        groups = stack.enter_context(groups_of(on_ranks(experiment, comm.size), comm))
        stages = stages_of(experiment, groups, recorder, stack, folder)
        pipe = Pipe(groups.pipeline, (comm.rank,), precision_of(experiment), recorder)
        yield Asynchronous(experiment, groups, data, stages, pipe, recorder)


@dataclass
class Asynchronous(Rank):
    """One rank of an asynchronous run: a worker or a server."""

    asked: list[WorkerTimes] = field(default_factory=list)
    log: Log = field(default_factory=Log)
    own_loss: float = np.nan  # of this worker's last mini-batch

    def __post_init__(self) -> None:
        """Partition the weights over the servers. Raises SpecError if no rank is left as a worker."""
        strategy = self.experiment.strategy
        self.servers = int(strategy.servers)
        self.workers = self.comm.size - self.servers
        if self.workers < 1:
            raise SpecError(
                f"strategy.servers = {self.servers}: {self.comm.size} ranks leave no worker; start"
                f" {self.servers + 1} or more."
            )
        self.experiment = replace(
            self.experiment, strategy=replace(strategy, nodes=1, devices_per_node=1)
        )
        size = self.network.weights.size
        self.parts = [share(size, server, self.servers) for server in range(self.servers)]

    def run(
        self,
        place: Place,
        folder: Path | None,
        report: Report,
        begins: Callable[[int], None],
        shift: float,
    ) -> Run:
        begun, loss, samples = monotonic(), np.nan, 0
        accuracy, test_loss = self._test(place.step) if place.step else (None, np.nan)
        shard = None if self.comm.rank < self.workers else self._shard()

        def report_step(step: int, at: float, batch: int, loss: float) -> None:
            row = {"step": step, "epoch": at, "loss": loss, "rate": self._rate(at, batch)}
            self._report(report, row | {"seconds": monotonic() - begun})

        while batches := self._left(place):
            if shard is None:
                self._work(batches, place.step, report_step, begins)
            else:
                self._serve(batches, shard)
            self._synchronize()
            for _, each in batches:
                samples += len(each)
                self._advance(place)
            at, indices = batches[-1]
            loss = self._mean_loss(self.own_loss)
            report_step(place.step, at, len(indices), loss)
            accuracy, test_loss = self._test(place.step)
            ended = self._at(place)
            self._report(report, {"epoch": ended, "test_loss": test_loss, "accuracy": accuracy})
            if folder is not None:
                self._collect()
                metrics = {
                    "epoch": ended,
                    "loss": loss,
                    "accuracy": accuracy,
                    "test_loss": test_loss,
                }
                self._save(folder, place, metrics)
        self._settle()
        seconds = monotonic() - begun
        log = self._collect_log(shift)
        workers = self.comm.Split(int(shard is None), self.comm.rank)
        timeline = gather(self.recorder, workers, shift) if shard is None else None
        workers.Free()
        run = Run(self.network, timeline, loss, accuracy, test_loss, samples, seconds)
        run.sent, run.updates = float(self.network.gradients.nbytes), log.as_updates()
        return run

    @property
    def reads(self) -> bool:
        """Whether this rank is a worker."""
        return self.comm.rank < self.workers

    def upcoming(self, place: Place) -> Iterator[Array]:
        """Yield the numbers of this worker's samples of each of its mini-batches from `place` on."""
        ahead = replace(place)
        while batches := self._left(ahead):
            yield from (indices for _, indices in batches[self.comm.rank :: self.workers])
            ahead.epoch, ahead.batch = ahead.epoch + 1, 0

    def _left(self, place: Place) -> Batches:
        """Return the remaining mini-batches of an epoch, of all workers."""
        batches = list(global_batches(self.experiment, len(self.data.x), place.epoch))
        epochs = self.experiment.run.epochs
        return [(epoch, indices) for epoch, indices in batches[place.batch :] if epoch < epochs]

    def _work(
        self,
        batches: Batches,
        step: int,
        report_step: Callable[[int, float, int, float], None],
        begins: Callable[[int], None],
    ) -> None:
        """Process every W-th mini-batch: gradient, push, pull. step: the number of the first of `batches`."""
        reported = monotonic()
        for number in range(self.comm.rank, len(batches), self.workers):
            epoch, indices = batches[number]
            begins(step + number)
            self.recorder.on = len(self.asked) < MOST_STEPS
            self.own_loss = self._gradient(step + number, indices)
            begin = self.recorder.now()
            self._push_and_pull()
            self.asked.append(WorkerTimes(begin, self.recorder.now()))
            if monotonic() - reported > REPORT_INTERVAL:
                reported = monotonic()
                report_step(step + number + 1, epoch, len(indices), self.own_loss)

    def _gradient(self, step: int, indices: Array) -> float:
        """Compute the gradients of a mini-batch; return its mean loss. Raises Diverged."""
        network, now, add = self.network, self.recorder.now, self.recorder.add
        network.context.step, network.context.first_sample = step, 0
        read = self._fetch(indices)
        begin = now()
        x = samples_of(self.experiment, self.data, step, indices, slice(None), read=read)
        fetched = now()
        loss, dy = self._loss(network.forward(x), self.data.y[indices], len(indices))
        if not np.isfinite(loss):
            raise Diverged(self._where(step, x))
        middle = now()
        network.backward(dy)
        add("input", "fetch the batch", begin, fetched)
        add("forward", "forward", fetched, middle)
        add("backward", "backward", middle, now())
        return loss

    def _push_and_pull(self) -> None:
        """Send each server its part of the gradients and receive the updated weights.

        Workers start with different servers. Receive buffers are not read, and send buffers not written,
        until all messages are complete.
        """
        from mpi4py import MPI

        turn = [(self.comm.rank + server) % self.servers for server in range(self.servers)]
        weights, gradients = self.network.weights, self.network.gradients
        requests = [
            self.comm.Irecv(weights[self.parts[server]], self.workers + server, PULL)
            for server in turn
        ]
        requests += [
            self.comm.Isend(gradients[self.parts[server]], self.workers + server, PUSH)
            for server in turn
        ]
        MPI.Request.Waitall(requests)

    def _shard(self) -> Network:
        """Return this server's part of the network, which its optimizer updates."""
        part = self.parts[self.comm.rank - self.workers]
        shard = copy(self.network)
        shard.weights, shard.gradients = self.network.weights[part], self.network.gradients[part]
        shard.parameters = [
            replace(
                parameter,
                start=max(parameter.start, part.start) - part.start,
                stop=min(parameter.stop, part.stop) - part.start,
            )
            for parameter in self.network.parameters
            if parameter.start < part.stop and parameter.stop > part.start
        ]
        state = self.optimizer.state
        self.optimizer.state = {name: whole[part].copy() for name, whole in state.items()}
        return shard

    def _serve(self, batches: Batches, shard: Network) -> None:
        """Apply the gradients of these mini-batches as they arrive, and send the weights back."""
        from mpi4py import MPI

        bound, status, now = self.experiment.strategy.staleness, MPI.Status(), self.recorder.now
        read, made = [0] * self.workers, [0] * self.workers  # version of the weights; steps
        # By worker that waits for weights: start and end of the update with its gradient.
        held: dict[int, tuple[float, float]] = {}
        for version in range(len(batches)):
            self.comm.Recv(shard.gradients, MPI.ANY_SOURCE, PUSH, status)
            worker, begin = status.Get_source(), now()
            epoch, indices = batches[worker + made[worker] * self.workers]
            self.optimizer.update(shard, self._rate(epoch, len(indices)))
            self.log.updates.append((worker, version - read[worker]))
            made[worker] += 1
            held[worker] = begin, now()
            for held_worker in [w for w in held if not bound or made[w] - bound <= min(made)]:
                read[held_worker] = version + 1
                times = ServerTimes(*held.pop(held_worker), now())
                self.log.served.setdefault(held_worker, []).append(times)
                self.comm.Send(shard.weights, held_worker, PULL)

    def _synchronize(self) -> None:
        """Wait for all updates; then broadcast the newest weights and average the statistics."""
        begin = self.recorder.now()
        for server, part in enumerate(self.parts):
            self.comm.Bcast(self.network.weights[part], self.workers + server)
        statistics = self.network.statistics
        if statistics.size:
            if self.comm.rank >= self.workers:
                statistics.fill(0)
            total = allreduce_of(self.comm)(statistics)
            np.divide(total, statistics.dtype.type(self.workers), out=statistics)
        self.recorder.add("wait", "wait for the end of the epoch", begin, self.recorder.now())

    def _collect(self) -> None:
        """Gather the optimizer state of all servers on rank 0, for the snapshot."""
        serves = self.comm.rank >= self.workers
        parts = self.comm.gather((self.optimizer.state, self.optimizer.updates) if serves else None)
        if self.comm.rank == 0:
            states = [state for state, _ in parts[self.workers :]]
            self.optimizer.updates = parts[-1][1]
            self.optimizer.state = {
                name: np.concatenate([state[name] for state in states]) for name in states[0]
            }

    def _mean_loss(self, loss: float) -> float:
        """Return the mean over the workers that processed a mini-batch."""
        return float(np.nanmean(self.comm.allgather(loss)))

    def _collect_log(self, shift: float) -> Log:
        """Broadcast the first server's log, and add its events for this worker to the worker's rows."""
        log, servers_shift = self.comm.bcast((self.log, shift), self.workers)
        rank, size = self.comm.rank, self.network.gradients.nbytes
        if rank < self.workers:
            add_rows(
                self.recorder,
                rank,
                self.asked,
                log.served.get(rank, []),
                shift - servers_shift,
                size,
            )
        assert isinstance(log, Log)
        return log
