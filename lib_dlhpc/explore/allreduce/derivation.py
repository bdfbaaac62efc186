"""Derivations of module 03: what a ring costs, and from which size it beats recursive doubling."""

from math import log2

from lib_dlhpc.explore.allreduce.sizes import Flat
from lib_dlhpc.explore.slides.derivation import written
from lib_dlhpc.prediction.communication.collectives import ALGORITHMS

RANKS, SIZE, LATENCY, BANDWIDTH, REDUCTION = 16, 100e6, 10e-6, 12.5e9, 50e9
beta, gamma = 1 / BANDWIDTH, 1 / REDUCTION
share = (RANKS - 1) / RANKS
ring = 2 * (RANKS - 1) * LATENCY + 2 * share * SIZE * beta + share * SIZE * gamma
crossover = LATENCY * (2 * (RANKS - 1) - log2(RANKS)) / (beta * (log2(RANKS) - 2 * share))


def seconds(algorithm: str, size: float, reduction: float) -> float:
    """Return the library's price of an allreduce."""
    network = Flat(RANKS, LATENCY, BANDWIDTH, reduction).network
    return float(ALGORITHMS[algorithm](size, network).total)


waits = 2 * (RANKS - 1) * LATENCY

DERIVATIONS = written(
    globals(),
    (ring, seconds("ring", SIZE, REDUCTION)),
    (seconds("ring", crossover, 1e30), seconds("recursive_doubling", crossover, 1e30)),
)
