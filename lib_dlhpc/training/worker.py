"""One rank of a run: mpiexec -n 4 python -m lib_dlhpc.training.worker FOLDER 4 [SECONDS].

The folder holds experiment.toml. Rank 0 writes metrics (metrics.jsonl), the timeline and the result there; a rank
that fails writes the reason to error-RANK.json and aborts all ranks. A killed rank cannot report, and mpiexec does
not report which one it was, so each rank has a parent process that monitors it.

SECONDS: for this long before and after the run, the same ranks take whole steps of other small runs
(probe_steps.py); the result has their times, "beside": the slowdown factor of the machine at that moment.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from mmap import mmap
from pathlib import Path
from struct import Struct
from typing import Any

from lib_dlhpc.lifetime.files import naming, write_status, write_text
from lib_dlhpc.lifetime.watching import end_with
from lib_dlhpc.training.shared_memory import unname_shared

# s: an MPI error is often the echo of another rank's failure, which must be reported first
ECHO = 1.0
METRICS = "metrics.jsonl"
MOST = 1200  # characters of a traceback that are stored: on a full disk the report must fit into one block


class RankPosition:
    """Rank and current step, in memory shared with the parent, which reports them after a crash."""

    _form = Struct("qq")

    def __init__(self) -> None:
        self._memory = mmap(-1, self._form.size)  # shared with the child process
        self.set(-1, -1)

    def set(self, rank: int, step: int) -> None:
        """Store; cheap enough for every step."""
        self._form.pack_into(self._memory, 0, rank, step)

    def get(self) -> tuple[int, int]:
        """Return (rank, step); -1 if unknown."""
        rank, step = self._form.unpack_from(self._memory)
        return rank, step


def main(folder: Path, expected: int, position: RankPosition, seconds: float = 0.0) -> None:
    """Train; `expected` is the number of ranks requested, `seconds` those of the other small runs."""
    import numpy as np
    from mpi4py import MPI

    from lib_dlhpc.spec.experiment import load
    from lib_dlhpc.timeline.store import save
    from lib_dlhpc.training.probe_steps import steps_of
    from lib_dlhpc.training.trainer import train

    comm = MPI.COMM_WORLD
    try:
        position.set(comm.rank, -1)
        if comm.size != expected:
            raise RuntimeError(f"{expected} ranks were asked for, and {comm.size} started")
        who = {"rank": comm.rank, "process": os.getpid()}
        write_text(folder / f"rank-{comm.rank}.json", json.dumps(who))
        unname_shared(comm)
        # A non-finite loss is reported once, as Diverged, without numpy's warnings.
        np.seterr(over="ignore", invalid="ignore")
        begins, report = _callbacks(folder / METRICS, comm.rank, position)
        probe_runs = []
        if seconds:
            steps_of(comm, seconds)  # cores that were idle are slow at first
            probe_runs.append(steps_of(comm, seconds))
        run = train(load(folder / "experiment.toml"), comm, folder, report, begins)
        if seconds:
            probe_runs.append(steps_of(comm, seconds))
        if comm.rank == 0 and run.timeline is not None:
            save(run.timeline, folder / "timeline.npz")
            others = {"beside": probe_runs} if seconds else {}
            write_text(folder / "result.json", json.dumps(_result(run, comm.size) | others))
    except BaseException as error:
        trace = "".join(traceback.format_exception(error))
        echo = isinstance(error, MPI.Exception)
        about = {"kind": type(error).__name__, "text": str(error), "layer": _layer(error)}
        record_failure(folder, comm.rank, position.get()[1], **about, trace=trace, echo=echo)
        print(trace, file=sys.stderr, flush=True)
        if echo:
            time.sleep(ECHO)
        comm.Abort(1)


def watched(folder: Path, expected: int, seconds: float = 0.0) -> None:
    """Run the rank in a child process; if it is killed, record its rank before mpiexec ends the others.

    If the rank has failed, this process ends by a signal: mpiexec may miss an exit status.
    """
    position, above, pid = RankPosition(), os.getppid(), os.getpid()
    child = os.fork()
    if child == 0:
        end_with(pid)
        main(folder, expected, position, seconds)
        return
    end_with(above)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        rank, step = position.get()
        text = f"ended from outside ({signal.Signals(-code).name})"
        record_failure(folder, rank, step, kind="Killed", text=text)
    if code:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _callbacks(
    path: Path, rank: int, position: RankPosition
) -> tuple[Callable[[int], None], Callable[[dict[str, Any]], None]]:
    """Return the callbacks for the start of a step and for a row of metrics."""
    first = True

    def begins(step: int) -> None:
        nonlocal first
        if first and rank == 0:
            carry_on(path, step)
        first = False
        position.set(rank, step)

    def report(row: dict[str, Any]) -> None:
        with naming(path), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    return begins, report


def carry_on(path: Path, step: int) -> None:
    """Drop metrics of steps after the snapshot, and a partial last line."""
    if not path.exists():
        return
    lines = []
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        try:
            row = json.loads(line)
        except ValueError:
            break
        if row.get("step", 0) > step:
            break
        lines.append(line + "\n")
    write_text(path, "".join(lines))


def _layer(error: BaseException) -> str:
    """Return the layer that an error comes from: read from the traceback, so that the hot loop needs no bookkeeping."""
    from lib_dlhpc.training.network import Network

    name = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        network, index = frame.f_locals.get("self"), frame.f_locals.get("index")
        if isinstance(network, Network) and isinstance(index, int):
            name = network.model.layers[index].name
    return name


def record_failure(folder: Path, rank: int, step: int, **about: Any) -> None:
    """Write the error and its time: the first rank to fail caused the failures of the others."""
    table = {"rank": rank, "step": step, "layer": "", "trace": "", "echo": False, **about}
    table |= {"trace": table["trace"][-MOST:], "text": table["text"][:MOST], "time": time.time()}
    with suppress(OSError):  # even if the report cannot be written, the others must be aborted
        spare = folder / f"rank-{rank}.json"
        write_status(folder / f"error-{rank}.json", json.dumps(table), spare)


def _result(run: Any, ranks: int) -> dict[str, Any]:
    from dataclasses import asdict

    from lib_dlhpc.timeline import breakdown

    terms = breakdown(run.timeline).terms if len(run.timeline) else {}
    return {
        "ranks": ranks,
        "loss": run.loss if isfinite(run.loss) else None,  # None: no step was left
        "accuracy": run.accuracy,
        "test_loss": run.test_loss if isfinite(run.test_loss) else None,
        "samples": run.samples,
        "seconds": run.seconds,
        "terms": terms,
        "sent": run.sent,
        "gradients": run.gradients,
        "core_wait": run.core_wait,
        "experts": [asdict(expert) for expert in run.experts],
        "staleness": run.updates.as_dict() if run.updates else None,
        "memory": [asdict(memory) | {"total": memory.total} for memory in run.memory],
    }


if __name__ == "__main__":
    where, ranks, beside = Path(sys.argv[1]), int(sys.argv[2]), float([*sys.argv, "0"][3])
    if hasattr(os, "fork"):
        watched(where, ranks, beside)
    else:
        main(where, ranks, RankPosition(), beside)
