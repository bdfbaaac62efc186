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
from lib_dlhpc.timeline import span
from lib_dlhpc.timeline.analysis import analyze

SAME = "What if nothing changed: the run as it was"
RANKS = "What if a rank were faster: a new simulation"
LINK = "What if a link were faster: a new simulation"
LAWS = (SAME, RANKS, LINK)
TRACED = "Each call should begin and end as in the trace: print the first that does not."
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
            f" long as before. {TRACED if same else ''}".rstrip()
        )
    if found > whole * (1 + NEAR):
        return f"It is longer than the run was, although nothing became slower. {TRACED if same else ''}".strip()
    if set(case.work) != {1.0}:
        return (
            "Replay the calls of all ranks. `work` is the time from the end of one call to the start of the next,"
            " reading included; before the first call, it counts from the start of the run."
        )
    return TRACED if same else "Replay the calls: when does each begin, and what does it wait for?"


def _slips(case: Case) -> Slips:
    trace, run = run_trace(case.run), case.run
    whole, work = span(trace), np.array(case.work)
    yield (
        "That is the run as it was. Calls get shorter if what they wait for comes earlier: a receive ends when its"
        " message arrives, not a fixed time after its start.",
        whole,
    )
    least = work.min()
    if least < 1:
        yield (
            "That scales the whole run. Messages and the other ranks are as slow as before.",
            whole * least,
        )
        yield "That scales the whole run, by the mean over the ranks.", whole * work.mean()
    found = analyze(trace)
    computes = found.compute + found.stalled  # all between calls
    if least == 1 and case.share == share_of(run):
        free = "That is the run on a network without time in flight: a message takes `flight`."
        yield free, found.efficiency.ideal_seconds
    saved = float(((1 - work) * computes).max())
    another = (
        "The run does not save all the time that the rank saves: as soon as the rank is early, another path is the"
        " longest."
    )
    if work.min() == work.max():
        another = "Messages take as long as before, and so do collectives."
    yield another, whole - saved
    yield another, bound_of(case)
    yield (
        "That is the sum over the ranks. They compute at the same time.",
        float((work * computes).sum()),
    )
    yield "That is computation alone. Who waits, and for whom?", float((work * computes).max())
    cost = case.run.late * 5
    if run.problem != SLOW and work[run.rank] < 1:
        yield (
            "That is the run without any waits for the rank: has the rank become that fast?",
            whole - cost,
        )
