"""A component that is missing is named with the command that installs it: `pip install 'lib-dlhpc[sim]'`."""

import sys
from collections.abc import Sequence
from typing import Any

# The extra of pyproject.toml that installs each module; what is not listed comes with the core, or is named elsewhere.
EXTRA = {
    "simpy": "sim",
    **dict.fromkeys(("fsspec", "mpi4py", "xxhash", "zstandard"), "run"),
    **dict.fromkeys(("altair", "anywidget", "ipywidgets", "vl_convert", "voila"), "lab"),
    **dict.fromkeys(("ipykernel", "ipyparallel", "nbclient", "nbconvert", "nbformat"), "lab"),
    **dict.fromkeys(("jupyter_client", "jupyter_core", "jupyter_server", "psutil"), "lab"),
    **dict.fromkeys(("mistune", "tornado", "traitlets"), "lab"),
    "psij": "cluster",
    "torch": "torch",
    "onnx": "import",
    **dict.fromkeys(("distributed", "pyarrow"), "scale"),
    "jupyterhub": "hub",
    "ziamath": "slides",
}

# What the core needs, by module: missing where this package was installed without its dependencies.
CORE = {"numpy": "numpy", "shtab": "shtab", "tomli_w": "tomli-w"}


def installer(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'lib-dlhpc[{extra}]'"


def missing(module: str) -> str:
    """Return the sentence that names a missing module of EXTRA or CORE and what installs it."""
    command = f"pip install {CORE[module]}" if module in CORE else installer(EXTRA[module])
    return f"{module} is not installed; `{command}` installs it."


class Finder:
    """The last finder of modules: an error that is a sentence, where this package imports one that is not there."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        """Raise ModuleNotFoundError with `missing(name)`; another package that looks for the module is left alone."""
        if (name in EXTRA or name in CORE) and _importer().startswith("lib_dlhpc."):
            raise ModuleNotFoundError(missing(name), name=name)


def _importer() -> str:
    """Return the name of the module that imports: the innermost one that is not of the import system."""
    frame = sys._getframe(2)
    while frame.f_back and "importlib" in frame.f_globals.get("__name__", ""):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def install() -> None:
    """Register the finder, after all others."""
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
