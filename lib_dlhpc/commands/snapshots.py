"""`dlhpc snapshots ...`: the versions of a run's state: list, restore, branch, collect garbage."""

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lib_dlhpc.commands.snapshots_names import broken, labels, takes
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.storage.snapshots import SnapshotStore, Version

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add(subparsers: "Subparsers") -> None:
    """Add `snapshots` and its actions to the command line."""
    parser = subparsers.add_parser(
        "snapshots",
        help="versions of a run's state: log, show, diff, find, branch, tag, restore, gc, verify",
        description="A VERSION is a number, the first digits of an id, a branch or a tag.",
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add(actions, "log", _log, "draw the tree of all versions")
    one = _add(actions, "show", _show, "show what a version holds")
    one.add_argument("version", metavar="VERSION")
    two = _add(
        actions,
        "diff",
        _diff,
        "show which arrays two versions share, and the differences of the others",
    )
    two.add_argument("first", metavar="VERSION")
    two.add_argument("second", metavar="VERSION")
    some = _add(actions, "find", _find, "list the versions that meet all conditions")
    some.add_argument(
        "condition",
        nargs="+",
        metavar="CONDITION",
        help='such as "accuracy > 0.9" or "step <= 100"',
    )
    branch = _add(
        actions, "branch", _branch, "start a branch at a version; without VERSION, list branches"
    )
    branch.add_argument("version", nargs="?", metavar="VERSION")
    branch.add_argument("--name", help="of a branch in the store")
    branch.add_argument(
        "--out", metavar="DIR", help="a new run folder, for `dlhpc run --resume DIR`"
    )
    branch.add_argument("more", nargs="*", help=argparse.SUPPRESS)
    mark = _add(actions, "tag", _tag, "give a version a permanent name; without VERSION, list tags")
    mark.add_argument("version", nargs="?", metavar="VERSION")
    mark.add_argument("name", nargs="?")
    forget = _add(
        actions, "forget", _forget, "remove a tag or a branch; gc then removes what only it reached"
    )
    forget.add_argument("name")
    restore = _add(
        actions, "restore", _restore, "write a version as a snapshot.npz, with its experiment"
    )
    restore.add_argument("version", metavar="VERSION")
    restore.add_argument("--out", metavar="DIR", required=True, help="a new run folder")
    collect = _add(actions, "gc", _gc, "remove what no branch or tag reaches")
    collect.add_argument(
        "--keep-last",
        type=int,
        metavar="N",
        help="keep only the N newest of each branch, and tagged ones",
    )
    collect.add_argument(
        "--dry-run", action="store_true", help="print what would be removed, and remove nothing"
    )
    _add(actions, "verify", _verify, "check every byte; exits 1 and prints every problem")


def _add(
    actions: "Subparsers", name: str, command: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text)
    parser.add_argument("run", metavar="RUN", help="a run folder, or a folder of snapshots")
    parser.set_defaults(command=command)
    return parser


def _store(options: argparse.Namespace) -> "SnapshotStore":
    from lib_dlhpc.storage.snapshots.plan import store_of

    return store_of(options.run)[0]


def _print(store: "SnapshotStore", versions: "list[Version]") -> None:
    from lib_dlhpc.storage.snapshots.lineage import described

    names = labels(store)
    for version in versions:
        print(described(version, names.get(version.id, ())))


def _log(options: argparse.Namespace) -> int:
    from lib_dlhpc.storage.snapshots.lineage import tree

    store = _store(options)
    versions = store.log()
    for line in tree(versions, labels(store), store.damaged()):
        print(line)
    if not versions and not store.damaged():
        print(f"{store.folder}: no version saved yet.", file=sys.stderr)
    return _report(broken(store, options.run))


def _report(problems: list[str]) -> int:
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems))


def _show(options: argparse.Namespace) -> int:
    store = _store(options)
    version = store.version(options.version)
    saved = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(version.time))
    names = ", ".join(labels(store).get(version.id, [])) or "-"
    print(f"version {version.number}, {version.id}")
    print(f"  parent  {version.parent or '-'}\n  branch  {version.branch}\n  names   {names}")
    print(f"  saved   {saved} after step {version.step}")
    print(
        f"  size    {show(float(version.size), 'B')}, of which {show(float(version.written), 'B')} new"
    )
    for name, value in version.metrics.items():
        print(f"  {name} = {value:.6g}")
    for name, array in version.arrays.items():
        shape = " x ".join(map(str, array.shape)) or "one number"
        print(f"  {name:<16} {array.dtype:<5} {shape:<16} {show(float(array.size), 'B'):>10}")
    return 0


def _diff(options: argparse.Namespace) -> int:
    store = _store(options)
    first, second = store.version(options.first), store.version(options.second)
    print(f"{first.name} -> {second.name}")
    for row in store.diff(first, second):
        line = f"  {row.name:<16} {row.kind:<12} {show(float(row.size), 'B'):>10}"
        if row.kind == "changed":
            line += f", {row.shared / max(row.size, 1):.1%} of it shared"
            line += f", |b - a| / |a| = {row.relative:.3g}" if row.relative == row.relative else ""
        print(line)
    for name in {**first.metrics, **second.metrics}:
        a, b = (version.metrics.get(name) for version in (first, second))
        print(
            f"  {name:<16} {'-' if a is None else f'{a:.6g}'} -> {'-' if b is None else f'{b:.6g}'}"
        )
    return 0


def _find(options: argparse.Namespace) -> int:
    store = _store(options)
    found = store.find(*options.condition)
    _print(store, found)
    if not found:
        print(f"None of {len(store.log())} versions matches.", file=sys.stderr)
    return 0


def _branch(options: argparse.Namespace) -> int:
    from lib_dlhpc.storage.snapshots.out import begin_run
    from lib_dlhpc.storage.snapshots.plan import store_of

    store, plan = store_of(options.run)
    asked = options.name is not None or options.out is not None
    if options.more or (options.version is None and asked):
        raise SpecError(
            f"dlhpc snapshots branch: expected `dlhpc snapshots branch {options.run} VERSION --name NAME`,"
            " or --out DIR."
        )
    if options.version is None:
        for name in store.branches.names():
            with suppress(SpecError):
                version = store.newest(name)
                print(f"{name:<24} {version.name if version else '-'}")
        return _report(broken(store, options.run))
    if (options.name is None) == (options.out is None):
        raise SpecError("dlhpc snapshots branch: give --name NAME or --out DIR.")
    version = store.version(options.version)
    if options.out is None:
        store.branch(options.name, version)
        print(f"branch {options.name} begins at {version.name}")
        return 0
    made = begin_run(Path(options.out), store, version, plan.every)
    print(
        f"{options.out}: branch {made.branch} begins at {version.name};"
        f" dlhpc run {options.out}/experiment.toml --resume {options.out} resumes it"
    )
    return 0


def _tag(options: argparse.Namespace) -> int:
    store = _store(options)
    if options.version is None:
        for name in store.tags.names():
            with suppress(SpecError):
                print(f"{name:<24} {store.version(store.tags.get(name)).name}")
        if not store.tags.names():
            print(f"{store.folder}: no tags.", file=sys.stderr)
        return _report(broken(store, options.run))
    if options.name is None:
        raise SpecError("dlhpc snapshots tag: give the version a name.")
    print(f"tag {options.name}: {store.tag(options.name, options.version).name}")
    return 0


def _forget(options: argparse.Namespace) -> int:
    store = _store(options)
    alone, runs = takes(store, Path(options.run), options.name)
    store.forget(options.name)
    lost = (
        "no version was"
        if not alone
        else "1 version was"
        if alone == 1
        else f"{alone} versions were"
    )
    print(
        f"{options.name} is removed; {lost} reachable only from it{', for gc to remove' * (alone > 0)}"
    )
    for run in runs:
        print(f"{run} continues this branch: it cannot be resumed now")
    return 0


def _restore(options: argparse.Namespace) -> int:
    from lib_dlhpc.storage.snapshots.out import write_out

    store = _store(options)
    version = store.version(options.version)
    write_out(Path(options.out), store, version)
    print(f"{options.out}: {version.name} as snapshot.npz")
    return 0


def _gc(options: argparse.Namespace) -> int:
    store = _store(options)
    swept = store.gc(options.keep_last, options.dry_run)
    many = len(swept.versions)
    would = "would go" if options.dry_run else "is gone" if many == 1 else "are gone"
    for version in swept.versions:
        print(f"{version.name}, step {version.step}")
    print(
        f"{many} version{'s' * (many != 1)} {would}, {show(float(swept.freed), 'B')} of chunks with them;"
        f" {swept.kept} stay"
    )
    return 0


def _verify(options: argparse.Namespace) -> int:
    store = _store(options)
    problems = store.verify()
    names = broken(store, options.run) if problems else []
    _report([text for text in problems if not any(more.startswith(text) for more in names)] + names)
    if not problems:
        print(f"{store.folder}: {len(store.log())} versions, every byte intact")
    return int(bool(problems))
