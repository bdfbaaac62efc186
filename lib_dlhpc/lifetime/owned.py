"""Processes and temporary folders that end with this process: also where it is killed, by way of the guard."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from lib_dlhpc.lifetime import guard

GRACE = 5.0  # s that a process has to end when it is asked to
GUARD = [sys.executable, "-I", "-S", guard.__file__]


class _Guard:
    """The guard of this process, started when there is something to guard."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, Any]] = {}  # what it has been told, by mark or path
        self.began = time.time()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    def keep(self, name: str, **what: Any) -> None:
        """Let it end or remove what has this name, a mark or a path."""
        with self._lock:
            self.held[name] = what
            self._tell(what)

    def hold(self, name: str, **what: Any) -> None:
        """Do as `keep` if there is a guard; what is written in a moment needs none of its own."""
        with self._lock:
            self.held[name] = what
            if self._process is not None:
                self._tell(what)

    def forget(self, name: str) -> None:
        """Let it forget what has this name."""
        with self._lock:
            if self.held.pop(name, None) is not None and self._process is not None:
                self._tell({"forget": name})

    def _tell(self, what: dict[str, Any]) -> None:
        process, lines = self._process, [what]
        if process is None or process.poll() is not None:  # none yet, or someone has killed it
            try:
                self._process = process = self._start()
            except (
                OSError
            ):  # no room for one more process: what is under way is worth more than its net
                return
            lines = list(self.held.values())
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.write("".join(json.dumps(line) + "\n" for line in lines).encode())
            process.stdin.flush()

    def _start(self) -> "subprocess.Popen[bytes]":
        nothing = subprocess.DEVNULL
        env = {name: value for name, value in os.environ.items() if name != guard.MARK}
        return subprocess.Popen(
            GUARD, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, env=env,
            cwd=os.path.abspath(os.sep), start_new_session=os.name == "posix",
        )  # fmt: skip


_guard = _Guard()
_marks: "WeakKeyDictionary[subprocess.Popen[Any], str]" = WeakKeyDictionary()


def _leave_to_parent() -> None:
    """A forked process has begun nothing; its copy of the pipe must not keep the guard waiting."""
    global _guard
    process = _guard._process
    if process is not None and process.stdin is not None:
        process.stdin.close()
        process.returncode = 0  # not ours to wait for
    _guard = _Guard()
    _marks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def anything() -> bool:
    """Whether there is something to end or to remove."""
    return bool(_guard.held)


def start(words: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start a process that ends with this one, with all that it starts; options: of subprocess.Popen.

    Raises OSError where it cannot be started.
    """
    mark = secrets.token_hex(8)
    env = dict(os.environ if options.get("env") is None else options["env"])
    options["env"] = env | {guard.MARK: ":".join(filter(None, [env.get(guard.MARK), mark]))}
    _guard.keep(mark, mark=mark, pid=0)  # before it is there: we may be killed any moment
    try:
        process = subprocess.Popen(words, **options)
    except OSError:  # it has not been started
        _guard.forget(mark)
        raise
    except BaseException:  # we are interrupted, and it may have been
        guard.end_marked({mark: 0}, settled=guard.SETTLED)
        raise
    _marks[process] = mark
    if not guard.LINUX and options.get("start_new_session"):
        _guard.keep(mark, mark=mark, pid=process.pid)
    return process


def run(
    words: Sequence[str], timeout: float | None = None, told: str | None = None, **options: Any
) -> "subprocess.CompletedProcess[Any]":
    """Run a process to its end, as subprocess.run does; however that comes, all that it started has ended.

    told: for its standard input, if that is a pipe. Raises OSError where it cannot be started,
    subprocess.TimeoutExpired after `timeout` s.
    """
    process = start(words, **options)
    try:
        output, errors = process.communicate(told, timeout)
    except BaseException:
        end(process)
        raise
    ended(process)
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def end(process: "subprocess.Popen[Any]", grace: float = GRACE) -> None:
    """End a process that `start` has started: asked first; what it has started and leaves behind ends with it."""
    if process.poll() is None:
        with suppress(OSError):
            process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    ended(process)


def ended(process: "subprocess.Popen[Any]") -> None:
    """End what a process, which has ended, has left behind: processes, shared memory. No error if it is not ours."""
    mark = _marks.get(process)
    if mark is not None and mark in _guard.held:
        guard.end_marked({mark: _guard.held[mark]["pid"]})
        _guard.forget(mark)
        guard.remove_segments(_guard.began)
    if process.poll() is None:  # it is no Linux, or it cannot be killed
        process.kill()
        process.wait()


@contextmanager
def temporary_folder(prefix: str, folder: Path | None = None) -> Iterator[Path]:
    """Have a new empty folder, in `folder` or among the system's temporary files, until the block is left.

    Raises OSError where it cannot be made.
    """
    path = make_folder(prefix, folder)
    try:
        yield path
    finally:
        remove_folder(path)


def make_folder(prefix: str, folder: Path | None = None) -> Path:
    """Make a new empty folder that is gone at the latest when this process is: see temporary_folder."""
    above = Path(tempfile.gettempdir() if folder is None else folder).resolve()
    path = above / f"{prefix}{secrets.token_hex(4)}"
    _guard.keep(str(path), path=str(path))
    try:
        path.mkdir(mode=0o700)
    except BaseException:
        _guard.forget(str(path))
        raise
    return path


def own_folder(path: Path) -> Path:
    """Let a folder that is there go as one of make_folder does."""
    _guard.keep(str(path), path=str(path))
    return path


def remove_folder(path: Path) -> None:
    """Remove what make_folder has made."""
    guard.remove(str(path))
    _guard.forget(str(path))


def keep_folder(path: Path) -> None:
    """Let what make_folder has made stay when this process ends."""
    _guard.forget(str(path))


@contextmanager
def unfinished(path: Path, guarded: bool = False) -> Iterator[None]:
    """Remove a file or folder, if it is there, when the block is left; guarded: also where we are killed there."""
    name = str(Path(path).absolute())
    (_guard.keep if guarded else _guard.hold)(name, path=name)
    try:
        yield
    finally:
        guard.remove(name)
        _guard.forget(name)


def last_words(path: Path, text: str, unless: Path) -> None:
    """Let a file be replaced by this text, if this process ends before `no_last_words` and `unless` is not there."""
    name = str(path.absolute())
    _guard.keep(name, write=name, text=text, unless=str(unless.absolute()))


def no_last_words(path: Path) -> None:
    """Leave the file as it is."""
    _guard.forget(str(path.absolute()))
