"""Runs to start from: published ones (catalog/replays), others (catalog/presets), or a file that somebody loads."""

from dataclasses import dataclass
from functools import cache

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.prediction.validation.replays import Replay, replay
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment, read_experiment

FIRST = "goyal-2017"
CHIPS = {  # what stands on the chips
    FIRST: "Goyal 2017",
    "you-2018": "You 2018",
    "narayanan-2021": "GPT-3 on 1,024 A100",
    "cosmoflow-2018": "CosmoFlow",
    "llama3-405b": "Llama 3 405B",
    "laptop": "Runs on this laptop",
}


@dataclass(frozen=True)
class Preset:
    """An experiment with its story; replay: its published time, if it has one. name: "" for a loaded file."""

    name: str
    title: str
    description: str
    experiment: Experiment
    source: str = ""
    replay: Replay | None = None


def names() -> list[str]:
    """Return the names of all presets, those of the chips first."""
    return [*CHIPS, *sorted({*catalog.names("replays"), *catalog.names("presets")} - set(CHIPS))]


@cache
def preset(name: str) -> Preset:
    """Return the preset of that name; raises SpecError."""
    if name in catalog.names("replays"):
        run = replay(name)
        return Preset(name, run.title, run.description, run.experiment, run.source, run)
    if name not in catalog.names("presets"):
        raise SpecError(listed(f"preset = {str(name)[:60]!r}:", name, names()))
    table = catalog.read("presets", name)
    return Preset(name, table["title"], table["description"], read_experiment(table["experiment"]))


def of_file(experiment: Experiment) -> Preset:
    """Return a preset of an experiment that is in no catalog."""
    return Preset("", "Your own experiment", "Loaded from a file or a program.", experiment)
