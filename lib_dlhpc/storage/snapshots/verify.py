"""Verification of a snapshot store: every byte is read, every problem reported."""

from collections.abc import Iterator
from pathlib import Path

from lib_dlhpc.storage.snapshots.files import SnapshotError, names
from lib_dlhpc.storage.snapshots.objects import Damaged, Objects
from lib_dlhpc.storage.snapshots.refs import Refs
from lib_dlhpc.storage.snapshots.version import Version, read_version

TRIES = 5  # as often as garbage is collected beside it


def problems(folder: Path) -> list[str]:
    """Return the problems of a store as sentences.

    Other processes may write meanwhile. A version is published from its chunks to its name, so it is read from the
    names on: whatever a name reaches was written before. After a concurrent garbage collection it restarts.
    """
    found: list[str] = []
    for _ in range(TRIES):
        before = _removable(folder)
        found = _problems(folder)
        if not found or before <= _removable(folder):
            break
    return found


def _removable(folder: Path) -> set[str]:
    """Return the names of the files that only a collection of garbage removes."""
    return {f"{kind}/{name}" for kind in ("objects", "versions") for name in names(folder / kind)}


def _problems(folder: Path) -> list[str]:
    found: list[str] = []
    heads: list[tuple[str, str]] = []
    for refs in (Refs(folder / "branches", "branch"), Refs(folder / "tags", "tag")):
        for name in refs.names():
            try:
                identity = refs.get(name)
            except SnapshotError as error:
                found.append(str(error))
                continue
            heads += [(f"{refs.kind} {name}", identity)] if identity else []
    versions: dict[str, Version] = {}
    for name in names(folder / "versions"):
        try:
            version = read_version(folder / "versions" / name)
            versions[version.id] = version
        except SnapshotError as error:
            found.append(str(error))
    objects = Objects(folder / "objects")  # reread: cached tables may be stale
    objects.refresh()
    bad = _bad_chunks(objects)
    found += [f"{text}." for text in objects.damaged.values()]
    for version in versions.values():
        found += _missing(version, objects, bad)
    unused = set(bad) - {
        key for v in versions.values() for a in v.arrays.values() for key in a.chunks
    }
    found += [f"{bad[key]}; no version needs it." for key in sorted(unused)]
    found += [
        f"{name}: no version {identity} that can be read."
        for name, identity in heads
        if identity not in versions
    ]
    return found


def _bad_chunks(objects: Objects) -> dict[bytes, str]:
    """Read all chunks; return the problems by hash."""
    bad: dict[bytes, str] = {}
    with objects.reading() as read:
        for table in objects.tables.values():
            for key, spot in table:
                try:
                    objects.where[key] = spot  # this copy of it, if there are two
                    read(key)
                except Damaged as error:
                    bad[key] = str(error)
    return bad


def _missing(version: Version, objects: Objects, bad: dict[bytes, str]) -> Iterator[str]:
    """Yield the first problem of each array of a version."""
    for name, array in version.arrays.items():
        for key in array.chunks:
            if key in bad or key not in objects.where:
                ill = bad.get(key, f"chunk {key.hex()}: in no object that can be read")
                yield f"{version.name}, {name}: {ill}."
                break
