"""Prediction against publication: every published row is an experiment, and its error is shown.

A file of catalog/published describes one family of measurements: [experiment] is what they share,
each of [[rows]] names the measured results (ids in results.csv) and the measured row it starts `from`:
a model must be given the rate of one device, of one node, or of fewer nodes, on that framework. A row
may serve as a start for larger ones and be scored itself from a smaller one. Jitter is the one number
estimated from published rows; they are not scored. What is not used stands under [[left_out]].

Networks that are split start `scale_from` one measured row of the family, under [[inputs]], which says by
what factor compute takes longer than the roofline on that machine; the others, of whatever size and split,
are predicted with it; `link_from` one row, likewise, the share of the line rate between nodes that
exchanges reach there. A row `relative_to` a change of its experiment is a ratio of two predictions.

A row in a `bracket` lies between all messages hidden and none; then its tolerance reaches to that bound.

A row outside its tolerance is a miss. A miss whose reason is known says so and states the error it
has; it stays in the table, and counts in every average. Any other miss is a failure.
"""

import csv
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import mean, median
from typing import Any

from lib_dlhpc.costs.compute import peak_rate
from lib_dlhpc.costs.segments import segments
from lib_dlhpc.predict.breakdown import Breakdown, breakdown, compute_scale
from lib_dlhpc.predict.definitions import DEFINITIONS
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import TIMES

UNITS = {
    **TIMES,
    "ms": 1e-3,
    "KB": 1e3,
    "GB": 1e9,
    "GB/s": 1e9,
    "Gbit/s": 1.25e8,
    "TB": 1e12,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
    "MWh": 3.6e9,
    "TFLOP/s": 1e12,
    "%": 0.01,
}


# Classes of rows in which a network is split, beside data parallelism, and that are not mere arithmetic.
SPLIT_CLASSES = ("tensor", "pipeline", "recompute", "3-D", "ZeRO-3", "activations")


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


def validate(families: Iterable[str] = (), only: Collection[str] = ()) -> list[Row]:
    """Return every published row with its prediction; `families`, and the ids of `only`, limit them.

    Raises SpecError.
    """
    chosen = tuple(families) or catalog.names("published")
    return [row for name in chosen for row in _family(name, only)]


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


def left_out(families: Iterable[str] = ()) -> dict[str, str]:
    """Return the published rows that are not scored, by id, with the reason."""
    chosen = tuple(families) or catalog.names("published")
    return {
        identity: entry["reason"]
        for name in chosen
        for entry in catalog.read("published", name).get("left_out", [])
        for identity in entry["ids"]
    }


def _family(name: str, only: Collection[str]) -> list[Row]:
    table = {**catalog.read("published", name), "name": name}
    return [
        _row(table, {**entry, "id": identity})
        for entry in table["rows"]
        for identity in entry.get("ids", [entry.get("id")])
        if not only or identity in only
    ]


def _row(table: Mapping[str, Any], entry: Mapping[str, Any]) -> Row:
    published = _published(entry["id"])
    unit = entry.get("unit", published["unit"])
    tolerance = entry.get("tolerance", table.get("tolerance", 0.15))
    experiment = None
    if "definition" in entry:
        value = DEFINITIONS[entry["definition"]](**entry["inputs"])
    else:
        experiment, scale = _experiment(table, entry), _scale(table, entry)
        if "link_from" in entry:
            experiment = _slower(experiment, _link_from(table["name"], entry["link_from"]))
        value = _quantity(experiment, scale, published["quantity"])
        if entry.get("bracket"):
            tolerance = _bracket(experiment, scale, value, published)
        if "relative_to" in entry:
            value /= breakdown(experiment.set(entry["relative_to"]), scale).throughput
    return Row(
        id=entry["id"],
        group=entry.get("class", table.get("class", "")),
        quantity=published["quantity"],
        predicted=float(value) / UNITS.get(unit, 1.0),
        published=float(published["value"]),
        unit=unit,
        tolerance=tolerance,
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
    given = entry.get("set", {})
    if "strategy.batch" not in given:
        changes["strategy.batch"] = (
            int(published["batch_global"]) * _replica(shared, given) // devices
        )
    if "from" in entry:
        measured = _published(entry["from"])
        changes["calibration.rate"] = float(measured["value"])
        changes["calibration.devices"] = int(measured["count"])
        changes["calibration.batch"] = int(measured["batch_global"]) // int(measured["count"])
    return shared.set({**changes, **given})


def _replica(shared: Experiment, given: Mapping[str, Any]) -> int:
    """Return how many devices hold one copy of the network."""
    found = 1
    for name in ("tensor", "pipeline", "spatial"):
        found *= int(given.get(f"strategy.{name}", getattr(shared.strategy, name)))
    return found


def _scale(table: Mapping[str, Any], entry: Mapping[str, Any]) -> Any:
    """Return measured over roofline compute time, from the row that an entry starts from."""
    if "scale_from" in entry:
        return _scale_from(table["name"], entry["scale_from"])
    return compute_scale(_experiment(table, entry))


@cache
def _scale_from(family: str, identity: str) -> float:
    """Return the compute scale at which one measured row of a family is met."""
    table, entry = _input(family, identity)
    experiment, quantity = _experiment(table, entry), _published(identity)["quantity"]
    return _met(identity, 1e-3, 1e3, lambda scale: _quantity(experiment, scale, quantity))


@cache
def _link_from(family: str, identity: str) -> float:
    """Return the share of the line rate between nodes at which one measured row of a family is met."""
    table, entry = _input(family, identity)
    experiment, scale = _experiment(table, entry), _scale(table, entry)
    quantity = _published(identity)["quantity"]
    return _met(
        identity, 0.01, 1.0, lambda share: _quantity(_slower(experiment, share), scale, quantity)
    )


def _slower(experiment: Experiment, share: float) -> Experiment:
    return experiment.set({"machine.inter_node.efficiency": share})


def _input(family: str, identity: str) -> tuple[dict[str, Any], dict[str, Any]]:
    table = {**catalog.read("published", family), "name": family}
    return table, next(each for each in table["inputs"] if each["id"] == identity)


def _met(identity: str, low: float, high: float, quantity: Callable[[float], Any]) -> float:
    """Return the number between low and high at which a quantity, that rises or falls, is the published one."""
    published = _published(identity)
    wanted = float(published["value"]) * UNITS.get(published["unit"], 1.0)
    rises = quantity(high) > quantity(low)
    for _ in range(50):
        middle = (low * high) ** 0.5
        above = quantity(middle) > wanted
        low, high = (low, middle) if above == rises else (middle, high)
    return (low * high) ** 0.5


def _quantity(experiment: Experiment, scale: Any, quantity: str) -> Any:
    """Return the predicted value of a published quantity, in SI units."""
    prediction = breakdown(experiment, scale)
    measured = experiment.calibration
    each = prediction.throughput / experiment.devices
    if quantity == "throughput" or quantity.startswith(("relative_throughput", "speedup")):
        return prediction.throughput
    if quantity.startswith("scaling_efficiency"):
        return each / (measured.rate / measured.devices)
    if quantity.startswith("weak_scaling_efficiency"):
        one = breakdown(experiment.set({"strategy.nodes": 1}), scale)
        return prediction.throughput / (experiment.strategy.nodes * one.throughput)
    if quantity.startswith("iter_time_increase"):
        return measured.rate / measured.devices / each - 1
    if quantity.startswith("iteration_time"):
        return prediction.step_time
    if quantity.startswith("time_"):
        return prediction.time_to_train
    if (
        quantity == "achieved_per_gpu"
    ):  # what is made again is counted (Narayanan et al. 2021, eq. 3)
        return each * (experiment.model.train_flop + _flop_again(experiment))
    if quantity == "mfu":
        rate = peak_rate(experiment.machine.device, experiment.strategy.precision)
        return each * experiment.model.train_flop / rate
    if quantity == "layer_fwd_plus_bwd_time":
        deeper = experiment.set({"model.layers": experiment.model.options["layers"] + 1})
        return _passes(breakdown(deeper, scale)) - _passes(prediction)
    if quantity == "training_memory":
        return prediction.memory_total
    if quantity == "out_of_memory":
        return not prediction.fits
    raise SpecError(f"published quantity {quantity!r} is not one that predict gives.")


def _passes(prediction: Breakdown) -> Any:
    """Return the seconds of forward and backward passes with the messages in them."""
    return prediction.forward + prediction.backward + prediction.exposed["tensor"]


def _bracket(experiment: Experiment, scale: Any, value: Any, published: Mapping[str, str]) -> float:
    """Return how far a rate may be off towards the published one: to all hidden, or to nothing hidden."""
    prediction = breakdown(experiment, scale)
    wanted = float(published["value"]) * UNITS.get(published["unit"], 1.0)
    quickest, slowest = prediction.step_time_bounds
    bound = slowest if wanted < value else quickest
    return float(abs(value * prediction.step_time / bound - value) / wanted)


def _flop_again(experiment: Experiment) -> float:
    """Return the FLOP a sample that recomputation adds."""
    model = experiment.model
    runs = segments(model, experiment.strategy.recompute)
    return float(sum(model.layer_forward_flop[run.first : run.stop].sum() for run in runs))


def _published(identity: str) -> dict[str, str]:
    if identity not in results():
        raise SpecError(f"{identity!r} is not in catalog/published/results.csv.")
    return results()[identity]
