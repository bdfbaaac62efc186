"""Predictions against publications: every published row is an experiment, and its error is shown.

A family (a file of catalog/published) describes one set of measurements: [experiment] is what they share,
each of [[rows]] names the measured results (ids in results.csv) and the measured row it starts `from`:
a model must be given the rate of one device, of one node, or of fewer nodes, on that framework. A row
may serve as a start for larger ones and be scored itself from a smaller one. Jitter is the one number
estimated from published rows; they are not scored. What is not used stands under [[left_out]].

`scale_from` names a measured row of another network or split, under [[inputs]]: by what factor compute takes
longer than the roofline on that machine; the `dispatch` of a host is divided by it, since a scale multiplies
all compute. `link_from` likewise names a row that says what share of the line rate between nodes exchanges
reach. All three fill [calibration], as a user would: the experiment of a row, written to TOML, predicts the
row. A row `relative_to` a change of its experiment is a ratio of two predictions.

A row that changes its [machine] says by which source. What a row may be off by is fixed before it is
predicted: by its class (ALLOWED), for arithmetic by the digits that were printed, or by `tolerance` with the
source of that. A row beyond it is a miss. A miss whose reason is known says so and states the error it
has; it stays in the table, and counts in every average. Any other miss is a failure.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from lib_dlhpc.costs.segments import segments
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.measured.calibrated import LEAST_SHARE, meet
from lib_dlhpc.prediction.step import breakdown, predict
from lib_dlhpc.prediction.validation.allowed_errors import allowed
from lib_dlhpc.prediction.validation.definitions import DEFINITIONS
from lib_dlhpc.prediction.validation.published import (
    UNITS,
    entries,
    families,
    family,
    published,
    results,
    standings,
    value_of,
)
from lib_dlhpc.results import Columns, Result, Summary, percent
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment, read_experiment

if TYPE_CHECKING:
    import altair as alt

__all__ = ["Row", "Validation", "results", "standings", "summary", "validate"]

# Classes of rows in which a network is split, beside data parallelism, and that are not mere arithmetic.
SPLIT_CLASSES = (
    *("tensor", "pipeline", "recompute", "3-D", "FSDP", "NeMo", "NeMo experts", "ZeRO-3"),
    *("torchtitan", "activations"),
)

BY_QUANTITY = {"allocated_memory": "allocated memory"}  # classes of rows beside those of a family


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
    tolerance_from: str = ""

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


class Validation(Result, list[Row]):
    """Published rows with their predictions."""

    def summary(self) -> Summary:
        """Return the accuracy of each class, in words."""
        classes = summary(self)
        rows = [
            (
                name,
                f"{found['rows']:,}",
                f"{found['ok']:,}",
                percent(found["median"]),
                percent(found["worst"]),
            )
            for name, found in classes.items()
        ]
        right = sum(row.verdict == "ok" for row in self)
        facts = {"within tolerance": f"{right:,}"}
        if self:
            facts["median accuracy"] = percent(median(row.accuracy for row in self))
        header = ("class", "rows", "within tolerance", "median accuracy", "worst accuracy")
        return Summary(f"{len(self):,} published rows", facts, header, rows)

    def to_columns(self) -> Columns:
        """Return a row for each published number: predicted and published are in its `unit`."""
        names = (
            "id",
            "group",
            "quantity",
            "unit",
            "predicted",
            "published",
            "error",
            "tolerance",
            "verdict",
        )
        return {name: [getattr(row, name) for row in self] for name in names}

    def plot(self) -> "alt.Chart":
        """Return the relative error of each row, by class."""
        from lib_dlhpc.results.charts import points

        return points(self.to_columns(), "error", "group", "verdict", self.summary().title)


def validate(names: Iterable[str] = (), only: Collection[str] = ()) -> Validation:
    """Return every published row with its prediction; families by name, and the ids of `only`, limit them.

    Raises SpecError.
    """
    return Validation(
        row_of(table, entry)
        for table in families(names)
        for entry in entries(table, "rows")
        if not only or entry["id"] in only
    )


def summary(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Return for each class: rows, rows that are ok, median, mean and worst accuracy.

    Classes in which networks are split have a line together. There is none for all: definitions are exact
    and would flatter the models.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    split = [row for name in SPLIT_CLASSES for row in groups.get(name, [])]
    if split:
        groups["all splits"] = split
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


def row_of(table: Mapping[str, Any], entry: Mapping[str, Any]) -> Row:
    measured = published(entry["id"])
    unit = entry.get("unit", measured["unit"])
    group = entry.get("class", BY_QUANTITY.get(measured["quantity"], table.get("class", "")))
    tolerance, source = allowed(table, entry)
    experiment = None
    if "definition" in entry:
        value = DEFINITIONS[entry["definition"]](**entry["inputs"])
    else:
        experiment = experiment_of(table, entry)
        value = quantity_of(experiment, measured["quantity"])
        if "relative_to" in entry:
            value /= predict(experiment.set(entry["relative_to"])).throughput
    return Row(
        id=entry["id"],
        group=group,
        quantity=measured["quantity"],
        predicted=float(value) / UNITS.get(unit, 1.0),
        published=float(measured["value"]),
        unit=unit,
        tolerance=tolerance,
        reason=entry.get("reason", ""),
        known_error=entry.get("known_error", 0.0),
        experiment=experiment,
        tolerance_from=source,
    )


def experiment_of(table: Mapping[str, Any], entry: Mapping[str, Any]) -> Experiment:
    """Return the experiment of one row: what the family shares, the row's counts, what was measured."""
    _check_machine(table, entry)
    changes, name = {**_counts(table, entry), **entry.get("set", {})}, table["name"]
    experiment = _shared(table, entry).set(changes)
    if "from" in entry:
        experiment = experiment.set(_measured(table, entry["from"], experiment))
    if "scale_from" in entry:
        scale = _scale_from(name, entry["scale_from"])
        # A scale multiplies all compute, but a host issues kernels no slower for a slower device.
        host = {"machine.device.dispatch": experiment.machine.device.dispatch / scale}
        experiment = experiment.set({"calibration.compute_scale": scale, **host})
    if "link_from" in entry:
        share = _link_from(name, entry["link_from"])
        experiment = experiment.set({"calibration.link_efficiency": share})
    return experiment


def _check_machine(table: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
    """Raise SpecError where a machine is not that of the catalog and no source says so."""
    shared = table.get("experiment", {}).get("machine", {})
    own = [key for key in entry.get("set", {}) if key.startswith("machine.")]
    for changed, source in (
        ([f"machine.{key}" for key in shared if key != "name"], table.get("source")),
        (own, entry.get("source")),
    ):
        if changed and not source:
            raise SpecError(f"{entry['id']}: {', '.join(changed)} without a `source` that says so.")


def _shared(table: Mapping[str, Any], entry: Mapping[str, Any]) -> Experiment:
    if "replay" in entry:
        return read_experiment(catalog.read("replays", entry["replay"])["experiment"])
    return read_experiment(table["experiment"])


def _counts(table: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return nodes, batch and epochs of a row as its publication has them."""
    if "replay" in entry:
        return {}
    row, shared, given = published(entry["id"]), _shared(table, entry), entry.get("set", {})
    devices = _devices(table, row)
    per_node = min(
        devices, int(given.get("machine.devices_per_node", shared.machine.devices_per_node))
    )
    counts: dict[str, Any] = {
        "strategy.nodes": devices // per_node,
        "strategy.devices_per_node": per_node,
    }
    if "strategy.batch" not in given:
        batch = int(row["batch_global"]) * _replica(shared, given) // devices
        counts["strategy.batch"] = batch
    epochs = re.match(r"time_(\d+)_epochs", row["quantity"])
    if epochs:
        counts["run.epochs"] = float(epochs[1])
    return counts


def _devices(table: Mapping[str, Any], row: Mapping[str, str]) -> int:
    """Return the devices of a published row, of which it may count the parts."""
    return int(row["count"]) // int(table.get("parts_of_a_device", 1))


def _replica(shared: Experiment, given: Mapping[str, Any]) -> int:
    """Return how many devices hold one copy of the network."""
    found = 1
    for name in ("tensor", "pipeline", "spatial", "context"):
        found *= int(given.get(f"strategy.{name}", getattr(shared.strategy, name)))
    return found


def _measured(table: Mapping[str, Any], identity: str, experiment: Experiment) -> dict[str, Any]:
    """Return [calibration] from a measured row: its rate, on as many devices, with their batch."""
    row, value = published(identity), value_of(identity)
    devices = _devices(table, row)
    epochs = re.match(r"time_(\d+)_epochs", row["quantity"])
    if epochs:
        value = int(epochs[1]) * int(experiment.dataset.samples) / value
    elif row["quantity"] == "sustained_flops":
        value /= experiment.model.train_flop
    elif row["quantity"] != "throughput":
        raise SpecError(f"{identity}: {row['quantity']} is not a rate that rows can start from.")
    return {
        "calibration.rate": value,
        "calibration.devices": devices,
        "calibration.batch": int(row["batch_global"]) // devices,
    }


@cache
def _scale_from(name: str, identity: str) -> float:
    """Return the compute scale at which one measured row of a family is met."""
    return _met(name, identity, "calibration.compute_scale", 1e-3, 1e3)


@cache
def _link_from(name: str, identity: str) -> float:
    """Return the share of the line rate between nodes at which one measured row of a family is met."""
    return _met(name, identity, "calibration.link_efficiency", LEAST_SHARE, 1.0)


def _met(name: str, identity: str, field: str, low: float, high: float) -> float:
    """Return the value of a field of [calibration] at which a measured row under [[inputs]] is met."""
    table = family(name)
    entry = next(entry for entry in entries(table, "inputs") if entry["id"] == identity)
    experiment, quantity = experiment_of(table, entry), published(identity)["quantity"]
    return meet(
        value_of(identity),
        lambda value: quantity_of(experiment.set({field: value}), quantity),
        low,
        high,
    )


def quantity_of(experiment: Experiment, quantity: str) -> Any:
    """Return the predicted value of a published quantity, in SI units."""
    prediction = predict(experiment)
    each = prediction.throughput / experiment.devices
    if quantity == "throughput" or quantity.startswith(("relative_throughput", "speedup")):
        return prediction.throughput
    if quantity == "throughput per device":  # of a language model, in tokens
        return prediction.tokens / experiment.devices
    if quantity.startswith(("scaling_efficiency", "iter_time_increase")):
        fewer = each / _each_of(prediction, int(experiment.calibration.devices))
        return fewer if quantity.startswith("scaling") else 1 / fewer - 1
    if quantity.startswith("weak_scaling_efficiency"):
        return each / _each_of(prediction, int(experiment.devices_per_node))
    if quantity == "parallel_efficiency":
        return each / _each_of(prediction, 1)
    if quantity.startswith("iteration_time"):
        return prediction.step_time
    if quantity.startswith("time_"):
        return prediction.time_to_train
    if quantity == "gpu_hours":
        return prediction.device_hours
    if quantity == "achieved_per_gpu":  # recomputation is counted (Narayanan et al. 2021, eq. 3)
        return each * (experiment.model.train_flop + _flop_again(experiment))
    if quantity == "mfu":
        return prediction.utilization
    if quantity == "layer_fwd_plus_bwd_time":
        deeper = experiment.set({"model.layers": experiment.model.options["layers"] + 1})
        return _passes(breakdown(deeper, prediction.compute_scale)) - _passes(prediction)
    if quantity == "training_memory":
        return prediction.memory_total
    if quantity == "allocated_memory":  # by a framework, without the driver
        return prediction.memory_total - experiment.machine.device.reserved_memory
    if quantity == "out_of_memory":
        return not prediction.fits
    raise SpecError(f"published quantity {quantity!r} is not one that predict returns.")


def _each_of(prediction: Breakdown, devices: int) -> Any:
    """Return the samples/s of each of fewer devices with the same batch."""
    experiment = prediction.experiment
    per_node = min(devices, int(experiment.machine.devices_per_node))
    fewer = {"strategy.nodes": devices // per_node, "strategy.devices_per_node": per_node}
    return breakdown(experiment.set(fewer), prediction.compute_scale).throughput / devices


def _passes(prediction: Breakdown) -> Any:
    """Return the seconds of forward and backward passes with the messages in them."""
    return prediction.forward + prediction.backward + prediction.exposed["tensor"]


def _flop_again(experiment: Experiment) -> float:
    """Return the FLOP per sample that recomputation adds."""
    model = experiment.model
    runs = segments(model, experiment.strategy.recompute)
    return float(sum(model.layer_forward_flop[list(run.repeated)].sum() for run in runs))
