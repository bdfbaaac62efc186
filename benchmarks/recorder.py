"""What recording costs: an event, against an empty loop; a step of the trainer, against one without a recorder.

    python benchmarks/recorder.py [--batch 8] [--quick]

All variants take turns in one process. A row holds several events, in the sense of Score-P and OTF2: entering,
leaving, and a message or the two ends of a collective between them; `dlhpc trace convert` writes that many. Both are
given, the row's cost in readings of the clock as well (a row needs two), for clocks differ more between machines than
anything else. Wanted: below 1 us a row, below 3% of a step of the smallest experiment.
"""

import argparse
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
os.environ.update(THREADS)  # before numpy starts its threads

import numpy as np  # noqa: E402
from _quick import add_quick  # noqa: E402

from lib_dlhpc.spec.experiment import loads  # noqa: E402
from lib_dlhpc.timeline.communicator import trace_comm  # noqa: E402
from lib_dlhpc.timeline.recorder import Recorder, region  # noqa: E402

EXPERIMENT = Path(__file__).parents[1] / "labs" / "experiments" / "digits.toml"
MANY, TURNS, STEPS = 20_000, 15, 600
REGION, MESSAGE, COLLECTIVE = 2, 3, 4  # events of a row
MOST = 1000  # ns a row
Loop = Callable[[int], None]


def turns(loops: dict[str, Loop], many: int, repeat: int) -> dict[str, float]:
    """Return the median over turns of the CPU ns of one pass through each loop."""
    found: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(repeat):
        for name, loop in loops.items():
            start = time.process_time_ns()
            loop(many)
            found[name].append((time.process_time_ns() - start) / many)
    return {name: median(times) for name, times in found.items()}


def bare(many: int) -> None:
    for _ in range(many):
        pass


def clock(many: int) -> None:
    for _ in range(many):
        perf_counter_ns()


def block(many: int) -> None:
    log = Recorder()
    for _ in range(many):
        with region("step", log):
            pass


def function(many: int) -> None:
    log = Recorder()

    @region("step", log)
    def step() -> None:
        pass

    for _ in range(many):
        step()


def packed(many: int) -> None:
    add = Recorder().add
    for number in range(many):
        add(1, perf_counter_ns(), perf_counter_ns(), 8, 3, 0, 1, number)


def tuples(many: int) -> None:
    """The same as a list of tuples, made into columns at the end."""
    rows: list[tuple[int, ...]] = []
    for number in range(many):
        rows.append((1, perf_counter_ns(), perf_counter_ns(), 8, 3, 0, 1, number))
    np.array(rows)


def columns(many: int) -> None:
    """The same in columns that are there beforehand."""
    table = np.zeros((8, many), np.int64)
    event, start, stop, size, peer, comm, tag, order = table
    for number in range(many):
        event[number] = 1
        start[number] = perf_counter_ns()
        stop[number] = perf_counter_ns()
        size[number] = 8
        peer[number] = 3
        comm[number] = 0
        tag[number] = 1
        order[number] = number


def calls(comm: Any) -> dict[str, tuple[int, int, Loop]]:
    """Return loops of MPI calls on one rank, how many rows a pass has, and how many events a row."""
    from mpi4py import MPI

    out, back, one = np.zeros(1), np.zeros(1), np.zeros(1)

    def sendrecv(many: int) -> None:
        for _ in range(many):
            comm.Sendrecv(out, 0, 0, back, 0, 0)

    def waitall(many: int) -> None:
        for _ in range(many):
            MPI.Request.Waitall([comm.Irecv(back, 0), comm.Isend(out, 0)])

    def pickled(many: int) -> None:
        for _ in range(many):
            comm.isend(1, 0)
            comm.recv()

    def allreduce(many: int) -> None:
        for _ in range(many):
            comm.Allreduce(out, one)

    return {
        "Sendrecv": (2, MESSAGE, sendrecv),
        "Irecv, Isend, Waitall": (2, MESSAGE, waitall),
        "isend, recv": (2, MESSAGE, pickled),
        "Allreduce": (1, COLLECTIVE, allreduce),
    }


def events(many: int, repeat: int) -> None:
    """Print what an event costs."""
    loops: dict[str, Loop] = {
        "bare": bare,
        "clock": clock,
        "with region": block,
        "@region": function,
        "a row: packed (ours)": packed,
        "a row: list of tuples": tuples,
        "a row: numpy columns": columns,
    }
    found = turns(loops, many, repeat)
    tick = found["clock"] - found["bare"]
    print(f"one reading of the clock: {tick:.0f} ns\n")
    print(f"{'':<26} {'ns a row':>8} {'clocks':>7} {'ns an event':>12}   a row wanted below {MOST}")
    for name in list(loops)[2:]:
        print_row(name, found[name] - found["bare"], tick, MESSAGE if "a row" in name else REGION)
    try:
        from mpi4py import MPI
    except ImportError:
        print("calls of MPI: no mpi4py here")
        return
    plain, recorder = calls(MPI.COMM_SELF.Dup()), Recorder()
    traced = calls(trace_comm(MPI.COMM_SELF.Dup(), recorder))
    for name, (rows, each, loop) in traced.items():
        both = turns({"plain": plain[name][-1], "traced": loop}, many // 10, repeat)
        recorder.clear()
        print_row(name, (both["traced"] - both["plain"]) / rows, tick, each)


def print_row(name: str, row: float, tick: float, events: int) -> None:
    """Print what a row costs, and an event of it."""
    verdict = "ok" if row < MOST else "MISSED"
    print(f"{name:<26} {row:>8.0f} {row / tick:>7.1f} {row / events:>12.0f}   {verdict}")


class Silent:
    """No recorder at all, not even its clock."""

    on, sent = False, 0

    def now(self) -> float:
        return 0.0

    def nothing(self, *arguments: Any) -> None:
        pass

    add = begin = end = message = leave_out = fills = nothing

    def working(self, kind: str, name: str) -> Any:
        return nullcontext()

    def communicates(self, name: str, size: int, peer: int = -1) -> Any:
        return nullcontext()


def steps(batch: int, many: int) -> None:
    """Print what recording adds to a step of the trainer."""
    from lib_dlhpc.training.data import load, precision_of
    from lib_dlhpc.training.record import Recorder as TrainersRecorder
    from lib_dlhpc.training.single_rank import SingleRank
    from lib_dlhpc.training.synchronous import synchronous

    text = EXPERIMENT.read_text(encoding="utf-8").replace("batch = 64", f"batch = {batch}")
    experiment = loads(text)
    data = load(experiment, precision_of(experiment))
    recorders = {"none": Silent(), "off": TrainersRecorder(), "on": TrainersRecorder()}
    recorders["off"].on = False
    with ExitStack() as stack:
        ranks = {
            name: stack.enter_context(synchronous(experiment, SingleRank(), data, recorder))
            for name, recorder in recorders.items()
        }
        indices = np.arange(batch)
        found: dict[str, list[int]] = {name: [] for name in ranks}
        for number in range(many):
            for name, rank in sorted(ranks.items(), key=lambda item: (len(item[0]) + number) % 3):
                start = time.perf_counter_ns()
                rank._step(number, 0.0, indices)
                found[name].append(time.perf_counter_ns() - start)
    none = median(found["none"])
    rows = len(recorders["on"].rows) / many
    print(
        f"\na step of {EXPERIMENT.name}, batch {batch}, one rank: {none / 1e3:.0f} us, {rows:.0f} rows"
    )
    for name in ("off", "on"):
        # Adjacent in time: the machine's speed drifts over more than a step.
        pairs = zip(found[name], found["none"], strict=True)
        print(
            f"recorder {name:<17} {median(a / b for a, b in pairs) - 1:>+6.1%}           below 3%"
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--batch", type=int, default=8, help="samples of a step; default: 8")
    add_quick(options)
    given = options.parse_args()
    if given.quick:
        events(MANY // 100, 3)
        steps(given.batch, 30)
    else:
        events(MANY, TURNS)
        steps(given.batch, STEPS)


if __name__ == "__main__":
    main()
