"""A task: a job other than training: a program on ranks, a notebook, engines for one.

task.json of the run folder, readable by the owner only, holds the user's input. The job script and the launcher get
only the folder's name, so the input never reaches a shell.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import folder as run_folder
from lib_dlhpc.launch.folder import LOG, RESULT

TASK = "task.json"
PROGRAM = "lib_dlhpc.launch.program"  # on every rank
ONCE = {  # started once, on the first node
    "notebook": "lib_dlhpc.launch.execute",
    "engines": "lib_dlhpc.launch.engines_job",
}


@dataclass(frozen=True)
class Task:
    """kind: "program" or one of ONCE. path: the file. arguments: of a program. parameters: of a notebook."""

    kind: str
    path: str = ""
    arguments: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)


def program(path: str | Path, *arguments: str) -> Task:
    """Return `python PATH ARGUMENTS` on all ranks as a task. Raises SpecError for a missing file."""
    if not Path(path).is_file():
        raise SpecError(f"{path}: no such program.")
    return Task("program", os.path.abspath(path), tuple(map(str, arguments)))


def ready(task: Task, folder: Path) -> BinaryIO:
    """Prepare a folder for a task; return its log, open and locked. Raises SpecError if it holds a run."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _holds_a_run(folder):
            log = open(folder / LOG, "ab")  # noqa: SIM115
            run_folder.lock(log, folder)
            if not _holds_a_run(folder):  # checked again under the lock
                run_folder.write(folder / TASK, asdict(task), private=True)
                return log
            log.close()
    except OSError as error:
        raise SpecError(f"{folder}: {error.strerror}.") from None
    raise SpecError(f"{folder}: holds a run already; name another folder.")


def read_task(folder: Path) -> Task | None:
    """Return the task of a run folder; None if an experiment is trained there. Raises SpecError."""
    table = run_folder.read(folder / TASK)
    if not table:
        return None
    return Task(**{**table, "arguments": tuple(table["arguments"])})


def printed(folder: Path) -> str:
    """Return a task's output so far."""
    try:
        return (folder / LOG).read_text("utf-8", "replace")
    except OSError:
        return ""


def done(folder: Path, **more: Any) -> None:
    """Record that a task has completed."""
    run_folder.write(folder / RESULT, more, private=True)


def failed(
    folder: Path, where: str, kind: str, text: str, rank: int = 0, echo: bool = False
) -> None:
    """Record an error, and where. echo: caused by another rank's failure."""
    place = {"rank": rank, "where": where, "step": -1, "layer": ""}
    error = {**place, "kind": kind, "text": text, "echo": echo, "time": time.time()}
    run_folder.write(folder / f"error-{rank}.json", error, private=True)


def _holds_a_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in (TASK, "experiment.toml"))
