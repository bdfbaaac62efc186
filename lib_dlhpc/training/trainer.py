"""train: a run on the ranks of a communicator, equal to the same run on one rank.

Every rank processes its part of each global batch, as the program of the step says (synchronous.py), or as a worker or
a parameter server (server.py). With local updates (local SGD) every rank updates its own weights, and every
`local_steps` steps all ranks average them; evaluation and the final result use the mean.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.arena import trim_heap
from lib_dlhpc.layout import is_partitioned
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.check import check
from lib_dlhpc.training.data import Data, load, precision_of
from lib_dlhpc.training.input.source import readers_of
from lib_dlhpc.training.peak_memory import Peak
from lib_dlhpc.training.rank import Diverged, Rank, Report, Run
from lib_dlhpc.training.record import Recorder, offset
from lib_dlhpc.training.server import asynchronous
from lib_dlhpc.training.snapshot import Place
from lib_dlhpc.training.synchronous import on_ranks, synchronous
from lib_dlhpc.training.versions import ROOM, versions_of

# times the loss of a guess: initial weights begin near it, only diverged weights exceed it
FAR = 10


def train(
    experiment: Experiment,
    comm: Any,
    folder: Path | None = None,
    report: Report = lambda row: None,
    begins: Callable[[int], None] = lambda step: None,
) -> Run:
    """Train on the ranks of `comm`; all of them call this.

    folder: snapshots are read from there and written there, at the end of each epoch and every
        run.checkpoint_interval seconds; or, if it holds a snapshots.json, versions as that file specifies.
    report: called on rank 0 with metrics: {"step", "epoch", "loss", "rate", "seconds"}, and at the end of an
        epoch {"epoch", "accuracy", "test_loss"}.
    begins: called on every rank with the number of each step as it begins.

    Raises SpecError for what cannot be trained, and Diverged with rank, step and layer when the loss is not
    finite, or if the final loss on the test samples exceeds FAR times that of a guess.
    """
    check(experiment)
    trim_heap()  # what an earlier run has freed is no part of the baseline
    peak = Peak()
    data = load(experiment, precision_of(experiment))
    trim_heap()
    recorder = Recorder()
    shift = offset(comm) if comm.size > 1 else 0.0
    room = ROOM if is_partitioned(experiment) else inf
    way = asynchronous if experiment.strategy.update == "asynchronous" else synchronous
    with ExitStack() as stack:
        rank: Rank = stack.enter_context(way(experiment, comm, data, recorder, folder))
        rank.versions = stack.enter_context(versions_of(folder, comm, experiment, room))
        place = rank.restore(folder) if folder is not None else Place()
        source = (
            on_ranks(experiment, comm.size),
            comm,
            data.x,
            folder,
            rank.upcoming(replace(place)),
        )
        rank.readers = stack.enter_context(readers_of(*source, rank.reads, recorder.now))
        run = rank.run(place, folder, report, begins, shift)
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
