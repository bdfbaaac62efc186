"""ZeRO stages 2 and 3: communication of replicas in every microbatch, and its exposed time.

One link carries all of it, in this order: the weights of the first two layers; then, as each layer completes,
the weights of the next layer but one, once memory is free, and the gradient buckets that the layer filled.
So prefetching has the window of the memory model: the current layer and the next (activations.AT_ONCE).
The trainer gathers in the same order.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import compute, groups
from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.costs.stage import StageCost, extra_reductions
from lib_dlhpc.costs.stored_activations import AT_ONCE
from lib_dlhpc.layout import Part
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sharded:
    """Communication of a pass; arrays have shape (layers,), in the order of the pass."""

    work: Floats  # compute time of each layer in s, without recomputation
    gathers: Floats  # allgather time of its weights in s; 0: none
    buckets: Floats  # reduce-scatter time of the bucket that it completes in s; 0: none
    overlap: bool  # communication overlaps with compute
    cost: Cost  # in total
    bytes: float  # in total

    def ends(self, start: Any, computed: Any) -> Any:
        """Return when the pass and its communication end.

        start, computed: s at which the pass starts, and would end if all weights were local; arrays whose first
        axis is the replicas of a collective, or floats for one.
        """
        scalar = isinstance(start, float)  # 20 times as fast
        later: Any = max if scalar else np.maximum
        last: Any = float if scalar else partial(np.max, axis=0)
        done = np.concatenate([[0.0], np.cumsum(self.work)]) / max(float(self.work.sum()), 1e-300)
        done, gathers, buckets = done.tolist(), self.gathers.tolist(), self.buckets.tolist()
        long, late, wire = computed - start, 0.0 * start, last(start)
        waiting = iter(np.flatnonzero(self.gathers).tolist())
        there: dict[int, Any] = {}  # when the weights of a layer arrive

        def gather(wire: Any, free: Any) -> Any:
            """Gather the next layer's weights once memory is free."""
            layer = next(waiting, None)
            if layer is not None:
                wire = there[layer] = later(wire, free) + gathers[layer]
            return wire

        for _ in range(AT_ONCE if self.overlap else 1):
            wire = gather(wire, wire)
        for layer in np.flatnonzero(self.gathers + self.buckets).tolist():
            if layer in there:
                begins = start + done[layer] * long + late
                late = late + later(there.pop(layer) - begins, 0.0)
            ends = last(start + done[layer + 1] * long + late)
            if gathers[layer]:
                wire = gather(wire, ends)
            if buckets[layer]:
                wire = later(wire, ends) + buckets[layer]
        return later(computed + late, wire)


def sharded(experiment: Experiment, model: Model, costs: StageCost) -> tuple[Sharded, Sharded]:
    """Return the communication of a forward and of a backward pass of a part, with strategy.zero 2 or 3."""
    strategy, overlap = experiment.strategy, bool(experiment.overlap)
    net = groups.group_network(experiment, "data")
    size = compute.BYTES[strategy.precision]
    cut = buckets(model, float(strategy.bucket), size)
    full = cut.sizes > 0
    home = groups.scatter(cut.sizes, net, full, strategy.allreduce)
    for group, share in extra_reductions(model):
        home += groups.everyone(share * cut.sizes, groups.group_network(experiment, group), full)
    none = np.zeros(len(model.layers))
    bytes_of = model.layer_parameters * size * (strategy.zero == 3)
    fetched = groups.gather(bytes_of, net, bytes_of > 0, strategy.allreduce)
    gathers = fetched.total * (bytes_of > 0)
    scatters = none.copy()  # some layers complete no bucket
    np.add.at(scatters, cut.last_layer if overlap else 0 * cut.last_layer, home.total * full)
    there, back = _summed(fetched, bytes_of > 0), _summed(home, full)
    moved, gradients = float(bytes_of.sum()), float(cut.sizes.sum())
    return (
        Sharded(costs.layer_forward, gathers, none, overlap, there, moved),
        Sharded(
            costs.layer_backward[::-1],
            gathers[::-1],
            scatters[::-1],
            overlap,
            there + back,
            moved + gradients,
        ),
    )


def handed_out(experiment: Experiment, held: tuple[Part, ...]) -> Cost:
    """Return the cost of the allgather of updated weights after the optimizer, a bucket at a time (ZeRO 1, 2)."""
    strategy, net = experiment.strategy, groups.group_network(experiment, "data")
    if strategy.zero not in (1, 2):
        return groups.NOTHING
    size = compute.BYTES[strategy.precision]
    cuts = [buckets(part.model, float(strategy.bucket), size).sizes for part in held]
    sizes = np.concatenate(cuts)
    each = groups.gather(sizes, net, sizes > 0, strategy.allreduce)
    return _summed(each, sizes > 0)


def _summed(cost: Cost, there: NDArray[np.bool_]) -> Cost:
    return Cost(*(float(np.sum(term * there)) for term in cost))
