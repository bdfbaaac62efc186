"""PackedStore beside plain files and plain messages, in one run on local ranks.

    python benchmarks/packed_store.py                       on 2, then on 4 ranks
    python benchmarks/packed_store.py --ranks 2 --repeat 9

An epoch: every file once, in random order, dealt over the ranks, in batches of 64, as a data loader reads. Ranks of a
machine share a node of the store; "apart" lets each rank stand for a node: then, on P ranks, a share of 1 - 1/P of the
files comes as a message. Turns alternate, so that a busy machine is equally busy for all; medians of the slowest rank.
Cold: the page cache is dropped before each epoch, and opening the store counts; "the disk" reads the packed bytes
front to back and does nothing with them: what no way of reading them all can be quicker than.
"""

import argparse
import os
import random
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _quick import add_quick

FILES, SIZE, BATCH = 20_000, 16 << 10, 64
# So many that the first question, which wakes a sleeper, is one of many.
LARGE, LARGE_FILES = 8_000_000, 32
AT_LEAST = {"cold": 6.0, "warm": 3.0, "local": 0.8, "remote": 0.6}


def main() -> None:
    """Make the files, start the ranks, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--folder", help="where the files are made; else a temporary folder")
    parser.add_argument("--rank-of-many", help=argparse.SUPPRESS)
    add_quick(parser)
    options = parser.parse_args()
    if options.rank_of_many:
        return measure(Path(options.rank_of_many), options.repeat)
    from lib_dlhpc.launch.mpi import command, environment

    large = LARGE
    if options.quick:
        options.ranks, options.repeat, options.files, large = [2], 1, 200, LARGE // 100
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        make(Path(folder), options.files, large)
        for ranks in options.ranks:
            words = [__file__, "--rank-of-many", folder, "--repeat", str(options.repeat)]
            subprocess.run(command(ranks, *words), env=environment(), check=True)


def make(home: Path, files: int, large: int) -> None:
    """Write both trees and pack them; large: B of each of the few files."""
    from lib_dlhpc.storage import pack

    draw = np.random.default_rng(0)
    for number in range(files):
        path = home / "small" / f"class-{number % 100:03d}" / f"{number:06d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.bytes(SIZE))
    (home / "large").mkdir()
    for number in range(LARGE_FILES):
        (home / "large" / f"{number}.bin").write_bytes(draw.bytes(large))
    pack(home / "small", home / "small.store")
    pack(home / "large", home / "large.store", partitions=2)
    os.sync()


def measure(home: Path, repeat: int) -> None:
    """Measure all of it on this rank; rank 0 prints."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    write = print if comm.rank == 0 else (lambda *words, **options: None)
    how = forget(home) if comm.rank == 0 else ""
    write(
        f"{comm.size} ranks, {repeat} times each; cold by {comm.bcast(how)}"
        if comm.rank == 0
        else comm.bcast(how)
    )
    cold(comm, home, max(3, repeat // 2), write)
    warm(comm, home, repeat, write)
    if comm.size == 2:
        large(comm, home, repeat, write)


def cold(comm: Any, home: Path, repeat: int, write: Callable[..., None]) -> None:
    from lib_dlhpc.storage import open_store

    def of_files(batches: list[list[str]]) -> None:
        read_files(home / "small", batches)

    def of_store(batches: list[list[str]]) -> None:
        with open_store(home / "small.store", comm) as store:
            for batch in batches:
                store.read_many(batch)

    def ahead(batches: list[list[str]]) -> None:
        with open_store(home / "small.store", comm) as store:
            for _ in store.read_ahead(batches):
                pass

    def bytes_alone(batches: list[list[str]]) -> None:
        """Read the packed bytes front to back and discard them: the speed of the disk."""
        buffer = memoryview(bytearray(1 << 20))
        for path in sorted((home / "small.store").glob("partition-*"))[comm.rank :: comm.size]:
            with open(path, "rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    ways = {"files": of_files, "read_many": of_store, "read_ahead": ahead, "the disk": bytes_alone}
    report(comm, "cold", home, repeat, ways, lambda: forget(home), write)


def warm(comm: Any, home: Path, repeat: int, write: Callable[..., None]) -> None:
    from lib_dlhpc.storage import open_store

    with open_store(home / "small.store", comm) as store:

        def many(batches: list[list[str]]) -> None:
            for batch in batches:
                store.read_many(batch)

        def ahead(batches: list[list[str]]) -> None:
            for _ in store.read_ahead(batches):
                pass

        ways = {
            "files": lambda batches: read_files(home / "small", batches),
            "read_many": many,
            "read_ahead": ahead,
        }
        for action in ways.values():
            action(deal(comm, home, -1))
        report(comm, "warm", home, repeat, ways, lambda: "", write)


def report(
    comm: Any,
    kind: str,
    home: Path,
    repeat: int,
    ways: dict[str, Any],
    before: Callable[[], str],
    write: Callable[..., None],
) -> None:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeat):
        for name, action in ways.items():
            batches = deal(comm, home, turn)
            if comm.rank == 0:
                before()
            times[name].append(timed(comm, lambda action=action, batches=batches: action(batches)))
    files = sum(map(len, deal(comm, home, 0))) * comm.size
    for name, values in times.items():
        ratio = np.median(times["files"]) / np.median(values)
        wanted = "no store can do more" if name == "the disk" else f"at least {AT_LEAST[kind]}"
        limit = f"   {ratio:5.2f} x files ({wanted})" if name != "files" else ""
        write(
            f"{kind} {name:<10} {np.median(values) / files * 1e6:8.2f} us a file{limit}", flush=True
        )


def large(comm: Any, home: Path, repeat: int, write: Callable[..., None]) -> None:
    """Files of 8 MB: own ones beside a plain read, another rank's beside a plain message.

    A message has other bytes each time, as files have; or the same again, which the sender's cache still has.
    Both are received where the last one was, and not looked at; a file is received into bytes of its own and checked.
    """
    from lib_dlhpc.storage import open_store

    size = (home / "large" / "0.bin").stat().st_size
    buffer = np.zeros(size, np.uint8)
    content = [np.full(size, number, np.uint8) for number in range(LARGE_FILES // 2)]
    with open_store(home / "large.store", comm, ranks_per_node=1) as store:
        part = store.index.columns["partition"]
        own, far = (
            [name for name, where in zip(store.names, part, strict=True) if where == rank]
            for rank in (0, 1)
        )

        def plain() -> None:
            for name in own:
                with open(home / "large" / name, "rb") as file:
                    file.read()

        def message() -> None:
            for _ in far:
                comm.Recv(buffer, 1)

        def answer() -> None:
            for number, _ in enumerate(far):
                comm.Send(content[number % len(content)], 0)

        def again() -> None:
            for _ in far:
                comm.Send(content[0], 0)

        def reading(names: list[str]) -> Callable[[], None]:
            return lambda: deque((store.read(name) for name in names), maxlen=0)

        nothing = time.time
        ways = {
            "plain read": (plain, nothing),
            "local": (reading(own), nothing),
            "MPI message": (message, answer),
            "remote": (reading(far), nothing),
            "the same MPI message again": (message, again),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(4 * repeat + 2):
            for name, actions in ways.items():
                spent = timed(comm, actions[comm.rank])
                if turn > 1:
                    times[name].append(spent / len(own))
    for name, peer in (
        ("local", "plain read"),
        ("remote", "MPI message"),
        ("remote", "the same MPI message again"),
    ):
        here, there = np.median(times[name]), np.median(times[peer])
        write(
            f"{size / 1e6:g} MB {name}: {size / here / 1e9:.2f} GB/s, {peer}: {size / there / 1e9:.2f} GB/s:"
            f" {there / here:.2f} (at least {AT_LEAST[name]})",
            flush=True,
        )


def read_files(folder: Path, batches: list[list[str]]) -> None:
    """Read batches of plain files, as lists of their contents."""
    above = str(folder)
    for batch in batches:
        found = []
        for name in batch:
            with open(f"{above}/{name}", "rb") as file:
                found.append(file.read())


def deal(comm: Any, home: Path, seed: int) -> list[list[str]]:
    """Return this rank's batches of an epoch."""
    names = sorted(f"{path.parent.name}/{path.name}" for path in _paths(comm, home))
    random.Random(seed).shuffle(names)
    mine = names[comm.rank :: comm.size]
    return [mine[start : start + BATCH] for start in range(0, len(mine), BATCH)]


def _paths(comm: Any, home: Path, kept: list[Path] = []) -> list[Path]:  # noqa: B006 - once a rank
    if not kept:
        kept.extend(comm.bcast(list((home / "small").glob("*/*")) if comm.rank == 0 else None))
    return kept


def timed(comm: Any, action: Callable[[], Any]) -> float:
    """Return the time until the last rank is through with the action; a rank that waits keeps no core busy."""
    comm.Barrier()
    start = time.perf_counter()
    action()
    spent = time.perf_counter() - start
    barrier = comm.Ibarrier()
    while not barrier.Test():
        time.sleep(1e-3)
    return float(max(comm.allgather(spent)))


def forget(home: Path) -> str:
    """Empty the page cache, as far as permitted, and return how."""
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return "drop_caches (data and metadata)"
    except OSError:
        for path in (*home.glob("*.store/*"), *home.glob("small/*/*")):
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return "posix_fadvise (data only: metadata stays warm)"


if __name__ == "__main__":
    main()
