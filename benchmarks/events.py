"""The event simulator against the textbook SimPy ring, and how its cost grows with the messages.

    python benchmarks/events.py                 256 ranks
    python benchmarks/events.py --ranks 64

The textbook program (in _ring_peers.py) has no contention; here every message is a flow that shares its links max-min
fairly ("by message"), or all messages of a round are simulated at once where none can meet another, as on a plain ring
("at once", to the same bit; simulation/uncontended.py). An event is what SimPy takes from its queue. Prints rates a CPU
second and ratios, then the cost of a message for more and more messages: n log n may rise with log n.
Collectives keep to that. The last case does not: n flows that come one after another to one link change
the rates of all that are there, n^2 rates in all, whichever way they are worked out one by one.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from math import log2
from typing import Any

import numpy as np
import simpy
from _quick import add_quick
from _ring_peers import ALPHA, BANDWIDTH, MISSING, simgrid, textbook

from lib_dlhpc.costs.platform import platform
from lib_dlhpc.schedules import Schedule, schedule
from lib_dlhpc.simulation import uncontended
from lib_dlhpc.simulation.events import start_schedules
from lib_dlhpc.simulation.simulation import Simulation
from lib_dlhpc.spec.machine import Device, Link, Machine

BLOCK, ELEMENT = 1000, 4.0  # elements, B
TREE = {"topology": "fat-tree", "nodes_per_switch": 8, "oversubscription": 4.0}


def simulation(
    ours: Schedule, arrival: np.ndarray, **topology: Any
) -> tuple[np.ndarray, Simulation]:
    """Return the finish times, filled by the run, and the simulation: one rank a node, free reduction."""
    device = Device({"fp32": 1e13}, 1e10, 1e30, 100.0, 300.0)
    machine = Machine(
        device,
        intra_node=Link(ALPHA, 8 * BANDWIDTH),
        inter_node=Link(ALPHA, BANDWIDTH),
        nodes=ours.ranks,
        devices_per_node=1,
        **topology,
    )
    sim = Simulation(platform(machine, ours.ranks, 1))
    return start_schedules(sim, [ours], ELEMENT, arrival)[0], sim


def seconds(run: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def events_of(env: simpy.Environment) -> int:
    """Run to the end and count the events."""
    count = 0
    while env.peek() < float("inf"):
        env.step()
        count += 1
    return count


def against_textbook(ranks: int, repeat: int = 3) -> None:
    """Print messages and events a second of both, taken in turn."""
    arrival = np.random.default_rng(0).exponential(1e-5, ranks)
    total = 2 * (ranks - 1) * ranks
    ring = schedule("ring", ranks, BLOCK * ranks)
    theirs = (ranks, ALPHA + BLOCK * ELEMENT / BANDWIDTH, arrival.tolist())
    counted = events_of(textbook(*theirs)[1])
    ours, others, arrays = [], [], []
    for _ in range(repeat):
        finish, sim = simulation(ring, arrival)
        ours.append(seconds(sim.run))
        others.append(seconds(textbook(*theirs)[1].run))
        plain = (sim.platform, [ring], ELEMENT, arrival, 1.0, True, 0.0)
        arrays.append(seconds(lambda plain=plain: uncontended.finish_times(*plain)))
    spent, other = float(np.median(ours)), float(np.median(others))
    print(f"ring allreduce of {ranks} ranks, {total:,} messages; a CPU second")
    print(f"{'':<24} {'messages/s':>12} {'events/s':>12} {'events a message':>18}")
    for name, events, took in (
        ("SimPy, textbook", counted, other),
        ("events, by message", sim.steps, spent),
    ):
        print(f"{name:<24} {total / took:12,.0f} {events / took:12,.0f} {events / total:18.2f}")
    print(f"{'events, at once':<24} {total / float(np.median(arrays)):12,.0f}")
    peer = simgrid(BLOCK * ELEMENT, arrival.tolist(), repeat)
    if peer is None:
        print(MISSING)
    else:
        print(f"{'SimGrid, S4U in C++':<24} {total / float(np.median(peer[1])):12,.0f}")
        apart = np.abs(finish / np.array(peer[0]) - 1).max()
        print(f"ranks with jitter finish at SimGrid's times, to {apart:.1e} at most")
    print(f"messages/s {other / spent:.2f} x textbook (wanted: 0.7)", end="; ")
    print(f"events/s {sim.steps / spent / (counted / other):.2f} x")


def everyone_at_once(ranks: int, elements: int) -> Iterator[list[tuple[int, int, int, int, str]]]:
    """A block of one's own to everyone, in the order of the ranks after one's own."""
    yield [
        (r, (r + k) % ranks, 0, elements // ranks, "copy")
        for r in range(ranks)
        for k in range(1, ranks)
    ]


def incast(ranks: int, elements: int) -> Iterator[list[tuple[int, int, int, int, str]]]:
    """Everything to rank 0."""
    yield [(r, 0, 0, elements, "copy") for r in range(1, ranks)]


def growth(quick: bool) -> None:
    """Print the CPU time of a message, and over log2(messages), where n doubles and doubles; quick: n once."""
    print(f"\n{'':<44} {'messages':>10} {'us a message':>13} {'/ log2 n':>9} {'rates set':>10}")
    cases = (
        ("ring", "ring", (32, 64, 128, 256), {}),
        ("ring on a fat tree", "ring", (32, 64, 128, 256), TREE),
        ("Rabenseifner on a fat tree", "rabenseifner", (64, 128, 256, 512), TREE),
        ("everyone to everyone at once", everyone_at_once, (16, 32, 64), {}),
        ("incast, all at once", incast, (65, 257, 1025), {}),
        ("incast, one after another", incast, (65, 257, 1025), {}),
    )
    for name, algorithm, sizes, topology in cases:
        for ranks in sizes[:1] if quick else sizes:
            step = 0.0 if name == "incast, all at once" else 1e-5
            arrival = np.random.default_rng(0).exponential(step, ranks)
            _, sim = simulation(schedule(algorithm, ranks, BLOCK * ranks), arrival, **topology)
            each = seconds(sim.run) / sim.delivered * 1e6
            work = sim.flows.work / sim.delivered
            print(
                f"{name + f', {ranks} ranks':<44} {sim.delivered:10,}"
                f" {each:13.1f} {each / log2(sim.delivered):9.2f} {work:10.1f}"
            )


def main() -> None:
    """Print the rates, then the growth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=256)
    add_quick(parser)
    given = parser.parse_args()
    against_textbook(16 if given.quick else given.ranks)
    growth(given.quick)


if __name__ == "__main__":
    main()
