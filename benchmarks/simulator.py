"""Messages a second of the rounds simulator against SimPy programs of the same ring, in one run.

    python benchmarks/simulator.py                 256 ranks, then the large cases
    python benchmarks/simulator.py --ranks 64      another size for the SimPy programs

Two SimPy programs play the same ring allreduce message by message: the textbook one has a process a
rank and starts a child process for each send; the lean one sends with a timeout. Ranks start with
jitter, and all must finish at the very same times. Prints rates and ratios; machines are noisy, so only
the ratios mean anything. `cold` makes the rounds from the algorithm on the way, `kept` has them
(as a step does, which makes them once for all its buckets): making them is most of the work.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable, Generator
from statistics import median
from typing import Any

import numpy as np
import simpy

from lib_dlhpc.costs.network import Level, Network, flat
from lib_dlhpc.predict.replays import replay
from lib_dlhpc.schedules import messages, schedule
from lib_dlhpc.simulate import simulate
from lib_dlhpc.simulate.rounds import finish_times, program

ALPHA, BETA = 1e-6, 8e-11
ELEMENTS_OF_A_BLOCK, ELEMENT = 1000, 4.0


def textbook(ranks: int, seconds: float, arrival: list[float]) -> list[float]:
    """Play the ring with a process a rank, a child process a send, a Store a link."""
    env = simpy.Environment()
    links, finish = [simpy.Store(env) for _ in range(ranks)], [0.0] * ranks

    def send(link: simpy.Store) -> Generator[Any, Any, None]:
        yield env.timeout(seconds)
        yield link.put(None)

    def run(rank: int) -> Generator[Any, Any, None]:
        yield env.timeout(arrival[rank])
        for _ in range(2 * (ranks - 1)):
            sent = env.process(send(links[(rank + 1) % ranks]))
            yield links[rank].get()
            yield sent
        finish[rank] = env.now

    for rank in range(ranks):
        env.process(run(rank))
    env.run()
    return finish


def lean(ranks: int, seconds: float, arrival: list[float]) -> list[float]:
    """Play the ring with a process a rank that waits, puts and gets."""
    env = simpy.Environment()
    links, finish = [simpy.Store(env) for _ in range(ranks)], [0.0] * ranks

    def run(rank: int) -> Generator[Any, Any, None]:
        yield env.timeout(arrival[rank])
        for _ in range(2 * (ranks - 1)):
            yield env.timeout(seconds)
            yield links[(rank + 1) % ranks].put(None)
            yield links[rank].get()
        finish[rank] = env.now

    for rank in range(ranks):
        env.process(run(rank))
    env.run()
    return finish


def timed(action: Callable[[], Any], repeat: int) -> tuple[Any, float]:
    """Return the result and the median CPU seconds of `repeat` runs."""
    spent = []
    for _ in range(repeat):
        start = time.process_time()
        result = action()
        spent.append(time.process_time() - start)
    return result, median(spent)


def shuffled(ranks: int, count: int) -> list[Any]:
    """Return `count` rounds of random permutations: no neighbours, no views."""
    rng = np.random.default_rng(1)
    rank = np.arange(ranks)
    return [
        messages(rank, rng.permutation(ranks), 0, ELEMENTS_OF_A_BLOCK, True) for _ in range(count)
    ]


def against_simpy(ranks: int) -> None:
    """Print the ratios to both SimPy programs, after checking that all give the same times."""
    arrival = np.random.default_rng(0).exponential(1e-5, ranks)
    total = 2 * (ranks - 1) * ranks
    network = flat(ranks, ALPHA, BETA)
    ring = schedule("ring", ranks, ELEMENTS_OF_A_BLOCK * ranks)
    kept = program(ring)
    seconds = ALPHA + ELEMENTS_OF_A_BLOCK * ELEMENT * BETA
    rates, times = {}, {}
    for name, action, repeat in (
        ("SimPy, textbook", lambda: textbook(ranks, seconds, arrival.tolist()), 3),
        ("SimPy, lean", lambda: lean(ranks, seconds, arrival.tolist()), 3),
        ("rounds, cold", lambda: finish_times(ring, network, ELEMENT, arrival), 21),
        ("rounds, kept", lambda: finish_times(kept, network, ELEMENT, arrival), 51),
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
    for name in ("SimPy, textbook", "rounds, cold", "rounds, kept"):
        same = np.array_equal(times[name], times["SimPy, lean"])
        print(f"{name:<24} finishing times bit-identical to the lean program: {same}")
        if not same:
            sys.exit(1)
    print(f"\nring allreduce of {ranks} ranks, {total:,} messages; a CPU second")
    print(f"{'':<24} {'messages/s':>12} {'x textbook':>12} {'x lean':>8}")
    for name, rate in rates.items():
        textbooks, leans = rate / rates["SimPy, textbook"], rate / rates["SimPy, lean"]
        print(f"{name:<24} {rate:12,.0f} {textbooks:12,.1f} {leans:8,.1f}")
    print(
        "wanted of kept rounds: 1,000 x textbook, 300 x lean; permutations a third of the ring's rate"
    )


def large() -> None:
    """Print the seconds and the memory of what needs to stay small."""
    ranks = 16384
    network, ring = flat(ranks, ALPHA, BETA), schedule("ring", ranks, ranks * 100)
    _, spent = timed(lambda: finish_times(ring, network, ELEMENT), 1)
    print(f"\nring of {ranks:,} ranks, {2 * (ranks - 1) * ranks:,} messages {spent:8.2f} s")
    run = replay("goyal-2017").experiment.set({"machine.nodes": 256, "strategy.nodes": 256})
    for allreduce in ("ring", "hierarchical", "rabenseifner"):
        step = run.set({"strategy.allreduce": allreduce})
        _, spent = timed(lambda e=step: simulate(e), 3)
        print(f"a ResNet-50 step on 2,048 ranks, {allreduce:<14} {spent:8.2f} s   (under 2)")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    print(f"memory of this process at its peak {peak / 2**30:17.2f} GiB (under 1)")


def main() -> None:
    """Print every ratio that the project promises of its simulator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=256)
    against_simpy(parser.parse_args().ranks)
    large()


if __name__ == "__main__":
    main()
