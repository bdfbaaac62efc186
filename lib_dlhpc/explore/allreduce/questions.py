"""What module 03 asks: the figures and the numbers of lesson.toml."""

import numpy as np

from lib_dlhpc.costs import flat
from lib_dlhpc.explore.allreduce.charts import name_of
from lib_dlhpc.explore.allreduce.nodes import Nodes, buffers_out, nodes_and_nics
from lib_dlhpc.explore.allreduce.panel import run_here
from lib_dlhpc.explore.allreduce.rounds import Example, rounds_and_chunks
from lib_dlhpc.explore.allreduce.sizes import Flat, crossover, message_sizes, winners
from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.labs.network_lab import network_lab
from lib_dlhpc.prediction.communication.collectives import ALGORITHMS
from lib_dlhpc.schedules import Network
from lib_dlhpc.spec.units import format_quantity as show

TODAY = Flat(latency=1e-6, bandwidth=400e9 / 8)


def ring_over_rabenseifner(size: float, network: Network) -> float:
    """Return how many times slower a ring is than Rabenseifner's algorithm."""
    ring, other = (ALGORITHMS[name](size, network).total for name in ("ring", "rabenseifner"))
    return float(ring / other)


def longest(ranks: int) -> str:
    """Return which algorithm is the fastest for long messages."""
    return name_of(winners(Flat(ranks).network)[-1].algorithm)


def first_change(setting: Flat) -> str:
    """Return the size up to which the fastest algorithm for short messages is the fastest."""
    return show(winners(setting.network)[0].stop, "B")


def small(algorithm: str) -> str:
    """Return how long 4 kB take between nodes that share a NIC."""
    return show(float(ALGORITHMS[algorithm](4e3, Nodes().levels).total), "s")


def latency(draw: np.random.Generator) -> Drawn:
    """Return the ranks of one learner, and how much longer a ring waits for latency than Rabenseifner."""
    ranks = int(draw.choice([64, 128, 256, 512, 1024]))
    answer = ring_over_rabenseifner(0.0, flat(ranks, 1.0, 0.0))
    wrong = {"once_around": answer / 2, "one_way": 2 * answer, "natural": answer * np.log(2)}
    return {"ranks": ranks}, answer, wrong


def own_crossover(draw: np.random.Generator) -> Drawn:
    """Return the network of one learner, and its crossover in kB."""
    ranks, alpha = int(draw.choice([16, 64, 256])), float(draw.choice([2e-6, 5e-6, 20e-6]))
    rate = float(draw.choice([10e9, 25e9, 100e9]))
    own = {"ranks": ranks, "alpha": show(alpha, "s"), "rate": rate / 1e9}
    answer, rounds = crossover(ranks, alpha, rate / 8) / 1e3, np.log2(ranks)
    wrong = {
        "all_rounds": 2 * answer,
        "of_a_ring": answer * (2 * (ranks - 1) - rounds) / rounds,
        "in_bits": crossover(ranks, alpha, rate) / 1e3,
    }
    return own, answer, wrong


lesson = Lesson.read(
    __file__,
    outcomes={
        "short_message": (lambda: "recursive doubling", message_sizes),
        "rounds_of_a_ring": (lambda: len(tuple(Example("ring", ranks=8).plan)), rounds_and_chunks),
        "out_of_a_node": (
            lambda: buffers_out("recursive_doubling", nodes=32, devices=8),
            nodes_and_nics,
        ),
        "ring_or_rabenseifner": (
            lambda: ring_over_rabenseifner(4e6, flat(4, 5e-6, 1 / 5e9)),
            run_here,
        ),
        "slow_network": (
            lambda: crossover(4, latency=1e-3, bandwidth=100e6 / 8) / 1e3,
            network_lab,
        ),
    },
    numbers={
        **{f"longest_{ranks}": lambda ranks=ranks: longest(ranks) for ranks in (48, 31)},
        "crossover_then": lambda: first_change(Flat()),
        "crossover_network": lambda: first_change(TODAY),
        "crossover_today": lambda: first_change(TODAY._replace(reduction=1e12)),
        **{f"small_{name}": lambda name=name: small(name) for name in ("ring", "torus_2d")},
    },
    draws={"latency": latency, "own_crossover": own_crossover},
)
ask = lesson.ask
