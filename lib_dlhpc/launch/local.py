"""A run on this machine: mpiexec starts the ranks, and all they have to say comes back in a run folder.

experiment.toml   what is run              metrics.jsonl   loss and accuracy as they come
status.json       running, done ...        result.json     the end of a run that came through
timeline.npz      who did what, when       snapshot.npz    to go on from
log.txt           what the ranks printed   error-3.json    what went wrong on rank 3
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment, dump

STATES = ("running", "done", "failed", "cancelled")
WORKER = "lib_dlhpc.train.worker"
GRACE = 5.0  # s that ranks have to end when they are asked to


class JobError(RuntimeError):
    """A run that did not come through; the text names rank and place."""


class Job:
    """A run that has been started: watch it, wait for it, cancel it."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder, self._process = folder, process
        self._cancelled = False
        self._status("running")

    @property
    def state(self) -> str:
        """One of STATES."""
        if self._process.poll() is None:
            return "running"
        if self._cancelled:
            state = "cancelled"
        else:
            whole = self._process.returncode == 0 and (self.folder / "result.json").exists()
            state = "done" if whole else "failed"
        self._status(state)
        return state

    def metrics(self) -> list[dict[str, Any]]:
        """Return what rank 0 has reported so far."""
        try:
            lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines[:-1]]  # the last may be half written

    def wait(self) -> dict[str, Any]:
        """Return the result when the run has ended. Raises JobError if it failed or was cancelled."""
        self._process.wait()
        state = self.state
        if state != "done":
            raise JobError(self.why() if state == "failed" else "The run was cancelled.")
        result: dict[str, Any] = json.loads((self.folder / "result.json").read_text("utf-8"))
        return result

    def cancel(self) -> None:
        """End all ranks; what the last snapshot holds stays."""
        if self._process.poll() is None:
            self._cancelled = True
            self._end(signal.SIGTERM)
            try:
                self._process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self._end(signal.SIGKILL)
                self._process.wait()
        self._status(self.state)

    def why(self) -> str:
        """Say which rank failed, and where."""
        errors = [json.loads(path.read_text("utf-8")) for path in self.folder.glob("error-*.json")]
        if errors:
            first = min(errors, key=lambda error: int(error["rank"]))
            steps = [row["step"] for row in self.metrics() if "step" in row]
            after = f" (after step {steps[-1]})" if steps else ""
            return f"rank {first['rank']}: {first['kind']}: {first['text']}{after}"
        log = (self.folder / "log.txt").read_text("utf-8", "replace")
        last = (log.strip() or "no output").splitlines()[-1]
        return f"mpiexec ended with status {self._process.returncode}: {last}"

    def _end(self, how: signal.Signals) -> None:
        if os.name == "posix":
            os.killpg(self._process.pid, how)
        else:
            self._process.kill()

    def _status(self, state: str) -> None:
        _write(self.folder / "status.json", {"state": state, "time": time.time()})


def start(
    experiment: Experiment, ranks: int, folder: Path | None = None, resume: bool = False
) -> Job:
    """Start a run of `ranks` ranks on this machine; it goes on while the caller does other work.

    folder: the run folder; a new temporary one by default. It must not hold a run, unless `resume`: then
    the run goes on from its snapshot. Raises SpecError for a folder that does not fit, and where MPI is
    missing; nothing is written then.
    """
    launcher = mpiexec()
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="dlhpc-run-"))
    held = (folder / "experiment.toml").exists()
    if held and not resume:
        raise SpecError(f"{folder}: holds a run already; resume it, or name another folder.")
    if resume and not held:
        raise SpecError(f"{folder}: holds no run to resume.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in (*folder.glob("error-*.json"), *folder.glob("rank-*.json")):
            old.unlink()
        (folder / "result.json").unlink(missing_ok=True)
        dump(experiment, folder / "experiment.toml")
        log = open(folder / "log.txt", "ab")  # noqa: SIM115
    except OSError as error:
        raise SpecError(f"{folder}: {error.strerror}.") from None
    command = [launcher, "-n", str(ranks), sys.executable, "-m", WORKER, str(folder), str(ranks)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **threads},
            start_new_session=os.name == "posix",
        )  # fmt: skip
    return Job(folder, process)


def mpiexec() -> str:
    """Return the environment's own mpiexec, else one on the PATH. Raises SpecError."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    if found is None:
        raise SpecError("There is no mpiexec here; `pip install mpi4py mpich` brings one.")
    return found


def _write(path: Path, table: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(table), encoding="utf-8")
    os.replace(temporary, path)
