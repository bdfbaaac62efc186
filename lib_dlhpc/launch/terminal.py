"""A run in a terminal: a line that says how far it is, Ctrl-C, and what came of it."""

import sys
import time
from pathlib import Path
from typing import Any

from lib_dlhpc.launch.local import Job, JobError, start
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

PAUSE = 0.1  # s between two looks


def run_here(experiment: Experiment, ranks: int, folder: Path | None, resume: bool) -> str:
    """Run an experiment to its end and return what came of it, in words.

    Raises SpecError for mistakes, JobError if the run failed, KeyboardInterrupt that says what is left.
    """
    job = start(experiment, ranks, folder, resume)
    try:
        while job.state == "running":
            _line(job, float(experiment.run.epochs))
            time.sleep(PAUSE)
        _clear()
        return as_text(experiment, job, job.wait())
    except KeyboardInterrupt:
        job.cancel()
        _clear()
        raise KeyboardInterrupt(f"Cancelled. {_left(job)}") from None
    except JobError as error:
        raise JobError(f"{error}\n{_left(job)}") from None


def as_text(experiment: Experiment, job: Job, result: dict[str, Any]) -> str:
    """Return the result of a run: how well it learned, how fast, and where a step's time went."""
    model = experiment.model.name or experiment.model.family
    head = f"{model} on {experiment.dataset.name}, {result['ranks']} ranks of this machine:"
    rate = result["samples"] / max(result["seconds"], 1e-9)
    lines = [
        f"{head} {result['samples']:,} samples in {show(result['seconds'], 's')},"
        f" {show(rate, 'samples/s')}",
        f"  loss {result['loss']:.4g}, on the test samples {result['test_loss']:.4g}",
    ]
    if result["accuracy"] is not None:
        lines.append(f"  test accuracy {result['accuracy']:.1%}")
    terms = {name: seconds for name, seconds in result["terms"].items() if seconds}
    lines.append(f"  one step {show(sum(terms.values()), 's')}, of which")
    lines += [f"    {name:<25} {show(seconds, 's'):>10}" for name, seconds in terms.items()]
    lines.append(f"  all of it is in {job.folder}")
    return "\n".join(lines)


def _left(job: Job) -> str:
    if (job.folder / "snapshot.npz").exists():
        return f"What was saved is in {job.folder}; --resume {job.folder} goes on from there."
    return f"Nothing was saved yet; the log is in {job.folder}."


def _line(job: Job, epochs: float) -> None:
    rows = [row for row in job.metrics() if "step" in row]
    if rows and sys.stderr.isatty():
        now = rows[-1]
        share = min(now["epoch"] / epochs, 1.0)
        bar = "#" * round(20 * share)
        text = f"[{bar:<20}] epoch {now['epoch']:.1f} of {epochs:g}, loss {now['loss']:.4g}"
        print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)


def _clear() -> None:
    if sys.stderr.isatty():
        print(f"\r{'':<70}\r", end="", file=sys.stderr, flush=True)
