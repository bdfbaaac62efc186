"""The catalog: plain TOML files with sources; this file only finds and reads them."""

import os
import re
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import FieldError, SpecError, listed, nearest

ROOT = Path(__file__).resolve().parents[1] / "catalog"
KINDS = (
    *("devices", "links", "machines", "models", "datasets", "replays", "presets"),
    *("published", "sites", "workloads"),
)
RUNS = ("replays", "presets")  # kinds of runs: published ones, others
_LEGAL_NAME = re.compile(r"[a-z0-9][a-z0-9.\-]*")


@cache
def names(kind: str) -> tuple[str, ...]:
    """Return the sorted names of the entries of one kind, such as "machines"; raises SpecError."""
    if kind not in KINDS:
        raise SpecError(listed(f"No kind of catalog entry is called {kind!r};", kind, KINDS))
    files = os.listdir(ROOT / kind)
    return tuple(sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml")))


def read(kind: str, name: str, field: str = "") -> dict[str, Any]:
    """Return one entry as a dict of its TOML file, [sources] included; an error names `field`. The caller
    may change the dict. Raises SpecError."""
    return _copied(_entry(kind, name, field))


def on_machine(path: str | Path) -> tuple[str, str] | None:
    """Return the model and the machine of "model@machine", or None: for a file, and for the path of a missing one.

    The machine is a name of the catalog, or a file. Raises OSError for a name that no file can have.
    """
    model, on, machine = str(path).rpartition("@")  # folders may have an @ in their names
    if not on or Path(path).exists():
        return None
    is_path = "/" in machine or machine.endswith(".toml")
    return None if is_path and not Path(machine).is_file() else (model, machine)


def run(name: str, folder: bool = False) -> dict[str, Any]:
    """Return the experiment of a run of the catalog, such as "goyal-2017", as a table; raises SpecError.

    folder: there is one of that name.
    """
    kinds = {name: kind for kind in RUNS for name in names(kind)}
    if name not in kinds:
        what = "no such file but a folder" if folder else "no such file"
        near = nearest(name, [*kinds, *names("models")], 0.5)
        hint = f" Did you mean {near!r}?" if near in kinds else ""
        if near and not hint:
            hint = f" {near} is a model: name its machine too, such as {near}@h100-pod."
        head = f"{what}, and no run of that name in the catalog"
        raise SpecError(
            f"{head}.{hint} Runs: {', '.join(kinds)}."
            if hint
            else f"{head}; runs: {', '.join(kinds)}."
        )
    experiment: dict[str, Any] = read(kinds[name], name)["experiment"]
    return experiment


def _entry(kind: str, name: str, field: str, lacking: Sequence[str] = ()) -> dict[str, Any]:
    legal = names(kind)
    if not isinstance(name, str) or not _LEGAL_NAME.fullmatch(name) or name not in legal:
        own = (
            f" To define your own, add {', '.join(lacking)} to the table."
            if lacking
            else " To define your own, write its whole table, with any other name, in a TOML file."
            if field.endswith(".name")
            else ""
        )
        head = f"{field or kind.rstrip('s')} = {name!r}: not in the catalog;"
        raise FieldError(listed(head, name, legal) + own)
    return _parsed(kind, name)


def _copied(table: Any) -> Any:
    """Return a copy of what a TOML file holds: tables, arrays, and values that cannot change."""
    if isinstance(table, dict):
        return {key: _copied(value) for key, value in table.items()}
    return [_copied(value) for value in table] if isinstance(table, list) else table


@cache
def _parsed(kind: str, name: str) -> dict[str, Any]:
    return tomllib.loads(text(kind, name))


def text(kind: str, name: str) -> str:
    """Return the text of an entry's file."""
    return (ROOT / kind / f"{name}.toml").read_text(encoding="utf-8")


def body(kind: str, name: str, field: str = "", lacking: Sequence[str] = ()) -> dict[str, Any]:
    """Return the entry without documentation: title, description, sources, expected; raises SpecError.

    lacking: keys that the table with this name lacks to define an entry of its own, for the error.
    """
    documentation = ("title", "description", "sources", "expected")
    return {
        key: _copied(value)
        for key, value in _entry(kind, name, field, lacking).items()
        if key not in documentation
    }


def source_of(table: dict[str, Any], key: str) -> dict[str, str]:
    """Return {"from": ..., "confidence": ...} of the number at the dotted `key`: the longest prefix wins."""
    sources = table.get("sources", {})
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in sources:
            return dict(sources[prefix])
    return {}
