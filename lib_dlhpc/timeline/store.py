"""A Timeline in a file: numpy's columns, compressed."""

import os
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.timeline.table import COLUMNS, DEFAULTS, Timeline

LATER = {"comm", "match"}  # columns that older files do not have


def save(timeline: Timeline, path: Path) -> None:
    """Write a timeline under another name first, so that no half file is ever seen."""
    columns: dict[str, Any] = {name: getattr(timeline, name) for name in COLUMNS}
    about = np.array([timeline.source, str(timeline.ranks), *timeline.names])
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            np.savez_compressed(file, about=about, **columns)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load(path: Path) -> Timeline:
    """Return the timeline in a file. Raises SpecError if there is none that can be read."""
    try:
        with np.load(path) as file:
            source, ranks, *names = file["about"].tolist()
            columns = {name: file[name] for name in COLUMNS if name in file or name not in LATER}
    except (OSError, EOFError, ValueError, KeyError, BadZipFile, zlib.error) as error:
        raise SpecError(f"{path}: not a timeline that can be read: {error}.") from None
    for name in LATER - columns.keys():
        columns[name] = np.full(len(columns["rank"]), DEFAULTS[name], COLUMNS[name])
    return Timeline(**columns, names=tuple(names), ranks=int(ranks), source=source)
