"""Learner: the trainer, one batch at a time; it learns to advance a field by `sampling` steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import is_partitioned
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import SAME
from lib_dlhpc.spec.workflow import Workflow, share
from lib_dlhpc.training.coupled.heat import decay, modes
from lib_dlhpc.training.coupled.samples import unseen
from lib_dlhpc.training.data import Data, precision_of
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.synchronous import Synchronous, synchronous
from lib_dlhpc.training.trainable import check_layers

TESTED = 64  # samples
WAVE = 12  # points to a half wave; its decay gives the learned diffusivity


def check(workflow: Workflow) -> None:
    """Raise SpecError for experiments that a workflow cannot train."""
    experiment = workflow.experiment
    strategy = experiment.strategy
    legal = {
        "strategy.precision": (strategy.precision, ("fp64", "fp32")),
        "strategy.update": (strategy.update, ("synchronous",)),
        "strategy.wire": (strategy.wire, (SAME,)),
        "strategy.allreduce": (strategy.allreduce, ("auto", "ring")),
        "training.sparsity": (experiment.training.sparsity, (0.0,)),
        "training.low_rank": (experiment.training.low_rank, (0,)),
        "training.collective": (experiment.training.collective, ("schedule",)),
        "training.shift": (experiment.training.shift, (0,)),
    }
    for name, (value, expected) in legal.items():
        if value not in expected:
            allowed = ", ".join(map(repr, expected))
            raise SpecError(f"{name} = {value!r}: a workflow is trained with {allowed}.")
    if is_partitioned(experiment):
        raise SpecError("[strategy]: in a workflow every training rank has the full network.")
    check_layers(experiment.model)


class Learner(Synchronous):
    """One training rank. Batches are passed in; everything else is inherited from the trainer."""

    def learn(self, number: int, batches: int, x: Floats, y: Floats) -> float:
        """Train on this rank's samples of batch `number` of `batches`; return its part of the mean loss."""
        mine = share(self.batch, self.comm.rank, self.comm.size)
        self.data.x[mine], self.data.y[mine] = x, y
        return self._step(number, number / batches, np.arange(self.batch))

    def on_all_ranks(self, it: bool) -> bool:
        """Return whether `it` is true on all training ranks: they must branch alike."""
        return sum(self.comm.allgather(it)) == self.comm.size

    @property
    def batch(self) -> int:
        """Samples of a global batch."""
        return len(self.data.x)

    def error(self) -> float:
        """Return the test error relative to predicting no change.

        sqrt(mean (predicted - after)^2 / mean (after - before)^2): 1 is no better than to predict no change.
        """
        predicted = self.network.forward(self.data.test_x, training=False)
        return _size(predicted - self.data.test_y) / _size(self.data.test_y - self.data.test_x)

    def diffusivity(self, workflow: Workflow) -> float:
        """Return the diffusivity at which a wave would decay as the network predicts, in 1/s; nan if it grows."""
        simulation = workflow.simulation
        number = max(simulation.grid // WAVE, 1)
        sine = modes(simulation, number)[:, -1]
        wave = np.outer(sine, sine)
        wave /= wave.std()
        after = self.network.forward(wave[None, None].astype(self.network.dtype), training=False)
        amplitude = float(np.sum(after * wave) / np.sum(wave * wave))
        true = -np.log(decay(simulation, number, number, simulation.sampling))
        return (
            float(-np.log(amplitude) / true * simulation.diffusivity)
            if amplitude > 0
            else float("nan")
        )


@contextmanager
def learner(workflow: Workflow, comm: Any, recorder: Recorder, batch: int = 0) -> Iterator[Learner]:
    """Yield the learner on a rank of `comm`, whose network has its initial weights. batch: 0 for the workflow's."""
    experiment = workflow.experiment
    dtype, many = precision_of(experiment), batch or workflow.batch
    grid = workflow.simulation.grid
    test_x, test_y = unseen(workflow.simulation, TESTED)[:, :, None].astype(dtype)
    x, y = np.zeros((2, many, 1, grid, grid), dtype)
    data = Data(x, y, test_x, test_y)
    with synchronous(_whole(experiment), comm, data, recorder, kind=Learner) as rank:
        assert isinstance(rank, Learner)
        yield rank


def _whole(experiment: Experiment) -> Experiment:
    """Return the experiment with one epoch: each sample of the simulation once."""
    return replace(experiment, run=replace(experiment.run, epochs=1.0))


def _size(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
