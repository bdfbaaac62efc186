"""A run in a terminal: progress line, Ctrl-C, and the result."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lib_dlhpc.launch.jobs import BatchJob
from lib_dlhpc.launch.local import Job, JobError, start
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.storage.snapshots import SnapshotError
from lib_dlhpc.storage.snapshots.plan import FILE, FOLDER, newest_whole, read_plan, store_of

PAUSE = 0.1  # s between two polls


def run_here(
    experiment: Experiment,
    ranks: int,
    folder: Path | None,
    resume: bool,
    beside: Callable[[dict[str, Any]], list[str]] = lambda result: [],
    snapshot_every: str | int | None = None,
    origin: str | None = None,
) -> str:
    """Run an experiment to its end and return its result as text.

    beside: returns further lines for a result. snapshot_every, origin: see `start`. Raises SpecError for illegal
    input, JobError if the run failed, KeyboardInterrupt with a message on what was saved.
    """
    job = start(experiment, ranks, folder, resume, snapshot_every, origin)
    try:
        while job.state == "running":
            _line(job, float(experiment.run.epochs))
            time.sleep(PAUSE)
        _clear()
        result = job.wait()
        lines = beside(result)
        text, _, where = as_text(experiment, job, result).rpartition("\n")
        return "\n".join([text, *lines, *_versions(job), where])
    except KeyboardInterrupt:
        job.cancel()
        _clear()
        raise KeyboardInterrupt(f"Cancelled. {_left(job)}") from None
    except JobError as error:
        raise JobError(f"{error}\n{_damaged(job) or _left(job)}") from None


def as_text(
    experiment: Experiment,
    job: Job | BatchJob,
    result: dict[str, Any],
    where: str = "of this machine",
) -> str:
    """Return the result of a run as text: accuracy, rate, and time of a step by cause."""
    model = experiment.model.name or experiment.model.family
    ranks = f"{result['ranks']} rank{'s' * (result['ranks'] != 1)}"
    head = f"{model} on {experiment.dataset.name}, {ranks} {where}:"
    if not result["samples"]:
        head = f"{head} already complete;"
        loss, share = result["test_loss"], result["accuracy"]
        shown = f"test loss {loss:.4g}" if share is None else f"test accuracy {share:.1%}"
        return f"{head} {shown}\n  run folder: {job.folder}"
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
    lines += _exchanged(result)
    lines += [_routed(each, result["ranks"]) for each in result.get("experts", ())]
    lines.append(f"  run folder: {job.folder}")
    return "\n".join(lines)


def _exchanged(result: dict[str, Any]) -> list[str]:
    """Return the bytes that a rank sends, and the staleness of asynchronous updates."""
    sent, whole, stale = result["sent"], result["gradients"], result["staleness"]
    if not sent or result["ranks"] == 1:
        return []
    share = f", {sent / whole:.1%} of the gradients' {show(whole, 'B')}" if sent < whole else ""
    lines = [f"  a rank sends {show(sent, 'B')} in a mean step{share}"]
    if stale:
        lines[0] += ", and receives as much"
        lines.append(
            f"  staleness of {sum(stale['histogram']):,} updates: mean {stale['mean']:.1f}, largest"
            f" {stale['largest']}"
        )
    return lines


def _routed(load: dict[str, Any], ranks: int) -> str:
    """Return the load of the experts of a layer."""
    positions = load["positions"]
    mean = sum(positions) / len(positions)
    busiest = f"; the busiest rank has {load['imbalance']:.2f} times the mean" * (ranks > 1)
    return (
        f"  {load['layer']}: the experts were chosen {min(positions) / mean:.2f} to"
        f" {max(positions) / mean:.2f} times the mean, {load['dropped']:.1%} dropped{busiest}"
    )


def _damaged(job: Job) -> str:
    """Return from which version to resume if the newest is damaged; "" if it is not."""
    try:
        store, plan = store_of(job.folder)
        whole = newest_whole(store, plan)
        with suppress(SnapshotError):
            newest = store.newest(plan.branch)
            if newest is None or (whole is not None and whole.id == newest.id):
                return ""
    except SnapshotError as error:
        return f"{error}" if (job.folder / FILE).exists() else ""
    if whole is None:
        return f"No version of {job.folder} is intact: dlhpc snapshots verify {job.folder} reports why."
    return (
        f"The newest version in {job.folder} is damaged; --from {job.folder}@{whole.number}, the newest"
        f" intact version, resumes in a new folder: dlhpc run --from {job.folder}@{whole.number}"
    )


def _left(job: Job) -> str:
    if (job.folder / "snapshot.npz").exists() or _versions(job):
        return f"The snapshot is in {job.folder}; resume with --resume {job.folder}."
    return f"Nothing was saved yet; the log is in {job.folder}."


def _versions(job: Job) -> list[str]:
    """Return how many versions of its state a run has, and how to list them."""
    try:
        store, plan = store_of(job.folder)
        newest = store.newest(plan.branch)
        own = [version for version in store.log() if version.branch == plan.branch]
    except SnapshotError:
        return []
    if newest is None:
        return []
    if not own:  # none yet, or all are identical to those of another branch
        return _elsewhere(job)
    written = show(float(sum(version.written for version in own)), "B")
    return [
        f"  {len(own)} version{'s' * (len(own) != 1)} of its state, {written} in all, the newest"
        f" {newest.number} ({newest.short}): dlhpc snapshots log {job.folder}",
        *_elsewhere(job),
    ]


def _elsewhere(job: Job) -> list[str]:
    """Return where the versions are stored, if not in the run's own folder."""
    plan = read_plan(job.folder)
    if plan is None or plan.store == FOLDER:
        return []
    where = os.path.normpath(plan.where(job.folder))
    return [
        f"  stored in {where}, as branch {plan.branch} of the run it started from: keep that folder"
    ]


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
