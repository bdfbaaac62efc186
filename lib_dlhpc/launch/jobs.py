"""Jobs: what was handed to a batch system, how it is, and its end; found again by its run folder.

job.json      what was handed in, and the scheduler's name for it     job/   its script and output
status.json   what the job says of itself, then how it ended
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

from lib_dlhpc.launch import folder as run_folder
from lib_dlhpc.launch import schedulers
from lib_dlhpc.launch.folder import LOG, RESULT, STATUS, JobError, why_failed
from lib_dlhpc.launch.limits import exceeds
from lib_dlhpc.launch.site import Site
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.units import format_quantity as show

STATES = ("queued", "running", "done", "failed", "cancelled", "out of memory", "out of time")
ENDS = STATES[2:]
TICKET, MARK = "job.json", "cancelled.json"  # MARK: someone has asked for its end
WORK = "job"  # a private folder for the script
DETACH = b"."  # to a job on this machine: whoever submitted it ends, and was not killed
PAUSE = 0.1  # s between two looks at the folder
SOON = 0.5  # s between two questions to a scheduler about a job that is about to end
GRACE = 10.0  # s that a job on this machine has to end when it is asked to


@dataclass(frozen=True)
class Ticket:
    """What was handed in. token: drawn for this submission; native: the scheduler's name for it, once known.

    array, task: what the job array is called and the number in it, where the job is a task of one.
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
        """What the job is called in the scheduler: nothing of the experiment, so nothing to quote."""
        return self.array or f"dlhpc-{self.token}"


def read_ticket(folder: Path) -> Ticket:
    """Return what was handed in to run in a folder. Raises SpecError."""
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
    """Write what is handed in, for no one else to read."""
    run_folder.write(folder / TICKET, asdict(ticket), private=True)


def attach(folder: str | Path) -> "BatchJob":
    """Return the job of a run folder, submitted by whomever and whenever. Raises SpecError."""
    return BatchJob(Path(folder))


class BatchJob:
    """A job in a batch system, or on this machine: watch it, wait for it, cancel it. It needs no one who waits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ticket = read_ticket(folder)
        self._asked, self._answer = -1e9, schedulers.Answer(None)

    @property
    def native_id(self) -> str:
        """The scheduler's name for the job, "" while it has none."""
        if not self.ticket.native:
            ticket = read_ticket(self.folder)
            if ticket.token == self.ticket.token:
                self.ticket = ticket
        return self.ticket.native

    @property
    def label(self) -> str:
        """What to call the job in a sentence."""
        return f"{self.ticket.site.scheduler} job {self.native_id or self.ticket.name}"

    @property
    def state(self) -> str:
        """One of STATES."""
        status = run_folder.read(self.folder / STATUS)
        if status.get("settled"):
            return str(status["state"])
        reported = str(status.get("state", "queued"))
        if self.ticket.site.scheduler == "local":
            answer = schedulers.Answer("running" if self._alive() else "")
            if answer.state:
                return reported if reported not in ENDS else "running"
            reported = run_folder.read(self.folder / STATUS).get("state", reported)  # its last word
        else:
            answer = self._ask(reported in ENDS or (self.folder / MARK).exists())
        if answer.state is None:  # nobody answers: what was known holds
            return reported if reported not in ENDS else "running"
        if answer.state in ("queued", "running"):
            return "running" if reported != "queued" else answer.state
        return self._settle(_end(answer.state, reported, (self.folder / MARK).exists()), answer.reason)

    def metrics(self) -> list[dict[str, Any]]:
        """Return what rank 0 has reported so far."""
        return run_folder.metrics(self.folder)

    def wait(self) -> dict[str, Any]:
        """Return the result when the job has ended. Raises JobError if it did not come through."""
        while (state := self.state) not in ENDS:
            time.sleep(PAUSE)
        if state != "done":
            raise JobError(self.why())
        result: dict[str, Any] = json.loads((self.folder / RESULT).read_text("utf-8"))
        return result

    def cancel(self) -> None:
        """End the job, queued or running, and return when it has ended; what the last snapshot holds stays."""
        if self.state in ENDS:
            return
        run_folder.write(self.folder / MARK, {"time": time.time()}, private=True)
        if self.ticket.site.scheduler == "local":
            self._end_here()
        elif self._native():
            schedulers.end(self.ticket.site.scheduler, self._native())
        until = time.monotonic() + schedulers.PATIENCE
        while self.state not in ENDS and time.monotonic() < until:
            time.sleep(PAUSE)

    def why(self) -> str:
        """Say in a sentence how the job is; of a failed one which rank failed first, and where."""
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
        again = f" What was saved goes on with --resume {self.folder}." if saved else ""
        if state == "out of time":
            limit = self.ticket.time_limit
            length = f" of {show(limit, 's')}" if limit else ""
            return f"The run was ended at its time limit{length}.{again}"
        detail = self._failed(status, reason)
        return f"The run had too little memory: {detail}" if state == "out of memory" else detail

    def _stuck(self) -> str:
        """Say what to do about a job that waits for what its queue does not have."""
        if not exceeds(self.ticket.site.scheduler, self._answer.reason):
            return ""
        return (
            " It asks for more than its queue or account allows, and waits until that is changed:"
            f" dlhpc jobs cancel {self.folder}, and ask for less."
        )

    def _failed(self, status: dict[str, Any], reason: str) -> str:
        if run_folder.errors(self.folder) or "exit" in status:
            return why_failed(self.folder, status.get("exit"))
        lines = [_last(path) for path in (self.folder / WORK / "err.txt", self.folder / LOG)]
        last = next(filter(None, lines), "no output")
        detail = f" ({reason})" if reason and reason != "None" else ""
        return f"{self.label} ended without a word of its run{detail}: {last}"

    def _native(self) -> str:
        """Return the scheduler's name; if the submitter was ended before it wrote it down, ask for it."""
        if not self.native_id and self.ticket.site.scheduler != "local":
            native = schedulers.find(self.ticket.site.scheduler, self.ticket.name, self.ticket.task)
            if native:
                self.ticket = replace(self.ticket, native=native)
                write_ticket(self.folder, self.ticket)
        return self.ticket.native

    def _ask(self, soon: bool) -> schedulers.Answer:
        """Return the scheduler's answer, at most as old as is fair to ask for: the longer it lasts, the rarer."""
        age = time.time() - self.ticket.submitted
        pause = SOON if soon else min(max(age / 20, 1.0), 15.0)
        if time.monotonic() - self._asked > pause:
            native = self._native()
            if native:
                self._answer = schedulers.ask(self.ticket.site.scheduler, native)
            else:
                lost = schedulers.Answer("", "it was never handed in")
                self._answer = schedulers.Answer(None) if self._alive() else lost
            self._asked = time.monotonic()
        return self._answer

    def _settle(self, state: str, reason: str) -> str:
        """Write down how the job ended, for a scheduler forgets."""
        status = run_folder.read(self.folder / STATUS)
        if read_ticket(self.folder).token == self.ticket.token and not status.get("settled"):
            known = {"time": time.time(), "reason": reason, **status}
            end = {**known, "state": state, "settled": True}
            run_folder.write(self.folder / STATUS, end, private=True)
        return state

    def _alive(self) -> bool:
        """Whether someone holds the log: the job on this machine, its ranks, or who submits."""
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
    """Return how a job ended, of what the scheduler and the job itself say."""
    if reported == "done" or (reported == "out of memory" and scheduler != "cancelled"):
        return reported
    if scheduler in ("cancelled", "out of memory", "out of time"):
        return scheduler
    if reported in ("cancelled", "out of time"):
        return reported
    return "cancelled" if cancelled else "failed"


def _is_ours(pid: int, token: str) -> bool:
    """Whether a process is the job's, where that can be detail: process ids are used again."""
    try:
        return token.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not Path("/proc/self").exists()


# Jobs on this machine whose parent is this process; each has a pipe that tells it when we are killed.
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
    """Take a run folder into the list of this user's jobs."""
    with suppress(OSError):  # a list is a comfort only
        place = _place()
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        run_folder.write(place / f"{token}.json", {"folder": str(folder)}, private=True)


def remembered() -> Iterator[BatchJob]:
    """Yield this user's jobs, the oldest first; those whose folder is gone, or another's now, are forgotten."""
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
