"""The time of an allreduce by NCCL's tuning model: the cheapest of rings and trees, each by three protocols.

LL sends a flag beside every 4 bytes, LL128 one in 128 bytes, Simple whole chunks after a handshake: the less a protocol
waits, the less of the bandwidth it reaches. Source: NCCL 2.30, src/graph/tuning.cc (THIRD_PARTY.md), with its
numbers for Ampere and hosts by Intel. Not modeled: reductions in the switch, and NCCL's choice of channels.
"""

from math import log2
from typing import NamedTuple

PROTOCOLS = ("LL", "LL128", "Simple")


class Latencies(NamedTuple):
    """Seconds by protocol: of a call, of a step within a node, and of one between nodes."""

    call: tuple[float, ...]
    within: tuple[float, ...]
    between: tuple[float, ...]


RING = Latencies((6.6e-6, 14e-6, 8.4e-6), (0.6e-6, 1.9e-6, 3.4e-6), (2.7e-6, 4e-6, 14e-6))
TREE = Latencies((6.8e-6, 14e-6, 8.4e-6), (0.6e-6, 1.25e-6, 4e-6), (5e-6, 8.5e-6, 14e-6))
POST = (1e-6, 1e-6, 3e-6)  # s: the least of a step of a ring over several nodes
PLATEAU = (1.0, 1.0, 1.4)  # what steps of such a ring take longer
LL_LIMIT = 20.4e9  # B/s
RING_SHARE = (0.5, 0.92, 1.0)  # of the bus bandwidth
TREE_SHARE = (0.92 / 3.8, 0.92 * 120 / 128, 0.92)
TREE_SHARE_WITHIN = (0.92 / 3.8, 0.92 * 7 / 9, 0.92)  # in one node
# The part of it, in tenths, that trees reach with messages of 64 B, 128 B, ...; all of it beyond.
TENTHS = (
    (10, 10, 10, 10, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10),
    (10, 10, 10, 10, 10, 9, 8, 8, 8, 7, 6, 6, 6, 6, 6, 6, 8, 9, 9, 9, 9, 10, 10),
    (9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 6, 5, 5, 5, 5, 6, 7, 8, 7, 7, 8, 9, 9),
)


def allreduce_time(n: float, ranks: int, nodes: int, bandwidth: float) -> float:
    """Return the seconds of an allreduce of n bytes.

    ranks: in all, as many on each of `nodes` nodes. bandwidth: B/s of the bus, as a long ring allreduce reaches it.
    """
    return min(by_protocol(n, ranks, nodes, bandwidth).values())


def by_protocol(n: float, ranks: int, nodes: int, bandwidth: float) -> dict[tuple[str, str], float]:
    """Return the same of each algorithm and protocol, such as ("ring", "LL")."""
    seconds = {}
    for index, protocol in enumerate(PROTOCOLS):
        seconds["ring", protocol] = _ring(index, n, ranks, nodes, bandwidth)
        seconds["tree", protocol] = _tree(index, n, ranks, nodes, bandwidth)
    return seconds


def _ring(protocol: int, n: float, ranks: int, nodes: int, bandwidth: float) -> float:
    steps, between = 2 * (ranks - 1), 2 * (nodes - 1)
    within = max(RING.within[protocol], POST[protocol] if nodes > 1 else 0.0)
    latency = RING.call[protocol] + (steps - between) * within + between * RING.between[protocol]
    bus = _limited(protocol, bandwidth * RING_SHARE[protocol])
    return latency * (PLATEAU[protocol] if nodes > 1 else 1.0) + n * steps / ranks / bus


def _tree(protocol: int, n: float, ranks: int, nodes: int, bandwidth: float) -> float:
    down = (ranks / nodes - 1) * TREE.within[protocol] + log2(nodes) * TREE.between[protocol]
    share = (TREE_SHARE if nodes > 1 else TREE_SHARE_WITHIN)[protocol]
    bus = _limited(protocol, bandwidth * share) * _reached(protocol, n)
    return TREE.call[protocol] + 2 * down + 2 * n / bus


def _limited(protocol: int, bus: float) -> float:
    return min(bus, LL_LIMIT) if PROTOCOLS[protocol] == "LL" else bus


def _reached(protocol: int, n: float) -> float:
    """Return the part of a tree's bandwidth that a message of n bytes reaches."""
    power = int(log2(n / 64)) if n >= 64 else -1
    return TENTHS[protocol][power] / 10 if 0 <= power < len(TENTHS[protocol]) else 1.0
