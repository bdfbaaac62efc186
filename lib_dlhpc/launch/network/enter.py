"""Run a command inside a network laboratory: in its keeper's namespaces, or in one rank's network namespace.

    python -I enter.py 4711 mpiexec -n 2 ...          joins user, PID and network namespaces of 4711
    python -I enter.py 4711:12 python script.py       run by mpiexec in there: joins the network namespace of descriptor
                                                      12 + rank of 4711, then executes the command

Started as a file without the package: it must be single-threaded and quick.
"""

import ctypes
import os
import signal
import sys
from typing import NoReturn

NEW_NET, NEW_PID, NEW_USER = 0x40000000, 0x20000000, 0x10000000
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def system(name: str, *arguments: int) -> None:
    """Call a function of the C library that returns -1 on error. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def join(path: str, kind: int) -> None:
    """Move this process into a file's namespace. Raises OSError."""
    where = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        system("setns", where, kind)
    finally:
        os.close(where)


def main(keeper: str, command: list[str]) -> NoReturn:
    """Run the command as described above; exit with its status, or 127 if it cannot start."""
    pid, _, first = keeper.partition(":")
    try:
        if first:
            rank = next(int(os.environ[name]) for name in RANK if name in os.environ)
            join(f"/proc/{pid}/fd/{int(first) + rank}", NEW_NET)
            os.execvp(command[0], command)
        enter(int(pid))
        run(command)
    except StopIteration:
        fail("mpiexec sets no rank; expected one of " + ", ".join(RANK))
    except OSError as error:
        fail(f"{command[0]} cannot be run in the laboratory: {error.strerror}")


def enter(pid: int) -> None:
    """Join the namespaces of process `pid`; children will be in its PID namespace. Raises OSError."""
    names = [("user", NEW_USER), ("net", NEW_NET), ("pid", NEW_PID)]
    there = [f"/proc/{pid}/ns/{name}" for name, _ in names]
    files = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in there]
    for file, (name, kind) in zip(files, names, strict=True):
        if os.fstat(file).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            system("setns", file, kind)
        os.close(file)


def run(command: list[str]) -> NoReturn:
    """Run the command as a child, which ends with this process, and pass signals on to it."""
    child = os.fork()
    if not child:
        try:
            system("prctl", DEATH_SIGNAL, int(signal.SIGKILL))
            os.execvp(command[0], command)
        except OSError as error:
            fail(f"{command[0]} could not be started: {error.strerror}")
    for number in FORWARDED:
        signal.signal(number, lambda number, _: os.kill(child, number))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def fail(text: str) -> NoReturn:
    """Print an error and exit."""
    print(f"dlhpc network: {text}.", file=sys.stderr, flush=True)
    os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
