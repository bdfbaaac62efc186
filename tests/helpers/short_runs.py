"""Runs of seconds on one or two ranks, the processes of their folders, and how tests wait for a job to end."""

from pathlib import Path
from typing import Any

import psutil
from patience import eventually

from lib_dlhpc.launch.jobs import ENDS
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline.store import save

SHORT = Experiment(
    model="mlp-digits",
    dataset="digits",
    machine="laptop",
    strategy={"devices_per_node": 2, "batch": 50},
    storage={"tier": "ssd"},
    run={"epochs": 2},
)


def digits(**strategy: Any) -> Experiment:
    """Return a smaller one, on one rank by default."""
    own = {"devices_per_node": 1, "batch": 32, **strategy}
    return Experiment(model="mlp-digits", dataset="digits", machine="laptop", strategy=own)


class Simulated:
    """A job that has come through: its timeline is the simulated one."""

    state = "done"

    def __init__(self, experiment: Experiment, ranks: int, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        save(simulate(experiment, steps=20), folder / "timeline.npz")

    def wait(self) -> dict[str, Any]:
        """Return no result."""
        return {}

    cancel = wait


def left(folder: Path) -> list[int]:
    """Return the processes of the run in a folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        if str(folder) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def ended(job: Any) -> str:
    """Wait until a job has ended and none of its processes is left; return its state."""
    eventually(
        lambda: job.state in ENDS and not left(job.folder),
        what=lambda: (job.state, job.why(), left(job.folder)),
    )
    return str(job.state)
