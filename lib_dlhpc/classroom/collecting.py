"""From learners' folders on this machine into a class's database."""

import json
import sqlite3
import sys
import threading
from collections import defaultdict
from pathlib import Path

from lib_dlhpc.classroom import database, record
from lib_dlhpc.classroom.classes import DATABASE, LEARNERS
from lib_dlhpc.classroom.learner import ABOUT, RECORD

EVERY = 0.5  # s


class Collector:
    """Reads the records under a folder, each from where it stopped before."""

    def __init__(self, source: Path, file: Path) -> None:
        self.source, self.file = source, file
        self._read: dict[Path, int] = defaultdict(int)
        database.create(file)

    def collect(self) -> int:
        """Insert what is new in any record below the source; return how many answers."""
        return sum(self._from(path.parent) for path in sorted(self.source.rglob(RECORD)))

    def _from(self, folder: Path) -> int:
        file = folder / RECORD
        try:
            if file.stat().st_size < self._read[file]:
                self._read[file] = 0  # another learner's, or one who began again
            entries, end = record.read_from(folder, self._read[file])
        except OSError:
            return 0  # not readable now: forgotten meanwhile, or a share that is away
        whose, name, joined = _about(folder)
        new = 0
        for learner in dict.fromkeys(entry.learner for entry in entries):
            own = [entry for entry in entries if entry.learner == learner]
            known = name if learner == whose else ""  # a record of another may be copied here
            new += database.insert(self.file, own, known, joined or own[0].time)
        self._read[file] = end
        return new


def keep_collecting(folder: Path, stop: threading.Event) -> None:
    """Collect from a class's learners on this machine until the event; what cannot be stored now is tried again."""
    collector, said = Collector(folder / LEARNERS, folder / DATABASE), ""
    while not stop.is_set():
        try:
            collector.collect()
            said = ""
        except (OSError, sqlite3.Error) as error:
            if said != str(error):
                said = str(error)
                print(
                    f"dlhpc: {collector.file}: {error}; it will be tried again.",
                    file=sys.stderr,
                    flush=True,
                )
        stop.wait(EVERY)


def _about(folder: Path) -> tuple[str, str, str]:
    """Return the id and name of whose folder it is, and when they joined; empty if that is not known."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        found = (str(about.get(key, "")) for key in ("id", "name", "joined"))
        whose, name, joined = (text.encode("utf-8", "replace").decode() for text in found)
        return whose or folder.name, name, joined
    except (OSError, ValueError, AttributeError):
        return "", "", ""
