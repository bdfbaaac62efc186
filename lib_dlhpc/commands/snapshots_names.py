"""What the names in a snapshot store stand for, in words: labels, those that are broken, what one alone reaches."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lib_dlhpc.spec.errors import SpecError

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
    """Return which names of branches and tags stand for nothing that can be read, and what mends each."""
    from lib_dlhpc.storage.snapshots.refs import LEGAL

    heads: list[tuple[str, str, str]] = []  # first, for a run may be saving
    for refs in (store.branches, store.tags):
        for name in refs.names():
            anew = f"branch {run} VERSION --name {name}"
            anew = anew if refs is store.branches else f"tag {run} VERSION {name}"
            mend = (
                f"`dlhpc snapshots forget {run} {name}`, then `dlhpc snapshots {anew}`, mends it."
            )
            if not LEGAL.fullmatch(name):
                mend = f"Remove {refs.folder / name}, which is none of the store's."
            try:
                identity = refs.get(name)
                problem = f"{refs.kind} {name}: version {identity[:7]} is damaged or not there."
                heads += [(identity, problem, mend)] if identity else []
            except SpecError as error:
                heads.append(("", str(error), mend))
    known = {version.id for version in store.log()}
    return [f"{problem} {mend}" for identity, problem, mend in heads if identity not in known]


def takes(store: "SnapshotStore", run: Path, name: str) -> tuple[int, list[Path]]:
    """Return how many versions only a name reaches, and the run folders near the store that go on from it."""
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
