"""A learner's critical path: pieces that follow each other, beside timeline/critical_path.py.

path_findings(critical_path, dominates, runs)    its length, its way, and what it consists of most
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.findings import Finding, in_turn, once, waiting
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.read_a_trace.answers import (
    NOT_NUMBERS,
    answer,
    number_of,
    rank_of,
    seconds,
    short,
)
from lib_dlhpc.labs.read_a_trace.traces import Run, events_of, run_trace
from lib_dlhpc.timeline import critical_path as path_of
from lib_dlhpc.timeline import span

LENGTH = "Path: its pieces follow each other, from the start to the end of the run"
WAY = "Path: from where a rank waited, to the rank it waited for"
MOST = "Path: what it consists of most"
LAWS = (LENGTH, WAY, MOST)
WHAT = ("computation", "send", "receive", "collective")
GAP = "What does a rank do between two calls?"
OVERLAP = "A call that waited is on the path only from the moment at which the rank that it waited for arrived."
CLOSE = 1e-6  # of the run's time
SAID = f"pieces (rank, what, start, stop), in order of time; what: {', '.join(WHAT)}"


class Piece(NamedTuple):
    """A piece of a path: what a rank does from when to when, s."""

    rank: int
    what: str
    start: float
    stop: float


def path_findings(
    critical_path: Callable[..., Any], dominates: Callable[..., Any], runs: Sequence[Run]
) -> list[Finding]:
    """Return whether critical_path(events, ranks) is the package's, and dominates(pieces) what it has most of."""

    def found(run: Run) -> list[Piece]:
        return pieces_of(answer(critical_path, events_of(run_trace(run)), run.ranks), run)

    def check(run: Run, off: Callable[[Run, list[Piece]], str]) -> Callable[[], str]:
        return lambda: off(run, found(run))

    def most(run: Run) -> Callable[[], str]:
        def wrong() -> str:
            pieces = [tuple(each) for each in right_path(run)]
            return most_off(run, answer(dominates, pieces))

        return wrong

    both = in_turn(
        lambda: once(
            LENGTH,
            ((run.words, check(run, length_off)) for run in runs),
            "As long as the run, in every trace.",
        ),
        lambda: once(
            WAY, ((run.words, check(run, way_off)) for run in runs), f"In {len(runs)} traces."
        ),
    )
    last = once(MOST, ((run.words, most(run)) for run in runs), "Of the package's paths.")
    return [*waiting(both, LAWS[:2]), last]


@lru_cache(maxsize=32)
def right_path(run: Run) -> tuple[Piece, ...]:
    """Return the package's critical path of a run, without pieces that take no time."""
    every = (
        Piece(
            each.rank, "computation" if each.kind == "region" else each.kind, each.start, each.stop
        )
        for each in path_of(run_trace(run))
    )
    return tuple(each for each in every if each.stop > each.start)


def pieces_of(found: Any, run: Run) -> list[Piece]:
    """Return a learner's pieces. Raises LabError for what is none."""
    if not isinstance(found, Iterable) or isinstance(found, str | dict):
        raise LabError(f"expected {SAID}; not {short(found)}.")
    pieces = list[Piece]()
    for each in found:
        try:
            rank, what, start, stop = each
            one = Piece(rank_of(rank), str(what), number_of(start), number_of(stop))
        except NOT_NUMBERS:
            raise LabError(f"{short(each, 80)} is not a piece: expected {SAID}.") from None
        if one.what not in WHAT or not 0 <= one.rank < run.ranks:
            raise LabError(f"{short(each, 80)} is not a piece: expected {SAID}.")
        if one.stop - one.start < -CLOSE * span(run_trace(run)):
            raise LabError(f"{short(each, 80)} ends before it begins.")
        pieces.append(one)
    if not pieces:
        raise LabError("the path has no pieces.")
    return pieces


def length_off(run: Run, pieces: list[Piece]) -> str:
    """Return where pieces do not follow each other, or do not reach from the start to the end; empty if they do."""
    trace = run_trace(run)
    near, begin, end = CLOSE * span(trace), float(trace.start.min()), float(trace.stop.max())
    if sorted(pieces, key=lambda each: each.start) != pieces and pieces[0].start > pieces[-1].start:
        return "the pieces are ordered from the end to the start: reverse them."
    if abs(pieces[-1].stop - end) > near:
        return (
            f"it ends at {seconds(pieces[-1].stop)}, and the run at {seconds(end)}: start at the last"
            " event of any rank."
        )
    at = begin
    for each in pieces:
        if abs(each.start - at) > near:
            kind, more = ("a gap", GAP) if each.start > at else ("an overlap", OVERLAP)
            begins = f"the next piece, of rank {each.rank}, begins at {seconds(each.start)}"
            return f"{kind} at {seconds(at)}: {begins}. {more}"
        at = each.stop
    return ""


def way_off(run: Run, pieces: list[Piece]) -> str:
    """Return where a path leaves the package's, looking back from the end; empty if it does not."""
    right, near = right_path(run), CLOSE * span(run_trace(run))
    edges = np.unique([x for each in (*right, *pieces) for x in (each.start, each.stop)])
    for low, high in zip(edges[-2::-1], edges[:0:-1], strict=True):
        if high - low <= near:
            continue
        mine, own = (_at(those, (low + high) / 2) for those in (pieces, right))
        if mine.what == own.what and (mine.rank == own.rank or own.what == "collective"):
            continue
        return f"from the end back to {seconds(high)}, the path is right. {_why(run, mine, own, float(high))}"
    return ""


def _at(pieces: Sequence[Piece], time: float) -> Piece:
    return min(pieces, key=lambda each: max(each.start - time, time - each.stop))


def _why(run: Run, mine: Piece, own: Piece, time: float) -> str:
    """Return what a path missed at a time. own: the piece that is right."""
    if early := _too_early(run, mine):
        return early
    if mine.rank == own.rank:
        return f"Before that, rank {own.rank} is in an activity other than {mine.what}."
    near = CLOSE * span(run_trace(run))
    waited = any(
        each.rank == mine.rank
        and each.kind in WHAT
        and each.start < time - near
        and each.stop >= time - near
        for each in run_trace(run)
    )
    if mine.what in ("receive", "collective") and waited:
        other = "its message is sent" if mine.what == "receive" else "the last rank joins"
        return (
            f"Before that, rank {mine.rank} waits in its {mine.what} until {other}: a wait is not on the path, but"
            " what the other rank does in the meantime is."
        )
    return (
        f"Before that, the path continues at a rank other than {mine.rank}. Go to the sender of a message that was"
        " waited for, or to the last rank that joined a collective; if a call did not wait, stay on its rank."
    )


def _too_early(run: Run, mine: Piece) -> str:
    """Return why a piece that ends with a call begins too early, empty if it does not."""
    near, rows = CLOSE * span(run_trace(run)), list(run_trace(run))
    sent = {each.match: each.start for each in rows if each.kind == "send"}
    ended = (x for x in rows if (x.rank, x.kind) == mine[:2] and abs(x.stop - mine.stop) <= near)
    for call in ended:
        if call.kind == "receive":
            followed = abs(mine.start - sent[call.match]) <= near
            if followed and mine.start < call.start - near:
                return (
                    f"Before that, a receive of rank {call.rank} begins at {seconds(call.start)}, after its message"
                    " was sent: it did not wait, and the path stays on the rank."
                )
        if call.kind == "collective" and abs(mine.start - call.start) > near:
            last = max(x.start for x in rows if (x.kind, x.match) == (call.kind, call.match))
            if mine.start < last - near:
                return (
                    f"Before that, the ranks wait until {seconds(last)}, when the last rank joins: continue at that"
                    " rank."
                )
    return ""


def most_off(run: Run, found: Any) -> str:
    """Return what is wrong with the rank and activity that are said to dominate, empty if nothing is."""
    try:
        rank, what = found
        given = rank_of(rank), str(what)
    except NOT_NUMBERS:
        raise LabError(f"expected a rank and an activity, not {short(found)}.") from None
    sums = sums_of(right_path(run))
    right = max(sums, key=lambda each: sums[each])
    if given == right:
        return ""
    longest = max(right_path(run), key=lambda each: each.stop - each.start)
    if given == (longest.rank, longest.what):
        return "that is the longest single piece. Sum the pieces of each rank and activity."
    if given not in sums:
        return f"{short(given[1])} of rank {given[0]:g} is not on the path."
    return f"{given[1]} of rank {given[0]} takes {seconds(sums[given])} of the path; another activity takes more."


def sums_of(pieces: Iterable[Piece]) -> dict[tuple[int, str], float]:
    """Return the seconds of each rank and activity on a path."""
    sums: dict[tuple[int, str], float] = {}
    for each in pieces:
        key = (each.rank, each.what)
        sums[key] = sums.get(key, 0.0) + each.stop - each.start
    return sums
