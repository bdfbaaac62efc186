"""A learner's wait states: who waits for whom at messages and collectives, and whose doing it is.

wait_findings(late_senders, collective_waits, runs)    matrices of seconds, beside timeline/analysis/waits.py
culprit_findings(culprit, runs)                        the late rank, and what it costs the run
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.labs.findings import Finding, in_turn, once, waiting
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.read_a_trace.answers import ALIKE, EXACT, Slips, answer, like, numbers, seconds
from lib_dlhpc.labs.read_a_trace.chain import RANKS, WORDS, chain, chain_off
from lib_dlhpc.labs.read_a_trace.traces import SLOW, Run, events_of, run_trace
from lib_dlhpc.sentences import sentences
from lib_dlhpc.timeline import Timeline, span
from lib_dlhpc.timeline.analysis.busy import busy
from lib_dlhpc.timeline.analysis.calls import calls
from lib_dlhpc.timeline.analysis.waits import AllWaits, Waits, waits
from lib_dlhpc.timeline.spans import in_order

say = sentences(__file__)

SENDERS = "Waits: for late senders"
COLLECTIVES = "Waits: at collectives"
WHO = "Culprit: the rank that causes the waits"
COST = "Culprit: what it costs the run"
NEAR = 0.1  # of the cost
SAID = "a row for each rank that waits, with the seconds that it waits for each rank"
PAIR = "a rank, and seconds"


def wait_findings(
    late_senders: Callable[..., Any], collective_waits: Callable[..., Any], runs: Sequence[Run]
) -> list[Finding]:
    """Return whether both matrices, (waits, late), are the package's."""
    both = ((SENDERS, late_senders, _sender_slips), (COLLECTIVES, collective_waits, _group_slips))
    return [_matrices(law, function, slips, runs) for law, function, slips in both]


def _matrices(
    law: str,
    function: Callable[..., Any],
    slips: Callable[[Timeline, AllWaits], Slips],
    runs: Sequence[Run],
) -> Finding:
    def check(run: Run) -> Callable[[], str]:
        def wrong() -> str:
            trace, found = waits_of(run)
            given = answer(function, events_of(trace), run.ranks)
            array = numbers(given, (run.ranks, run.ranks), SAID)
            which = found.late_sender if law == SENDERS else found.collective
            return matrix_off(trace, array, matrix(trace, which), slips(trace, found), which)

        return wrong

    every = ((run.words, check(run)) for run in runs)
    return once(law, every, f"For every pair of ranks of {len(runs)} traces.")


@lru_cache(maxsize=16)
def waits_of(run: Run) -> tuple[Timeline, AllWaits]:
    """Return the trace of a run in order, and its waits."""
    trace = in_order(run_trace(run))
    return trace, waits(calls(trace), busy(trace))


def matrix(trace: Timeline, which: Waits) -> Floats:
    """Return for how long each rank waits for each, s, (waits, late)."""
    found = np.zeros((trace.ranks, trace.ranks))
    np.add.at(found, (trace.rank[which.row], trace.rank[which.cause]), which.seconds)
    return found


def matrix_off(trace: Timeline, found: Floats, right: Floats, slips: Slips, which: Waits) -> str:
    """Return what is wrong with a matrix of waits, empty if nothing is."""
    off, whole = np.abs(found - right), span(trace)
    if off.max() <= EXACT * whole:
        return ""
    who, late = np.unravel_index(int(off.argmax()), off.shape)
    size = "much" if found[who, late] > right[who, late] else "little"
    hint = like(found, slips, ALIKE * whole) or _example(trace, which, int(who), int(late))
    words = f"rank {who} waits {seconds(found[who, late])} for rank {late}, which is too {size}."
    return f"{words} {hint}".strip()


def _example(trace: Timeline, which: Waits, who: int, late: int) -> str:
    """Return the first wait of a rank for another in words, to look up in the trace."""
    pair = (trace.rank[which.row] == who) & (trace.rank[which.cause] == late) & (which.seconds > 0)
    if not pair.any():
        return say.never_waits
    row, cause = which.row[pair][0], which.cause[pair][0]
    begin, come = seconds(trace.start[row]), seconds(trace.start[cause])
    if trace.where("", "receive")[row]:
        return f"Look at its receive at {begin}: the message is sent at {come}."
    return f"Look at its allreduce at {begin}: rank {late} joins last, at {come}."


def _sender_slips(trace: Timeline, found: AllWaits) -> Slips:
    right, which = matrix(trace, found.late_sender), found.late_sender
    yield say.swapped, right.T
    begin, end = trace.start[which.row], trace.stop[which.row]
    sent = trace.start[which.cause]
    wall = _with(trace, which, end - begin)
    until = say.whole_calls.format("its message is sent")
    yield until, wall
    yield until, wall.T
    yield say.negative, _with(trace, which, sent - begin)
    yield say.in_flight, _with(trace, which, end - sent)
    both = right + matrix(trace, found.collective)
    yield say.collectives_counted, both
    yield say.longest_message, _most(trace, which)
    yield say.last_message, _last(trace, which)
    yield (
        say.wrong_match,
        _with(trace, which, np.clip(np.minimum(_latest(trace, which), end) - begin, 0.0, None)),
    )


def _group_slips(trace: Timeline, found: AllWaits) -> Slips:
    right, which = matrix(trace, found.collective), found.collective
    yield say.swapped, right.T
    every = trace.where("", "collective")
    joined = trace.start[every]
    group = np.unique(trace.match[every], return_inverse=True)[1]
    last = np.full(int(group.max()) + 1, -1)
    for row in np.argsort(joined, kind="stable"):
        last[group[row]] = row
    first = np.full(len(last), -1)
    for row in np.argsort(-joined, kind="stable"):
        first[group[row]] = row
    rank, length = trace.rank[every], (trace.stop - trace.start)[every]
    wall = np.zeros_like(right)
    np.add.at(wall, (rank, rank[last[group]]), length)
    until = say.whole_calls.format("the last rank has joined")
    yield until, wall
    yield until, np.where(np.eye(trace.ranks, dtype=bool), 0.0, wall)
    early = np.zeros_like(right)
    np.add.at(early, (rank, rank[first[group]]), joined[last[group]] - joined)
    yield say.first_to_join, early
    pairs = np.zeros_like(right)
    for number in range(len(last)):
        here = np.flatnonzero(group == number)
        later = np.clip(joined[here][None, :] - joined[here][:, None], 0.0, None)
        np.add.at(pairs, (rank[here][:, None], rank[here][None, :]), later)
    yield say.each_later_rank, pairs
    yield say.messages_counted, right + matrix(trace, found.late_sender)
    yield say.longest_collective, _most(trace, which)
    yield say.last_collective, _last(trace, which)


def _with(trace: Timeline, which: Waits, lengths: Any) -> Floats:
    found = np.zeros((trace.ranks, trace.ranks))
    np.add.at(found, (trace.rank[which.row], trace.rank[which.cause]), lengths)
    return found


def _most(trace: Timeline, which: Waits) -> Floats:
    found = np.zeros((trace.ranks, trace.ranks))
    np.maximum.at(found, (trace.rank[which.row], trace.rank[which.cause]), which.seconds)
    return found


def _last(trace: Timeline, which: Waits) -> Floats:
    found = np.zeros((trace.ranks, trace.ranks))
    for k in np.argsort(trace.start[which.row], kind="stable"):
        found[trace.rank[which.row[k]], trace.rank[which.cause[k]]] = which.seconds[k]
    return found


def _latest(trace: Timeline, which: Waits) -> Floats:
    """Return of each receive when the last message of all began that its peer sent to it."""
    pair = trace.rank[which.row] * trace.ranks + trace.rank[which.cause]
    found = np.full(trace.ranks**2, -np.inf)
    np.maximum.at(found, pair, trace.start[which.cause])
    return found[pair]


def culprit_findings(culprit: Callable[..., Any], runs: Sequence[Run]) -> list[Finding]:
    """Return whether culprit(events, ranks) names the late rank, and its cost to NEAR; of runs that have one."""
    late = [run for run in runs if run.problem != SLOW]

    def check(run: Run, part: int) -> Callable[[], str]:
        def wrong() -> str:
            given = answer(culprit, events_of(run_trace(run)), run.ranks)
            rank, cost = numbers(given, (2,), PAIR)
            return cost_off(run, cost) if part else rank_off(run, rank)

        return wrong

    def passed_on(first: int, last: bool, part: int) -> Callable[[], str]:
        def wrong() -> str:
            given = answer(culprit, events_of(chain(first, last)), RANKS)
            rank, cost = numbers(given, (2,), PAIR)
            return chain_off(first, last, rank, cost if part else None, NEAR)

        return wrong

    chains = [
        (first, last) for first in sorted({r.rank % RANKS for r in late}) for last in (False, True)
    ]

    def cases(part: int) -> list[tuple[str, Callable[[], str]]]:
        own = [(run.words, check(run, part)) for run in late]
        return [*own, *((WORDS, passed_on(*each, part)) for each in chains)]

    laws = (WHO, COST)
    words = (f"In {len(late) + len(chains)} traces.", f"To {NEAR:.0%}.")
    makers = [lambda part=part: once(laws[part], cases(part), words[part]) for part in range(2)]
    return waiting(in_turn(*makers), laws)


def rank_off(run: Run, rank: float) -> str:
    """Return what is wrong with the rank that is named, empty if it is the late one."""
    if rank == run.rank:
        return ""
    if rank not in range(run.ranks):
        raise LabError(f"there is no rank {rank:g}.")
    trace, found = waits_of(run)
    both = matrix(trace, found.late_sender) + matrix(trace, found.collective)
    words = list[str]()
    if rank == both.sum(axis=1).argmax():
        words.append(f"rank {rank:g} waits the longest. For whom does it wait?")
    if both.sum(axis=0)[int(rank)] > 0.1 * both.sum():
        words.append(
            f"others wait for rank {rank:g}, but it is late because it waited itself. Charge it only for what exceeds"
            " its own waiting in receives since the last allreduce, and also charge ranks for waits in receives."
        )
    if words:
        return " But ".join(words)
    return f"rank {rank:g} itself delays no other rank."


@lru_cache(maxsize=64)
def doings(run: Run) -> Floats:
    """Return own_doings of a run."""
    return own_doings(*waits_of(run))


def own_doings(
    trace: Timeline, found: AllWaits, charged: Sequence[Waits] | None = None, forgets: bool = True
) -> Floats:
    """Return how long each rank waits for each delay that another causes itself, s, of each step: (steps, waits, late).

    A wait, less what the late rank itself had waited in that step before. The waits of a rank in a step for another
    are added: without the first, the second would be as much longer. charged: waits that count, if not all do.
    forgets: what was waited in earlier steps is no excuse.
    """
    every = [*_waits(trace, found.late_sender), *_waits(trace, found.collective)]
    ends = [
        sorted(trace.start[trace.where("", "collective") & (trace.rank == r)])
        for r in range(trace.ranks)
    ]
    result = np.zeros((len(ends[0]), trace.ranks, trace.ranks))
    counted = every
    if charged is not None:
        counted = [one for each in charged for one in _waits(trace, each)]
    for begin, who, until, late, wait in counted:
        step = int(np.searchsorted(ends[who], begin, "left"))
        since = ends[late][step - 1] if step and forgets else 0.0
        excuse = sum(w for b, r, _, _, w in every if r == late and since < b < until)
        result[step, who, late] += max(0.0, wait - excuse)
    return result


def _waits(trace: Timeline, which: Waits) -> list[tuple[float, int, float, int, float]]:
    """Return of each wait when it begins, who waits, when the late rank comes, which it is, and s."""
    row, cause = which.row, which.cause
    columns = (
        trace.start[row],
        trace.rank[row],
        trace.start[cause],
        trace.rank[cause],
        which.seconds,
    )
    return [one for one in zip(*(each.tolist() for each in columns), strict=True) if one[-1] > 0]


def cost_of(run: Run) -> float:
    """Return the seconds that the late rank costs the run."""
    return cost_in(doings(run), run.rank)


def cost_in(own: Floats, late: int) -> float:
    """Return the seconds that a rank costs, of own_doings: in each step those of the rank that waits most for it.

    That one would be done so much earlier. The step gains as much, if no other rank becomes the last.
    """
    return float(own[:, :, late].max(axis=1).sum())


def cost_off(run: Run, cost: float) -> str:
    """Return what is wrong with the cost of the late rank, empty if nothing is."""
    right = cost_of(run)
    if abs(cost - right) <= NEAR * right:
        return ""
    size = "much" if cost > right else "little"
    first = float(doings(run)[0, :, run.rank].max())
    hint = (
        like(np.array(cost), _cost_slips(run), NEAR / 2 * cost)
        or f"In the first step, it costs {seconds(first)}."
    )
    return f"{seconds(cost)} for rank {run.rank} is too {size}. {hint}".strip()


def _cost_slips(run: Run) -> Slips:
    own = doings(run)[:, :, run.rank]
    trace, found = waits_of(run)
    both = matrix(trace, found.late_sender) + matrix(trace, found.collective)
    yield say.summed_waits, own.sum()
    yield say.summed_waits, both[:, run.rank].sum()
    yield say.summed_waits, both.sum()
    yield say.mean_of_all, own.sum() / run.ranks
    yield say.mean_of_others, own.sum() / (run.ranks - 1)
    yield say.one_step, own.max()
    yield say.before_allreduce, cost_in(own_doings(trace, found, forgets=False), run.rank)
    for which, other in ((found.late_sender, "the allreduce"), (found.collective, "receives")):
        yield (
            f"Waits in {other} count as well.",
            cost_in(own_doings(trace, found, [which]), run.rank),
        )
    yield say.own_waits, both[run.rank].sum()
