"""One step as three timelines with the same rows: predicted, simulated, measured."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lib_dlhpc.comparison.steady import WARM_UP, step_ends
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Timeline


def typical_step(timeline: Timeline) -> Timeline:
    """Return the step of a run that takes the median time, without those at its start, from 0 s on.

    Raises ValueError for a rank without an update: nothing ends its steps.
    """
    ends = step_ends(timeline)
    begin = np.array([timeline.start[timeline.rank == rank].min() for rank in range(len(ends))])
    edges = np.concatenate([begin[:, None], ends], axis=1)
    seconds = np.diff(edges, axis=1).mean(axis=0)
    first = min(WARM_UP, len(seconds) - 1)
    step = first + int(np.argsort(seconds[first:])[(len(seconds) - first) // 2])
    since, until = edges[timeline.rank, step], edges[timeline.rank, step + 1]
    rows = timeline.select((timeline.start >= since) & (timeline.start < until))
    zero = float(edges[:, step].min())
    return replace(rows, start=rows.start - zero, stop=rows.stop - zero)


def expected_steps(experiment: Experiment) -> Mapping[str, Timeline]:
    """Return a step as it is predicted, the longest path of its program without jitter, and simulated as events."""
    even = replace(experiment, machine=replace(experiment.machine, jitter=0.0))
    return {"predicted": simulate(even, "rounds"), "simulated": simulate(experiment, "events")}
