"""Run-only settings: prediction and simulation do not model them. Each is declared beside its field.

A field declares `run_only=...` (schema.py): its effect on the time of a step, or LEARNING if it has none. Where only
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
    """Return the run-only settings that differ from their defaults, such as "training.shift = 2", and effects."""
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
    """Return the run-only settings that change the time of a step."""
    return {name: why for name, why in run_only(experiment).items() if why != LEARNING}


def warnings(experiment: "Experiment") -> list[str]:
    """Return a sentence for each setting of `unpriced`."""
    return [
        f"prediction and simulation do not model {name}: {why}."
        for name, why in unpriced(experiment).items()
    ]


def not_applied(experiment: "Experiment") -> list[str]:
    """Return a sentence for each setting that is predicted and that a run does not carry out."""
    limit = experiment.strategy.power_limit
    return [
        f"a run does not apply strategy.power_limit = {each:g} W; set it on the devices, as by nvidia-smi -pl {each:g}."
        for each in [float(limit)] * bool(limit)
    ]


def notes(experiment: "Experiment") -> list[str]:
    """Return `warnings`, and a sentence that names the other run-only settings."""
    others = [name for name, why in run_only(experiment).items() if why == LEARNING]
    note = f"run-only settings, for {LEARNING}: {', '.join(others)}."
    return [*warnings(experiment), *not_applied(experiment), *[note] * bool(others)]


def _at(why: str | Mapping[Any, str], value: Any) -> str:
    return why if isinstance(why, str) else why.get(value, LEARNING)
