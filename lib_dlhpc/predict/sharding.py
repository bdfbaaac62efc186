"""What replicas exchange: gradients summed, or shared out as ZeRO has it (Rajbhandari et al. 2020, section 7).

    0  allreduce of the gradients                                  2 n a step, by the allreduce that is chosen
    1  reduce-scatter of the gradients, allgather of the weights   2 n
    2  the same, but a microbatch's gradients are let go at once   (m + 1) n for m microbatches
    3  weights gathered before each pass and let go after it       3 n for each microbatch

n bytes of gradients, times (p-1)/p. ZeRO goes round a ring. What a layer needs is asked for in time to come
while those before it compute, if communication may overlap.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import compute, groups, stragglers
from lib_dlhpc.costs.buckets import buckets, ready_times
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.costs.stage import StageCost, seen_in_part, share_of_experts
from lib_dlhpc.predict import overlap
from lib_dlhpc.predict.collectives import ALGORITHMS
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model

Floats = NDArray[np.float64]


class Exchange(NamedTuple):
    """Cost of an exchange, and the seconds of it that stick out behind what a rank computes."""

    cost: Cost
    exposed: float


NONE = Exchange(groups.NOTHING, 0.0)


def with_each_microbatch(
    experiment: Experiment, model: Model, costs: list[StageCost]
) -> tuple[Exchange, Exchange]:
    """Return what a rank exchanges in the forward and in the backward pass of each microbatch."""
    strategy = experiment.strategy
    if strategy.zero < 2:
        return NONE, NONE
    back = sum(float(cost.back) for cost in costs)
    home = _summed(experiment, model, costs, back)
    if strategy.zero == 2:
        return NONE, home
    ahead = _fetched(experiment, model, np.concatenate([c.layer_forward for c in costs]), 1)
    again = _fetched(experiment, model, np.concatenate([c.layer_backward for c in costs]), -1)
    both = again.cost + home.cost
    late = max(again.exposed, both.total - back) if experiment.overlap else both.total
    return ahead, Exchange(both, max(0.0, float(late)))


def with_the_last(
    experiment: Experiment, model: Model, costs: list[StageCost], backward: float
) -> Exchange:
    """Return the exchange of gradients in the last backward pass, of `backward` s, and after it."""
    return NONE if experiment.strategy.zero > 1 else _summed(experiment, model, costs, backward)


def after_update(experiment: Experiment, model: Model) -> Cost:
    """Return the cost of handing out the updated weights, where each replica updates a part of them."""
    strategy, net = experiment.strategy, groups.group_network(experiment, "data")
    if strategy.zero not in (1, 2):
        return groups.NOTHING
    cut = buckets(model, float(strategy.bucket), compute.BYTES[strategy.precision])
    return groups.gather(float(cut.sizes.sum()), net, int((cut.sizes > 0).sum()))


def _summed(
    experiment: Experiment, model: Model, costs: list[StageCost], backward: float
) -> Exchange:
    """Gradients in buckets: over the ranks that see other positions of the same samples, then over data."""
    strategy, net = experiment.strategy, groups.group_network(experiment, "data")
    cut = buckets(model, float(strategy.bucket), compute.BYTES[strategy.precision])
    sizes, full = cut.sizes, cut.sizes > 0
    plain = ALGORITHMS[strategy.allreduce](sizes, net)
    shared = int(strategy.experts)
    if shared > 1:  # an expert's gradients are summed over the replicas that have it too
        share = share_of_experts(model)
        with_it = groups.alike_network(experiment)
        allreduce = ALGORITHMS[strategy.allreduce]
        plain = allreduce((1 - share) * sizes, net) + allreduce(share * sizes, with_it)
    cost = groups.scatter(sizes, net, full) if strategy.zero else plain
    each = Cost(*(np.asarray(term) * full for term in cost))
    for group, share in seen_in_part(model):
        each += groups.everyone(share * sizes, groups.group_network(experiment, group), full)
    total = Cost(*(float(np.sum(term)) for term in each))
    if not experiment.overlaps:
        return Exchange(total, total.total)
    work = np.concatenate([cost.layer_backward for cost in costs])
    lasts = backward * stragglers.slowest(experiment.devices, experiment.machine.jitter)
    ready = ready_times(lasts / max(float(work.sum()), 1e-300) * work, cut.last_layer)
    return Exchange(total, float(overlap.exposed_time(ready, each.total, lasts)))


def _fetched(experiment: Experiment, model: Model, work: Floats, order: int) -> Exchange:
    """Weights of one layer after another, each before the layer computes; order: 1 forward, -1 backward.

    work: s of the layers, (layers,).
    """
    strategy, net = experiment.strategy, groups.group_network(experiment, "data")
    sizes = model.layer_parameters[::order] * compute.BYTES[strategy.precision]
    cost = groups.gather(sizes, net, sizes > 0)
    total = Cost(*(float(np.sum(term)) for term in cost))
    if not experiment.overlap:
        return Exchange(total, total.total)
    there = np.cumsum(cost.total)
    work = work[::order]
    left = np.cumsum(work[::-1])[::-1]
    late = max(0.0, float((there + left).max() - work.sum()))
    return Exchange(total, min(late, float(total.total)))  # exactly: rounding leaves no dust
