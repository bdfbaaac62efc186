"""Messages a second of the rounds simulator against SimPy and SimGrid on the same ring, in one run.

    python benchmarks/simulator.py                 256 ranks, then the large cases
    python benchmarks/simulator.py --ranks 64      another size for the peers

The peers are in _ring_peers.py. Ranks start with jitter, and the SimPy programs must finish at the very
same times. (In SimGrid a sender waits for its receiver, so its ranks wait longer under jitter; without
they end together: tests/simulation/test_simgrid.py.) Prints rates and ratios; machines are noisy, so only
the ratios mean anything. `cold` makes the rounds from the algorithm on the way, `kept` has them
(as a step does, which makes them once for all its buckets).
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from _quick import add_quick
from _ring_peers import ALPHA, BANDWIDTH, MISSING, lean, run_peer, simgrid, textbook

from lib_dlhpc.costs.network import Level, Network, flat
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.schedules import messages, schedule
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.rounds import finish_times, program

BETA = 1 / BANDWIDTH
ELEMENTS_OF_A_BLOCK, ELEMENT = 1000, 4.0


def timed(action: Callable[[], Any], repeat: int) -> tuple[Any, float]:
    """Return the result and the median CPU seconds of `repeat` runs."""
    spent = []
    for _ in range(repeat):
        start = time.process_time()
        result = action()
        spent.append(time.process_time() - start)
    return result, median(spent)


def shuffled(ranks: int, count: int) -> list[Any]:
    """Return `count` rounds of random permutations: no neighbors, no views."""
    rng = np.random.default_rng(1)
    rank = np.arange(ranks)
    return [
        messages(rank, rng.permutation(ranks), 0, ELEMENTS_OF_A_BLOCK, True) for _ in range(count)
    ]


def against_peers(ranks: int) -> None:
    """Print the ratios to the peers, after checking that the SimPy programs give the same times."""
    arrival = np.random.default_rng(0).exponential(1e-5, ranks)
    total = 2 * (ranks - 1) * ranks
    network = flat(ranks, ALPHA, BETA)
    ring = schedule("ring", ranks, ELEMENTS_OF_A_BLOCK * ranks)
    kept = program(ring)
    seconds = ALPHA + ELEMENTS_OF_A_BLOCK * ELEMENT * BETA
    rates, times = {}, {}
    for name, action, repeat in (
        ("SimPy, textbook", lambda: run_peer(textbook, ranks, seconds, arrival.tolist()), 3),
        ("SimPy, lean", lambda: run_peer(lean, ranks, seconds, arrival.tolist()), 3),
        ("rounds, cold", lambda: finish_times(ring, network, ELEMENT, arrival), 51),
        ("rounds, kept", lambda: finish_times(kept, network, ELEMENT, arrival), 101),
    ):
        times[name], spent = timed(action, repeat)
        rates[name] = total / spent
    rounds = shuffled(ranks, 2 * (ranks - 1))
    crowd = program(schedule(lambda p, n: rounds, ranks, ELEMENTS_OF_A_BLOCK))
    _, spent = timed(lambda: finish_times(crowd, network, ELEMENT, arrival), 21)
    rates["rounds, permutations"] = total / spent
    batch = 256
    slow = np.linspace(1, 10, batch)[:, None]
    many = Network(Level(1, 0.0, 0.0), Level(ranks, ALPHA * slow, BETA * slow), 0.0)
    _, spent = timed(lambda: finish_times(kept, many, ELEMENT, arrival), 5)
    rates["rounds, 256 what-ifs"] = batch * total / spent
    peer = simgrid(ELEMENTS_OF_A_BLOCK * ELEMENT, arrival.tolist(), 5)
    if peer is not None:
        rates["SimGrid, S4U in C++"] = total / median(peer[1])
    for name in ("SimPy, textbook", "rounds, cold", "rounds, kept"):
        same = np.array_equal(times[name], times["SimPy, lean"])
        print(f"{name:<24} finishing times bit-identical to the lean program: {same}")
        if not same:
            sys.exit(1)
    print(f"\nring allreduce of {ranks} ranks, {total:,} messages; a CPU second")
    peers = ("SimPy, textbook", "SimPy, lean", "SimGrid, S4U in C++")
    print(f"{'':<24} {'messages/s':>12} {'x textbook':>12} {'x lean':>8} {'x S4U':>8}")
    for name, rate in rates.items():
        ratios = [rate / rates[peer] if peer in rates else np.nan for peer in peers]
        print(f"{name:<24} {rate:12,.0f} {ratios[0]:12,.1f} {ratios[1]:8,.1f} {ratios[2]:8,.1f}")
    if peer is None:
        print(MISSING)
    print("wanted of rounds: 1,000 x textbook, 300 x lean, 150 x S4U")
    share = rates["rounds, permutations"] / rates["rounds, kept"]
    print(f"permutations go at {share:.2f} of the kept ring's rate (wanted: 0.33)")


def large(ranks: int, nodes: int) -> None:
    """Print the seconds and the memory of what needs to stay small."""
    network, ring = flat(ranks, ALPHA, BETA), schedule("ring", ranks, ranks * 100)
    _, spent = timed(lambda: finish_times(ring, network, ELEMENT), 1)
    print(f"\nring of {ranks:,} ranks, {2 * (ranks - 1) * ranks:,} messages {spent:8.2f} s")
    run = replay("goyal-2017").experiment.set({"machine.nodes": nodes, "strategy.nodes": nodes})
    for allreduce in ("ring", "hierarchical", "rabenseifner"):
        step = run.set({"strategy.allreduce": allreduce})
        _, spent = timed(lambda e=step: simulate(e), 3)
        print(
            f"a ResNet-50 step on {8 * nodes:,} ranks, {allreduce:<14} {spent:8.2f} s   (under 2)"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    print(f"memory of this process at its peak {peak / 2**30:17.2f} GiB (under 1)")


def main() -> None:
    """Print every ratio that the project promises of its simulator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=256)
    add_quick(parser)
    given = parser.parse_args()
    against_peers(16 if given.quick else given.ranks)
    large(*((256, 2) if given.quick else (16384, 256)))


if __name__ == "__main__":
    main()
