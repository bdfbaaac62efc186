"""Allreduces for real, on MPI ranks of this machine: measured beside their prediction, without blocking the page.

A rank of the run is `mpiexec -n 4 python -m lib_dlhpc.explore.allreduce.measured`; rank 0 prints the result as JSON.
The prediction has its alpha, beta and gamma from one exchange between neighbors on the same ranks, so that
only the algorithm is predicted, not the machine.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch.mpi import run_to_end
from lib_dlhpc.schedules import Schedule, prepared, price, schedule

ALGORITHMS = ("ring", "rabenseifner")
LIBRARY = "MPI_Allreduce"  # of the MPI library, as a third to compare with
SIZES = (4_000, 64_000, 1_000_000, 4_000_000)  # B
FEWEST, SPELL = 25, 0.12  # least samples of a point; about the s spent on it
LONGEST = 4.0  # s for a point on a busy machine, where a few samples have to do
PATIENCE = 180  # s until a run is given up
RANKS = 4

Run = Callable[..., subprocess.CompletedProcess[str]]  # as launch.mpi.run_to_end


class MpiMissing(RuntimeError):
    """No MPI ranks can be started here; the text says why."""


def measure(run: Run = run_to_end, module: str = __spec__.name) -> dict[str, Any]:
    """Run `module` on MPI ranks of this machine and return {"ranks", "alpha", "beta", "gamma", "rows"}.

    run: what starts the ranks, see blocks/ranks.py for one that can be cancelled. rows: algorithm,
    size (B), low, median, high (p10, p50, p90 in s), price (s, or None). Raises MpiMissing.
    """
    try:
        done = run(RANKS, "-m", module, patience=PATIENCE)
    except subprocess.TimeoutExpired:
        raise MpiMissing(
            f"The ranks did not finish in {PATIENCE:g} s; the machine is busy."
        ) from None
    except SpecError as error:
        raise MpiMissing(str(error)) from None
    said = done.stdout + done.stderr
    lines = [line for line in said.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        last = (said.strip() or "no output").splitlines()[-1]
        raise MpiMissing(f"The ranks ended with an error: {last}")
    result: dict[str, Any] = json.loads(lines[-1])
    if result["ranks"] != RANKS:
        raise MpiMissing(f"mpiexec started {result['ranks']} rank(s) instead of {RANKS}.")
    return result


def be_a_rank(rows: Callable[..., Iterable[dict[str, Any]]]) -> None:
    """Measure a neighbor exchange, then rows(comm, alpha, beta, gamma); rank 0 prints JSON."""
    from mpi4py.MPI import COMM_WORLD as comm

    machine = _machine_of(comm)
    measured = list(rows(comm, *machine))
    if comm.rank == 0:
        named = dict(zip(("alpha", "beta", "gamma"), machine, strict=True))
        print(json.dumps({"ranks": comm.size, **named, "rows": measured}))


def timed(
    run: Callable[[], None], comm: Any, buffer: Any, fewest: int = FEWEST, spell: float = SPELL
) -> dict[str, float]:
    """Return low, median, high (s) of groups of back-to-back calls; the slowest rank counts."""
    from mpi4py import MPI

    def seconds(calls: int) -> float:
        comm.Barrier()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        return comm.allreduce((time.perf_counter() - start) / calls, MPI.MAX)

    for _ in range(3):  # connections and caches
        run()
    once = seconds(1)
    calls = min(50, max(1, int(0.003 / once)))  # 4^50 still is a float32
    samples = min(10 * fewest, max(fewest, int(spell / (once * calls))), 1 + int(LONGEST / once))
    took = []
    for _ in range(samples):
        buffer.fill(1)
        took.append(seconds(calls))
    low, median, high = np.quantile(took, [0.1, 0.5, 0.9]).tolist()
    return {"low": low, "median": median, "high": high}


def _sizes(comm: Any, *machine: float) -> Iterable[dict[str, Any]]:
    """Measure every size and algorithm."""
    from mpi4py.MPI import IN_PLACE

    for size in SIZES:
        buffer, row = np.ones(size // 4, np.float32), {"size": size}
        for name in ALGORITHMS:
            plan = schedule(name, comm.size, buffer.size)
            predicted = price(plan, *machine).total
            yield {"algorithm": name, **row, **_times(plan, comm, buffer), "price": predicted}
        library = timed(partial(comm.Allreduce, IN_PLACE, buffer), comm, buffer)
        yield {"algorithm": LIBRARY, **row, **library, "price": None}


def _machine_of(comm: Any) -> tuple[float, float, float]:
    """Return alpha in s, beta and gamma in s/B: everyone sends to the next rank, undisturbed (p10)."""
    elements = SIZES[-1] // 16  # a block of the largest message

    def quiet(kind: str, count: int) -> float:
        rows = [(r, (r + 1) % comm.size, 0, count, kind) for r in range(comm.size)]
        plan = schedule(lambda ranks, elements: [rows], comm.size, count)
        return _times(plan, comm, np.ones(count, np.float32))["low"]

    alpha, copied, reduced = quiet("copy", 1), quiet("copy", elements), quiet("reduce", elements)
    size = 4 * elements
    return alpha, max(copied - alpha, 0.0) / size, max(reduced - copied, 0.0) / size


def _times(plan: Schedule, comm: Any, buffer: Any) -> dict[str, float]:
    with prepared(plan, comm, buffer) as run:
        return timed(run, comm, buffer)


if __name__ == "__main__":
    be_a_rank(_sizes)
