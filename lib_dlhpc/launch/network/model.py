"""What a schedule takes over TCP: alpha, beta, and the acknowledgement that a sender waits for.

MPI over TCP calls a message sent when it is known to be there: one way more, which a ping-pong hides
behind its answer and a schedule, in which everyone sends and receives, does not. Short messages are
copied and forgotten; how short, is measured too.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.schedules import Schedule
from lib_dlhpc.schedules.rounds import Round

SHORTER = (
    0.5  # a message is short while its exchange shows less than this part of the acknowledgement
)
APART = 1.05  # two times that differ by less are the same


class Messages(NamedTuple):
    """What messages take in a network, as measured."""

    alpha: float  # s
    beta: float  # s/B
    short_alpha: float  # s, of one of at most `short` B
    short: int  # B
    acknowledgement: float  # s more until the sender of a longer one knows
    gamma: float = 0.0  # s/B that is added up


def fit(points: Sequence[Mapping[str, float]], gamma: float = 0.0) -> Messages:
    """Return what fits a ping-pong and an exchange best.

    points: by size (B): s of one_way, half a ping-pong, and of an exchange, both ways at once. Least
    squares of relative errors, so that short messages count as much as long ones.
    """
    size, one_way, both = (
        np.array([point[name] for point in points]) for name in ("size", "one_way", "exchange")
    )
    waits = np.maximum(both - one_way, 0.0)
    longest = waits[size >= size.max() / 64].mean()
    long = waits > SHORTER * longest
    if not long.any() or longest < (APART - 1) * one_way.min():
        long = np.ones(len(size), dtype=np.bool_)  # no sender waits
    short = size < size[long].min()
    columns = np.stack([np.ones(long.sum()), size[long]]) / one_way[long]
    alpha, beta = np.linalg.lstsq(columns.T, np.ones(long.sum()), rcond=None)[0]
    alpha, beta = max(float(alpha), 0.0), max(float(beta), 0.0)
    if not short.any():
        return Messages(alpha, beta, alpha, 0, 0.0, gamma)
    quick = float(np.median(one_way[short] - beta * size[short]))
    last = int(size[short].max())
    return Messages(alpha, beta, quick, last, float(np.median(waits[long])), gamma)


def seconds(schedule: Schedule, network: Messages, calls: int = 1, itemsize: int = 4) -> float:
    """Return the s of one of so many back-to-back calls of a schedule.

    Every rank goes on as soon as it has what it waits for: what is sent to it has come, and what it has
    sent is acknowledged. Messages of one rank in a round share its link. itemsize: B an element.
    """
    rounds = [part for part in schedule.rounds() if len(part)]
    clock = np.zeros(schedule.ranks)
    for _ in range(calls):
        for part in rounds:
            clock = _after(clock, part, network, itemsize)
    return float(clock.max()) / calls


def _after(clock: NDArray[Any], part: Round, network: Messages, itemsize: int) -> NDArray[Any]:
    """Return when each rank is through a round that it entered when `clock` says."""
    size, ranks = part.count * float(itemsize), len(clock)
    sent, received = (
        np.bincount(end, weights=size, minlength=ranks) for end in (part.source, part.target)
    )
    long = size > network.short
    alpha = np.where(long, network.alpha, network.short_alpha)
    wire = network.beta * np.maximum(sent[part.source], received[part.target])
    there = clock[part.source] + alpha + wire
    done = clock.copy()
    np.maximum.at(done, part.target, there)
    known = np.maximum(there, clock[part.target]) + network.acknowledgement
    np.maximum.at(done, part.source[long], known[long])
    combined = np.bincount(part.target, weights=size * part.reduce, minlength=ranks)
    return np.asarray(done + network.gamma * combined)


def crossing(sizes: Sequence[float], one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the size at which the slower of two becomes the quicker one, None where that does not happen.

    one, other: s at each of the sizes, which rise. Times that are nearly the same decide nothing.
    Between two sizes each time is taken as a straight line, as alpha and beta make it.
    """
    gap = np.asarray(one) - np.asarray(other)
    clear = np.flatnonzero(np.abs(gap) > (APART - 1) * np.minimum(one, other)).tolist()
    for a, b in pairwise(clear):
        if gap[a] * gap[b] < 0:
            return float(sizes[a] + (sizes[b] - sizes[a]) * gap[a] / (gap[a] - gap[b]))
    return None
