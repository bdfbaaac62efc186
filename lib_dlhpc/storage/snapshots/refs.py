"""Branches and tags: names for versions, a small file each.

A branch names its newest version and moves with each save; a tag is fixed. Versions that a name reaches, through
the parents, are retained.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from lib_dlhpc.storage.snapshots.chunks import HASH
from lib_dlhpc.storage.snapshots.files import SnapshotError, names, remove, write

LEGAL = re.compile(r"(?=.*[^0-9])[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
ID = re.compile(rf"[0-9a-f]{{{2 * HASH}}}\n", re.ASCII)


class Refs:
    """The names of one kind: "branch" or "tag"."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind

    def __contains__(self, name: str) -> bool:
        return (self.folder / check_name(name, self.kind)).is_file()

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return names(self.folder)

    def get(self, name: str) -> str:
        """Return the id of the version; "" if there is no such name. Raises SnapshotError if it is damaged."""
        path = self.folder / check_name(name, self.kind)
        try:
            text = path.read_bytes().decode("ascii", "replace")
        except FileNotFoundError:
            return ""
        if not ID.fullmatch(text):
            raise SnapshotError(f"{self.kind} {name}: {path} holds no version's id: {text[:40]!r}.")
        return text[:-1]

    def put(self, name: str, identity: str, first: Iterable[Path] = ()) -> None:
        """Point a name at a version. first: folders to flush before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self.folder / check_name(name, self.kind), f"{identity}\n".encode(), first)

    def drop(self, name: str) -> None:
        """Delete a name; its versions stay until garbage collection."""
        remove(self.folder / check_name(name, self.kind))


def check_name(name: str, kind: str) -> str:
    """Return a name. Raises SnapshotError unless it can be a file's, and is no number."""
    if not isinstance(name, str) or not LEGAL.fullmatch(name):
        raise SnapshotError(
            f"{kind} {name!r}: expected letters, digits, '.', '_' and '-', at most 100, no '.' or '-'"
            " first, and not a number."
        )
    return name
