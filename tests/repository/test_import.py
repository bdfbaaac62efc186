"""`import lib_dlhpc` is light, and so is each room that needs no screen and no ranks."""

import subprocess
import sys

import pytest

HEAVY = {
    *("altair", "anywidget", "IPython", "ipywidgets", "jsonschema", "pandas"),
    *("fsspec", "mpi4py", "simpy", "zstandard"),
}


@pytest.mark.parametrize(
    "module",
    ["lib_dlhpc", "lib_dlhpc.spec", "lib_dlhpc.prediction", "lib_dlhpc.storage", "lib_dlhpc.cli"],
)
def test_import_pulls_in_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert HEAVY.isdisjoint(run.stdout.split())
