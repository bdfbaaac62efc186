"""A run on this machine: mpiexec starts the ranks, and all they have to say comes back in a run folder.

experiment.toml   what is run              metrics.jsonl   loss and accuracy as they come
status.json       running, done ...        result.json     the end of a run that came through
timeline.npz      who did what, when       snapshot.npz    to go on from, or
snapshots.json    where versions go, which else are in snapshots/
log.txt           what the ranks printed   error-3.json    what went wrong on rank 3
"""

import json
import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from lib_dlhpc.launch import folder as run_folder
from lib_dlhpc.launch import mpi
from lib_dlhpc.launch.folder import RESULT, STATUS, JobError, clear, prepare, why_failed, write
from lib_dlhpc.lifetime import owned
from lib_dlhpc.lifetime.files import remove_unfinished
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment

__all__ = ["Job", "JobError", "start"]

STATES = ("running", "done", "failed", "cancelled")
WORKER = "lib_dlhpc.training.worker"


class Job:
    """A run that has been started: watch it, wait for it, cancel it."""

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
        """Return what rank 0 has reported so far."""
        return run_folder.metrics(self.folder)

    def wait(self) -> dict[str, Any]:
        """Return the result when the run has ended. Raises JobError if it failed or was cancelled."""
        while (state := self.state) == "running":
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        if state != "done":
            raise JobError(self.why() if state == "failed" else "The run was cancelled.")
        result: dict[str, Any] = json.loads((self.folder / RESULT).read_text("utf-8"))
        return result

    def cancel(self) -> None:
        """End all ranks; what the last snapshot holds stays."""
        if self._process.poll() is None:
            self._cancelled = True
            owned.end(self._process)
        self._settled()

    def why(self) -> str:
        """Say which rank failed first, and where; the others are ended because of it."""
        return why_failed(self.folder, self._process.returncode)

    def _settled(self) -> str:
        """Return how an ended run ended; the first time, write it down."""
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
    """Start a run of `ranks` ranks on this machine; it goes on while the caller does other work, and ends with it.

    folder: the run folder; a new temporary one by default. It must not hold a run, unless `resume`: then
    the run goes on from its snapshot; then only [machine], [storage], [calibration], run.epochs and
    run.checkpoint_interval may differ from what the folder says. snapshot_every: steps, or "epoch": from
    one version in the run's snapshot store to the next. origin: "RUN@VERSION", at which the run begins: its
    versions are a branch in RUN's store. place: where its ranks run, such as a network laboratory, which
    must be there until they are done. beside: s before and after it in which its ranks take steps of other
    runs, which are in its result: they say at what pace the machine is. Raises SpecError for ranks that cannot
    be, for a folder that does not fit, and where MPI is missing; nothing is changed then.
    """
    mpi.check_here(ranks)
    ranks = int(ranks)  # numpy's would not go into the status
    worker = place.command(ranks, "-m", WORKER)
    try:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="dlhpc-run-"))
        log = prepare(experiment, folder, resume, snapshot_every, origin)
        clear(folder)
        (folder / "job.json").unlink(missing_ok=True)  # no batch system's any more
    except OSError as error:
        raise SpecError(f"{folder}: {error.strerror}.") from None
    with log:
        process = owned.start(
            [*worker, str(folder), str(ranks), f"{beside:g}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=place.environment(), start_new_session=os.name == "posix",
        )  # fmt: skip
    return Job(folder, process, ranks)
