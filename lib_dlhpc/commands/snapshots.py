"""`dlhpc snapshots ...`: the versions of a run's state: list, restore, branch, collect garbage."""

import argparse
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib_dlhpc.commands.output import add_output, print_error, print_note, print_result
from lib_dlhpc.commands.snapshots_names import broken, labels, takes
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.storage.snapshots import SnapshotStore, Version

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add(subparsers: "Subparsers") -> None:
    """Add `snapshots` and its actions to the command line."""
    parser = subparsers.add_parser(
        "snapshots",
        help="manage versions of a run's state: log, diff, branch, tag, restore, gc, ...",
        description="A VERSION is a number, the first digits of an id, a branch or a tag.",
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add_reading(actions)
    _add_naming(actions)
    _add_collecting(actions)


def _add_reading(actions: "Subparsers") -> None:
    """Add the actions that change nothing, and restore."""
    _add(actions, "log", _log, "draw the tree of all versions")
    one = _add(actions, "show", _show, "show the contents of a version")
    one.add_argument("version", metavar="VERSION")
    two = _add(
        actions, "diff", _diff, "show which arrays two versions share, and how the others differ"
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
    restore = _add(
        actions, "restore", _restore, "write a version as a snapshot.npz, with its experiment"
    )
    restore.add_argument("version", metavar="VERSION")
    restore.add_argument("--out", metavar="DIR", required=True, help="a new run folder")


def _add_naming(actions: "Subparsers") -> None:
    """Add branch, tag and forget."""
    branch = _add(
        actions, "branch", _branch, "start a branch at a version; without VERSION, list branches"
    )
    branch.add_argument("version", nargs="?", metavar="VERSION")
    branch.add_argument("--name", help="name of the branch in the store")
    branch.add_argument(
        "--out", metavar="DIR", help="a new run folder, for `dlhpc run --resume DIR`"
    )
    branch.add_argument("more", nargs="*", help=argparse.SUPPRESS)
    mark = _add(actions, "tag", _tag, "give a version a permanent name; without VERSION, list tags")
    mark.add_argument("version", nargs="?", metavar="VERSION")
    mark.add_argument("name", nargs="?")
    forget = _add(
        actions,
        "forget",
        _forget,
        "remove a tag or a branch; gc then removes the versions that only it reached",
    )
    forget.add_argument("name")


def _add_collecting(actions: "Subparsers") -> None:
    """Add gc and verify."""
    collect = _add(actions, "gc", _gc, "remove what no branch or tag reaches")
    collect.add_argument(
        "--keep-last",
        type=int,
        metavar="N",
        help="keep only the N newest versions of each branch, and tagged ones",
    )
    collect.add_argument(
        "--dry-run", action="store_true", help="print what would be removed, without removing it"
    )
    _add(
        actions,
        "verify",
        _verify,
        "check every byte; prints every problem and exits with 1 if there is any",
    )


def _add(
    actions: "Subparsers", name: str, command: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text)
    parser.add_argument("run", metavar="RUN", help="a run folder, or a folder of snapshots")
    add_output(parser)
    parser.set_defaults(command=command)
    return parser


def _store(options: argparse.Namespace) -> "SnapshotStore":
    from lib_dlhpc.storage.snapshots.plan import store_of

    return store_of(options.run)[0]


def _record(version: "Version", names: dict[str, list[str]]) -> dict[str, Any]:
    """Return a version without its arrays, in SI units."""
    keys = ("id", "number", "parent", "branch", "step", "time", "size", "written", "metrics")
    return {key: getattr(version, key) for key in keys} | {"names": names.get(version.id, [])}


def _log(options: argparse.Namespace) -> int:
    from lib_dlhpc.storage.snapshots.lineage import tree

    store = _store(options)
    versions, names = store.log(), labels(store)
    problems = broken(store, options.run)
    lines = tree(versions, names, store.damaged())
    table = {"versions": [_record(version, names) for version in versions], "problems": problems}
    print_result(options, table, *lines)
    if not versions and not store.damaged():
        print_note(f"{store.folder}: no version saved yet.")
    return _report(problems)


def _report(problems: list[str]) -> int:
    for problem in problems:
        print_error(problem)
    return int(bool(problems))


def _show(options: argparse.Namespace) -> int:
    store = _store(options)
    version, known = store.version(options.version), labels(store)
    saved = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(version.time))
    names = ", ".join(known.get(version.id, [])) or "-"
    lines = [
        f"version {version.number}, {version.id}",
        f"  parent  {version.parent or '-'}\n  branch  {version.branch}\n  names   {names}",
        f"  saved   {saved} after step {version.step}",
        f"  size    {show(float(version.size), 'B')}, of which {show(float(version.written), 'B')} new",
    ]
    lines += [f"  {name} = {value:.6g}" for name, value in version.metrics.items()]
    arrays = {}
    for name, array in version.arrays.items():
        shape = " x ".join(map(str, array.shape)) or "one number"
        lines.append(
            f"  {name:<16} {array.dtype:<5} {shape:<16} {show(float(array.size), 'B'):>10}"
        )
        arrays[name] = {"dtype": array.dtype, "shape": array.shape, "size": array.size}
    print_result(options, _record(version, known) | {"arrays": arrays}, *lines)
    return 0


def _diff(options: argparse.Namespace) -> int:
    store = _store(options)
    first, second = store.version(options.first), store.version(options.second)
    rows, lines = store.diff(first, second), [f"{first.name} -> {second.name}"]
    for row in rows:
        line = f"  {row.name:<16} {row.kind:<12} {show(float(row.size), 'B'):>10}"
        if row.kind == "changed":
            line += f", {row.shared / max(row.size, 1):.1%} of it shared"
            line += f", |b - a| / |a| = {row.relative:.3g}" if row.relative == row.relative else ""
        lines.append(line)
    metrics = {
        name: [version.metrics.get(name) for version in (first, second)]
        for name in {**first.metrics, **second.metrics}
    }
    for name, values in metrics.items():
        a, b = ("-" if value is None else f"{value:.6g}" for value in values)
        lines.append(f"  {name:<16} {a} -> {b}")
    table = {"versions": [first.id, second.id], "arrays": [*map(asdict, rows)], "metrics": metrics}
    print_result(options, table, *lines)
    return 0


def _find(options: argparse.Namespace) -> int:
    from lib_dlhpc.storage.snapshots.lineage import described

    store = _store(options)
    found, names = store.find(*options.condition), labels(store)
    lines = [described(version, names.get(version.id, ())) for version in found]
    print_result(options, [_record(version, names) for version in found], *lines)
    if not found:
        print_note(f"None of {len(store.log())} versions matches.")
    return 0


def _branch(options: argparse.Namespace) -> int:
    from lib_dlhpc.storage.snapshots.checkout import begin_run
    from lib_dlhpc.storage.snapshots.plan import store_of

    store, plan = store_of(options.run)
    asked = options.name is not None or options.out is not None
    if options.more or (options.version is None and asked):
        raise SpecError(
            f"dlhpc snapshots branch: expected `dlhpc snapshots branch {options.run} VERSION --name NAME`,"
            " or --out DIR."
        )
    if options.version is None:
        return _list(options, store, store.branches.names(), store.newest)
    if (options.name is None) == (options.out is None):
        raise SpecError("dlhpc snapshots branch: give --name NAME or --out DIR.")
    version = store.version(options.version)
    if options.out is None:
        store.branch(options.name, version)
        line = f"branch {options.name} begins at {version.name}"
        print_result(options, {"branch": options.name, "version": version.id}, line)
        return 0
    made = begin_run(Path(options.out), store, version, plan.every)
    table = {"branch": made.branch, "version": version.id, "folder": options.out}
    print_result(
        options,
        table,
        f"{options.out}: branch {made.branch} begins at {version.name};"
        f" dlhpc run {options.out}/experiment.toml --resume {options.out} resumes it",
    )
    return 0


def _list(
    options: argparse.Namespace,
    store: "SnapshotStore",
    names: list[str],
    version_of: "Callable[[str], Version | None]",
) -> int:
    """Print branches or tags, and the version of each; a broken one is a problem."""
    table, lines = {}, []
    for name in names:
        with suppress(SpecError):
            version = version_of(name)
            table[name] = version.id if version else None
            lines.append(f"{name:<24} {version.name if version else '-'}")
    print_result(options, table, *lines)
    return _report(broken(store, options.run))


def _tag(options: argparse.Namespace) -> int:
    store = _store(options)
    if options.version is None:
        names = store.tags.names()
        if not names:
            print_note(f"{store.folder}: no tags.")
        return _list(options, store, names, lambda name: store.version(store.tags.get(name)))
    if options.name is None:
        raise SpecError("dlhpc snapshots tag: give the version a name.")
    version = store.tag(options.name, options.version)
    table = {"tag": options.name, "version": version.id}
    print_result(options, table, f"tag {options.name}: {version.name}")
    return 0


def _forget(options: argparse.Namespace) -> int:
    store = _store(options)
    alone, runs = takes(store, Path(options.run), options.name)
    store.forget(options.name)
    lost = f"{alone or 'no'} version{' was' if alone < 2 else 's were'}"
    removed = f"{lost} reachable only from it{', for gc to remove' * (alone > 0)}"
    print_result(
        options,
        {"removed": options.name, "unreachable": alone, "continued_by": [*map(str, runs)]},
        f"{options.name} is removed; {removed}",
        *(f"{run} continues this branch: it cannot be resumed now" for run in runs),
    )
    return 0


def _restore(options: argparse.Namespace) -> int:
    from lib_dlhpc.storage.snapshots.checkout import write_out

    store = _store(options)
    version = store.version(options.version)
    write_out(Path(options.out), store, version)
    table = {"version": version.id, "folder": options.out}
    print_result(options, table, f"{options.out}: {version.name} as snapshot.npz")
    return 0


def _gc(options: argparse.Namespace) -> int:
    store = _store(options)
    swept = store.gc(options.keep_last, options.dry_run)
    many = len(swept.versions)
    would = "would go" if options.dry_run else "is gone" if many == 1 else "are gone"
    ids = [version.id for version in swept.versions]
    print_result(
        options,
        {"removed": ids, "freed": swept.freed, "kept": swept.kept, "dry_run": options.dry_run},
        *(f"{version.name}, step {version.step}" for version in swept.versions),
        f"{many} version{'s' * (many != 1)} {would}, {show(float(swept.freed), 'B')} of chunks with them;"
        f" {swept.kept} stay",
    )
    return 0


def _verify(options: argparse.Namespace) -> int:
    store = _store(options)
    problems = store.verify()
    names = broken(store, options.run) if problems else []
    found = [text for text in problems if not any(more.startswith(text) for more in names)] + names
    versions = len(store.log())
    intact = [] if problems else [f"{store.folder}: {versions} versions, every byte intact"]
    print_result(options, {"versions": versions, "problems": found}, *intact)
    return _report(found)
