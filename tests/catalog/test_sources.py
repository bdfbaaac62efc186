"""Every number of the catalog says where it comes from; no source outlives its number."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import lib_dlhpc
from lib_dlhpc.spec.catalog import source_of
from lib_dlhpc.spec.machine import load_machine, read_device, read_link

CATALOG = Path(lib_dlhpc.__file__).parent / "catalog"
KINDS = ("devices", "links", "machines", "models", "datasets", "workloads")
FILES = [path for kind in KINDS for path in sorted((CATALOG / kind).glob("*.toml"))]
CONFIDENCE = {"read", "memory", "computed", "estimate"}
PROSE = ("title", "description", "sources")
LOADERS = {
    "devices": read_device,
    "links": lambda name: read_link(name, "link"),
    "machines": load_machine,
}

QUANTITY = re.compile(r"[+-]?\d[\d_.]*([eE][+-]?\d+)?\s*[A-Za-z/]*")


def of(kind: str) -> list[Path]:
    paths = [path for path in FILES if path.parent.name == kind]
    assert paths
    return paths


each_kind = pytest.mark.parametrize("kind", KINDS)


@cache
def load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def is_number(value: Any) -> bool:
    if isinstance(value, str):
        return QUANTITY.fullmatch(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbers(value: Any, key: str = "") -> Iterator[str]:
    """Yield the dotted key of every number; the numbers of a list share the list's key."""
    if isinstance(value, dict):
        for name, entry in value.items():
            if key or name not in PROSE:
                yield from numbers(entry, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for entry in value:
            yield from numbers(entry, key)
    elif is_number(value):
        yield key


def covering_prefix(key: str, sources: dict[str, Any]) -> str | None:
    parts = key.split(".")
    prefixes = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((prefix for prefix in prefixes if prefix in sources), None)


@each_kind
def test_name_and_title(kind):
    for path in of(kind):
        assert re.fullmatch(r"[a-z0-9]+([-.][a-z0-9]+)*", path.stem)
        assert load(path)["title"].strip(), path


@each_kind
def test_every_number_has_a_source(kind):
    tables = {path.stem: load(path) for path in of(kind)}
    bare = {
        (name, key)
        for name, table in tables.items()
        for key in numbers(table)
        if not source_of(table, key)
    }
    assert not bare


@each_kind
def test_every_source_is_complete_and_used(kind):
    for path in of(kind):
        table = load(path)
        sources = table.get("sources", {})
        for prefix, source in sources.items():
            assert set(source) == {"from", "confidence"}, (path, prefix)
            assert source["from"].strip(), (path, prefix)
            assert source["confidence"] in CONFIDENCE, (path, prefix)
        used = {covering_prefix(key, sources) for key in numbers(table)}
        assert set(sources) <= used, path


@pytest.mark.parametrize("kind", LOADERS)
def test_every_entry_can_be_built(kind):
    for path in of(kind):
        assert LOADERS[kind](path.stem).name == path.stem


def test_every_machine_has_storage():
    for path in of("machines"):
        assert load_machine(path.stem).storage, path


def test_the_finder_of_numbers_finds_them():
    table = {"title": "P40 24", "a": "16 GB", "b": [1, 2.0], "c": {"d": "1e3", "e": True}}
    assert set(numbers(table | {"f": "3-d torus"})) == {"a", "b", "c.d"}
