"""A Timeline in a file: numpy's columns, compressed."""

from pathlib import Path
from typing import Any, BinaryIO
from zipfile import is_zipfile

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.files import replacing
from lib_dlhpc.spec.unpack import check_npz, most_unpacked
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.table import COLUMNS, DEFAULTS, Column, Timeline

LATER = {"comm", "match"}  # columns that older files do not have
MOST_RANKS = 10**6  # of which some have columns of their own: 8 MB each
# s, from 0 either way: larger values cannot resolve microseconds, and may be nanoseconds
LATEST = 10**12


def save(timeline: Timeline, path: Path) -> None:
    """Write a timeline under another name first, so that no half file is ever seen."""
    columns: dict[str, Any] = {name: getattr(timeline, name) for name in COLUMNS}
    about = np.array([timeline.source, str(timeline.ranks), *timeline.names])
    with replacing(path) as temporary:
        with open(temporary, "wb") as file:
            np.savez_compressed(file, about=about, **columns)
        if sum(array.nbytes for array in (about, *columns.values())) > most_unpacked(
            temporary.stat().st_size
        ):  # so regular that a reader would take it for crafted
            with open(temporary, "wb") as file:
                np.savez(file, about=about, **columns)


def load(path: Path) -> Timeline:
    """Return the timeline in a file. Raises SpecError if there is none that can be read.

    Input is checked once, here: a Timeline needs no further checks.
    """
    try:
        with open(path, "rb") as file:
            if not is_zipfile(file):
                raise ValueError(
                    "a .npz file is a zip archive of columns, and this is none, or not whole"
                )
            check_npz(path, most_unpacked(path.stat().st_size))
            file.seek(0)
            about, columns = _read(file)
    except Exception as error:  # what is damaged in an archive fails in many ways
        raise SpecError(f"{path}: not a timeline that can be read: {error}.") from None
    source, ranks, *names = about
    if len(ranks) > 9 or not ranks.isdecimal() or not 1 <= int(ranks) <= MOST_RANKS:
        raise SpecError(f"{path}: ranks = {ranks[:40]}; legal: from 1 to {MOST_RANKS:,}.")
    _check(path, columns, int(ranks), len(names))
    typed = {name: column.astype(COLUMNS[name], copy=False) for name, column in columns.items()}
    return Timeline(**typed, names=tuple(names), ranks=int(ranks), source=source)


def _read(file: BinaryIO) -> tuple[list[str], dict[str, Column]]:
    """Return the metadata and the columns, as stored in an archive."""
    with np.load(file) as archive:
        wanted = [name for name in COLUMNS if name in archive or name not in LATER]
        arrays = {}
        for name in ("about", *wanted):
            try:
                arrays[name] = archive[name]
            except ValueError as error:
                raise ValueError(f"column {name} is damaged, or of no numbers") from error
            if arrays[name].ndim != 1:
                raise ValueError(f"column {name} is not a list: its shape is {arrays[name].shape}")
    about = arrays.pop("about")
    if about.dtype.kind != "U" or len(about) < 2:
        raise ValueError("about, its source, ranks and names, is not a list of words")
    for name in LATER - arrays.keys():
        arrays[name] = np.full(len(arrays["rank"]), DEFAULTS[name], COLUMNS[name])
    return about.tolist(), {name: arrays[name] for name in COLUMNS}


def _check(path: Path, columns: dict[str, Column], ranks: int, names: int) -> None:
    """Raise SpecError at the first column, and its first row, with what no timeline has."""
    rows = len(columns["rank"])
    limits: dict[str, tuple[float, float]] = {
        "rank": (0, ranks - 1),
        "stream": (0, len(STREAMS) - 1),
        "kind": (0, len(KINDS) - 1),
        "name": (0, names - 1),
        "start": (-LATEST, LATEST),
        "stop": (-LATEST, LATEST),
        "peer": (-1, ranks - 1),
    }
    for name, column in columns.items():
        if len(column) != rows:
            raise SpecError(
                f"{path}: column {name} has {len(column):,} rows, column rank {rows:,}."
            )
        kind: Any = COLUMNS[name]
        wanted = np.dtype(kind).kind
        if column.dtype.kind not in ("iuf" if wanted == "f" else "iu"):
            numbers = "numbers" if wanted == "f" else "whole numbers"
            raise SpecError(f"{path}: column {name} is of {column.dtype}; expected {numbers}.")
        least = int(DEFAULTS.get(name, 0))
        low, high = limits.get(name) or (least, np.iinfo(kind).max)
        if rows and not (column.min() >= low and column.max() <= high):  # also true of NaN
            row = int(np.argmax(~((column >= low) & (column <= high))))
            raise SpecError(
                f"{path}: column {name}, row {row}: {column[row]}; legal: {low:g} to {high:,}."
            )
    early = columns["stop"] < columns["start"]
    if early.any():
        row = int(np.argmax(early))
        start, stop = columns["start"][row], columns["stop"][row]
        raise SpecError(f"{path}: column stop, row {row}: {stop} s, before its start, {start} s.")
