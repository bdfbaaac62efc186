"""Measure read performance of a folder's file system: small files and packed, random and sequential.

All points are measured once before any is repeated, each time in a new random order: drift and bursts affect all
points alike. Barriers are excluded: time runs from the first reader's begin to the last one's end. The core time of
other processes is recorded, to select the calmer repeats (points.py).
"""

import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.calibration import page_cache
from lib_dlhpc.calibration.points import COLD, WARM, Point
from lib_dlhpc.calibration.readers import Readers
from lib_dlhpc.calibration.workspace import CalibrationError, make_files, workspace
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.units import format_quantity

KiB, MiB = 1 << 10, 1 << 20
PARTITION = 8 * MiB  # B of each partition
# B of all files together: default, and minimum for cold reads
SIZE, LEAST = (256.0 * MiB, 48.0 * MiB)
WRITTEN = 0.25  # largest fraction of the files' bytes in one write
ROUNDS, LEAST_ROUNDS = 9, 5  # of all settings: planned, and minimum regardless of the time
READING = 0.6  # fraction of the seconds; the rest creates files and drops the page cache
SHORTEST, LONGEST = 0.005, 0.1  # s of one measurement
MOST_READERS = 1024
# Kinds of sample (points.WHAT, B of each), each with its own files: one cache drop serves all of them.
KINDS = (
    ("stat", 4 * KiB),
    ("open", 4 * KiB),
    ("file", 4 * KiB),
    ("file", 64 * KiB),
    ("file", MiB),
    ("random", 16 * KiB),
    ("random", 128 * KiB),
    ("sequential", MiB),
)


@dataclass(frozen=True)
class Setting:
    """One measurement: a kind of sample, its bytes, the number of readers."""

    what: str
    size: int
    readers: int

    @property
    def kind(self) -> tuple[str, int]:
        """The kind of sample; settings of one kind share files."""
        return self.what, self.size

    @property
    def packed(self) -> bool:
        """Whether samples are parts of a few large files."""
        return self.what in ("random", "sequential")


def reader_counts() -> tuple[int, ...]:
    """Return 1, 2, one reader a core and two a core."""
    return tuple(sorted({1, 2, cores(), 2 * cores()}))


def default_settings(readers: Sequence[int] = ()) -> list[Setting]:
    """Return the settings for a tier: every kind with every number of readers, and writes."""
    counts = tuple(readers) or reader_counts()
    writes = [Setting("write", MiB, count) for count in sorted({1, max(counts)})]
    return [Setting(*kind, count) for count in counts for kind in KINDS] + writes


def measure_io(
    folder: str | os.PathLike[str],
    *,
    state: str = COLD,
    seconds: float = 20.0,
    size: float = SIZE,
    settings: Sequence[Setting] = (),
    way: str = "",
) -> list[Point]:
    """Return a point for each setting; temporary files of `size` bytes in all are created in `folder`.

    state: "cold", the page cache is dropped before each read, by `way` ("": the strongest permitted; see
    page_cache.DESCRIPTION), or "warm", all files are in memory. seconds: total, approximate; at least five rounds run.
    settings: default_settings() if empty. Raises CalibrationError for a folder that cannot be measured, and for
    illegal values.
    """
    plan = list(settings) or default_settings()
    check(state, seconds, size, plan)
    begin = time.monotonic()
    if state == WARM:
        way = ""
    else:
        way = way or page_cache.ways()[0]
        if way == page_cache.NONE:
            raise CalibrationError(
                "The page cache cannot be dropped on this system; only warm reads can be measured here."
            )
    most = max(each.readers for each in plan)
    budget = float(np.clip(READING * seconds / (ROUNDS * len(plan)), SHORTEST, LONGEST))
    with workspace(Path(folder), size * (1 + WRITTEN)) as place, Readers(most) as pool:
        bench = Bench(pool, place, make_files(place, amounts(size, plan)), state, way, budget, size)
        if state == WARM:
            bench.warm_up()
        # Writes come last: their write-back would disturb reads after them.
        reads = [each for each in plan if each.what != "write"]
        writes = [each for each in plan if each.what == "write"]
        found = bench.rounds(reads, begin + seconds * len(reads) / len(plan))
        found |= bench.rounds(writes, begin + seconds)
    points = []
    for each in plan:
        times, samples, others = zip(*found[each], strict=True)
        points.append(Point(each.what, state, each.readers, each.size, times, samples, others, way))
    return points


def check(state: str, seconds: float, size: float, plan: Sequence[Setting] = ()) -> None:
    """Raise CalibrationError for an illegal value."""
    if state not in (COLD, WARM):
        raise CalibrationError(f"state = {state!r}: legal: {COLD}, {WARM}.")
    if not 0 < seconds < np.inf:
        raise CalibrationError(f"seconds = {seconds:g}: expected a number above 0.")
    if not LEAST <= size < np.inf:
        raise CalibrationError(
            f"size = {format_quantity(size, 'B')}: expected at least {format_quantity(LEAST, 'B')}:"
            " with fewer files, readers wrap around and read from memory."
        )
    for each in plan:
        if not 1 <= each.readers <= MOST_READERS:
            raise CalibrationError(f"readers = {each.readers}: legal: 1 to {MOST_READERS}.")


def amounts(size: float, plan: Iterable[Setting]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (B of a file, number of files) for each kind, about `size` B in all.

    At most 2,000 files of a kind; of large files, enough for a few per reader.
    """
    kinds = {each.kind: each.packed for each in plan if each.what != "write"}
    shape = {
        kind: (PARTITION, 6) if packed else (kind[1], int(np.clip(32 * MiB / kind[1], 48, 2000)))
        for kind, packed in kinds.items()
    }
    scale = size / max(sum(each * count for each, count in shape.values()), 1)
    return {kind: (each, max(1, int(count * scale))) for kind, (each, count) in shape.items()}


@dataclass(frozen=True)
class Bench:
    """Readers and their files."""

    pool: Readers
    place: Path
    files: dict[tuple[str, int], list[Path]]
    state: str
    way: str
    budget: float  # s of reading for one measurement
    size: float  # B of all files
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    def warm_up(self) -> None:
        """Read all files into the page cache."""
        for paths in self.files.values():
            for path in paths:
                path.read_bytes()

    def rounds(
        self, plan: Sequence[Setting], until: float
    ) -> dict[Setting, list[tuple[float, int, float]]]:
        """Measure the whole plan repeatedly until that time; returns the results of each repeat."""
        runs: list[list[tuple[float, int, float]]] = []
        while plan and (len(runs) < LEAST_ROUNDS or time.monotonic() < until):
            runs.append(self.measure(plan))
        return {setting: [run[number] for run in runs] for number, setting in enumerate(plan)}

    def measure(self, plan: Sequence[Setting]) -> list[tuple[float, int, float]]:
        """Measure each setting once, in random order; returns (seconds, samples, load by other processes) for each.

        The page cache is dropped before a kind is read a second time.
        """
        found, parts = {}, list(without_repeats(plan))
        self.dice.shuffle(parts)
        for part in parts:
            if self.state == COLD:
                kinds = {setting.kind for setting in part} & set(self.files)
                page_cache.empty(self.way, (path for kind in kinds for path in self.files[kind]))
            self.dice.shuffle(part)
            for setting in part:
                writes = setting.what == "write"
                found[setting] = self._write(setting) if writes else self._read(setting)
        return [found[setting] for setting in plan]

    def _read(self, setting: Setting) -> tuple[float, int, float]:
        paths = [str(path) for path in self.files[setting.kind]]
        places: list[Any] = list(paths)
        if setting.packed:
            starts = range(0, PARTITION - setting.size + 1, setting.size)
            places = list(product(range(len(paths)), starts))
        if setting.what != "sequential":
            self.dice.shuffle(places)
        task = {"what": setting.what, "size": setting.size, "budget": self.budget}
        task |= {"again": self.state == WARM, "paths": paths if setting.packed else []}
        return self.pool.run([{**task, "places": part} for part in _dealt(places, setting.readers)])

    def _write(self, setting: Setting) -> tuple[float, int, float]:
        paths = [self.place / f"written-{number}" for number in range(setting.readers)]
        most = max(1, int(WRITTEN * self.size / setting.size / setting.readers))
        task = {"what": "write", "most": most, "budget": self.budget}
        try:
            return self.pool.run([{**task, "paths": [str(path)]} for path in paths])
        finally:
            for path in paths:
                path.unlink(missing_ok=True)


def without_repeats(plan: Sequence[Setting]) -> Iterator[list[Setting]]:
    """Split the plan before a kind repeats: each part needs one cache drop."""
    part: list[Setting] = []
    for setting in plan:
        if setting.kind in {each.kind for each in part}:
            yield part
            part = []
        part.append(setting)
    if part:
        yield part


def _dealt(places: list[Any], readers: int) -> list[list[Any]]:
    """Return a contiguous slice for each reader; if there are too few places, some readers share the last one."""
    cuts = np.linspace(0, len(places), readers + 1).astype(int)
    return [places[a:b] or places[-1:] for a, b in pairwise(cuts)]
