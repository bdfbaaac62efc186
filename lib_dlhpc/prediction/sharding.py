"""Communication of replicas: gradient allreduce, or ZeRO's reduce-scatter (Rajbhandari et al. 2020, section 7).

    0  allreduce of the gradients                                  2 n a step, by the chosen allreduce
    1  reduce-scatter of the gradients, allgather of the weights   2 n
    2  the same, but the gradients of each microbatch are freed   (m + 1) n for m microbatches
    3  weights gathered before each pass and freed after it       3 n for each microbatch

n bytes of gradients, times (p-1)/p; algorithm: schedules/choice.py. With overlap the weights of a layer are
prefetched while the previous layer computes: at most two are in memory (costs/sharded.py).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import compute, groups, stragglers
from lib_dlhpc.costs.buckets import buckets, ready_times
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.costs.sharded import Sharded, sharded
from lib_dlhpc.costs.stage import StageCost, extra_reductions, share_of_experts
from lib_dlhpc.layout import Part
from lib_dlhpc.prediction import overlap
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model

Floats = NDArray[np.float64]


class Exchange(NamedTuple):
    """Cost of an exchange, and its exposed seconds."""

    cost: Cost
    exposed: float

    def and_(self, other: "Exchange") -> "Exchange":
        """Return both, one after the other."""
        return Exchange(self.cost + other.cost, self.exposed + other.exposed)


NONE = Exchange(groups.NOTHING, 0.0)


def with_each_microbatch(
    experiment: Experiment, held: tuple[Part, ...], costs: list[StageCost]
) -> tuple[Exchange, Exchange]:
    """Return the exchanges in the forward and in the backward pass of each microbatch."""
    if experiment.strategy.zero < 2:
        return NONE, NONE
    there, home = NONE, NONE
    for part, cost in zip(held, costs, strict=True):
        ahead, back = sharded(experiment, part.model, cost)
        there = there.and_(_late(experiment, ahead, cost.ahead, cost.forward))
        home = home.and_(_late(experiment, back, cost.back, cost.backward + cost.recomputation))
    return there, home


def with_the_last(
    experiment: Experiment, model: Model, costs: list[StageCost], backward: float
) -> Exchange:
    """Return the exchange of gradients in the last backward pass, of `backward` s, and after it."""
    return NONE if experiment.strategy.zero > 1 else _summed(experiment, model, costs, backward)


def _summed(
    experiment: Experiment, model: Model, costs: list[StageCost], backward: float
) -> Exchange:
    """Allreduce buckets over the ranks with other positions of the same samples, then over data."""
    strategy, net = experiment.strategy, groups.group_network(experiment, "data")
    cut = buckets(model, float(strategy.bucket), compute.BYTES[strategy.precision])
    sizes, full = cut.sizes, cut.sizes > 0
    exchange = groups.scatter if strategy.zero else groups.everyone
    each = exchange(sizes, net, full, strategy.allreduce)
    shared = int(strategy.experts)
    if shared > 1:  # an expert's gradients are reduced over the replicas that hold it
        share = share_of_experts(model)
        with_it = groups.alike_network(experiment)
        each = exchange((1 - share) * sizes, net, full, strategy.allreduce)
        each += exchange(share * sizes, with_it, full, strategy.allreduce)
    for group, share in extra_reductions(model):
        each += groups.everyone(share * sizes, groups.group_network(experiment, group), full)
    total = _total(each)
    if not experiment.overlaps:
        return Exchange(total, total.total)
    work = np.concatenate([cost.layer_backward for cost in costs])
    lasts = backward * stragglers.slowest(experiment.devices, experiment.machine.jitter)
    ready = ready_times(lasts / max(float(work.sum()), 1e-300) * work, cut.last_layer)
    return Exchange(total, float(overlap.exposed_time(ready, each.total, lasts)))


def _late(experiment: Experiment, comes: Sharded, seconds: Any, work: Any) -> Exchange:
    """Return the exchange that overlaps a pass of `seconds`, of which `work` s are longer on the slowest rank."""
    slowest = stragglers.slowest(experiment.devices, experiment.machine.jitter)
    lasts = float(seconds + (slowest - 1) * work)
    late = max(0.0, comes.ends(0.0, lasts) - lasts)
    return Exchange(
        comes.cost, min(late, float(comes.cost.total))
    )  # exact 0, without rounding errors


def _total(cost: Cost) -> Cost:
    return Cost(*(float(np.sum(term)) for term in cost))
