"""Commands killed by a signal at a chosen moment, and their leftovers: processes, files, shared memory.

Processes are identified by an environment variable, so those of other runs on this machine do not count.
"""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from patience import PATIENCE

MARK = "DLHPC_TEST_MARK"
SEGMENTS = Path("/dev/shm")
LATE = 5.0  # s after the end of a command in which what it started must be gone
TICK = 0.02
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -9}
CAUGHT = sum(1 << number - 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


@dataclass(frozen=True)
class Ended:
    """The result of a command. waited: s from its end until its last process ended."""

    status: int
    output: str
    errors: str
    waited: float
    processes: list[str]  # that were still there after LATE s
    # B of each file that it left in its folder and in that for temporary files.
    files: dict[str, int]
    segments: list[str]  # of shared memory, which its processes held, and which still have a name


def end_after(
    words: list[str],
    folder: Path,
    how: signal.Signals,
    begun: Callable[["Family"], bool],
    moment: float,
    after: Callable[[], None] = lambda: None,
) -> Ended:
    """Run `python WORDS` in a folder, wait until it has begun, and `moment` s more; end it by a signal.

    after: called then, before the check for leftovers.
    """
    temporary = folder / "temporary"
    temporary.mkdir(parents=True)
    held = {path for path in folder.rglob("*") if path.is_file()}
    family = Family(secrets.token_hex(8))
    env = {
        **os.environ,
        MARK: family.mark,
        "TMPDIR": str(temporary),
        "HOME": str(folder),
        "XDG_STATE_HOME": str(temporary / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        until = time.monotonic() + PATIENCE
        while process.poll() is None and not begun(family) and time.monotonic() < until:
            time.sleep(TICK / 4)
        until = time.monotonic() + moment
        while process.poll() is None and time.monotonic() < until:
            family.look()
            time.sleep(TICK)
        family.look()
        process.send_signal(how)
        process.wait(PATIENCE)
        after()
        began = time.monotonic()
        while (left := family.look()) and time.monotonic() < began + LATE:
            time.sleep(TICK)
        waited = time.monotonic() - began
        for stream in (out, err):
            stream.seek(0)
        said = out.read(), err.read()
    names = [words_of(pid) for pid in left]
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    files = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and path not in held and temporary / "state" not in path.parents
    }
    segments = [name for name in sorted(family.segments) if (SEGMENTS / name).exists()]
    return Ended(process.returncode, *said, waited, names, files, segments)


class Family:
    """The processes with a mark, and the names of the shared memory that they were seen to hold."""

    def __init__(self, mark: str) -> None:
        self.mark, self.segments = mark, set[str]()

    def look(self) -> list[int]:
        """Return the running processes, without zombies."""
        word, found = f"{MARK}={self.mark}".encode(), []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if word in (place / "environ").read_bytes():
                    found.append(int(place.name))
                    self.segments.update(_held(place))
            except (OSError, ValueError):
                continue
        return found


def _held(place: Path) -> Iterable[str]:
    for line in (place / "maps").read_text().splitlines():
        if "/dev/shm/" in line and not line.endswith("(deleted)"):
            yield line.rpartition("/")[2]


def words_of(pid: int) -> str:
    """Return the command of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
    except OSError:
        return f"{pid}, gone"


def listens(family: Family) -> bool:
    """Whether a process of the family has handlers for INT, TERM and HUP: Python itself has but the first."""
    return any(caught & CAUGHT == CAUGHT for caught in map(_caught, family.look()))


def has_ranks(family: Family) -> bool:
    """Whether a process of the family has been started by mpiexec."""
    return any(b"PMI_RANK=" in _environment(pid) for pid in family.look())


def _caught(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return int(line.split()[1], 16)
    except OSError:
        pass
    return 0


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
