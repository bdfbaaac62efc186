"""`dlhpc trace`: record, show, analyze and convert traces of all ranks.

An action is a parser and a function (options -> exit status), added in `add` below.
"""

import argparse
import sys

from lib_dlhpc.commands.trace_run import add_run
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

    add_run(actions)


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
