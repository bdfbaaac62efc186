"""`dlhpc trace export` and `simulate`: execution traces of MLCommons Chakra, out and in."""

import argparse
import re
from typing import Any

from lib_dlhpc.commands.experiment import add_experiment, read
from lib_dlhpc.commands.output import add_output, print_note, print_result
from lib_dlhpc.errors import SpecError


def add(actions: Any) -> None:
    """Add export and simulate to the actions of `trace`."""
    export = actions.add_parser(
        "export",
        help="write a step of a run as Chakra execution traces, one file per rank",
        description="Writes step.RANK.et for each rank, and comm_group.json, the ranks of each process group, into"
        " the folder OUT, as ASTRA-sim and other tools of MLCommons Chakra read them: computations with their"
        " predicted times, collectives, messages between stages, and their dependencies.",
    )
    add_experiment(export)
    export.add_argument("out", metavar="OUT", help="folder; an earlier trace in it is replaced")
    export.add_argument("--ranks", help="write only these ranks, such as 0-3,8 (default: all)")
    add_output(export)
    export.set_defaults(command=_export)

    simulate = actions.add_parser(
        "simulate",
        help="simulate Chakra execution traces on a machine of the catalog",
        description="Reads NAME.RANK.et or .et.gz for each rank. Computations take their recorded time, or else a"
        " roofline estimate. Collectives and messages take as long as predicted for the machine.",
    )
    simulate.add_argument("folder", metavar="FOLDER", help="a folder with one file for each rank")
    simulate.add_argument(
        "--machine",
        required=True,
        help="a machine of the catalog, or a file written by `dlhpc calibrate --out FILE`",
    )
    simulate.add_argument(
        "--devices-per-node",
        type=int,
        default=0,
        metavar="N",
        help="ranks per node (default: one per device)",
    )
    simulate.add_argument(
        "--out", metavar="OUT", help="write the timeline, in a format of `dlhpc trace convert`"
    )
    add_output(simulate)
    simulate.set_defaults(command=_simulate)


def _export(options: argparse.Namespace) -> int:
    from lib_dlhpc.simulation.chakra import export

    experiment = read(options.experiment, options.set)
    ranks = None if options.ranks is None else _ranks(options.ranks)
    try:
        files = export(experiment, options.out, ranks)
    except OSError as error:
        raise SpecError(f"{options.out}: cannot be written: {error.strerror or error}.") from None
    print_result(options, {"out": options.out, "files": files, "ranks": int(experiment.devices)})
    print_note(f"{options.out}: traces of {files:,} of {int(experiment.devices):,} ranks.")
    return 0


def _simulate(options: argparse.Namespace) -> int:
    from lib_dlhpc.simulation.chakra import report, simulate_trace
    from lib_dlhpc.spec import catalog
    from lib_dlhpc.spec.machine import load_machine
    from lib_dlhpc.spec.measured_machine import load_measured
    from lib_dlhpc.timeline.chakra import read_trace
    from lib_dlhpc.timeline.formats import write

    name = options.machine
    measured = name not in catalog.names("machines") and name.endswith(".toml")
    machine = load_measured(name) if measured else load_machine(name)
    timeline = simulate_trace(read_trace(options.folder), machine, options.devices_per_node)
    if options.out is not None:
        try:
            write(timeline, options.out)
        except OSError as error:
            raise SpecError(
                f"{options.out}: cannot be written: {error.strerror or error}."
            ) from None
    nodes = -(-timeline.ranks // (options.devices_per_node or machine.devices_per_node))
    about = (timeline, machine.name or name, nodes)
    print_result(options, report.as_dict(*about), report.as_text(*about))
    return 0


def _ranks(text: str) -> list[int]:
    """Return the ranks of a list such as 0-3,8. Raises SpecError."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise SpecError(f"--ranks {text}: expected ranks such as 0-3,8.")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found
