"""`dlhpc trace`: record, show, analyze and convert traces of all ranks; execution traces are in trace_chakra.py,
steps of frameworks in trace_steps.py.

An action is a parser and a function (options -> exit status), added in `add` and `_add_recording` below.
"""

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib_dlhpc.commands import trace_chakra, trace_steps
from lib_dlhpc.commands.output import (
    add_output,
    print_error,
    print_note,
    print_result,
    stdout_to_stderr,
)
from lib_dlhpc.commands.trace_reading import FILE, read_trace
from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime import owned

if TYPE_CHECKING:
    from lib_dlhpc.launch.trace_run import TracedRun
    from lib_dlhpc.timeline.table import Timeline


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `trace` and its actions to the command line."""
    trace = subparsers.add_parser("trace", help="record, show, analyze and convert traces of ranks")
    actions = trace.add_subparsers(required=True, metavar="ACTION")

    show = actions.add_parser(
        "show", help="show the contents of a trace: ranks, time span, events, time by region"
    )
    show.add_argument("files", nargs="+", metavar="FILE", help=FILE)
    add_output(show)
    show.set_defaults(command=_show)

    convert = actions.add_parser(
        "convert",
        help="write a trace in another format",
        description="OUT ends in .npz (columns), .json or .json.gz (Chrome and Perfetto), or .otf2 (a folder,"
        " an OTF2 archive). Several IN are traces of torch.profiler, one per rank.",
    )
    convert.add_argument("files", nargs="+", metavar="IN", help=FILE)
    convert.add_argument("out", metavar="OUT", help="output; an existing file is replaced")
    convert.add_argument("--to", default="", help="the format: columns, chrome or otf2")
    add_output(convert)
    convert.set_defaults(command=_convert)

    analyze = actions.add_parser(
        "analyze",
        aliases=["analyse"],  # its name in version 0.1
        help="find what limits a run: wait states, imbalance, slow links and disks, efficiencies",
        description="Prints what limits the run, then the findings and where to look. Anything that costs"
        " less than 2% of the run, or is within its scatter, is not reported. A trace of fewer than about 25 steps"
        " may be too short for findings; the report then says so.",
    )
    analyze.add_argument("files", nargs="+", metavar="FILE", help=FILE)
    add_output(analyze)
    analyze.set_defaults(command=_analyze)

    _add_recording(actions)
    trace_steps.add(actions, FILE)
    trace_chakra.add(actions)


def _show(options: argparse.Namespace) -> int:
    from lib_dlhpc.timeline.overview import as_dict, as_text

    timeline = read_trace(options.files)
    print_result(options, as_dict(timeline), as_text(timeline))
    return 0


def _convert(options: argparse.Namespace) -> int:
    _write(options, read_trace(options.files), options.to)
    return 0


def _analyze(options: argparse.Namespace) -> int:
    from lib_dlhpc.timeline.analysis import analyze, report

    timeline = read_trace(options.files)
    analysis = analyze(timeline)
    more, text = trace_steps.of_framework(timeline)
    print_result(options, report.as_dict(analysis) | more, report.as_text(analysis), *text)
    return 0


def _add_recording(actions: Any) -> None:
    """Add run and gather."""
    run = actions.add_parser(
        "run",
        usage="dlhpc trace run [-h] [-n RANKS] [--out OUT] (PROGRAM | -m MODULE) [ARGUMENT ...]",
        help="run an mpi4py program on MPI ranks and record its MPI calls",
        description="The program needs no change. Arguments before it are for dlhpc, those after it for"
        " the program. Input, output and exit status are the program's.",
    )
    run.add_argument("-n", type=int, default=2, metavar="RANKS", help="MPI ranks (default: 2)")
    run.add_argument(
        "--out",
        default="trace.npz",
        metavar="OUT",
        help="output (default: trace.npz); the extension selects the format, see `dlhpc trace convert`",
    )
    add_output(run)
    rest = argparse.REMAINDER
    run.add_argument(
        "-m", dest="module", nargs=rest, metavar="MODULE", help="a module, as with python -m"
    )
    run.add_argument("program", nargs=rest, metavar="PROGRAM", help="a script and its arguments")
    run.set_defaults(command=_run)

    gather = actions.add_parser(
        "gather",
        help="assemble the records that the ranks of a traced program left in a folder",
        description="For a program that a batch system starts:"
        " srun python -m lib_dlhpc.launch.traced FOLDER PROGRAM ...",
    )
    gather.add_argument("folder", metavar="FOLDER")
    gather.add_argument("out", metavar="OUT", help="output; an existing file is replaced")
    add_output(gather)
    gather.set_defaults(command=_gather)


def _run(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch.trace_run import trace_run

    _check_out(Path(options.out))
    folder = owned.make_folder("dlhpc-trace-")
    try:
        words = options.program if options.module is None else ["-m", *options.module]
        with stdout_to_stderr() if options.json else nullcontext():
            run = trace_run(options.n, words, folder)
        _write_run(options, run)
    except SpecError as error:
        if any(folder.iterdir()):
            owned.keep_folder(folder)
            raise SpecError(f"{error} The ranks' records are in {folder}.") from None
        owned.remove_folder(folder)
        raise
    owned.remove_folder(folder)
    return run.status if run.status >= 0 else 128 - run.status


def _gather(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch.trace_run import gather

    _write_run(options, gather(Path(options.folder)))
    return 0


def _check_out(out: Path) -> None:
    """Raise SpecError before the run if its trace cannot be written."""
    from lib_dlhpc.timeline import from_rows
    from lib_dlhpc.timeline.formats import write

    if not out.parent.is_dir():
        raise SpecError(f"{out}: there is no folder {out.parent}.")
    with owned.temporary_folder("dlhpc-trace-") as folder:
        trial = folder / out.name
        try:
            write(from_rows([], 1, "measured"), trial)
        except SpecError as error:
            raise SpecError(str(error).replace(str(trial), str(out))) from None


def _write_run(options: argparse.Namespace, run: "TracedRun") -> None:
    """Write the trace of a run, and report what is missing from it."""
    _write(options, run.timeline, lost=run.lost, status=run.status)
    for sentence in run.lost:
        print_error(sentence)


def _write(options: argparse.Namespace, timeline: "Timeline", to: str = "", **more: Any) -> None:
    from lib_dlhpc.timeline.formats import write

    out, events, ranks = options.out, len(timeline), timeline.ranks
    try:
        write(timeline, out, to)
    except OSError as error:
        raise SpecError(f"{out}: cannot be written: {error.strerror or error}.") from None
    print_result(options, {"out": out, "events": events, "ranks": ranks, **more})
    print_note(f"{out}: {events:,} events of {ranks:,} ranks.")
