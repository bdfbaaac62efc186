"""ZeRO's second and third stage in rounds: what replicas exchange with every microbatch.

Weights are gathered layer after layer, each before the layer computes, as far ahead as the wire allows; a
microbatch's gradients leave as backward fills their buckets. One wire carries both.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import compute, groups
from lib_dlhpc.costs.buckets import buckets, ready_times
from lib_dlhpc.costs.stage import seen_in_part, stage_cost
from lib_dlhpc.layout import Part
from lib_dlhpc.spec.experiment import Experiment

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sharded:
    """What comes with a pass: when each gather ends after the first begins, and what work is left then."""

    there: Floats  # s, (layers,)
    left: Floats  # share of the pass that comes after, the layer included, (layers,)
    filled: Floats  # share of the pass after which each bucket is filled, (buckets,)
    taken: Floats  # s that each bucket takes
    bytes: float  # B exchanged in all

    def ends(self, start: Floats, computed: Floats) -> Floats:
        """Return when pass and exchange are over; `computed`: when the pass is with all weights there.

        The first axis is that of the replicas.
        """
        begun, long = start.max(axis=0, keepdims=True), computed - start
        late = begun + self.there[:, None, None, None] + np.multiply.outer(self.left, long)
        end = np.maximum(computed, late.max(axis=0, initial=-np.inf))
        free = begun + (self.there[-1] if len(self.there) else 0.0)
        for share, seconds in zip(self.filled, self.taken, strict=True):
            free = np.maximum(free, (start + share * (end - start)).max(axis=0)) + seconds
        over: Floats = np.maximum(end, free)
        return over


def sharded(experiment: Experiment, part: Part, scale: float) -> tuple[Sharded, Sharded]:
    """Return what comes with a forward and with a backward pass of a part, with strategy.zero 2 or 3."""
    strategy, model = experiment.strategy, part.model
    net = groups.group_network(experiment, "data")
    size = compute.BYTES[strategy.precision]
    layers = stage_cost(experiment, part, strategy.batch / strategy.microbatches, scale)
    cut = buckets(model, float(strategy.bucket), size)
    full = cut.sizes > 0
    cost = groups.scatter(cut.sizes, net, full)
    for group, share in seen_in_part(model):
        cost += groups.everyone(share * cut.sizes, groups.group_network(experiment, group), full)
    taken = cost.total * full
    work = layers.layer_backward
    filled = ready_times(work, cut.last_layer) / max(float(work.sum()), 1e-300)
    if not experiment.overlap:
        filled = np.ones_like(filled)
    none = np.zeros(0)
    passes = []
    for seconds_of, order in ((layers.layer_forward, 1), (work, -1)):
        there, left, moved = none, none, 0.0
        if strategy.zero == 3:
            bytes_of = model.layer_parameters[::order] * size
            seconds = groups.gather(bytes_of, net, bytes_of > 0).total * (bytes_of > 0)
            there, moved = np.cumsum(seconds), float(bytes_of.sum())
            left = np.cumsum(seconds_of[::order][::-1])[::-1]
            left = left / max(float(seconds_of.sum()), 1e-300)
            if not experiment.overlap:
                there, left = there[-1:], np.ones(1)
        back = order == -1
        passes.append(
            Sharded(
                there,
                left,
                filled=filled if back else none,
                taken=taken if back else none,
                bytes=moved + float(cut.sizes.sum()) * back,
            )
        )
    return passes[0], passes[1]
