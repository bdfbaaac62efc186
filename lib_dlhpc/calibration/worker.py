"""One rank of a calibration: mpiexec -n 2 python -m lib_dlhpc.calibration.worker FILE 15.

Rank 0 writes to FILE, as JSON, seconds of one call of everything measured here, a number for each round: numpy's
products, calls, sums and copies on all ranks at once, messages there and back between the first two ranks, and
collectives of all ranks, by the schedules that training uses and by the library's own.

What is added up or exchanged is another array each time, as in training: between two exchanges of the same
gradients lie a forward and a backward pass, and they are no longer in a core's own cache. The same array again
and again is summed several times as fast. And what is sent, the sender has just written, which is why the two
halves of a ring are measured together: what only ever sends the same numbers takes half as long.
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
from lib_dlhpc.schedules.halves import Scratch, UnderWay, allgather, reduce_scatter

EDGES = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512)  # of square matrices
SUMS = tuple(4**k for k in range(5, 13))  # B of an array, 1 KiB to 16 MiB
MESSAGES = (8, *(2**k for k in range(6, 23)))  # B, to 4 MiB
REDUCED = tuple(4**k for k in range(3, 12))  # B, 64 B to 4 MiB
COLLECTIVES = ("ring", "recursive_doubling", "library", "halves")
APART = (
    1 << 24
)  # B of the arrays that take turns: more than a core's own cache, less than all caches
MOST_TURNS = 64  # arrays; each has messages of its own
PIECE = 1 << 20  # B that the trainer gives to one sum of MPI's
TAG = 5
# The processor's seconds of this rank, for what it does by itself; the wall's where they are counted too coarsely.
FINE = time.get_clock_info("thread_time").resolution < 1e-6
own_clock = time.thread_time if FINE else perf_counter
LEAST_ROUNDS = 5
LEAST = 4e-4  # s of one measurement, about
# Blocks that follow each other, and how many of them are quicker than what counts: a rank that loses its core
# holds up all.
PARTS, QUICK = 4, 0.25
Measurement = tuple[
    str, int, bool, Callable[[int], None]
]  # what, size, of all ranks, do it so repetitions


def main(path: Path, seconds: float) -> None:
    """Measure on the ranks of the world; rank 0 writes what was found."""
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
    """Return one time a round: what ranks do together is over with the last, else the mean counts."""
    return (np.max if together else np.mean)(by_rank, axis=0).tolist()


def _repetitions(comm: Any, call: Callable[[int], None]) -> int:
    """Return how repetitions to call, the same on all ranks, so that the clock does not matter."""
    call(2)
    comm.Barrier()
    begin = perf_counter()
    call(3)
    each = comm.bcast((perf_counter() - begin) / 3)
    return int(np.clip(LEAST / max(each, 1e-7), 2, 1000))


def _numpy_calls() -> Iterator[Measurement]:
    """What a rank does by itself, while all do."""
    for kind, edges in ((np.float32, EDGES), (np.float64, EDGES[-3:])):
        for edge in edges:
            a = np.ones((edge, edge), kind)
            yield f"gemm {a.dtype.name}", edge, False, _repeat(np.matmul, a, a, np.empty_like(a))
    few = np.ones(4, np.float32)
    yield "call", 4, False, _repeat(np.add, few, few, few.copy())
    for size in SUMS:
        several, arrived = _turns(size), np.zeros(size // 4, np.float32)
        yield "sum", size, False, _in_turn([partial(np.add, a, arrived, a) for a in several])
        yield "copy", size, False, _in_turn([partial(np.copyto, a, arrived) for a in several])


def _messages(comm: Any) -> Iterator[Measurement]:
    """One way, from half of there and back, between the first two ranks."""
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
    """Sums over all ranks, also by the two halves of a ring, set up as training does."""
    for size in REDUCED if comm.size > 1 else ():
        several, scratch = _turns(size), Scratch()
        for name in COLLECTIVES:
            calls = [_collective(name, comm, a, stack, scratch) for a in several]
            yield name, size, True, _in_turn(calls)


def _collective(
    name: str, comm: Any, array: Any, stack: ExitStack, scratch: Scratch
) -> Callable[[], None]:
    """Return what carries out one collective on one array, in place."""
    from mpi4py import MPI

    if name in ("ring", "recursive_doubling"):
        return stack.enter_context(prepared(schedule(name, comm.size, array.size), comm, array))
    if name == "library":
        pieces = np.split(array, range(PIECE // 4, array.size, PIECE // 4))

        def add_up() -> None:
            for piece in pieces:
                comm.Allreduce(MPI.IN_PLACE, piece, MPI.SUM)

        return add_up
    blocks = np.array_split(array, comm.size)

    def by_halves() -> None:
        UnderWay(reduce_scatter(comm, [blocks], scratch)).wait()
        UnderWay(allgather(comm, blocks)).wait()

    return by_halves


def _turns(size: int) -> list[Any]:
    """Return arrays of `size` B that are used in turn."""
    many = int(np.clip(APART // size, 2, MOST_TURNS))
    return list(np.full((many, size // 4), 0, np.float32))  # written, so that the memory is there


def _in_turn(calls: list[Callable[[], Any]]) -> Callable[[int], None]:
    """Return what makes so many calls, each of the next in the row, and goes on there the next time."""
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
    """Return now, the s that all cores have worked, and those of them that are the ranks' own."""
    return time.monotonic(), other_processes.busy(), comm.allreduce(time.process_time())


def _foreign(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    """Return how many cores others kept busy between two looks."""
    span, busy, own = (b - a for a, b in zip(before, after, strict=True))
    return max(0.0, busy - own) / max(span, 1e-9)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
