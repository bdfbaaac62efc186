"""Checks of a schedule before it is used: valid ranks and elements, and a bounded number of rounds."""

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules.rounds import Round, Schedule

MOST_ROUNDS = 20_000


class ProofError(SpecError):
    """A schedule that does not achieve its goal.

    rank and elements (first, one past the last): where the fault appears. round: of the first fault,
    None for a missing message.
    """

    def __init__(
        self,
        text: str,
        rank: int | None = None,
        elements: tuple[int, int] = (0, 0),
        round: int | None = None,
    ) -> None:
        super().__init__(text)
        self.rank, self.elements, self.round = rank, elements, round


def checked(schedule: Schedule) -> list[Round]:
    """Return the rounds; reject invalid ones, and infinite loops."""
    rounds: list[Round] = []
    try:
        for part in schedule.rounds():
            _check_places(part, len(rounds), schedule)
            rounds.append(part)
            if len(rounds) > MOST_ROUNDS:
                raise ProofError(
                    f"More than {MOST_ROUNDS} rounds: does the loop that yields them end?"
                )
    except ProofError:
        raise
    except SpecError as error:
        raise ProofError(str(error), round=len(rounds)) from None
    return rounds


def _check_places(part: Round, number: int, schedule: Schedule) -> None:
    """Reject messages with ranks or elements out of range."""
    p, n = schedule.ranks, schedule.elements
    lengths = {len(array) for array in part.arrays}
    if len(lengths) > 1:
        raise ProofError(
            f"Round {number}: its arrays have lengths {sorted(lengths)}, not one.", round=number
        )
    kinds = [array.dtype.kind for array in part.arrays]
    if kinds != ["i"] * 4 + ["b"]:
        raise ProofError(
            f"Round {number}: expected four arrays of whole numbers and one of truth values;"
            " messages(...) makes a round of them.",
            round=number,
        )
    for name, rank in (("source", part.source), ("target", part.target)):
        for i in np.flatnonzero((rank < 0) | (rank >= p))[:1]:
            raise ProofError(
                f"Round {number}: {name} {rank[i]} of message {i} is out of range; legal: ranks 0 to {p - 1}.",
                int(rank[i]),
                round=number,
            )
    for i in np.flatnonzero(part.source == part.target)[:1]:
        raise ProofError(
            f"Round {number}: rank {part.source[i]} sends a message to itself.",
            int(part.source[i]),
            round=number,
        )
    end = part.offset + part.count
    for i in np.flatnonzero((part.offset < 0) | (part.count < 0) | (end > n))[:1]:
        raise ProofError(
            f"Round {number}: the message from rank {part.source[i]} to rank {part.target[i]} has offset"
            f" {part.offset[i]} and count {part.count[i]}; the buffer has elements 0 to {n - 1}."
            if n
            else f"Round {number}: a message has count {part.count[i]}, but the buffer is empty.",
            int(part.source[i]),
            (int(part.offset[i]), int(end[i])),
            number,
        )
