"""Deep gradient compression: each rank sends only its largest gradients and accumulates the rest.

For every weight a rank stores a velocity u and an accumulated unsent gradient v. In each step, with gradient g and
momentum m, it sends the k largest of |v| of each tensor and clears them:

    u = m u + g              momentum correction: velocity is accumulated, so its direction survives
    v = v + u                local accumulation: nothing is lost, only delayed
    u = v = 0 where sent     momentum factor masking: delayed gradients add no further momentum

All ranks then update their weights by the sum of what was sent, without momentum, which is already included.
Biases, scales and shifts are sent uncompressed, and so is a tensor of which all elements are sent: it is never
delayed, so its velocity is not masked and it is updated as without compression. Weight decay is part of g, split
evenly over the ranks. The gradient clipping that the paper adds for recurrent networks is not implemented.

Source: Lin et al. 2018, "Deep gradient compression", sections 3.1 to 3.3.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil, sqrt
from typing import Any

import numpy as np

from lib_dlhpc.costs.compression import count, density
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.parallel.compression import ADD, LARGEST, SELECT, WHOLE
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.training import Training
from lib_dlhpc.training.gradient_allreduce import Exchange
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.record import Recorder

INDEX = np.int32
# every 101st element is in the sample; a prime, seldom in step with the rows of a matrix
SAMPLED = 101


def plain(training: Training) -> Optimizer:
    """Return the rule that applies what was sent: it already includes momentum and decay."""
    return Optimizer("sgd", replace(training, weight_decay=0.0))


@contextmanager
def compressed(
    experiment: Experiment, network: Network, optimizer: Optimizer, comm: Any, recorder: Recorder
) -> Iterator[Exchange]:
    """Yield the compressing Exchange; unsent gradients are part of the optimizer state."""
    momentum = experiment.training.momentum if experiment.strategy.optimizer == "momentum" else 0.0
    exchange = Compressed(experiment.training, momentum, network, comm, recorder)
    exchange.velocity = optimizer.memory("own velocity", network)
    exchange.unsent = optimizer.memory("unsent", network)
    yield exchange


class Compressed(Exchange):
    """Allreduce of the largest gradients of one step; `gradients` holds the result after finish.

    On the wire an element is its value, in the precision of the weights, and its index, 4 bytes: 8 bytes
    in float32. All ranks send the same number of elements, so no sizes are exchanged. Selection counts as
    exchange time; it begins after backward, so nothing overlaps it. parallel/compression.py has it as instructions.
    """

    def __init__(
        self, training: Training, momentum: float, network: Network, comm: Any, recorder: Recorder
    ) -> None:
        everything = [(0, network.gradients.size)]
        super().__init__(network.gradients, everything, [], network.gradients, recorder)
        if network.weights.size > np.iinfo(INDEX).max:
            raise SpecError(
                f"training.sparsity: {network.weights.size:,} weights; their indices take 4 bytes,"
                f" enough for {np.iinfo(INDEX).max:,}."
            )
        self.training, self.momentum, self.network, self.comm = training, momentum, network, comm
        self.velocity, self.unsent = np.zeros_like(self.gradients), np.zeros_like(self.gradients)
        self.epoch = 0.0
        self.pair = np.dtype([("place", INDEX), ("value", self.gradients.dtype)])

    def begin(self, epoch: float) -> None:
        """Begin a step; its epoch decides how much is sent."""
        self.epoch = epoch

    def post(self, number: int) -> None:
        """Do nothing yet: the largest elements are known once the whole tensor is."""

    def finish(self) -> None:
        """Exchange, and wait for the sums."""
        counts, recorder = self.counts(), self.recorder
        whole = [part for part, count in counts if count == part.stop - part.start]
        parts = [(part, count) for part, count in counts if count < part.stop - part.start]
        with recorder.phase(SELECT):
            self._accumulate()
            pairs, dense = self._largest(parts), self._take(whole)
            self.gradients.fill(0)
        if parts:
            with recorder.phase(LARGEST, self.comm.size * pairs.nbytes):
                everyone = self._of_all_ranks(pairs)
        if whole:
            with recorder.phase(WHOLE, dense.nbytes):
                self._sum(dense)
        with recorder.phase(ADD):
            for each in everyone if parts else ():  # in the order of ranks: all get the same sums
                self.gradients[each["place"]] += each["value"]
            first = 0
            for part in whole:
                last = first + part.stop - part.start
                self.gradients[part] = dense[first:last]
                first = last

    def counts(self) -> list[tuple[slice, int]]:
        """Return the slice of each tensor and how many of its elements are sent in this epoch."""
        share = density(self.training, self.epoch)
        parts = [slice(parameter.start, parameter.stop) for parameter in self.network.parameters]
        decays = [parameter.decays for parameter in self.network.parameters]
        return [
            (part, count(part.stop - part.start, is_matrix, share))
            for part, is_matrix in zip(parts, decays, strict=True)
        ]

    def _accumulate(self) -> None:
        """u = m u + g; v = v + u."""
        kind = self.gradients.dtype.type
        decay = kind(self.training.weight_decay / self.comm.size)
        self.velocity *= kind(self.momentum)
        self.velocity += self.gradients
        if decay:
            for parameter in self.network.parameters:
                if parameter.decays:
                    part = slice(parameter.start, parameter.stop)
                    self.velocity[part] += decay * self.network.weights[part]
        self.unsent += self.velocity

    def _largest(self, parts: list[tuple[slice, int]]) -> Array:
        """Return the largest of each tensor as (index, value) pairs, and clear them."""
        chosen = [part.start + largest(self.unsent[part], count) for part, count in parts]
        places = np.concatenate(chosen) if chosen else np.empty(0, INDEX)
        pairs = np.empty(len(places), self.pair)
        pairs["place"], pairs["value"] = places, self.unsent[places]
        self.unsent[places] = self.velocity[places] = 0
        return pairs

    def _take(self, whole: list[slice]) -> Array:
        """Return these tensors concatenated; their velocity is not masked."""
        values = [self.unsent[part].copy() for part in whole]
        for part in whole:
            self.unsent[part] = 0
        return np.concatenate(values) if values else self.gradients[:0].copy()

    def _of_all_ranks(self, pairs: Array) -> Array:
        """Return the pairs of all ranks, one row a rank."""
        if self.comm.size == 1:
            return pairs.reshape(1, -1)
        from mpi4py import MPI

        everyone = np.empty((self.comm.size, len(pairs)), self.pair)
        self.comm.Allgather([pairs, MPI.BYTE], [everyone, MPI.BYTE])
        return everyone

    def _sum(self, dense: Array) -> None:
        """Sum the uncompressed tensors over the ranks, in place."""
        if self.comm.size > 1:
            from mpi4py import MPI

            self.comm.Allreduce(MPI.IN_PLACE, dense, MPI.SUM)


def largest(values: Array, count: int) -> Array:
    """Return the indices of the `count` values of largest magnitude, ascending.

    To rank all of a million values takes twenty times as long as to compare them with a number, so most are ruled out
    by a threshold from a sample, as in the paper; here the result is exact.
    """
    sizes = np.abs(values)
    chosen = _candidates(sizes, count)
    rest = len(chosen) - count
    return np.sort(chosen[np.argpartition(sizes[chosen], rest)[rest:]])


def _candidates(sizes: Array, count: int) -> Array:
    """Return indices that include the `count` largest: more than that many, in most cases not many more."""
    sample = sizes[::SAMPLED]
    expected = count / SAMPLED
    rank = ceil(expected + 4 * sqrt(expected) + 4)  # by four deviations: too few are rare
    if rank < len(sample):
        threshold = np.partition(sample, len(sample) - rank)[len(sample) - rank]
        candidates = np.flatnonzero(sizes >= threshold)
        if len(candidates) >= count:
            return candidates
    return np.arange(len(sizes))
