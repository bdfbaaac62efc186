"""Speed of predictions against mlsysim, the nearest peer on the package index, in one run.

    python benchmarks/speed.py            ratios against numpy; against mlsysim too if it is installed
    python benchmarks/speed.py --peer PYTHON    mlsysim in another environment (it may not fit this one)

Prints rates and ratios; machines are noisy, so only the ratios mean anything.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from math import prod
from statistics import median
from typing import Any

import numpy as np
from _quick import add_quick

from lib_dlhpc.prediction import breakdown, compute_scale, predict, sweep
from lib_dlhpc.prediction.validation.replays import replay

# What one who predicts imports; lib_dlhpc by itself is an empty package.
OURS = "lib_dlhpc.prediction"
PEER_SOLVES = """
import timeit, mlsysim
from mlsysim.solvers import DistributedModel
fleet, model = mlsysim.Systems.Clusters.Research_256, mlsysim.Models.Vision.ResNet50
solver = DistributedModel()
solve = lambda: solver.solve(model, fleet, batch_size=8192, precision="fp32", overlap_comm=True)
solve()
print(min(timeit.repeat(solve, number=20, repeat=5)) / 20)
"""


def seconds(action: Callable[[], Any], repeat: int = 5) -> float:
    """Return the least wall time of `repeat` runs in s."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def import_ratio(slow: tuple[str, str], quick: tuple[str, str], repeat: int) -> float:
    """Return the median ratio of the CPU seconds of two imports, each (python, module), in turn in new interpreters."""
    timed = "import time; t = time.process_time(); import {}; print(time.process_time() - t)"
    commands = [[python, "-c", timed.format(module)] for python, module in (slow, quick)]
    pairs = [
        [float(subprocess.check_output(command, text=True)) for command in commands]
        for _ in range(repeat)
    ]
    return median(a / b for a, b in pairs)


def random_configurations(count: int, overlap: bool) -> None:
    """Predict `count` unrelated configurations and find the best one that fits, in chunks."""
    experiment = replay("goyal-2017").experiment.set(
        {"machine.nodes": 10_000, "strategy.overlap": overlap, "strategy.allreduce": "ring"}
    )
    scale, rng, best = compute_scale(experiment), np.random.default_rng(0), 0.0
    for _ in range(count // 16384):
        chunk = experiment.set(
            {
                "strategy.nodes": rng.integers(1, 5000, 16384),
                "strategy.batch": rng.integers(1, 129, 16384),
                "machine.inter_node.bandwidth": rng.uniform(1e9, 5e10, 16384),
            }
        )
        prediction = breakdown(chunk, scale)
        best = max(best, float(np.where(prediction.fits, prediction.throughput, 0).max()))
    assert best > 0


def main() -> None:
    """Print every ratio that the project promises."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default=sys.executable, help="a Python that has mlsysim")
    add_quick(parser)
    given = parser.parse_args()
    repeat, count = (1, 1 << 14) if given.quick else (7, 1 << 19)

    ours = (sys.executable, OURS)
    ratio = import_ratio(ours, (sys.executable, "numpy"), repeat)
    print(f"import {OURS} / import numpy {ratio:11.2f} x   (wanted: at most 1.5)")

    experiment = replay("goyal-2017").experiment
    many = 5 if given.quick else 100
    one = seconds(lambda: [predict(experiment) for _ in range(many)]) / many
    print(f"one prediction                          {one * 1e3:8.3f} ms  (at most 1)")

    rates = {}
    for overlap in (False, True):
        rates[overlap] = count / seconds(
            lambda o=overlap: random_configurations(count, o), repeat=3
        )
        least = "100 k" if overlap else "1 M"
        print(
            f"random configurations, overlap {overlap!s:<8} {rates[overlap] / 1e6:8.2f} M/s (at least {least})"
        )
    grid = {
        "strategy.nodes": range(1, 11 if given.quick else 1001),
        "strategy.batch": range(1, 101),
        "machine.inter_node.bandwidth": np.linspace(1e9, 5e10, 10),
    }
    wide = experiment.set({"machine.nodes": 1000})
    size = prod(map(len, grid.values()))
    rate = size / seconds(lambda: sweep(wide, grid).best(), repeat=3)
    print(f"{size:>9,} configurations on a grid       {rate / 1e6:8.2f} M/s")

    try:
        solve = float(
            subprocess.check_output(
                [given.peer, "-c", PEER_SOLVES], text=True, stderr=subprocess.DEVNULL
            )
        )
        ratio = import_ratio((given.peer, "mlsysim"), ours, min(repeat, 3))
    except (OSError, subprocess.CalledProcessError):
        print("mlsysim: not installed here; pip install mlsysim, or --peer PYTHON")
        return
    print(f"mlsysim, one solve                      {solve * 1e3:8.3f} ms")
    print(
        f"sweep / mlsysim, configurations a second{rates[True] * solve:8.0f} x   (at least 2,000)"
    )
    print(f"import mlsysim / import {OURS}   {ratio:8.0f} x   (at least 20)")


if __name__ == "__main__":
    main()
