"""Derivations of module 03: what a ring costs, and from which size it beats recursive doubling."""

from math import log2

from lib_dlhpc.explore.allreduce.sizes import Flat
from lib_dlhpc.explore.slides.derivation import Derivation, Step
from lib_dlhpc.prediction.collectives import ALGORITHMS
from lib_dlhpc.spec.units import format_quantity as show

RANKS, SIZE, LATENCY, BANDWIDTH, REDUCTION = 16, 100e6, 10e-6, 12.5e9, 50e9
beta, gamma = 1 / BANDWIDTH, 1 / REDUCTION
share = (RANKS - 1) / RANKS
ring = 2 * (RANKS - 1) * LATENCY + 2 * share * SIZE * beta + share * SIZE * gamma
crossover = LATENCY * (2 * (RANKS - 1) - log2(RANKS)) / (beta * (log2(RANKS) - 2 * share))


def seconds(algorithm: str, size: float, reduction: float) -> float:
    """Return the library's price of an allreduce."""
    network = Flat(RANKS, LATENCY, BANDWIDTH, reduction).network
    return float(ALGORITHMS[algorithm](size, network).total)


DERIVATIONS = [
    Derivation(
        "Derivation: what a ring costs",
        [
            Step(
                r"t_1 = \alpha + \frac{n}{p}\,\beta + \frac{n}{p}\,\gamma",
                "In a round, each rank sends one of p blocks to the next rank and adds the block that arrives.",
            ),
            Step(
                r"T_{\text{scatter}} = (p-1)\Big(\alpha + \frac{n}{p}\,\beta + \frac{n}{p}\,\gamma\Big)",
                "A block is complete after it has visited the p - 1 other ranks.",
            ),
            Step(
                r"T_{\text{gather}} = (p-1)\Big(\alpha + \frac{n}{p}\,\beta\Big)",
                "Complete blocks travel once more around the ring. Nothing is added.",
            ),
            Step(
                r"T = 2(p-1)\,\alpha + 2\,\frac{p-1}{p}\,n\beta + \frac{p-1}{p}\,n\gamma",
                "The sum of both. Latency grows with p; the bytes of a rank hardly do.",
            ),
        ],
        f"{RANKS} ranks, {show(SIZE, 'B')}, {show(LATENCY, 's')}, {show(BANDWIDTH, 'B/s')} and {show(REDUCTION, 'B/s')}"
        f" added: {show(ring, 's')}, of which {show(2 * (RANKS - 1) * LATENCY, 's')} are latency.",
        "Draw four ranks and four blocks first. Ask after the second line: which rank has which complete block? Ask"
        " before the last line: which term would a faster network change? Most forget that all ranks send at once, and"
        " multiply by p again.",
        ring,
        seconds("ring", SIZE, REDUCTION),
    ),
    Derivation(
        "Derivation: from which size a ring wins",
        [
            Step(
                r"T_{\text{doubling}} = \lg p\,(\alpha + n\beta)",
                "Each of lg p rounds exchanges the whole buffer; sums are free here.",
            ),
            Step(
                r"2(p-1)\,\alpha + 2\,\frac{p-1}{p}\,n\beta = \lg p\,(\alpha + n\beta)",
                "At the crossover both take equally long.",
            ),
            Step(
                r"\Big(2(p-1) - \lg p\Big)\,\alpha = \Big(\lg p - 2\,\frac{p-1}{p}\Big)\,n\beta",
                "Latency to the left, bytes to the right: a ring pays in rounds what it saves in bytes.",
            ),
            Step(
                r"n^{*} = \frac{\alpha}{\beta} \cdot \frac{2(p-1) - \lg p}{\lg p - 2\,\frac{p-1}{p}}",
                "Solve for n. Latency times bandwidth sets the scale, the ranks a factor.",
            ),
        ],
        f"{RANKS} ranks, {show(LATENCY, 's')}, {show(BANDWIDTH, 'B/s')}: the ring wins from"
        f" {show(crossover, 'B')} on. Rabenseifner has as few bytes and only 2 lg p rounds.",
        "Ask for a guess of the crossover before the last line. Then let them double the latency, the bandwidth, and"
        " the ranks: each time, does the crossover move to the right or to the left? With two ranks the denominator is"
        " zero: both send the same bytes.",
        seconds("ring", crossover, 1e30),
        seconds("recursive_doubling", crossover, 1e30),
    ),
]
