"""train: a run on the ranks of a communicator, equal to the same run on one rank.

Every rank processes its part of each global batch; losses are means over the global batch, so gradients are
summed, never averaged over ranks, and parts may be uneven. With local updates (local SGD) every rank updates its
own weights, and every `local_steps` steps all ranks average them; evaluation and the final result use the mean.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.arena import trim_heap
from lib_dlhpc.layout import is_partitioned
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.check import check
from lib_dlhpc.training.collectives import allreduce_of
from lib_dlhpc.training.compress import compressed, plain
from lib_dlhpc.training.data import Data, load, precision_of
from lib_dlhpc.training.data_parallel import Diverged, Ranks, Report, Run
from lib_dlhpc.training.exchange import exchange_of
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.peak import Peak
from lib_dlhpc.training.record import Recorder, offset
from lib_dlhpc.training.snapshot import Place, restore
from lib_dlhpc.training.versions import versions_of

FAR = (
    10  # times the loss of a guess: initial weights begin near it, only diverged weights exceed it
)


def train(
    experiment: Experiment,
    comm: Any,
    folder: Path | None = None,
    report: Report = lambda row: None,
    begins: Callable[[int], None] = lambda step: None,
) -> Run:
    """Train on the ranks of `comm`; all of them call this.

    folder: snapshots are read from there and written there, at the end of each epoch and every
    run.checkpoint_interval seconds; or, if it holds a snapshots.json, versions as that file specifies. report:
    called on rank 0 with metrics: {"step", "epoch", "loss", "rate", "seconds"}, and at the end of an
    epoch {"epoch", "accuracy", "test_loss"}. begins: called on every rank with the number of each step as it
    begins. Raises Diverged with rank, step and layer when the loss is not finite, SpecError for what
    cannot be trained; Diverged also if the final loss on the test samples exceeds FAR times that of a guess.
    """
    check(experiment)
    peak = Peak()
    data = load(experiment, precision_of(experiment))
    trim_heap()
    if is_partitioned(experiment):
        from lib_dlhpc.training.hybrid import train_hybrid as way
    else:
        way = _train_replicas
    run = way(experiment, comm, data, folder, report, begins)
    run.memory = comm.gather(peak.memory(data.size)) or []
    guess = loss_of_a_guess(data, int(experiment.model.output_shape[-1]))
    if run.test_loss > FAR * guess > 0:
        raise Diverged(
            f"the loss on the test samples ended at {run.test_loss:,.3g}, {run.test_loss / guess:,.3g} times that"
            f" of a guess, {guess:.3g} (more than {FAR} times counts as diverged); use a smaller training.rate"
            f" than {experiment.training.rate:g}, or a warm-up"
        )
    return run


def loss_of_a_guess(data: Data, outputs: int) -> float:
    """Return the expected loss before training: uniform class probabilities, or outputs of size 1."""
    if data.classes:
        return float(np.log(outputs))
    return 1.0 + float(np.mean(np.square(data.y, dtype=np.float64)))


def _train_replicas(
    experiment: Experiment,
    comm: Any,
    data: Data,
    folder: Path | None,
    report: Report,
    begins: Callable[[int], None],
) -> Run:
    """Train data-parallel: each rank has the full network."""
    network = Network(experiment.model, precision_of(experiment), experiment.run.seed)
    if experiment.training.normalization == "global" and comm.size > 1:
        network.context.sum_over_ranks = allreduce_of(comm)
    optimizer = Optimizer(experiment.strategy.optimizer, experiment.training)
    if experiment.training.sparsity:
        optimizer = plain(experiment.training)
    recorder = Recorder()
    shift = offset(comm) if comm.size > 1 else 0.0
    if experiment.training.sparsity:
        exchanges = compressed(experiment, network, optimizer, comm, recorder)
    else:
        exchanges = exchange_of(experiment, network.gradients, comm, recorder)
    kind = Ranks
    if experiment.strategy.update == "asynchronous":
        from lib_dlhpc.training.server import Asynchronous as kind
    with exchanges as exchange, versions_of(folder, comm, experiment) as versions:
        own = kind(experiment, comm, data, network, optimizer, exchange, recorder)
        own.versions, place = versions, Place()
        if folder is not None:
            place = restore(folder, comm, network, optimizer, versions)
        return own.run(place, folder, report, begins, shift)
