"""Load by other processes during a run, and when it is too high for a verdict.

Three quantities are measured: how long ranks waited for a core in each step (training/core_waits.py), the slowdown
factors of the machine right before and right after the run (calibration/step_fit.py), and the difference between these
two. Bands widen with that difference. There is no verdict if ranks lacked cores, or if the factors are unknown or
disagree.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from lib_dlhpc.comparison.steady import Slowdown, Steady, Steps
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

APART = 1.8  # predicted step at the slower over that at the faster of two slowdown factors: no verdict above it
AGREE = 1.15  # error of slowdown factors even if two measurements agree: a run's network is not the probes'
SHARE = 0.9  # of the time without a core: no verdict above it, even for one rank
RESTLESS = 2.0  # p90 over p10 of the steps; on an idle machine steps take equally long
ADVICE = "rerun when it is idle"


@dataclass(frozen=True)
class Load:
    """Load by other processes, as far as it was measured. Default: not measured."""

    core_wait: float | None = None  # fraction of the ranks' time without a core; None: unknown
    left_out: int = 0  # steps excluded because a rank had no core
    enough: bool = True  # undisturbed steps
    slowdowns: tuple[Slowdown, ...] = ()  # slowdown factors before and after each run
    asked: bool = False  # whether probes were requested
    apart: float = 1.0  # predicted step at the slower over that at the faster factors


def slowdown_of(runs: Sequence[Steps]) -> Slowdown | None:
    """Return the geometric mean of the slowdown factors beside the runs; None if unknown."""
    slowdowns = [slowdown for run in runs for slowdown in run.slowdowns]
    if not slowdowns:
        return None
    work, calls = (
        math.exp(statistics.fmean(map(math.log, each))) for each in zip(*slowdowns, strict=True)
    )
    return work, calls


def spread_of(runs: Sequence[Steps]) -> Slowdown:
    """Return the uncertainty factors of `slowdown_of`.

    The mean's error is half the log distance between before and after a run, at least AGREE. n runs reduce it by 1 /
    sqrt(n), root mean square.
    """
    halves = [
        [
            abs(math.log(after / before)) / 2
            for before, after in zip(run.slowdowns[0], run.slowdowns[-1], strict=True)
        ]
        for run in runs
        if run.slowdowns
    ]
    if not halves:
        return 1.0, 1.0
    work, calls = (
        math.exp(math.hypot(*each, *[math.log(AGREE)] * len(each)) / len(each))
        for each in zip(*halves, strict=True)
    )
    return work, calls


def load_of(runs: Sequence[Steps], found: Steady, apart: float) -> Load:
    """Return the load of the machine during some runs of one experiment."""
    known = [run for run in runs if run.core_wait is not None]
    return Load(
        core_wait=statistics.fmean(run.without_core for run in known) if known else None,
        left_out=found.disturbed,
        enough=found.enough,
        slowdowns=tuple(slowdown for run in runs for slowdown in run.slowdowns),
        asked=any(run.asked for run in runs),
        apart=apart,
    )


def too_busy(load: Load, low: float, high: float, steps: int, alike: bool = True) -> str:
    """Return why a run under this load gets no verdict; "" if it gets one.

    low, high: p10 and p90 of its measured steps, in s. alike: whether steps should take equally long, so that without
    core waits their spread indicates load.
    """
    waited = f"ranks were ready to run but had no core for {load.core_wait or 0:.0%} of the time"
    if not load.enough:
        left = steps - load.left_out
        return (
            f"{waited}, and only {left} of {count(steps, 'step')} went undisturbed: other processes are using"
            f" this machine; {ADVICE}."
        )
    if (load.core_wait or 0.0) > SHARE:
        return f"{waited}: other processes are using this machine; {ADVICE}."
    if load.asked and not load.slowdowns:
        return (
            f"the slowdown of the machine could not be measured, because the ranks of the probe runs had no core"
            f" most of the time: other processes are using this machine; {ADVICE}."
        )
    if load.apart > APART:
        return (
            "by the probe runs right before and right after this run, a step differs by a factor of"
            f" {load.apart:.1f}: the speed of the machine changed in the meantime; {ADVICE}."
        )
    if load.core_wait is None and alike and high >= RESTLESS * low:
        return (
            f"its steps took from {show(low, 's')} to {show(high, 's')} (p10 to p90): other processes are using this"
            f" machine; {ADVICE}."
        )
    return ""
