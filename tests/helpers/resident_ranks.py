"""Ranks that stay: checks run one after the other on as many of them as each asks for, without a start of their own.

A start costs each rank half a CPU second, most of it imports. `Resident` starts this file on as many ranks as any check
needs. They wait for the next one at a socket, where they take no core from those that work. A check is a program for
mpiexec and remains one: its COMM_WORLD holds the ranks that it asked for, and its module is executed anew. What it
changes in the package it restores.
"""

import io
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path

from lib_dlhpc.launch.mpi import ONE_THREAD, SLEEPING
from lib_dlhpc.lifetime import owned


class Resident:
    """Ranks from their first check on; after a failed one others are started."""

    def __init__(self, mpiexec: str, patience: float, most: int = 8) -> None:
        file = str(Path(__file__).resolve())
        self._words = [mpiexec, "-n", str(most), sys.executable, file, str(most)]
        self.most = most  # ranks of a check
        self.patience = patience  # s that a check may take, or a start
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: list[Connection] = []

    def run(self, ranks: int, program: Path, *arguments: str) -> str:
        """Return what the ranks of a check print, rank by rank. Raises AssertionError if one fails or none answers."""
        try:
            if self._process is None:
                self._start()
            lines, answers = self._lines[:ranks], {}
            for line in lines:
                line.send((ranks, str(program), arguments))
            until = time.monotonic() + self.patience
            while len(answers) < ranks:
                ready = wait(
                    [line for line in lines if line not in answers], until - time.monotonic()
                )
                assert ready, f"{ranks - len(answers)} of {ranks} ranks do not end"
                failures = []  # of all: mpiexec ends the others when one ends
                for line in ready:
                    answers[line], failed = _answer(line)
                    failures += [f"rank {lines.index(line)}\n{answers[line]}"] if failed else []
                assert not failures, "\n".join(failures)
        except BaseException:
            self.close()  # the others may wait for the one that failed
            raise
        return "".join(answers[line] for line in lines)

    def close(self) -> None:
        """End the ranks."""
        for line in self._lines:
            line.close()
        if self._process is not None:
            owned.end(self._process)
        self._process, self._lines = None, []

    def _start(self) -> None:
        env = SLEEPING | os.environ | ONE_THREAD
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
            door.bind(f"{folder}/ranks")
            door.listen(self.most)
            door.settimeout(self.patience)
            words = [*self._words, f"{folder}/ranks"]
            self._process = owned.start(words, stdin=subprocess.DEVNULL, env=env)
            self._lines = [Connection(door.accept()[0].detach()) for _ in range(self.most)]
        by_rank = {line.recv(): line for line in self._lines}
        self._lines = [by_rank[rank] for rank in range(self.most)]


def _answer(line: Connection) -> tuple[str, bool]:
    """What a rank says of its check."""
    try:
        return line.recv()
    except EOFError:
        return "It ended.", True


def main(ranks: str, address: str) -> None:
    """One rank: run checks until the socket is closed."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    assert world.size == int(ranks)  # some launchers start lone programs instead
    # The socket is closed when the tests end, or give up a check that other ranks have finished.
    with Client(address) as line, suppress(EOFError, OSError):
        line.send(world.rank)
        while True:
            size, program, arguments = line.recv()
            MPI.COMM_WORLD = world.Create_group(world.group.Range_incl([(0, size - 1, 1)]))
            line.send(ran(program, arguments))
            MPI.COMM_WORLD.Free()


def ran(program: str, arguments: tuple[str, ...]) -> tuple[str, bool]:
    """Run a program as its own; return what it printed and whether it failed."""
    before, path, output, failed = {*sys.modules}, [*sys.path], io.StringIO(), False
    sys.argv, sys.path[:0] = [program, *arguments], [str(Path(program).parent)]
    with redirect_stdout(output), redirect_stderr(output):
        try:
            runpy.run_path(program, run_name="__main__")
        except BaseException:
            traceback.print_exc()
            failed = True
    sys.path[:] = path
    # Modules beside the program read its ranks when they were imported.
    beside = str(Path(program).parent)
    for name in {*sys.modules} - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(beside):
            del sys.modules[name]
    return output.getvalue(), failed


if __name__ == "__main__":
    main(*sys.argv[1:])
