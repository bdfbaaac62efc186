"""A learner's record: a file of JSON lines that only grows, written by any number of processes at a time.

A line counts once it ends with a line break. What a killed process or a full disk left of one is skipped by readers and
removed by the next writer.
"""

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from lib_dlhpc.classroom.entry import LONGEST, Entry
from lib_dlhpc.classroom.learner import RECORD, now
from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.files import naming

FAR = 1 << 30  # a byte that no record has: Windows lets nobody read what is locked


def entries(folder: Path) -> list[Entry]:
    """Return the entries of a learner's folder, in the order in which they were written; none if it has no record."""
    return read_from(folder, 0)[0]


def read_from(folder: Path, start: int) -> tuple[list[Entry], int]:
    """Return the entries after a byte of the record, and the byte after the last whole line."""
    try:
        with open(folder / RECORD, "rb") as file:
            file.seek(start)
            whole, end, _ = file.read().rpartition(b"\n")
    except FileNotFoundError:
        return [], start
    found = []
    for line in whole.split(b"\n"):
        with suppress(SpecError):  # damaged, as by a crash of the machine: the others still count
            found.append(Entry.read(line))
    return found, start + len(whole) + len(end)


def add(folder: Path, learner: str, module: str, question: str, kind: str, **answer: Any) -> Entry:
    """Append an entry to a learner's record and return it; its attempt follows those in the record.

    answer: the other fields of an Entry. Raises OSError that names the file; then nothing is added.
    """
    file = folder / RECORD
    answer |= {key: text[:LONGEST] for key, text in answer.items() if isinstance(text, str)}
    with naming(file), open(file, "a+b", buffering=0) as record, _locked(record):
        end = _repaired(record)
        before = sum((e.module, e.question) == (module, question) for e in entries(folder))
        entry = Entry(
            id=uuid.uuid4().hex,
            learner=learner,
            module=module,
            question=question,
            kind=kind,
            attempt=0 if kind == "open" else before + 1,
            time=now(),
            **{"answer": "", "right": None, **answer},
        )
        line = f"{entry.line()}\n".encode()
        try:
            if record.write(line) != len(line):
                raise OSError(28, os.strerror(28))
            os.fsync(record.fileno())
        except OSError:
            record.truncate(end)
            raise
    return entry


def _repaired(record: IO[bytes]) -> int:
    """Remove what is left of a line that was not written to its end; return the size of the file."""
    size = end = record.seek(0, os.SEEK_END)
    record.seek(0)
    if size:
        end = record.read().rfind(b"\n") + 1
        if end < size:
            record.truncate(end)
    return end


@contextmanager
def _locked(file: IO[bytes]) -> Iterator[None]:
    """Let no other process write to an open file within the block."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(FAR)
        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        try:
            yield
        finally:
            file.seek(FAR)
            msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
    else:
        from fcntl import LOCK_EX, flock

        flock(file, LOCK_EX)  # released when the file is closed
        yield
