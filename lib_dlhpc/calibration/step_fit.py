"""Fit whole steps of real runs: compute slowdown over the sum of its parts, and bandwidth over isolated messages.

Layers, updates and messages are measured in isolation. In a step they alternate and evict each other's cache lines:
compute on data just received or sent is slower. Runs at several moments, each in new processes, show the error of the
sum of the parts and the spread from run to run, which repeats within one process hide (memory layout, clock frequency,
load).

device.slowdown and intra_node.efficiency are fitted together: the efficiency is the fraction of the bandwidth at which
all runs agree best on one slowdown: isolated ranks without communication, data-parallel replicas, and ZeRO runs. Runs
with tensor parallelism synchronize far more often than the formulas assume; they only widen the intervals.

Only moments without load by other processes count; if there is none, the sum of the parts is used as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lib_dlhpc.costs import groups
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.parallel import program
from lib_dlhpc.program import messages_of, work_of
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.measured_machine import slowed

CALM = 0.3  # cores busy with other processes, at most
STEADY = 0.5  # quantile of a run's steps: the median, by which runs are judged
SLOWDOWN = 0.7, 1.6  # plausible range; outside it, something else slows the run
EFFICIENCY = 0.2, 1.0
# largest core wait of an undisturbed step, sum of its ranks, as a fraction of the step
UNDISTURBED = 0.03
LEAST = 4  # undisturbed steps that a run needs
TURNS = 3  # alternations until both factors converge to half a percent
TRIED = np.geomspace(*EFFICIENCY[::-1], 60)  # fractions of the bandwidth
Ends = tuple[float, float]


@dataclass(frozen=True)
class StepFit:
    """The fit of whole steps, with a number for each run and moment; empty if no moment was calm."""

    slowdown: float
    efficiency: float  # of the bandwidth
    slowdown_of_runs: tuple[float, ...]  # (step - communication) / compute
    efficiency_of_runs: tuple[float, ...]  # from exposed communication only
    errors: tuple[float, ...]  # predicted over measured steps, minus 1, with both numbers


def fit_steps(moments: Sequence[Mapping[str, Any]], machine: Machine) -> StepFit:
    """Return the fit of the runs of several moments; machine: fitted to the parts."""
    calm = [run for moment in moments if max(moment["others"]) <= CALM for run in moment["runs"]]
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
    """Return the slowdown factors of work and of calls at one moment, relative to a measured machine.

    None if too few steps were undisturbed. From runs on `ranks` ranks, or on one rank if those have too few
    undisturbed steps.

    On a shared core, calls (Python, small messages) may take twice as long while products take as long as ever. Runs
    with little arithmetic determine the call factor, runs with much of it the work factor; each run has some of both,
    so the fit alternates. One slowdown covers isolated ranks and concurrent ranks, which contend; so the factors hold
    for this number of ranks.
    """
    chosen = [run for run in moment if int(read_experiment(run["experiment"]).devices) == ranks]
    chosen = [kept for run in chosen if (kept := undisturbed(run, ranks))]
    tiny = [run for run in chosen if run.get("tiny")]
    other = [run for run in chosen if not run.get("tiny")]
    if not tiny or not other:
        return slowdown_factors(moment, machine, 1) if ranks > 1 else None
    work = calls = 1.0
    for _ in range(TURNS):
        calls *= _longer(tiny, slowed(machine, work, calls))
        work *= _longer(other, slowed(machine, work, calls))
    return work, calls


def undisturbed(run: Mapping[str, Any], ranks: int) -> Mapping[str, Any]:
    """Return a run without its core waits; empty if fewer than LEAST steps are undisturbed.

    A single rank's core waits are subtracted. With several ranks, one without a core delays the others by an unknown
    time: only steps with hardly any core wait count.
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
    """Return the geometric mean of measured over predicted step times."""
    return float(np.exp(-np.mean([np.log1p(_Run(run, machine).error(1.0, 1.0)) for run in runs])))


class _Run:
    """One run: s of its step without waiting for the slowest rank, and its predicted time."""

    def __init__(self, raw: Mapping[str, Any], machine: Machine) -> None:
        experiment = read_experiment(raw["experiment"])
        # Messages progress during compute, so only the whole step contains both.
        self.step = _steady(np.add(raw["busy"], raw["wait"]) - raw["behind"])
        self.work, self.cost = expected(experiment, machine)
        self.ranks = int(experiment.devices)
        self.counts = experiment.strategy.tensor == 1
        left = _steady(np.subtract(raw["wait"], raw["behind"])) - self.exchange(np.inf)
        self.share = float(np.clip(self.cost.bandwidth / max(left, 1e-12), *EFFICIENCY))

    def exchange(self, share: float) -> float:
        """Return s of communication at this fraction of the bandwidth."""
        return self.cost.latency + self.cost.reduction + self.cost.bandwidth / share

    def slowdown(self, share: float) -> float:
        return (self.step - self.exchange(share)) / self.work

    def error(self, slowdown: float, share: float) -> float:
        return (slowdown * self.work + self.exchange(share)) / self.step - 1


def _typical(runs: Sequence[_Run], share: float) -> float:
    return float(np.median(np.clip([run.slowdown(share) for run in runs], *SLOWDOWN)))


def _misfit(runs: Sequence[_Run], share: float) -> float:
    """Return the mean absolute error of the runs at their typical slowdown."""
    slowdown = _typical(runs, share)
    return float(np.mean(np.abs([run.error(slowdown, share) for run in runs])))


def expected(experiment: Experiment, machine: Machine) -> tuple[float, Cost]:
    """Return the compute s of a rank's step, and its communication without overlap.

    Allreduce of the gradients, or reduce-scatter and all-gather with ZeRO stage 2, and allreduces of activations.
    """
    strategy = experiment.strategy
    devices = max(int(machine.devices_per_node), int(strategy.devices_per_node))
    own = replace(experiment, machine=replace(machine, devices_per_node=devices, progress=False))
    step = program(own)
    work, cost = work_of(step), sum(messages_of(step)[0].values(), groups.NOTHING)
    seconds = float((work.forward + work.backward + work.update).mean())
    return seconds, Cost(*(float(term) for term in cost))


def interval(middle: float, values: Sequence[float], most: Ends, about: Ends) -> Ends:
    """Return a prediction interval for one more run: from the smallest value to the largest.

    One more run lies between the extremes of n runs with probability (n - 1) / (n + 1), for any distribution (Wilks
    1941): 89% for 18 runs. about: the interval of the parts, as factors of `middle`; always included.
    """
    held = np.clip([middle, *values], *most)
    return min(float(held.min()), middle * about[0]), max(float(held.max()), middle * about[1])


def _steady(seconds: Any) -> float:
    return float(np.quantile(seconds, STEADY))
