"""A run on this machine: mpiexec starts the ranks, which write to a run folder.

experiment.toml   the experiment           metrics.jsonl   loss and accuracy during the run
status.json       running, done ...        result.json     the result of a completed run
timeline.npz      the trace of all ranks   snapshot.npz    the checkpoint for --resume, or
snapshots.json    location of the versioned checkpoints, by default snapshots/
log.txt           output of the ranks      error-3.json    error of rank 3
"""

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import folder as run_folder
from lib_dlhpc.launch import mpi
from lib_dlhpc.launch.folder import RESULT, STATUS, JobError, clear, why_failed, write
from lib_dlhpc.launch.prepare import prepare
from lib_dlhpc.lifetime import owned
from lib_dlhpc.lifetime.files import remove_unfinished
from lib_dlhpc.spec.experiment import Experiment

__all__ = ["Job", "JobError", "start"]

WORKER = "lib_dlhpc.training.worker"


class Job:
    """A started run: watch it, wait for it, cancel it."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], ranks: int) -> None:
        self.folder, self._process, self._ranks = folder, process, ranks
        self._cancelled, self._ended = False, ""
        self._overdue = mpi.Overdue(folder)
        lost = {"state": "failed", "time": time.time(), "reason": run_folder.LOST}
        owned.last_words(folder / STATUS, json.dumps(lost), folder / RESULT)
        try:
            self._status("running", pid=process.pid)
        except BaseException:
            owned.end(process)
            raise

    @property
    def state(self) -> str:
        """One of STATES."""
        if self._process.poll() is None:
            if not self._overdue():
                return "running"
            owned.end(self._process)
        return self._settled()

    def metrics(self) -> list[dict[str, Any]]:
        """Return rank 0's metrics so far."""
        return run_folder.metrics(self.folder)

    def wait(self) -> dict[str, Any]:
        """Wait for the end of the run; return its result. Raises JobError if it failed or was cancelled."""
        while (state := self.state) == "running":
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        if state != "done":
            raise JobError(self.why() if state == "failed" else "The run was cancelled.")
        result: dict[str, Any] = json.loads((self.folder / RESULT).read_text("utf-8"))
        return result

    def cancel(self) -> None:
        """End all ranks; the last snapshot remains."""
        if self._process.poll() is None:
            self._cancelled = True
            owned.end(self._process)
        self._settled()

    def why(self) -> str:
        """Return which rank failed first, and where; the others end because of it."""
        return why_failed(self.folder, self._process.returncode)

    def _settled(self) -> str:
        """Return the final state of an ended run; record it the first time."""
        if not self._ended:
            whole = self._process.returncode == 0 and (self.folder / RESULT).exists()
            self._ended = "done" if whole else "cancelled" if self._cancelled else "failed"
            owned.ended(self._process)
            remove_unfinished(self.folder)
            more = {"reason": self.why()} if self._ended == "failed" else {}
            self._status(self._ended, **more)
            owned.no_last_words(self.folder / STATUS)
        return self._ended

    def _status(self, state: str, **more: Any) -> None:
        write(
            self.folder / STATUS,
            {"state": state, "time": time.time(), "ranks": self._ranks, **more},
        )


def start(
    experiment: Experiment,
    ranks: int,
    folder: Path | None = None,
    resume: bool = False,
    snapshot_every: str | int | None = None,
    origin: str | None = None,
    place: mpi.Place = mpi,
    beside: float = 0.0,
) -> Job:
    """Start a run of `ranks` ranks on this machine, in the background; it ends with the calling process.

    folder: the run folder; a new temporary one by default. It must not hold a run, unless `resume`.
    resume: continue the folder's run from its snapshot. Only [machine], [storage], [calibration], run.epochs and
        run.checkpoint_interval may differ from the folder's experiment.
    snapshot_every: steps between two versions in the run's snapshot store, or "epoch".
    origin: "RUN@VERSION", from which the run starts, as a branch in RUN's store.
    place: where its ranks run, such as a network laboratory, which must outlive them.
    beside: s of probe runs by its ranks before and after the run, reported in its result, to measure the machine's
        slowdown.

    Raises SpecError for illegal ranks, an unsuitable folder, and missing MPI; nothing is changed then.
    """
    mpi.check_here(ranks)
    ranks = int(ranks)  # numpy integers are not JSON
    worker, made = place.command(ranks, "-m", WORKER), None
    try:
        if folder is None:
            folder = made = owned.make_folder("dlhpc-run-")
        log = prepare(experiment, folder, resume, snapshot_every, origin)
        clear(folder)
        (folder / "job.json").unlink(missing_ok=True)  # no longer a batch job
    except OSError as error:
        raise SpecError(f"{folder}: {error.strerror}.") from None
    with log:
        process = owned.start(
            [*worker, str(folder), str(ranks), f"{beside:g}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=place.environment(ranks),
            start_new_session=os.name == "posix",
        )
    if made is not None:
        owned.keep_folder(made)
    return Job(folder, process, ranks)
