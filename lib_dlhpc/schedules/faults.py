"""Error messages for schedules that are well formed but wrong."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Ints
from lib_dlhpc.schedules.checks import ProofError
from lib_dlhpc.schedules.goals import NOTHING
from lib_dlhpc.schedules.rounds import elements_text


class Cells(NamedTuple):
    """The messages of a round cut into blocks: one entry for each block of each message."""

    message: Ints  # its number in the round
    source: Ints
    target: Ints
    block: Ints  # between edges block and block + 1 of the buffer
    reduce: NDArray[np.bool_]


class Trace(NamedTuple):
    """Round, source and target of the messages that determined a block; None if there is none."""

    last: tuple[int, int, int] | None  # wrote there last
    lost: tuple[int, int, int] | None  # first overwrote a contribution
    repeated: tuple[int, int, int] | None  # first added a contribution a second time


def race(cells: Cells, edges: Ints, number: int) -> None:
    """Reject two messages that write the same elements of a rank in one round."""
    key = cells.target * len(edges) + cells.block
    order = np.argsort(key, kind="stable")
    for i in np.flatnonzero(np.diff(key[order]) == 0)[:1]:
        a, b = order[i : i + 2]
        target, place = int(cells.target[a]), _place(edges, cells.block[a])
        raise ProofError(
            f"Round {number}: the messages from ranks {cells.source[a]} and {cells.source[b]} both write"
            f" {elements_text(*place)} of rank {target}; this is a race. Use two rounds.",
            target,
            place,
            number,
        )


def not_there(cells: Cells, sent: Ints, there: Ints, edges: Ints, number: int) -> None:
    """Reject sends of, and reductions with, data that has not arrived."""
    for i in np.flatnonzero(sent == NOTHING)[:1]:
        source, place = int(cells.source[i]), _place(edges, cells.block[i])
        raise ProofError(
            f"Round {number}: rank {source} sends {elements_text(*place)} to rank {cells.target[i]},"
            " but has received nothing there yet.",
            source,
            place,
            number,
        )
    for i in np.flatnonzero(cells.reduce & (there == NOTHING))[:1]:
        target, place = int(cells.target[i]), _place(edges, cells.block[i])
        raise ProofError(
            f"Round {number}: rank {target} has to combine {elements_text(*place)} from rank"
            f" {cells.source[i]} with its own, but has nothing there yet: 'reduce' instead of 'copy'?",
            target,
            place,
            number,
        )


def wrong_at_the_end(
    rank: int, place: tuple[int, int], counts: Ints, wanted: Ints, trace: Trace, others: int
) -> ProofError:
    """Return the error of a rank that ends with `counts` of each contribution in place of `wanted`."""
    lacks = np.flatnonzero(counts < wanted)
    repeats = np.flatnonzero((counts > 1) & (wanted <= 1))
    strange = np.flatnonzero((counts == 1) & (wanted == 0))
    faults = []
    if len(lacks):
        faults.append(f"lacks the contribution of {_ranks(lacks)}")
    if len(repeats):
        faults.append(f"has the contribution of {_ranks(repeats)} {_times(counts[repeats[0]])}")
    if len(strange):
        faults.append(f"has the contribution of {_ranks(strange)}, which does not belong there")
    number, cause = _cause(len(lacks) > 0, len(repeats) > 0, bool((wanted == 1).all()), trace)
    more = f" ({others} more rank{'s are' if others > 1 else ' is'} wrong.)" if others else ""
    text = (
        f"Rank {rank}, {elements_text(*place)}: at the end it {' and '.join(faults)}. {cause}{more}"
    )
    return ProofError(text, rank, place, number)


def _cause(lacks: bool, repeats: bool, sums: bool, trace: Trace) -> tuple[int | None, str]:
    """Return the first faulty round, and the cause."""
    if repeats and trace.repeated:
        number, source, target = trace.repeated
        return number, (
            f"Round {number} first did so: rank {target} combined what rank {source} sent,"
            " and had part of that already."
        )
    if lacks and sums and trace.lost:
        number, source, target = trace.lost
        return number, (
            f"It was lost in round {number}: rank {source}'s copy replaced what rank {target} had, and"
            " lacked it. Should it be 'reduce', or is an earlier message missing?"
        )
    if trace.last:
        number, source, _ = trace.last
        return number, (
            f"The last message there was rank {source}'s in round {number}: was it too early, or is one"
            " missing?"
        )
    return None, "No message ever brings anything there: is one missing?"


def _place(edges: Ints, block: np.int64) -> tuple[int, int]:
    return int(edges[block]), int(edges[block + 1])


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _ranks(ranks: Ints) -> str:
    shown = ", ".join(map(str, ranks[:4]))
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
