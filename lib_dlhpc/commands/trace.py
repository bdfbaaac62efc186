"""`dlhpc trace`: record, show, analyze and convert traces of all ranks.

An action is a parser and a function (options -> exit status), added in `add` and `_add_recording` below.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from lib_dlhpc.lifetime import owned
from lib_dlhpc.spec.errors import SpecError

FILE = (
    "a timeline (.npz), a run folder, a Chrome or Perfetto trace (.json), traces of torch.profiler, an OTF2"
    " archive"
)


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `trace` and its actions to the command line."""
    trace = subparsers.add_parser(
        "trace", help="record, show, analyze and convert traces: what each rank does when"
    )
    actions = trace.add_subparsers(required=True, metavar="ACTION")

    show = actions.add_parser(
        "show", help="contents of a trace: ranks, span, events, time by region"
    )
    show.add_argument("files", nargs="+", metavar="FILE", help=FILE)
    show.add_argument("--json", action="store_true", help="print JSON in SI units")
    show.set_defaults(command=_show)

    convert = actions.add_parser(
        "convert",
        help="write a trace in another format",
        description="OUT ends in .npz (columns), .json or .json.gz (Chrome and Perfetto), or .otf2 (a folder,"
        " an OTF2 archive). Several IN are traces of torch.profiler, one a rank.",
    )
    convert.add_argument("files", nargs="+", metavar="IN", help=FILE)
    convert.add_argument("out", metavar="OUT", help="output; an existing one is replaced")
    convert.add_argument("--to", default="", help="the format: columns, chrome or otf2")
    convert.set_defaults(command=_convert)

    analyse = actions.add_parser(
        "analyse",
        help="what limits a run: wait states, imbalance, slow links and disks, efficiencies",
        description="Prints what limits the run, then the findings and where to look. Anything that costs"
        " less than 2 % of the run, or is within its scatter, is no finding. A trace of fewer than about 25 steps"
        " may be too short for findings; the report then says so.",
    )
    analyse.add_argument("files", nargs="+", metavar="FILE", help=FILE)
    analyse.add_argument("--json", action="store_true", help="print JSON in SI units")
    analyse.set_defaults(command=_analyse)

    _add_recording(actions)


def _show(options: argparse.Namespace) -> int:
    from lib_dlhpc.spec.plain import as_json
    from lib_dlhpc.timeline.formats import read
    from lib_dlhpc.timeline.overview import as_dict, as_text

    timeline = read(*options.files, tell=_print_note)
    print(as_json(as_dict(timeline)) if options.json else as_text(timeline))
    return 0


def _convert(options: argparse.Namespace) -> int:
    from lib_dlhpc.timeline.formats import read, write

    timeline = read(*options.files, tell=_print_note)
    try:
        write(timeline, options.out, options.to)
    except OSError as error:
        raise SpecError(f"{options.out}: cannot be written: {error.strerror or error}.") from None
    print(f"{options.out}: {len(timeline):,} events of {timeline.ranks:,} ranks.", file=sys.stderr)
    return 0


def _analyse(options: argparse.Namespace) -> int:
    from lib_dlhpc.spec.plain import as_json
    from lib_dlhpc.timeline.analysis import analyse, report
    from lib_dlhpc.timeline.formats import read

    analysis = analyse(read(*options.files, tell=_print_note))
    print(as_json(report.as_dict(analysis)) if options.json else report.as_text(analysis))
    return 0


def _print_note(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _add_recording(actions: Any) -> None:
    """Add run and gather."""
    run = actions.add_parser(
        "run",
        usage="dlhpc trace run [-h] [-n RANKS] [--out OUT] (PROGRAM | -m MODULE) [ARGUMENT ...]",
        help="run an mpi4py program on ranks and record its calls",
        description="The program needs no change. Arguments before it are for dlhpc, those after it for"
        " the program. Input, output and exit status are the program's.",
    )
    run.add_argument("-n", type=int, default=2, metavar="RANKS", help="default: 2")
    run.add_argument(
        "--out",
        default="trace.npz",
        metavar="OUT",
        help="default: trace.npz; other formats by the end of the name, see `dlhpc trace convert`",
    )
    rest = argparse.REMAINDER
    run.add_argument("-m", dest="module", nargs=rest, metavar="MODULE", help="as of python -m")
    run.add_argument("program", nargs=rest, metavar="PROGRAM", help="a script and its arguments")
    run.set_defaults(command=_run)

    gather = actions.add_parser(
        "gather",
        help="assemble the records that the ranks of a traced program left in a folder",
        description="For a program that a batch system starts:"
        " srun python -m lib_dlhpc.launch.traced FOLDER PROGRAM ...",
    )
    gather.add_argument("folder", metavar="FOLDER")
    gather.add_argument("out", metavar="OUT", help="output; an existing one is replaced")
    gather.set_defaults(command=_gather)


def _run(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch.trace_run import trace_run

    _check_out(Path(options.out))
    folder = owned.make_folder("dlhpc-trace-")
    try:
        words = options.program if options.module is None else ["-m", *options.module]
        run = trace_run(options.n, words, folder)
        _write(run, options.out)
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

    _write(gather(Path(options.folder)), options.out)
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


def _write(run: Any, out: str) -> None:
    from lib_dlhpc.timeline.formats import write

    try:
        write(run.timeline, out)
    except OSError as error:
        raise SpecError(f"{out}: cannot be written: {error.strerror or error}.") from None
    for sentence in run.lost:
        print(sentence, file=sys.stderr)
    events, ranks = len(run.timeline), run.timeline.ranks
    print(f"{out}: {events:,} events of {ranks:,} ranks.", file=sys.stderr)
