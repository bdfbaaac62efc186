"""`dlhpc predict FILE`: predict a run in closed form."""

import argparse
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from lib_dlhpc.commands.experiment import add_experiment, save
from lib_dlhpc.commands.on_machine import add_machine, known_of, read_on_machine
from lib_dlhpc.commands.output import add_output, print_result
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity

if TYPE_CHECKING:
    from lib_dlhpc.prediction import Breakdown

SEARCHED, SECONDS = 150, 30.0  # configurations tried if a run does not fit, and s


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `predict` to the command line."""
    one = subparsers.add_parser("predict", help="predict a run in closed form")
    add_experiment(one)
    add_machine(one)
    one.add_argument(
        "--explain",
        action="store_true",
        help="show the formula, inputs and sources of every number",
    )
    one.add_argument(
        "--against",
        metavar="RUN",
        help="compare with another run: what differs, and which term of the step moved; --set changes only the first",
    )
    add_output(one)
    one.add_argument(
        "--check",
        action="store_true",
        help="exit with status 1 if the run does not fit in memory; an input stall does not count",
    )
    one.add_argument(
        "--save", metavar="FILE", help="write the experiment, changes included, as TOML"
    )
    one.set_defaults(command=_predict)


def _predict(options: argparse.Namespace) -> int:
    from lib_dlhpc.prediction import predict
    from lib_dlhpc.prediction.reports.report import as_dict, as_text

    experiment, notes = read_on_machine(options)
    prediction = predict(experiment)
    other = _other(options)
    known = known_of(experiment, [*_miss(options, float(prediction.time_to_train)), *notes])
    save(experiment, options.save)
    if options.json:
        table = as_dict(prediction)
        table["notes"] = [*table["notes"], *known.notes]
        if known.bands:
            table |= {"bands": known.bands, "calibration": known.calibration}
        if other:
            table["against"] = _against_dict(options.against, prediction, other)
        print_result(options, table)
    else:
        lines = [as_text(prediction, options.explain, known.bands), *known.lines]
        lines += ["", f"  {_against(options.against, prediction, other)}"] if other else []
        print("\n".join(lines), flush=True)
        if not (prediction.fits or options.check or options.quiet):
            _search(experiment)
    return int(options.check and not prediction.fits)


def _other(options: argparse.Namespace) -> "Breakdown | None":
    """Return the prediction of the run of --against, on the same machine if one is named."""
    if options.against is None:
        return None
    from lib_dlhpc.prediction import predict

    there = argparse.Namespace(**vars(options) | {"experiment": options.against, "set": []})
    return predict(read_on_machine(there)[0])


def _against(name: str, prediction: "Breakdown", other: "Breakdown") -> str:
    """Return what differs from the other run and what that does, in words."""
    from lib_dlhpc.prediction.changes.difference import changed_words, difference_words

    changed = changed_words(prediction.experiment, other.experiment)
    words = difference_words(prediction, other, changed, name)
    return words or f"Against {name}: no field differs."


def _against_dict(name: str, prediction: "Breakdown", other: "Breakdown") -> dict[str, Any]:
    from lib_dlhpc.prediction.changes.difference import changed_fields
    from lib_dlhpc.prediction.reports.report import as_dict

    pairs = changed_fields(prediction.experiment, other.experiment)
    changed = {key: {"from": old, "to": new} for key, (old, new) in pairs.items()}
    words = _against(name, prediction, other)
    return {"run": name, "words": words, "changed": changed, "prediction": as_dict(other)}


def _miss(options: argparse.Namespace, seconds: float) -> list[str]:
    """Return a note if the prediction of an unchanged historical run misses its published time."""
    from lib_dlhpc.prediction.validation.replays import replay
    from lib_dlhpc.spec import catalog

    changed = options.set or options.machine or Path(options.experiment).is_file()
    if changed or options.experiment not in catalog.names("replays"):
        return []
    run = replay(options.experiment)
    published = f"Published: {format_quantity(run.published_time, 's')}."
    return [f"{published} {run.miss(seconds)}"] if run.miss(seconds) else []


def _search(experiment: Experiment) -> None:
    """Print configurations that fit; Ctrl-C ends the search and prints those found so far."""
    from lib_dlhpc.prediction.limits.fit import Search
    from lib_dlhpc.prediction.reports.report import configurations_text

    search, end = Search(experiment), monotonic() + SECONDS
    try:
        search.run(SEARCHED, SECONDS)
        if not search.found:  # three changes at once come last, and large networks need them
            search.run(search.tried + search.left, end - monotonic())
    except KeyboardInterrupt:
        print(configurations_text(search), flush=True)
        raise KeyboardInterrupt("Search cancelled; the prediction is complete.") from None
    print(configurations_text(search))
