"""Whole steps of real training on all ranks: mpiexec -n 2 python -m lib_dlhpc.training.probe_steps FILE 1.

Rank 0 writes to FILE, as JSON, the times of steps of a few small runs, on all ranks and on one: compute,
waiting for messages, and waiting for the slowest rank. `dlhpc calibrate` starts it several times, in new processes,
to compare whole steps with the sum of their measured parts, and one moment with another. Ranks of a run that is
compared with its prediction do the same before and after it (worker.py).
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.training.probe import TINY, cpu_seconds, foreign_load

STEPS = 24  # of a run, at least
WARM_UP = 4  # of them are discarded
COLD = 0.4  # fraction of the seconds to warm up idle cores: their first steps take up to 1.3 times as long
WORK = ("forward", "backward", "update")
StepTimes = dict[str, Any]  # an experiment's table, and s of its steps by cause


def _mlp(*widths: int) -> dict[str, Any]:
    return {"model": {"family": "mlp", "widths": [784, *widths, 10]}, "dataset": "mnist-5k"}


def _words(layers: int, hidden: int, sequence: int) -> dict[str, Any]:
    sizes = {"layers": layers, "hidden": hidden, "heads": 4, "sequence": sequence}
    return {"model": {"family": "gpt", "vocabulary": 72, **sizes}, "dataset": "words"}


def _image(
    first: int, second: int, kernel: int = 3, activation: str = "tanh", pool: str = "avg_pool"
) -> dict[str, Any]:
    convolutions = [
        [
            {"kind": "conv", "channels": channels, "kernel": kernel, "padding": kernel // 2},
            {"kind": activation},
            {"kind": pool, "kernel": 2},
        ]
        for channels in (first, second)
    ]
    dense = [{"kind": "flatten"}, {"kind": "dense", "features": 10}]
    layers = [*convolutions[0], *convolutions[1], *dense]
    model = {"family": "sequential", "input": [1, 28, 28], "layers": layers}
    return {"model": model, "dataset": "mnist-5k"}


# Model and data of a run, samples of a rank in a step, strategy; "ranks" stands for their number. No lab uses them.
RUNS: tuple[tuple[dict[str, Any], int, dict[str, Any]], ...] = (
    (_mlp(448, 320), 40, {}),
    (_mlp(720, 520), 40, {}),  # beyond the caches of a core
    (_words(2, 56, 36), 6, {"optimizer": "adam"}),
    (_words(3, 88, 44), 9, {"optimizer": "adam"}),
    (_image(8, 16), 20, {}),
    (_image(8, 20, 5, "relu", "max_pool"), 24, {}),
    (_mlp(256, 224, 160), 36, {"zero": 2, "optimizer": "adam"}),
    (_words(2, 112, 40), 5, {"tensor": "ranks"}),
)


def experiments(ranks: int) -> list[dict[str, Any]]:
    """Return the runs on `ranks` ranks, as tables of experiments; one rank runs no sharded ones."""
    runs = []
    for what, batch, strategy in RUNS:
        split = [way for way in ("zero", "tensor") if way in strategy]
        heads = what["model"].get("heads", ranks)
        if split and (ranks == 1 or heads % ranks):
            continue
        chosen = {key: ranks if value == "ranks" else value for key, value in strategy.items()}
        steps = batch * (1 if "tensor" in strategy else ranks) * STEPS
        table = {
            "model": what["model"],
            "dataset": {"name": what["dataset"], "samples": int(1.25 * steps) + 2},
            "machine": {"name": "laptop", "devices_per_node": max(4, ranks)},
            "strategy": {"devices_per_node": ranks, "batch": batch, **chosen},
            "run": {"epochs": 1.0},
        }
        runs.append(table)
    return runs


def tiny(ranks: int) -> dict[str, Any]:
    """Return a run with next to no arithmetic, as a table: it measures per-call and interpreter overhead."""
    widths, batch = TINY["widths"], TINY["batch"]
    return {
        "model": {"family": "mlp", "widths": widths},
        "dataset": {"name": "digits"},
        "machine": {"name": "laptop", "devices_per_node": max(4, ranks)},
        "strategy": {"devices_per_node": ranks, "batch": batch},
        "run": {"epochs": 2.0},
    }


def main(path: Path, seconds: float) -> None:
    """Repeat all runs on the ranks of the world for the given seconds; rank 0 writes the times after the warm-up."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    steps_of(comm, COLD * seconds)
    before = cpu_seconds(comm)
    seconds_of_runs = steps_of(comm, (1 - COLD) * seconds)
    load = foreign_load(before, cpu_seconds(comm))
    if comm.rank == 0:
        result = {"ranks": comm.size, "others": [load], "runs": seconds_of_runs}
        path.write_text(json.dumps(result), encoding="utf-8")


def steps_of(comm: Any, seconds: float) -> list[StepTimes]:
    """Repeat all runs on the ranks of `comm`, and on rank 0 only, for the given seconds; return their times.

    All ranks call this; rank 0 gets the result. The runs of `tiny` are marked as such.
    """
    from mpi4py import MPI

    from lib_dlhpc.training.coupled.buffer import wait_until
    from lib_dlhpc.training.trainer import train

    runs = [(table, comm) for table in (*experiments(comm.size), tiny(comm.size))]
    if comm.size > 1:  # one rank: the same layers without contention
        runs += [(table, MPI.COMM_SELF) for table in (*experiments(1), tiny(1))]
    steps_of_runs: list[list[dict[str, list[float]]]] = [[] for _ in runs]
    begin, first = time.monotonic(), True
    while first or comm.bcast(time.monotonic() < begin + seconds):
        first = False
        for several, (table, ranks) in zip(steps_of_runs, runs, strict=True):
            if ranks is comm or comm.rank == 0:
                run = train(read_experiment(table), ranks)
                if run.timeline is not None:
                    several.append(by_step(run.timeline, run.core_wait))
            wait_until(comm.Ibarrier().Test)
    return [
        {
            "experiment": table,
            "tiny": table == tiny(ranks.size),
            **{key: [t for run in several for t in run[key]] for key in several[0]},
        }
        for (table, ranks), several in zip(runs, steps_of_runs, strict=True)
        if several
    ]


def by_step(
    timeline: Timeline, core_wait: Sequence[Sequence[float]] = ()
) -> dict[str, list[float]]:
    """Return s of each steady step, mean of the ranks: busy, waiting, and waiting for the slowest rank.

    core_wait: s that each rank waited for a core in each step; their sum over the ranks is returned as well.

    A step lasts from the end of an update to the end of the next; a rank is busy whenever it does not wait.
    """
    table = timeline.select(timeline.where("compute")).sorted()
    update = table.where("", "update")
    ends = [table.stop[update & (table.rank == rank)] for rank in range(table.ranks)]
    steps = min(map(len, ends))
    work, wait = np.zeros((2, table.ranks, steps))
    for rank, end in enumerate(ends):
        for kinds, sums in ((WORK, work), (("wait",), wait)):
            rows = table.where("", *kinds) & (table.rank == rank)
            step_of = np.searchsorted(end[:steps], table.start[rows], side="right")
            held = step_of < steps
            np.add.at(sums[rank], step_of[held], (table.stop - table.start)[rows][held])
    busy = np.diff(np.stack([end[:steps] for end in ends]), axis=1) - wait[:, 1:]
    behind = np.minimum(work.max(axis=0) - work, wait)
    columns = {"busy": busy, "behind": behind[:, 1:], "wait": wait[:, 1:]}
    times = {key: column.mean(axis=0)[WARM_UP:].tolist() for key, column in columns.items()}
    lost = (
        np.array([column[1:steps] for column in core_wait])
        if core_wait
        else np.zeros((1, steps - 1))
    )
    return times | {"core_wait": lost.sum(axis=0)[WARM_UP:].tolist()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
