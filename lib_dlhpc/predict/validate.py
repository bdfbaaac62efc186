"""Prediction against publication: every published row is an experiment, and its error is shown.

A file of catalog/published describes one family of measurements: [experiment] is what they share,
each of [[rows]] names the measured results (ids in results.csv) and the measured row it starts `from`:
a model must be given the rate of one device, of one node, or of fewer nodes, on that framework. A row
may serve as a start for larger ones and be scored itself from a smaller one. Jitter is the one number
estimated from published rows; they are not scored. What is not used stands under [[left_out]].

A row outside its tolerance is a miss. A miss whose reason is known says so and states the error it
has; it stays in the table, and counts in every average. Any other miss is a failure.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import mean, median
from typing import Any

from lib_dlhpc.predict.breakdown import Breakdown, predict
from lib_dlhpc.predict.definitions import DEFINITIONS
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import TIMES

UNITS = {
    **TIMES,
    "GB": 1e9,
    "GB/s": 1e9,
    "Gbit/s": 1.25e8,
    "TB": 1e12,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
    "MWh": 3.6e9,
    "%": 0.01,
}


@dataclass(frozen=True)
class Row:
    """One published result beside its prediction, both in the publication's unit."""

    id: str
    group: str  # the class of the row, such as "data parallel"
    quantity: str
    predicted: float
    published: float
    unit: str
    tolerance: float
    reason: str = ""  # why the row is missed, where that is known ...
    known_error: float = 0.0  # ... and the error that the reason explains at most
    experiment: Experiment | None = None

    @property
    def error(self) -> float:
        """Relative error, positive where the prediction is too high."""
        return (self.predicted - self.published) / self.published

    @property
    def accuracy(self) -> float:
        """1 - |predicted - published| / published."""
        return 1 - abs(self.error)

    @property
    def verdict(self) -> str:
        """ "ok" within the tolerance, "miss" within the known error of a known reason, else "FAIL"."""
        if abs(self.error) <= self.tolerance:
            return "ok"
        return "miss" if abs(self.error) <= self.known_error else "FAIL"


@cache
def results() -> dict[str, dict[str, str]]:
    """Return the published results by id, as text."""
    with open(catalog.ROOT / "published" / "results.csv", encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def validate(families: Iterable[str] = ()) -> list[Row]:
    """Return every published row with its prediction; `families` limits them. Raises SpecError."""
    chosen = tuple(families) or catalog.names("published")
    return [row for name in chosen for row in _family(name)]


def summary(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Return for each class: rows, rows that are ok, median, mean and worst accuracy.

    There is no line for all: definitions are exact and would flatter the models.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return {
        group: {
            "rows": len(members),
            "ok": sum(row.verdict == "ok" for row in members),
            "median": median(row.accuracy for row in members),
            "mean": mean(row.accuracy for row in members),
            "worst": min(row.accuracy for row in members),
        }
        for group, members in groups.items()
    }


def left_out(families: Iterable[str] = ()) -> dict[str, str]:
    """Return the published rows that are not scored, by id, with the reason."""
    chosen = tuple(families) or catalog.names("published")
    return {
        identity: entry["reason"]
        for name in chosen
        for entry in catalog.read("published", name).get("left_out", [])
        for identity in entry["ids"]
    }


def _family(name: str) -> list[Row]:
    table = catalog.read("published", name)
    return [
        _row(table, {**entry, "id": identity})
        for entry in table["rows"]
        for identity in entry.get("ids", [entry.get("id")])
    ]


def _row(table: Mapping[str, Any], entry: Mapping[str, Any]) -> Row:
    published = _published(entry["id"])
    unit = entry.get("unit", published["unit"])
    experiment = None
    if "definition" in entry:
        value = DEFINITIONS[entry["definition"]](**entry["inputs"])
    else:
        experiment = _experiment(table, entry)
        value = _quantity(predict(experiment), published["quantity"])
    return Row(
        id=entry["id"],
        group=entry.get("class", table.get("class", "")),
        quantity=published["quantity"],
        predicted=float(value) / UNITS.get(unit, 1.0),
        published=float(published["value"]),
        unit=unit,
        tolerance=entry.get("tolerance", table.get("tolerance", 0.15)),
        reason=entry.get("reason", ""),
        known_error=entry.get("known_error", 0.0),
        experiment=experiment,
    )


def _experiment(table: Mapping[str, Any], entry: Mapping[str, Any]) -> Experiment:
    """Return the experiment of one row: what the family shares, the row's counts, the measured rate."""
    published = _published(entry["id"])
    changes: dict[str, Any] = {}
    shared = read_experiment(table["experiment"])
    devices = int(published["count"])
    per_node = min(devices, int(shared.machine.devices_per_node))
    changes["strategy.nodes"], changes["strategy.devices_per_node"] = devices // per_node, per_node
    changes["strategy.batch"] = int(published["batch_global"]) // devices
    if "from" in entry:
        measured = _published(entry["from"])
        changes["calibration.rate"] = float(measured["value"])
        changes["calibration.devices"] = int(measured["count"])
        changes["calibration.batch"] = int(measured["batch_global"]) // int(measured["count"])
    return shared.set({**changes, **entry.get("set", {})})


def _quantity(prediction: Breakdown, quantity: str) -> Any:
    """Return the predicted value of a published quantity, in SI units."""
    experiment, measured = prediction.experiment, prediction.experiment.calibration
    each = prediction.throughput / experiment.devices
    if quantity == "throughput":
        return prediction.throughput
    if quantity.startswith("scaling_efficiency"):
        return each / (measured.rate / measured.devices)
    if quantity.startswith("iter_time_increase"):
        return measured.rate / measured.devices / each - 1
    if quantity.startswith("time_"):
        return prediction.time_to_train
    if quantity == "out_of_memory":
        return not prediction.fits
    raise SpecError(f"published quantity {quantity!r} is not one that predict gives.")


def _published(identity: str) -> dict[str, str]:
    if identity not in results():
        raise SpecError(f"{identity!r} is not in catalog/published/results.csv.")
    return results()[identity]
