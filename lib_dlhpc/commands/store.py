"""`dlhpc store pack | ls | cat | verify`: pack a folder into partitions, and inspect them."""

import argparse
import os
import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib_dlhpc.commands.output import add_output, print_note, print_result
from lib_dlhpc.errors import SpecError, listed, suggest
from lib_dlhpc.spec.units import format_quantity

if TYPE_CHECKING:
    from lib_dlhpc.storage.index import Manifest
    from lib_dlhpc.storage.packed import PackedStore

CODECS = ("none", "zlib", "zstd")
MANY = 10_000  # names; comparing more takes seconds


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `store` and its actions to the command line."""
    store = subparsers.add_parser(
        "store", help="pack a folder of files into a few partitions, and inspect them"
    )
    actions = store.add_subparsers(required=True, metavar="ACTION")

    one = actions.add_parser("pack", help="pack a folder; if that fails, no store is left behind")
    one.add_argument("folder", metavar="DIR", help="the folder to pack, which stays unchanged")
    one.add_argument(
        "store", metavar="STORE", help="the new store, a folder that does not exist yet"
    )
    one.add_argument(
        "--partitions", type=int, default=8, metavar="N", help="number of partitions (default: 8)"
    )
    one.add_argument("--codec", default="none", help=f"one of {', '.join(CODECS)} (default: none)")
    add_output(one)
    one.set_defaults(command=_pack)

    listed = actions.add_parser("ls", help="list a store, or a folder in it")
    listed.add_argument("store", metavar="STORE")
    listed.add_argument(
        "path",
        nargs="?",
        default="",
        help="a file or folder in the store (default: the whole store)",
    )
    listed.add_argument("-l", "--long", action="store_true", help="show sizes and times")
    listed.add_argument("-R", "--recursive", action="store_true", help="list all subfolders, too")
    add_output(listed)
    listed.set_defaults(command=_ls)

    shown = actions.add_parser("cat", help="write a file's content to standard output")
    shown.add_argument("store", metavar="STORE")
    shown.add_argument("name", nargs="+", metavar="NAME")
    shown.set_defaults(command=_cat)

    checked = actions.add_parser(
        "verify", help="read the whole store; prints every problem and exits with 1 if there is any"
    )
    checked.add_argument("store", metavar="STORE")
    add_output(checked)
    checked.set_defaults(command=_verify)


def _pack(options: argparse.Namespace) -> int:
    from lib_dlhpc.storage.pack import pack

    if options.codec not in CODECS:
        head = f"--codec {options.codec}:"
        raise SpecError(listed(head, options.codec, CODECS, "expected one of"))
    manifest = pack(options.folder, options.store, options.partitions, options.codec)
    print_result(options, _table(options, manifest), f"{options.store}: {_summary(manifest)}")
    return 0


def _table(options: argparse.Namespace, manifest: "Manifest") -> dict[str, Any]:
    keys = ("files", "folders", "size", "stored", "codec")
    numbers = {key: getattr(manifest, key) for key in keys}
    return {"store": options.store, **numbers, "partitions": len(manifest.partitions)}


def _summary(manifest: "Manifest") -> str:
    size, stored = manifest.size, manifest.stored
    ratio = f", {size / stored:.2f} to 1 with {manifest.codec}" if 0 < stored < size else ""
    return (
        f"{_many(manifest.files, 'file')}, {_many(manifest.folders, 'folder')}, {_bytes(size)}; stored as"
        f" {_bytes(stored)} in {_many(len(manifest.partitions), 'partition')}{ratio}"
    )


def _many(number: int, word: str) -> str:
    return f"{number:,} {word}{'s' if number != 1 else ''}"


def _bytes(size: float) -> str:
    return format_quantity(size, "B")


def _ls(options: argparse.Namespace) -> int:
    from lib_dlhpc.storage.packed import open_store

    with open_store(options.store) as store:
        top = _name(store, options.path)
        is_file = bool(top) and not store.stat(top).is_dir
        names = [top] if is_file else _below(store, top, options.recursive)
        start = len(top) + 1 if top and not is_file else 0  # names are relative to the folder
        lines = [_line(store, name, name[start:], options.long) for name in names]
        if options.long and not top:
            lines.insert(0, _summary(store.manifest))
        print_result(options, [_record(store, name) for name in names], *lines)
    return 0


def _record(store: "PackedStore", name: str) -> dict[str, Any]:
    """Return what a store knows of a file or folder; modified: s since 1970."""
    stat = store.stat(name)
    return {"name": name, "folder": stat.is_dir, "size": stat.size, "modified": stat.mtime}


def _below(store: "PackedStore", top: str, recursive: bool) -> list[str]:
    found = []
    for name in store.listdir(top):
        found.append(f"{top}/{name}" if top else name)
        if recursive and store.stat(found[-1]).is_dir:
            found += _below(store, found[-1], recursive)
    return found


def _line(store: "PackedStore", name: str, shown: str, long: bool) -> str:
    stat = store.stat(name)
    mark = "/" if stat.is_dir else ""
    if not long:
        return printable(shown) + mark
    when = datetime.fromtimestamp(stat.mtime).strftime("%Y-%m-%d %H:%M")
    size = "" if stat.is_dir else _bytes(stat.size)
    return f"{size:>9}  {when}  {printable(shown)}{mark}"


def printable(name: str) -> str:
    """Return a name as one printable line in the terminal's encoding."""
    shown = name if name.isprintable() else name.encode("unicode_escape", "replace").decode()
    encoding = sys.stdout.encoding or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def _cat(options: argparse.Namespace) -> int:
    from lib_dlhpc.storage.packed import open_store

    with open_store(options.store) as store:
        names = [_name(store, name) for name in options.name]
        for name in names:
            if not name or store.stat(name).is_dir:
                raise SpecError(f"{name or options.store} is a folder; `dlhpc store ls` lists it.")
        for name in names:
            with store.open(name) as content:
                shutil.copyfileobj(content, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    return 0


def _name(store: "PackedStore", path: str) -> str:
    """Return the normalized name of a user's `path`: ./a//b/ is a/b. Raises SpecError if it does not exist."""
    name = os.path.normpath(f"/{path}").lstrip("/")
    if name and not store.exists(name):
        raise SpecError(f"{path}: the store has no such file or folder.{_near(store, name)}")
    return name


def _near(store: "PackedStore", name: str) -> str:
    """Suggest a name from the same folder, unless it holds too many."""
    above = os.path.dirname(name)
    beside = store.listdir(above) if store.exists(above) and store.stat(above).is_dir else []
    names = [f"{above}/{last}" if above else last for last in beside]
    return suggest(name, names) if len(names) <= MANY else ""


def _verify(options: argparse.Namespace) -> int:
    from lib_dlhpc.storage.index import load_manifest
    from lib_dlhpc.storage.verify import verify

    if not Path(options.store).is_dir():
        raise SpecError(f"{options.store}: no such folder; a packed store is a folder.")
    problems = verify(options.store)
    if problems:
        table = {"store": options.store, "problems": problems}
        print_result(options, table, *map(printable, problems))
        print_note(f"{options.store}: {_many(len(problems), 'problem')}")
        return 1
    manifest = load_manifest(Path(options.store))
    table = {**_table(options, manifest), "problems": []}
    print_result(options, table, f"{options.store}: no problems; {_summary(manifest)}")
    return 0
