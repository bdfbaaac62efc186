"""Limits of a process that runs a learner's code: time, memory, files, network, imports.

What the kernel holds it to: CPU seconds and memory (setrlimit), no file but its open ones (Landlock, Linux 5.13), no
network (a namespace of its own, Linux), no signal to others (Landlock, Linux 6.12). What Python holds it to: no file,
process or socket (an audit hook, which cannot be taken out again), and no import but of a list.
"""

import builtins
import ctypes
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

# landlock_create_ruleset, landlock_restrict_self, on every architecture
CREATE, RESTRICT = (444, 446)
NO_NEW_PRIVILEGES = 38  # of prctl
# version of Landlock: how many kinds of access it knows
FILES = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
SIGNALS = 6  # the first version that holds signals back
NEW_USER, NEW_NET = 0x10000000, 0x40000000
INTERNAL = ("numpy.", "_strptime")  # what C code of numpy and time imports in its caller's name
OUTPUT = 1 << 20  # B that may be printed
REFUSED = ("os.", "subprocess.", "socket.", "ctypes.", "resource.", "fcntl.", "mmap.", "pty.")
ALONE = frozenset(
    {"open", "signal.pthread_kill", "sys.addaudithook", "sys.setprofile", "sys.settrace"}
)


class Refused(ImportError):
    """A hand-in asks for what it may not have."""


def limit(seconds: int, memory: int) -> None:
    """Limit CPU seconds, B of memory, B of a file, processes."""
    _at_most(resource.RLIMIT_CPU, seconds, seconds + 1)  # SIGXCPU, then SIGKILL
    _at_most(resource.RLIMIT_AS, memory)
    _at_most(resource.RLIMIT_FSIZE, OUTPUT)
    _at_most(resource.RLIMIT_NPROC, 0)
    _at_most(resource.RLIMIT_CORE, 0)


def mapped() -> int:
    """Return the B of address space that are in use, 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _at_most(what: int, soft: int, hard: int | None = None) -> None:
    most = resource.getrlimit(what)[1]
    wanted = [
        each if most == resource.RLIM_INFINITY else min(each, most) for each in (soft, hard or soft)
    ]
    with suppress(ValueError, OSError):  # a system that does not hold it
        resource.setrlimit(what, (wanted[0], wanted[1]))


def without_network() -> bool:
    """Leave the network; return whether the system lets us. For this process and those that it forks."""
    libc = _libc()
    if libc is None or not hasattr(libc, "unshare"):
        return False
    return bool(libc.unshare(NEW_USER | NEW_NET) == 0 or libc.unshare(NEW_NET) == 0)


def landlock() -> int:
    """Return the version of Landlock, 0 without it."""
    libc = _libc()
    query = (None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return 0 if libc is None else max(0, int(libc.syscall(CREATE, *query)))


def without_files() -> bool:
    """Give up all files that are not open; return whether the system holds us to it."""
    libc, version = _libc(), landlock()
    if not version:
        return False
    kinds = FILES.get(version, FILES[max(FILES)])
    rules = (ctypes.c_uint64 * 3)((1 << kinds) - 1, 0, 3 if version >= SIGNALS else 0)
    size = 24 if version >= SIGNALS else 8
    descriptor = libc.syscall(CREATE, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint(0))
    if descriptor < 0:
        return False
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return bool(libc.syscall(RESTRICT, descriptor, ctypes.c_uint(0)) == 0)


def _libc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None)
    except OSError:
        return None


def refuse(name: str, legal: frozenset[str]) -> None:
    """From now on, refuse files, processes, sockets, and imports by the module `name` that are not legal."""
    sys.addaudithook(_hook(REFUSED, ALONE))
    vars(builtins)["__import__"] = _importer(builtins.__import__, name, legal)


def _hook(prefixes: tuple[str, ...], alone: frozenset[str]) -> Callable[[str, Any], None]:
    def hook(event: str, _: Any) -> None:
        if event in alone or event.startswith(prefixes):
            raise Refused(f"{event}: a hand-in has no files, processes or network")

    return hook


def _importer(original: Callable[..., Any], name: str, legal: frozenset[str]) -> Callable[..., Any]:
    def importer(module: str, *rest: Any, **named: Any) -> Any:
        asked_by = sys._getframe(1).f_globals.get("__name__")
        if asked_by == name and module not in legal and not module.startswith(INTERNAL):
            raise Refused(f"{module} is not on the list of modules that may be imported")
        return original(module, *rest, **named)

    return importer
