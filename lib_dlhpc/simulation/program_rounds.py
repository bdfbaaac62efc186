"""Steps of a program in rounds: all ranks of a stage at once, on arrays.

The longest path of the program (program/path.py), with a factor of each rank's compute time. Collectives that ranks
leave one by one follow their schedule round by round. program_events.py is the simulation with events.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.layout import Place
from lib_dlhpc.program import Path, Program, calls
from lib_dlhpc.simulation.clock import StepProgress
from lib_dlhpc.simulation.program_rows import Span, table
from lib_dlhpc.simulation.ranked import ranked_exchange
from lib_dlhpc.simulation.watchdog import Cancelled
from lib_dlhpc.timeline import Timeline, join, mark_bubble

Floats = NDArray[np.float64]


def simulate_rounds(
    step: Program,
    factor: Floats,
    fetch: Floats,
    saving: Floats,
    progress: StepProgress | None = None,
) -> Timeline:
    """Return the events of every rank in `len(factor)` steps, simulated in rounds.

    factor: (steps, ranks) of the compute time. fetch: (steps, ranks)
    s that the next batch takes. saving: (steps,) s in which all ranks are idle for a checkpoint. progress:
    called now and then with simulated seconds, passes done, and all there are. Raises Cancelled when
    it returns False.
    """
    size = Place(step.schedule.ranks, *step.shape)
    ranked = ranked_exchange(step)
    begin, tables = 0.0, []
    report = reporter(step, len(factor), progress)
    for number, (slow, late, saved) in enumerate(zip(factor, fetch, saving.tolist(), strict=True)):
        of_stage = list(slow.reshape(size))
        rows = _Rows()
        path = Path(step, of_stage, begin, ranked=ranked, record=rows.add)
        path.run(partial(report, number))
        end = path.finish()
        report(number, end, len(calls(step.schedule)))
        begin = _save_and_wait(rows, begin, end, saved, late.reshape(size))
        waits = table(rows.idle, size)
        tables += [
            table(rows.rows, size),
            mark_bubble(waits, bubble(step, of_stage), waits.where()),
        ]
    return join(tables).sorted()


def bubble(step: Program, factor: list[Floats]) -> Floats:
    """Return for each rank its idle time in a step if messages between stages are free.

    With one stage that is no bubble: an idle rank waits for the others of its group.
    """
    if step.schedule.ranks == 1:
        return np.zeros(factor[0].size)
    path = Path(step, factor, free=True)
    path.run()
    # All wait for all replicas at the end of a step, but each replica's bubble is its own.
    end = np.max([clock.max(axis=(1, 2)) for clock in path.clock], axis=0)[:, None, None]
    idle = [wait + end - clock for wait, clock in zip(path.idle, path.clock, strict=True)]
    return np.concatenate([each.ravel() for each in idle])


def reporter(
    step: Program, steps: int, progress: StepProgress | None
) -> Callable[[int, float, int], None]:
    """Return what reports passes done in a step, of all there are; it raises Cancelled if `progress` returns False."""
    each = len(calls(step.schedule))

    def report(number: int, seconds: float, done: int) -> None:
        done += number * each
        if progress is not None and progress(seconds, done, steps * each) is False:
            raise Cancelled(seconds, done)

    return report


class _Rows:
    """The intervals of a step; waits of which some is bubble apart."""

    def __init__(self) -> None:
        self.rows: list[Span] = []
        self.idle: list[Span] = []

    def add(self, *event: Any, bytes: float = 0.0, idle: bool = False) -> None:
        (self.idle if idle else self.rows).append(Span(*event)._replace(bytes=bytes))


def _save_and_wait(
    rows: _Rows, begin: float, end: float, saving: float, fetch: NDArray[Any]
) -> float:
    """Write the checkpoint and wait for the next batch; return when the next step begins."""
    saved, ready = end + saving, begin + fetch
    following = max(saved, float(ready.max()))
    for place in range(len(fetch)):
        rows.add(place, "compute", "checkpoint", "wait for the checkpoint", end, saved)
        rows.add(place, "checkpoint", "checkpoint", "write a checkpoint", end, saved)
        rows.add(place, "input", "input", "fetch the next batch", begin, ready[place])
        rows.add(place, "compute", "input", "wait for input", saved, following)
    return following
