"""Where the time of simulated steps goes, for each way to update.

`timeline.breakdown` takes it that all ranks meet in every step: what a rank computes less than the
slowest one it waits. Ranks that average their weights every H steps wait for the slowest sum of H steps;
asynchronous ones wait for the slowest only where a bound holds their weights back. The rest of their
idle time is the exchange's.
"""

from dataclasses import replace

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.simulation.staleness import held_back
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Measured, Timeline, breakdown
from lib_dlhpc.timeline.measure import WORK


def measure(experiment: Experiment, timeline: Timeline) -> Measured:
    """Return the terms of a simulated timeline of the experiment, counted as `predict` counts them."""
    found, strategy = breakdown(timeline), experiment.strategy
    if strategy.update == "synchronous":
        return found
    if strategy.update == "local":
        waiting = _until_the_average(timeline, int(strategy.local_steps))
    else:
        waiting = held_back(timeline)
    idle = sum(
        found.per_rank[name] for name in ("waiting for the slowest", "exposed communication")
    )
    waiting = np.clip(waiting / found.steps, 0.0, idle)
    terms = {"waiting for the slowest": waiting, "exposed communication": idle - waiting}
    return replace(found, per_rank={**found.per_rank, **terms})


def _until_the_average(timeline: Timeline, every: int) -> Floats:
    """Return the s each rank computes less than the slowest between two averages, (ranks,)."""
    work = timeline.select(timeline.where("compute", *WORK)).sorted()
    seconds = (work.stop - work.start).reshape(timeline.ranks, -1, every * len(WORK)).sum(axis=-1)
    return np.asarray((seconds.max(axis=0) - seconds).sum(axis=1))
