"""Problems of module 03, allreduce."""

from math import log2

from lib_dlhpc.costs import flat
from lib_dlhpc.explore.allreduce.nodes import buffers_out
from lib_dlhpc.explore.allreduce.sizes import crossover
from lib_dlhpc.prediction.collectives import ALGORITHMS
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import PAGE, Cases, Problem, Step

draw: Cases = globals().get("draw", PAGE)

ALPHA, RATE = draw.any([5e-6, 3e-6, 4e-6, 8e-6]), draw.any([12.5e9, 25e9, 50e9])
BETA = 1 / RATE
LINK = f"Links have a latency of {show(ALPHA, 's')} and a bandwidth of {show(RATE, 'B/s')}; reduction is free."


def seconds(algorithm: str, ranks: int, size: float) -> float:
    """Return the price of an allreduce."""
    return float(ALGORITHMS[algorithm](size, flat(ranks, ALPHA, BETA)).total)


P, MANY = draw.any([8, 4, 16, 32]), draw.any([64, 32, 128, 256])
LONG, SHORT = draw.any([64e6, 32e6, 96e6, 200e6]), draw.any([4e3, 2e3, 8e3])
NODES, DEVICES = draw.any([32, 8, 64, 128]), draw.any([4, 8])
latency = log2(MANY) * ALPHA
slopes = (log2(MANY) - 2 * (MANY - 1) / MANY) * BETA

PROBLEMS = [
    Problem(
        "A ring",
        f"{LINK} {P} ranks allreduce {show(LONG, 'B')} with a ring. How long does it take?",
        seconds("ring", P, LONG),
        Step("Rounds: 2 (p - 1)", 2 * (P - 1)),
        Step("Bytes per rank per round: n / p", LONG / P, "B"),
        Step("Latency: rounds times α", 2 * (P - 1) * ALPHA, "s"),
        Step("Bandwidth: rounds times n β / p", 2 * (P - 1) * LONG * BETA / P, "s"),
        Step("Together", 2 * (P - 1) * (ALPHA + LONG * BETA / P), "s"),
    ),
    Problem(
        "Recursive doubling",
        f"{LINK} {MANY} ranks allreduce {show(SHORT, 'B')} with recursive doubling: in each round partners"
        " exchange the whole buffer. How long does it take?",
        seconds("recursive_doubling", MANY, SHORT),
        Step("Rounds: lg p", log2(MANY)),
        Step("Bytes per rank and round: n", SHORT, "B"),
        Step("Latency", latency, "s"),
        Step("Bandwidth", log2(MANY) * SHORT * BETA, "s"),
        Step("Together", log2(MANY) * (ALPHA + SHORT * BETA), "s"),
    ),
    Problem(
        "The crossover",
        f"{LINK} Above what message size is Rabenseifner faster than recursive doubling on {MANY} ranks?",
        crossover(MANY, ALPHA, RATE),
        Step("Its additional latency: lg p more rounds", latency, "s"),
        Step("Its saving per byte: (lg p - 2 (p - 1) / p) β", slopes, "s/B"),
        Step("The size at which both are equal", latency / slopes, "B"),
    ),
    Problem(
        "Out of a node",
        f"{NODES} nodes of {DEVICES} devices that share a NIC allreduce with recursive doubling. How many times does"
        " the buffer leave each node?",
        buffers_out("recursive_doubling", NODES, DEVICES),
        Step(f"Rounds between nodes: lg {NODES}", log2(NODES)),
        Step("Devices that send the whole buffer in each round", DEVICES),
        Step("Times the buffer leaves", DEVICES * log2(NODES)),
    ),
]
