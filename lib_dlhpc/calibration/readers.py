"""Several reader processes with a common start; time runs from the common start to the slowest reader's end."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib_dlhpc.calibration import other_processes
from lib_dlhpc.calibration.workspace import CalibrationError
from lib_dlhpc.lifetime import owned

SCRIPT = Path(__file__).with_name("reader.py")


class Readers:
    """Processes, not threads, because of Python's global interpreter lock.

    A context manager; leaving it ends all processes.
    """

    def __init__(self, count: int) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self._count = count

    def __enter__(self) -> "Readers":
        words = [sys.executable, "-I", "-P", "-S", str(SCRIPT)]
        try:
            for _ in range(self._count):
                self._processes.append(
                    owned.start(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                )
        except BaseException as error:
            self.__exit__(None, None, None)
            if isinstance(error, OSError):
                raise CalibrationError(
                    f"A reader could not be started: {error.strerror}."
                ) from None
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()
            owned.ended(process)

    def run(self, tasks: Sequence[dict[str, Any]]) -> tuple[float, int, float]:
        """Run one task on each of the first readers; returns seconds, samples of all, load by other processes.

        The load is the mean number of cores busy with other processes.

        Raises CalibrationError if a reader fails.
        """
        busy = self._processes[: len(tasks)]
        for process, task in zip(busy, tasks, strict=True):
            _send(process, json.dumps(task))
        for process in busy:
            _receive(process)
        before, mine = other_processes.busy(), time.process_time()
        for process in busy:
            _send(process, "go")
        answers = [_receive(process) for process in busy]
        mine = time.process_time() - mine + sum(answer["work"] for answer in answers)
        foreign = other_processes.busy() - before - mine
        begin, end = (
            min(answer["begin"] for answer in answers),
            max(answer["end"] for answer in answers),
        )
        load = max(0.0, foreign) / (end - begin)
        return end - begin, sum(answer["samples"] for answer in answers), load


def _send(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        raise CalibrationError("A reader exited early.") from None


def _receive(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise CalibrationError("A reader exited without an answer.")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise CalibrationError(f"A reader failed: {answer['error']}.")
    return answer
