"""What an experiment's settings do to accuracy: epochs to its target, or why nobody knows.

Batch, optimizer and learning rate are those of a measured workload (workloads.py). Compression, local updates, stale
gradients and formats cost accuracy, as far as somebody measured it: `costs` of the workload. A setting that costs c
must leave the target within reach, so the epochs are those to the target plus c.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.convergence.epochs import Epochs, epochs_to, refused
from lib_dlhpc.convergence.law import NORMAL
from lib_dlhpc.convergence.workloads import Workload, find
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import SAME
from lib_dlhpc.spec.training import Training

NOT_ASSESSED = "accuracy not assessed"
LEARNED = (  # of [strategy]; and all of [training] but `collective`, which changes only who adds
    *("optimizer", "precision", "wire", "update", "local_steps", "staleness"),
)


class Verdict(NamedTuple):
    """Whether a plan may be offered; arrays where batches are."""

    offered: Any
    reason: str


def epochs_of(experiment: Experiment) -> Epochs:
    """Return the epochs to run.target with an interval, or a refusal with its reason; batches may be arrays.

    One call answers for an array of batches: a million take about a second. Other fields that hold arrays are taken
    element by element.
    """
    e, target = experiment, experiment.run.target
    if np.ndim(target) or any(np.ndim(value) for value in _settings(e).values()):
        return _each(e)
    if not target:
        return _refused(e, "no run.target")
    work = find(e)
    if work is None:
        return _refused(e, f"nothing measured for {_named(e)}")
    if measured := work.other_rate(e):
        return _refused(e, f"{work.title} was measured with a rate of {measured}")
    cost, reason = cost_of(e, work)
    if np.isnan(cost):
        return _refused(e, reason)
    found = epochs_to(work, target + cost, e.global_batch)
    return found._replace(reason=f"{found.reason}{reason}")


def cost_of(experiment: Experiment, work: Workload) -> tuple[float, str]:
    """Return the accuracy that settings of a scalar experiment may cost, upper end of 90 %, and the source; or nan."""
    found = _deviations(experiment, work)
    if len(found) > 1:
        both = " and ".join(f"{name} = {value}" for name, value in found.items())
        return np.nan, f"{both} were not measured together on {work.title}"
    for name, value in found.items():
        rows = [row for row in work.costs if row["setting"] == name]
        around = _around(rows, value)
        if not around:
            known = ", ".join(str(row["value"]) for row in rows) or "nothing"
            return np.nan, f"{name} = {value} was not measured on {work.title}; measured: {known}"
        cost = max(_upper(row["change"]) for row in around)
        return (
            cost,
            f"; {name} = {value} costs at most {100 * cost:.2g} points ({around[0]['from']})",
        )
    return 0.0, ""


def changed(one: Experiment, other: Experiment) -> tuple[str, ...]:
    """Return the settings that change what a network learns in which two experiments differ."""
    first, second = _settings(one), _settings(other)
    return tuple(
        name for name, value in first.items() if not np.array_equal(value, second[name])
    ) + ("batch",) * (not np.array_equal(one.global_batch, other.global_batch))


def verdict(plan: Experiment, file: Experiment) -> Verdict:
    """Return whether a plan for the experiment of a file may be offered.

    With a target: if measurements say that the plan meets it. Else if nothing that changes accuracy differs from the
    file; the plan then says that accuracy is not assessed. plan: batches may be arrays.
    """
    if file.run.target and find(file) is not None:
        found = epochs_of(plan)
        return Verdict(found.known, found.reason)
    reason = epochs_of(file).reason
    others = [name for name in changed(plan, file) if name != "batch"]
    same = np.equal(plan.global_batch, file.global_batch) & (not others)
    if np.all(same):
        return Verdict(same, reason)
    differ = others or ["batch"]
    return Verdict(same, f"{reason}: {', '.join(differ)} must stay as in the file")


def _settings(e: Experiment) -> dict[str, Any]:
    """Return all settings but the batch that change what a network learns."""
    found = {f"strategy.{name}": getattr(e.strategy, name) for name in LEARNED}
    names = (item.name for item in fields(Training) if item.name != "collective")
    found |= {f"training.{name}": getattr(e.training, name) for name in names}
    return {"model": e.model.options, "dataset": e.dataset.name, **found}


def _deviations(e: Experiment, work: Workload) -> dict[str, Any]:
    """Return the settings off those that the workload was measured with."""
    s, t = e.strategy, e.training
    found: dict[str, Any] = {}
    if s.precision not in (*work.precisions, "fp64"):
        found["strategy.precision"] = s.precision
    if s.wire not in (SAME, s.precision):
        found["strategy.wire"] = s.wire
    if s.update == "asynchronous":
        found["strategy.update"] = s.update
    if s.local_steps > 1:
        found["strategy.local_steps"] = s.local_steps
    for name in ("sparsity", "low_rank", "outer_rate", "outer_momentum"):
        if (value := getattr(t, name)) != getattr(Training, name):
            found[f"training.{name}"] = value
    return found


def _around(rows: list[Mapping[str, Any]], value: Any) -> list[Mapping[str, Any]]:
    """Return the measured costs next to a value: at it, or on both sides; a stronger setting may cost less."""
    exact = [row for row in rows if row["value"] == value]
    if exact or isinstance(value, str):
        return exact
    below = [row for row in rows if row["value"] < value]
    above = [row for row in rows if row["value"] > value]
    if not (below and above):
        return []
    order = itemgetter("value")
    return [max(below, key=order), min(above, key=order)]


def _upper(changes: list[float]) -> float:
    """Return the upper end of 90 % of what runs lost, in the mean; a gain is not credited."""
    loss = -np.array(changes)
    wide = NORMAL * loss.std(ddof=1) / np.sqrt(len(loss)) if len(loss) > 1 else 0.0
    return max(0.0, float(loss.mean() + wide))


def _refused(e: Experiment, why: str) -> Epochs:
    return refused(e.global_batch, f"{NOT_ASSESSED}: {why}")


def _named(e: Experiment) -> str:
    return (
        f"{e.model.name or e.model.family} on {e.dataset.name or 'these data'} with"
        f" {e.strategy.optimizer}"
    )


def _each(e: Experiment) -> Epochs:
    """Return the answer where other settings than the batch are arrays."""
    places = {**_settings(e), "run.target": e.run.target, "batch": e.global_batch}
    arrays = {name: value for name, value in places.items() if np.ndim(value)}
    shape = np.broadcast_shapes(*(value.shape for value in arrays.values()))
    rows = []
    for at in np.ndindex(shape):
        one = {name: np.broadcast_to(value, shape)[at].item() for name, value in arrays.items()}
        rows.append(epochs_of(_with(e, one)))
    numbers = np.array([row[:3] for row in rows], dtype=float).T.reshape(3, *shape)
    why = next((row.reason for row in rows if not row.known), rows[0].reason)
    return Epochs(numbers[0], numbers[1], numbers[2], why)


def _with(e: Experiment, values: dict[str, Any]) -> Experiment:
    """Return a scalar experiment of that global batch and those settings, for questions about accuracy alone."""
    tables: dict[str, dict[str, Any]] = {"strategy": {}, "training": {}, "run": {}}
    for name, value in values.items():
        table, _, field = name.partition(".")
        if field:
            tables[table][field] = value
    if "batch" in values:
        tables["strategy"] |= {"nodes": 1, "devices_per_node": 1, "batch": values["batch"]}
    nouns = {name: replace(getattr(e, name), **inner) for name, inner in tables.items()}
    return replace(e, **nouns)
