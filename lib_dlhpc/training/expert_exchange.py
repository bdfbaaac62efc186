"""Sums of gradients over replicas that share out the experts: of a bucket, each group sums what it has in common.

All replicas have the other layers, and only some hold the same experts (Rajbhandari et al. 2022, "DeepSpeed-MoE",
section 5.2). A bucket is a slice of the gradients in which both alternate, so each is packed for its sum.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from lib_dlhpc.costs import groups
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.gradient_allreduce import Exchange, reduction
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.weights import Parameter

GROUPS = ("data", "alike")  # all replicas, and those with the same experts


def number_of(bucket: int, group: str) -> int:
    """Return the number of a bucket's sum over one of GROUPS."""
    return len(GROUPS) * bucket + GROUPS.index(group)


class ExpertExchange(Exchange):
    """Two sums for each bucket, packed one at a time in `wire`; the second is that of the experts."""

    pieces: Sequence[Sequence[slice]]  # of the gradients, for each sum

    def _begin(self, number: int) -> None:
        packed = self._packed(number)
        self.recorder.begin(self._name(number), packed.nbytes)
        np.concatenate([self.gradients[piece] for piece in self.pieces[number]], out=packed)

    def _end(self, number: int) -> None:
        packed, first = self._packed(number), 0
        for piece in self.pieces[number]:
            stop = first + piece.stop - piece.start
            self.gradients[piece] = packed[first:stop]
            first = stop
        self.recorder.end(self._name(number))

    def _packed(self, number: int) -> Array:
        first, last = self.bounds[number]
        return self.wire[: last - first]


@contextmanager
def expert_exchange(
    experiment: Experiment,
    gradients: Array,
    comms: Sequence[Any],
    recorder: Recorder,
    parameters: Sequence[Parameter],
    buckets: Sequence[tuple[int, int]],
    experts: frozenset[str],
) -> Iterator[ExpertExchange]:
    """Yield the allreduces of each bucket; comms: of GROUPS; buckets: of layers; experts: names of their tensors."""
    nets = groups.group_network(experiment, "data"), groups.alike_network(experiment)
    pieces = [
        [
            slice(parameter.start, parameter.stop)
            for parameter in parameters
            if first <= parameter.layer < stop and (parameter.name in experts) == of_experts
        ]
        for first, stop in buckets
        for of_experts in (False, True)
    ]
    sizes = [sum(bucket.stop - bucket.start for bucket in piece) for piece in pieces]
    bounds, wire = [(0, size) for size in sizes], np.empty(max(sizes, default=0), gradients.dtype)
    with ExitStack() as stack:
        reductions = []
        for number, size in enumerate(sizes):
            which = number % len(GROUPS)
            bucket = reduction(experiment, comms[which], nets[which], wire[:size])
            reductions.append(stack.enter_context(bucket))
        made = ExpertExchange(gradients, bounds, reductions, wire, recorder)
        made.pieces, made.several = pieces, len(GROUPS)
        yield made
