"""Price of a schedule in alpha (latency), beta (1 / bandwidth) and gamma (reduction) terms.

A rank sends one message at a time while it receives one at a time; then it reduces. A round takes as
long as its busiest rank, and rounds run one after another. The price of a schedule is then the
textbook formula of its algorithm, with ceil(n/p) if p does not divide n.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Array, Ints
from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules.network import Cost, Network, Rails, busiest
from lib_dlhpc.schedules.rounds import MULTICAST, STREAM, Round, Schedule, as_sent


def price(
    schedule: Schedule,
    alpha: float = 0.0,
    beta: float = 0.0,
    gamma: float = 0.0,
    *,
    network: Network | None = None,
    itemsize: int = 4,
) -> Cost:
    """Return the cost of `schedule`.

    alpha: s a message. beta, gamma: s/B moved, reduced. network: two levels, in place of the three;
    the ranks of a node share its NICs, whose rate is outer.beta, or each has one of them (Network.rails).
    itemsize: B an element. Not modeled: contention beyond the NICs, and ranks that run ahead (the
    simulator models both). Source: Thakur, Rabenseifner & Gropp (2005), section 3.
    """
    if network is None:
        levels = _Levels(schedule.ranks, Rails(1), (alpha, beta), (alpha, beta), gamma, itemsize)
    else:
        (inner, outer), node = (network.inner, network.outer), int(network.inner.ranks)
        if node * int(outer.ranks) != schedule.ranks:
            raise SpecError(
                f"network: {node} x {outer.ranks} ranks, but the schedule is for {schedule.ranks}."
            )
        levels = _Levels(
            *(schedule.ranks, network.rails),
            *((inner.alpha, inner.beta), (outer.alpha, network.nic_beta)),
            *(network.gamma, itemsize),
        )
    total = np.zeros(3)
    for part in schedule.rounds():
        if len(part):
            total += _busiest(as_sent(part), levels)
    return Cost(*total.tolist())


class _Levels(NamedTuple):
    ranks: int
    rails: Rails
    inner: tuple[float, float]  # alpha, beta
    outer: tuple[float, float]  # beta of one NIC
    gamma: float
    itemsize: int


def _busiest(part: Round, levels: _Levels) -> Array:
    """Latency, bandwidth and reduction of the busiest rank in this round."""
    size = part.count * float(levels.itemsize)
    far = levels.rails.far(part.source, part.target)
    alpha = np.where(far, levels.outer[0], levels.inner[0])
    alpha = alpha + levels.rails.relayed(part.source, part.target) * levels.inner[0]
    seconds = size * np.where(far, levels.outer[1], levels.inner[1])
    if part.switch:
        return _merged(part, far, alpha, seconds, levels)
    sends = _port(
        part.source, levels.rails.out(part.source, part.target), far, alpha, seconds, levels
    )
    receives = _port(part.target, levels.rails.into(part.target), far, alpha, seconds, levels)
    latency, bandwidth = np.where(sends.sum(0) >= receives.sum(0), sends, receives)
    reduction = _sums(part.target, size * part.reduce, levels.ranks) * levels.gamma
    rank = int(np.argmax(latency + bandwidth + reduction))
    return np.array([latency[rank], bandwidth[rank], reduction[rank]])


def _merged(
    part: Round, far: NDArray[np.bool_], alpha: Array, seconds: Array, levels: _Levels
) -> Array:
    """The same of a round of a switch: all messages at once, what it merges is one, and it adds."""
    if part.switch == STREAM and not part.reduce.any():
        return np.array([alpha.max(), 0.0, 0.0])
    port = part.target if part.switch == MULTICAST else part.source
    _, bandwidth = _port(port, levels.rails.into(port), far, alpha, seconds, levels)
    return np.array([alpha.max(), bandwidth.max(), 0.0])


def _port(
    rank: Ints, nic: Ints, far: NDArray[np.bool_], alpha: Array, seconds: Array, levels: _Levels
) -> Array:
    """Latency and bandwidth seconds of each rank's port in one direction; a rank waits for all that its NICs carry."""
    latency, bandwidth = _sums(rank, alpha, levels.ranks), _sums(rank, seconds, levels.ranks)
    shared = np.zeros(levels.ranks)
    np.maximum.at(shared, rank, np.where(far, busiest(nic, seconds * far), 0.0))
    return np.stack([latency, np.maximum(bandwidth, shared)])


def _sums(index: Ints, values: Array, length: int) -> Array:
    """Sum `values` by `index`."""
    return np.bincount(index, weights=values, minlength=length)
