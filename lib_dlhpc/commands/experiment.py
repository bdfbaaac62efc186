"""The experiment that a command is about: a TOML file or a replay, and fields of it changed with --set."""

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.errors import SpecError, suggest
from lib_dlhpc.spec.experiment import Experiment, load


def add_experiment(command: argparse.ArgumentParser, held: str = "") -> None:
    """Let a command ask for an experiment, and for changes of it."""
    command.add_argument(
        "experiment",
        nargs="?" if held else None,
        help=f"a TOML file, or the name of a replay such as goyal-2017{held}",
    )
    command.add_argument(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="change fields: --set strategy.nodes=64 strategy.batch=16",
    )


def read(name: str, changes: Sequence[str]) -> Experiment:
    """Return the experiment of a file or replay with `changes` (KEY=VALUE) made. Raises SpecError."""
    from lib_dlhpc.predict.what_if import what_if

    if Path(name).is_file() or name not in catalog.names("replays"):
        if not Path(name).exists():
            raise SpecError(
                f"{name}: no such file, and no replay of that name; replays: {', '.join(catalog.names('replays'))}."
                f"{suggest(name, catalog.names('replays'))}"
            )
        experiment = load(name)
    else:
        from lib_dlhpc.predict.replays import replay

        experiment = replay(name).experiment
    return what_if(experiment, dict(change(text) for text in changes)) if changes else experiment


def change(text: str) -> tuple[str, Any]:
    """Return key and value of KEY=VALUE; the value as TOML has it, or else text. Raises SpecError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"--set {text}: expected KEY=VALUE, such as strategy.nodes=64.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
