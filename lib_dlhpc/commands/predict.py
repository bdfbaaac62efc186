"""`dlhpc predict FILE`: what a run takes, in closed form."""

import argparse

from lib_dlhpc.commands.experiment import add_experiment
from lib_dlhpc.commands.on_machine import add_machine, known_of, read_on_machine
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import dump
from lib_dlhpc.spec.plain import as_json


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `predict` to the command line."""
    one = subparsers.add_parser("predict", help="predict a run in closed form")
    add_experiment(one)
    add_machine(one)
    one.add_argument(
        "--explain", action="store_true", help="show formula, inputs and sources of every number"
    )
    one.add_argument("--json", action="store_true", help="print JSON in SI units")
    one.add_argument(
        "--save", metavar="FILE", help="write the experiment, changes included, as TOML"
    )
    one.set_defaults(command=_predict)


def _predict(options: argparse.Namespace) -> int:
    from lib_dlhpc.predict import predict
    from lib_dlhpc.predict.report import as_dict, as_text

    experiment, notes = read_on_machine(options)
    prediction = predict(experiment)
    known = known_of(experiment, notes)
    if options.save:
        try:
            dump(experiment, options.save)
        except OSError as error:
            raise SpecError(f"--save {options.save}: {error.strerror}.") from None
    if options.json:
        table = as_dict(prediction)
        table["notes"] = [*table["notes"], *known.notes]
        if known.bands:
            table |= {"bands": known.bands, "calibration": known.calibration}
        print(as_json(table))
    else:
        print("\n".join([as_text(prediction, options.explain, known.bands), *known.lines]))
    return 0
