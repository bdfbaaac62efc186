"""Low-rank compression (PowerSGD): ranks sum two factors of each gradient; what these leave out is fed back.

With gradient g of this rank, error e and a basis Q of r columns that all ranks have, for each matrix

    M = g + e;  P = sum of M Q over ranks, its columns made orthonormal;  Q = sum of M' P over ranks

and all ranks update by P Q'. What is left, M - P Q' / p, is the rank's next error, so nothing is lost, only delayed; Q
is where the next step starts. Biases, scales and shifts are summed whole, and so is a matrix whose factors are not
smaller. The optimizer, with its momentum and decay, is applied to the sums. Source: Vogels et al. 2019, "PowerSGD",
algorithms 1 and 2, with warm start.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lib_dlhpc.costs.low_rank import is_factored, matrix
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.parallel.low_rank import LEFT, MULTIPLY, PROJECT, PROJECT_BACK, RIGHT
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.gradient_allreduce import Exchange
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.weights import Parameter


@contextmanager
def factoring(
    experiment: Experiment, network: Network, optimizer: Optimizer, comm: Any, recorder: Recorder
) -> Iterator[Exchange]:
    """Yield the factoring Exchange; errors and bases are part of the optimizer state."""
    error, basis = (optimizer.memory(name, network) for name in ("error", "basis"))
    rank, seed = int(experiment.training.low_rank), experiment.run.seed
    yield Factored(rank, network, error, basis, comm, recorder, seed)


class Factored(Exchange):
    """Allreduce of the factors of one step's gradients; `gradients` holds the result after finish.

    error, basis: flat arrays of the size of the weights; a tensor's basis is at its beginning.
    """

    def __init__(
        self,
        rank: int,
        network: Network,
        error: Array,
        basis: Array,
        comm: Any,
        recorder: Recorder,
        seed: int,
    ) -> None:
        everything = [(0, network.gradients.size)]
        super().__init__(network.gradients, everything, [], network.gradients, recorder)
        self.rank, self.comm, self.error, self.basis = rank, comm, error, basis
        self.some: list[Parameter] = []
        self.whole: list[slice] = []
        random = np.random.default_rng(seed)
        for parameter in network.parameters:
            if is_factored(parameter.shape, parameter.decays, rank):
                self.some.append(parameter)
                start = self._basis(parameter)
                start[...] = random.normal(size=start.shape)
            else:
                self.whole.append(slice(parameter.start, parameter.stop))

    def post(self, number: int) -> None:
        """Do nothing yet: a product needs the whole tensor."""

    def finish(self) -> None:
        """Exchange, and wait for the sums."""
        gradients, recorder = self.gradients, self.recorder
        matrices = [self._view(gradients, parameter) for parameter in self.some]
        with recorder.phase(PROJECT):
            for parameter, m in zip(self.some, matrices, strict=True):
                m += self._view(self.error, parameter)
            left = [
                m @ self._basis(parameter) for parameter, m in zip(self.some, matrices, strict=True)
            ]
        left += [gradients[part] for part in self.whole]
        self._sum(LEFT, left)
        with recorder.phase(PROJECT_BACK):
            columns = [np.linalg.qr(p)[0] for p in left[: len(self.some)]]
            right = [m.T @ p for m, p in zip(matrices, columns, strict=True)]
        self._sum(RIGHT, right)
        with recorder.phase(MULTIPLY):
            for parameter, m, p, q in zip(self.some, matrices, columns, right, strict=True):
                total = p @ q.T
                np.subtract(
                    m, total / m.dtype.type(self.comm.size), out=self._view(self.error, parameter)
                )
                m[...] = total
                self._basis(parameter)[...] = q

    def _view(self, flat: Array, parameter: Parameter) -> Array:
        return flat[parameter.start : parameter.stop].reshape(matrix(parameter.shape))

    def _basis(self, parameter: Parameter) -> Array:
        columns = matrix(parameter.shape)[1]
        flat = self.basis[parameter.start : parameter.start + columns * self.rank]
        return flat.reshape(columns, self.rank)

    def _sum(self, name: str, arrays: list[Array]) -> None:
        """Sum arrays over the ranks, in place, as one message."""
        if not arrays:
            return
        packed = np.concatenate([array.ravel() for array in arrays])
        with self.recorder.phase(name, packed.nbytes):
            if self.comm.size > 1:
                from mpi4py import MPI

                self.comm.Allreduce(MPI.IN_PLACE, packed, MPI.SUM)
        first = 0
        for tensor in arrays:
            tensor[...] = packed[first : first + tensor.size].reshape(tensor.shape)
            first += tensor.size
