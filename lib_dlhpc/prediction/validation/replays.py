"""Replays: historical runs as experiments, with the publication beside the prediction."""

from functools import cache, cached_property

from lib_dlhpc.prediction.validation.allowed_errors import allowed
from lib_dlhpc.prediction.validation.published import published, row_of, value_of
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment, read_experiment


@dataclass(frozen=True)
class Replay:
    """A published run: what it was, how long it took in s, and the known reason why a prediction misses that."""

    name: str
    title: str
    description: str
    published_time: float
    source: str
    tolerance: float  # of the published row: a prediction further off is a miss
    reason: str  # why it is missed, where that is known

    @cached_property
    def experiment(self) -> Experiment:
        """The run as an experiment."""
        return read_experiment(catalog.read("replays", self.name)["experiment"])

    def error(self, seconds: float) -> float:
        """Return the relative error of a predicted time to train."""
        return seconds / self.published_time - 1

    def miss(self, seconds: float) -> str:
        """Return in words that a predicted time to train misses the published one; "" where it does not."""
        error = self.error(seconds)
        if abs(error) <= self.tolerance:
            return ""
        words = f"The prediction is {abs(error):.0%} too {'long' if error > 0 else 'short'}"
        return f"{words}: {self.reason}." if self.reason else f"{words}."


@cache
def replay(name: str) -> Replay:
    """Return the replay of that name; raises SpecError."""
    table = catalog.read("replays", name)
    family, entry = row_of(table["published"])
    return Replay(
        name=name,
        title=table["title"],
        description=table["description"],
        published_time=value_of(entry["id"]),
        source=published(entry["id"])["source"],
        tolerance=allowed(family, entry | {key: table[key] for key in ("class",) if key in table})[
            0
        ],
        reason=entry.get("reason", ""),
    )


def replays() -> list[Replay]:
    """Return all replays of the catalog, by name."""
    return [replay(name) for name in catalog.names("replays")]
