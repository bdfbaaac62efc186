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


NEEDLESS = {  # of a run that is not split, without --explain, --set, a target or a misspelled name
    *("difflib", "hashlib", "importlib.abc", "json", "mmap", "statistics", "subprocess"),
    *("tempfile", "tomli_w", "lib_dlhpc.layers.base.arena"),
    *("lib_dlhpc.convergence", "lib_dlhpc.lifetime.files", "lib_dlhpc.parallel"),
    *("lib_dlhpc.costs.groups", "lib_dlhpc.costs.offload", "lib_dlhpc.costs.platform"),
    *("lib_dlhpc.costs.low_rank", "lib_dlhpc.costs.spares", "lib_dlhpc.costs.uneven_groups"),
    *("lib_dlhpc.layers.adapter", "lib_dlhpc.layers.attention", "lib_dlhpc.layers.base.copies"),
    *("lib_dlhpc.layout.graph", "lib_dlhpc.layout.parts", "lib_dlhpc.layout.tensor"),
    *("lib_dlhpc.prediction.accuracy", "lib_dlhpc.prediction.communication.asynchronous"),
    "lib_dlhpc.prediction.reports.explain",
    *(
        "lib_dlhpc.prediction.limits.fit",
        "lib_dlhpc.prediction.memory.rank_parts",
        "lib_dlhpc.prediction.storage.io",
    ),
    *(
        "lib_dlhpc.prediction.memory.rank_memory",
        "lib_dlhpc.prediction.memory.offload",
        "lib_dlhpc.prediction.price",
    ),
    *("lib_dlhpc.prediction.changes.sensitivity", "lib_dlhpc.prediction.failures.spares"),
    *("lib_dlhpc.prediction.sweeps.sweep", "lib_dlhpc.prediction.what_if"),
    *("lib_dlhpc.program.calls", "lib_dlhpc.program.path", "lib_dlhpc.program.program"),
    *("lib_dlhpc.schedules.double_tree", "lib_dlhpc.schedules.execute"),
    *("lib_dlhpc.schedules.in_network", "lib_dlhpc.schedules.pipeline"),
    *("lib_dlhpc.schedules.price", "lib_dlhpc.schedules.proof"),
    *("lib_dlhpc.spec.networks.inception", "lib_dlhpc.spec.networks.transformer"),
    "lib_dlhpc.spec.plain",
}


def test_a_prediction_imports_only_what_it_needs() -> None:
    """Imports are most of its time."""
    code = "import sys; from lib_dlhpc.cli import main; main(['predict', 'goyal-2017'])"
    code += "; print(*sys.modules, file=sys.stderr)"
    words = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"]
    run = subprocess.run(words, capture_output=True, text=True)
    assert run.returncode == 0 and "time to train" in run.stdout
    assert not NEEDLESS & {*run.stderr.split()}


def test_a_short_command_searches_for_no_cycles() -> None:
    """Not while it imports and predicts, and not at its end: that was a tenth of its time."""
    lines = [
        "import atexit, gc, sys",
        "sys.argv[0], found = 'dlhpc', []",
        "gc.callbacks.append(lambda phase, more: found.append(phase))",
        "atexit.register(lambda: print(*found, gc.get_freeze_count() > 10_000, file=sys.stderr))",
        "from lib_dlhpc import cli",  # functions that it registers are called before
        "found.clear()",
        "cli.main(['predict', 'goyal-2017'])",
    ]
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert run.returncode == 0 and run.stderr.strip() == "True"
