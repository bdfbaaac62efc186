"""Where chunks are done."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib_dlhpc.errors import SpecError

if TYPE_CHECKING:
    from lib_dlhpc.launch import Site
    from lib_dlhpc.scale_out.progress import Progress

WORKERS = ("here", "processes", "dask")
TASKS = 16  # jobs of a batch system, without another number


class LostError(RuntimeError):
    """Workers were lost, or jobs failed, before all chunks were done."""


@dataclass(frozen=True)
class Place:
    """Where chunks are done.

    engine: "here", "processes", "dask", "local" or a batch system. detail: workers, or the address of a Dask scheduler;
    "": a worker for each core. folder: holds results of chunks, seen by all workers; finished ones are not done again.
    site, time_limit, tasks: of a batch system. progress: reports how many chunks are finished.
    """

    engine: str = "here"
    detail: str = ""
    folder: Path | None = None
    site: "Site | None" = None
    time_limit: float | str | None = None
    tasks: int = TASKS
    progress: "Progress | None" = None


HERE = Place()


def place(on: str, folder: Path | None = None, **options: Any) -> Place:
    """Return the place of a text such as "here", "processes:2", "dask:tcp://node1:8786" or "slurm".

    folder, options: see Place. Raises SpecError.
    """
    engine, _, detail = on.partition(":")
    if engine not in WORKERS or (detail and engine == "here"):
        from lib_dlhpc.launch.site import SCHEDULERS  # launch imports much

        if engine not in SCHEDULERS or detail:
            legal = ", ".join((*WORKERS, *SCHEDULERS))
            raise SpecError(f"--on {on}: expected one of {legal}; processes:2, dask:ADDRESS.")
    if engine == "processes" and detail and not (detail.isdigit() and int(detail)):
        raise SpecError(f"--on {on}: expected a number of processes, at least 1.")
    if engine not in WORKERS and folder is None:
        raise SpecError(f"--on {on} needs --work FOLDER, which all nodes see.")
    if options.get("tasks", TASKS) < 1:
        raise SpecError(f"--tasks {options['tasks']}: expected a whole number, at least 1.")
    return Place(engine, detail, folder and Path(os.path.abspath(folder)), **options)
