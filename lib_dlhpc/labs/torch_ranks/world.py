"""Ranks of PyTorch on this machine: processes joined by torch.distributed (gloo) that run a learner's file.

    with World(4) as world:
        results = world.run(4, "data_parallel", "torch_step.py", ("step",), task, False)

Importing torch takes seconds, so the processes serve many runs; after an error they are ended, and the next run
starts new ones. Ranks say which collective they enter: one that a rank has returned without, or that differs from
another rank's, is an error at once; what else hangs is one when no rank has shown a sign for some time.
"""

import pickle
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from typing import IO, Any

from lib_dlhpc.extras import missing
from lib_dlhpc.labs.mistakes import Endless, LabError, Mismatch, Unmet, ranks_wait
from lib_dlhpc.labs.program import Unusable
from lib_dlhpc.lifetime import owned

START = 180.0  # s in which ranks have to import torch and find each other
SECONDS = 60.0  # s without a sign of any rank; a right run takes a fraction of one
LOST = 5.0  # s in which the end of a process is seen, after others have lost it
SHOWN = 400  # characters of what a process that crashed has written
WORKER = "lib_dlhpc.labs.torch_ranks.worker"
Call = tuple[str, int]  # name of a collective, numbers that it moves


class World:
    """Processes of PyTorch, started when they are needed; they end with the block, at the latest with this process.

    size: number of processes. seconds: a run ends when no rank shows a sign for so long.
    Raises Unusable where torch is missing.
    """

    def __init__(self, size: int, seconds: float = SECONDS) -> None:
        if not installed():
            raise Unusable(missing("torch"))
        self.size, self.seconds = size, seconds
        self._processes: list[Any] = []
        self._folder: Path | None = None
        self._said: queue.Queue[tuple[int, tuple[Any, ...]]] = queue.Queue()

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def run(
        self, ranks: int, program: str, file: str, names: tuple[str, ...], *arguments: Any
    ) -> list[Any]:
        """Return what each of the first `ranks` processes returns: program(*functions, *arguments, group).

        program: one of the worker's PROGRAMS. file, names: the learner's file, and the functions of it that are run.
        Raises Unusable if the file lacks one, and LabError if a rank stops, waits for a call that never comes, or
        nothing happens for `seconds`.
        """
        try:
            if not self._processes:
                self._start()
            request = ranks, program, str(Path(file).resolve()), names, arguments
            for process in self._processes:
                pickle.dump(request, process.stdin)
                process.stdin.flush()
            return self._results(ranks)
        except OSError:
            self.end()
            raise LabError("A process of PyTorch has ended; run the checks again.") from None
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End the processes."""
        for process in self._processes:
            owned.end(process, grace=0.0)
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe.close()
        if self._folder is not None:
            owned.remove_folder(self._folder)
        self._processes, self._folder = [], None

    def _start(self) -> None:
        self._folder, self._said = owned.make_folder("dlhpc-torch-"), queue.Queue()
        for rank in range(self.size):
            words = [sys.executable, "-m", WORKER, str(self._folder), str(rank), str(self.size)]
            with open(self._folder / f"errors_{rank}", "wb") as errors:
                process = owned.start(words, stdin=PIPE, stdout=PIPE, stderr=errors)
            self._processes.append(process)
            reader = threading.Thread(
                target=_read, args=(rank, process.stdout, self._said), daemon=True
            )
            reader.start()
        for _ in range(self.size):
            self._next(START)

    def _results(self, ranks: int) -> list[Any]:
        """Return the results, in the order of the ranks."""
        seen, results = Calls(ranks), dict[int, Any]()
        while len(results) < self.size:
            rank, kind, what = self._next(self.seconds, seen)
            if kind == "result":
                results[rank] = what
                if rank < ranks:
                    seen.returned(rank)
            elif kind == "call":
                seen.entered(rank, what)
            elif kind == "at":
                seen.last[rank] = what
            elif kind == "print":
                print(f"rank {rank}: {what}")
        return [results[rank] for rank in range(ranks)]

    def _next(self, limit: float, seen: "Calls | None" = None) -> tuple[int, str, Any]:
        """Return the next message. Raises LabError: it reports an error, or there is none for `limit` s."""
        try:
            rank, (kind, what) = self._said.get(timeout=limit)
        except queue.Empty:
            if seen is None:
                words = f"PyTorch has not started after {START:g} s.{self._written()}"
                raise LabError(words) from None
            words = f"Nothing has happened for {limit:g} s: {seen.where()}."
            raise Endless(words) from None
        if kind == "unusable":
            raise Unusable(what)
        if kind == "explained":
            raise LabError(f"rank {rank}: {what}")
        if kind == "error" and "gloo" in what:  # a peer may be gone, and its end is the news
            with suppress(Endless):
                return self._next(LOST, seen)
        if kind == "error":
            raise LabError(f"rank {rank} stopped with {what}")
        if kind == "ended":
            raise LabError(f"The process of rank {rank} has ended.{self._written(rank)}")
        return rank, kind, what

    def _written(self, rank: int = 0) -> str:
        """Return the end of what a process has written to stderr, as a sentence."""
        assert self._folder is not None
        text = (
            (self._folder / f"errors_{rank}").read_text(encoding="utf-8", errors="replace").strip()
        )
        return f" It wrote: {text[-SHOWN:]}" if text else ""


def installed() -> bool:
    """Whether torch is there, without importing it."""
    try:
        return find_spec("torch") is not None
    except ModuleNotFoundError:  # of extras.Finder
        return False


class Calls:
    """The collectives that ranks have entered; last: the last sign of each rank, in words."""

    def __init__(self, ranks: int) -> None:
        self.calls: list[list[Call]] = [[] for _ in range(ranks)]
        self.last = ["has not started"] * ranks
        self._back: list[int] = []  # ranks that have returned

    def entered(self, rank: int, call: Call) -> None:
        """A rank enters its next collective. Raises Mismatch, Unmet."""
        own, number = self.calls[rank], len(self.calls[rank])
        own.append(call)
        self.last[rank] = f"is in or after {_words(call)}"
        for other, calls in enumerate(self.calls):
            if number < len(calls) and calls[number] != call:
                raise Mismatch(
                    f"Call {number + 1} is {_words(call)} on rank {rank} and {_words(calls[number])} on rank"
                    f" {other}: all ranks must make the same calls in the same order."
                )
        self._unmet()

    def returned(self, rank: int) -> None:
        """A rank returns. Raises Unmet if others are in a call that it has not made."""
        self._back.append(rank)
        self.last[rank] = "has returned"
        self._unmet()

    def where(self) -> str:
        """Return where the ranks are, in words."""
        return "; ".join(f"rank {rank} {last}" for rank, last in enumerate(self.last))

    def _unmet(self) -> None:
        for rank in self._back:
            made = len(self.calls[rank])
            ahead = [other for other, calls in enumerate(self.calls) if len(calls) > made]
            if ahead:
                call = self.calls[ahead[0]][made]
                raise Unmet(
                    f"Deadlock: {ranks_wait(ahead)} in {call[0]} for rank {rank}, which returned without it.",
                    made,
                )


def _words(call: Call) -> str:
    return f"{call[0]} of {call[1]:,} numbers"


def _read(rank: int, pipe: IO[bytes], said: "queue.Queue[tuple[int, tuple[Any, ...]]]") -> None:
    """Pass on the messages of a process, until it ends."""
    for message in _messages(pipe):
        said.put((rank, message))
    said.put((rank, ("ended", None)))


def _messages(pipe: IO[bytes]) -> Iterator[tuple[Any, ...]]:
    with suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):
        while True:
            yield pickle.load(pipe)
