"""The program of a job, on its first node: python -m lib_dlhpc.launch.batch FOLDER TOKEN.

It starts the ranks (or a `task`), ends them at the time limit or on a signal, and records how the run ended, since
schedulers forget. On this machine it also ends them if the submitting process is killed.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lib_dlhpc.launch import folder as run_folder
from lib_dlhpc.launch.folder import LOG, RESULT, STATUS
from lib_dlhpc.launch.jobs import DETACH, MARK, Ticket, read_ticket, write_ticket
from lib_dlhpc.launch.mpi import Overdue, command, environment
from lib_dlhpc.launch.systems import NAMES, system
from lib_dlhpc.launch.task import ONCE, PROGRAM, Task, done, read_task
from lib_dlhpc.lifetime import owned

WORKER = "lib_dlhpc.training.worker"
TICK = 0.1  # s between two polls
NEAR = 60.0  # s: a signal this close to the time limit counts as the limit


class Stop:
    """The reason to end the ranks, written to the status file at once: the scheduler may leave little time."""

    def __init__(self, folder: Path, limit: float | None) -> None:
        self.folder, self.limit = folder, limit
        self.began, self.state = time.monotonic(), ""

    def asked(self, *_: Any) -> None:
        """Handle a signal: from a scheduler at the time limit, or from a cancellation."""
        near = self.limit is not None and time.monotonic() - self.began > self.limit - NEAR
        late = near and not (self.folder / MARK).exists()
        self.now("out of time" if late else "cancelled")

    def now(self, state: str, **more: Any) -> None:
        """End the run; the first reason counts."""
        if not self.state:
            self.state = state
            _write_status(self.folder, state, **more)

    @property
    def due(self) -> bool:
        """Whether the time limit is reached."""
        return self.limit is not None and time.monotonic() - self.began > self.limit


def main(folder: Path, token: str) -> int:
    """Run the job; return the launcher's exit status, or 1 for a run without a result."""
    os.umask(0o077)
    ticket = read_ticket(folder)
    if ticket.token != token:
        print(f"{folder}: a newer job was submitted there; this one exits.", file=sys.stderr)
        return 3
    here = ticket.site.scheduler == "local"
    if here:  # standard output is the log, locked by the submitter
        log = sys.stdout.buffer
    else:
        log = open(folder / LOG, "ab")  # noqa: SIM115
        run_folder.lock(log, folder)
        _write_native(folder, ticket)
    run_folder.clear(folder)
    stop = Stop(folder, ticket.time_limit)
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), stop.asked)
    _write_status(folder, "running", pid=os.getpid())
    if here:
        threading.Thread(target=_watch_submitter, args=(stop,), daemon=True).start()
    kills, task = _memory_kills(), read_task(folder)
    process = owned.start(
        [*_words(ticket, task), str(folder), str(ticket.ranks)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment(),
        start_new_session=os.name == "posix",
    )
    status = wait_for_ranks(process, stop, Overdue(folder))
    owned.ended(process)
    if status == 0 and task is not None and task.kind == "program":
        done(folder)
    if not stop.state:
        whole = status == 0 and (folder / RESULT).exists()
        short = not whole and _short_of_memory(folder, kills)
        state = "done" if whole else "out of memory" if short else "failed"
        more = {} if whole else {"reason": run_folder.why_failed(folder, status)}
        _write_status(folder, state, exit=status, **more)
        return 0 if whole else status or 1
    return 128 + signal.SIGTERM


def _words(ticket: Ticket, task: Task | None) -> list[str]:
    """Return the command of a job, up to the run folder and the number of ranks."""
    if task is None:
        return launch_words(ticket)
    if task.kind in ONCE:
        return [sys.executable, "-m", ONCE[task.kind]]
    if ticket.ranks == 1:  # needs no MPI
        return [sys.executable, "-m", PROGRAM]
    return launch_words(ticket, PROGRAM)


def launch_words(ticket: Ticket, module: str = WORKER) -> list[str]:
    """Return the command that starts a Python module on the ranks of a job, up to the module's arguments."""
    if ticket.site.launcher == "mpiexec":
        return command(ticket.ranks, "-m", module)
    number = str(ticket.ranks)
    start = {
        "mpirun": ["mpirun", "-n", number],
        "srun": ["srun", "--mpi=pmi2", "-n", number],
        "ibrun": ["ibrun", "-n", number, "-o", "0"],  # from the first slot on
        "jsrun": ["jsrun", "-n", number],
    }[ticket.site.launcher]
    return [*start, sys.executable, "-m", module]


def wait_for_ranks(process: "subprocess.Popen[bytes]", stop: Stop, overdue: Overdue) -> int:
    """Wait until the ranks have ended, or end them; return the launcher's exit status."""
    while True:
        try:
            return process.wait(TICK)
        except subprocess.TimeoutExpired:
            if stop.due:
                stop.now("out of time", reason="its own time limit")
            if stop.state or overdue():
                owned.end(process)


def _watch_submitter(stop: Stop) -> None:
    """End the run if the submitter is killed, which closes its end of the pipe without DETACH."""
    if os.read(0, 1) != DETACH:
        stop.now("cancelled", by="owner", reason="The submitting process was killed.")


def _write_native(folder: Path, ticket: Ticket) -> None:
    """Record the scheduler's job id, in case the submitter ended before it could."""
    variables = (system(name).job_id for name in NAMES)
    native = next((os.environ[name] for name in variables if name in os.environ), "")
    if ticket.task is not None:  # the id of one task may be that of the whole array
        native = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{ticket.task}"
    if native and not ticket.native:
        write_ticket(folder, replace(ticket, native=native))


def _short_of_memory(folder: Path, before: int) -> bool:
    """Whether a rank ran out of memory: it raised MemoryError, or the kernel of this node killed it."""
    failed = run_folder.errors(folder)
    if any(error["kind"] in ("MemoryError", "_ArrayMemoryError") for error in failed[:1]):
        return True
    killed = any(error["kind"] == "Killed" and "SIGKILL" in error["text"] for error in failed)
    return killed and _memory_kills() > before


def _memory_kills() -> int:
    """Return the number of out-of-memory kills by the kernel of this node (Linux)."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _write_status(folder: Path, state: str, **more: Any) -> None:
    table = {"state": state, "time": time.time(), **more}
    run_folder.write(folder / STATUS, table, private=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
