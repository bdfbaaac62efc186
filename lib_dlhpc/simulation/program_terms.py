"""Where the time of a program's steps goes, in rounds, without a row for each interval: for the largest runs.

The same numbers as `measure` of the rows of program_rounds.py. Memory does not grow with the microbatches.
"""

from collections.abc import Sequence

import numpy as np

from lib_dlhpc.program import Program, RankPath, work_of
from lib_dlhpc.simulation.conditions import Conditions, StepProgress
from lib_dlhpc.simulation.program_rounds import Report, bubble
from lib_dlhpc.simulation.ranked import ranked_exchange
from lib_dlhpc.timeline import Measured
from lib_dlhpc.timeline.measure import WORK


def measure_rounds(
    steps: Sequence[Program], conditions: Conditions, progress: StepProgress | None = None
) -> Measured:
    """Return the terms of every rank; arguments as in program_rounds.simulate_rounds.

    Ranks wait for the one that computes longest until the last of `steps`.
    """
    size = (steps[0].schedule.ranks, *steps[0].shape)
    report = Report(steps, conditions.steps, progress)
    ranked = report.with_exchanges(ranked_exchange(steps[-1], conditions.speed))
    mean = work_of(steps[-1])
    seconds = np.stack([mean.forward, mean.backward + mean.recomputation, mean.update])
    whole = seconds.sum(axis=0)[:, None, :, None]
    begin, stall = list(np.zeros(size)), 0.0
    waiting, bubbles, since = np.zeros(size), np.zeros(size), np.zeros(size)
    for number, factor in enumerate(conditions.factor.reshape(-1, *size)):
        step, last = steps[number % len(steps)], (number + 1) % len(steps) == 0
        conditions.started(number, np.ravel(begin))
        path = RankPath(step, list(factor), begin, ranked=ranked)
        path.run(report)
        waits = np.stack(path.idle) - np.stack(path.clock)
        path.finish()
        if step.schedule.ranks > 1:  # until all have met
            most = bubble(step, list(factor)).reshape(size)
            bubbles += np.minimum(most, waits + path.flush)
        since += factor * whole
        if last:
            waiting += since.max() - since
            since = np.zeros(size)
        saved = np.stack(path.clock) + conditions.saving[number]
        _, ready = conditions.coming(number, np.ravel(begin))
        following = np.maximum(saved, np.reshape(ready, size))
        stall += float((following - saved).min())
        begin = list(following)
    total, saving = float(np.max(begin)), float(conditions.saving.sum())
    sums = conditions.factor.sum(axis=0).reshape(size)
    idle = np.maximum(total - stall - saving - sums * whole, 0.0)
    bubbles = np.minimum(bubbles, idle)
    waiting = np.zeros(size) if bubbles.any() else np.minimum(waiting, idle)
    per_rank = {
        **dict(zip(WORK, sums * seconds[:, :, None, :, None], strict=True)),
        "waiting for the slowest": waiting,
        "exposed communication": idle - waiting - bubbles,
        "pipeline bubble": bubbles,
        "input stall": np.full(size, stall),
        "checkpoint": np.full(size, saving),
    }
    count = conditions.steps
    per_step = {name: np.ravel(seconds) / count for name, seconds in per_rank.items()}
    return Measured(total / count, count, per_step)
