"""Settings that only a real run reads: prediction and simulation do not know them. Each is declared beside its field.

A field says `run_only=...` (schema.py): what it changes in a step's time, or LEARNING where it changes none. Where only
some values of a choice take time, it is a mapping of those.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lib_dlhpc.spec.schema import LEARNING

if TYPE_CHECKING:
    from lib_dlhpc.spec.experiment import Experiment

TABLES = ("strategy", "training", "storage")


def run_only(experiment: "Experiment") -> dict[str, str]:
    """Return the run-only settings off their defaults, such as "training.sparsity = 0.99", and what each changes."""
    found = {}
    for table in TABLES:
        noun = getattr(experiment, table)
        for item in dataclasses.fields(noun):
            why, value = item.metadata.get("run_only"), getattr(noun, item.name)
            if why is not None and value != item.default:
                shown = f"{value:g}" if isinstance(value, float) else repr(value)
                found[f"{table}.{item.name} = {shown}"] = _at(why, value)
    return found


def unpriced(experiment: "Experiment") -> dict[str, str]:
    """Return those that change the time of a step, but no prediction or simulation of it."""
    return {name: why for name, why in run_only(experiment).items() if why != LEARNING}


def warnings(experiment: "Experiment") -> list[str]:
    """Return a sentence for each setting of `unpriced`."""
    return [
        f"prediction and simulation do not know {name}: {why}."
        for name, why in unpriced(experiment).items()
    ]


def notes(experiment: "Experiment") -> list[str]:
    """Return `warnings`, and a sentence that names the other run-only settings."""
    others = [name for name, why in run_only(experiment).items() if why == LEARNING]
    said = f"run-only settings, for {LEARNING}: {', '.join(others)}."
    return [*warnings(experiment), *[said] * bool(others)]


def _at(why: str | Mapping[Any, str], value: Any) -> str:
    return why if isinstance(why, str) else why.get(value, LEARNING)
