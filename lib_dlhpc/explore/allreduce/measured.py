"""Allreduces for real, on MPI ranks of this machine: measured beside their prediction, without blocking the page.

A rank of the run is `mpiexec -n 4 python -m lib_dlhpc.explore.allreduce.measured`; rank 0 prints the result as JSON.
The prediction has its alpha, beta and gamma from one exchange between neighbors on the same ranks, so that
only the algorithm is predicted, not the machine.
"""

import json
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch.mpi import run_to_end
from lib_dlhpc.schedules import Schedule, prepared, price, schedule

ALGORITHMS = ("ring", "rabenseifner")
Run = Callable[..., subprocess.CompletedProcess[str]]  # as launch.mpi.run_to_end
LIBRARY = "MPI_Allreduce"  # of the MPI library, as a third to compare with
SIZES = (4_000, 64_000, 1_000_000, 4_000_000)  # B
SAMPLES, SPELL = 25, 0.12  # at least so many samples; about so many seconds for each point
PATIENCE = 180  # s until a run is given up
RANKS = 4


class MpiMissing(RuntimeError):
    """No MPI ranks can be started here; the text says why."""


def measure(
    ranks: int = RANKS,
    patience: float = PATIENCE,
    module: str = "lib_dlhpc.explore.allreduce.measured",
    run: Run = run_to_end,
) -> dict[str, Any]:
    """Run `module` on MPI ranks of this machine and return {"ranks", "alpha", "beta", "gamma", "rows"}.

    run: what starts the ranks, see blocks/ranks.py for one that can be cancelled.
    rows: algorithm, size (B), low, median, high (p10, p50, p90 in s), price (s, or None).
    Raises MpiMissing if MPI is not there or does not come through.
    """
    try:
        done = run(ranks, "-m", module, patience=patience)
    except subprocess.TimeoutExpired:
        raise MpiMissing(
            f"The ranks did not finish in {patience:g} s; the machine is busy."
        ) from None
    except SpecError as error:
        raise MpiMissing(str(error)) from None
    said = done.stdout + done.stderr
    lines = [line for line in said.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        last = (said.strip() or "no output").splitlines()[-1]
        raise MpiMissing(f"The ranks ended with an error: {last}")
    result: dict[str, Any] = json.loads(lines[-1])
    if result["ranks"] != ranks:
        raise MpiMissing(f"mpiexec started {result['ranks']} rank(s) in place of {ranks}.")
    return result


def main() -> None:
    """One rank: measure a neighbor exchange, then every algorithm and size; rank 0 prints JSON."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    alpha, beta, gamma = machine_of(comm, MPI)
    rows = []
    for size in SIZES:
        buffer = np.ones(size // 4, np.float32)
        for name in ALGORITHMS:
            plan = schedule(name, comm.size, buffer.size)
            predicted = {"price": price(plan, alpha, beta, gamma).total}
            rows.append(
                {"algorithm": name, "size": size, **_times(plan, comm, buffer, MPI), **predicted}
            )
        both = _sampled(partial(comm.Allreduce, MPI.IN_PLACE, buffer), comm, MPI, buffer)
        rows.append({"algorithm": LIBRARY, "size": size, **both, "price": None})
    if comm.rank == 0:
        print(
            json.dumps(
                {"ranks": comm.size, "alpha": alpha, "beta": beta, "gamma": gamma, "rows": rows}
            )
        )


def machine_of(comm: Any, mpi: Any) -> tuple[float, float, float]:
    """Alpha in s, beta and gamma in s/B: rounds in which everyone sends to the next rank, undisturbed (p10)."""
    elements = SIZES[-1] // 16  # a block of the largest message

    def quiet(kind: str, count: int) -> float:
        rows = [(r, (r + 1) % comm.size, 0, count, kind) for r in range(comm.size)]

        def neighbors(ranks: int, elements: int) -> list[Any]:
            return [rows]

        plan = schedule(neighbors, comm.size, count)
        return float(_times(plan, comm, np.ones(count, np.float32), mpi)["low"])

    alpha, copied, reduced = quiet("copy", 1), quiet("copy", elements), quiet("reduce", elements)
    size = 4 * elements
    return alpha, max(copied - alpha, 0.0) / size, max(reduced - copied, 0.0) / size


def _times(plan: Schedule, comm: Any, buffer: Any, mpi: Any) -> dict[str, float]:
    with prepared(plan, comm, buffer) as run:
        return _sampled(run, comm, mpi, buffer)


def _sampled(run: Callable[[], None], comm: Any, mpi: Any, buffer: Any) -> dict[str, float]:
    """Time groups of back-to-back calls until the spell is over; the slowest rank counts."""
    for _ in range(3):  # connections and caches
        run()
    comm.Barrier()
    start = time.perf_counter()
    run()
    once = comm.allreduce(time.perf_counter() - start, mpi.MAX)
    calls = min(50, max(1, int(0.003 / once)))  # 4^50 still is a float32
    samples = min(10 * SAMPLES, max(SAMPLES, int(SPELL / (once * calls))))
    took = np.empty(samples)
    for i in range(samples):
        buffer.fill(1)
        comm.Barrier()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        took[i] = (time.perf_counter() - start) / calls
    comm.Allreduce(mpi.IN_PLACE, took, mpi.MAX)
    low, median, high = np.quantile(took, [0.1, 0.5, 0.9]).tolist()
    return {"low": low, "median": median, "high": high}


if __name__ == "__main__":
    main()
