"""The input stall on storage tiers, predicted, simulated and measured: python benchmarks/input_tiers.py.

Each line is a run on two ranks that reads its samples from files, throttled to a tier: three bandwidths, metadata
servers and latency of a shared file system, and a cache that holds half after the first epoch. What a step takes beside
its wait calibrates its prediction, so that only the input can be off. Exits 1 where prediction or simulation
is off by more than 20% of the measured stall, and by 5% of the step.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _quick import add_quick

from lib_dlhpc import loads
from lib_dlhpc.launch.local import start
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.step_terms import measure
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.store import load

AIM, SMALL = 0.20, 0.05  # of the measured stall, of the step
RANKS, BATCH, SAMPLES = 2, 10, 400  # SAMPLES: to train with
RUN = f"""
[model]
name = "mlp-digits"
[dataset]
name = "digits"
samples = {SAMPLES + SAMPLES // 4}
files = {SAMPLES + SAMPLES // 4}
[machine]
name = "laptop"
jitter = 0.0
[machine.storage.tier]
scope = "node"
bandwidth = "1 TB/s"
[strategy]
devices_per_node = {RANKS}
batch = {BATCH}
[training]
rate = 0.01
"""
# Name, B of a sample, fields of the tier, fields of [storage] and [run].
Line = tuple[str, float, dict[str, Any], dict[str, Any]]
TIERS: list[Line] = [
    ("memory, 2 GB/s", 2e6, {"bandwidth": 2e9}, {}),
    ("NVMe, 500 MB/s", 1e6, {"bandwidth": 500e6}, {}),
    ("disk, 100 MB/s", 500e3, {"bandwidth": 100e6}, {"storage.format": "packed"}),
    (
        "shared, 500 op/s",
        10e3,
        {"scope": "shared", "bandwidth": 1e9, "metadata_rate": 500.0, "operation_latency": 1e-3},
        {},
    ),
    (
        "shared, 2 readers of 20 ms",
        10e3,
        {"scope": "shared", "bandwidth": 1e9, "operation_latency": 5e-3, "read_latency": 5e-3},
        {"storage.workers": 2, "storage.prefetch": 2},
    ),
    (
        "disk, half of it cached",
        500e3,
        {"bandwidth": 50e6},
        {"storage.cache": 125e6, "run.epochs": 4.0},
    ),
]


def experiment_of(tier: Line) -> Experiment:
    """Return the run on a tier."""
    _, size, fields, others = tier
    changes = {f"machine.storage.tier.{name}": value for name, value in fields.items()}
    changes |= {"storage.tier": "tier", "dataset.bytes": size * (SAMPLES + SAMPLES // 4)}
    return loads(RUN).set({**changes, **others})


def run(experiment: Experiment) -> Timeline:
    """Return the timeline of a run here."""
    with tempfile.TemporaryDirectory(prefix="dlhpc-tiers-") as place:
        folder = Path(place) / "run"
        start(experiment, RANKS, folder).wait()
        return load(folder / "timeline.npz")


def stall_and_rest(timeline: Timeline, cached: bool) -> tuple[float, float]:
    """Return s of a step until all ranks have their batch, and from there until all have updated.

    Medians, as other processes delay some steps; of a cached run the mean stall, as its epochs differ.
    """
    came, ended = (
        np.max([_ends(timeline, rank, name) for rank in range(RANKS)], axis=0)
        for name in ("wait for input", "update")
    )
    stalls = np.maximum(came[1:] - ended[:-1], 0.0)
    return float(stalls.mean() if cached else np.median(stalls)), float(np.median(ended - came))


def _ends(timeline: Timeline, rank: int, name: str) -> list[float]:
    return sorted(row.stop for row in timeline if row.rank == rank and row.name == name)


def main() -> int:
    """Print the table; 1 if a stall is off by more than AIM."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_quick(parser)
    options = parser.parse_args()
    print(f"{RANKS} ranks, {BATCH} samples each")
    print(
        f"{'stall of a step in ms':<28}{'predicted':>11}{'simulated':>11}{'measured':>11}{'off':>18}"
    )
    missed = 0
    for tier in TIERS[3:4] if options.quick else TIERS:
        timeline = run(experiment_of(tier))
        measured, rest = stall_and_rest(timeline, "storage.cache" in tier[3])
        own = {"calibration.rate": RANKS * BATCH / rest, "calibration.devices": RANKS}
        experiment = experiment_of(tier).set(own)
        predicted = float(predict(experiment).input_stall)
        many = max(int(experiment.run.epochs) * SAMPLES // (RANKS * BATCH), 40)
        simulated = measure(experiment, simulate(experiment, steps=many)).terms["input stall"]
        off = [value / measured - 1 for value in (predicted, simulated)]
        worst = max(abs(value - measured) for value in (predicted, simulated))
        miss = worst > max(AIM * measured, SMALL * (measured + rest))
        missed += miss
        times = "".join(f"{1e3 * value:>11.1f}" for value in (predicted, simulated, measured))
        print(f"{tier[0]:<28}{times}{off[0]:>+9.0%}{off[1]:>+9.0%}{'  MISSED' * miss}")
    return 0 if options.quick else int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
