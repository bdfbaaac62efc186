"""The exchange of one step for real: its buckets, one after another, on MPI ranks of this machine.

A rank of the run is `mpiexec -n 4 python -m lib_dlhpc.explore.data_parallel.here`; rank 0 prints JSON.
The gradients are those of MODEL, cut into buckets as in a training step; nothing is computed meanwhile.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np

from lib_dlhpc.costs import buckets
from lib_dlhpc.explore.allreduce import measured
from lib_dlhpc.explore.allreduce.measured import Run, be_a_rank, timed
from lib_dlhpc.launch.mpi import run_to_end
from lib_dlhpc.schedules import prepared, price, schedule
from lib_dlhpc.spec.experiment import read_model

MODEL = "resnet1001"  # small gradients in very many layers: 41 MB
BUCKETS = (100e3, 300e3, 1e6, 5e6, 100e6)  # B; the last holds all


def measure(run: Run = run_to_end) -> dict[str, Any]:
    """Return what MPI ranks of this machine measure, as allreduce.measured does.

    rows: size (B) of a bucket at most, buckets, low, median, high (p10, p50, p90 in s) of all of them, price (s).
    """
    return measured.measure(run, __spec__.name)


def sizes_of_a_step(bucket: float) -> list[int]:
    """Return the bytes of each bucket of a step of MODEL, in the order in which backward fills them."""
    return [int(size) for size in buckets(read_model(MODEL), bucket, 4).sizes if size]


def _steps(comm: Any, *machine: float) -> Iterable[dict[str, Any]]:
    """Measure the buckets of a step for each size."""
    gradients = np.ones(sum(sizes_of_a_step(BUCKETS[0])) // 4, np.float32)
    for bucket in BUCKETS:
        counts = [size // 4 for size in sizes_of_a_step(bucket)]
        plans = [schedule("ring", comm.size, count) for count in counts]
        parts = np.split(gradients, np.cumsum(counts)[:-1])
        with ExitStack() as stack:
            runs = [
                stack.enter_context(prepared(plan, comm, part))
                for plan, part in zip(plans, parts, strict=True)
            ]

            def step(runs: list[Any] = runs) -> None:
                for run in runs:
                    run()

            times = timed(step, comm, gradients, fewest=9, spell=0.6)
        row = {"size": min(bucket, gradients.nbytes), "buckets": len(plans)}
        yield {**row, **times, "price": sum(price(plan, *machine).total for plan in plans)}


if __name__ == "__main__":
    be_a_rank(_steps)
