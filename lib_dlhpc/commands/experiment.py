"""The experiment of a command: a TOML file or a run of the catalog, with fields changed by --set."""

import argparse
import re
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib_dlhpc.commands.output import STDIN, print_note, standard_input
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment, dump, load, loads

SEVERAL = re.compile(r",|^\d+-\d+")  # A,B or 1-64, as of `dlhpc sweep --over`


def add_experiment(command: argparse.ArgumentParser, held: str = "") -> None:
    """Add the arguments for an experiment and its changes."""
    command.add_argument(
        "experiment",
        nargs="?" if held else None,
        help="a TOML file, - for standard input, the name of a run of the catalog such as goyal-2017, or a model on a"
        f" machine such as resnet50@summit{held}",
    )
    command.add_argument(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="change fields: --set strategy.nodes=64 strategy.batch=16",
    )


def add_run(command: argparse.ArgumentParser) -> None:
    """Add the options of a run: its ranks and folder, where its state is from, and when it is saved."""
    command.add_argument(
        "-n",
        "--ranks",
        type=int,
        help="MPI ranks (default: the run's devices and servers; with --resume as many as before)",
    )
    command.add_argument("--out", metavar="DIR", help="the run folder (default: a new one)")
    command.add_argument("--resume", metavar="DIR", help="resume from the snapshot of a run folder")
    command.add_argument(
        "--snapshot-every",
        metavar="N",
        help="save versions of the state every N steps, or every 'epoch'; see dlhpc snapshots",
    )
    command.add_argument(
        "--from",
        dest="origin",
        metavar="RUN@VERSION",
        help="start from a version of another run (without @VERSION: its newest)",
    )


def save(experiment: Experiment, name: str | None) -> None:
    """Write the experiment to the file of --save, if there is one. Raises SpecError."""
    if name:
        try:
            dump(experiment, name)
        except OSError as error:
            raise SpecError(f"--save {name}: {error.strerror}.") from None


def folder_of(options: argparse.Namespace) -> str | None:
    """Return the folder of a new or resumed run, None for a new one. Raises SpecError if both are named."""
    if options.out and options.resume:
        raise SpecError("--out and --resume: name one of them; a resumed run stays in its folder.")
    folder: str | None = options.resume or options.out
    return folder


def read(name: str, changes: Sequence[str]) -> Experiment:
    """Return the experiment of a file, standard input (-) or the catalog, with `changes` (KEY=VALUE) made.

    What the file or the changes make void is printed as warnings. Raises SpecError.
    """
    if not name.strip():
        raise SpecError("expected a file or the name of a run, found an empty name.")
    experiment = loads(standard_input()) if name == STDIN else load(name)
    if not changes:
        return warned(experiment)
    from lib_dlhpc.prediction.what_if import what_if

    try:
        return warned(what_if(experiment, dict(map(change, changes))))
    except SpecError as error:
        raise SpecError(f"{error}{_several(name, changes, str(error))}") from None


def _several(name: str, changes: Sequence[str], message: str) -> str:
    """Return how to predict several values, if an error is about a field to which several were given; else ""."""
    for text in changes:
        key, value = change(text)
        if message.startswith(f"{key} = ") and (
            isinstance(value, list) or SEVERAL.search(str(value))
        ):
            return f" For each of several values: dlhpc sweep {shlex.quote(name)} --over {shlex.quote(text)}"
    return ""


def warned(experiment: Experiment) -> Experiment:
    """Return the experiment, its warnings printed to standard error."""
    for warning in experiment.warnings:
        print_note(f"dlhpc: warning: {warning}")
    return experiment


def ranks_of(experiment: Experiment, asked: int | None, resumed: str | None = None) -> int:
    """Return the number of ranks of a run that can be trained on them. Raises SpecError.

    Without `asked` a run has one rank for each device and server; a run resumed in the folder `resumed` has its
    previous number of ranks, unless the number of devices changed.
    """
    from lib_dlhpc.launch.folder import ranks_held
    from lib_dlhpc.training.check import check, check_ranks

    check(experiment)
    ranks = int(experiment.devices + experiment.servers) if asked is None else asked
    held = Path(resumed or "") / "experiment.toml"
    if asked is None and resumed and held.is_file():
        before = load(held)
        if before.devices + before.servers == ranks:
            ranks = ranks_held(Path(resumed)) or ranks
    if ranks < 1:
        raise SpecError(f"--ranks {ranks}: expected a whole number, at least 1.")
    check_ranks(experiment, ranks)
    return ranks


def change(text: str, option: str = "--set", example: str = "strategy.nodes=64") -> tuple[str, Any]:
    """Return key and value of KEY=VALUE, of a command's option; the value parsed as TOML, or else text.

    Raises SpecError.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"{option} {text}: expected KEY=VALUE, such as {example}.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
