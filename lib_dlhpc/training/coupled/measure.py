"""Cost of a grid point, a sample and a message on this machine: measured just before the run, in about a second.

All ranks measure at the same time, so contention between the ranks of one machine (memory bandwidth, clock rate,
fewer cores than ranks) is included. Each kernel is timed at two sizes; a straight line through both gives its
fixed cost and its cost per point or sample.
"""

from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter
from typing import Any

import numpy as np

from lib_dlhpc.spec.workflow import Costs, Workflow, most
from lib_dlhpc.training.coupled.buffer import wait_until
from lib_dlhpc.training.coupled.calls import Calls
from lib_dlhpc.training.coupled.heat import Heat, first_field
from lib_dlhpc.training.coupled.learner import learner

SECONDS = 0.25  # for each size of each kernel
PIECES = 12  # slices of this time: their median and spread are reported
TRIPS = 60


def measure(workflow: Workflow, comm: Any) -> Costs:
    """Return the costs on the ranks of `comm`, the same on all of them."""
    grid, batch, parts = workflow.simulation.grid, workflow.batch, max(comm.size, 2)
    rows, samples = sorted({most(grid, parts), grid}), sorted({most(batch, parts), batch})
    with ExitStack() as stack:
        kernels = [_small_step(workflow, many) for many in rows]
        kernels += [_training_step(workflow, many, stack) for many in samples]
        barrier(comm)
        kernels_seconds = timed_kernels(kernels)
    barrier(comm)
    seconds, varied = (
        [median for median, _ in kernels_seconds],
        [jitter for _, jitter in kernels_seconds],
    )
    small_step, point = line_through([many * grid for many in rows], seconds[: len(rows)])
    update, sample = line_through(samples, seconds[len(rows) :])
    costs = np.array([small_step, point, update, sample, np.mean(varied)])
    small_step, point, update, sample, jitter = (sum(comm.allgather(costs)) / comm.size).tolist()
    latency, byte = _messages(workflow, comm)
    return Costs(
        point=point,
        small_step=small_step,
        sample=sample,
        update=update,
        latency=latency,
        byte=byte,
        jitter=jitter,
    )


def barrier(comm: Any) -> None:
    """Wait for all ranks, without keeping a core busy."""
    wait_until(comm.Ibarrier().Test)


def _small_step(workflow: Workflow, rows: int) -> Callable[[], int]:
    """Return a function that takes small steps on `rows` rows and returns how many."""
    heat = Heat(workflow.simulation, rows=rows)
    heat.begin(first_field(workflow.simulation, 0))

    def steps() -> int:
        heat.step()
        return int(workflow.simulation.substeps)

    return steps


def _training_step(workflow: Workflow, samples: int, stack: ExitStack) -> Callable[[], int]:
    """Return a function that takes one training step of one rank on `samples` samples."""
    from mpi4py import MPI

    calls = Calls(0, 1)
    calls.on = False
    trainer = stack.enter_context(learner(workflow, MPI.COMM_SELF, calls, samples))
    x = np.repeat(first_field(workflow.simulation, 0)[None, None], samples, axis=0)

    def step() -> int:
        trainer.learn(0, 1, x, x)
        return 1

    return step


def timed_kernels(kernels: list[Callable[[], int]]) -> list[tuple[float, float]]:
    """Return for each kernel the s of one unit and the relative variation of the pieces (sigma over mean).

    The kernels alternate, so that other load on the machine affects all of them alike.
    """
    for kernel in kernels:
        kernel()
    pieces = [[_slice(kernel) for kernel in kernels] for _ in range(PIECES)]
    low, middle, high = np.percentile(pieces, [16, 50, 84], axis=0)
    return list(zip(middle.tolist(), ((high - low) / 2 / middle).tolist(), strict=True))


def _slice(kernel: Callable[[], int]) -> float:
    """Return the s of a unit of `kernel`, which returns how many units it did, measured briefly."""
    done, begun = 0, perf_counter()
    while perf_counter() - begun < SECONDS / PIECES:
        done += kernel()
    return (perf_counter() - begun) / done


def line_through(sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    """Return (s, s for each) of the line through two sizes, neither below 0."""
    if len(sizes) == 1:
        return 0.0, seconds[0] / sizes[0]
    slope = (seconds[1] - seconds[0]) / (sizes[1] - sizes[0])
    if slope <= 0:  # noise: the size hardly matters
        slope = seconds[1] / sizes[1] * 1e-3
    slope = min(slope, seconds[1] / sizes[1])
    return max(seconds[1] - slope * sizes[1], 0.0), slope


def _messages(workflow: Workflow, comm: Any) -> tuple[float, float]:
    """Return (s of a message, s of each of its bytes) between ranks 0 and 1; 0 with one rank."""
    if comm.size == 1:
        return 0.0, 0.0
    small = 8 * workflow.simulation.grid
    large = 2 * workflow.batch * workflow.simulation.field_bytes // comm.size
    line = np.zeros(2)
    if comm.rank < 2:
        sizes = [small, max(large, 2 * small)]
        line[:] = line_through(sizes, [_trip(comm, size) for size in sizes])
    barrier(comm)
    comm.Bcast(line)
    return float(line[0]), float(line[1])


def _trip(comm: Any, size: int) -> float:
    """Return the s in which two ranks exchange messages of `size` bytes."""
    other, there, back = 1 - comm.rank, np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    trips = []
    for _ in range(TRIPS):
        begun = perf_counter()
        comm.Sendrecv(there, other, recvbuf=back, source=other)
        trips.append(perf_counter() - begun)
    return float(np.median(trips))
