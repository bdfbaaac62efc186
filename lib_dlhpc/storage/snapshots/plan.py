"""The snapshot plan of a run, where and how often: snapshots.json of its folder.

Runs that begin at another run's version share its store, each on its own branch: one tree holds them all.
"""

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.storage.snapshots.files import SnapshotError, write
from lib_dlhpc.storage.snapshots.refs import check_name
from lib_dlhpc.storage.snapshots.store import MAIN, SnapshotStore, open_snapshots
from lib_dlhpc.storage.snapshots.version import Version

FILE, FOLDER = "snapshots.json", "snapshots"
EPOCH = "epoch"
EXPERIMENT = "experiment"  # the array that holds the text of a run's experiment


@dataclass(frozen=True)
class Plan:
    """every: steps from one version to the next, or 0 for the end of each epoch. store: a folder, from the run's."""

    every: int = 0
    branch: str = MAIN
    store: str = FOLDER

    def where(self, folder: Path) -> Path:
        """Return the folder of the store, for a run in `folder`."""
        return folder / self.store


def read_plan(folder: Path) -> Plan | None:
    """Return the plan of a run folder, None if it has none. Raises SnapshotError."""
    path = Path(folder) / FILE
    try:
        plan = Plan(**json.loads(path.read_text(encoding="utf-8")))
        check_name(plan.branch, "branch")
        legal = type(plan.every) is int and plan.every >= 0 and isinstance(plan.store, str)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise SnapshotError(f"{path}: cannot be read: {error}.") from None
    if not legal:
        raise SnapshotError(f"{path}: {plan}: expected steps, a branch and a folder.")
    return plan


def write_plan(folder: Path, plan: Plan) -> None:
    """Write the plan into a run folder."""
    write(Path(folder) / FILE, f"{json.dumps(asdict(plan))}\n".encode())


def read_every(text: str | int) -> int:
    """Return the steps from one version to the next; 0 for "epoch". Raises SpecError for anything else."""
    if text == EPOCH:
        return 0
    if re.fullmatch(r"[0-9]{1,9}", str(text)) and int(text):
        return int(text)
    raise SpecError(
        f"--snapshot-every {text}: expected a number of steps, at least 1, or {EPOCH!r}."
    )


def store_of(folder: str | Path) -> tuple[SnapshotStore, Plan]:
    """Return the store of a run folder, or of a folder that is a store itself, and its plan. Raises SnapshotError."""
    folder = Path(folder)
    plan = read_plan(folder)
    if plan is None and (folder / "format").exists():
        plan = Plan(store=".")
    if plan is None:
        raise SnapshotError(
            f"{folder}: holds no snapshots; a run saves some with --snapshot-every."
        )
    return open_snapshots(plan.where(folder)), plan


def check_kept(folder: Path, done: bool) -> None:
    """Raise SnapshotError if the versions that a run resumes from are missing, or their names cannot be read.

    done: whether the run completed once, and so has saved something.
    """
    plan = read_plan(folder)
    if plan is None:
        return
    where, store = plan.where(folder), SnapshotStore(plan.where(folder))
    if not (where / "format").exists():
        raise SnapshotError(
            f"{folder} continues from {where}, which does not exist; nothing was changed."
        )
    store.check_there()
    saved = done or plan.store != FOLDER or bool(store.branches.names()) or bool(store.log())
    try:
        newest = store.newest(plan.branch)
    except SnapshotError as error:
        whole = newest_whole(store, plan)
        if whole is None:
            raise
        raise SnapshotError(
            f"{error} `dlhpc run --from {folder}@{whole.number}` begins at the newest complete version."
        ) from None
    if newest is None and saved:
        raise SnapshotError(
            f"{folder} continues from branch {plan.branch} of {where}, which does not exist: it was"
            f" forgotten; `dlhpc snapshots log {folder}` shows what is left, and `dlhpc snapshots branch"
            f" {folder} VERSION --name {plan.branch}` puts it back. Nothing was changed."
        )


def newest_whole(store: SnapshotStore, plan: Plan) -> Version | None:
    """Return the newest intact version of a run; None if there is none."""
    versions = store.log()
    below = {version.id: version for version in versions}
    line = [version for version in reversed(versions) if version.branch == plan.branch]
    while line:
        version = line.pop(0)
        try:
            for name in version.arrays:
                for _ in store.chunks(version, name):
                    pass
            return version
        except SnapshotError:
            line = line or [below[each] for each in [version.parent] if each in below]
    return None


def version_of(text: str) -> tuple[Path, SnapshotStore, Plan, Version]:
    """Return the version of RUN@VERSION; without a version, the newest of the run. Raises SnapshotError."""
    run, at, name = str(text).rpartition("@")
    folder = Path(run if at else text)
    store, plan = store_of(folder)
    version = store.version(name) if name and at else store.newest(plan.branch)
    if version is None:
        raise SnapshotError(f"{folder}: branch {plan.branch} has no version yet.")
    return folder, store, plan, version


def experiment_text(store: SnapshotStore, version: Version) -> str:
    """Return the experiment that a version was saved by, as TOML; "" if it holds none. Raises SnapshotError."""
    if EXPERIMENT not in version.arrays:
        return ""
    return b"".join(store.chunks(version, EXPERIMENT)).decode("utf-8", "replace")


def begin_branch(folder: Path, store: SnapshotStore, version: Version, every: int) -> Plan:
    """Let a run folder begin at a version, on a branch with the folder's name, or one like it."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip(".-") or "run"
    base = (f"run-{base}" if base.isdigit() else base)[:90]
    name, number = base, 2
    while name in store.branches:
        name, number = f"{base}-{number}", number + 1
    store.branch(name, version)
    path = os.path.relpath(store.folder.resolve(), folder.resolve())
    plan = Plan(every, name, Path(path).as_posix())
    write_plan(folder, plan)
    return plan
