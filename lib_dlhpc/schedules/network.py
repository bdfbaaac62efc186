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


class Rails(NamedTuple):
    """The NICs of a node where each belongs to some of its ranks; `node` ranks are spread evenly over `lanes` NICs.

    relay: what is for another rail goes to the rank of that rail in the sender's node first (PXN), else from rail to
    rail above the leaf switches. One lane: all NICs of a node are one.
    """

    node: int
    lanes: int = 1
    relay: bool = False

    def far(self, source: Array, target: Array) -> Array:
        """Whether messages leave their node."""
        return source // self.node != target // self.node

    def out(self, source: Array, target: Array) -> Array:
        """Return the NICs, counted over all nodes, by which messages leave."""
        if self.relay:
            source = source // self.node * self.node + target % self.node
        return source * self.lanes // self.node

    def into(self, target: Array) -> Array:
        """Return the NICs by which messages arrive."""
        return target * self.lanes // self.node

    def relayed(self, source: Array, target: Array) -> Array:
        """Whether messages pass another rank of the sender's node."""
        own, other = source * self.lanes // self.node, self.out(source, target)
        return self.far(source, target) & (own != other)


class Network(NamedTuple):
    """The network of a collective; `congestion(distance)` is the slowdown factor of an exchange between all pairs of
    nodes at that distance in rank order, `all_to_all` that of an all-to-all, `neighbors` that of a ring. combines:
    where switches add what passes them: "nvls" inside a node, "sharp" between nodes. lanes: NICs of a node of which a
    rank has its own; the beta of `outer` is of all of them. crossing: slowdown factor where every node
    sends all of one rail to another. relay: see Rails."""

    inner: Level
    outer: Level
    gamma: Array
    congestion: Callable[[int], Array] = lambda distance: 1.0
    all_to_all: Array = 1.0
    neighbors: Array = 1.0
    combines: frozenset[str] = frozenset()
    lanes: Array = 1
    crossing: Array = 0.0
    relay: bool = False

    @property
    def rails(self) -> Rails:
        """The NICs of its ranks; no arrays."""
        return Rails(int(self.inner.ranks), int(self.lanes), self.relay)


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
    """Return alpha and beta of the slowest link of a ring over all devices; it leaves a node by one of its NICs."""
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    single = np.equal(g, 1)
    turns = (
        net.lanes > 1
    ) & ~single  # from the last rank of a node to the first of the next: to another rail
    a_out = a_out + a_in * turns * net.relay
    b_out = b_out * net.lanes * np.maximum(net.neighbors, net.crossing * turns)
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
