"""PackedStore: the files of a packed tree, read by name from local or remote partitions."""

import io
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from lib_dlhpc.storage import placement
from lib_dlhpc.storage.collectives import check_all, from_first, nodes_of, quiet_barrier
from lib_dlhpc.storage.errors import AlreadyThere, IsFolder, NoSuchFile, NotFolder, StoreError
from lib_dlhpc.storage.in_memory import InMemory
from lib_dlhpc.storage.index import Manifest, load, load_manifest
from lib_dlhpc.storage.loading import Loading
from lib_dlhpc.storage.names import checked
from lib_dlhpc.storage.partition import Partition, PartitionLost, open_partition, with_names
from lib_dlhpc.storage.reading import READ, Reader, Started
from lib_dlhpc.storage.remote import PATIENCE, Peers
from lib_dlhpc.storage.writing import OutputFile, Outputs, load_list


@dataclass(frozen=True)
class Stat:
    """Status of a name: B (a folder has 0), ns since 1970."""

    size: int
    is_dir: bool
    mtime_ns: int

    @property
    def mtime(self) -> float:
        """s since 1970, as os.stat has it."""
        return self.mtime_ns / 1e9


class PackedStore:
    """A packed tree, open: a context manager; names are relative, their parts joined by `/`, '' is the tree.

    Every read is verified: StoreError names a damaged file and its partition.
    Over ranks, opening and closing are collective; all other calls are independent.
    Reads are thread-safe. A forked process (multiprocessing) reads files on its own node; files on other nodes,
    and writing, raise StoreError there.
    """

    def __init__(
        self,
        target: Path,
        manifest: Manifest,
        reader: Reader,
        outputs: Outputs,
        peers: Peers | None,
    ) -> None:
        self.target, self.manifest, self.index = target, manifest, reader.index
        self._reader, self._outputs, self._peers = reader, outputs, peers
        self._open, self._pid = True, os.getpid()

    @property
    def names(self) -> tuple[str, ...]:
        """All files: the packed ones, sorted by folder, then name, then those that were written."""
        return (*self.index.names, *sorted(self._outputs.files))

    def read(self, name: str) -> bytes:
        """Return a file's content. Raises NoSuchFile, IsFolder, StoreError."""
        self._check_open()
        number = self.index.numbers.get(name)
        if number is None:
            return self.read_many([name])[0]
        own = self._reader.read_own(number)
        if own is not None:
            return own
        return self._reader.finish(self._reader.start(np.array([number])))[0]

    def read_many(self, names: Sequence[str]) -> list[bytes]:
        """Return the contents of files, in the order of their names: one round trip to each rank that has some.

        Raises NoSuchFile, IsFolder, StoreError.
        """
        self._check_open()
        return self._finished(self._started(names))

    def read_ahead(self, batches: Iterable[Sequence[str]], ahead: int = 1) -> Iterator[list[bytes]]:
        """Yield the contents of each batch of names, with the next `ahead` batches in flight.

        This hides the latency of other ranks. Raises as read_many.
        """
        self._check_open()
        in_flight: deque[tuple[Sequence[str], Started]] = deque()
        try:
            for names in batches:
                in_flight.append(self._started(names))
                if len(in_flight) > ahead:
                    yield self._finished(in_flight.popleft())
            while in_flight:
                yield self._finished(in_flight.popleft())
        finally:  # whoever stops in between
            for _, started in in_flight:
                self._reader.drop(started)

    def _started(self, names: Sequence[str]) -> tuple[Sequence[str], Started]:
        """Request packed files; return the names and the requests in flight."""
        numbers = self.index.numbers
        try:
            wanted = [numbers[name] for name in names]
        except KeyError:
            unknown = [name for name in names if not self._is_file(name)]
            if unknown:
                raise self._missing(unknown[0]) from None
            wanted = [numbers[name] for name in names if name in numbers]
        return names, self._reader.start(np.array(wanted, np.int64))

    def _finished(self, in_flight: tuple[Sequence[str], Started]) -> list[bytes]:
        names, started = in_flight
        found = self._reader.finish(started)
        if len(found) == len(names):
            return found
        packed = iter(found)
        return [
            next(packed) if name in self.index.numbers else self._outputs.read(name)
            for name in names
        ]

    def stat(self, name: str) -> Stat:
        """Return the status of a file or folder. Raises NoSuchFile."""
        number, folder = self.index.numbers.get(name), self.index.folder_numbers.get(name)
        if number is not None:
            columns = self.index.columns
            return Stat(int(columns["size"][number]), False, int(columns["mtime"][number]))
        if folder is not None:
            return Stat(0, True, int(self.index.folder_mtime[folder]))
        output = self._outputs.files.get(name)
        if output is not None:
            return Stat(output.size, False, output.mtime)
        within = [self._outputs.files[inside].mtime for inside in self._written_below(name)]
        if not within:
            raise self._missing(name)
        return Stat(0, True, max(within))

    def exists(self, name: str) -> bool:
        """Return whether there is a file or folder of this name."""
        return self._is_file(name) or self._is_folder(name)

    def listdir(self, folder: str = "") -> list[str]:
        """Return the last parts of the names in a folder, sorted. Raises NoSuchFile, NotFolder."""
        if self._is_file(folder):
            raise NotFolder(f"{folder!r} is a file of {self.target}.")
        if not self._is_folder(folder):
            raise self._missing(folder)
        held = set(self.index.children.get(folder, ()))
        above = len(folder) + 1 if folder else 0
        held |= {name[above:].partition("/")[0] for name in self._written_below(folder)}
        return sorted(held)

    def walk(self, top: str = "") -> Iterator[tuple[str, list[str], list[str]]]:
        """Yield (folder, folders in it, files in it), from `top` down, as os.walk does. Raises as listdir."""
        folders: list[str] = []
        files: list[str] = []
        for last in self.listdir(top):
            (files if self._is_file(_join(top, last)) else folders).append(last)
        yield top, folders, files
        for last in folders:
            yield from self.walk(_join(top, last))

    def open(self, name: str, mode: str = "rb") -> IO[Any]:
        """Return a file object: mode "rb" for bytes, "r" for UTF-8 text, "xb" to create. Raises as read, create."""
        if mode not in ("rb", "r", "xb"):
            raise StoreError(f"mode: {mode!r} is not a mode of a store. Legal: 'rb', 'r', 'xb'.")
        if mode == "xb":
            return self.create(name)
        content = InMemory(self.read(name))
        return content if mode == "rb" else io.TextIOWrapper(content, encoding="utf-8")

    def create(self, name: str) -> OutputFile:
        """Return a write-once file; all ranks see it after its close, the store saves it when the store closes.

        Raises AlreadyThere, NotFolder where a part of the name is a file, StoreError.
        """
        self._check_open()
        parts = checked(name).split("/")
        for length in range(1, len(parts)):
            if self._is_file("/".join(parts[:length])):
                raise NotFolder(f"{'/'.join(parts[:length])!r} is a file of {self.target}.")
        if self.exists(name):
            raise AlreadyThere(f"{self.target} has {name!r} already; a file is written once.")
        return self._outputs.create(name)

    def close(self) -> None:
        """Save written files and release the partitions; serves other ranks until all close.

        Written files are saved in the folder `written` of the store, unpacked, beside the partitions.
        Raises StoreError naming a lost rank, a file that cannot be saved, or one that is still open: it is lost.
        """
        unfinished = self._close()
        if unfinished:
            raise StoreError(
                f"Still open when {self.target} was closed, and lost: {', '.join(map(repr, unfinished))}."
                " Close a file before its store."
            )

    def _close(self) -> list[str]:
        """Close; return the names of files that are still open."""
        if not self._open:
            return []
        self._open = False
        if os.getpid() != self._pid:  # a forked process: only the ranks can close
            self._reader.close()
            return []
        unfinished = self._outputs.finish()
        comm = self._peers.close() if self._peers else None
        try:
            kept: list[str] = []
            failure = None
            try:
                kept = self._outputs.flush()
            except StoreError as error:
                failure = error
            everywhere = comm.gather(kept) if comm else [kept]
            if everywhere is not None and any(everywhere):
                self._outputs.save_list([name for names in everywhere for name in names])
            if failure:
                raise failure
        finally:
            self._reader.close()
            if comm:
                comm.Free()
        return unfinished

    def __enter__(self) -> "PackedStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        # This rank failed, and the others may wait for it in another collective.
        if kind and self._peers and self._open and os.getpid() == self._pid:
            self._open = False
            self._outputs.finish()
            self._peers.leave()
        if kind:  # that error is the one to raise
            self._close()
        else:
            self.close()

    def _is_file(self, name: str) -> bool:
        return name in self.index.numbers or name in self._outputs.files

    def _is_folder(self, name: str) -> bool:
        return name in self.index.folder_numbers or bool(self._written_below(name))

    def _written_below(self, folder: str) -> list[str]:
        above = folder and f"{folder}/"
        return [name for name in tuple(self._outputs.files) if name.startswith(above)]

    def _check_open(self) -> None:
        if not self._open:
            raise StoreError(f"{self.target} is closed.")

    def _missing(self, name: str) -> StoreError:
        if self._is_folder(name):
            return IsFolder(f"{name!r} is a folder of {self.target}.")
        checked(name)
        return NoSuchFile(f"{self.target} has no {name!r}.")


def open_store(
    target: str | os.PathLike[str],
    comm: Any = None,
    replication: int = 1,
    place: Sequence[Sequence[int]] | None = None,
    patience: float = PATIENCE,
    ranks_per_node: int = 0,
    rest: bool = False,
    mapped: bool = True,
) -> PackedStore:
    """Open a store: for this process, or collectively for all ranks of an mpi4py communicator.

    A partition is on a node: all ranks there read it from shared memory, those of other nodes request its files.
    replication: the number of nodes with each partition; place: or the ranks that hold each one.
    ranks_per_node: 0 uses the real nodes, 1 treats each rank as a node, to see messages on a laptop.
    patience: s, timeout of a rank that does not answer. rest: open the remaining partitions where one is missing
    or truncated; a file of that one raises StoreError when it is read. mapped: False reads all partitions at once, for
    a folder where others may cut a file short: what is mapped of that ends this process.
    Raises StoreError, on every rank, where the store, its index or a partition is not as packed.
    """
    path, rank, ranks = Path(target), comm.rank if comm else 0, comm.size if comm else 1
    if comm:
        # mpi4py's first on a communicator lets no other thread run; no one may need one then.
        comm.allreduce(0)
    manifest = from_first(comm, lambda: load_manifest(path))
    count = len(manifest.partitions)
    nodes, machines = nodes_of(comm, ranks_per_node), nodes_of(comm, 0)
    holders = placement.holders(count, nodes, replication)
    where = placement.checked(place, count, ranks) if place else holders
    own = [part for part in range(count) if rank in where[part]]
    held, lost = _opened(path, manifest, own, mapped)
    loading = Loading(held, *_to_load(held, where, nodes, rank), machines.count(machines[rank]))
    try:
        index, written = from_first(comm, lambda: (load(path, manifest), load_list(path)))
        check_all(comm, with_names(lost, index) if lost and not rest else None)
    except BaseException:
        loading.stop()
        raise
    reader = Reader(path, manifest, index, held, where, rank, loading)
    outputs = Outputs(path, written, rank)
    if ranks == 1:
        return PackedStore(path, manifest, reader, outputs, None)

    def answer(source: int, kind: int, payload: memoryview) -> Any:
        return reader.answer(payload) if kind == READ else outputs.answer(source, kind, payload)

    loading.wait()
    quiet_barrier(comm)  # what others load is read from memory as well
    reader.peers = outputs.peers = peers = Peers(comm, answer, patience)
    return PackedStore(path, manifest, reader, outputs, peers)


def _opened(
    path: Path, manifest: Manifest, numbers: Iterable[int], mapped: bool
) -> tuple[dict[int, Partition], PartitionLost | None]:
    """Return the partitions that this rank holds, and the error of one of them."""
    held, lost = {}, None
    for number in numbers:
        try:
            held[number] = open_partition(path, number, manifest.partitions[number], mapped)
        except PartitionLost as error:
            lost = lost or error
    return held, lost


def _to_load(
    held: Iterable[int], where: placement.Holders, nodes: Sequence[int], rank: int
) -> tuple[list[int], list[int]]:
    """Return which partitions this rank loads, and which of them into private memory.

    Ranks of a node that share partitions divide the loading.
    """
    mine, own = [], []
    for number in held:
        here = [other for other in where[number] if nodes[other] == nodes[rank]]
        if here[number % len(here)] == rank:
            mine.append(number)
            if len(here) == 1 and len(where[number]) < len(nodes):
                own.append(number)
    return mine, own


def _join(folder: str, last: str) -> str:
    return f"{folder}/{last}" if folder else last
