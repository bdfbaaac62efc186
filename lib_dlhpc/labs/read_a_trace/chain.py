"""Traces by hand: three ranks pass a message on, and meet in an allreduce.

The simulated runs cannot tell some mistakes from the solution: there no rank passes on much of a delay, none that sends
late joins last, an allreduce takes next to nothing, and all start at 0.

chain(first, last)                   a Timeline; last: the first also joins last
chain_off(first, last, rank, cost)   what is wrong with the culprit that is named
replayed(factor, last)               seconds of the trace, where the first takes `factor` times as long
replay_off(first, last, factor, found)     what is wrong with a forecast
"""

from functools import lru_cache

from lib_dlhpc.labs.read_a_trace.answers import seconds
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.table import from_rows

RANKS = 3
WORDS = "three ranks that pass a message on"
START, END = 0.5, 14.0  # s
SENT, PASSED = 10.0, 11.0  # s: when the first sends, and the second
WAITS, LATER = 3.0, 1.0  # s: when the second begins to receive, and the third
FLIGHT = 0.5  # s
JOINS = {False: (11.0, 12.0, 13.0), True: (13.2, 11.5, 12.1)}  # s; whether the first joins last
COST = SENT - WAITS
COST_LAST = COST + JOINS[True][0] - JOINS[True][1]
FACTORS = (1.0, 0.1)  # of the first rank: the trace as it was, and one whose message is early
NEAR = 0.01  # of the forecast


@lru_cache(maxsize=2 * RANKS)
def chain(first: int, last: bool = False) -> Timeline:
    """Return the trace in which rank `first` sends late; the next one waits for it, and then keeps the third."""
    a, b, c = _ranks(first)
    calls = [
        (a, "send", SENT, SENT, b, 0),
        (b, "receive", WAITS, SENT + FLIGHT, a, 0),
        (b, "send", PASSED, PASSED, c, 1),
        (c, "receive", LATER, PASSED + FLIGHT, b, 1),
        *(
            (rank, "collective", at, END, -1, 2)
            for rank, at in zip((a, b, c), JOINS[last], strict=True)
        ),
    ]
    names = {"send": "MPI_Isend", "receive": "MPI_Recv", "collective": "MPI_Allreduce"}
    rows = [
        (rank, "communication", kind, names[kind], start, stop, 8, peer, 0, match)
        for rank, kind, start, stop, peer, match in calls
    ]
    reads = [
        (rank, "compute", "input", "read", START, LATER, 0, -1, 0, -1) for rank in range(RANKS)
    ]
    return from_rows([*reads, *rows], RANKS, "").sorted()


def chain_off(first: int, last: bool, rank: float, cost: float | None, near: float) -> str:
    """Return what is wrong with the culprit of a chain, or, where there is a cost, with that; empty if nothing is."""
    a, b, _ = _ranks(first)
    right = COST_LAST if last else COST
    if rank == a and (cost is None or abs(cost - right) <= near * right):
        return ""
    story = _story(first)
    if last:
        story += f" Rank {a} joins the allreduce last, {seconds(right - COST)} after rank {b}."
        both = f"Rank {b} waits for it twice, in its receive and in the allreduce: add up both waits of a step."
        if rank in (a, b):
            return f"{story} {both}"
    if rank == b:
        return (
            f"{story} Rank {b} itself waited for {seconds(COST)}, and is charged only for the rest."
        )
    if rank != a or cost is None:
        return f"{story} Which rank's own delay costs the most?"
    return (
        f"{story} {seconds(cost)} is not what rank {a} costs: how long does rank {b} wait for it?"
    )


def flight_of(first: int) -> list[list[float]]:
    """Return how long messages of the chain are in flight, s, [from][to]."""
    a, b, c = _ranks(first)
    pairs = ((a, b), (b, c))
    return [
        [FLIGHT if (one, two) in pairs else 0.0 for two in range(RANKS)] for one in range(RANKS)
    ]


def replayed(factor: float, last: bool, early: bool = False) -> float:
    """Return the seconds of the chain whose first rank takes `factor` times as long.

    early: with the mistake that a receive may end before it begins.
    """
    joins = JOINS[last]
    sent = START + factor * (SENT - START)
    got = sent + FLIGHT if early else max(WAITS, sent + FLIGHT)
    passed = got + PASSED - (SENT + FLIGHT)
    kept = passed + FLIGHT if early else max(LATER, passed + FLIGHT)
    joined = (
        sent + factor * (joins[0] - SENT),
        passed + joins[1] - PASSED,
        kept + joins[2] - (PASSED + FLIGHT),
    )
    return max(joined) + END - max(joins) - START


def replay_off(first: int, last: bool, factor: float, found: float) -> str:
    """Return what is wrong with the forecast of a chain, empty if nothing is."""

    def near(value: float) -> bool:
        return abs(found - value) <= NEAR * right

    right, moves = replayed(factor, last), END - max(JOINS[last])
    if near(right):
        return ""
    a, b, _ = _ranks(first)
    words = f"{seconds(found)} is too {'long' if found > right else 'short'}. {_story(first)}"
    if near(replayed(factor, last, early=True)):
        return f"{words} If the message has arrived before rank {b} receives, when does the receive end?"
    if near(right + START):
        return f"{words} Its first row starts at {seconds(START)}."
    if near(right - moves):
        return (
            f"{words} The last rank joins the allreduce {seconds(moves)} before the allreduce ends, and this part"
            " takes as long as in the trace."
        )
    joins = f"Rank {a} joins the allreduce at {seconds(JOINS[last][0])}, and all leave it at {seconds(END)}."
    return f"{words} {joins} Replay it by hand, call by call."


def _story(first: int) -> str:
    a, b, c = _ranks(first)
    return (
        f"In the trace rank {a} sends at {seconds(SENT)} to rank {b}, which receives from {seconds(WAITS)} on and"
        f" sends at {seconds(PASSED)} to rank {c}, which receives from {seconds(LATER)} on."
    )


def _ranks(first: int) -> tuple[int, int, int]:
    return first, (first + 1) % RANKS, (first + 2) % RANKS
