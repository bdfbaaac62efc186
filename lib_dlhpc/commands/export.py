"""`dlhpc export crate RUN`: a run folder described for others, as an RO-Crate."""

import argparse
from pathlib import Path

from lib_dlhpc.commands.output import add_output, print_result


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `export` and its actions to the command line."""
    parser = subparsers.add_parser(
        "export", help="describe a run folder for publication, as an RO-Crate"
    )
    actions = parser.add_subparsers(required=True, metavar="FORMAT")
    one = actions.add_parser(
        "crate",
        help="write ro-crate-metadata.json into a run folder",
        description="Describes an ended run in the format of RO-Crate 1.2: its files with their SHA-256, the"
        " experiment, the machine, the software. Repositories and workflow tools read it.",
    )
    one.add_argument("run", metavar="RUN", help="a run folder")
    one.add_argument(
        "--license",
        default="",
        metavar="URL",
        help="license of the files (default: none is stated)",
    )
    one.add_argument("--name", default="", help="name of the crate (default: model and folder)")
    add_output(one)
    one.set_defaults(command=_crate)


def _crate(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch.crate import write_crate

    path = write_crate(Path(options.run), options.license, options.name)
    print_result(options, {"written": str(path)}, f"wrote {path}")
    return 0
