"""A hand-in: its file is read and its imports are looked at here, and it runs in processes of its own.

Every rank of every run is a fresh process, so nothing stays from one run to the next.
"""

import ast
import inspect
import signal
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import IO, Any

from lib_dlhpc.labs.grading.files import Files
from lib_dlhpc.labs.grading.remote import Crashed, TimedOut, Worker
from lib_dlhpc.labs.grading.workers import Server

MOST = 200_000  # B of a hand-in
TORCH_FILE = "torch_step.py"
SHOWN = 300  # characters of what it prints
REFUSED = "Refused"  # name of the error that a process raises for what it may not have


class Unreadable(Exception):
    """There is nothing to run."""


class NotAllowed(Exception):
    """It imports what is not on the list, or is not a file of its own."""


def read(folder: Path, name: str, usual: str) -> tuple[str, str]:
    """Return name and text of a learner's file: `usual`, or named after the learner, or the only one of its kind.

    TORCH_FILE may be beside it; in PyTorch it is that file.
    Raises Unreadable, NotAllowed.
    """
    suffix, torch = Path(usual).suffix, usual == TORCH_FILE
    files = sorted(each for each in folder.glob(f"*{suffix}") if (each.name == TORCH_FILE) == torch)
    first = [
        each
        for stem in (Path(usual).stem, name, folder.name)
        for each in files
        if each.stem == stem
    ]
    if not first and len(files) != 1:
        found = ", ".join(each.name for each in files) or "none"
        wanted = usual if torch else f"one file NAME{suffix}, or {usual}"
        raise Unreadable(f"Expected {wanted}; found: {found}.")
    file = (first or files)[0]
    return file.name, text_of(file)


def text_of(file: Path, most: int = MOST) -> str:
    """Return the text of a file of at most `most` bytes.

    Raises Unreadable, NotAllowed for a link, which may lead to the instructor's files.
    """
    if file.is_symlink() or not file.is_file():
        raise NotAllowed(f"{file.name} is not a regular file, but a link, a folder or a pipe.")
    try:
        size = file.stat().st_size
        if size > most:
            raise Unreadable(f"{file.name} has {size:,} bytes; at most {most:,} are allowed.")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{file.name} cannot be read: {error}.") from None


def check_imports(text: str, file: str, legal: Sequence[str]) -> None:
    """Raise Unreadable where it is no Python, NotAllowed where it imports what is not legal."""
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) else ""
        raise Unreadable(
            f"{file} is not valid Python: {line}{type(error).__name__}: {error}."
        ) from None
    for node in ast.walk(tree):
        for name in _imported(node):
            if name not in legal:
                raise NotAllowed(
                    f"{file}, line {getattr(node, 'lineno', 0)}: {name} is not on the list of modules"
                    " that may be imported."
                )


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        return [f"{module}.{each.name}" for each in node.names] if module == "mpi4py" else [module]
    return ["__import__"] if isinstance(node, ast.Name) and node.id == "__import__" else []


class HandIn:
    """A hand-in that is being graded. ends: the words of what ended badly, in order, each after its status."""

    def __init__(
        self, server: Server, file: str, text: str, seconds: float, output: IO[Any]
    ) -> None:
        self._server, self._file, self._text, self._output = server, file, text, output
        self._deadline = monotonic() + seconds
        self._own = threading.local()  # ranks are threads: one process each
        self._lock = threading.Lock()
        self._open: dict[int, Any] = {}
        self._idle: deque[int] = deque()  # whose thread has ended
        self.ends: list[tuple[str, str]] = []

    def functions(
        self, names: Sequence[str], streams: Sequence[str] = ()
    ) -> dict[str, Callable[..., Any]]:
        """Return its functions, each of which runs in a process. streams: those that yield one result at a time.

        Raises Unreadable, Crashed, TimedOut.
        """
        worker = self._started()
        found = self._loaded(worker)
        missing = [name for name in names if name not in found]
        if missing:
            raise Unreadable(f"{self._file} does not define {', '.join(missing)}.")
        self._own.worker = worker
        return {name: self._function(name, found[name], name in streams) for name in names}

    def program(self, name: str) -> Callable[..., Any]:
        """Return a program of its processes, which is given its functions by name."""
        return self._function(name, [], streams=False)

    def printed(self) -> str:
        """Return the beginning of what it has printed."""
        self._output.seek(0)
        return " ".join(self._output.read(SHOWN).decode(errors="replace").split())

    def close(self) -> None:
        """End all processes."""
        for number in list(self._open):
            self._end(number)

    def _function(
        self, name: str, parameters: list[list[Any]], streams: bool
    ) -> Callable[..., Any]:
        def function(*given: Any, **named: Any) -> Any:
            with self._noted():
                worker = getattr(self._own, "worker", None)
                if worker is None:
                    worker = self._started()
                    worker.load(self._text, self._file)
                    self._own.worker = worker
                if not streams:
                    return worker.call(name, given, named)
            return self._streamed(worker.stream(name, given, named))

        function.__name__ = name
        one, empty = inspect.Parameter, inspect.Parameter.empty
        with suppress(ValueError):  # parameters that Python would not have
            made = [
                one(str(each), one.POSITIONAL_OR_KEYWORD, default=empty if value is None else value)
                for each, value in parameters
            ]
            vars(function)["__signature__"] = inspect.Signature(made)
        return function

    def _streamed(self, results: Iterator[Any]) -> Iterator[Any]:
        with self._noted():
            yield from results

    def _loaded(self, worker: Worker) -> dict[str, list[list[Any]]]:
        with self._noted():
            try:
                return worker.load(self._text, self._file)
            except (Crashed, TimedOut):
                raise
            except Exception as error:
                kind = NotAllowed if type(error).__name__ == REFUSED else Unreadable
                raise kind(f"{self._file} cannot be run: {type(error).__name__}: {error}") from None

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Remember what ends badly, whatever the checks make of it."""
        try:
            yield
        except TimedOut as error:
            self.ends.append(("timeout", str(error)))
            raise
        except Crashed as error:
            self.ends.append(("crashed", str(error)))
            raise
        except Exception as error:
            if type(error).__name__ == REFUSED:
                self.ends.append(("refused", str(error)))
            raise
        except GeneratorExit:  # no more results are wanted
            raise
        except BaseException:  # the ranks were stopped, for one of them does not end
            self.ends.append(("timeout", "It was still computing when the ranks were stopped."))
            raise

    def _started(self) -> Worker:
        with suppress(IndexError):  # ranks start at the same time
            while True:
                self._end(self._idle.popleft())
        number, sock = self._server.fork(self._output)
        self._open[number] = sock
        files = Files()
        worker = Worker(sock, self._deadline, lambda: self._end(number), files)
        weakref.finalize(worker, self._left, number, files).atexit = False
        return worker

    def _left(self, number: int, files: Files) -> None:
        """Nobody calls a process any more: close its files, and end it when the next one starts."""
        files.release()
        self._idle.append(number)

    def _end(self, number: int) -> str:
        """End a process; return how it had ended, in words."""
        with self._lock:
            sock = self._open.pop(number, None)
        if sock is None:
            return "had been ended"
        status = self._server.end(number)
        sock.close()
        if status == -signal.SIGXCPU:
            self.ends.append(("timeout", "It computed for longer than is allowed."))
            return "was ended because it computed for longer than is allowed"
        if status == -signal.SIGKILL:
            return "sent something that is not an answer, or was killed"
        if status < 0:
            return f"was ended by {signal.Signals(-status).name}"
        return f"ended with status {status}"
