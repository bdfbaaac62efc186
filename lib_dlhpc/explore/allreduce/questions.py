"""What module 03 asks, in its order: guesses that uncover experiments, things to try, checks."""

import ipywidgets
import numpy as np

from lib_dlhpc.costs.network import flat
from lib_dlhpc.explore.allreduce.panel import run_here
from lib_dlhpc.explore.allreduce.sizes import (
    Flat,
    Nodes,
    buffers_out,
    crossover,
    message_sizes,
    nics_view,
    nodes_and_nics,
    title,
    winners,
)
from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.plain_text import Column
from lib_dlhpc.explore.blocks.question import Card
from lib_dlhpc.explore.blocks.schedule_view import rounds_and_chunks
from lib_dlhpc.explore.labs.network_lab import network_lab
from lib_dlhpc.prediction.collectives import ALGORITHMS, rabenseifner, ring
from lib_dlhpc.schedules import price, schedule
from lib_dlhpc.spec.units import format_quantity as show

lesson = Lesson()


def short_message() -> Card:
    """Ask which allreduce is the fastest for a short message."""
    return lesson.predict_choice(
        "32 ranks allreduce 1 kB on a cluster of 2005: latency 10 µs, 2 Gb/s. Which is the fastest?",
        ("ring", "recursive doubling", "Rabenseifner", "binomial reduce + broadcast"),
        result="recursive doubling",
        explanation="With so few bytes latency dominates: the number of rounds counts, and it has the fewest.",
        then=message_sizes(),
    )


def rounds_of_a_ring() -> Card:
    """Ask for the rounds of a ring."""
    return lesson.predict(
        "A ring of 8 ranks: after how many rounds does every rank have the sum?",
        result=price(schedule("ring", ranks=8, elements=8), alpha=1.0).latency,
        unit="rounds",
        explanation="Seven of reduce-scatter, seven of all-gather.",
        then=rounds_and_chunks(),
    )


def out_of_a_node() -> Card:
    """Ask how often the buffer leaves a node."""
    return lesson.predict(
        "32 nodes of 8 devices, recursive doubling: how often does the buffer leave each node?",
        result=buffers_out("recursive_doubling", nodes=32, devices=8),
        unit="times",
        explanation="In each of the lg 32 rounds between nodes, all 8 devices send the whole buffer.",
        then=nodes_and_nics(),
    )


def ring_or_rabenseifner() -> Card:
    """Ask how much slower a ring is, and measure it."""
    here = flat(ranks=4, alpha=5e-6, beta=1 / 5e9)
    return lesson.predict(
        "4 ranks, 4 MB, 5 µs and 5 GB/s: how many times as long as Rabenseifner does a ring take?",
        result=float(ring(4e6, here).total / rabenseifner(4e6, here).total),
        unit="times",
        explanation="Six rounds against four, but both move the same bytes, and bandwidth dominates.",
        then=run_here(),
    )


def slow_network() -> Card:
    """Ask for the crossover on an emulated network, and measure it."""
    return lesson.predict(
        "4 ranks, 100 Mbit/s, 1 ms: from which size on is Rabenseifner faster than recursive doubling?",
        result=crossover(ranks=4, latency=1e-3, bandwidth=100e6 / 8) / 1e3,
        unit="kB",
        explanation="That is the formula. TCP also waits for acknowledgements: the measured crossover is later.",
        then=network_lab(),
    )


def best_allreduce() -> Card:
    """Check what bandwidth-optimal leaves out."""
    return lesson.choose(
        "A colleague: ring is bandwidth-optimal, so ring is the best allreduce. What is missing?",
        {
            "Nothing, bandwidth is what matters": "Only for long messages: look at 1 kB on many ranks.",
            "The number of rounds": "Yes: it grows with p, and each round pays the latency.",
            "It needs more memory": "No: it works in place, with one block to receive into.",
        },
        right="The number of rounds",
    )


def twice_the_bandwidth() -> Card:
    """Check what bandwidth brings to short messages."""
    return lesson.choose(
        "A ring allreduces buckets of 64 kB on 1,024 ranks, 2 µs, 100 Gb/s. You buy twice the bandwidth. And?",
        {
            "The exchange takes half as long": "No: see the latency floor in the first experiment.",
            "Hardly anything changes": "Yes: larger buckets would help, or another algorithm.",
            "It depends on the number of GPUs a node": "No: its rounds pay latency, whatever the node.",
        },
        right="Hardly anything changes",
    )


def latency(seed: int | None = None) -> Card:
    """Ask each learner how much longer a ring waits for latency than Rabenseifner."""
    ranks = int(np.random.default_rng(seed).choice([64, 128, 256, 512, 1024]))
    ring, other = (ALGORITHMS[n](0.0, flat(ranks, 1.0, 0.0)) for n in ("ring", "rabenseifner"))
    return lesson.compute(
        f"A tiny message, {ranks:,} ranks: how many times as long as Rabenseifner does a ring take?",
        answer=float(ring.total / other.total),
        unit="times",
        hint="Count the rounds: 2 (p - 1) against 2 lg p.",
    )


def own_crossover(seed: int | None = None) -> Card:
    """Ask each learner for the crossover on a network of their own."""
    draw = np.random.default_rng(seed)
    ranks, alpha = int(draw.choice([16, 64, 256])), float(draw.choice([2e-6, 5e-6, 20e-6]))
    rate = float(draw.choice([10e9, 25e9, 100e9]))
    return lesson.compute(
        f"{ranks} ranks, {show(alpha, 's')}, {rate / 1e9:g} Gb/s, reduction for free:"
        " from which size in kB on does Rabenseifner beat recursive doubling?",
        answer=crossover(ranks, alpha, rate / 8) / 1e3,
        unit="kB",
        hint="Set lg p (alpha + n beta) equal to 2 lg p alpha + 2 (p-1)/p n beta and solve for n."
        " 1 Gb/s is 0.125 GB/s.",
    )


def try_sizes() -> Column:
    """List things to try with message sizes."""

    def longest(ranks: int) -> str:
        network = Flat(ranks, 10e-6, 2e9 / 8, 1e9, 1e3).network
        return title(winners(network)[-1].algorithm)

    def crossing(latency: float, rate: float, reduction: float) -> str:
        first = winners(Flat(32, latency, rate / 8, reduction, 1e3).network)[0]
        return show(first.stop, "B")

    return lesson.steps(
        (
            "Which algorithm wins for long messages where the number of ranks is no power of two, say 48?",
            lambda: (
                f"The {longest(48)}: recursive halving would have to fold the extra ranks first."
            ),
        ),
        (
            "And where it is prime, say 31? Make the ring win.",
            lambda: (
                f"The {longest(31)}, for long messages: 31 ranks neither halve nor form a grid."
            ),
        ),
        (
            "Take today's network, 1 µs and 400 Gb/s, and then today's reduction, 1 TB/s. Where does the crossover of"
            " recursive doubling go?",
            lambda: (
                f"From {crossing(10e-6, 2e9, 1e9)} to {crossing(1e-6, 400e9, 1e9)}: a slow sum now punishes whole"
                f" buffers. With the fast reduction to {crossing(1e-6, 400e9, 1e12)}: bandwidth has grown by more than"
                " latency has shrunk."
            ),
        ),
    )


def try_rounds() -> Column:
    """List things to look at in the animation."""
    return lesson.steps(
        (
            "Recursive doubling and Rabenseifner communicate with the same partners. What does the second send where"
            " the first sends the whole buffer?",
            "Half of it in the first round, a quarter in the second: all rounds together less than one buffer. Then the"
            " same on the way back.",
        ),
        (
            "Choose fewer elements than ranks. What happens?",
            "Some blocks are empty: messages that carry nothing and still cost latency.",
        ),
    )


def try_nodes() -> Column:
    """List things to try with nodes that share a NIC."""

    def small() -> str:
        setting = Nodes(32, 8, 1, 100e9 / 8, 150e9, 4e3)
        times, _ = nics_view(setting)
        ring, torus = (float(times[name].total) for name in ("ring", "torus_2d"))
        return f"4 kB: the ring takes {show(ring, 's')}, the torus {show(torus, 's')}. It pays for two rounds a rank."

    return lesson.steps(
        (
            "Rabenseifner has the partners of recursive doubling. Why does it not flood the NIC?",
            "When it leaves the node, each device has only its shard left to send.",
        ),
        (
            "How does the 2-D torus differ from a hierarchy with one leader a node?",
            "It is a grid of rings: every device keeps sending, and none is the bottleneck.",
        ),
        ("Find a message size for which the ring loses to the torus. Why?", small),
    )


def try_writing() -> Column:
    """List things to try with an allreduce of one's own."""
    return lesson.steps(
        (
            "In JupyterLab, change the cell: does it work on 6 ranks (try_out(my_better_allreduce, ranks=6))?",
            "No: rank 4's partner at distance 2 would be rank 6, which does not exist. Fold two ranks away first.",
        ),
        (
            "Can you beat the ring at a megabyte?",
            "With halves in place of whole buffers (Rabenseifner): equal bytes, fewer rounds.",
        ),
        (
            "Can you do it with one copy to each rank?",
            "Reduce to a root along a tree, then copy down the tree.",
        ),
    )


def surprises() -> ipywidgets.HTML:
    """Return all guesses beside the results."""
    return lesson.surprises()
