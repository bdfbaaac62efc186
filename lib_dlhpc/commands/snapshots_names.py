"""Names in a snapshot store: labels of versions, broken names, versions reachable from one name only."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lib_dlhpc.errors import SpecError

if TYPE_CHECKING:
    from lib_dlhpc.storage.snapshots import SnapshotStore


def labels(store: "SnapshotStore") -> dict[str, list[str]]:
    """Return the names of branches and tags by the id of their version."""
    found: dict[str, list[str]] = {}
    for refs in (store.branches, store.tags):
        for name in refs.names():
            label = name if refs is store.branches else f"{refs.kind} {name}"
            with suppress(SpecError):  # see broken
                found.setdefault(refs.get(name), []).append(label)
    return found


def broken(store: "SnapshotStore", run: str) -> list[str]:
    """Return the branches and tags without a readable version, and how to repair each."""
    from lib_dlhpc.storage.snapshots.refs import LEGAL

    heads: list[tuple[str, str, str]] = []  # before the log: a run may be saving
    for refs in (store.branches, store.tags):
        for name in refs.names():
            anew = f"branch {run} VERSION --name {name}"
            anew = anew if refs is store.branches else f"tag {run} VERSION {name}"
            mend = (
                f"`dlhpc snapshots forget {run} {name}`, then `dlhpc snapshots {anew}`, repairs it."
            )
            if not LEGAL.fullmatch(name):
                mend = f"Remove {refs.folder / name}, which does not belong to the store."
            try:
                identity = refs.get(name)
                problem = f"{refs.kind} {name}: version {identity[:7]} is damaged or missing."
                heads += [(identity, problem, mend)] if identity else []
            except SpecError as error:
                heads.append(("", str(error), mend))
    known = {version.id for version in store.log()}
    return [f"{problem} {mend}" for identity, problem, mend in heads if identity not in known]


def takes(store: "SnapshotStore", run: Path, name: str) -> tuple[int, list[Path]]:
    """Return how many versions are reachable only from a name, and the nearby run folders that continue it."""
    from lib_dlhpc.storage.snapshots.plan import FILE, read_plan

    parents = {version.id: version.parent for version in store.log()}
    mine: set[str] = set()
    others: set[str] = set()
    forgotten = store.tags if name in store.tags else store.branches
    for refs in (store.branches, store.tags):
        for each in refs.names():
            with suppress(SpecError):
                at = refs.get(each)
                while at in parents:
                    (mine if refs is forgotten and each == name else others).add(at)
                    at = parents[at]
    runs = []
    near = {
        run.resolve(),
        *(path.parent for path in store.folder.resolve().parent.parent.glob(f"*/{FILE}")),
    }
    for folder in sorted(near) if forgotten is store.branches else ():
        with suppress(SpecError):
            plan = read_plan(folder)
            if (
                plan
                and plan.branch == name
                and plan.where(folder).resolve() == store.folder.resolve()
            ):
                runs.append(folder)
    return len(mine - others), runs
