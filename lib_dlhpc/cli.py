"""The command line: dlhpc predict, simulate, run, compare, calibrate and more, each a command."""

import sys

from lib_dlhpc.lifetime import signals

if __name__ == "__main__" or sys.argv[0].endswith("dlhpc"):
    signals.end_at_once()  # before slow imports

import argparse
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib_dlhpc import __version__
from lib_dlhpc.spec.errors import (
    SpecError,
)  # heavier modules are imported after the signal handlers

EXPLORER = Path(__file__).resolve().parents[1] / "modules" / "00_what_if_explorer.ipynb"
PATHS = {"out": "folder or file", "resume": "run folder", "save": "file", "trace": "file"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status: 0 done, 1 a result is out of bounds, 2 an input error or a file that
    cannot be written, 3 a comparison without a verdict; ended by a signal, as in a shell: 130 by Ctrl-C, 143 by TERM,
    129 by HUP.
    """
    try:
        with signals.taken():
            return _ended(arguments)
    except KeyboardInterrupt as stop:
        with contextlib.suppress(OSError):  # the terminal may be closed
            print(f"dlhpc: {str(stop) or 'Cancelled.'}", file=sys.stderr, flush=True)
        return signals.status()


def _ended(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    try:
        _check_paths(options)
        status = int(options.command(options))
        if sys.stdout:  # None where it was closed
            sys.stdout.flush()
        return status
    except SpecError as error:
        print(f"dlhpc: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        _drop_output()
        return 0
    except OSError as error:
        if error.filename is None:
            _drop_output()
        named = error.filename and os.fsdecode(error.filename)
        what = named or "the output cannot be written"
        print(f"dlhpc: {what}: {error.strerror or error}.", file=sys.stderr)
        return 2


def _check_paths(options: argparse.Namespace) -> None:
    """Raise SpecError for an empty name, such as an unset "$OUT", which would mean the current folder."""
    for option, what in PATHS.items():
        if getattr(options, option, None) == "":
            raise SpecError(f"--{option}: expected a {what}, found an empty name.")


def _drop_output() -> None:
    """Redirect stdout to /dev/null so that Python's final flush does not raise BrokenPipeError."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    from lib_dlhpc.commands import (
        calibrate,
        compare,
        couple,
        jobs,
        network,
        predict,
        simulate,
        snapshots,
        store,
        submit,
        trace,
    )
    from lib_dlhpc.commands.experiment import add_experiment
    from lib_dlhpc.explore.visitors import add_visitor_options
    from lib_dlhpc.spec import catalog

    parser = argparse.ArgumentParser(
        prog="dlhpc", description="Predict deep learning runs on supercomputers."
    )
    parser.add_argument("--version", action="version", version=f"dlhpc {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    predict.add(commands)
    simulate.add(commands)

    real = commands.add_parser("run", help="train for real, on MPI ranks of this machine")
    add_experiment(real, held=" (default: that of --resume or --from)")
    real.add_argument(
        "-n",
        "--ranks",
        type=int,
        help="MPI ranks (default: the run's devices and servers; with --resume those it had)",
    )
    real.add_argument("--out", metavar="DIR", help="the run folder (default: a new one)")
    real.add_argument("--resume", metavar="DIR", help="resume from the snapshot of a run folder")
    real.add_argument(
        "--snapshot-every",
        metavar="N",
        help="save versions of the state every N steps, or every 'epoch'; see dlhpc snapshots",
    )
    real.add_argument(
        "--from",
        dest="origin",
        metavar="RUN@VERSION",
        help="start from a version of another run (without @VERSION: its newest)",
    )
    real.set_defaults(command=_run)

    submit.add(commands)
    jobs.add(commands)
    compare.add(commands)
    couple.add(commands)
    network.add(commands)
    store.add(commands)
    snapshots.add(commands)
    calibrate.add(commands)
    trace.add(commands)

    many = commands.add_parser("validate", help="compare predictions with published results")
    many.add_argument(
        "families", nargs="*", help="only these families, such as goyal17 (default: all)"
    )
    many.add_argument("--json", action="store_true", help="print JSON")
    many.set_defaults(command=_validate)

    entries = commands.add_parser(
        "catalog", help="list and show machines, models, data sets and their sources"
    )
    entries.add_argument("kind", nargs="?", help=f"one of {', '.join(catalog.KINDS)}")
    entries.add_argument("name", nargs="?", help="show this entry, each number with its source")
    entries.set_defaults(command=_catalog)

    page = commands.add_parser("explore", help="open the dashboards in the browser")
    page.add_argument(
        "page",
        nargs="?",
        help="a notebook or a folder of them (default: all modules, opened at the explorer)",
    )
    page.add_argument(
        "--no-browser", action="store_true", help="print the address and open nothing"
    )
    page.add_argument("--port", type=int, default=0, help="TCP port (default: a free one)")
    page.add_argument(
        "--ip", default="127.0.0.1", help="address to listen on (default: this machine only)"
    )
    add_visitor_options(page)
    page.set_defaults(command=_explore)
    return parser


def _run(options: argparse.Namespace) -> int:
    from lib_dlhpc.commands.experiment import ranks_of, read
    from lib_dlhpc.comparison.here import step_here
    from lib_dlhpc.launch import JobError
    from lib_dlhpc.launch.terminal import run_here
    from lib_dlhpc.prediction import on_ranks

    experiment = read(options.experiment or _held(options), options.set)
    ranks = ranks_of(experiment, options.ranks, options.resume)
    predicted, step = on_ranks.check_fits(experiment), step_here(experiment, ranks)
    if options.out and options.resume:
        raise SpecError("--out and --resume: name one of them; a resumed run stays in its folder.")
    folder = options.resume or options.out
    try:
        text = run_here(
            experiment,
            ranks,
            Path(folder) if folder else None,
            bool(options.resume),
            lambda result: on_ranks.result_lines(experiment, predicted, result, step_words=step),
            options.snapshot_every,
            options.origin,
        )
        print(text)
    except JobError as error:
        print(f"dlhpc: {error}", file=sys.stderr)
        return 1
    return 0


def _held(options: argparse.Namespace) -> str:
    """Return the experiment of the run to resume or branch from."""
    option, run = "--resume", options.resume
    if not run:
        before, at, _ = (options.origin or "").rpartition("@")
        option, run = "--from", before if at else options.origin
    if not run:
        raise SpecError("dlhpc run: name an experiment, or a run folder with --resume or --from.")
    path = Path(run) / "experiment.toml"
    if not path.exists():
        there = "holds no run" if Path(run).is_dir() else "no such run folder"
        raise SpecError(f"{option} {run}: {there}: {path} is not there.")
    return str(path)


def _validate(options: argparse.Namespace) -> int:
    from lib_dlhpc.prediction.validate import standings, summary, validate
    from lib_dlhpc.spec.plain import as_json

    rows, known = validate(options.families), standings(options.families)
    left_out = {key: item.why for key, item in known.items() if item.status == "left out"}
    if options.json:
        fields = (
            "id",
            "group",
            "quantity",
            "predicted",
            "published",
            "unit",
            "error",
            "tolerance",
            "tolerance_from",
            "verdict",
            "reason",
        )
        table = [{field: getattr(row, field) for field in fields} for row in rows]
        status = {key: {"status": item.status, "why": item.why} for key, item in known.items()}
        print(
            as_json(
                {"rows": table, "status": status, "left_out": left_out, "summary": summary(rows)}
            )
        )
    else:
        _print_rows(rows)
        for identity, reason in left_out.items():
            print(f"left out: {identity}: {reason}")
        _print_summary(summary(rows))
        found = [item.status for item in known.values()]
        print(
            f"{len(found)} published rows: {found.count('scored')} scored, {found.count('input')} inputs,"
            f" {found.count('left out')} left out"
        )
    return int(any(row.verdict == "FAIL" for row in rows))


def _print_rows(rows: Sequence[Any]) -> None:
    for group in dict.fromkeys(row.group for row in rows):
        columns = f"{'predicted':>12} {'published':>12} {'unit':<12} {'error':>7} {'allowed':>8}"
        print(f"{group}\n{'  row':<38} {columns}")
        for row in (row for row in rows if row.group == group):
            print(
                f"  {row.id:<36} {row.predicted:>12,.5g} {row.published:>12,.5g} {row.unit:<12}"
                f" {row.error:>+7.1%} {row.tolerance:>8.1%}  {row.verdict}"
                + (f": {row.reason}" if row.verdict != "ok" else "")
            )
        print()


def _print_summary(classes: dict[str, dict[str, float]]) -> None:
    width = max(map(len, classes), default=0)
    head = f"{'class':<{width}} {'rows':>5} {'ok':>5} {'median':>8} {'mean':>8} {'worst':>8}"
    print(f"\n{head}   accuracy = 1 - |error|")
    for group, line in classes.items():
        print(
            f"{group:<{width}} {line['rows']:>5} {line['ok']:>5} {line['median']:>8.1%}"
            f" {line['mean']:>8.1%} {line['worst']:>8.1%}"
        )


def _catalog(options: argparse.Namespace) -> int:
    from lib_dlhpc.spec import catalog

    if not options.kind:
        for kind in catalog.KINDS:
            print(f"{kind}: {', '.join(catalog.names(kind))}")
        return 0
    kinds = [kind for kind in catalog.KINDS if options.kind in catalog.names(kind)]
    if kinds and not options.name:
        raise SpecError(f"{options.kind} is an entry: dlhpc catalog {kinds[0]} {options.kind}")
    if not options.name:
        for name in catalog.names(options.kind):
            print(f"{name:<24} {catalog.read(options.kind, name).get('title', '')}")
        return 0
    table = catalog.read(options.kind, options.name)
    print(f"{table['title']}\n{table.get('description', '')}".rstrip())
    for key, value in _leaves(
        {k: v for k, v in table.items() if k not in ("title", "description", "sources")}
    ):
        source = catalog.source_of(table, key)
        print(
            f"  {key:<34} {value!s:<24} {source.get('from', '')}"
            + (f" [{source['confidence']}]" if source else "")
        )
    return 0


def _leaves(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _leaves(value, f"{prefix}{key}.")
        else:
            found.append((prefix + key, value))
    return found


def _explore(options: argparse.Namespace) -> int:
    from lib_dlhpc.explore.serve import serve

    page = Path(options.page) if options.page else EXPLORER.parent
    first = "" if options.page else EXPLORER.name
    if not (page / first).exists():
        raise SpecError(
            f"{page}: no such notebook or folder; run from a clone of the repository, or name one."
        )
    try:
        serve(
            page, options.port, options.ip, not options.no_browser, first=first,
            token=options.token or "", allow_hosts=options.allow_host,
        )  # fmt: skip
    except KeyboardInterrupt:
        if not signals.by_keys():
            raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
