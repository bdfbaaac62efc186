"""Out of core against in core: peak memory, time, and the same bits: python benchmarks/out_of_core.py [FOLDER].

A network of more than twice the cap is trained twice on one rank by `dlhpc run`'s launcher, in memory (the
peer: our own run) and on the disk of FOLDER. The bandwidth of that disk is measured with files that are
flushed; what the step asks for is what it moves over the seconds that it computes.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _quick import add_quick

from lib_dlhpc.launch import start
from lib_dlhpc.prediction.limits.rank_limits import rank_bytes
from lib_dlhpc.prediction.memory.rank_parts import offloading
from lib_dlhpc.spec.experiment import Experiment, read_experiment

CAP, WIDTH, BATCH, SIZE, MOST = 205e6, 1536, 1536, 256 * 1024 * 1024, 1.3


def experiment(offload: str, width: int) -> Experiment:
    """Ten layers of 1,536 features; weights, gradients and velocities take 12 B a weight."""
    return read_experiment(
        {
            "model": {"family": "mlp", "widths": [64, *[width] * 10, 10]},
            "dataset": {"name": "digits", "samples": 1707},
            "machine": {"name": "laptop"},
            "strategy": {
                "devices_per_node": 1,
                "batch": BATCH,
                "optimizer": "momentum",
                "offload": offload,
                "offload_to": "host" if offload == "none" else "ssd",
            },
            "training": {"rate": 0.0003},
            "run": {"epochs": 2},
        }
    )


def bandwidths(folder: Path, size: int) -> tuple[float, float]:
    """Return (write, read) in B/s of a file that is flushed, and dropped from memory before it is read."""
    block, path = np.ones(size // 8, np.uint8), folder / "bandwidth"
    begin = time.monotonic()
    with open(path, "wb") as file:
        for _ in range(8):
            file.write(block.data)
        os.fsync(file.fileno())
        written = time.monotonic()
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    again = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(block.data):
            pass
    read = time.monotonic()
    path.unlink()
    return size / (written - begin), size / (read - again)


def main() -> int:
    """Print the comparison; 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(tempfile.gettempdir()))
    add_quick(parser)
    given = parser.parse_args()
    folder, width, size = given.folder, WIDTH, SIZE
    if given.quick:
        width, size = 64, SIZE // 256
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        write, read = bandwidths(Path(place), size)
        found, weights = {}, {}
        for offload in ("none", "all"):
            run = Path(place) / offload
            found[offload] = start(experiment(offload, width), 1, run).wait()
            with np.load(run / "snapshot.npz") as file:
                weights[offload] = {name: file[name] for name in file.files}
    inside, outside = found["none"], found["all"]
    same = all(
        np.array_equal(weights["none"][name], weights["all"][name]) for name in weights["none"]
    )
    work = [
        sum(each["terms"][name] for name in ("forward", "backward", "update"))
        for each in (inside, outside)
    ]
    needs = offloading(experiment("all", width))
    peak, required = outside["memory"][0]["total"], needs.moved / work[0]
    there = 2 / (1 / write + 1 / read)
    ratio, under = work[1] / work[0], peak <= CAP
    inner = inside["memory"][0]["total"], rank_bytes(experiment("none", width))
    outer = peak, rank_bytes(experiment("all", width))
    for name, (measured, predicted), seconds in (
        ("in core", inner, work[0]),
        ("out of core", outer, work[1]),
    ):
        sizes = f"{measured / 1e6:.1f} MB, predicted {predicted / 1e6:.1f} MB"
        print(f"{name:<14} {sizes}; a step computes {seconds:.3f} s")
    print(f"{'cap':<14} {CAP / 1e6:.0f} MB: {'held' if under else 'BROKEN'}")
    moved = f"a step moves {needs.moved / 1e6:.0f} MB: {required / 1e6:.0f} MB/s needed"
    print(f"{'bandwidth':<14} {moved}; write {write / 1e6:.0f} MB/s, read {read / 1e6:.0f} MB/s")
    verdict = "suffices" if there >= required else "does not suffice"
    print(f"{'time':<14} {ratio:.2f} of the in-core step; the bandwidth {verdict} for {MOST}")
    print(f"{'weights':<14} {'equal to the bit' if same else 'DIFFERENT'}")
    kept = under and same and (ratio <= MOST or there < required)
    return int(not kept and not given.quick)


if __name__ == "__main__":
    sys.exit(main())
