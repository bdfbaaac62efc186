"""Why there is no finding: the trace is too short, or something in it too seldom (then the suspect is named),
or the differences are small or scatter; then the checks are listed.

The raw differences are looked at as the findings see them: no rule is decided here, see significance.py.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lib_dlhpc.arrays import Array
from lib_dlhpc.spec.units import count
from lib_dlhpc.timeline.analysis.busy import Busy
from lib_dlhpc.timeline.analysis.calls import EACH_FOR_ALL, Calls
from lib_dlhpc.timeline.analysis.imbalance import rounds
from lib_dlhpc.timeline.analysis.significance import ENOUGH, LEAST
from lib_dlhpc.timeline.analysis.waits import AllWaits, Waits, number_of
from lib_dlhpc.timeline.kinds import KINDS, STREAMS

PROFILER_STEP = re.compile(r"ProfilerStep#\d+")  # torch.profiler's mark, one a step


class Suspect(NamedTuple):
    """What might be a finding: what it costs, how often there was occasion for it, and who does what."""

    seconds: float
    times: int
    words: str


def why_nothing(found: Calls, when: Busy, late: AllWaits) -> str:
    """Return why nothing is found in a run."""
    suspects = [*_uneven(found, when), *_late(found, late)]
    steps, unit = _steps(found)
    looked = f"{f' in {count(steps, unit)}' if steps else ''}; looked for: {_looked_for(found)}."
    most = max((suspect.seconds for suspect in suspects), default=0.0)
    if not most >= LEAST * (when.end - when.begin):
        small = f"below {100 * LEAST:.0f}% of the run"
        return f"No finding: what differs between ranks is {small}{looked}"
    large = [suspect for suspect in suspects if suspect.seconds >= most / 2]
    if steps and steps < ENOUGH:
        worst = max(large)
        return (
            f"No finding: the trace is too short to be sure ({count(steps, unit)}; it takes about {ENOUGH});"
            f" {worst.words}."
        )
    few = [one for one in large if one.times < ENOUGH]
    if few:
        one = min(few, key=lambda suspect: suspect.times)
        return f"No finding: too few repeats to be sure ({one.times}; it takes about {ENOUGH}); {one.words}."
    return f"No finding: what differs between ranks is within its scatter{looked}"


def _steps(found: Calls) -> tuple[int, str]:
    """Return how many steps a trace has, or collectives of all ranks, and which; 0 where it has neither."""
    table = found.table
    marks = sum(PROFILER_STEP.fullmatch(name) is not None for name in table.names)
    if marks:
        return marks, "step"
    updates = np.bincount(table.rank[table.kind == KINDS.index("update")])
    if updates.any():
        return int(updates.max()), "step"
    return int(np.count_nonzero(found.of_all & (found.pattern == EACH_FOR_ALL))), "collective"


def _looked_for(found: Calls) -> str:
    """Return the kinds of findings that a trace can have, by what is recorded in it."""
    there = {
        "ranks that compute more than the others": found.table.ranks > 1,
        "late at collectives": found.groups > 0,
        "late senders and receivers, slow links": len(found.receives) > 0,
        "slow storage": bool((found.table.stream == STREAMS.index("input")).any()),
    }
    return ", ".join(name for name, has in there.items() if has) or "nothing: there is one rank"


def _uneven(found: Calls, when: Busy) -> Iterator[Suspect]:
    """Yield who has more to do, or more to read and write, than the median of the others."""
    table, work = found.table, when.seconds
    if table.ranks < 2:
        return
    rank, more = _most(work)
    yield Suspect(more, _rounds(found, when), f"rank {rank} computes most")
    rows = table.where("compute", "input", "checkpoint")
    whose, seconds = table.rank[rows], (table.stop - table.start)[rows]
    rank, more = _most(np.bincount(whose, weights=seconds, minlength=table.ranks))
    times = int(np.count_nonzero(whose == rank))
    yield Suspect(more, times, f"rank {rank} waits for storage longest")


def _rounds(found: Calls, when: Busy) -> int:
    """Return the count of rounds; without round boundaries, the fewest rows of a rank."""
    table = found.table
    if found.groups or (table.kind == KINDS.index("update")).any():
        return len(rounds(found, when)) - 1
    return int(np.bincount(table.rank, minlength=table.ranks).min())


def _most(seconds: Array) -> tuple[int, float]:
    rank = int(np.argmax(seconds))
    return rank, float(seconds[rank] - np.median(np.delete(seconds, rank)))


def _late(found: Calls, late: AllWaits) -> Iterator[Suspect]:
    """Yield for whom others wait longest, at a collective and for messages."""
    table, waits = found.table, late.collective
    if len(waits.row):
        names = np.int64(len(table.names))
        group = number_of(found)[waits.row]
        each = waits.seconds / np.bincount(group)[group]  # of those that wait, the mean
        key = table.rank[waits.cause] * names + table.name[waits.cause]
        seconds = np.bincount(key, weights=each)
        worst = int(np.argmax(seconds))
        rank, name = divmod(worst, int(names))
        its = table.rank[found.members] * names + table.name[found.members] == worst
        words = f"rank {rank} is the last to join {table.names[name]}"
        yield Suspect(float(seconds[worst]), int(its.sum()), words)
    for messages, does in ((late.late_sender, "sends"), (late.late_receiver, "receives")):
        if len(messages.row):
            yield _late_message(found, messages, does)


def _late_message(found: Calls, waits: Waits, does: str) -> Suspect:
    table = found.table
    pair = table.rank[waits.cause].astype(np.int64) * table.ranks + table.rank[waits.row]
    seconds = np.bincount(pair, weights=waits.seconds)
    worst = int(np.argmax(seconds))
    cause, who = divmod(worst, table.ranks)
    times = int(np.count_nonzero(pair == worst))
    return Suspect(
        float(seconds[worst]), times, f"rank {who} waits for rank {cause}, which {does} late"
    )
