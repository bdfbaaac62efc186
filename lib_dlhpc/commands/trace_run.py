"""`dlhpc trace run` and `gather`: trace a program on ranks; assemble the records of its ranks."""

import argparse
import sys
from pathlib import Path
from typing import Any

from lib_dlhpc.lifetime import owned
from lib_dlhpc.spec.errors import SpecError


def add_run(actions: Any) -> None:
    """Add the actions to those of `dlhpc trace`."""
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

    _check(Path(options.out))
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


def _check(out: Path) -> None:
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
