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
def test_import_pulls_in_nothing_heavy(module):
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert HEAVY.isdisjoint(run.stdout.split())


NEEDLESS = {  # of a run that is not split, without --explain, a target or a misspelled name
    *("difflib", "hashlib", "importlib.abc", "subprocess", "tempfile", "tomli_w"),
    *("lib_dlhpc.convergence", "lib_dlhpc.lifetime.files", "lib_dlhpc.parallel"),
    *("lib_dlhpc.prediction.explain", "lib_dlhpc.prediction.fit", "lib_dlhpc.prediction.price"),
    *("lib_dlhpc.spec.networks.inception", "lib_dlhpc.spec.networks.transformer"),
}


def test_a_prediction_imports_only_what_it_needs() -> None:
    """Imports are most of its time."""
    code = "import sys; from lib_dlhpc.cli import main; main(['predict', 'goyal-2017'])"
    code += "; print(*sys.modules, file=sys.stderr)"
    words = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"]
    run = subprocess.run(words, capture_output=True, text=True)
    assert run.returncode == 0 and "time to train" in run.stdout
    assert not NEEDLESS & {*run.stderr.split()}
