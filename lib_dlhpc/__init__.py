"""lib_dlhpc: describe a training run once, then predict it, simulate it, run it, and compare.

    from lib_dlhpc import Experiment, load, predict

    print(predict(load("goyal-2017")).step_time)
    print(predict(Experiment(model="resnet50", machine="summit", strategy={"nodes": 64})).step_time)

Packages are nouns, and each holds its verb: prediction.predict, simulation.simulate, comparison.compare, ...
"""

from typing import TYPE_CHECKING, Any

from lib_dlhpc import extras

if TYPE_CHECKING:
    from lib_dlhpc.comparison import compare
    from lib_dlhpc.errors import SpecError
    from lib_dlhpc.importing import import_model
    from lib_dlhpc.launch import submit
    from lib_dlhpc.planner import plan
    from lib_dlhpc.prediction import predict, sweep
    from lib_dlhpc.prediction.validation.validate import validate
    from lib_dlhpc.simulation import simulate
    from lib_dlhpc.spec.experiment import Experiment, dump, dumps, load, loads
    from lib_dlhpc.verbs import calibrate, run

__version__ = "0.1.0"
__all__ = [
    "Experiment",
    "SpecError",
    "__version__",
    "calibrate",
    "compare",
    "dump",
    "dumps",
    "import_model",
    "load",
    "loads",
    "plan",
    "predict",
    "run",
    "simulate",
    "submit",
    "sweep",
    "validate",
]

# Packages are imported on first use, which keeps `import lib_dlhpc` fast.
_HOMES = {
    "Experiment": "lib_dlhpc.spec.experiment",
    "load": "lib_dlhpc.spec.experiment",
    "loads": "lib_dlhpc.spec.experiment",
    "dump": "lib_dlhpc.spec.experiment",
    "dumps": "lib_dlhpc.spec.experiment",
    "SpecError": "lib_dlhpc.errors",
    "import_model": "lib_dlhpc.importing",
    "predict": "lib_dlhpc.prediction",
    "sweep": "lib_dlhpc.prediction",
    "validate": "lib_dlhpc.prediction.validation.validate",
    "simulate": "lib_dlhpc.simulation",
    "plan": "lib_dlhpc.planner",
    "compare": "lib_dlhpc.comparison",
    "submit": "lib_dlhpc.launch",
    "run": "lib_dlhpc.verbs",
    "calibrate": "lib_dlhpc.verbs",
}

extras.install()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lib_dlhpc' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
