"""One loader on a folder of files and on a packed store of them, on MPI ranks of this machine.

`python -m lib_dlhpc.explore.io_bottleneck.here FOLDER` makes the files, packs them and calibrates; the same on
ranks (`mpiexec -n 2 ...  FOLDER read`) reads both. FOLDER/task.json says what is wanted; each step leaves a JSON.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from lib_dlhpc.calibration import page_cache
from lib_dlhpc.calibration.fit import fit_io
from lib_dlhpc.calibration.host import file_system
from lib_dlhpc.calibration.io import KiB, MiB, Setting, measure_io
from lib_dlhpc.calibration.points import COLD
from lib_dlhpc.explore.io_bottleneck import loader
from lib_dlhpc.spec.schema import to_table
from lib_dlhpc.storage.collectives import quiet_barrier
from lib_dlhpc.storage.mount import mounted
from lib_dlhpc.storage.pack import pack
from lib_dlhpc.storage.packed import PackedStore, open_store

FILES, CLASSES = 2000, 20  # files, and the folders that they are in
EPOCHS = 3  # read in each way, by turns; the calmer ones count
TIMES = 5  # that what one rank does alone is repeated
BATCH = 64  # samples asked for at once, where the loader is not left as it is
SECONDS, SIZE = 2.0, 48.0 * MiB  # of the calibration
FEW = 200  # samples that a rank reads by itself, to know what they take
TRIPS = 40  # messages there and back
WAY = page_cache.ADVISE  # of emptying the page cache: asks nobody else's files to leave memory
TAG = 7  # of messages
WAYS = ("files", "mounted", "many")


def prepare(folder: Path) -> None:
    """Write the files, pack them, and fit a storage tier to quick measurements: FOLDER/tier.json."""
    task = json.loads((folder / "task.json").read_text("utf-8"))
    make(folder / "files", FILES, task["size"])
    if task["state"] == COLD:
        os.sync()  # what is not on the disk cannot be dropped from memory
    pack(folder / "files", folder / "data.store", partitions=2 * task["ranks"])
    kinds = (("file", 4 * KiB), ("file", 64 * KiB), ("random", 16 * KiB), ("random", 128 * KiB))
    settings = [Setting(*kind, n) for kind in kinds for n in sorted({1, task["ranks"]})]
    way = {"way": WAY} if task["state"] == COLD else {}
    points = measure_io(
        folder, state=task["state"], seconds=SECONDS, size=SIZE, settings=settings, **way
    )
    fit = fit_io(points, "here")
    table = to_table(fit.tier) | {"bandwidth": fit.tier.bandwidth}  # which may be without end
    report = {"tier": table, "error": fit.error, "system": file_system(folder)}
    (folder / "tier.json").write_text(json.dumps(report), encoding="utf-8")


def make(folder: Path, files: int, size: int) -> None:
    """Write files of one size into a few folders."""
    noise = os.urandom(size + files)
    for number in range(CLASSES):
        (folder / f"class-{number:02d}").mkdir(parents=True)
    for number in range(files):
        path = folder / f"class-{number % CLASSES:02d}" / f"{number:05d}.bin"
        path.write_bytes(noise[number : number + size])


def read_all(folder: Path) -> None:
    """On every rank: run the loader on the folder and on the store; rank 0 leaves FOLDER/read.json."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    task = json.loads((folder / "task.json").read_text("utf-8"))
    report = costs(comm, folder, task["size"])
    epochs = [
        {way: read_epoch(comm, folder, way, task, epoch) for way in WAYS} for epoch in range(EPOCHS)
    ]
    for k, name in enumerate(("ready", "took")):
        report[name] = {way: calm([epoch[way][k] for epoch in epochs]) for way in WAYS}
    same = all(epoch[way][2] == epoch["files"][2] for epoch in epochs for way in WAYS)
    report["same"] = comm.allreduce(int(same)) == comm.size
    report["load"] = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if comm.rank == 0:
        (folder / "read.json").write_text(json.dumps(report), encoding="utf-8")


def read_epoch(
    comm: Any, folder: Path, way: str, task: dict[str, Any], epoch: int
) -> tuple[float, float, int]:
    """Read this rank's part of an epoch; return the slowest rank's s to open and find, and to read; the checksum.

    Each rank stands for a node: what it does not store it requests from another.
    """
    from mpi4py import MPI

    chill(comm, task["state"], folder)
    begin = time.perf_counter()
    with ExitStack() as open_:
        root = str(folder / "files")
        if way != "files":
            opened = open_store(folder / "data.store", comm, task["copies"], ranks_per_node=1)
            store = open_.enter_context(opened)
            root = open_.enter_context(mounted(store, folder / "mounted"))
        mine = loader.order(loader.find(root), epoch, comm.rank, comm.size)
        before = time.perf_counter() - begin
        comm.Barrier()
        begin = time.perf_counter()
        checksum = in_batches(store, root, mine) if way == "many" else loader.read(mine)
        seconds = time.perf_counter() - begin
        quiet_barrier(comm)  # until all are done, each answers the others
    return comm.allreduce(before, MPI.MAX), comm.allreduce(seconds, MPI.MAX), checksum


def in_batches(store: PackedStore, root: str, paths: list[str]) -> int:
    """Read the same samples in the same order, requesting many at once from the store; return their checksum."""
    names, checksum = inside(root, paths), 0
    for start in range(0, len(names), BATCH):
        for sample in store.read_many(names[start : start + BATCH]):
            checksum = loader.decode(sample, checksum)
    return checksum


def inside(root: str, paths: list[str]) -> list[str]:
    """Return the names in the store of what is mounted at these paths."""
    return [os.path.relpath(path, root).replace(os.sep, "/") for path in paths]


def costs(comm: Any, folder: Path, size: int) -> dict[str, Any]:
    """Return what a prediction has to know: s of a rank's own work for a sample, and of a request."""
    found = alone(folder, size) if comm.rank == 0 else {}
    quiet_barrier(comm)
    bandwidth, latency = stream(comm, size), 0.0
    with open_store(folder / "data.store", comm, ranks_per_node=1) as store:
        quiet_barrier(comm)
        if comm.rank == 0 and comm.size > 1:
            names = loader.order(store.names, 0)[:FEW]
            one = calm([each(partial(one_by_one, store, names)) for _ in range(TIMES)])
            elsewhere = 1 - 1 / comm.size
            asked = max(one - found["own"], 0.0) / elsewhere - size / bandwidth
            latency = max(asked, 0.0) / 2
        quiet_barrier(comm)
    return {"latency": latency, "bandwidth": bandwidth, **found}


def alone(folder: Path, size: int) -> dict[str, float]:
    """Return s a sample of one process: what is done with its bytes, and with reading it in each way.

    Each is read for the first time since the store was opened, as in an epoch.
    """
    sample = os.urandom(size)
    rounds = []
    for _ in range(TIMES):
        with open_store(folder / "data.store") as store, mounted(store, folder / "mounted") as root:
            parts = [loader.order(loader.find(root), 0)[k * FEW : (k + 1) * FEW] for k in range(3)]
            files = [path.replace(root, str(folder / "files")) for path in parts[0]]
            actions: dict[str, Callable[[], Any]] = {
                "work": lambda: [loader.decode(sample, 0) for _ in range(FEW)],
                "files": partial(loader.read, files),
                "mounted": partial(loader.read, parts[0]),
                "many": partial(in_batches, store, root, parts[1]),
                "own": partial(one_by_one, store, inside(root, parts[2])),
            }
            rounds.append({name: each(action) for name, action in actions.items()})
    return {name: calm([seconds[name] for seconds in rounds]) for name in rounds[0]}


def one_by_one(store: PackedStore, names: list[str]) -> None:
    """Read samples, a request each where they are on another rank."""
    for name in names:
        store.read(name)


def chill(comm: Any, state: str, folder: Path) -> None:
    """Drop the files from the page cache if they are to be cold, while no rank has them mapped."""
    comm.Barrier()
    if comm.rank == 0 and state == COLD:
        page_cache.empty(WAY, (p for p in folder.rglob("*") if p.is_file()))
    comm.Barrier()


def calm(seconds: Sequence[float]) -> float:
    """Return the median of the faster half: the slower half measures other load on this machine."""
    return statistics.median(sorted(seconds)[: -(-len(seconds) // 2)])


def each(action: Callable[[], Any], count: int = FEW) -> float:
    """Return the seconds of one of `count` that an action does."""
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) / count


def stream(comm: Any, size: int) -> float:
    """Return the B/s of plain messages, of as many samples as a batch has, from rank 0 to rank 1 and back."""
    if comm.size == 1:
        return 1e12  # nothing is sent
    seconds, message = [], bytearray(size * BATCH // comm.size)
    for _ in range(TRIPS):
        begin = time.perf_counter()
        if comm.rank == 0:
            comm.Send(message, 1, TAG)
            comm.Recv(message, 1, TAG)
        elif comm.rank == 1:
            comm.Recv(message, 0, TAG)
            comm.Send(message, 0, TAG)
        seconds.append(time.perf_counter() - begin)
    return float(comm.bcast(2 * len(message) / calm(seconds)))


def main(folder: Path, read: bool) -> None:
    """Do one step; a rank that fails ends all of them, for the others would wait."""
    if not read:
        prepare(folder)
        return
    from mpi4py import MPI

    try:
        read_all(folder)
    except Exception as error:
        # A file, since mpiexec may end before it has passed on what an aborting rank prints.
        text = f"{type(error).__name__}: {error}"
        (folder / f"error-{MPI.COMM_WORLD.rank}.txt").write_text(text, encoding="utf-8")
        MPI.COMM_WORLD.Abort(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] == ["read"])
