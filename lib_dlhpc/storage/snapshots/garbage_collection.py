"""Garbage collection by mark and sweep: what no branch or tag reaches is removed.

An object with at least half garbage is rewritten first; then versions are removed, then objects: a kill in between
only leaves more garbage.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lib_dlhpc.storage.snapshots.files import SnapshotError, names, remove
from lib_dlhpc.storage.snapshots.objects import Damaged
from lib_dlhpc.storage.snapshots.refs import Refs
from lib_dlhpc.storage.snapshots.version import Version, read_version

if TYPE_CHECKING:
    from lib_dlhpc.storage.snapshots.store import SnapshotStore


@dataclass(frozen=True)
class Swept:
    """What was removed, or would be: `versions`, and `freed` B of chunks; `kept` versions remain."""

    versions: tuple[Version, ...]
    freed: int
    kept: int


def sweep(store: "SnapshotStore", keep_last: int | None, dry_run: bool) -> Swept:
    """Remove the garbage of a store whose lock is held. Raises SnapshotError before anything is removed."""
    if keep_last is not None and keep_last < 1:
        raise SnapshotError(f"keep_last = {keep_last}: expected a whole number, at least 1.")
    kept, objects = marked(store, keep_last), store.objects
    needed = _needed(store, kept)
    gone = tuple(version for version in store.log() if version.id not in kept)
    size, live = objects.sizes(lambda key: True), objects.sizes(lambda key: key in needed)
    old = [name for name in size if 2 * live[name] <= size[name]]
    swept = Swept(gone, sum(size[name] - live[name] for name in old), len(kept))
    if dry_run:
        return swept
    moved = [key for key in needed if objects.where[key].object in old]
    try:
        objects.copy(moved)
    except Damaged as error:
        raise SnapshotError(f"{store.folder}: {error}; nothing was removed.") from None
    for name in names(store.folder / "versions"):
        if name.removesuffix(".json") not in kept:
            remove(store.folder / "versions" / name)
    # A copy may remain from a sweep that was killed.
    copies = {objects.where[key].object for key in moved}
    for name in {*old, *objects.damaged} - copies:
        remove(objects.folder / name)
    return swept


def marked(store: "SnapshotStore", keep_last: int | None) -> dict[str, Version]:
    """Return the versions that names reach, by id; keep_last: at most N of each branch, and the tagged ones.

    Raises SnapshotError if a name or a version is damaged.
    """
    kept: dict[str, Version] = {}
    for refs in (store.branches, store.tags):
        for name in refs.names():
            most = None if keep_last is None else keep_last if refs is store.branches else 1
            kept |= _chain(store, refs, name, most)
    return kept


def _chain(store: "SnapshotStore", refs: Refs, name: str, most: int | None) -> dict[str, Version]:
    """Return a name's version and its ancestors, up to one that was removed before."""
    chain: dict[str, Version] = {}
    identity = refs.get(name)
    while identity and (most is None or len(chain) < most):
        path = store.folder / "versions" / f"{identity}.json"
        if chain and not path.exists():
            break
        try:
            chain[identity] = read_version(path)
        except SnapshotError as error:
            raise SnapshotError(f"{refs.kind} {name}: {error} Nothing was removed.") from None
        identity = chain[identity].parent
    return chain


def _needed(store: "SnapshotStore", kept: dict[str, Version]) -> dict[bytes, None]:
    """Return the hashes of all chunks of the versions. Raises SnapshotError for one that is not there."""
    needed: dict[bytes, None] = {}  # in the order of the arrays: copied so, they are read so
    for version in kept.values():
        for name, array in version.arrays.items():
            for key in array.chunks:
                if key not in store.objects.where:
                    ills = "".join(f"; {text}" for text in store.objects.damaged.values())
                    raise SnapshotError(
                        f"{version.name}, {name}: chunk {key.hex()} is in no object that can be"
                        f" read{ills}. Nothing was removed."
                    )
                needed[key] = None
    return needed
