"""Old import paths, for one version: lib_dlhpc.predict.fit is lib_dlhpc.prediction.limits.fit, with a warning.

A package and a verb cannot share a name, so packages became nouns. An old package, imported by its path, is
still callable like the verb that `from lib_dlhpc import predict` returns.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

RENAMED = {
    "predict": "prediction",
    "simulate": "simulation",
    "compare": "comparison",
    "calibrate": "calibration",
    "train": "training",
}
STUDIES = (
    "large_batch",
    "large_batch_steps",
    "large_batch_results",
    "accuracy_costs",
    "emulated_workers",
)
MOVED = {"spec.errors": "errors"} | {f"training.{name}": f"studies.{name}" for name in STUDIES}


class Finder:
    """Finds modules by their old paths; the last entry of sys.meta_path."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Return the spec of a renamed module, else None."""
        package, _, rest = name.partition(".")
        old, _, inner = rest.partition(".")
        if package == "lib_dlhpc" and rest in MOVED:
            return _spec(name, f"{package}.{MOVED[rest]}")
        if package != "lib_dlhpc" or old not in RENAMED:
            return None
        now = ".".join(filter(None, (package, RENAMED[old], inner)))
        return _spec(name, now, old if not inner else "")


def _spec(name: str, now: str, verb: str = "") -> ModuleSpec:
    loader: Any = _Loader(
        now, verb
    )  # no importlib.abc.Loader: its module imports tempfile, and more
    return ModuleSpec(name, loader, is_package=True)


class _Loader:
    def __init__(self, now: str, verb: str) -> None:
        self.now, self.verb = now, verb

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} is now {self.now}", DeprecationWarning, stacklevel=2)
        now, module = import_module(self.now), _Old(spec.name)
        # An empty path, or else submodules would be loaded a second time under their old names.
        module.__dict__.update(now=now, verb=self.verb, __path__=[], __doc__=now.__doc__)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: attributes come from the renamed module."""


class _Old(ModuleType):
    """A module under its old path; it forwards attributes to the renamed module."""

    now: ModuleType
    verb: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)

    def __dir__(self) -> list[str]:
        return dir(self.now)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return sys.modules["lib_dlhpc"].__getattr__(self.verb)(*arguments, **options)


def install() -> None:
    """Register the finder of old paths."""
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
