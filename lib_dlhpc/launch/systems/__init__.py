"""Batch systems, one file each: a record SYSTEM of base/system.py; PSI/J writes their job scripts."""

from functools import cache
from importlib import import_module
from pathlib import Path

from lib_dlhpc.launch.systems.base.system import Answer, System, run

NAMES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py")))

__all__ = ["NAMES", "Answer", "System", "run", "system"]


@cache
def system(name: str) -> System:
    """Return the record of a batch system."""
    found: System = import_module(f"lib_dlhpc.launch.systems.{name}").SYSTEM
    return found
