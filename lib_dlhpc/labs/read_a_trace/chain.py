"""A trace by hand in which a rank is late mostly because it waited: who charges it in full blames the wrong one.

chain(first)                  three ranks pass a message on, and meet in an allreduce: a Timeline
chain_off(first, rank, cost)  what is wrong with the culprit that is named
"""

from functools import lru_cache

from lib_dlhpc.labs.read_a_trace.answers import seconds
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.table import from_rows

RANKS = 3
WORDS = "three ranks that pass a message on"
SENT, PASSED = 10.0, 11.0  # s: when the first sends, and the second
WAITS, LATER = 2.0, 1.0  # s: when the second begins to receive, and the third
FLIGHT, END = 0.5, 14.0  # s
JOINS = (11.0, 12.0, 13.0)  # s
COST = SENT - WAITS


@lru_cache(maxsize=RANKS)
def chain(first: int) -> Timeline:
    """Return the trace in which rank `first` sends late; the next one waits for it, and then keeps the third."""
    a, b, c = _ranks(first)
    calls = [
        (a, "send", SENT, SENT, b, 0),
        (b, "receive", WAITS, SENT + FLIGHT, a, 0),
        (b, "send", PASSED, PASSED, c, 1),
        (c, "receive", LATER, PASSED + FLIGHT, b, 1),
        *((rank, "collective", at, END, -1, 2) for rank, at in zip((a, b, c), JOINS, strict=True)),
    ]
    names = {"send": "MPI_Isend", "receive": "MPI_Recv", "collective": "MPI_Allreduce"}
    rows = [
        (rank, "communication", kind, names[kind], start, stop, 8, peer, 0, match)
        for rank, kind, start, stop, peer, match in calls
    ]
    reads = [(rank, "compute", "input", "read", 0.0, 0.5, 0, -1, 0, -1) for rank in range(RANKS)]
    return from_rows([*reads, *rows], RANKS, "").sorted()


def chain_off(first: int, rank: float, cost: float | None, near: float) -> str:
    """Return what is wrong with the culprit of a chain, or, where there is a cost, with that; empty if nothing is."""
    a, b, c = _ranks(first)
    if rank == a and (cost is None or abs(cost - COST) <= near * COST):
        return ""
    story = (
        f"rank {a} sends at {seconds(SENT)} to rank {b}, which receives from {seconds(WAITS)} on and sends at"
        f" {seconds(PASSED)} to rank {c}, which receives from {seconds(LATER)} on."
    )
    if rank == b:
        return (
            f"{story} Rank {b} has itself waited {seconds(COST)}, and is charged only for the rest."
        )
    if rank != a or cost is None:
        return f"{story} Whose own delay costs the most?"
    return (
        f"{story} {seconds(cost)} is not what rank {a} costs: how long does rank {b} wait for it?"
    )


def _ranks(first: int) -> tuple[int, int, int]:
    return first, (first + 1) % RANKS, (first + 2) % RANKS
