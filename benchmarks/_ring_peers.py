"""Peers' ring allreduce, message by message: two SimPy programs, and SimGrid's S4U in C++.

The textbook SimPy program has a process a rank and starts a child process for each send; the lean one
sends with a timeout. SimGrid's is simgrid/ring.cpp, compiled here; of it only the simulation is timed.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import simpy

ALPHA, BANDWIDTH = 1e-6, 12.5e9  # s, B/s; simgrid/ring.cpp has the same
MISSING = (
    "SimGrid's S4U is not compared: no C++ compiler with SimGrid (apt install g++ libsimgrid-dev)"
)


def textbook(
    ranks: int, seconds: float, arrival: list[float]
) -> tuple[list[float], simpy.Environment]:
    """Return each rank's finish time; the environment has yet to run."""
    env = simpy.Environment()
    links, finish = [simpy.Store(env) for _ in range(ranks)], [0.0] * ranks

    def send(link: simpy.Store) -> Generator[Any, Any, None]:
        yield env.timeout(seconds)
        yield link.put(None)

    def run(rank: int) -> Generator[Any, Any, None]:
        yield env.timeout(arrival[rank])
        for _ in range(2 * (ranks - 1)):
            sent = env.process(send(links[(rank + 1) % ranks]))
            yield links[rank].get()
            yield sent
        finish[rank] = env.now

    for rank in range(ranks):
        env.process(run(rank))
    return finish, env


def lean(ranks: int, seconds: float, arrival: list[float]) -> tuple[list[float], simpy.Environment]:
    """The same with a process a rank that waits, puts and gets."""
    env = simpy.Environment()
    links, finish = [simpy.Store(env) for _ in range(ranks)], [0.0] * ranks

    def run(rank: int) -> Generator[Any, Any, None]:
        yield env.timeout(arrival[rank])
        for _ in range(2 * (ranks - 1)):
            yield env.timeout(seconds)
            yield links[(rank + 1) % ranks].put(None)
            yield links[rank].get()
        finish[rank] = env.now

    for rank in range(ranks):
        env.process(run(rank))
    return finish, env


def run_peer(program: Any, *arguments: Any) -> list[float]:
    """Run one of the two programs and return each rank's finish time."""
    finish, env = program(*arguments)
    env.run()
    return finish


def simgrid(
    size: float, arrival: list[float], repeat: int
) -> tuple[list[float], list[float]] | None:
    """Return each rank's finish time, and the CPU seconds of each run; None without SimGrid."""
    compiler = shutil.which("c++")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "ring"
        source = Path(__file__).parent / "simgrid" / "ring.cpp"
        make = [compiler, "-O2", source, "-o", program, "-lsimgrid"]
        if compiler is None or subprocess.run(make, capture_output=True).returncode:
            return None
        spent = []
        for _ in range(repeat):
            command = [program, repr(size), *map(repr, arrival)]
            done = subprocess.run(command, capture_output=True, check=True, text=True)
            seconds, *finish = map(float, done.stdout.split())
            spent.append(seconds)
    return finish, spent
