"""`dlhpc submit notebook.ipynb` and `dlhpc submit program.py`: a job other than training."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lib_dlhpc.commands.experiment import change
from lib_dlhpc.spec.errors import SpecError

if TYPE_CHECKING:
    from lib_dlhpc.launch import BatchJob
    from lib_dlhpc.launch.task import Task

ENDINGS = (".ipynb", ".py")
PAUSE = 0.2  # s between two polls of a job
OF_A_RUN = ("resume", "snapshot_every", "origin", "sweep")  # options of experiments only


def is_task(options: argparse.Namespace) -> bool:
    """Whether a notebook or a program is submitted, not an experiment."""
    return Path(options.experiment or "").suffix in ENDINGS


def task_of(options: argparse.Namespace) -> "Task":
    """Return the task of a command line. Raises SpecError."""
    from lib_dlhpc.launch.notebook import notebook
    from lib_dlhpc.launch.task import program

    path = options.experiment
    for name in OF_A_RUN:
        if getattr(options, name):
            raise SpecError(f"{path}: --{name.replace('_', '-')} is for an experiment.")
    if Path(path).suffix == ".py":
        if options.set:
            raise SpecError(f"{path}: --set is for a notebook; a program's arguments follow it.")
        return program(path, *options.words)
    if options.words:
        raise SpecError(f"{path}: a notebook takes --set NAME=VALUE, not {options.words[0]!r}.")
    return notebook(path, dict(change(text) for text in options.set))


def follow(job: "BatchJob") -> int:
    """Wait until the job has ended; print its output as it comes. Ctrl-C leaves the job running."""
    from lib_dlhpc.launch.jobs import ENDS
    from lib_dlhpc.launch.task import printed

    state, seen = "", 0
    try:
        while state not in ENDS:
            if (now := job.state) != state:
                state = now
                print(f"dlhpc: {job.label} is {state}.", file=sys.stderr, flush=True)
            text = printed(job.folder)
            print(text[seen:], end="", flush=True)
            seen = len(text)
            if state not in ENDS:
                time.sleep(PAUSE)
    except KeyboardInterrupt:
        message = f"Stopped waiting; {job.label} continues. dlhpc jobs cancel {job.folder} ends it."
        raise KeyboardInterrupt(message) from None
    if state == "done":
        return 0
    print(f"dlhpc: {job.why()}", file=sys.stderr)
    return 1
