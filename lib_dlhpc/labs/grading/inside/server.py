"""Forks processes for learners' code: one has Python and numpy loaded already, so a fresh one takes milliseconds.

Commands come as lines: `fork`, with a socket and a file for what is printed, is answered by a number; `end NUMBER`
kills that process and is answered by how it ended. At the end of the commands, all are killed.
"""

import gc
import json
import linecache
import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any, cast

from . import files, sandbox, stubs, wire
from .session import HAND_IN, Session

# What is loaded now is all that there will be: later there are no files to load from.
LOADED = (
    *("numpy.linalg", "numpy.random", "numpy.fft", "numpy.ma", "numpy.polynomial"),
    *("numpy.lib.stride_tricks", "_strptime", "linecache", "traceback"),
    *("encodings.latin_1", "encodings.ascii", "encodings.idna", "encodings.cp437"),
    *("_pyio", "zipfile"),
)
NOT_PYTHON = ("mpi4py.", "lib_dlhpc.")


def main(descriptor: int, options: str) -> None:
    """Serve. options: JSON of seconds, memory, legal modules, the file of `swap` for stand-ins, or "", and whether
    hand-ins use PyTorch.
    """
    own = json.loads(options)
    own["programs"] = dict
    if own["torch"]:
        own["programs"] = _torch()
        own["memory"] += sandbox.mapped()  # its libraries take more than a hand-in may
    python = [each for each in own["legal"] if not each.startswith(NOT_PYTHON)]
    for name in (*LOADED, *python):
        import_module(name)
    if own["torch"]:
        # FSDP formats tracebacks, for which Python would read source files.
        vars(linecache)["updatecache"] = lambda *given: []
    stubs.add_modules([each for each in own["legal"] if each.startswith(NOT_PYTHON)])
    own["swap"] = _swap(own["files"]) if own["files"] else None
    sys.path.clear()
    control, children = socket.socket(fileno=descriptor), set[int]()
    held = sandbox.without_network() + 2 * bool(sandbox.landlock())
    gc.freeze()  # what all share is not written to by a collection
    control.sendall(b"%d\n" % held)
    while True:
        words, descriptors = received(control)
        if not words:
            break
        command = words.split()
        if command[0] == b"fork":
            pid = os.fork()
            if pid == 0:
                _be(control, descriptors, own)
            children.add(pid)
            for each in descriptors:
                os.close(each)
            control.sendall(b"%d\n" % pid)
        else:
            control.sendall(b"%d\n" % _end(int(command[1]), children))
    for pid in set(children):
        _end(pid, children)


def received(control: socket.socket) -> tuple[bytes, list[int]]:
    """Return a command and its descriptors; none once the grader has ended, even with an answer unread."""
    try:
        words, descriptors, *_ = socket.recv_fds(control, 64, 2)
    except ConnectionResetError:
        return b"", []
    return words, descriptors


def _end(pid: int, children: set[int]) -> int:
    """Kill a process; return its exit status, or the number of the signal that ended it, below zero."""
    if pid not in children:
        return 0
    children.remove(pid)
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)  # if it has ended already, this changes nothing
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _be(control: socket.socket, descriptors: list[int], own: dict[str, Any]) -> None:
    """Become a learner's process."""
    control.close()
    os.setsid()
    sock, output = descriptors
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(sock, 3)
    os.closerange(4, 256)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, errors="replace", closefd=False)
    session = Session(socket.socket(fileno=3), own["programs"]())
    if own["swap"]:
        _give_stand_ins(session, own["swap"])
    gc.disable()  # a file that is closed by a collection would send in the middle of a message
    if not sandbox.without_files() and sandbox.landlock():
        os._exit(1)  # what the command says that the system holds
    sandbox.limit(own["seconds"], own["memory"])
    sandbox.refuse(HAND_IN, frozenset(own["legal"]))
    try:
        session.serve()
    except (wire.Closed, wire.Garbled):
        os._exit(0)
    os._exit(1)


def _torch() -> Callable[[], dict[str, Callable[..., Any]]]:
    """Let PyTorch import all that it needs; return what makes the programs of a process."""
    warnings.simplefilter("ignore")  # what it deprecates would be in a learner's output
    graded = import_module("rank.graded")
    graded.warm_up()
    return cast("Callable[[], dict[str, Callable[..., Any]]]", graded.programs)


def _swap(file: str) -> Callable[..., None]:
    """Return what replaces Python's functions in all modules."""
    found = spec_from_file_location("patches", file)
    assert found is not None and found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return cast("Callable[..., None]", module.swap)


def _give_stand_ins(session: Session, swap: Callable[..., None]) -> None:
    """Let the functions on files, and the storage library, be the checker's."""

    def do(name: str, *given: Any) -> Any:
        return session.do(0, name, list(given), None)

    swap(files.stand_ins(do))
    for name, contents in files.library(do).items():
        vars(sys.modules[name]).update(contents)
