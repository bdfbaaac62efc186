"""`dlhpc plan FILE`: the best layout of a run on its devices."""

import argparse
from typing import TYPE_CHECKING, Any

from lib_dlhpc.commands.experiment import add_experiment, change, save
from lib_dlhpc.commands.on_machine import add_machine, read_on_machine
from lib_dlhpc.commands.output import add_output, failed, new_file, print_note, print_result
from lib_dlhpc.commands.scale_out import add_scale_out, place_of
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.units import format_quantity

if TYPE_CHECKING:
    from lib_dlhpc.planner import Plan
    from lib_dlhpc.planner.failures import WithFailures

REASONS = 6  # lines
NOTED = 0.01  # of the time to train: failures that cost more are noted


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `plan` to the command line."""
    one = subparsers.add_parser("plan", help="find the best layout of a run on its devices")
    add_experiment(one)
    add_machine(one, banded=False)
    one.add_argument(
        "--objective",
        metavar="NAMES",
        help="time, energy, cost, or several for a Pareto front: time,energy (default: those in [plan], or time)",
    )
    one.add_argument(
        "--limit",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME=MOST",
        help="upper limit of an objective or of memory, in s, J, device-hours or B:"
        " --limit cost=1000 energy=5MWh memory=40GB",
    )
    one.add_argument(
        "--choose",
        action="extend",
        nargs="+",
        default=[],
        metavar="FIELD=VALUES",
        help="values of a field of the strategy, or bounds on them, or settings that change accuracy:"
        " --choose tensor=[4,8] pipeline='{most = 4}' sparsity=[0,0.99]",
    )
    one.add_argument(
        "--most",
        type=int,
        metavar="N",
        help="maximum number of predictions (default: that in [plan], or 2000)",
    )
    one.add_argument("--save", metavar="FILE", help="write the best experiment as TOML")
    add_scale_out(one)
    add_output(one)
    one.set_defaults(command=_plan)


def _plan(options: argparse.Namespace) -> int:
    from lib_dlhpc.planner import plan
    from lib_dlhpc.scale_out import LostError, Progress

    if options.save:
        new_file("--save", options.save)
    wanted = options.objective and options.objective.split(",")
    limits = dict(change(each, "--limit", "memory=40GB") for each in options.limit)
    axes = dict(map(_axis, options.choose))
    where = place_of(options)
    known = "legal layouts ruled out by memory or predicted"
    tried = Progress(lambda done, of: print_note(f"dlhpc: {done:,} of {of:,} {known}"))
    experiment, notes = read_on_machine(options)
    for note in notes:
        print_note(f"dlhpc: note: {note}")
    try:
        found = plan(experiment, wanted, limits, axes, options.most, progress=tried, where=where)
    except LostError as error:
        return failed(error)
    save(found.best.experiment, options.save)
    with_failures, missing = _with_failures(found)
    table = [one._asdict() for one in with_failures]
    lines = [*(f"    {one.words}" for one in with_failures), *(f"    {each}" for each in missing)]
    heading = ["", "  with failures:"] if lines else []
    print_result(
        options, _as_dict(found) | {"with_failures": table}, *_lines(found), *heading, *lines
    )
    return 0


def _axis(text: str) -> tuple[str, Any]:
    """Return a field and its values; "tensor=4,8" is read like "tensor=[4,8]". Raises SpecError."""
    key, value = change(text, "--choose", "tensor=[1,2]")
    if isinstance(value, str) and "," in value and not value.startswith(("[", "{")):
        value = [change(f"{key}={each}", "--choose")[1] for each in value.split(",")]
    return key, value


def _with_failures(found: "Plan") -> "tuple[tuple[WithFailures, ...], list[str]]":
    """Return the chosen layouts with failures, and what is missing to simulate them, or to survive failures."""
    from lib_dlhpc.planner.failures import with_failures
    from lib_dlhpc.prediction.failures.resilience import in_words

    best = found.best.prediction
    expected = float(best.resilience.expected_time)
    if not best.experiment.run.checkpoint_interval:
        fails = format_quantity(float(best.resilience.mtbf), "s")
        words = (
            f"{in_words(expected)} expected: a node fails every {fails}, and nothing is saved; set"
        )
        lost = expected > (1 + NOTED) * float(best.time_to_train)
        return (), [f"{words} run.checkpoint_interval and storage.tier"] * lost
    try:
        return with_failures(found), []
    except (ModuleNotFoundError, SpecError) as error:
        return (), [f"not simulated: {error}"]


def _as_dict(found: "Plan") -> dict[str, Any]:
    from lib_dlhpc.prediction.changes.gains import without_gain
    from lib_dlhpc.prediction.validation.trust import trust_dict

    columns = found.to_columns()
    return {
        "objectives": list(found.objectives),
        "accuracy": found.accuracy,
        "certificate": found.certificate,
        "gap": found.gap,
        "trust": trust_dict(found.best.experiment),
        "notes": without_gain(found.best.prediction),
        "legal": found.legal,
        "predicted": found.predicted,
        "pruned": found.pruned,
        "left_out": dict(found.left_out),
        "layouts": [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ],
    }


def _lines(found: "Plan") -> list[str]:
    from lib_dlhpc.prediction.changes.gains import without_gain
    from lib_dlhpc.prediction.reports.report import tokens_words

    title, facts, header, rows, _ = found.summary()
    table = [tuple(header), *rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(header))]
    title += tokens_words(found.best.experiment)
    lines = [title, *(f"  {name}: {text}" for name, text in facts.items())]
    lines += [*(f"  note: {note}" for note in without_gain(found.best.prediction)), ""]
    for first, *rest in table:
        cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        lines.append(f"  {first.ljust(widths[0])}  {'  '.join(cells)}")
    if len(found.objectives) > 1 and found.along_the_front:
        lines += ["", "  along the front:", *(f"    {each}" for each in found.along_the_front)]
    shown = found.reasons[: len(found.refused) + REASONS]
    lines += ["", "  left out:", *(f"    {each}" for each in shown)]
    return lines
