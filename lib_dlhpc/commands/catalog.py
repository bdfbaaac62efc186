"""`dlhpc catalog`: list and show machines, models, data sets and their sources."""

import argparse
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from lib_dlhpc.commands.output import add_output, print_result
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec import catalog

APART = ("title", "description", "sources")  # of an entry; the rest are its numbers


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `catalog` to the command line."""
    entries = subparsers.add_parser(
        "catalog", help="list and show machines, models, data sets and their sources"
    )
    kinds = f"one of {', '.join(catalog.KINDS)}; or the name of an entry"
    entries.add_argument("kind", nargs="?", help=kinds)
    entries.add_argument("name", nargs="?", help="show this entry, each number with its source")
    add_output(entries)
    entries.set_defaults(command=_catalog)


def _catalog(options: argparse.Namespace) -> int:
    if not options.kind:
        kinds = {kind: catalog.names(kind) for kind in catalog.KINDS}
        lines = (f"{kind}: {', '.join(names)}" for kind, names in kinds.items())
        print_result(options, kinds, *lines)
        return 0
    kind, name = options.kind, options.name
    holding = [] if name else [each for each in catalog.KINDS if kind in catalog.names(each)]
    if len(holding) > 1:
        ways = " or ".join(f"dlhpc catalog {each} {kind}" for each in holding)
        raise SpecError(f"{kind}: an entry of {' and '.join(holding)}; write {ways}.")
    if holding:
        kind, name = *holding, kind
    elif not name and kind not in catalog.KINDS:
        raise SpecError(_unknown(kind))
    if not name:
        tables = {name: catalog.read(options.kind, name) for name in catalog.names(options.kind)}
        titles = {name: table.get("title", "") for name, table in tables.items()}
        lines = (f"{name:<24} {title}" for name, title in titles.items())
        print_result(options, titles, *lines)
        return 0
    table = catalog.read(kind, name)
    print_result(options, table, _entry(table))
    return 0


def _unknown(word: str) -> str:
    """Return that nothing of the catalog is called `word`, with the nearest names of all kinds."""
    every = [*catalog.KINDS, *(name for kind in catalog.KINDS for name in catalog.names(kind))]
    within = sorted({name for name in every if word and word.lower() in name}, key=len)
    near = within[:3] or get_close_matches(word, dict.fromkeys(every), n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    head, kinds = f"{word}: no kind and no entry of the catalog", ", ".join(catalog.KINDS)
    return f"{head}.{hint} Kinds: {kinds}." if hint else f"{head}; kinds: {kinds}."


def _entry(table: dict[str, Any]) -> str:
    """Return title, description, and each number with its source."""
    lines = [f"{table['title']}\n{table.get('description', '')}".rstrip()]
    for key, value in _leaves({k: v for k, v in table.items() if k not in APART}):
        source = catalog.source_of(table, key)
        confidence = f" [{source['confidence']}]" if source else ""
        lines.append(f"  {key:<34} {value!s:<24} {source.get('from', '')}{confidence}")
    return "\n".join(lines)


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
