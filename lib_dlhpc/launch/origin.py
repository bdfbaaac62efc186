"""Where a run's snapshots go, and from which version it starts: checked before any rank starts."""

from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment, loads, to_tables
from lib_dlhpc.storage.snapshots import SnapshotStore, Version
from lib_dlhpc.storage.snapshots.plan import (
    FILE,
    FOLDER,
    Plan,
    begin_branch,
    check_kept,
    experiment_text,
    read_every,
    read_plan,
    version_of,
    write_plan,
)


def check_snapshots(
    experiment: Experiment,
    folder: Path,
    resume: bool,
    every: str | int | None,
    origin: str | None,
    done: bool = False,
) -> None:
    """Raise SpecError if the requested snapshots are impossible; nothing is changed.

    done: whether a resumed run was already complete.
    """
    if every is not None:
        read_every(every)
    asynchronous = experiment.strategy.update == "asynchronous"
    if asynchronous and every is not None and read_every(every):
        raise SpecError(
            f"--snapshot-every {every}: asynchronous updates are consistent only at the end of an epoch;"
            " give 'epoch'."
        )
    if origin is not None and resume:
        raise SpecError(f"--from {origin}: a resumed run starts from its own snapshots.")
    if resume:
        check_kept(folder, done)
    if not resume and any((folder / name).exists() for name in (FILE, FOLDER)):
        raise SpecError(f"{folder}: holds snapshots already; name another folder.")
    if origin is not None:
        _, store, _, version = version_of(origin)
        _check_origin(experiment, origin, store, version)


def settle_snapshots(
    folder: Path, resume: bool, every: str | int | None, origin: str | None
) -> None:
    """Record in a run folder where its snapshots go, if any are requested."""
    steps = None if every is None else read_every(every)
    if origin is not None:
        _, store, plan, version = version_of(origin)
        begin_branch(folder, store, version, plan.every if steps is None else steps)
    elif steps is not None:
        before = (read_plan(folder) if resume else None) or Plan()
        SnapshotStore(before.where(folder)).make()
        write_plan(folder, Plan(steps, before.branch, before.store))


def _check_origin(
    experiment: Experiment, origin: str, store: SnapshotStore, version: Version
) -> None:
    """Raise SpecError unless a run can start from a version: same network, and same rest of its epoch."""
    text = experiment_text(store, version)
    if not text:
        raise SpecError(
            f"--from {origin}: {version.name} belongs to no run: it holds no experiment."
        )
    theirs = loads(text)
    mine, other = to_tables(experiment), to_tables(theirs)
    if mine.get("model") != other.get("model"):
        raise SpecError(f"--from {origin}: {version.name} has another [model].")
    if version.metrics.get("epoch", 0.5) % 1:
        same = {
            "[dataset]": mine.get("dataset") == other.get("dataset"),
            "run.seed": experiment.run.seed == theirs.run.seed,
            "global batch": int(experiment.global_batch) == int(theirs.global_batch),
        }
        if not all(same.values()):
            names = ", ".join(name for name, equal in same.items() if not equal)
            raise SpecError(
                f"--from {origin}: {version.name} is within an epoch, whose rest would differ:"
                f" {names}; start at the end of an epoch."
            )
