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
    """The NICs of a node where each belongs to some of its devices, which are spread evenly over `nics`.

    node: ranks of a group in a node. beside: devices of as many groups that lie beside each other, for each of these
    ranks; they send at the same time. relay: what is for another rail goes to the rank of that rail in the sender's
    node first (PXN), else from rail to rail above the leaf switches. One NIC: all of a node are one.
    """

    node: int
    nics: int = 1
    relay: bool = False
    beside: int = 1

    def far(self, source: Array, target: Array) -> Array:
        """Whether messages leave their node."""
        return source // self.node != target // self.node

    def out(self, source: Array, target: Array) -> Array:
        """Return the NICs, counted over all nodes, by which messages leave: (messages, beside)."""
        if self.relay:
            source = source // self.node * self.node + target % self.node
        return self.into(source)

    def into(self, target: Array) -> Array:
        """Return the NICs by which messages arrive, (messages, beside)."""
        device = np.asarray(target)[..., np.newaxis]
        if self.beside > 1:
            device = device * self.beside + np.arange(self.beside)
        return device * self.nics // (self.node * self.beside)

    def relayed(self, source: Array, target: Array) -> Array:
        """Whether messages pass another rank of the sender's node."""
        changed = (self.into(source) != self.out(source, target)).any(axis=-1)
        return self.far(source, target) & changed


def busiest(nic: Array, sent: Array) -> Array:
    """Return for each message the most that one of its NICs carries; nic: (messages, beside), sent: (messages,)."""
    shares = np.repeat(sent, nic.shape[-1])
    carried = np.bincount(nic.ravel(), weights=shares)
    return np.max(carried[nic], axis=-1) if nic.shape[-1] > 1 else carried[nic.ravel()]


class Network(NamedTuple):
    """The network of a collective, whose links between nodes are shared: slowdown factors.

    congestion(distance): of an exchange between all pairs of nodes at that distance in rank order; 0: those beyond a
    power of two fold into a neighbor. all_to_all: of an all-to-all. neighbors(distance, of): of rings of `of` nodes
    (default: all) whose neighbors are `distance` nodes apart. trees(distance): of the round of a binomial tree at that
    distance; 0: of double binary trees. combines: where switches add what passes them: "nvls" inside a node, "sharp"
    between nodes. The beta of `outer` is of a node's ranks that all send; lanes: how many times that rate one of them
    has that sends alone. crossing: slowdown factor where every node sends all of one rail to another. relay, nics,
    beside: see Rails. uneven: prices groups that do not fill nodes evenly (costs/uneven_groups.py); `inner` is then of
    ranks that are in one node in each group. every: the Network of all groups, if this one is of some: all run the
    algorithm that is chosen for it.
    """

    inner: Level
    outer: Level
    gamma: Array
    congestion: Callable[[int], Array] = lambda distance: 1.0
    all_to_all: Array = 1.0
    neighbors: Callable[..., Array] = lambda distance, of=None: 1.0
    combines: frozenset[str] = frozenset()
    lanes: Array = 1
    crossing: Array = 0.0
    relay: bool = False
    nics: Array = 1
    beside: Array = 1
    uneven: Any = None
    trees: Callable[..., Array] = lambda distance=0: 1.0
    every: Any = None

    @property
    def rails(self) -> Rails:
        """The NICs of its ranks; no arrays."""
        return Rails(int(self.inner.ranks), int(self.nics), self.relay, int(self.beside))

    @property
    def nic_beta(self) -> Array:
        """Return s/B of one NIC; of a rank that sends alone, those of other groups beside it use the same one."""
        return self.outer.beta * self.lanes / np.minimum(self.beside, self.on_a_nic)

    @property
    def on_a_nic(self) -> Array:
        """Return the devices of the NIC that has the most."""
        return np.ceil(self.inner.ranks * self.beside / self.nics)


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


def slowest(net: Network, size: Array) -> tuple[Array, Array]:
    """Return alpha and beta of the link of a ring over all devices that takes longest for a message of `size` B.

    The ring leaves a node through one of its NICs.
    """
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    # From the last rank of a node to the first of the next: to another rail.
    turns = (net.nics > 1) & (g != 1)
    a_out = a_out + a_in * turns * net.relay
    b_out = b_out * net.lanes * np.maximum(net.neighbors(1), net.crossing * turns)
    across = (nodes > 1) & ((g == 1) | (a_out + size * b_out >= a_in + size * b_in))
    if np.ndim(across) == 0:
        return (a_out, b_out) if across else (a_in, b_in)
    return np.where(across, a_out, a_in), np.where(across, b_out, b_in)


def depth(ranks: Array) -> Array:
    """Return ceil(lg ranks), exact for integers, as a float: a product with whole bytes exceeds 32 bits."""
    if isinstance(ranks, int):
        return float((ranks - 1).bit_length())
    mantissa, exponent = np.frexp(ranks)
    return exponent - 1.0 * (mantissa == 0.5)


def whole_rounds(ranks: Array) -> tuple[Array, Array]:
    """Return floor(lg ranks), and 1 where ranks is not a power of two, else 0; both are floats."""
    if isinstance(ranks, int):
        return ranks.bit_length() - 1.0, float(ranks & (ranks - 1) > 0)
    mantissa, exponent = np.frexp(ranks)
    return exponent - 1.0, (mantissa != 0.5) * 1.0


def over_rounds(rounds: Array, net: Network, share: Callable[[int], Array]) -> Array:
    """Sum share(k) * congestion(2^k) over the rounds k = 0 .. rounds - 1 between nodes."""
    total: Array = 0.0
    several = np.ndim(rounds) > 0
    for k in range(int(np.max(rounds))):
        slowdown = share(k) * net.congestion(2**k)
        total = total + (np.where(k < rounds, slowdown, 0.0) if several else slowdown)
    return total
