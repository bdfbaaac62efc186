"""One rank of a calibration: mpiexec -n 2 python -m lib_dlhpc.calibration.worker FILE 15.

Rank 0 writes to FILE, as JSON, the seconds of one call of each measurement, one value per round: numpy products,
calls, sums and copies on all ranks at once, ping-pong between the first two ranks, and collectives of all ranks, by
training's schedules and by the MPI library.

Each call uses another array, as in training: a forward and a backward pass lie between two allreduces of the same
gradients and evict them from a core's private cache, whereas repeated sums of one array run several times as fast.
A sender has just written its message, so reduce-scatter and all-gather are timed together: repeatedly sending the same
numbers takes half as long.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from lib_dlhpc.calibration import other_processes
from lib_dlhpc.schedules import prepared, schedule
from lib_dlhpc.schedules.ring_collectives import InFlight, Scratch, allgather, reduce_scatter

EDGES = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512)  # of square matrices
SUMS = tuple(4**k for k in range(5, 13))  # B of an array, 1 KiB to 16 MiB
MESSAGES = (8, *(2**k for k in range(6, 23)))  # B, to 4 MiB
REDUCED = tuple(4**k for k in range(3, 12))  # B, 64 B to 4 MiB
COLLECTIVES = ("ring", "recursive_doubling", "library", "halves")
APART = 1 << 24  # B of the rotating arrays: more than a core's private cache, less than all caches
MOST_TURNS = 64  # arrays; each has its own messages
PIECE = 1 << 20  # B of one MPI allreduce in the trainer
TAG = 5
# CPU time of this rank for local work; wall-clock time if the CPU clock is too coarse.
FINE = time.get_clock_info("thread_time").resolution < 1e-6
own_clock = time.thread_time if FINE else perf_counter
LEAST_ROUNDS = 5
LEAST = 4e-4  # s of one measurement, about
# Consecutive blocks, and the quantile of them that counts: a rank without a core
# delays all ranks.
PARTS, QUICK = 4, 0.25
# what, size, collective, function of a repeat count
Measurement = tuple[str, int, bool, Callable[[int], None]]


def main(path: Path, seconds: float) -> None:
    """Measure on all ranks; rank 0 writes the results."""
    from mpi4py import MPI

    comm, until = MPI.COMM_WORLD, time.monotonic() + seconds
    dice, rounds, loads = random.Random(0), 0, []
    with ExitStack() as stack:
        plan = [*_numpy_calls(), *_messages(comm), *_collectives(comm, stack)]
        times: list[list[float]] = [[] for _ in plan]
        repetitions = [_repetitions(comm, call) for *_, call in plan]
        order = list(range(len(plan)))
        while rounds < LEAST_ROUNDS or comm.bcast(time.monotonic() < until):
            dice.shuffle(order)
            before = _cpu(comm)
            for number in order:
                call, count = plan[number][-1], repetitions[number]
                comm.Barrier()
                clock = perf_counter if plan[number][2] else own_clock
                parts = []
                for _ in range(PARTS):
                    begin = clock()
                    call(count)
                    parts.append((clock() - begin) / count)
                times[number].append(float(np.quantile(parts, QUICK)))
            loads.append(_foreign(before, _cpu(comm)))
            rounds += 1
    everyone = comm.gather(times)
    if everyone is not None:
        points = [
            {"what": what, "size": size, "seconds": _merged([t[n] for t in everyone], together)}
            for n, (what, size, together, _) in enumerate(plan)
        ]
        results = {"ranks": comm.size, "others": loads, "points": points}
        path.write_text(json.dumps(results), encoding="utf-8")


def _merged(by_rank: list[list[float]], together: bool) -> list[float]:
    """Return one time per round: the slowest rank's for collective calls, else the mean."""
    return (np.max if together else np.mean)(by_rank, axis=0).tolist()


def _repetitions(comm: Any, call: Callable[[int], None]) -> int:
    """Return the repeat count, the same on all ranks, that makes the clock resolution negligible."""
    call(2)
    comm.Barrier()
    begin = perf_counter()
    call(3)
    each = comm.bcast((perf_counter() - begin) / 3)
    return int(np.clip(LEAST / max(each, 1e-7), 2, 1000))


def _numpy_calls() -> Iterator[Measurement]:
    """Local numpy calls, on all ranks at once."""
    for kind, edges in ((np.float32, EDGES), (np.float64, EDGES[-3:])):
        for edge in edges:
            a = np.ones((edge, edge), kind)
            yield f"gemm {a.dtype.name}", edge, False, _repeat(np.matmul, a, a, np.empty_like(a))
    few = np.ones(4, np.float32)
    yield "call", 4, False, _repeat(np.add, few, few, few.copy())
    for size in SUMS:
        several, arrived = rotating(size), np.zeros(size // 4, np.float32)
        yield "sum", size, False, in_turn([partial(np.add, a, arrived, a) for a in several])
        yield "copy", size, False, in_turn([partial(np.copyto, a, arrived) for a in several])


def _messages(comm: Any) -> Iterator[Measurement]:
    """Half of a ping-pong between the first two ranks."""
    for size in MESSAGES if comm.size > 1 else ():
        buffer = np.zeros(size, np.uint8)

        def there_and_back(count: int, buffer: Any = buffer) -> None:
            for _ in range(-(-count // 2)):
                if comm.rank == 0:
                    comm.Send(buffer, 1, TAG)
                    comm.Recv(buffer, 1, TAG)
                elif comm.rank == 1:
                    comm.Recv(buffer, 0, TAG)
                    comm.Send(buffer, 0, TAG)

        yield "message", size, True, there_and_back


def _collectives(comm: Any, stack: ExitStack) -> Iterator[Measurement]:
    """Allreduces over all ranks, and reduce-scatter plus all-gather, set up as in training."""
    for size in REDUCED if comm.size > 1 else ():
        several, scratch = rotating(size), Scratch()
        for name in COLLECTIVES:
            calls = [_collective(name, comm, a, stack, scratch) for a in several]
            yield name, size, True, in_turn(calls)


def _collective(
    name: str, comm: Any, array: Any, stack: ExitStack, scratch: Scratch
) -> Callable[[], None]:
    """Return a function that runs one collective on one array, in place."""
    from mpi4py import MPI

    if name in ("ring", "recursive_doubling"):
        return stack.enter_context(prepared(schedule(name, comm.size, array.size), comm, array))
    if name == "library":
        pieces = np.split(array, range(PIECE // 4, array.size, PIECE // 4))

        def library_allreduce() -> None:
            for piece in pieces:
                comm.Allreduce(MPI.IN_PLACE, piece, MPI.SUM)

        return library_allreduce
    blocks = np.array_split(array, comm.size)

    def scatter_and_gather() -> None:
        InFlight(reduce_scatter(comm, [blocks], scratch)).wait()
        InFlight(allgather(comm, blocks)).wait()

    return scatter_and_gather


def rotating(size: int) -> list[Any]:
    """Return rotating arrays of `size` B."""
    many = int(np.clip(APART // size, 2, MOST_TURNS))
    return list(np.full((many, size // 4), 0, np.float32))  # written, so that pages are allocated


def in_turn(calls: list[Callable[[], Any]]) -> Callable[[int], None]:
    """Return a function that makes `count` calls, cycling through `calls`."""
    row = cycle(calls)

    def call(count: int) -> None:
        for function in islice(row, count):
            function()

    return call


def _repeat(function: Callable[..., Any], *arguments: Any) -> Callable[[int], None]:
    def call(count: int) -> None:
        for _ in range(count):
            function(*arguments)

    return call


def _cpu(comm: Any) -> tuple[float, float, float]:
    """Return now, busy s of all cores, and CPU s of the ranks."""
    return time.monotonic(), other_processes.busy(), comm.allreduce(time.process_time())


def _foreign(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    """Return the cores busy with other processes between two samples."""
    span, busy, own = (b - a for a, b in zip(before, after, strict=True))
    return max(0.0, busy - own) / max(span, 1e-9)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
