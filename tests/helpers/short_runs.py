"""A run of seconds on two ranks, the processes of its folder, and how tests wait for a job to end."""

from pathlib import Path
from typing import Any

import psutil
from patience import eventually

from lib_dlhpc.launch.jobs import ENDS
from lib_dlhpc.spec.experiment import Experiment

SHORT = Experiment(
    model="mlp-digits",
    dataset="digits",
    machine="laptop",
    strategy={"devices_per_node": 2, "batch": 50},
    storage={"tier": "ssd"},
    run={"epochs": 2},
)


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
