"""Start a program on ranks, traced, and put together what they took down: also where some of them failed."""

import json
import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from lib_dlhpc.launch.mpi import check_here, command, environment
from lib_dlhpc.launch.traced import (
    EXITED,
    INTERRUPTED,
    INTERRUPTED_STATUS,
    RAISED_STATUS,
    part_of,
)
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.timeline.collecting import Part, assemble, read_part
from lib_dlhpc.timeline.table import Timeline

WORKER = "lib_dlhpc.launch.traced"


@dataclass(frozen=True, eq=False)
class TracedRun:
    """What came of it. lost: in sentences, what is not in the timeline; status: of the program."""

    timeline: Timeline
    status: int
    lost: tuple[str, ...]


def trace_run(ranks: int, words: list[str], folder: Path | None = None) -> TracedRun:
    """Run `words` (a script or `-m MODULE`, and arguments) on ranks; its input and output are this process's.

    folder: for what the ranks write as they go, kept; by default one beside the system's temporary files,
    which is gone afterwards. Raises SpecError for no program, ranks that cannot be, and where MPI is missing.
    """
    check_here(ranks)
    if not words or (words[0] == "-m" and len(words) < 2):
        raise SpecError("No program to trace; expected a Python script, or -m and a module.")
    if words[0] != "-m" and not Path(words[0]).is_file():
        raise SpecError(f"{words[0]}: no such file; expected a Python script, or -m and a module.")
    kept = folder is not None
    folder = Path(tempfile.mkdtemp(prefix="dlhpc-trace-")) if folder is None else folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        status = _run(command(ranks, "-m", WORKER, str(folder.resolve()), *words))
        return _put_together(folder, ranks, status)
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def put_together(folder: Path) -> TracedRun:
    """Return what is in the folder of a run that was started by other means, such as a batch system.

    Raises SpecError if there is nothing.
    """
    first = next(iter(sorted(folder.glob("rank-*.words"))), None)
    try:
        with open(first or part_of(folder, 0).with_suffix(".words"), encoding="utf-8") as file:
            ranks = next(told["ranks"] for told in map(json.loads, file) if "ranks" in told)
    except (OSError, ValueError, StopIteration):
        raise SpecError(f"{folder}: no folder of a traced run.") from None
    return _put_together(folder, ranks, 0)


def _run(words: list[str]) -> int:
    """Run to the end, also where that is told from outside: the ranks end then, and what they wrote is there."""
    process = subprocess.Popen(words, env=environment())
    ours = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate()) if ours else None
    try:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # the ranks have had it too, and end
                continue
    finally:
        if ours:
            signal.signal(signal.SIGTERM, before)


def _put_together(folder: Path, ranks: int, status: int) -> TracedRun:
    """mpiexec's status has in it how it ended the other ranks; where one of them said why it ended, that counts."""
    parts: list[Part] = []
    lost: list[str] = []
    for rank in range(ranks):
        try:
            part = read_part(part_of(folder, rank), rank)
        except SpecError as error:
            lost.append(str(error))
            continue
        parts.append(part)
        lost += [f"rank {rank}: {sentence}" for sentence in part.lost]
    interrupted = any(part.ended == INTERRUPTED for part in parts)
    if interrupted:
        lost.append("Interrupted: what the ranks were doing then is not here.")
        status = status and INTERRUPTED_STATUS
    for part in parts:
        if part.ended is None and not interrupted:
            lost.append(
                f"rank {part.rank} was ended from outside: what it was doing then is not here."
            )
        elif part.ended not in (None, "done", INTERRUPTED):
            lost.append(f"rank {part.rank} ended with {part.ended}")
            if not (interrupted or part.ended.startswith(EXITED)):
                status = status and RAISED_STATUS
    return TracedRun(assemble(parts, ranks), status, tuple(lost))
