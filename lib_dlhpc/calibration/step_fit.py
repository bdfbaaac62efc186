"""What whole steps of real runs say: computing in a step over what its parts say, bandwidth in a step over that alone.

Layers, updates and messages are measured by themselves; in a step they follow each other and find caches as the
others left them: what a rank has just received or sent, it computes with more slowly. Runs at several moments, in new
processes each time, tell how far the sum of the parts is off, and how far one run is from the next: what no repeat
within one process shows (memory lies elsewhere, clocks and neighbours differ).

Two numbers are found together, device.slowdown and intra_node.efficiency: the share of the bandwidth with which all
runs agree best on one slowdown, that of ranks by themselves, which exchange nothing, of replicas that exchange
gradients, and of those that share them out (ZeRO). Runs whose layers are shared out (tensors) wait for each other far
more often than the formulas have it; they belong to the intervals alone.

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
from lib_dlhpc.layout import parts
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.measured import at_pace

CALM = 0.3  # cores that others may keep busy
STEADY = 0.4  # of the steps of a run are quicker than what counts
SLOWDOWN = 0.7, 1.6  # beyond it something else is at work than what the parts left out
EFFICIENCY = 0.2, 1.0
UNDISTURBED = 0.03  # of a step, at most, in which its ranks waited for a core, all together
LEAST = 4  # undisturbed steps of a run that say how long one takes
TURNS = 3  # after which the paces of work and of calls stay, to half a percent
TRIED = np.geomspace(*EFFICIENCY[::-1], 60)  # shares of the bandwidth
Ends = tuple[float, float]


@dataclass(frozen=True)
class StepFit:
    """What was found of whole steps, a number for each run and moment; empty where no moment was calm."""

    slowdown: float
    efficiency: float  # of the bandwidth
    slowdown_of_runs: tuple[float, ...]  # a step less its exchange, over its computing
    efficiency_of_runs: tuple[float, ...]  # of what was waited for alone
    errors: tuple[float, ...]  # expected over measured steps, less 1, with both numbers put in


def fit_steps(moments: Sequence[Mapping[str, Any]], machine: Machine) -> StepFit:
    """Return what the runs of several moments amount to; machine: as its parts were fitted."""
    calm = [run for each in moments if max(each["others"]) <= CALM for run in each["runs"]]
    chosen = [run for run in calm if not run.get("tiny")]
    runs = [_Run(run, machine) for run in chosen]
    counted = [run for run in runs if run.counts]
    if not counted:
        return StepFit(1.0, 1.0, (), (), ())
    share = float(min(TRIED, key=lambda share: _misfit(counted, share)))
    slowdown = _typical(counted, share)
    return StepFit(
        slowdown,
        share,
        tuple(run.slowdown(share) for run in runs),
        tuple(run.share for run in runs if run.cost.bandwidth > 0),
        tuple(run.error(slowdown, share) for run in runs),
    )


def slowdown_factors(
    moment: Sequence[Mapping[str, Any]], machine: Machine, ranks: int
) -> tuple[float, float] | None:
    """Return what work took at one moment over what a measured machine has it take, and what calls took.

    None where ranks had a core for too few steps to say. Of the runs on so many ranks, or of one rank by itself where
    those have too few undisturbed steps.

    A core that others share may take twice as long for calls, for Python and for messages, however small, and as
    long as ever for products. Runs with next to no arithmetic tell the one, runs with much of it the other; each has
    some of both, so that the two are found by turns. Of the moment's runs those on so many ranks count, all alike.
    One slowdown stands for ranks by themselves and for ranks side by side, which are in each other's way; these
    numbers hold for so many of them.
    """
    chosen = [run for run in moment if int(read_experiment(run["experiment"]).devices) == ranks]
    chosen = [kept for run in chosen if (kept := undisturbed(run, ranks))]
    tiny = [run for run in chosen if run.get("tiny")]
    other = [run for run in chosen if not run.get("tiny")]
    if not tiny or not other:
        return slowdown_factors(moment, machine, 1) if ranks > 1 else None
    work = calls = 1.0
    for _ in range(TURNS):
        calls *= _longer(tiny, at_pace(machine, work, calls))
        work *= _longer(other, at_pace(machine, work, calls))
    return work, calls


def undisturbed(run: Mapping[str, Any], ranks: int) -> Mapping[str, Any]:
    """Return a run without its waits for a core; empty where fewer than LEAST steps had none.

    A lone rank's steps are known without them. Where one of several had no core, the others waited for it, by how
    much is not known: only steps count in which hardly any did.
    """
    if "core_wait" not in run:
        return run
    busy, lost = np.array(run["busy"]), np.array(run["core_wait"])
    if ranks == 1:
        return {**run, "busy": np.maximum(busy - lost, 0.0)}
    calm = lost <= UNDISTURBED * np.add(busy, run["wait"])
    if calm.sum() < LEAST:
        return {}
    return {**run, **{key: np.array(run[key])[calm] for key in ("busy", "behind", "wait")}}


def _longer(runs: Sequence[Mapping[str, Any]], machine: Machine) -> float:
    """Return how many times as long as expected the steps of runs took, in the geometric mean."""
    return float(np.exp(-np.mean([np.log1p(_Run(run, machine).error(1.0, 1.0)) for run in runs])))


class _Run:
    """One run: s of its step without waiting for who computes longest, and what is expected of it."""

    def __init__(self, raw: Mapping[str, Any], machine: Machine) -> None:
        experiment = read_experiment(raw["experiment"])
        # Messages are carried on while a rank computes, so only the whole step has both.
        self.step = _steady(np.add(raw["busy"], raw["wait"]) - raw["behind"])
        self.work, self.cost = expected(experiment, machine)
        self.ranks = int(experiment.devices)
        self.counts = experiment.strategy.tensor == 1
        left = _steady(np.subtract(raw["wait"], raw["behind"])) - self.exchange(np.inf)
        self.share = float(np.clip(self.cost.bandwidth / max(left, 1e-12), *EFFICIENCY))

    def exchange(self, share: float) -> float:
        """Return s of what is exchanged with this share of the bandwidth."""
        return self.cost.latency + self.cost.reduction + self.cost.bandwidth / share

    def slowdown(self, share: float) -> float:
        return (self.step - self.exchange(share)) / self.work

    def error(self, slowdown: float, share: float) -> float:
        return (slowdown * self.work + self.exchange(share)) / self.step - 1


def _typical(runs: Sequence[_Run], share: float) -> float:
    return float(np.median(np.clip([run.slowdown(share) for run in runs], *SLOWDOWN)))


def _misfit(runs: Sequence[_Run], share: float) -> float:
    """Return by how much the runs miss what they typically have in common."""
    slowdown = _typical(runs, share)
    return float(np.mean(np.abs([run.error(slowdown, share) for run in runs])))


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
    name = strategy.allreduce
    if strategy.zero:
        cost = cost + groups.scatter(size, net, many, name) + groups.gather(size, net, many, name)
    else:
        cost = cost + groups.everyone(size, net, many, name)
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
