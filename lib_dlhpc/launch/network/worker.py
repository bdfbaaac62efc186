"""One rank in the laboratory: a ping-pong and an exchange between ranks 0 and 1, then allreduces; rank 0 prints JSON.

Started by crossover.py with a task in JSON. A waiting rank sleeps, since busy-polling would disturb the others if
ranks exceed cores. Allreduces are timed in groups of back-to-back calls, not one by one after a barrier.
"""

import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from lib_dlhpc.schedules import Schedule, prepared, schedule
from lib_dlhpc.schedules.execute import Prepared

NAP = 1e-4  # s of sleep between two polls
TIMER_SLACK = 29  # PR_SET_TIMERSLACK: tolerated delay of a sleep, in ns
# MPICH's own sleep (launch.mpi.SLEEPING) lasts a ns: with so little slack it would hold cores that others need.
AWAKE = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "0"}
MESSAGES = (8, 64, 128, 256, 1024, 4096, 16_384, 65_536, 262_144)  # B
SAMPLES = 5
SPELL, MOST, LEAST = 0.25, 20, 3  # s of a sample; calls in one


def main(task: dict[str, Any]) -> None:
    """Measure the algorithms and sizes (B) of the task."""
    os.environ.update(AWAKE)
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    ctypes.CDLL(None).prctl(TIMER_SLACK, 1)
    first, load = False, os.getloadavg()[0]
    with suppress(OSError):  # requires root: excludes other processes
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        first = True
    points = []
    for size in MESSAGES if comm.size > 1 else ():
        there, both = (timed(way, comm, size) for way in (ping_pong, exchange))
        points.append({"size": size, "one_way": there / 2, "exchange": both})
    rows = [
        {"algorithm": name, "size": size, **allreduce(name, comm, size)}
        for size in task["sizes"]
        for name in task["algorithms"]
    ]
    if comm.rank == 0:
        results = {"ranks": comm.size, "points": points, "gamma": combining(), "rows": rows}
        print(json.dumps(results | {"load": 0.0 if first else load}))


def ping_pong(ranks: int, elements: int) -> list[Any]:
    """A ping-pong."""
    return [[(0, 1, 0, elements, "copy")], [(1, 0, 0, elements, "copy")]]


def exchange(ranks: int, elements: int) -> list[Any]:
    """A bidirectional exchange, which includes the acknowledgements."""
    return [[(0, 1, 0, elements, "copy"), (1, 0, 0, elements, "copy")]]


def allreduce(name: str, comm: Any, size: int) -> dict[str, float]:
    """Return the seconds of a call, the calls of a sample, and whether the sums were correct."""
    plan = schedule(name, comm.size, size // 4)
    buffer = np.ones(plan.elements, np.float32)
    with prepared(plan, comm, buffer) as run:
        call(run)
        right = bool((buffer == comm.size).all())
        seconds, calls = sampled(run, comm, buffer)
    return {"measured": seconds, "calls": calls, "right": comm.allreduce(right, min)}


def timed(algorithm: Callable[[int, int], Any], comm: Any, size: int) -> float:
    """Return the seconds of a schedule function."""
    plan: Schedule = schedule(algorithm, comm.size, size // 4)
    buffer = np.ones(plan.elements, np.float32)
    with prepared(plan, comm, buffer) as run:
        return sampled(run, comm, buffer)[0]


def sampled(run: Prepared, comm: Any, buffer: Any) -> tuple[float, int]:
    """Return the seconds of a call, the median over samples of the slowest rank, and the calls of a sample."""
    for _ in range(2):  # TCP opens its windows
        call(run)
    asleep(comm)
    begin = time.perf_counter()
    call(run)
    once = comm.allreduce(time.perf_counter() - begin, max)
    calls = int(min(max(SPELL / once, LEAST), MOST))  # 64^20 still fits a float32
    found = []
    for _ in range(SAMPLES):
        buffer.fill(1)
        asleep(comm)
        begin = time.perf_counter()
        for _ in range(calls):
            call(run)
        found.append((time.perf_counter() - begin) / calls)
    slowest = [max(each) for each in zip(*comm.allgather(found), strict=True)]
    return statistics.median(slowest), calls


def call(run: Prepared) -> None:
    """Run a schedule, sleeping while nothing arrives."""
    run.start()
    while not run.test():
        time.sleep(NAP)


def asleep(comm: Any) -> None:
    """A sleeping barrier."""
    barrier = comm.Ibarrier()
    while not barrier.Test():
        time.sleep(NAP)


def combining() -> float:
    """Return the s/B of the reduction."""
    one, other = (np.ones(65_536, np.float32) for _ in range(2))
    found = []
    for _ in range(20):
        begin = time.perf_counter()
        np.add(one, other, out=one)
        found.append((time.perf_counter() - begin) / one.nbytes)
    return statistics.median(found)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
