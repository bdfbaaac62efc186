"""Notebook cells on MPI ranks: an engine on each rank executes cells, by `%%px` or a client.

crew = engines(4)                                    or engines(4, to="slurm", site=...)
%%px                                                 at the head of a cell: on every rank
from mpi4py import MPI; MPI.COMM_WORLD.rank
crew.end()

with engines(4) as client: client[:].apply_sync(...)     in a program, or in a single cell

Engines are a job like any other; they end with it, and when the notebook's kernel is killed.
"""

import atexit
import shutil
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from lib_dlhpc.launch import folder as run_folder
from lib_dlhpc.launch.engines_job import CLIENT, LINE, keep_alive
from lib_dlhpc.launch.folder import JobError
from lib_dlhpc.launch.jobs import ENDS, WORK, BatchJob
from lib_dlhpc.launch.site import Site, load_site
from lib_dlhpc.launch.submit import submit_task
from lib_dlhpc.launch.task import Task

PAUSE = 0.1  # s between two polls
GRACE = 60.0  # s that a job has to end after its connection closes


class Engines:
    """Running engines. client: of ipyparallel, its engine n is MPI rank n; job: their job."""

    def __init__(self, job: BatchJob, own_folder: bool) -> None:
        self.job = job
        self.client: Any = None
        self._own_folder = own_folder
        self._connection: socket.socket | None = None
        self._ended = False
        atexit.register(self.end)

    def __enter__(self) -> Any:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.end()

    def __repr__(self) -> str:
        state = "ended" if self._ended else self.job.state
        return f"Engines({self.job.ticket.ranks} ranks, {self.job.label}, {state})"

    def end(self) -> None:
        """End the engines, and return when they have ended. Pending results are lost.

        Has no effect on ended engines.
        """
        if self._ended:
            return
        atexit.unregister(self.end)
        if self.client is not None:
            self.client.close()
        if self._connection is not None:
            self._connection.close()
            until = time.monotonic() + GRACE
            while self.job.state not in ENDS and time.monotonic() < until:
                time.sleep(PAUSE)
        self.job.cancel()
        if self._own_folder and self.job.state in ("done", "cancelled"):
            shutil.rmtree(self.job.folder, ignore_errors=True)
        self._ended = True

    def _connect(self) -> None:
        """Connect, and wait until all engines have registered. Raises JobError if they end before."""
        import ipyparallel

        work, state = self.job.folder / WORK, ""
        while not ((work / LINE).exists() and (work / CLIENT).exists()):
            state = self._poll(state)
        table = run_folder.read(work / LINE)
        self._connection = socket.create_connection((table["host"], table["port"]), GRACE)
        self._connection.sendall(table["word"].encode())
        keep_alive(self._connection)
        self.client = ipyparallel.Client(str(work / CLIENT), timeout=GRACE)
        while len(self.client.ids) < self.job.ticket.ranks:
            state = self._poll(state)
        if "IPython" in sys.modules and sys.modules["IPython"].get_ipython():
            self.client.direct_view(block=True).activate()  # %px and %%px, blocking, with output

    def _poll(self, before: str) -> str:
        """Poll the job's state once; print it where the wait may be long."""
        if (state := self.job.state) in ENDS:
            raise JobError(self.job.why())
        if state != before and self.job.ticket.site.scheduler != "local":
            print(self.job.why(), file=sys.stderr, flush=True)
        time.sleep(PAUSE)
        return state


def engines(
    ranks: int,
    to: str | None = None,
    site: Site | str | Path | None = None,
    folder: str | Path | None = None,
    time_limit: float | str | None = None,
) -> Engines:
    """Start an engine on each of `ranks` MPI ranks, and return when all are connected; `%%px` then uses them.

    to, site, time_limit: see `submit`; site may be a name or a file. folder: by default a private temporary one below
    the current folder. Raises SpecError for an illegal request, JobError if the engines do not start.
    """
    if site is not None and not isinstance(site, Site):
        site = load_site(site)
    job = submit_task(Task("engines"), ranks, to, site, folder, time_limit)
    crew = Engines(job, folder is None)
    try:
        crew._connect()
    except BaseException:
        with suppress(JobError):
            crew.end()
        raise
    return crew
