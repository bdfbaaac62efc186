"""Programs and ranks that end when they are asked to, from a page with a button Cancel."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from subprocess import CompletedProcess, TimeoutExpired
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.runner import Cancelled
from lib_dlhpc.launch import mpi
from lib_dlhpc.launch.local import JobError
from lib_dlhpc.lifetime import owned

PAUSE = 0.05  # s between two looks


def to_its_end(words: Sequence[str], stop: threading.Event, patience: float, **options: Any) -> int:
    """Run a program in a session of its own and return its exit code; nothing of it goes on afterwards.

    Raises Cancelled as soon as `stop` is set, TimeoutExpired after `patience` s, and OSError where it cannot be
    started. options: of subprocess.Popen.
    """
    alone, until = os.name == "posix", time.monotonic() + patience
    process = owned.start(words, stdin=subprocess.DEVNULL, start_new_session=alone, **options)
    try:
        while process.poll() is None:
            if stop.wait(PAUSE):
                raise Cancelled
            if time.monotonic() > until:
                raise TimeoutExpired(list(words), patience)
    finally:
        owned.end(process)
    return int(process.returncode)


def stoppable(stop: threading.Event) -> Callable[..., CompletedProcess[str]]:
    """Return launch.mpi.run_to_end as one that ends all ranks, and raises JobError, as soon as `stop` is set."""

    def run(ranks: int, *arguments: str, patience: float) -> CompletedProcess[str]:
        mpi.check_here(ranks)
        words = mpi.command(ranks, *mpi.ends_all(arguments), *arguments)
        # A file: a pipe that is not read would block a rank that writes much.
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out:
            both = {"stdout": out, "stderr": subprocess.STDOUT}
            try:
                code = to_its_end(words, stop, patience, env=mpi.environment(ranks), **both)
            except Cancelled:
                raise JobError("The measurement was cancelled.") from None
            except OSError as error:
                raise SpecError(f"{words[0]} could not be started: {error.strerror}.") from None
            out.seek(0)
            return CompletedProcess(words, code, "", out.read())

    return run
