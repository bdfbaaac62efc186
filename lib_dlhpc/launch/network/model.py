"""Time of a schedule over TCP: alpha, beta, and the acknowledgement that a sender waits for.

MPI over TCP completes a send on its acknowledgement: an additional one-way latency, hidden by the reply in a
ping-pong, exposed in a schedule where every rank sends and receives. Short messages are buffered and complete at once;
the threshold is measured too.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.schedules import Schedule
from lib_dlhpc.schedules.rounds import Round

# a message is short if its exchange exposes less than this fraction of the acknowledgement
SHORTER = 0.5
APART = 1.05  # two times within this factor are equal


class Messages(NamedTuple):
    """Measured message times of a network."""

    alpha: float  # s
    beta: float  # s/B
    short_alpha: float  # s, of messages up to `short` B
    short: int  # B
    acknowledgement: float  # s until the sender of a longer message completes
    gamma: float = 0.0  # s/B of reduction


def fit(points: Sequence[Mapping[str, float]], gamma: float = 0.0) -> Messages:
    """Return the best fit to a ping-pong and an exchange.

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
    """Return the s per call of `calls` back-to-back calls of a schedule.

    A rank continues once its receives have arrived and its sends are acknowledged. Messages of one rank in a round
    share its link. itemsize: B an element.
    """
    rounds = [part for part in schedule.rounds() if len(part)]
    clock = np.zeros(schedule.ranks)
    for _ in range(calls):
        for part in rounds:
            clock = _after(clock, part, network, itemsize)
    return float(clock.max()) / calls


def _after(clock: NDArray[Any], part: Round, network: Messages, itemsize: int) -> NDArray[Any]:
    """Return when each rank completes a round that it enters at `clock`."""
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
    """Return the size at which the slower of two becomes the faster one, or None.

    one, other: s at each of the ascending sizes. Nearly equal times are ignored. Times are interpolated linearly, as
    alpha + beta * size.
    """
    gap = np.asarray(one) - np.asarray(other)
    clear = np.flatnonzero(np.abs(gap) > (APART - 1) * np.minimum(one, other)).tolist()
    for a, b in pairwise(clear):
        if gap[a] * gap[b] < 0:
            return float(sizes[a] + (sizes[b] - sizes[a]) * gap[a] / (gap[a] - gap[b]))
    return None
