"""Time and energy to an accuracy: the epochs that a batch needs (convergence/), at the predicted cost of a step."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lib_dlhpc.prediction.explanation import Explanation
from lib_dlhpc.results import Columns
from lib_dlhpc.spec.units import WH
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.convergence import Epochs
    from lib_dlhpc.prediction.breakdown import Breakdown


class Interval(NamedTuple):
    """A median and its 90% interval; nan where the estimate is refused. Arrays where the experiment has them."""

    median: Any
    low: Any
    high: Any


@dataclass(frozen=True)
class ToAccuracy:
    """Epochs, s and J to run.target; the number of epochs is uncertain, the time of a step is not."""

    target: Any
    epochs: "Epochs"
    epoch_time: Any  # s
    time: Interval
    energy: Interval

    @property
    def known(self) -> Any:
        """Whether the epochs are known; `epochs.reason` says why not."""
        return self.epochs.known


def to_accuracy(of: "Breakdown") -> ToAccuracy:
    """Return time and energy to the target of a prediction; startup included."""
    from lib_dlhpc.convergence import epochs_of  # only with a target

    found, run = epochs_of(of.experiment), of.experiment.run
    time, energy = (
        Interval(*(_cost(of, epochs, name) for epochs in found[:3]))
        for name in ("time_to_train", "energy_to_train")
    )
    epoch = _of(of, 1.0)
    return ToAccuracy(run.target, found, epoch.steps * of.step_time, time, energy)


def _cost(of: "Breakdown", epochs: Any, name: str) -> Any:
    """Return what a run of `epochs` costs; nan where they are."""
    cost = getattr(_of(of, np.nan_to_num(epochs)[()]), name)
    return np.where(np.isnan(epochs), np.nan, cost)[()]


def _of(of: "Breakdown", epochs: Any) -> "Breakdown":
    """Return the prediction of a run of `epochs`."""
    run = replace(of.experiment.run, epochs=epochs)
    return replace(of, experiment=replace(of.experiment, run=run))


def accuracy_dict(of: "Breakdown") -> dict[str, Any]:
    """Return time, energy and epochs to the target of a scalar prediction; null: refused. Empty without one."""
    if not of.experiment.run.target:
        return {}
    found = to_accuracy(of)
    table: dict[str, Any] = {"target": float(found.target), "epoch_time": float(found.epoch_time)}
    for name in ("epochs", "time", "energy"):
        median, *ends = (_plain(value) for value in getattr(found, name)[:3])
        table |= {name: median, f"{name}_interval": ends if found.known else None}
    return {"to_accuracy": {**table, "reason": found.epochs.reason}}


def accuracy_lines(of: "Breakdown") -> list[str]:
    """Return the same as lines of a report."""
    if not of.experiment.run.target:
        return []
    found = to_accuracy(of)
    name, lines = f"{100 * found.target:.4g}%", []
    lines.append(f"  time of an epoch      {show(float(found.epoch_time), 's'):>10}")
    if not found.known:
        return [*lines, f"  time to {name:<13} {'unknown':>10}   {found.epochs.reason}"]
    epochs, low, high = (f"{float(value):,.4g}" for value in found.epochs[:3])
    ends = f", {low} to {high} with 90%" * (low != high)
    watt_hours = Interval(*(value / WH for value in found.energy))
    time, energy = show(float(found.time.median), "s"), show(float(watt_hours.median), "Wh")
    lines += [
        f"  time to {name:<13} {time:>10}   {_ends(found.time, 's')}{epochs} epochs{ends}",
        f"  energy to {name:<11} {energy:>10}   {_ends(watt_hours, 'Wh')}modeled",
    ]
    return [*lines, f"  epochs from: {found.epochs.reason}"]


def accuracy_facts(of: "Breakdown") -> dict[str, str]:
    """Return time and energy to the target of a scalar prediction in words; empty without a target."""
    target = of.experiment.run.target
    if np.ndim(target) or np.ndim(of.step_time) or not target:
        return {}
    found, name = to_accuracy(of), f"{100 * target:.4g}%"
    if not np.all(found.known):
        return {f"time to {name}": "unknown"}
    time, watt_hours = float(found.time.median), float(found.energy.median) / WH
    return {f"time to {name}": show(time, "s"), f"energy to {name}": show(watt_hours, "Wh")}


def accuracy_columns(of: "Breakdown") -> Columns:
    """Return epochs, s and J to the target, with their intervals, by name; empty without a target."""
    if not np.any(of.experiment.run.target):
        return {}
    found = to_accuracy(of)
    return {
        f"{name}_to_target{end}": value
        for name in ("epochs", "time", "energy")
        for end, value in zip(("", "_low", "_high"), getattr(found, name)[:3], strict=True)
    }


def explain_accuracy(of: "Breakdown") -> list[Explanation]:
    """Return the explanation of the time to a target; empty without one."""
    if not of.experiment.run.target:
        return []
    found, e = to_accuracy(of), of.experiment
    value = show(float(found.time.median), "s") if found.known else "unknown"
    inputs = (
        ("target", f"{found.target:g}", "run.target"),
        ("global batch", f"{int(e.global_batch):,}", "batch × devices"),
        ("epochs", f"{float(found.epochs.epochs):g}", found.epochs.reason),
        ("epoch", show(float(found.epoch_time), "s"), "steps per epoch × step"),
    )
    return [
        Explanation(
            "time to accuracy",
            value,
            "start + epochs × epoch; E(B) = E_min (1 + B / B_crit + B_small / B), or a published schedule",
            inputs,
            "McCandlish et al. 2018, equation 2.11, fitted to catalog/workloads (convergence/critical_batch.py)",
            "A learning rate by the rule of the measured workload. The interval is that of the number of"
            " epochs. Valid only between batches that met the target.",
        )
    ]


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _ends(of: Interval, unit: str) -> str:
    """Return the ends of an interval in words, or nothing if it is a point."""
    low, high = show(float(of.low), unit), show(float(of.high), unit)
    return f"{low} to {high}; " if low != high else ""
