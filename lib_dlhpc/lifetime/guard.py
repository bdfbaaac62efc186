"""The guard: a small process that ends the children and removes the files of another process once that has ended.

`python -I -S guard.py` is started by owned.py. Its standard input is a pipe with one JSON table a line; the pipe
closes when the other process ends, in whatever way:

    {"mark": M, "pid": P}    end the processes that have M in their environment (elsewhere than on Linux: P's group)
    {"path": P}              remove this file or folder
    {"write": P, "text": T, "unless": R}  replace file P unless R exists: status of a run that left no result;
                             unfinished files beside P are removed
    {"forget": X}            unregister the mark or path X

On Linux processes are found by their environment, also orphans. On macOS the started process group
is ended, and MPICH's mpiexec ends its ranks; on Windows taskkill ends the process tree.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable

MARK = "DLHPC_OWNERS"  # environment variable: marks of all processes that this one ends with
ASKED, KILLED = 1.0, 3.0  # s to end on SIGTERM, and to be gone after SIGKILL
SETTLED = 0.3  # s without a process: a starting one is visible by then
TICK = 0.02
LINUX = sys.platform == "linux"
# shared memory of MPICH, and of UCX below it
SEGMENTS, NAMES = ("/dev/shm", ("mpich_shm_", "ucx_shm_"))
COARSE = 1.0  # s by which the clock of a file system may be behind


def marked(marks: Iterable[str]) -> set[int]:
    """Return the processes with one of the marks in their environment (Linux); none that wait to be reaped."""
    words, found = [mark.encode() for mark in marks], set()
    for name in os.listdir("/proc") if LINUX else ():
        if name.isdecimal() and int(name) != os.getpid():
            environment = _contents(f"/proc/{name}/environ")
            start = (b"\0" + environment).find(f"\0{MARK}=".encode())
            value = environment[start:].partition(b"\0")[0] if start >= 0 else b""
            if any(word in value for word in words):
                found.add(int(name))
    return found


def end_marked(started: dict[str, int], settled: float = 0.0) -> None:
    """End the processes of these marks: ASKED s after SIGTERM those that are left are killed.

    started: the process that was started with each mark, for systems without readable environments. settled: s
    without any process before this returns, where one may be starting.
    """
    if not LINUX:
        _end_elsewhere(started.values())
        return
    for how, patience in ((signal.SIGTERM, ASKED), (signal.SIGKILL, KILLED)):
        terminated, until, quiet = set[int](), time.monotonic() + patience, 0.0
        while time.monotonic() < until:
            left = marked(started)
            if not left and quiet >= settled:
                return
            for pid in left - terminated:
                _signal(pid, how)
            terminated |= left
            quiet = 0.0 if left else quiet + TICK
            time.sleep(TICK)


def remove_segments(since: float) -> None:
    """Remove MPICH's shared memory that this user created since then and that no process has open.

    MPICH removes it only when ranks finish. It is unused: other ranks open it while the first has it open.
    """
    try:
        found = [name for name in os.listdir(SEGMENTS) if name.startswith(NAMES)] if LINUX else []
    except OSError:
        return
    mine = {f"{SEGMENTS}/{name}" for name in found if _is_mine(f"{SEGMENTS}/{name}", since)}
    for path in mine - _held() if mine else ():
        remove(path)


def remove(path: str) -> None:
    """Remove a file or a folder, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _is_mine(path: str, since: float) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_uid == os.getuid() and found.st_ctime >= since - COARSE


def _held() -> set[str]:
    """Return the shared memory that processes have open or mapped; a file is mapped before it is closed."""
    held = set[str]()
    for place in (f"/proc/{name}" for name in os.listdir("/proc") if name.isdecimal()):
        with contextlib.suppress(OSError):
            for number in os.listdir(f"{place}/fd"):
                held.add(os.readlink(f"{place}/fd/{number}"))
        for line in _contents(f"{place}/maps").splitlines():
            if SEGMENTS.encode() in line:
                held.add(os.fsdecode(line[line.index(SEGMENTS.encode()) :]))
    return held


def _contents(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _signal(pid: int, how: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, how)


def _end_elsewhere(pids: Iterable[int]) -> None:
    pids = [pid for pid in pids if pid > 0]
    if os.name != "posix":
        for pid in pids:
            subprocess.run(["taskkill", "/PID", str(pid), "/T", "/F"], capture_output=True)
        return
    for how, patience in ((signal.SIGTERM, ASKED), (signal.SIGKILL, 0.0)):
        for pid in pids:
            with contextlib.suppress(OSError):
                os.killpg(pid, how)  # it leads a group of its own, see owned.start
        time.sleep(patience if pids else 0.0)


def main() -> None:
    """Record registrations; when the pipe closes, end the processes and remove the files."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    began = time.time()
    started, paths, last_words = dict[str, int](), dict[str, None](), dict[str, dict[str, str]]()
    for line in sys.stdin:
        entry = json.loads(line)
        if "mark" in entry:
            started[entry["mark"]] = entry["pid"]
        elif "write" in entry:
            last_words[entry["write"]] = entry
        elif "path" in entry:
            paths[entry["path"]] = None
        else:
            for table in (started, paths, last_words):
                table.pop(entry["forget"], None)
    if started:
        end_marked(started, settled=SETTLED)
        remove_segments(began)
    for path in paths:
        remove(path)
    for path, entry in last_words.items():
        if os.path.exists(path):
            _remove_unfinished(os.path.dirname(path))
            if not os.path.exists(entry["unless"]):
                _replace(path, entry["text"])


def _remove_unfinished(folder: str) -> None:
    """Remove unfinished files of killed processes, see files.py."""
    for name in os.listdir(folder):
        if name.startswith(".") and name.endswith(".tmp"):
            remove(f"{folder}/{name}")


def _replace(path: str, text: str) -> None:
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        remove(temporary)


if __name__ == "__main__":
    main()
