"""What whole steps of real runs say: computing in a step over what its parts say, bandwidth in a step over that alone.

Layers, updates and messages are measured by themselves; in a step they follow each other and find caches as the
others left them. Runs at several moments, in new processes each time, tell how far the sum of the parts is off,
and how far one run is from the next: what no repeat within one process shows (memory lies elsewhere, clocks and
neighbours differ). The median of the runs in which each rank has a whole replica becomes device.slowdown: as many
of a rank by itself, which show computing alone, as of all ranks, which share memory and whose exchange, if it is
priced too low, would pass for computing. Runs that are shared out (ZeRO, tensors) meet more often than the formulas
have it; they belong to its interval, as does what all runs got of the bandwidth to that of intra_node.efficiency.

Only moments count in which others left the cores alone; where there is none, the parts stand for the whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lib_dlhpc.costs import compute, groups
from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.costs.stage import stage_cost
from lib_dlhpc.layout import is_shared_out, parts
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.machine import Machine

CALM = 0.3  # cores that others may keep busy
STEADY = 0.4  # of the steps of a run are quicker than what counts
SLOWDOWN = 0.7, 1.6  # beyond it something else is at work than what the parts left out
EFFICIENCY = 0.2, 1.0
Ends = tuple[float, float]


@dataclass(frozen=True)
class Whole:
    """What was found of whole steps, a number for each run and moment; empty where no moment was calm."""

    middle: float  # of the slowdown, where each rank has a whole replica
    slowdown: tuple[float, ...]  # a step without what its exchange should take, over its computing
    efficiency: tuple[float, ...]  # of the bandwidth
    errors: tuple[float, ...]  # expected over measured steps, less 1, with the medians put in


def fit_whole(moments: Sequence[Mapping[str, Any]], machine: Machine) -> Whole:
    """Return what the runs of several moments amount to; machine: as its parts were fitted."""
    plain, slow, share = list[float](), list[float](), list[float]()
    runs = [run for told in moments if max(told["others"]) <= CALM for run in told["runs"]]
    asked = [read_experiment(run["experiment"]) for run in runs]
    told = [expected(experiment, machine) for experiment in asked]
    steps = [_steady(np.add(run["busy"], run["wait"]) - run["behind"]) for run in runs]
    for run, step, experiment, (work, cost) in zip(runs, steps, asked, told, strict=True):
        # Messages are carried on while a rank computes, so only the whole step has both.
        slow.append((step - cost.total) / work)
        plain += [] if is_shared_out(experiment) else slow[-1:]
        if cost.bandwidth > 0:
            exchange = _steady(np.subtract(run["wait"], run["behind"]))
            left = exchange - cost.latency - cost.reduction
            share.append(float(np.clip(cost.bandwidth / max(left, 1e-12), *EFFICIENCY)))
    factor = float(np.median(np.clip(plain, *SLOWDOWN))) if plain else 1.0
    errors = [
        (factor * work + cost.total) / step - 1
        for step, (work, cost) in zip(steps, told, strict=True)
    ]
    return Whole(factor, tuple(slow), tuple(share), tuple(errors))


def expected(experiment: Experiment, machine: Machine) -> tuple[float, Cost]:
    """Return the s that a rank computes in a step, and what it exchanges, nothing of it hidden.

    Rings of the gradients, of their parts with ZeRO's second stage, and sums of activations.
    """
    strategy = experiment.strategy
    room = max(int(machine.devices_per_node), int(strategy.devices_per_node))
    own = replace(experiment, machine=replace(machine, devices_per_node=room, progress=False))
    (part,) = parts(own, 0)
    stage = stage_cost(own, part, float(strategy.batch), 1.0)
    model, net = part.model, groups.group_network(own, "data")
    shards = net.inner.ranks * net.outer.ranks if strategy.zero else 1
    update = compute.update_time(model, own.machine.device, strategy.optimizer) / shards
    cost = groups.NOTHING
    for passed in (stage.forward_messages, stage.backward_messages, stage.hidden_messages):
        for price in passed.values():
            cost = cost + price
    cut = buckets(model, float(strategy.bucket), compute.BYTES[strategy.precision])
    many, size = int((cut.sizes > 0).sum()), float(cut.sizes.sum())
    cost = cost + groups.everyone(size, net, many)
    seconds = float(stage.forward + stage.backward + update)
    return seconds, Cost(*(float(term) for term in cost))


def interval(middle: float, values: Sequence[float], most: Ends, about: Ends) -> Ends:
    """Return an interval of what one more run may have: from the least of them to the most.

    Of n runs and one more, that one lies between the others with a probability of (n - 1) / (n + 1), whatever
    they are drawn from (Wilks 1941): 89 % of eighteen. about: the interval of the parts, as factors of what is
    found; it holds in any case.
    """
    held = np.clip([middle, *values], *most)
    return min(float(held.min()), middle * about[0]), max(float(held.max()), middle * about[1])


def _steady(seconds: Any) -> float:
    return float(np.quantile(seconds, STEADY))
