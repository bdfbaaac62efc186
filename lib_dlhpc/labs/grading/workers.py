"""Processes for learners' code, forked by a server that has only Python and numpy: see inside/."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs import torch_ranks
from lib_dlhpc.lifetime import owned
from lib_dlhpc.storage import patches

# -I and -S: neither the environment, nor the folder, nor installed packages decide what is imported.
START = "import sys; sys.path[:0] = sys.argv[3:]; from inside.server import main; main(int(sys.argv[1]), sys.argv[2])"
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}
NO_DEVICE = {"CUDA_VISIBLE_DEVICES": ""}  # its threads would not survive a fork
MEMORY = 1 << 30  # B of address space


class Server:
    """The server's other end. unheld: what only Python holds its processes back from, and the system does not."""

    def __init__(self, process: Any, control: socket.socket) -> None:
        self._process, self._control, self._lock = process, control, threading.Lock()
        held = self._answer()
        self.unheld = [what for bit, what in ((1, "the network"), (2, "files")) if not held & bit]

    def fork(self, output: IO[Any]) -> tuple[int, socket.socket]:
        """Return number and socket of a fresh process. Raises OSError if there is no server any more."""
        own, theirs = socket.socketpair()
        with theirs, self._lock:
            socket.send_fds(self._control, [b"fork"], [theirs.fileno(), output.fileno()])
            return self._answer(), own

    def end(self, number: int) -> int:
        """Kill a process; return its exit status, or the signal that ended it, below zero."""
        with self._lock:
            self._control.sendall(b"end %d" % number)
            return self._answer()

    def answers(self) -> bool:
        """Return whether it is still there."""
        return self._process.poll() is None

    def _answer(self) -> int:
        line = b""
        while not line.endswith(b"\n"):
            part = self._control.recv(64)
            if not part:
                raise OSError("the process that starts learners' code has ended")
            line += part
        return int(line)


@contextmanager
def server(
    legal: Sequence[str], seconds: int, files: bool = False, torch: bool = False
) -> Iterator[Server]:
    """Yield a server of processes that may import `legal` and compute for `seconds`; all end with the block.

    files: whether they may have those of the folders that their functions are given. torch: whether they run steps of
    PyTorch (labs/torch_ranks/rank).
    Raises SpecError on a system that cannot fork, and where the server does not start.
    """
    if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
        raise SpecError("This system cannot fork a process; Linux, macOS and WSL can.")
    control, theirs = socket.socketpair()
    limits = {"legal": sorted(legal), "seconds": seconds, "memory": MEMORY}
    options = json.dumps(limits | {"files": patches.__file__ if files else "", "torch": torch})
    paths = [str(Path(__file__).parent), str(Path(np.__file__).parents[1])]
    if torch:
        found = find_spec("torch")
        assert found is not None and found.origin is not None
        paths += [str(Path(torch_ranks.__file__).parent), str(Path(found.origin).parents[1])]
    words = [sys.executable, "-I", "-S", "-c", START, str(theirs.fileno()), options, *paths]
    with owned.temporary_folder("dlhpc-grade-") as folder, control:
        null = subprocess.DEVNULL
        process = owned.start(
            words,
            pass_fds=(theirs.fileno(),),
            cwd=folder,
            stdin=null,
            stdout=null,
            env=ONE_THREAD | NO_DEVICE,
        )
        theirs.close()
        try:
            yield _started(process, control)
        finally:
            owned.end(process)


def _started(process: Any, control: socket.socket) -> Server:
    try:
        return Server(process, control)
    except OSError:
        raise SpecError(
            "The process that starts learners' code does not start; it says above what is missing."
        ) from None
