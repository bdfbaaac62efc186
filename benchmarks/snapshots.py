"""Snapshots against numpy.savez with fsync: blocking time of training, and bytes written.

    python benchmarks/snapshots.py [FOLDER] [--quick]   FOLDER: on the disk to measure (default: a temporary one)

Training with one snapshot at the end of each epoch and without any take turns in one process, so whatever
else the machine does meets them alike; the slowdown is the median over pairs. Beside it stands the CPU time
of all threads of rank 0: on a machine with a free core less of it is felt, on a full one all of it.
numpy.savez and fsync, which training waits for, is what a run without --snapshot-every does.
"""

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import Any

os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
)

import numpy as np
from _quick import add_quick

from lib_dlhpc.launch.mpi import command, environment
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.storage.snapshots import SnapshotStore
from lib_dlhpc.storage.snapshots.plan import Plan, write_plan
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.trainer import train

PAIRS, BATCH, MOST = 5, 8, 0.05
EPOCHS = {512: 20, 1024: 5}  # of a width: a few seconds, for a run waits for its last version
QUICK = {32: 1}
SIZE, PART = 64 * 1024 * 1024, 0.01
WAYS = ("none", "versions", "numpy.savez")


def experiment(ranks: int, width: int, epochs: int) -> Experiment:
    """An MLP on digits: the wider, the more bytes of state for a second of training."""
    return read_experiment(
        {
            "model": {"family": "mlp", "widths": [64, width, width, 10]},
            "dataset": {"name": "digits"},
            "machine": {"name": "laptop"},
            "strategy": {
                "devices_per_node": ranks,
                "batch": BATCH // ranks,
                "optimizer": "momentum",
            },
            "run": {"epochs": epochs},
        }
    )


def seconds(way: str, run: Experiment, comm: Any, where: Path) -> tuple[float, float]:
    """Return what training takes, all that it waits for included, on the slowest rank; and CPU seconds of this one."""
    folder = where / "run"
    if comm.rank == 0:
        rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if way == "versions":
            write_plan(folder, Plan())
    comm.Barrier()
    begin = time.process_time()
    found = train(run, comm, None if way == "none" else folder)
    spent = time.process_time() - begin
    return max(comm.gather(found.seconds) or [0.0]), spent


def trained(comm: Any, where: Path, quick: bool) -> None:
    """Print the slowdown by each way of saving."""
    for width, epochs in (QUICK if quick else EPOCHS).items():
        run = experiment(comm.size, width, epochs)
        took: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for number in range(-1, 1 if quick else PAIRS):
            for way in WAYS:
                spent = seconds(way, run, comm, where)
                if number >= 0:  # the first round is for warming up
                    took[way].append(spent)
        if comm.rank:
            continue
        weights = sum(a * b + b for a, b in ((64, width), (width, width), (width, 10)))
        slowdown = {
            way: [
                median(a / b for a, b in zip(*pair, strict=True)) - 1
                for pair in zip(
                    zip(*took[way], strict=True), zip(*took["none"], strict=True), strict=True
                )
            ]
            for way in WAYS[1:]
        }
        verdict = "ok" if slowdown["versions"][0] <= MOST else "MISSED"
        epoch = median(spent for spent, _ in took["none"]) / epochs
        print(
            f"{comm.size} rank{'s' * (comm.size > 1)}, {8 * weights / 1e6:.1f} MB of state, epochs of"
            f" {epoch * 1e3:.0f} ms; slower (more CPU): "
            + ", ".join(f"{way} {slow:+.1%} ({cpu:+.1%})" for way, (slow, cpu) in slowdown.items())
            + f"   wanted at most {MOST:.0%}: {verdict}",
            flush=True,
        )


def written(where: Path, size: int) -> None:
    """Print what a change of one percent writes, and how long one waits for it."""
    state = np.random.default_rng(0).random(size // 4, np.float32)
    waits: dict[str, list[float]] = {"numpy.savez": [], "save": [], "save_async": []}
    bytes_of: dict[str, float] = {}
    store = SnapshotStore(where / "store")
    store.save_async({"weights": state}, step=0).wait()
    for step in range(1, PAIRS + 1):
        start = (step * 7919 * 1024) % (state.size - state.size // 100)
        state[start : start + int(PART * state.size)] += 1
        begin = time.perf_counter()
        with open(where / "peer.npz", "wb") as file:
            np.savez(file, weights=state)
            file.flush()
            os.fsync(file.fileno())
        waits["numpy.savez"].append(time.perf_counter() - begin)
        bytes_of["numpy.savez"] = (where / "peer.npz").stat().st_size
        before, begin = _on_disk(store.folder), time.perf_counter()
        if step % 2:
            store.save({"weights": state}, step=step)
            waits["save"].append(time.perf_counter() - begin)
        else:
            saving = store.save_async({"weights": state}, step=step)
            waits["save_async"].append(time.perf_counter() - begin)
            saving.wait()
        bytes_of["versions"] = max(bytes_of.get("versions", 0), _on_disk(store.folder) - before)
    share = bytes_of["versions"] / size
    print(
        f"{PART:.0%} of {size / 1e6:.0f} MB changed: a version writes {share:.2%}, numpy.savez"
        f" {bytes_of['numpy.savez'] / size:.0%}   wanted at most 5%: {'ok' if share <= 0.05 else 'MISSED'}"
    )
    blocked = ", ".join(f"{name} {median(took) * 1e3:.0f} ms" for name, took in waits.items())
    print(f"  the caller waits: {blocked}")


def _on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="on the disk to measure")
    parser.add_argument("--rank-of-many", action="store_true", help=argparse.SUPPRESS)
    add_quick(parser)
    given = parser.parse_args()
    if given.rank_of_many:
        from mpi4py import MPI

        return trained(MPI.COMM_WORLD, given.folder, given.quick)
    with tempfile.TemporaryDirectory(dir=given.folder) as where:
        trained(SingleRank(), Path(where), given.quick)
        words = [__file__, "--rank-of-many", where, *(["--quick"] if given.quick else [])]
        subprocess.run(command(2, *words), env=environment(), check=True)
        written(Path(where), SIZE // 64 if given.quick else SIZE)


if __name__ == "__main__":
    main()
