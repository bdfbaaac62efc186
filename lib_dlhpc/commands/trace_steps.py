"""`dlhpc trace steps` and `calibrate`: the steps of a framework's trace, and what predictions take from them."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib_dlhpc.commands.output import add_output, print_note, print_result
from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.files import write_text

if TYPE_CHECKING:
    from lib_dlhpc.timeline.table import Timeline


def add(actions: Any, file: str) -> None:
    """Add steps and calibrate to the actions of `trace`; file: the help of a trace."""
    steps = actions.add_parser(
        "steps",
        help="compare traces side by side: how long a rank computes, communicates and waits for input in a step",
        description="Each TRACE has a column. Steps are those that the framework annotates, or otherwise the period"
        " after which kernels repeat. The terms of a step add up to it.",
    )
    steps.add_argument("traces", nargs="+", metavar="TRACE", help=file)
    add_output(steps)
    steps.set_defaults(command=_steps)

    calibrate = actions.add_parser(
        "calibrate",
        help="compare a trace with the prediction of its run, and calibrate the prediction",
        description="Prints each term of a step as traced and as predicted, before and after calibration. [calibration]"
        " is the rate at which the ranks of the trace compute the experiment's batch, which a trace does not contain."
        " Between nodes, it is also the fraction of the line rate that collectives reach. With --out, writes the"
        " experiment with that [calibration], for predictions of other numbers of devices.",
    )
    calibrate.add_argument("files", nargs="+", metavar="FILE", help=file)
    calibrate.add_argument(
        "experiment", metavar="EXPERIMENT", help="the run: a TOML file, or a run of the catalog"
    )
    calibrate.add_argument(
        "--set", action="extend", nargs="+", default=[], metavar="KEY=VALUE", help="change fields"
    )
    calibrate.add_argument("--out", metavar="OUT", help="write the calibrated experiment, as TOML")
    add_output(calibrate)
    calibrate.set_defaults(command=_calibrate)


def of_framework(timeline: "Timeline") -> tuple[dict[str, Any], list[str]]:
    """Return the steps of a framework's trace as a dictionary and as text; nothing for any other trace."""
    from lib_dlhpc.timeline.steps import step_terms
    from lib_dlhpc.timeline.steps.report import as_dict, as_text

    if not timeline.where("", "kernel", "step").any():
        return {}, []
    try:
        found = step_terms(timeline)
    except SpecError as error:
        return {}, ["", str(error)]
    return {"steps": as_dict(found)}, ["", as_text({"trace": found})]


def _steps(options: argparse.Namespace) -> int:
    from lib_dlhpc.commands.trace_reading import read_trace
    from lib_dlhpc.timeline.steps import step_terms
    from lib_dlhpc.timeline.steps.report import as_dict, as_text

    found = {}
    for name in options.traces:
        try:
            found[name] = step_terms(read_trace([name]))
        except SpecError as error:
            named = name in str(error)
            raise SpecError(str(error) if named else f"{name}: {error}") from None
    print_result(options, {name: as_dict(each) for name, each in found.items()}, as_text(found))
    return 0


def _calibrate(options: argparse.Namespace) -> int:
    from lib_dlhpc.commands.experiment import read
    from lib_dlhpc.commands.trace_reading import read_trace
    from lib_dlhpc.prediction.measured.traced import calibrate
    from lib_dlhpc.prediction.measured.traced_report import as_dict, as_text, as_toml
    from lib_dlhpc.timeline.steps import step_terms

    experiment = read(options.experiment, options.set)
    found = calibrate(experiment, step_terms(read_trace(options.files)))
    if options.out:
        out = Path(options.out)
        try:
            write_text(out, as_toml(found, options.files))
        except OSError as error:
            raise SpecError(f"--out {out}: {error.strerror or error}.") from None
    print_result(options, as_dict(found), as_text(found))
    if options.out:
        print_note(f"{options.out}: the experiment with its [calibration], for `dlhpc predict`.")
    return 0
