"""The exchange of one step for real: its buckets, one after another, on MPI ranks of this machine.

A rank of the run is `mpiexec -n 4 python -m lib_dlhpc.explore.data_parallel.here`; rank 0 prints JSON.
The gradients are those of MODEL, cut into buckets as in a training step; nothing is computed meanwhile.
"""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.explore.allreduce import measured as here
from lib_dlhpc.explore.allreduce.measured import PATIENCE, RANKS, machine_of
from lib_dlhpc.launch.mpi import run_to_end
from lib_dlhpc.schedules import prepared, price, schedule
from lib_dlhpc.spec.experiment import read_model

MODEL = "resnet1001"  # small gradients in very many layers: 41 MB
BUCKETS = (100e3, 300e3, 1e6, 5e6, 100e6)  # B; the last holds all
FEWEST, SPELL = 9, 0.6  # samples at least; about so many seconds for each size
LONGEST = 4.0  # s for a size on a busy machine, where a few samples have to do


def measure(
    ranks: int = RANKS, patience: float = PATIENCE, run: here.Run = run_to_end
) -> dict[str, Any]:
    """Run on `ranks` MPI ranks of this machine and return {"ranks", "alpha", "beta", "gamma", "rows"}.

    rows: size (B) of a bucket at most, buckets, low, median, high (p10, p50, p90 in s) of all of them, price (s).
    Raises MpiMissing if MPI is not there or does not come through.
    """
    return here.measure(ranks, patience, __spec__.name, run)


def sizes_of_a_step(bucket: float) -> list[int]:
    """Return the bytes of each bucket of a step of MODEL, in the order in which backward fills them."""
    return [int(size) for size in buckets(read_model(MODEL), bucket, 4).sizes if size]


def main() -> None:
    """One rank: measure a neighbor exchange, then the buckets of a step for each size; rank 0 prints."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    alpha, beta, gamma = machine_of(comm, MPI)
    gradients = np.ones(sum(sizes_of_a_step(BUCKETS[0])) // 4, np.float32)
    rows = []
    for bucket in BUCKETS:
        with ExitStack() as stack:
            runs, seconds, at = [], 0.0, 0
            for size in sizes_of_a_step(bucket):
                plan = schedule("ring", comm.size, size // 4)
                part = gradients[at : at + size // 4]
                runs.append(stack.enter_context(prepared(plan, comm, part)))
                seconds += price(plan, alpha, beta, gamma).total
                at += size // 4

            def step(runs: list[Any] = runs) -> None:
                for run in runs:
                    run()

            times = _times(step, comm, MPI, gradients)
            rows.append(
                {
                    "size": min(bucket, gradients.nbytes),
                    "buckets": len(runs),
                    **times,
                    "price": seconds,
                }
            )
    if comm.rank == 0:
        machine = {"ranks": comm.size, "alpha": alpha, "beta": beta, "gamma": gamma}
        print(json.dumps({**machine, "rows": rows}))


def _times(step: Callable[[], None], comm: Any, mpi: Any, gradients: Any) -> dict[str, float]:
    """Time whole steps until the spell is over, after one that does not count; the slowest rank counts."""
    step()
    taken: list[float] = []
    while sum(taken) < (LONGEST if len(taken) < FEWEST else SPELL):
        gradients.fill(1)
        comm.Barrier()
        start = time.perf_counter()
        step()
        taken.append(comm.allreduce(time.perf_counter() - start, mpi.MAX))
    low, median, high = np.quantile(taken, [0.1, 0.5, 0.9]).tolist()
    return {"low": low, "median": median, "high": high}


if __name__ == "__main__":
    main()
