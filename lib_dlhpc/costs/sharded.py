"""ZeRO's second and third stage: what replicas exchange with every microbatch, and how late it makes a pass.

One wire carries it, in this order: the weights of the first two layers; then, as each layer is done, those
of the next layer but one, for which there is memory from then on, and the buckets of gradients that the
layer has filled. So time has the window that memory has: the layer at hand and the next (kept.AT_ONCE).
The trainer gathers in the same order.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import compute, groups
from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.kept import AT_ONCE
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.costs.stage import StageCost, seen_in_part
from lib_dlhpc.layout import Part
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sharded:
    """What comes with a pass; arrays are of shape (layers,), in the order of the pass."""

    work: Floats  # s that each layer computes, without what is recomputed
    gathers: Floats  # s in which its weights are gathered; 0: none are
    buckets: Floats  # s in which the gradients that it completes are exchanged; 0: none are
    overlap: bool  # both go on while layers compute
    cost: Cost  # of all of it
    bytes: float  # B exchanged in all

    def ends(self, start: Any, computed: Any) -> Any:
        """Return when pass and exchange are over.

        start, computed: s at which the pass begins, and at which it would end with all weights there; arrays
        whose first axis is that of the replicas, which gather and exchange together, or floats for one.
        """
        alone = isinstance(start, float)  # 20 times as quick
        later: Any = max if alone else np.maximum
        last: Any = float if alone else partial(np.max, axis=0)
        done = np.concatenate([[0.0], np.cumsum(self.work)]) / max(float(self.work.sum()), 1e-300)
        done, gathers, buckets = done.tolist(), self.gathers.tolist(), self.buckets.tolist()
        long, late, wire = computed - start, 0.0 * start, last(start)
        waiting = iter(np.flatnonzero(self.gathers).tolist())
        there: dict[int, Any] = {}  # when the weights of a layer are

        def gather(wire: Any, free: Any) -> Any:
            """Gather the next layer's weights, once there is memory for them."""
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
    """Return what comes with a forward and with a backward pass of a part, with strategy.zero 2 or 3."""
    strategy, overlap = experiment.strategy, bool(experiment.overlap)
    net = groups.group_network(experiment, "data")
    size = compute.BYTES[strategy.precision]
    cut = buckets(model, float(strategy.bucket), size)
    full = cut.sizes > 0
    home = groups.scatter(cut.sizes, net, full, strategy.allreduce)
    for group, share in seen_in_part(model):
        home += groups.everyone(share * cut.sizes, groups.group_network(experiment, group), full)
    none = np.zeros(len(model.layers))
    bytes_of = model.layer_parameters * size * (strategy.zero == 3)
    fetched = groups.gather(bytes_of, net, bytes_of > 0, strategy.allreduce)
    gathers = fetched.total * (bytes_of > 0)
    scatters = none.copy()  # backward may end with layers that complete no bucket
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
    """Return the cost of gathering the updated weights, a bucket at a time, where each replica updates a part."""
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
