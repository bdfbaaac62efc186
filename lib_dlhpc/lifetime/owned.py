"""Child processes and temporary folders that end with this process; if it is killed, the guard ends them."""

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
        self.held: dict[str, dict[str, Any]] = {}  # registrations, by mark or path
        self.began = time.time()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    def keep(self, name: str, **what: Any) -> None:
        """Register a mark or a path, to be ended or removed."""
        with self._lock:
            self.held[name] = what
            self._tell(what)

    def hold(self, name: str, **what: Any) -> None:
        """Register if there is a guard; a short write does not start one."""
        with self._lock:
            self.held[name] = what
            if self._process is not None:
                self._tell(what)

    def forget(self, name: str) -> None:
        """Unregister a mark or a path."""
        with self._lock:
            if self.held.pop(name, None) is not None and self._process is not None:
                self._tell({"forget": name})

    def _tell(self, what: dict[str, Any]) -> None:
        process, lines = self._process, [what]
        if process is None or process.poll() is not None:  # none yet, or someone has killed it
            try:
                self._process = process = self._start()
            except OSError:  # process limit reached: continue without a guard
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
            GUARD,
            stdin=subprocess.PIPE,
            stdout=nothing,
            stderr=nothing,
            env=env,
            cwd=os.path.abspath(os.sep),
            start_new_session=os.name == "posix",
        )


_guard = _Guard()
_marks: "WeakKeyDictionary[subprocess.Popen[Any], str]" = WeakKeyDictionary()


def _leave_to_parent() -> None:
    """Reset in a forked process; its copy of the pipe must not keep the guard alive."""
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
    """Whether anything is registered."""
    return bool(_guard.held)


def start(words: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start a process that ends with this one, with its descendants; options: of subprocess.Popen.

    Raises OSError where it cannot be started.
    """
    mark = secrets.token_hex(8)
    env = dict(os.environ if options.get("env") is None else options["env"])
    options["env"] = env | {guard.MARK: ":".join(filter(None, [env.get(guard.MARK), mark]))}
    # The guard learns of the process before it exists: this process may be killed at any moment.
    _guard.keep(mark, mark=mark, pid=0)
    try:
        process = subprocess.Popen(words, **options)
    except OSError:  # it has not been started
        _guard.forget(mark)
        raise
    except BaseException:  # interrupted: it may have been started
        guard.end_marked({mark: 0}, settled=guard.SETTLED)
        raise
    _marks[process] = mark
    if not guard.LINUX and options.get("start_new_session"):
        _guard.keep(mark, mark=mark, pid=process.pid)
    return process


def run(
    words: Sequence[str],
    timeout: float | None = None,
    stdin_text: str | None = None,
    **options: Any,
) -> "subprocess.CompletedProcess[Any]":
    """Run a process to its end, as subprocess.run does, and end all its descendants.

    stdin_text: for its standard input, if that is a pipe. Raises OSError where it cannot be started,
    subprocess.TimeoutExpired after `timeout` s.
    """
    process = start(words, **options)
    try:
        output, errors = process.communicate(stdin_text, timeout)
    except BaseException:
        end(process)
        raise
    ended(process)
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def end(process: "subprocess.Popen[Any]", grace: float = GRACE) -> None:
    """End a process of `start`, by SIGTERM, then SIGKILL; its descendants end with it."""
    if process.poll() is None:
        with suppress(OSError):
            process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    ended(process)


def ended(process: "subprocess.Popen[Any]") -> None:
    """Clean up after a process that has ended: descendants, shared memory. No error if it is not ours."""
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
    """Yield a new empty folder, in `folder` or the system's temporary folder; removed at the end of the block.

    Raises OSError if it cannot be created.
    """
    path = make_folder(prefix, folder)
    try:
        yield path
    finally:
        remove_folder(path)


def make_folder(prefix: str, folder: Path | None = None) -> Path:
    """Create an empty folder that is removed at the latest when this process ends: see temporary_folder."""
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
    """Register an existing folder for removal, as make_folder does."""
    _guard.keep(str(path), path=str(path))
    return path


def remove_folder(path: Path) -> None:
    """Remove a folder of make_folder."""
    guard.remove(str(path))
    _guard.forget(str(path))


def keep_folder(path: Path) -> None:
    """Retain a folder of make_folder when this process ends."""
    _guard.forget(str(path))


@contextmanager
def unfinished(path: Path, guarded: bool = False) -> Iterator[None]:
    """Remove a file or folder, if it exists, at the end of the block; guarded: also if this process is killed."""
    name = str(Path(path).absolute())
    (_guard.keep if guarded else _guard.hold)(name, path=name)
    try:
        yield
    finally:
        guard.remove(name)
        _guard.forget(name)


def last_words(path: Path, text: str, unless: Path) -> None:
    """Register a text that replaces a file if this process ends before `no_last_words` and `unless` does not exist."""
    name = str(path.absolute())
    _guard.keep(name, write=name, text=text, unless=str(unless.absolute()))


def no_last_words(path: Path) -> None:
    """Unregister the file."""
    _guard.forget(str(path.absolute()))
