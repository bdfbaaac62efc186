"""A learner's account of a training step: what each rank computes, its exposed communication, the rest of its time.

account_findings(account, steps)    three columns, beside timeline/measure.py
A wrong column is matched with those that classic mistakes give.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.labs.findings import Finding, once
from lib_dlhpc.labs.read_a_trace.answers import ALIKE, EXACT, Slips, answer, like, numbers, seconds
from lib_dlhpc.labs.read_a_trace.traces import Step, events_of, step_trace
from lib_dlhpc.sentences import sentences
from lib_dlhpc.timeline import Timeline, exposed, idle, span
from lib_dlhpc.timeline.measure import WORK
from lib_dlhpc.timeline.spans import covered, in_order, union

say = sentences(__file__)

COMPUTES = "Account: what each rank computes"
EXPOSED = "Account: communication that no computation hides"
REST = "Account: the rest, until the last rank is done"
LAWS = (COMPUTES, EXPOSED, REST)
NAMES = ("computation", "exposed communication")
SAID = "a row for each rank: seconds of computation, of exposed communication, and the rest"


def account_findings(account: Callable[..., Any], steps: Sequence[Step]) -> list[Finding]:
    """Return whether account(events, ranks) is the package's, column by column."""
    return [_finding(account, steps, column) for column in range(len(LAWS))]


def _finding(account: Callable[..., Any], steps: Sequence[Step], column: int) -> Finding:
    def check(step: Step) -> Callable[[], str]:
        def wrong() -> str:
            trace = step_trace(step)
            given = answer(account, events_of(trace), trace.ranks)
            columns = numbers(given, (trace.ranks, 3), SAID)
            words = column_off(trace, columns[:, column], column)
            return (words and column == 2 and follows(trace, columns)) or words

        return wrong

    every = ((step.words, check(step)) for step in steps)
    return once(LAWS[column], every, f"On every rank of {len(steps)} traces.")


def right_account(trace: Timeline) -> Floats:
    """Return the seconds of computation, of exposed communication and of the rest, (ranks, 3)."""
    whole, still, shown = span(trace), idle(trace), exposed(trace)
    return np.stack([whole - still, shown, still - shown], axis=1)


def column_off(trace: Timeline, found: Floats, column: int) -> str:
    """Return what is wrong with a column of an account, empty if nothing is."""
    right, whole = right_account(trace)[:, column], span(trace)
    off = np.abs(found - right)
    if off.max() <= EXACT * whole:
        return ""
    hint = like(found, SLIPS[column](trace), ALIKE * whole) or UNLIKE[column]
    rank = int(off.argmax())
    size = "much" if found[rank] > right[rank] else "little"
    return f"rank {rank}: {seconds(found[rank])} is too {size}. {hint}".strip()


def follows(trace: Timeline, columns: Floats) -> str:
    """Return what is said of a rest that is wrong only because another column is, empty if it is not only that."""
    whole = span(trace)
    if np.abs(columns.sum(axis=1) - whole).max() > EXACT * whole:
        return ""
    wrong = [k for k in (0, 1) if column_off(trace, columns[:, k], k)]
    return f"It follows from the column of {NAMES[wrong[0]]}, which is wrong." if wrong else ""


def _sums(trace: Timeline, rows: Any, lengths: Any = None) -> Floats:
    length = trace.stop - trace.start if lengths is None else lengths
    found = np.bincount(trace.rank[rows], weights=length[rows], minlength=trace.ranks)
    return found.astype(np.float64)


def _compute_slips(trace: Timeline) -> Slips:
    right = right_account(trace)
    own = trace.where("compute", *WORK)
    yield say.waits_counted, _sums(trace, trace.where("compute"))
    yield say.all_ranks, np.full(trace.ranks, right[:, 0].sum())
    yield say.no_update, _sums(trace, own & ~trace.where("", "update"))
    yield say.which_kinds, _sums(trace, trace.where("compute", "forward"))
    yield say.no_backward, right[:, 0] - _sums(trace, trace.where("", "backward"))
    yield say.share, right[:, 0] / span(trace)


def _exposed_slips(trace: Timeline) -> Slips:
    trace = in_order(trace)
    right, talk = right_account(trace)[:, 1], trace.where("communication")
    buckets = talk & (trace.peer < 0)
    yield say.hidden_counted, _sums(trace, talk)
    yield say.hidden_counted, _sums(trace, buckets)
    yield say.hidden_counted, covered(trace, talk)
    yield say.all_ranks, np.full(trace.ranks, right.sum())
    own = trace.where("compute", *WORK)
    work = union(trace, own)
    beside = work.before(trace.rank, trace.stop) - work.before(trace.rank, trace.start)
    alone = trace.stop - trace.start - beside
    yield say.counted_twice, _sums(trace, talk, alone)
    yield say.counted_twice, _sums(trace, buckets, alone)
    yield say.no_messages, covered(trace, own | buckets) - covered(trace, own)
    yield say.all_idle, _sums(trace, trace.where("compute", "wait"))
    yield say.all_idle, _sums(trace, trace.where("compute", "wait", "bubble"))
    yield say.all_idle, idle(trace)
    yield say.share, right / span(trace)


def _rest_slips(trace: Timeline) -> Slips:
    trace = in_order(trace)
    computes, shown, rest = right_account(trace).T
    own = np.array([trace.stop[trace.rank == rank].max() for rank in range(trace.ranks)])
    yield say.after_the_end, own - trace.start.min() - computes - shown
    yield say.exposed_counted, rest + shown
    bubble = trace.where("compute", "bubble")
    if bubble.any():
        yield say.bubble_alone, _sums(trace, bubble)
    yield say.all_ranks, np.full(trace.ranks, rest.sum())
    yield say.hidden_twice, span(trace) - computes - _sums(trace, trace.where("communication"))
    yield say.hidden_twice, span(trace) - computes - covered(trace, trace.where("communication"))
    yield say.share, rest / span(trace)


UNLIKE = (  # no known mistake
    say.about_work,
    say.about_exposed,
    say.about_rest,
)
SLIPS: tuple[Callable[[Timeline], Slips], ...] = (_compute_slips, _exposed_slips, _rest_slips)
