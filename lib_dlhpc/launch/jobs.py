"""Batch jobs: submission, state and end of a job, identified by its run folder.

job.json      the submission, and the scheduler's job id     job/   its script and output
status.json   the job's own status, then its final state
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import folder as run_folder
from lib_dlhpc.launch import schedulers
from lib_dlhpc.launch.energy import JobEnergy
from lib_dlhpc.launch.folder import LOG, RESULT, STATUS, JobError, why_failed
from lib_dlhpc.launch.limits import exceeds
from lib_dlhpc.launch.site import Site
from lib_dlhpc.launch.systems import Answer, system
from lib_dlhpc.launch.systems.base.system import PATIENCE
from lib_dlhpc.spec.units import format_quantity as show

STATES = ("queued", "running", "done", "failed", "cancelled", "out of memory", "out of time")
ENDS = STATES[2:]
TICKET, MARK = "job.json", "cancelled.json"  # MARK: cancellation was requested
WORK = "job"  # a private folder for the script
DETACH = b"."  # to a job on this machine: the submitter exits normally
PAUSE = 0.1  # s between two polls of the folder
SOON = 0.5  # s between two scheduler queries for a job about to end
GRACE = 10.0  # s that a job on this machine has to end after a signal


@dataclass(frozen=True)
class Ticket:
    """One submission. token: its random id; native: the scheduler's job id, once known.

    array, task: name and index of the job array, if the job is a task of one.
    """

    token: str
    site: Site
    ranks: int
    time_limit: float | None
    submitted: float
    native: str = ""
    array: str = ""
    task: int | None = None

    @property
    def name(self) -> str:
        """The job's name in the scheduler: nothing from the experiment, so nothing to quote."""
        return self.array or f"dlhpc-{self.token}"


def read_ticket(folder: Path) -> Ticket:
    """Return the submission of a run folder. Raises SpecError."""
    path = Path(folder) / TICKET
    table = run_folder.read(path)
    if not table:
        there = "holds no job" if path.parent.is_dir() else "no such run folder"
        raise SpecError(f"{folder}: {there}; dlhpc submit makes one.")
    try:
        return Ticket(**{**table, "site": Site(**table["site"])})
    except (TypeError, KeyError) as error:
        raise SpecError(f"{path}: cannot be read: {error}.") from None


def write_ticket(folder: Path, ticket: Ticket) -> None:
    """Write the submission, readable by the owner only."""
    run_folder.write(folder / TICKET, asdict(ticket), private=True)


def attach(folder: str | Path) -> "BatchJob":
    """Return the job of a run folder, from any submitting process. Raises SpecError."""
    return BatchJob(Path(folder))


class BatchJob:
    """A job in a batch system, or on this machine: watch it, wait for it, cancel it. It runs without a waiting
    process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ticket = read_ticket(folder)
        self._asked, self._answer = -1e9, Answer(None)

    @property
    def native_id(self) -> str:
        """The scheduler's job id, "" while unknown."""
        if not self.ticket.native:
            ticket = read_ticket(self.folder)
            if ticket.token == self.ticket.token:
                self.ticket = ticket
        return self.ticket.native

    @property
    def label(self) -> str:
        """The job's name in messages."""
        return f"{self.ticket.site.scheduler} job {self.native_id or self.ticket.name}"

    @property
    def state(self) -> str:
        """One of STATES."""
        status = run_folder.read(self.folder / STATUS)
        if status.get("settled"):
            return str(status["state"])
        reported = str(status.get("state", "queued"))
        if self.ticket.site.scheduler == "local":
            answer = Answer("running" if self._alive() else "")
            if answer.state:
                return reported if reported not in ENDS else "running"
        else:
            answer = self._ask(reported in ENDS or (self.folder / MARK).exists())
        if answer.state is None:  # no answer: the last known state holds
            return reported if reported not in ENDS else "running"
        if answer.state in ("queued", "running"):
            return "running" if reported != "queued" else answer.state
        # The job may have ended since its status was read: its last words count.
        reported = str(run_folder.read(self.folder / STATUS).get("state", reported))
        return self._settle(
            _end(answer.state, reported, (self.folder / MARK).exists()), answer.reason
        )

    def metrics(self) -> list[dict[str, Any]]:
        """Return rank 0's metrics so far."""
        return run_folder.metrics(self.folder)

    def wait(self) -> dict[str, Any]:
        """Wait for the end of the job; return its result. Raises JobError if it failed."""
        while (state := self.state) not in ENDS:
            time.sleep(PAUSE)
        if state != "done":
            raise JobError(self.why())
        result: dict[str, Any] = json.loads((self.folder / RESULT).read_text("utf-8"))
        return result

    def cancel(self) -> None:
        """Cancel the job, queued or running, and return when it has ended; its last snapshot remains."""
        if self.state in ENDS:
            return
        run_folder.write(self.folder / MARK, {"time": time.time()}, private=True)
        if self.ticket.site.scheduler == "local":
            self._end_here()
        elif self._native():
            schedulers.end(self.ticket.site.scheduler, self._native())
        until = time.monotonic() + PATIENCE
        while self.state not in ENDS and time.monotonic() < until:
            time.sleep(PAUSE)

    def why(self) -> str:
        """Return the job's state in a sentence; for a failed job, which rank failed first, and where."""
        state, status = self.state, run_folder.read(self.folder / STATUS)
        reason = str(status.get("reason") or self._answer.reason)
        if state == "queued":
            detail = f": {reason}." if reason not in ("", "None") else "."
            return f"{self.label} is queued{detail}{self._stuck()}"
        if state == "running":
            steps = [row for row in self.metrics() if "step" in row]
            far = f": step {steps[-1]['step']:,}, epoch {steps[-1]['epoch']:.1f}" if steps else ""
            return f"{self.label} is running{far}."
        if state == "done":
            return f"{self.label} is done."
        if state == "cancelled":
            return "The run was cancelled." + (f" {reason}" if status.get("by") else "")
        saved = (self.folder / "snapshot.npz").exists() or (self.folder / "snapshots").is_dir()
        again = f" Resume from its snapshot: --resume {self.folder}." if saved else ""
        if state == "out of time":
            limit = self.ticket.time_limit
            length = f" of {show(limit, 's')}" if limit else ""
            return f"The run was ended at its time limit{length}.{again}"
        detail = self._failed(status, reason)
        return f"The run had too little memory: {detail}" if state == "out of memory" else detail

    def energy(self) -> JobEnergy | None:
        """Return the J of an ended job and of its steps, by the scheduler's accounting; None where unknown.

        They are recorded beside the final state, since schedulers forget.
        """
        scheduler = self.ticket.site.scheduler
        if self.state not in ENDS or scheduler == "local" or not self._native():
            return None
        status = run_folder.read(self.folder / STATUS)
        if "joules" in status:
            return JobEnergy(status["joules"], status.get("steps_joules", {}))
        found = system(scheduler).energy(self._native())
        if found is not None:
            more = {"joules": found.joules, "steps_joules": found.steps}
            run_folder.write(self.folder / STATUS, {**status, **more}, private=True)
        return found

    def _stuck(self) -> str:
        """Return advice for a job that its queue can never start."""
        if not exceeds(self.ticket.site.scheduler, self._answer.reason):
            return ""
        return (
            " It requests more than its queue or account allows, and waits until that changes:"
            f" dlhpc jobs cancel {self.folder}, and request less."
        )

    def _failed(self, status: dict[str, Any], reason: str) -> str:
        if run_folder.errors(self.folder) or "exit" in status:
            return why_failed(self.folder, status.get("exit"))
        lines = [_last(path) for path in (self.folder / WORK / "err.txt", self.folder / LOG)]
        last = next(filter(None, lines), "no output")
        detail = f" ({reason})" if reason and reason != "None" else ""
        return f"{self.label} exited without writing a status file{detail}: {last}"

    def _native(self) -> str:
        """Return the scheduler's job id; query it if the submitter ended before recording it."""
        if not self.native_id and self.ticket.site.scheduler != "local":
            native = system(self.ticket.site.scheduler).find(self.ticket.name, self.ticket.task)
            if native:
                self.ticket = replace(self.ticket, native=native)
                write_ticket(self.folder, self.ticket)
        return self.ticket.native

    def _ask(self, soon: bool) -> Answer:
        """Return the scheduler's answer, cached to limit the query rate: long jobs are queried less often."""
        age = time.time() - self.ticket.submitted
        pause = SOON if soon else min(max(age / 20, 1.0), 15.0)
        if time.monotonic() - self._asked > pause:
            native = self._native()
            if native:
                self._answer = schedulers.ask(self.ticket.site.scheduler, native)
            else:
                lost = Answer("", "it was never submitted")
                self._answer = Answer(None) if self._alive() else lost
            self._asked = time.monotonic()
        return self._answer

    def _settle(self, state: str, reason: str) -> str:
        """Record the final state, since schedulers forget."""
        status = run_folder.read(self.folder / STATUS)
        if read_ticket(self.folder).token == self.ticket.token and not status.get("settled"):
            known = {"time": time.time(), "reason": reason, **status}
            end = {**known, "state": state, "settled": True}
            run_folder.write(self.folder / STATUS, end, private=True)
        return state

    def _alive(self) -> bool:
        """Whether a process holds the log: the job on this machine, its ranks, or the submitter."""
        _reap(self.ticket.token)
        try:
            return run_folder.held(self.folder)
        except ImportError:  # Windows has no such lock
            return _runs_on_windows(self.native_id)

    def _end_here(self) -> None:
        pid = int(self.native_id or 0)
        for how in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            until = time.monotonic() + GRACE
            if pid and _is_ours(pid, self.ticket.token):
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
            while self._alive() and time.monotonic() < until:
                time.sleep(PAUSE / 4)


def _end(scheduler: str, reported: str, cancelled: bool) -> str:
    """Return the final state from the scheduler's and the job's own reports."""
    if reported == "done" or (reported == "out of memory" and scheduler != "cancelled"):
        return reported
    if scheduler in ("cancelled", "out of memory", "out of time"):
        return scheduler
    if reported in ("cancelled", "out of time"):
        return reported
    return "cancelled" if cancelled else "failed"


def _is_ours(pid: int, token: str) -> bool:
    """Whether a process is the job's, where that can be checked: process ids are reused."""
    try:
        return token.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not Path("/proc/self").exists()


# Jobs on this machine whose parent is this process; each has a pipe that closes when we are killed.
CHILDREN: dict[str, "subprocess.Popen[bytes]"] = {}


def _reap(token: str) -> None:
    if token in CHILDREN:
        CHILDREN[token].poll()


def _runs_on_windows(pid: str) -> bool:
    import psutil  # type: ignore[import-untyped, unused-ignore]

    return bool(pid) and bool(psutil.pid_exists(int(pid)))


def _last(path: Path) -> str:
    with suppress(OSError):
        lines = path.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""
    return ""


def remember(folder: Path, token: str) -> None:
    """Add a run folder to the list of this user's jobs."""
    with suppress(OSError):  # the list is optional
        place = _place()
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        run_folder.write(place / f"{token}.json", {"folder": str(folder)}, private=True)


def remembered() -> Iterator[BatchJob]:
    """Yield this user's jobs, the oldest first; drop those whose folder is gone or reused."""
    found = []
    for path in _place().glob("*.json"):
        try:
            job = attach(run_folder.read(path).get("folder", ""))
        except SpecError:
            job = None
        if job is None or job.ticket.token != path.stem:
            with suppress(OSError):
                path.unlink()
        else:
            found.append(job)
    yield from sorted(found, key=lambda job: job.ticket.submitted)


def _place() -> Path:
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "dlhpc" / "jobs"
