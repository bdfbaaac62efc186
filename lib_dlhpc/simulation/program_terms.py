"""Where the time of a program's steps goes, in rounds, without a row for each interval: for the largest runs.

The same numbers as `timeline.breakdown` of the rows of program_rounds.py. Memory does not grow with the microbatches.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.program import Path, Program, calls, work_of
from lib_dlhpc.simulation.clock import StepProgress
from lib_dlhpc.simulation.program_rounds import bubble, reporter
from lib_dlhpc.simulation.ranked import ranked_exchange
from lib_dlhpc.timeline import Measured

Floats = NDArray[np.float64]
WORK = ("forward", "backward", "update")


def measure_rounds(
    step: Program,
    factor: Floats,
    fetch: Floats,
    saving: Floats,
    progress: StepProgress | None = None,
) -> Measured:
    """Return the terms of every rank in `len(factor)` steps; arguments as in program_rounds.simulate_rounds."""
    size, ranked = (step.schedule.ranks, *step.shape), ranked_exchange(step)
    report = reporter(step, len(factor), progress)
    mean = work_of(step)
    seconds = np.stack([mean.forward, mean.backward + mean.recomputation, mean.update])
    begin, stall = 0.0, 0.0
    idle, waiting, bubbles = (np.zeros(size) for _ in range(3))
    for number, (slow, late, saved) in enumerate(zip(factor, fetch, saving.tolist(), strict=True)):
        of_stage = slow.reshape(size)
        path = Path(step, list(of_stage), begin, ranked=ranked)
        path.run(partial(report, number))
        waits = np.stack(path.idle) - np.stack(path.clock)
        end = path.finish()
        waits += path.flush
        bubbles += np.minimum(bubble(step, list(of_stage)).reshape(size), waits)
        busy = of_stage * seconds.sum(axis=0)[:, None, :, None]
        waiting += busy.max() - busy
        idle += end - begin - busy
        following = max(end + saved, begin + float(late.max()))
        stall += following - end - saved
        begin = following
    report(len(factor) - 1, begin, len(calls(step.schedule)))
    idle = np.maximum(idle, 0.0)
    bubbles = np.minimum(bubbles, idle)
    waiting = np.zeros(size) if bubbles.any() else np.minimum(waiting, idle)
    total = factor.sum(axis=0).reshape(size) * seconds[:, :, None, :, None]
    per_rank = {
        **dict(zip(WORK, total, strict=True)),
        "waiting for the slowest": waiting,
        "exposed communication": idle - waiting - bubbles,
        "pipeline bubble": bubbles,
        "input stall": np.full(size, stall),
        "checkpoint": np.full(size, saving.sum()),
    }
    count = len(factor)
    each = {name: np.ravel(seconds) / count for name, seconds in per_rank.items()}
    return Measured(begin / count, count, each)
