"""Measure what a folder's file system gives to readers: many small files against packed, random against sequential.

Each point is measured several times, all points once before any a second time, in ever new order: what drifts
or comes in bursts does so for all.
Barriers are no part of a time: it runs from the first reader's begin to the last one's end. What other
processes take of the cores meanwhile is counted, so that calmer repeats can be told (points.py).
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

from lib_dlhpc.calibration import cold
from lib_dlhpc.calibration.points import COLD, WARM, Point
from lib_dlhpc.calibration.readers import Readers
from lib_dlhpc.calibration.workspace import CalibrationError, make_files, workspace
from lib_dlhpc.spec.measured import cores
from lib_dlhpc.spec.units import format_quantity

KiB, MiB = 1 << 10, 1 << 20
PARTITION = 8 * MiB  # B of each partition
SIZE, LEAST = (
    256.0 * MiB,
    48.0 * MiB,
)  # B of all files together: default, and what is enough to be cold
WRITTEN = 0.25  # of the files' bytes, at most, is written in one go
ROUNDS, LEAST_ROUNDS = 9, 5  # of all settings: as planned, and whatever the time
READING = 0.6  # of the seconds asked for: the rest is making files and dropping them from memory
SHORTEST, LONGEST = 0.005, 0.1  # s of one measurement
MOST_READERS = 1024
# Kinds of sample (points.WHAT, B of each), each with files of its own: a drop of the cache serves them all.
KINDS = (
    ("stat", 4 * KiB), ("open", 4 * KiB),
    ("file", 4 * KiB), ("file", 64 * KiB), ("file", MiB),
    ("random", 16 * KiB), ("random", 128 * KiB), ("sequential", MiB),
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What is measured together: a kind of sample, its bytes, how many readers."""

    what: str
    size: int
    readers: int

    @property
    def kind(self) -> tuple[str, int]:
        """What is read; settings of a kind share its files."""
        return self.what, self.size

    @property
    def packed(self) -> bool:
        """Whether samples are parts of a few large files."""
        return self.what in ("random", "sequential")


def reader_counts() -> tuple[int, ...]:
    """Return one reader, two, one a core of this machine, and two a core."""
    return tuple(sorted({1, 2, cores(), 2 * cores()}))


def default_settings(readers: Sequence[int] = ()) -> list[Setting]:
    """Return what is measured for a tier: every kind with every number of readers, and writes."""
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
    """Return a point for each setting; files of `size` bytes come and go in a folder of their own in `folder`.

    state: "cold", the page cache is emptied before readers read, by `way` ("": the strongest allowed;
    cold.SAID says what it does), or "warm", all is in memory. seconds: of the whole, about; rounds follow
    until they are over, at least five. settings: default_settings() if empty.
    Raises CalibrationError for a folder that cannot be measured, and for values that make no sense.
    """
    plan = list(settings) or default_settings()
    check(state, seconds, size, plan)
    begin = time.monotonic()
    if state == WARM:
        way = ""
    else:
        way = way or cold.ways()[0]
        if way == cold.NONE:
            raise CalibrationError(
                "The page cache cannot be dropped on this system; only what is warm can be measured here."
            )
    most = max(each.readers for each in plan)
    budget = float(np.clip(READING * seconds / (ROUNDS * len(plan)), SHORTEST, LONGEST))
    with workspace(Path(folder), size * (1 + WRITTEN)) as place, Readers(most) as pool:
        bench = Bench(pool, place, make_files(place, amounts(size, plan)), state, way, budget, size)
        if state == WARM:
            bench.warm_up()
        # Writes come last: what they leave to the device to do would disturb the reads after them.
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
    """Raise CalibrationError for a value that makes no sense."""
    if state not in (COLD, WARM):
        raise CalibrationError(f"state = {state!r}: legal: {COLD}, {WARM}.")
    if not 0 < seconds < np.inf:
        raise CalibrationError(f"seconds = {seconds:g}: expected a number above 0.")
    if not LEAST <= size < np.inf:
        raise CalibrationError(
            f"size = {format_quantity(size, 'B')}: expected at least {format_quantity(LEAST, 'B')}:"
            " fewer files are soon all read, and what is read twice comes from memory."
        )
    for each in plan:
        if not 1 <= each.readers <= MOST_READERS:
            raise CalibrationError(f"readers = {each.readers}: legal: 1 to {MOST_READERS}.")


def amounts(size: float, plan: Iterable[Setting]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (B of a file, how many of them) for each kind, about `size` B in all.

    Files up to 2,000, for one costs little; enough of large ones that each of some readers gets a few.
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
    """Readers, and the files that they read."""

    pool: Readers
    place: Path
    files: dict[tuple[str, int], list[Path]]
    state: str
    way: str
    budget: float  # s of reading for one measurement
    size: float  # B of all files
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    def warm_up(self) -> None:
        """Bring all files into memory."""
        for paths in self.files.values():
            for path in paths:
                path.read_bytes()

    def rounds(
        self, plan: Sequence[Setting], until: float
    ) -> dict[Setting, list[tuple[float, int, float]]]:
        """Measure all of the plan once, and again until that time; returns what each repeat found."""
        runs: list[list[tuple[float, int, float]]] = []
        while plan and (len(runs) < LEAST_ROUNDS or time.monotonic() < until):
            runs.append(self.measure(plan))
        return {setting: [run[number] for run in runs] for number, setting in enumerate(plan)}

    def measure(self, plan: Sequence[Setting]) -> list[tuple[float, int, float]]:
        """Measure each setting once, in a new order; returns (seconds, samples, load of others) for each.

        The cache is emptied before a kind is read a second time: what was read is in memory.
        """
        found, parts = {}, list(_without_repeats(plan))
        self.dice.shuffle(parts)
        for part in parts:
            if self.state == COLD:
                kinds = {setting.kind for setting in part} & set(self.files)
                cold.empty(self.way, (path for kind in kinds for path in self.files[kind]))
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


def _without_repeats(plan: Sequence[Setting]) -> Iterator[list[Setting]]:
    """Cut the plan where a kind would come a second time: what lies between needs one empty cache."""
    part: list[Setting] = []
    for setting in plan:
        if setting.kind in {each.kind for each in part}:
            yield part
            part = []
        part.append(setting)
    if part:
        yield part


def _dealt(places: list[Any], readers: int) -> list[list[Any]]:
    """Return a run of neighbours for each reader; where there are too few, some share the last one."""
    cuts = np.linspace(0, len(places), readers + 1).astype(int)
    return [places[a:b] or places[-1:] for a, b in pairwise(cuts)]
