"""However a command is ended, and when: no process, file or segment of it is left, no traceback, and its exit status
is right.

Moments are drawn from seeds; DLHPC_ENDINGS=20 draws twenty for each command in place of one.
"""

import json
import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from killed_commands import STATUS, end_after, has_ranks, listens

from lib_dlhpc.cli import main
from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import attach
from lib_dlhpc.launch.network.lab import unfit
from lib_dlhpc.spec.measured_machine import load_measured
from lib_dlhpc.storage.verify import verify
from lib_dlhpc.timeline.chakra import read_trace
from lib_dlhpc.timeline.store import load

ROUNDS = int(os.environ.get("DLHPC_ENDINGS", "1"))
WAYS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if sys.platform != "win32" else ()
LATEST = 0.6  # s after a command listens to signals, or has ranks
EXCHANGES = """
import time
import numpy as np
from mpi4py import MPI
array = np.ones(100)
for _ in range(600):
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, array)
    array[:] = 1
    time.sleep(0.05)
"""
LONG = ("--set", "run.epochs=10000")
MANY = (
    "--set",
    "machine.name=lassen",
    "--set",
    "strategy.nodes=8",
    "--set",
    "strategy.devices_per_node=4",
)
COMMANDS = {  # "DIGITS" and "COUPLED": experiments; what has ranks comes first
    "run": ("run", "DIGITS", "-n", "2", "--out", "run", *LONG),
    "compare": ("compare", "DIGITS", "-n", "2", "--seconds", "20"),
    "calibrate": ("calibrate", "-n", "2", "--seconds", "20", "--out", "machine.toml"),
    "trace run": ("trace", "run", "-n", "2", "--out", "trace.npz", "exchanges.py"),
    "couple": ("couple", "COUPLED", "-n", "2"),
    "network": ("network", "-n", "2"),
    "submit": ("submit", "DIGITS", "-n", "2", "--to", "local", "--out", "job", "--wait", *LONG),
    "calibrate io": ("calibrate", "io", ".", "--seconds", "20", "--size", "51 MB"),
    "simulate": (
        "simulate",
        "DIGITS",
        "--fidelity",
        "events",
        "--steps",
        "50",
        *MANY,
        "--trace",
        "steps.json",
    ),
    "import machine": ("import", "machine", "LATENCY", "--base", "selene", "--out", "my.toml"),
    "predict": ("predict", "DIGITS"),
    "plan": ("plan", "DIGITS"),
    "sweep": (
        "sweep",
        "goyal-2017",
        "--over",
        "strategy.nodes=1-44",
        "strategy.batch=1-2048",
        "machine.inter_node.latency=1e-6,2e-6",
        "--rows",
        "rows",
        "--on",
        "processes:2",
    ),
    "validate": ("validate",),
    "store pack": ("store", "pack", "PACKAGE", "store"),
    "doctor": ("doctor",),
    "explore": ("explore", "--no-browser"),
    "class serve": ("class", "serve", "--no-browser", "--folder", "class"),
    "trace export": ("trace", "export", "DIGITS", "traces", *MANY),
    "serve run": ("serve", "run", "SERVING", "--set", "requests.count=400"),
    "serve simulate": ("serve", "simulate", "SERVING", "--set", "requests.count=20000"),
    "grade": ("grade", "class", "--lab", "01_data_parallel_step", "--csv", "marks.csv"),
}
RANKED = list(COMMANDS)[:7]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the owner of a process"),
    pytest.mark.slow,
]


def planted():
    """Yield (command, signal, moment, after its ranks have started): each command is killed, and ended in turn."""
    for number, name in enumerate(COMMANDS):
        for turn in range(ROUNDS):
            dice = random.Random(f"{name} {turn}")
            for way in (WAYS[(number + turn) % len(WAYS)], signal.SIGKILL):
                late = name in RANKED and dice.random() < 0.7
                yield pytest.param(
                    name, way, dice.uniform(0, LATEST), late, id=f"{name}-{way.name}-{turn}"
                )


@pytest.mark.parametrize(("name", "way", "moment", "late"), [*planted()])
def test_nothing_is_left_of_a_command(name, way, moment, late, repository, tmp_path, require):
    if name == "network":
        require(not unfit(), unfit())
    places = {
        "DIGITS": repository / "labs/experiments/digits.toml",
        "COUPLED": repository / "labs/experiments/coupled.toml",
        "SERVING": repository / "labs/experiments/serving.toml",
        "PACKAGE": repository / "lib_dlhpc",
        "LATENCY": f"inter_node={repository / 'tests/data/measurements/osu_latency.txt'}",
    }
    (tmp_path / "exchanges.py").write_text(EXCHANGES)
    (tmp_path / "class" / "ada").mkdir(parents=True)
    (tmp_path / "class" / "ada" / "step.py").write_text(
        "def step(*_):\n    while True:\n        pass\n"
    )
    words = ["-m", "lib_dlhpc.cli", *(str(places.get(word, word)) for word in COMMANDS[name])]
    came = end_after(
        words, tmp_path, way, has_ranks if late else listens, moment, lambda: cancelled(tmp_path)
    )
    # 0: it had come to its end, or Ctrl-C is its end; 3: so had a comparison, without a verdict
    assert came.status in (STATUS[way], 0, *([3] if name == "compare" else [])), came
    assert "Traceback" not in came.errors, came
    assert not came.processes and not came.segments, came
    left = {file for file in came.files if not kept(tmp_path, file)}
    assert not left, came


def cancelled(folder):
    """A job continues without a waiting process, until it is cancelled."""
    with suppress(SpecError):
        attach(folder / "job").cancel()


def kept(folder: Path, file: str) -> bool:
    """Whether a file is one that a command may leave, because it is whole."""
    path, (top, *_) = folder / file, Path(file).parts
    if file.endswith(".tmp"):
        return False
    if top in ("run", "job"):
        # It had not begun: the next one begins here.
        if not (folder / top / "status.json").exists():
            return path.name in ("experiment.toml", "log.txt")
        status = json.loads((folder / top / "status.json").read_text())
        return status["state"] in ("cancelled", "failed", "done")
    if top == "class":
        return True  # answers are kept; the next server goes on with them
    if file == "trace.npz":
        return load(path).ranks == 2
    if file == "my.toml":
        return load_measured(path).measured is not None
    if top == "traces":
        return len(read_trace(folder / top).files) == 32
    if file == "steps.json":
        return bool(json.loads(path.read_text()))
    return top == "store" and not verify(folder / "store")


@pytest.mark.parametrize("verb", ["run", "submit"])
def test_a_run_begins_where_one_was_ended_before_it_began(verb, repository, tmp_path):
    """Its folder held a description and an empty log, and no status."""
    digits = repository / "labs/experiments/digits.toml"
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "log.txt").touch()
    (tmp_path / "job" / "experiment.toml").write_text(digits.read_text())
    words = [verb, str(digits), "-n", "1", "--out", str(tmp_path / "job")]
    words += ["--to", "local", "--wait"] if verb == "submit" else []
    assert main(words) == 0
    assert (tmp_path / "job" / "result.json").exists()
