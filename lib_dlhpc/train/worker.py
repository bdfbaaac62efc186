"""One rank of a run: mpiexec -n 4 python -m lib_dlhpc.train.worker FOLDER.

The folder holds experiment.toml. Rank 0 writes there what is new (metrics.jsonl), the timeline and the
result; a rank that fails says what and where in error-RANK.json and ends all ranks. A rank that is killed
cannot say so: each has a parent that watches over it, because mpiexec does not tell which one it was.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

WATCH = 0.2  # s between two looks at whether the parent still lives


def main(folder: Path, expected: int) -> None:
    """Train; `expected` is the number of ranks that was asked for."""
    import numpy as np
    from mpi4py import MPI

    from lib_dlhpc.spec.experiment import load
    from lib_dlhpc.timeline.store import save
    from lib_dlhpc.train.trainer import train

    comm = MPI.COMM_WORLD
    try:
        if comm.size != expected:
            raise RuntimeError(f"{expected} ranks were asked for, and {comm.size} started")
        _write(folder / f"rank-{comm.rank}.json", {"rank": comm.rank, "process": os.getpid()})
        np.seterr(over="ignore", invalid="ignore")  # a loss that is no number is told once, by name
        with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:

            def report(row: dict[str, Any]) -> None:
                file.write(json.dumps(row) + "\n")
                file.flush()

            run = train(load(folder / "experiment.toml"), comm, folder, report)
        if comm.rank == 0 and run.timeline is not None:
            save(run.timeline, folder / "timeline.npz")
            _write(folder / "result.json", _result(run, comm.size))
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        about = {"rank": comm.rank, "kind": type(error).__name__, "text": str(error), "trace": text}
        _write(folder / f"error-{comm.rank}.json", about)
        print(text, file=sys.stderr, flush=True)
        comm.Abort(1)


def watched(folder: Path, expected: int) -> None:
    """Let a child be the rank; if it is killed, write down which one it was before mpiexec ends the others."""
    child = os.fork()
    if child == 0:
        parent = os.getppid()
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
        main(folder, expected)
        return
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        for path in folder.glob("rank-*.json"):
            about = json.loads(path.read_text(encoding="utf-8"))
            if about["process"] == child:
                text = f"ended from outside ({signal.Signals(-code).name})"
                told = {"rank": about["rank"], "kind": "Killed", "text": text, "trace": ""}
                _write(folder / f"error-{about['rank']}.json", told)
    os._exit(code if code >= 0 else 128 - code)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)


def _result(run: Any, ranks: int) -> dict[str, Any]:
    from lib_dlhpc.timeline import breakdown

    terms = breakdown(run.timeline).terms if len(run.timeline) else {}
    return {
        "ranks": ranks,
        "loss": run.loss,
        "accuracy": run.accuracy,
        "test_loss": run.test_loss,
        "samples": run.samples,
        "seconds": run.seconds,
        "terms": terms,
    }


def _write(path: Path, table: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(table), encoding="utf-8")
    os.replace(temporary, path)


if __name__ == "__main__":
    run_rank = watched if hasattr(os, "fork") else main
    run_rank(Path(sys.argv[1]), int(sys.argv[2]))
