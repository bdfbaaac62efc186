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
from statistics import median
from typing import Any

import numpy as np

from lib_dlhpc.predict import breakdown, compute_scale, predict, sweep
from lib_dlhpc.predict.replays import replay

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


def import_seconds(python: str, module: str, repeat: int = 7) -> float:
    """Return the median wall time in s of a fresh interpreter that imports `module`, the bare start taken off."""
    timed = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    command = [python, "-c", timed.format(module)]
    return median(float(subprocess.check_output(command, text=True)) for _ in range(repeat))


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
    peer = parser.parse_args().peer

    ours, numpys = (import_seconds(sys.executable, name) for name in ("lib_dlhpc", "numpy"))
    print(f"import lib_dlhpc / import numpy         {ours / numpys:8.2f} x   (at most 1.5)")

    experiment = replay("goyal-2017").experiment
    one = seconds(lambda: [predict(experiment) for _ in range(100)]) / 100
    print(f"one prediction                          {one * 1e3:8.3f} ms  (at most 1)")

    count = 1 << 19
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
        "strategy.nodes": range(1, 1001),
        "strategy.batch": range(1, 101),
        "machine.inter_node.bandwidth": np.linspace(1e9, 5e10, 10),
    }
    wide = experiment.set({"machine.nodes": 1000})
    rate = 1e6 / seconds(lambda: sweep(wide, grid).best(), repeat=3)
    print(f"a million configurations on a grid      {rate / 1e6:8.2f} M/s")

    try:
        solve = float(
            subprocess.check_output([peer, "-c", PEER_SOLVES], text=True, stderr=subprocess.DEVNULL)
        )
        theirs = import_seconds(peer, "mlsysim", repeat=3)
    except (OSError, subprocess.CalledProcessError):
        print("mlsysim: not installed here; pip install mlsysim, or --peer PYTHON")
        return
    print(f"mlsysim, one solve                      {solve * 1e3:8.3f} ms")
    print(
        f"sweep / mlsysim, configurations a second{rates[True] * solve:8.0f} x   (at least 2,000)"
    )
    print(f"import mlsysim / import lib_dlhpc       {theirs / ours:8.0f} x   (at least 20)")


if __name__ == "__main__":
    main()
