"""Verification of a store: every problem that reads would raise, and those that no read detects."""

import os
from pathlib import Path

import numpy as np

from lib_dlhpc.storage.checksum import checksum
from lib_dlhpc.storage.codecs import check
from lib_dlhpc.storage.errors import StoreError
from lib_dlhpc.storage.index import INDEX, MANIFEST, Index, Manifest, load, load_manifest, sha256
from lib_dlhpc.storage.writing import FOLDER, LIST, load_list


def verify(target: str | os.PathLike[str]) -> list[str]:
    """Return every problem of a store as a sentence that names the file and its partition.

    Checks everything: each file's checksum, its size after decompression, each partition's SHA-256, written files,
    and unknown files in the folder. Raises nothing.
    """
    path = Path(target)
    try:
        manifest = load_manifest(path)
        index = load(path, manifest)
    except StoreError as error:
        return [str(error)]
    problems = _of_totals(index, manifest)
    for number in range(len(manifest.partitions)):
        problems += _of_partition(path, manifest, index, number)
    return problems + _of_written(path, manifest)


def _of_totals(index: Index, manifest: Manifest) -> list[str]:
    columns = index.columns
    wrong = [name for name, column in columns.items() if len(column) != len(index.names)]
    if wrong:
        return [f"{INDEX}: {len(index.names)} names, but the columns {wrong} have other lengths."]
    counted = (len(index.names), int(columns["size"].sum()), int(columns["stored"].sum()))
    stated = (manifest.files, manifest.size, manifest.stored)
    if counted != stated:
        return [f"{MANIFEST} states (files, B, B stored) {stated}, the index has {counted}."]
    return []


def _of_partition(path: Path, manifest: Manifest, index: Index, number: int) -> list[str]:
    part = manifest.partitions[number]
    place = path / part.name
    problems: list[str] = []
    numbers = np.flatnonzero(index.columns["partition"] == number).tolist()
    try:
        found = place.stat().st_size
        if found != part.size:
            problems.append(f"{part.name} has {found} B of {part.size} B.")
        elif sha256(place) != part.sha256:
            problems.append(f"{part.name}: its SHA-256 is not the manifest's.")
        with open(place, "rb") as file:
            for one in numbers:
                entry = index.entry(one)
                file.seek(entry.offset)
                data = file.read(entry.stored)
                why = _of_file(data, entry.stored, entry.checksum, entry.codec, entry.size)
                if why:
                    problems.append(f"{index.names[one]!r} in {part.name}: {why}.")
    except OSError as error:
        lost = f"; lost with it: {index.names[numbers[0]]!r}" if numbers else ""
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        problems.append(f"{part.name}: {error.strerror}{lost}{more}.")
    return problems


def _of_file(data: bytes, stored: int, wanted: int, codec: int, size: int) -> str:
    if len(data) < stored:
        return f"{len(data)} B of {stored} B are there"
    if checksum(data) != wanted:
        return "its checksum is not the one it was packed with"
    try:
        check(data, codec, size)
    except StoreError as error:
        return str(error)
    return ""


def _of_written(path: Path, manifest: Manifest) -> list[str]:
    """Return problems of written files, and unknown files, such as a killed program leaves."""
    try:
        listed = load_list(path)
    except StoreError as error:
        return [str(error)]
    problems = []
    for name, output in listed.items():
        try:
            data = (path / FOLDER / name).read_bytes()
        except OSError as error:
            problems.append(f"{name!r}, written: {error.strerror}.")
            continue
        if len(data) != output.size or checksum(data) != output.checksum:
            problems.append(f"{name!r}, written: its checksum is not the one it was written with.")
    known = {MANIFEST, INDEX, LIST, FOLDER, *(part.name for part in manifest.partitions)}
    strangers = sorted(set(os.listdir(path)) - known)
    for above, _, names in os.walk(path / FOLDER):
        inside = (Path(above, last).relative_to(path / FOLDER).as_posix() for last in names)
        strangers += sorted(f"{FOLDER}/{name}" for name in inside if name not in listed)
    return problems + [f"{name} belongs to nothing in the store." for name in strangers]
