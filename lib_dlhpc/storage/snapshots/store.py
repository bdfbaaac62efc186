"""SnapshotStore: deduplicated versions of a training state, in a tree.

A version is published in three steps: the object with its new chunks, the version's file, then, once both are on
disk, the name of its branch. The third step publishes it. After a kill at any moment, the newest published version
is intact.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError, suggest
from lib_dlhpc.storage.snapshots import garbage_collection
from lib_dlhpc.storage.snapshots.async_save import AsyncSaver, Saving
from lib_dlhpc.storage.snapshots.chunks import Array, Stream, chunk_size, cut, hashed, streams
from lib_dlhpc.storage.snapshots.diff import Difference, difference
from lib_dlhpc.storage.snapshots.files import (
    FOLDERS,
    SnapshotError,
    clear_ruins,
    names,
    one_writer,
    write,
)
from lib_dlhpc.storage.snapshots.objects import Objects
from lib_dlhpc.storage.snapshots.reading import read_arrays, read_chunks
from lib_dlhpc.storage.snapshots.refs import Refs, check_name
from lib_dlhpc.storage.snapshots.search import search
from lib_dlhpc.storage.snapshots.verify import problems
from lib_dlhpc.storage.snapshots.version import (
    Metrics,
    Stored,
    Version,
    make,
    numbers,
    read_version,
    to_bytes,
)

MAIN = "main"
FORMAT = b"dlhpc snapshots 2\n"
FEWEST = 4  # digits of an id


class SnapshotStore:
    """Versions of a training state in a folder, which the first save creates.

    room: B of memory for the copy that save_async makes; by default the size of the state. Several
    processes may have the store open: one at a time writes, readers never wait.
    """

    def __init__(self, folder: str | Path, room: float = math.inf) -> None:
        self.folder = Path(folder)
        self.objects = Objects(self.folder / "objects")
        self.branches = Refs(self.folder / "branches", "branch")
        self.tags = Refs(self.folder / "tags", "tag")
        self._saver = AsyncSaver(room)
        self._versions: dict[str, Version] = {}

    def __enter__(self) -> "SnapshotStore":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.close()
        except SpecError:
            if error is None:
                raise

    def close(self) -> None:
        """Wait for the save in flight. Raises its error."""
        self._saver.settle()

    def save(
        self,
        arrays: Mapping[str, Array] | Iterable[Stream],
        *,
        step: int,
        metrics: Mapping[str, Any] | None = None,
        parent: Version | str | int | None = None,
        branch: str = MAIN,
        tags: Iterable[str] = (),
    ) -> Version:
        """Save a state as the newest version of a branch; return when it is published.

        arrays: by name; or streams, which need only one chunk in memory. parent: by default the
        branch's newest version; a new branch may begin at any. Raises SnapshotError that names version,
        array and object; then nothing of the version remains.
        """
        self._saver.settle()
        about = (step, numbers(metrics), parent, branch, tuple(tags))
        return self._write(streams(arrays), *about)

    def save_async(
        self,
        arrays: Mapping[str, Array] | Iterable[Stream],
        *,
        step: int,
        metrics: Mapping[str, Any] | None = None,
        parent: Version | str | int | None = None,
        branch: str = MAIN,
        tags: Iterable[str] = (),
    ) -> Saving:
        """Save as `save` does, but return as soon as a copy is made; .wait() gives the version.

        One save at a time is in flight: the next call waits for it (.waited: s) and raises its error.
        """
        about = (step, numbers(metrics), parent, branch, tuple(tags))
        return self._saver.save(streams(arrays), lambda taken: self._write(taken, *about))

    def load(self, version: Version | str | int) -> dict[str, Array]:
        """Return the arrays of a version, each byte verified. Raises SnapshotError."""
        return read_arrays(self.objects, self.version(version))

    def chunks(self, version: Version | str | int, name: str) -> Iterator[bytes]:
        """Yield the bytes of one array of a version, verified, a chunk at a time. Raises SnapshotError."""
        return read_chunks(self.objects, self.version(version), name)

    def newest(self, branch: str = MAIN) -> Version | None:
        """Return the newest version of a branch, None if there is none. Raises SnapshotError."""
        identity = self.branches.get(branch)
        return self._read(identity, f"branch {branch}") if identity else None

    def log(self) -> list[Version]:
        """Return the versions that can be read, in the order of saving."""
        self._look()
        return sorted(self._versions.values(), key=lambda version: (version.number, version.id))

    def damaged(self) -> list[str]:
        """Return the ids of the versions whose file cannot be read."""
        there = self._there()  # before the look: others may save
        self._look()
        return sorted(there & self._there() - self._versions.keys())

    def version(self, name: Version | str | int) -> Version:
        """Return a version by its number, the first digits of its id, a branch or a tag.

        Raises SnapshotError if there is none, or several.
        """
        if isinstance(name, Version):
            return name
        text = str(name).strip()
        for refs in () if text.isdigit() else (self.branches, self.tags):
            if text in refs.names():
                return self._read(refs.get(text), f"{refs.kind} {text}")
        found = {each.id: each for each in self.log() if str(each.number) == text}
        if not found and len(text) >= FEWEST:
            found = {each.id: each for each in self.log() if each.id.startswith(text)}
        if len(found) == 1:
            return next(iter(found.values()))
        there = [str(each.number) for each in self.log()]
        there += [*self.branches.names(), *self.tags.names()]
        wrong = "several versions" if found else "no such version"
        raise SnapshotError(
            f"{self.folder}: {name}: {wrong}; a version is named by its number, the first"
            f" {FEWEST} or more digits of its id, a branch or a tag.{suggest(text, there)}"
        )

    def diff(self, first: Version | str | int, second: Version | str | int) -> list[Difference]:
        """Return for each array what two versions share, and how far apart they are."""
        return difference(self, self.version(first), self.version(second))

    def find(self, *conditions: str) -> list[Version]:
        """Return the versions that meet all conditions, such as "accuracy > 0.9" or "step <= 100".

        Raises SnapshotError for a condition that cannot be read, or of a metric that none has.
        """
        return search(self.log(), conditions)

    def branch(self, name: str, version: Version | str | int) -> Version:
        """Begin a branch at any version; return it. Raises SnapshotError if the branch is there."""
        with self._writing():
            found = self.version(version)
            if check_name(name, "branch") in self.branches:
                raise SnapshotError(f"{self.folder}: there is a branch {name} already.")
            self.branches.put(name, found.id)
            return found

    def tag(self, name: str, version: Version | str | int) -> Version:
        """Tag a version; return it. Raises SnapshotError if the tag is another's."""
        with self._writing():
            found = self.version(version)
            self._tag(name, found)
            return found

    def forget(self, name: str) -> None:
        """Remove a tag or a branch; what only it reached is garbage then. Raises SnapshotError."""
        with self._writing():
            for refs in (self.tags, self.branches):
                if name in refs:
                    refs.drop(name)
                    return
        raise SnapshotError(f"{self.folder}: no branch or tag {name}.")

    def gc(self, keep_last: int | None = None, dry_run: bool = False) -> garbage_collection.Swept:
        """Remove what no branch or tag reaches; return a summary.

        keep_last: keep only the N newest versions of each branch (and tagged ones). dry_run: return the
        summary, remove nothing. Raises SnapshotError, before anything is removed, if a name, or a version
        to be kept, is damaged: what it reaches is not known.
        """
        self._saver.settle()
        with self._writing():
            return garbage_collection.sweep(self, keep_last, dry_run)

    def verify(self) -> list[str]:
        """Verify every byte; return the problems as sentences."""
        self._saver.settle()
        try:
            self.check_there()
        except SnapshotError as error:
            return [str(error)]
        return problems(self.folder)

    def _write(
        self,
        arrays: Iterator[Stream],
        step: int,
        metrics: Metrics,
        parent: Version | str | int | None,
        branch: str,
        tags: tuple[str, ...],
    ) -> Version:
        for tag in tags:
            check_name(tag, "tag")
        stored: dict[str, Stored] = {}
        try:
            with self._writing(make=True):
                above = self._parent(parent, branch)
                written = self.objects.add(self._new(arrays, stored), last=False)
                number = 1 + max(len(self._there()), *(each.number for each in self.log()), 0)
                made = make(number, above, branch, step, metrics, stored, written)
                version = self._versions.setdefault(made.id, made)
                if version is made:
                    write(self._path(made.id), to_bytes(made), last=False)
                # Flush last: the disk has often written it by the time of the next file.
                folders = (self.objects.folder, self._path(made.id).parent)
                for tag in tags:
                    self._tag(tag, version, folders)
                self.branches.put(branch, version.id, folders)
                return version
        except OSError as error:
            at = f", array {next(reversed(stored))}" if stored else ""
            raise SnapshotError(
                f"step {step} of branch {branch}{at}: {error.filename or self.objects.folder}:"
                f" {error.strerror}; nothing of this version was published."
            ) from error

    def _new(
        self, arrays: Iterable[Stream], stored: dict[str, Stored]
    ) -> Iterator[tuple[bytes, Any]]:
        """Yield hash and bytes of each chunk; record the chunks of each array."""
        for stream in arrays:
            chunk, keys = chunk_size(stream.size), []
            about = (np.dtype(stream.dtype).str, tuple(int(n) for n in stream.shape), chunk)
            stored[stream.name] = Stored(*about, ())
            for data in cut(stream, chunk):
                keys.append(hashed(data))
                yield keys[-1], data
            stored[stream.name] = Stored(*about, tuple(keys))

    def _parent(self, parent: Version | str | int | None, branch: str) -> str:
        head = self.newest(branch)
        if parent is None:
            return head.id if head else ""
        above = self.version(parent)
        if head and head.id != above.id:
            raise SnapshotError(
                f"branch {branch} is at {head.name}, not at {above.name}; begin another branch there."
            )
        return above.id

    def _tag(self, name: str, version: Version, first: Iterable[Path] = ()) -> None:
        theirs = self.tags.get(name)
        if theirs and theirs != version.id:
            raise SnapshotError(f"{self.folder}: tag {name} is another version's ({theirs[:7]}).")
        self.tags.put(name, version.id, first)

    @contextmanager
    def _writing(self, make: bool = False) -> Iterator[None]:
        """Hold the lock, reread the folder, remove incomplete files."""
        if make:
            self.folder.mkdir(parents=True, exist_ok=True)
        else:
            self.check_there()
        try:
            with one_writer(self.folder):
                clear_ruins(self.folder)
                if make:
                    self._make()
                self._look()
                self.objects.refresh()
                yield
        except OSError as error:
            if make:
                raise
            at = error.filename or self.folder
            raise SnapshotError(f"{at}: {error.strerror}; the store cannot be changed.") from None

    def _make(self) -> None:
        """Create the folders of a new store."""
        if not (self.folder / "format").exists():
            for name in FOLDERS:
                (self.folder / name).mkdir(exist_ok=True)
            write(self.folder / "format", FORMAT)
        self.check_there()

    def make(self) -> None:
        """Create an empty store, if there is none: later, a missing store is an error."""
        with self._writing(make=True):
            pass

    def check_there(self) -> None:
        """Raise SnapshotError unless the folder is a store."""
        path = self.folder / "format"
        if not path.exists():
            raise SnapshotError(f"{self.folder}: holds no snapshots.")
        if path.read_bytes() != FORMAT:
            raise SnapshotError(f"{path}: expected {FORMAT.decode().strip()!r}.")

    def _look(self) -> None:
        """Read new versions; drop removed ones."""
        there = self._there()
        for gone in self._versions.keys() - there:
            del self._versions[gone]
        for identity in there - self._versions.keys():
            with suppress(SnapshotError):  # raised when it is requested
                self._versions[identity] = read_version(self._path(identity))

    def _there(self) -> set[str]:
        """Return the ids of the versions that have a file."""
        return {name.removesuffix(".json") for name in names(self.folder / "versions")}

    def _path(self, identity: str) -> Path:
        return self.folder / "versions" / f"{identity}.json"

    def _read(self, identity: str, name: str) -> Version:
        if identity not in self._versions:
            try:
                self._versions[identity] = read_version(self._path(identity))
            except SnapshotError as error:
                raise SnapshotError(f"{name}: {error}") from None
        return self._versions[identity]


def open_snapshots(folder: str | Path) -> SnapshotStore:
    """Open an existing store. Raises SnapshotError if there is none."""
    store = SnapshotStore(folder)
    store.check_there()
    return store
