"""What a learner's function is given in its process: stand-ins, whose calls the checker's process carries out.

Also modules of these names, for what a hand-in may import: MPI's constants, and the instructions of a pipeline.
"""

import sys
from dataclasses import astuple, dataclass
from types import ModuleType
from typing import Any

CONSTANTS = ("IN_PLACE", "SUM", "MAX", "MIN", "PROD", "PROC_NULL", "ANY_SOURCE", "ANY_TAG")
TYPES = ("DOUBLE", "FLOAT", "INT", "LONG", "INT32_T", "INT64_T", "BYTE", "BOOL")


class Named:
    """A constant of MPI, known by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"MPI.{self.name}"


@dataclass(frozen=True)
class Forward:
    """Compute a microbatch forward."""

    microbatch: int
    chunk: int


@dataclass(frozen=True)
class Backward:
    """Compute its gradients."""

    microbatch: int
    chunk: int


@dataclass(frozen=True)
class Send:
    """Send an "activation" or a "gradient" of stage `stage` to rank `peer`."""

    what: str
    microbatch: int
    stage: int
    peer: int


@dataclass(frozen=True)
class Receive:
    """Receive an "activation" or a "gradient" of stage `stage` from rank `peer`."""

    what: str
    microbatch: int
    stage: int
    peer: int


NOUNS = {each.__name__: each for each in (Forward, Backward, Send, Receive)}


def noun_of(value: Any) -> tuple[str, list[Any]]:
    """Return name and fields of an instruction."""
    return type(value).__name__, list(astuple(value))


class Stub:
    """An object of the checker's process. Its arrays are here; its calls are carried out there."""

    def __init__(self, session: Any, number: int, kind: str, reads: list[str]) -> None:
        self._session, self._number, self._kind, self._reads = session, number, kind, reads

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{self._kind} has no {name}")
        if name in self._reads:
            return self._session.do(self._number, name, None, None)
        return lambda *given, **named: self._session.do(self._number, name, given, named)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._session.do(self._number, "__call__", given, named)

    def __repr__(self) -> str:
        return f"<{self._kind}>"


def add_modules(names: list[str]) -> None:
    """Make modules of these names: mpi4py, and those of the library that a hand-in may import."""
    mpi = ModuleType("mpi4py.MPI")
    for name in (*CONSTANTS, *TYPES):
        setattr(mpi, name, Named(name))
    contents = {"mpi4py.MPI": vars(mpi), "lib_dlhpc.schedules.pipeline": NOUNS}
    for name in names:
        above = name.split(".")
        for last in range(1, len(above) + 1):
            whole = ".".join(above[:last])
            module = sys.modules.setdefault(whole, ModuleType(whole))
            module.__path__ = []  # a package, to the import statement
            vars(module).update(contents.get(whole, {}))
            if last > 1:
                setattr(sys.modules[".".join(above[: last - 1])], above[last - 1], module)
