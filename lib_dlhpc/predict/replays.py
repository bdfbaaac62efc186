"""Replays: historical runs as experiments, with the publication beside the prediction."""

from dataclasses import dataclass
from functools import cache

from lib_dlhpc.predict.validate import UNITS, results
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment, read_experiment


@dataclass(frozen=True)
class Replay:
    """A published run: what it was, and how long it took, in s."""

    name: str
    title: str
    description: str
    experiment: Experiment
    published_time: float
    source: str


@cache
def replay(name: str) -> Replay:
    """Return the replay of that name; raises SpecError."""
    table = catalog.read("replays", name)
    row = results()[table["published"]]
    return Replay(
        name=name,
        title=table["title"],
        description=table["description"],
        experiment=read_experiment(table["experiment"]),
        published_time=float(row["value"]) * UNITS[row["unit"]],
        source=row["source"],
    )


def replays() -> list[Replay]:
    """Return all replays of the catalog, by name."""
    return [replay(name) for name in catalog.names("replays")]
