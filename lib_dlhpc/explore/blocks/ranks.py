"""Ranks that end when they are asked to: what a calibration runs on, from a page with a button Cancel."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from subprocess import CompletedProcess, TimeoutExpired

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import mpi
from lib_dlhpc.launch.local import JobError
from lib_dlhpc.lifetime import owned

PAUSE = 0.05  # s between two looks


def stoppable(stop: threading.Event) -> Callable[..., CompletedProcess[str]]:
    """Return launch.mpi.run_to_end as one that ends all ranks, and raises JobError, as soon as `stop` is set."""

    def run(ranks: int, *arguments: str, patience: float) -> CompletedProcess[str]:
        mpi.check_here(ranks)
        words = mpi.command(ranks, *mpi.ends_all(arguments), *arguments)
        until = time.monotonic() + patience
        # A file: a pipe that is not read would block a rank that writes much.
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out:
            try:
                process = owned.start(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=mpi.environment(ranks),
                    start_new_session=os.name == "posix",
                )
            except OSError as error:
                raise SpecError(f"{words[0]} could not be started: {error.strerror}.") from None
            try:
                while process.poll() is None:
                    if stop.wait(PAUSE):
                        raise JobError("The measurement was cancelled.")
                    if time.monotonic() > until:
                        raise TimeoutExpired(words, patience)
            except BaseException:
                owned.end(process)
                raise
            owned.ended(process)
            out.seek(0)
            return CompletedProcess(words, process.returncode, "", out.read())

    return run
