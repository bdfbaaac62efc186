"""Run a program on ranks, traced, and assemble the ranks' records, even if some ranks failed."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch.mpi import check_here, command, environment
from lib_dlhpc.launch.traced import EXITED, INTERRUPTED, INTERRUPTED_STATUS, RAISED_STATUS, part_of
from lib_dlhpc.lifetime import owned, signals
from lib_dlhpc.timeline.collecting import Part, assemble, read_part
from lib_dlhpc.timeline.table import Timeline

WORKER = "lib_dlhpc.launch.traced"
# Until it has a handler, a rank ignores Ctrl-C: Python would print a traceback of what it was importing.
IGNORE_INTERRUPT = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"] if os.name == "posix" else []


@dataclass(frozen=True, eq=False)
class TracedRun:
    """The result. lost: sentences on missing parts of the timeline; status: of the program."""

    timeline: Timeline
    status: int
    lost: tuple[str, ...]


def trace_run(ranks: int, words: list[str], folder: Path | None = None) -> TracedRun:
    """Run `words` (a script or `-m MODULE`, and arguments) on ranks; its input and output are this process's.

    folder: for the ranks' records; temporary by default. Raises SpecError for no program, illegal ranks, and missing
    MPI.
    """
    check_here(ranks)
    if not words or (words[0] == "-m" and len(words) < 2):
        raise SpecError("No program to trace; expected a Python script, or -m and a module.")
    if words[0] != "-m" and not Path(words[0]).is_file():
        raise SpecError(f"{words[0]}: no such file; expected a Python script, or -m and a module.")
    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(owned.temporary_folder("dlhpc-trace-"))
        folder.mkdir(parents=True, exist_ok=True)
        *launcher, python = command(ranks)
        start = [*launcher, *IGNORE_INTERRUPT, python, "-m", WORKER, str(folder.resolve())]
        status = _run([*start, *words], ranks)
        return _gather(folder, ranks, status)


def gather(folder: Path) -> TracedRun:
    """Assemble the records of a run that was started by other means, such as a batch system.

    Raises SpecError if there are none.
    """
    first = next(iter(sorted(folder.glob("rank-*.words"))), None)
    try:
        with open(first or part_of(folder, 0).with_suffix(".words"), encoding="utf-8") as file:
            ranks = next(line["ranks"] for line in map(json.loads, file) if "ranks" in line)
    except (OSError, ValueError, StopIteration):
        raise SpecError(f"{folder}: no folder of a traced run.") from None
    return _gather(folder, ranks, 0)


def _run(words: list[str], ranks: int) -> int:
    """Run to the end; on an external signal the ranks end, and their records remain.

    At a terminal the program can read input, and Ctrl-C reaches it directly.
    """
    apart = os.name == "posix" and not (sys.stdin and sys.stdin.isatty())
    process = owned.start(words, env=environment(ranks), start_new_session=apart)
    try:
        status = process.wait()
    except KeyboardInterrupt:
        if signals.by_keys():
            if apart:
                process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(owned.GRACE)
        status = signals.status()
    owned.end(process)
    return status


def _gather(folder: Path, ranks: int, status: int) -> TracedRun:
    """Assemble the ranks' records; a rank's own exit takes precedence over mpiexec's status."""
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
        lost.append("Interrupted: the operations in progress are not recorded.")
        status = status and INTERRUPTED_STATUS
    for part in parts:
        if part.ended is None and not interrupted:
            lost.append(f"rank {part.rank} was killed: its operation in progress is not recorded.")
        elif part.ended not in (None, "done", INTERRUPTED):
            lost.append(f"rank {part.rank} ended with {part.ended}")
            if not (interrupted or part.ended.startswith(EXITED)):
                status = status and RAISED_STATUS
    return TracedRun(assemble(parts, ranks), status, tuple(lost))
