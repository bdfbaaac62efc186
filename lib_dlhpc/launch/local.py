"""A run on this machine: mpiexec starts the ranks, and all they have to say comes back in a run folder.

experiment.toml   what is run              metrics.jsonl   loss and accuracy as they come
status.json       running, done ...        result.json     the end of a run that came through
timeline.npz      who did what, when       snapshot.npz    to go on from, or
snapshots.json    where versions go, which else are in snapshots/
log.txt           what the ranks printed   error-3.json    what went wrong on rank 3
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from lib_dlhpc.launch.mpi import command, environment
from lib_dlhpc.launch.origin import check_snapshots, settle_snapshots
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment, dump, load, to_tables

STATES = ("running", "done", "failed", "cancelled")
WORKER = "lib_dlhpc.train.worker"
GRACE = 5.0  # s that ranks have to end when they are asked to


class JobError(RuntimeError):
    """A run that did not come through; the text names rank and place."""


class Job:
    """A run that has been started: watch it, wait for it, cancel it."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder, self._process = folder, process
        self._cancelled, self._ended = False, ""
        self._status("running", pid=process.pid)

    @property
    def state(self) -> str:
        """One of STATES."""
        if self._process.poll() is None:
            return "running"
        return self._settled()

    def metrics(self) -> list[dict[str, Any]]:
        """Return what rank 0 has reported so far."""
        try:
            lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return []
        rows = []
        for line in lines[:-1]:  # the last may be half written
            with suppress(ValueError):  # as may one where a run was killed and went on
                rows.append(json.loads(line))
        return rows

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
        self._settled()

    def why(self) -> str:
        """Say which rank failed first, and where; the others are ended because of it."""
        errors = [json.loads(path.read_text("utf-8")) for path in self.folder.glob("error-*.json")]
        if errors:
            first = min(errors, key=lambda error: (error["echo"], error["time"]))
            at = [f"step {first['step']}"] if first["step"] >= 0 else []
            at += [f"layer {first['layer']}"] if first["layer"] else []
            place = f" ({', '.join(at)})" if at and "step" not in first["text"] else ""
            return f"rank {first['rank']}: {first['kind']}: {first['text']}{place}"
        log = (self.folder / "log.txt").read_text("utf-8", "replace")
        last = (log.strip() or "no output").splitlines()[-1]
        return f"mpiexec ended with status {self._process.returncode}: {last}"

    def _end(self, how: signal.Signals) -> None:
        if os.name == "posix":
            os.killpg(self._process.pid, how)
        else:
            self._process.kill()

    def _settled(self) -> str:
        """Return how an ended run ended; the first time, write it down."""
        if not self._ended:
            whole = self._process.returncode == 0 and (self.folder / "result.json").exists()
            self._ended = "done" if whole else "cancelled" if self._cancelled else "failed"
            self._status(self._ended)
        return self._ended

    def _status(self, state: str, **more: Any) -> None:
        _write(self.folder / "status.json", {"state": state, "time": time.time(), **more})


def start(
    experiment: Experiment,
    ranks: int,
    folder: Path | None = None,
    resume: bool = False,
    snapshot_every: str | int | None = None,
    origin: str | None = None,
) -> Job:
    """Start a run of `ranks` ranks on this machine; it goes on while the caller does other work.

    folder: the run folder; a new temporary one by default. It must not hold a run, unless `resume`: then
    the run goes on from its snapshot; then only [machine], [storage], [calibration], run.epochs and
    run.checkpoint_interval may differ from what the folder says. snapshot_every: steps, or "epoch": from
    one version in the run's snapshot store to the next. origin: "RUN@VERSION", at which the run begins: its
    versions are a branch in RUN's store. Raises SpecError for ranks below 1, for a folder that does not
    fit, and where MPI is missing; nothing is changed then.
    """
    if ranks < 1:
        raise SpecError(f"ranks = {ranks}: expected a whole number, at least 1.")
    worker = command(ranks, "-m", WORKER)
    try:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="dlhpc-run-"))
        _check_folder(experiment, folder, resume)
        done = (folder / "result.json").exists() and not (folder / "snapshot.npz").exists()
        check_snapshots(experiment, folder, resume, snapshot_every, origin, done)
        folder.mkdir(parents=True, exist_ok=True)
        log = open(folder / "log.txt", "ab")  # noqa: SIM115
        _lock(log, folder)
        for old in (*folder.glob("error-*.json"), *folder.glob("rank-*.json")):
            old.unlink()
        (folder / "result.json").unlink(missing_ok=True)
        settle_snapshots(folder, resume, snapshot_every, origin)
        dump(experiment, folder / "experiment.toml")
    except OSError as error:
        raise SpecError(f"{folder}: {error.strerror}.") from None
    with log:
        process = subprocess.Popen(
            [*worker, str(folder), str(ranks)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=environment(), start_new_session=os.name == "posix",
        )  # fmt: skip
    return Job(folder, process)


# Fields of [strategy] that say who does what: a snapshot holds whole tensors, so any of them may change.
LAYOUT = (
    "nodes", "devices_per_node", "batch", "data", "tensor", "pipeline", "spatial", "microbatches",
    "schedule", "chunks", "split", "sequence_parallel", "zero", "recompute", "offload", "allreduce",
    "overlap", "bucket",
)  # fmt: skip


def _check_folder(experiment: Experiment, folder: Path, resume: bool) -> None:
    held = (folder / "experiment.toml").exists()
    if held and not resume:
        raise SpecError(f"{folder}: holds a run already; resume it, or name another folder.")
    if resume and not held:
        raise SpecError(f"{folder}: holds no run to resume.")
    if resume:
        held_there = load(folder / "experiment.toml")
        mine, theirs = _what_lasts(experiment), _what_lasts(held_there)
        for section in ("model", "dataset", "strategy", "training", "run"):
            if section == "strategy":
                _check_batch(experiment, held_there, folder)
            if mine.get(section) != theirs.get(section):
                raise SpecError(
                    f"{folder}: holds a run with another [{section}]; resume it with its own"
                    f" {folder / 'experiment.toml'}."
                )


def _check_batch(experiment: Experiment, held: Experiment, folder: Path) -> None:
    before, now = int(held.global_batch), int(experiment.global_batch)
    if before == now:
        return
    unit = "replica" if experiment.strategy.replica > 1 else "device"
    raise SpecError(
        f"{folder}: its steps are of {before} samples, and these would be of {now}. Who has what part may change, the"
        f" samples of a step may not; set strategy.batch, which is that of one {unit}, so that it stays {before}."
    )


def _what_lasts(experiment: Experiment) -> dict[str, Any]:
    """Return what a run must keep from its start to its end: not how long it is, nor on whom it is shared out."""
    tables = to_tables(experiment)
    tables["run"] = {"seed": tables.get("run", {}).get("seed", 0)}
    strategy = tables.get("strategy", {})
    lasts = {name: value for name, value in strategy.items() if name not in LAYOUT}
    tables["strategy"] = lasts | {"global batch": int(experiment.global_batch)}
    return tables


def _lock(log: BinaryIO, folder: Path) -> None:
    """Refuse a folder in which a run is going on: its mpiexec holds the log open, and with it the lock."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # Windows has no such lock
        return
    try:
        flock(log, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        log.close()
        raise SpecError(
            f"{folder}: a run is going on there; wait for it, or end its mpiexec, whose pid is in status.json."
        ) from None


def _write(path: Path, table: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(table), encoding="utf-8")
    os.replace(temporary, path)
