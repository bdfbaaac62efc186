"""What a Gantt chart shows, in words: who waits for whom, and how much of the communication is hidden."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Measured, Timeline, breakdown, exposed
from lib_dlhpc.timeline.analysis.busy import busy
from lib_dlhpc.timeline.spans import in_order

EXCHANGES = ("communication", "collective")
CALLS = ("send", "receive", "collective")
RECORDED = ("region", *CALLS)  # of a program that has no steps
NOTABLE = 1e-3  # of a step: less is not mentioned


def gantt_words(timeline: Timeline, shown: Sequence[int], common: bool) -> str:
    """Return the sentences for a chart of the ranks `shown`.

    common: whether there is a collective of all ranks, see `last_to_join`.
    """
    if not len(timeline):
        return "Nothing happened."
    computing, measured = seconds_computing(timeline), breakdown(timeline)
    if timeline.where("", *RECORDED).any():
        return _program_words(timeline, computing, shown)
    said = [
        _ranks_words(computing, shown),
        _waiting_words(computing, measured, common),
        _exchange_words(timeline, int(computing.argmax()), measured.steps),
    ]
    stall = measured.terms["input stall"]
    if stall > NOTABLE * measured.step_time:
        said.append(
            f"Every rank is idle for {show(stall, 's')} per step, waiting for its next batch."
        )
    return " ".join(sentence for sentence in said if sentence)


def seconds_computing(timeline: Timeline) -> NDArray[np.float64]:
    """Return the seconds that each rank computes, shape (ranks,); of a recorded program, as `analyze` has it."""
    if timeline.where("", *RECORDED).any():
        return np.asarray(busy(in_order(timeline)).seconds, np.float64)
    rows = timeline.where("compute", "forward", "backward", "update")
    seconds = (timeline.stop - timeline.start)[rows]
    return np.bincount(timeline.rank[rows], seconds, timeline.ranks).astype(np.float64, copy=False)


def _program_words(timeline: Timeline, computing: NDArray[np.float64], shown: Sequence[int]) -> str:
    said = [_ranks_words(computing, shown)]
    longest, shortest = int(computing.argmax()), int(computing.argmin())
    if timeline.ranks > 1:
        most, least = (show(computing[rank], "s") for rank in (longest, shortest))
        said.append(
            f"Rank {longest:,} computes longest, {most}; rank {shortest:,} computes {least}."
        )
    calls = timeline.where("", *CALLS)
    if calls.any():
        seconds = (timeline.stop - timeline.start)[calls]
        inside = np.bincount(timeline.rank[calls], seconds, timeline.ranks)
        rank, most = int(inside.argmax()), show(float(inside.max()), "s")
        said.append(f"Rank {rank:,} is longest in calls, {most} in all.")
    return " ".join(said)


def last_to_join(timeline: Timeline) -> NDArray[np.intp]:
    """Return for each row the row of the same exchange that began last, -1 if it is in none.

    An exchange is the n-th row of one name on the stream communication of every rank, if no rank is
    done with it before the last one has joined.
    """
    last = np.full(len(timeline), -1)
    rows = np.flatnonzero(timeline.where("communication", *EXCHANGES) & (timeline.peer < 0))
    if not len(rows) or timeline.ranks == 1:
        return last
    # Sorted by rank and name, the n-th row of a run is the n-th exchange of that name.
    rows = rows[np.lexsort((timeline.start[rows], timeline.name[rows], timeline.rank[rows]))]
    name, number = timeline.name[rows].astype(np.int64), np.arange(len(rows))
    new = np.append(True, (np.diff(name) != 0) | (np.diff(timeline.rank[rows]) != 0))
    exchange = name * len(rows) + number - np.maximum.accumulate(np.where(new, number, 0))
    order = np.lexsort((timeline.start[rows], exchange))
    rows, exchange = rows[order], exchange[order]
    first = np.flatnonzero(np.append(True, np.diff(exchange) != 0))
    size = np.diff(np.append(first, len(rows)))
    latest = rows[first + size - 1]
    done = np.minimum.reduceat(timeline.stop[rows], first)
    together = (size == timeline.ranks) & (done >= timeline.start[latest])
    last[rows] = np.repeat(np.where(together, latest, -1), size)
    return last


def _ranks_words(computing: NDArray[np.float64], shown: Sequence[int]) -> str:
    ranks, slowest, fastest = len(computing), int(computing.argmax()), int(computing.argmin())
    if len(shown) == ranks:
        return f"All of the {ranks:,} ranks." if ranks > 1 else "One rank."
    if slowest == fastest or not {slowest, fastest} <= set(shown):
        return f"{len(shown)} of {ranks:,} ranks."
    both = f"the slowest ({slowest:,}) and the fastest ({fastest:,}) among them"
    return f"{len(shown)} of {ranks:,} ranks, {both}."


def _waiting_words(computing: NDArray[np.float64], measured: Measured, common: bool) -> str:
    if len(computing) == 1:
        return ""
    slowest, fastest = int(computing.argmax()), int(computing.argmin())
    longest, shortest = (show(computing[r] / measured.steps, "s") for r in (slowest, fastest))
    if computing[slowest] - computing[fastest] <= NOTABLE * computing[slowest]:
        return f"All compute equally long, {longest} per step: no rank waits for a slower one."
    words = (
        f"Rank {slowest:,} computes longest, {longest} per step; rank {fastest:,} needs {shortest}."
    )
    if not common:
        return f"{words} No collective spans all ranks, so none waits for the slowest."
    waiting = show(measured.terms["waiting for the slowest"], "s")
    whom = "it" if measured.steps == 1 else "the slowest of each step"
    return f"{words} The others wait for {whom}, {waiting} per step on average."


def _exchange_words(timeline: Timeline, rank: int, steps: int) -> str:
    """Of the rank that computes longest, for it waits for nobody."""
    mine = timeline.select(timeline.rank == rank)
    alone = replace(mine, rank=np.zeros_like(mine.rank), ranks=1)
    talk = float(exposed(alone.select(alone.where("communication")))[0])
    if not talk:
        return "No communication."
    out = float(exposed(alone)[0])
    hidden = f"{(talk - out) / talk:.0%} of it hidden behind computation"
    if out <= NOTABLE * talk:
        rest = "all of it hidden behind computation"
    elif talk - out <= NOTABLE * talk:
        rest = "all of it exposed"
    else:
        rest = f"{hidden}, {show(out / steps, 's')} exposed"
    who = f"Rank {rank:,}" if timeline.ranks > 1 else "It"
    return f"{who} communicates for {show(talk / steps, 's')} per step, {rest}."
