"""lib_dlhpc: describe a training run once, then predict it, simulate it, run it, and compare.

    from lib_dlhpc import load
    from lib_dlhpc.predict import predict

    print(predict(load("goyal.toml")).step_time)

Each room holds its verb: lib_dlhpc.predict.predict, lib_dlhpc.predict.sweep, ...
"""

from typing import Any

__version__ = "0.1.0"

# Rooms are entered on first use, so that `import lib_dlhpc` costs no more than it must.
_HOMES = {
    "Experiment": "lib_dlhpc.spec.experiment",
    "load": "lib_dlhpc.spec.experiment",
    "loads": "lib_dlhpc.spec.experiment",
    "dump": "lib_dlhpc.spec.experiment",
    "dumps": "lib_dlhpc.spec.experiment",
    "SpecError": "lib_dlhpc.spec.errors",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lib_dlhpc' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
