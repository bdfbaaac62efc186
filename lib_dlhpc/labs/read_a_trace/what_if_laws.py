"""A learner's forecast of a run with faster ranks or links, beside a new simulation.

what_if_findings(what_if, runs)    nothing changed, faster ranks, a faster link
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.findings import Finding, in_turn, once, waiting
from lib_dlhpc.labs.read_a_trace.answers import Slips, answer, like, numbers, seconds
from lib_dlhpc.labs.read_a_trace.chain import FACTORS, WORDS, chain, flight_of, replay_off
from lib_dlhpc.labs.read_a_trace.chain import RANKS as THREE
from lib_dlhpc.labs.read_a_trace.path_laws import Piece, right_path
from lib_dlhpc.labs.read_a_trace.traces import (
    SLOW,
    Run,
    again,
    events_of,
    flights,
    run_trace,
    share_of,
)
from lib_dlhpc.sentences import sentences
from lib_dlhpc.timeline import span
from lib_dlhpc.timeline.analysis import analyze

say = sentences(__file__)

SAME = "What if nothing changed: the run as it was"
RANKS = "What if a rank were faster: a new simulation"
LINK = "What if a link were faster: a new simulation"
LAWS = (SAME, RANKS, LINK)
NEAR = 0.01  # of the new simulation


class Case(NamedTuple):
    """A changed run. work: times the seconds between calls of each rank; share: of the slow link's bandwidth."""

    run: Run
    about: str
    work: tuple[float, ...]
    share: float

    @property
    def seconds(self) -> float:
        """The time of the new simulation."""
        return span(again(self.run, self.work, self.share))


def what_if_findings(what_if: Callable[..., Any], runs: Sequence[Run]) -> list[Finding]:
    """Return whether what_if(events, ranks, work, flight) is what a new simulation gives, to NEAR."""

    def check(case: Case) -> Callable[[], str]:
        def wrong() -> str:
            run = case.run
            flight = [list(row) for row in flights(run, case.share)]
            given = answer(what_if, events_of(run_trace(run)), run.ranks, list(case.work), flight)
            return seconds_off(case, float(numbers(given, (), "seconds")))

        return wrong

    def by_hand(first: int, last: bool, factor: float) -> tuple[str, Callable[[], str]]:
        work = [factor if rank == first else 1.0 for rank in range(THREE)]

        def wrong() -> str:
            given = answer(what_if, events_of(chain(first, last)), THREE, work, flight_of(first))
            return replay_off(first, last, factor, float(numbers(given, (), "seconds")))

        return f"{WORDS}, {_about(first, factor)}", wrong

    def law(name: str, cases: Sequence[Case], *factors: float) -> Callable[[], Finding]:
        every = [(f"{case.run.words}, {case.about}", check(case)) for case in cases]
        firsts = sorted({run.rank % THREE for run in runs})
        every += [by_hand(*each) for each in product(firsts, (False, True), factors)]
        return lambda: once(name, every, f"To {NEAR:.0%}, in {len(every)} cases.")

    made = [case for run in runs for case in cases_of(run)]
    same = [case for case in made if case.share == share_of(case.run) and set(case.work) == {1.0}]
    link = [case for case in made if case.share != share_of(case.run)]
    ranks = [case for case in made if case not in same and case not in link]
    as_it_was, early = FACTORS
    makers = (law(SAME, same, as_it_was), law(RANKS, ranks, early), law(LINK, link))
    return waiting(in_turn(*makers), LAWS)


def _about(rank: int, factor: float) -> str:
    """Return in words what is asked of a rank."""
    return "nothing changed" if factor == 1 else f"rank {rank} takes {factor:g} times as long"


def cases_of(run: Run) -> Iterator[Case]:
    """Yield what is asked of a run: nothing changed; the late rank, another and all faster; or the slow link faster."""
    one, share = (1.0,) * run.ranks, share_of(run)
    yield Case(run, "nothing changed", one, share)
    if run.problem == SLOW:
        for times in (2, 4):
            faster = min(1.0, times * share)
            yield Case(run, f"link {run.rank}-{(run.rank + 1) % run.ranks} faster", one, faster)
        return
    other = (run.rank + 2) % run.ranks
    for rank, factor in ((run.rank, 0.5), (run.rank, 0.9), (other, 0.5)):
        work = tuple(factor if each == rank else 1.0 for each in range(run.ranks))
        yield Case(run, _about(rank, factor), work, share)
    yield Case(run, "all ranks take 0.5 times as long", (0.5,) * run.ranks, share)


def seconds_off(case: Case, found: float) -> str:
    """Return what is wrong with the forecast of a case, empty if nothing is."""
    right = case.seconds
    if abs(found - right) <= NEAR * right:
        return ""
    size = "long" if found > right else "short"
    hint = like(np.array(found), _slips(case), NEAR / 2 * found) or _bounds(case, found)
    return f"{seconds(found)} is too {size}. {hint}".strip()


def bound_of(case: Case) -> float:
    """Return a time below which a changed run cannot come: its old critical path, with what is changed on it."""
    saved = sum(_saved(case, each) for each in right_path(case.run))
    return span(run_trace(case.run)) - saved


def _saved(case: Case, piece: Piece) -> float:
    """Return by how much a piece of the old path is shorter at most, s."""
    length = piece.stop - piece.start
    if piece.what == "computation":
        return (1 - case.work[piece.rank]) * length
    if piece.what != "receive":
        return 0.0
    old, new = (flights(case.run, share) for share in (share_of(case.run), case.share))
    for each in run_trace(case.run):
        if each.kind == "receive" and (each.rank, each.stop) == (piece.rank, piece.stop):
            faster = old[each.peer][each.rank] - new[each.peer][each.rank]
            # A receive that began behind its send may not wait at all for a faster message.
            late = each.start < piece.start
            return faster if late or not faster else length
    return 0.0


def _bounds(case: Case, found: float) -> str:
    whole = span(run_trace(case.run))
    same = set(case.work) == {1.0} and case.share == share_of(case.run)
    if found < bound_of(case) * (1 - NEAR):
        return (
            "It is shorter than the critical path allows: everything on that path that was not made faster takes as"
            f" long as before. {say.as_traced if same else ''}".rstrip()
        )
    if found > whole * (1 + NEAR):
        return f"It is longer than the run was, although nothing became slower. {say.as_traced if same else ''}".strip()
    if set(case.work) != {1.0}:
        return say.replay
    return say.as_traced if same else say.when_and_why


def _slips(case: Case) -> Slips:
    trace, run = run_trace(case.run), case.run
    whole, work = span(trace), np.array(case.work)
    yield say.unchanged, whole
    least = work.min()
    if least < 1:
        yield say.scaled, whole * least
        yield say.scaled_by_mean, whole * work.mean()
    found = analyze(trace)
    computes = found.compute + found.stalled  # all between calls
    if least == 1 and case.share == share_of(run):
        yield say.no_flight, found.efficiency.ideal_seconds
    saved = float(((1 - work) * computes).max())
    another = say.all_saved
    if work.min() == work.max():
        another = say.shorter_messages
    yield another, whole - saved
    yield another, bound_of(case)
    yield say.summed_ranks, float((work * computes).sum())
    yield say.no_waits, float((work * computes).max())
    cost = case.run.late * 5
    if run.problem != SLOW and work[run.rank] < 1:
        yield say.ideal_rank, whole - cost
