"""Lab 9 on a real cluster: two ranks measure it, the learner predicts a run, and a batch job executes it.

measuring(program, folder, to, site)            the job that measures, submitted now or before
measured(job)                                   its points of messages and products
predicted_here(points, given, ranks)            the learner's prediction of the run, as text

A job that was submitted before is found, so a cell can be rerun while the job is queued.
"""

import json
import time
from math import log2
from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.predict_your_cluster.hidden_cluster import Fit, Job, Points
from lib_dlhpc.labs.predict_your_cluster.laws import DEVICE, LINK, numbers
from lib_dlhpc.labs.predict_your_cluster.tables import Given
from lib_dlhpc.launch import BatchJob, attach, load_site, submit_task
from lib_dlhpc.launch.jobs import ENDS, TICKET
from lib_dlhpc.launch.task import program as program_of
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

JOB = Job("here", (64, 512, 256, 10), 256)
EPOCHS = 20
# to measure; until a cell is given back; between two looks
SECONDS, PATIENCE, PAUSE = (10.0, 45.0, 0.1)
POINTS = "points.json"
OURS = {
    "forward": "compute",
    "backward": "compute",
    "waiting for the slowest": "waiting",
    "exposed communication": "communication",
}


def measuring(program: Path, folder: Path, to: str, site: str | None) -> BatchJob:
    """Return the job that measures on two ranks, handed in now or before. Raises SpecError."""
    if (folder / TICKET).exists():
        return attach(folder)
    task = program_of(program, str(folder / POINTS), f"{SECONDS:g}")
    where = None if site is None else load_site(site)
    return submit_task(task, 2, to, where, folder)


def measured(job: BatchJob) -> tuple[Points, Points] | None:
    """Return what a job has measured; None while it has not. Raises LabError where nothing came of it."""
    until = time.monotonic() + PATIENCE
    while job.state not in ENDS:
        if time.monotonic() > until:
            return None
        time.sleep(PAUSE)
    if job.state != "done":
        raise LabError(f"{job.why()} Remove {job.folder.name} to measure again.")
    points = json.loads((job.folder / POINTS).read_text(encoding="utf-8"))
    messages, products = (
        [(float(size), seconds) for size, seconds in points[what]]
        for what in ("messages", "products")
    )
    return messages, products


def experiment_here(ranks: int) -> Experiment:
    """Return the run: JOB on handwritten digits, its gradients as one message. Raises SpecError."""
    if ranks < 2 or not log2(ranks).is_integer() or JOB.batch % ranks:
        raise SpecError(f"RANKS = {ranks}: legal: 2, 4, 8, 16.")
    return Experiment(
        model={"family": "mlp", "widths": list(JOB.widths)},
        dataset="digits",
        machine={"name": "laptop", "devices_per_node": ranks},
        strategy={
            "devices_per_node": ranks,
            "batch": JOB.batch // ranks,
            "allreduce": "recursive_doubling",
            "bucket": 1e12,
        },
        run={"epochs": EPOCHS},
    )


def fit_here(points: tuple[Points, Points], given: Given) -> Fit:
    """Return what the learner's fits make of points. Raises LabError."""
    messages, products = points
    fit = numbers(given["fit_messages"], LINK, messages)
    return fit | numbers(given["fit_products"], DEVICE, products)


def predicted_here(points: tuple[Points, Points], given: Given, ranks: int) -> str:
    """Return the learner's fits of this machine and prediction of the run, as text. Raises LabError."""
    fit = fit_here(points, given)
    predicted = numbers(given["terms"], ("compute", "communication"), fit, JOB, ranks)
    listed = ", ".join(f"{name} {show(seconds, 's')}" for name, seconds in predicted.items())
    link = f"alpha {show(fit['alpha'], 's')}, 1/beta {_rate(fit['beta'])}"
    step = f"{show(fit['jump'], 's')} more from {show(fit['step'], 'B')} on"
    device = f"rate {show(fit['rate'], 'FLOP/s')}, half at {show(fit['half'], 'FLOP')}"
    return (
        f"Your fits of this machine: {link}, {step}; {device}.\n"
        f"Predicted by your terms on {count(ranks, 'rank')}: {listed}; a step {show(sum(predicted.values()), 's')}."
    )


def _rate(beta: float) -> str:
    return show(1 / beta, "B/s") if beta > 0 else "not seen: bytes cost nothing here"
