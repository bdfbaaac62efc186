"""Steps of a program in rounds: all ranks of a stage at once, on arrays.

The longest path (program/rank_path.py), with a factor of each rank's compute time. Collectives that ranks
leave one by one follow their schedule round by round. program_events.py is the simulation with events.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.layout import Place
from lib_dlhpc.program import Collective, Program, RankedExchange, RankPath, calls, ranked_exchanges
from lib_dlhpc.simulation.conditions import Conditions, StepProgress
from lib_dlhpc.simulation.program_rows import Span, tables
from lib_dlhpc.simulation.ranked import ranked_exchange
from lib_dlhpc.simulation.watchdog import Cancelled
from lib_dlhpc.timeline import Timeline, join, mark_bubble


def simulate_rounds(
    steps: Sequence[Program], conditions: Conditions, progress: StepProgress | None = None
) -> Timeline:
    """Return the events of every rank in steps under these conditions, simulated in rounds.

    steps: the programs of the steps, which take turns. progress: called now and then with simulated seconds, passes
    and exchanges done, and all there are. Raises Cancelled when it returns False.
    """
    size = Place(steps[0].schedule.ranks, *steps[0].shape)
    several = steps[0].schedule.ranks > 1  # stages: some waits may be bubble
    ranked = ranked_exchange(steps[-1], conditions.speed)
    report = Report(steps, conditions.steps, progress)
    begin, spans, waits = list(np.zeros(size)), list[Span](), list[Iterator[Timeline]]()
    for number, step in zip(range(conditions.steps), cycle(steps), strict=False):
        conditions.started(number, np.ravel(begin))
        factor = list(conditions.factor[number].reshape(size))
        rows = _Rows(spans, [] if several else spans)
        path = RankPath(step, factor, begin, ranked=report.with_exchanges(ranked), record=rows.add)
        path.run(report)
        path.finish()
        begin = _save_and_wait(rows, path, number, begin, conditions)
        if several:
            waits.append(_marked(tables(rows.idle, size), bubble(step, factor)))
    places = zip(*waits, tables(spans, size), strict=True)
    return join(join(of_place).sorted() for of_place in places)


def _marked(waits: Iterator[Timeline], idle: Floats) -> Iterator[Timeline]:
    """Yield the waits of each place, of which a part is bubble; idle: s of each rank."""
    for each in waits:
        yield mark_bubble(each, idle, each.where())


def bubble(step: Program, factor: list[Floats]) -> Floats:
    """Return for each rank its idle time in a step if messages between stages are free.

    With one stage that is no bubble: an idle rank waits for the others of its group.
    """
    if step.schedule.ranks == 1:
        return np.zeros(factor[0].size)
    path = RankPath(step, factor, free=True)
    path.run()
    # All wait for all replicas at the end of a step, but each replica's bubble is its own.
    end = np.max([clock.max(axis=(1, 2)) for clock in path.clock], axis=0)[:, None, None]
    idle = [wait + end - clock for wait, clock in zip(path.idle, path.clock, strict=True)]
    return np.concatenate([array.ravel() for array in idle])


class Report:
    """Reports passes, and exchanges that ranks leave one by one; raises Cancelled if `progress` returns False."""

    def __init__(self, steps: Sequence[Program], count: int, progress: StepProgress | None) -> None:
        turns = zip(range(count), cycle(steps), strict=False)
        self.progress, self.seconds, self.done = progress, 0.0, 0
        self.all = sum(len(calls(step.schedule)) + ranked_exchanges(step) for _, step in turns)

    def __call__(self, seconds: float, parts: int = 1) -> None:
        """Report that this many passes or exchanges more are done, at this time."""
        self.seconds, self.done = max(self.seconds, seconds), self.done + parts
        if self.progress is not None and self.progress(self.seconds, self.done, self.all) is False:
            raise Cancelled(self.seconds, self.done)

    def with_exchanges(self, ranked: RankedExchange) -> RankedExchange:
        """Return the same function with each exchange reported."""

        def exchange(place: int, what: Collective, joined: Floats) -> Floats:
            through = ranked(place, what, joined)
            self(float(through.max()))
            return through

        return exchange


class _Rows:
    """Takes the intervals of a step; those of waits of which some may be bubble apart."""

    def __init__(self, rows: list[Span], idle: list[Span]) -> None:
        self.rows, self.idle = rows, idle

    def add(self, *event: Any, bytes: float = 0.0, idle: bool = False) -> None:
        (self.idle if idle else self.rows).append(Span(*event)._replace(bytes=bytes))


def _save_and_wait(
    rows: _Rows, path: RankPath, number: int, begin: list[Floats], conditions: Conditions
) -> list[Floats]:
    """Write the checkpoint and wait for the next batch; return when each rank begins the next step."""
    shape, saving = np.shape(begin), conditions.saving[number]
    since, ready = (np.reshape(t, shape) for t in conditions.coming(number, np.ravel(begin)))
    following = []
    for place, end in enumerate(path.clock):
        saved = end + saving
        rows.add(place, "compute", "checkpoint", "wait for the checkpoint", end, saved)
        rows.add(place, "checkpoint", "checkpoint", "write a checkpoint", end, saved)
        rows.add(place, "input", "input", "fetch the next batch", since[place], ready[place])
        rows.add(place, "compute", "input", "wait for input", saved, ready[place])
        following.append(np.maximum(saved, ready[place]))
    return following
