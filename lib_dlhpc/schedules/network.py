"""The network model of the closed forms: two levels of links, and costs by cause."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a float or a numpy array; everything here broadcasts


class Level(NamedTuple):
    """`ranks` identical partners, each with a full-duplex link: alpha in s, beta in s/B."""

    ranks: Array
    alpha: Array
    beta: Array


class Network(NamedTuple):
    """The network of a collective; `congestion(distance)` is the slowdown factor of an exchange between all pairs of
    nodes at that distance in rank order, `all_to_all` that of an all-to-all, `neighbors` that of a ring. combines:
    where switches add what passes them: "nvls" inside a node, "sharp" between nodes."""

    inner: Level
    outer: Level
    gamma: Array
    congestion: Callable[[int], Array] = lambda distance: 1.0
    all_to_all: Array = 1.0
    neighbors: Array = 1.0
    combines: frozenset[str] = frozenset()


class Cost(NamedTuple):
    """Communication time in s, by cause."""

    latency: Array
    bandwidth: Array
    reduction: Array

    @property
    def total(self) -> Array:
        """The sum of the three terms, in s."""
        return self.latency + self.bandwidth + self.reduction

    def __add__(self, other: Any) -> "Cost":
        """Return the cost of both in sequence."""
        latency, bandwidth, reduction = other
        return Cost(self[0] + latency, self[1] + bandwidth, self[2] + reduction)

    def times(self, factor: Array) -> "Cost":
        """Return the cost of `factor` repetitions."""
        return Cost(factor * self[0], factor * self[1], factor * self[2])


def flat(ranks: int, alpha: Array, beta: Array, gamma: Array = 0.0) -> Network:
    """Return the network of `ranks` nodes of one device: alpha in s, beta and gamma in s/B."""
    return Network(Level(1, 0.0, 0.0), Level(ranks, alpha, beta), gamma)


def slowest(net: Network) -> tuple[Array, Array]:
    """Return alpha and beta of the slowest link of a ring over all devices."""
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    b_out = b_out * net.neighbors
    single = np.equal(g, 1)
    alpha = np.where(nodes > 1, np.where(single, a_out, np.maximum(a_in, a_out)), a_in)
    beta = np.where(nodes > 1, np.where(single, b_out, np.maximum(b_in, b_out)), b_in)
    return alpha, beta


def depth(ranks: Array) -> Array:
    """Return ceil(lg ranks), exact for integers."""
    mantissa, exponent = np.frexp(ranks)
    return exponent - (mantissa == 0.5)


def whole_rounds(ranks: Array) -> tuple[Array, Array]:
    """Return floor(lg ranks), and 1 where ranks is not a power of two, else 0."""
    mantissa, exponent = np.frexp(ranks)
    return exponent - 1, (mantissa != 0.5) * 1


def over_rounds(rounds: Array, net: Network, share: Callable[[int], Array]) -> Array:
    """Sum share(k) * congestion(2^k) over the rounds k = 0 .. rounds - 1 between nodes."""
    total: Array = 0.0
    for k in range(int(np.max(rounds))):
        total = total + np.where(k < rounds, share(k) * net.congestion(2**k), 0.0)
    return total
