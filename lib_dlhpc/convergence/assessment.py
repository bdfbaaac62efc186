"""What an experiment's settings do to accuracy: epochs to its target, or why nobody knows.

Batch, optimizer and learning rate are those of a measured workload (workloads.py). Compression, local updates, stale
gradients and formats cost accuracy, as far as somebody measured it: `costs` of the workload. A setting that costs c
must leave the target within reach, so the epochs are those to the target plus c.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.convergence.accuracy_costs import NO_OUTER, around, upper
from lib_dlhpc.convergence.epochs import Epochs, epochs_to, refused
from lib_dlhpc.convergence.workloads import Workload, find
from lib_dlhpc.spec.exchanged import widens
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import SAME
from lib_dlhpc.spec.training import Training

NOT_ASSESSED = "accuracy not assessed"
LEARNED = (  # of [strategy]; and all of [training] but `collective`, which changes only who adds
    *("optimizer", "precision", "wire", "expert_wire", "update", "local_steps", "staleness"),
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
    if np.ndim(e.global_batch) and _deviations(e, work):
        return _each(e)
    cost, reason = cost_of(e, work)
    if np.isnan(cost):
        return _refused(e, reason)
    found = epochs_to(work, target + cost, _batch(e))
    return found._replace(reason=f"{found.reason}{reason}")


def cost_of(experiment: Experiment, work: Workload) -> tuple[float, str]:
    """Return the accuracy that settings of a scalar experiment may cost, upper end of 90%, and the source; or nan."""
    found = _deviations(experiment, work)
    if len(found) > 1:
        both = " and ".join(f"{name} = {value}" for name, value in found.items())
        return np.nan, f"{both} were not measured together on {work.title}"
    for name, value in found.items():
        return _cost(experiment, work, name, value)
    return 0.0, ""


def _cost(e: Experiment, work: Workload, name: str, value: Any) -> tuple[float, str]:
    """Return the same of one setting, at the batch, the workers and the outer optimizer of the experiment."""
    outer = e.training.outer_rate, e.training.outer_momentum
    shown = f"{name} = {value}"
    if outer != NO_OUTER:
        shown += f" with an outer rate of {outer[0]:g} and momentum of {outer[1]:g}"
    rows = [row for row in work.costs if row["setting"] == name]
    alike = [row for row in rows if row.get("outer", NO_OUTER) == outer]
    workers, batch = int(e.devices // e.strategy.replica), int(_batch(e))
    near = around(alike, value, workers)
    if not near:
        by = f" by {workers} worker{'s' * (workers > 1)}" * any("workers" in row for row in rows)
        known = ", ".join(_known(row) for row in rows) or "nothing"
        return np.nan, f"{shown}{by} was not measured on {work.title}; measured: {known}"
    for row in near:
        if row.get("batch", batch) != batch:
            return np.nan, f"{shown} was {row['from']}, not of {batch:,}, on {work.title}"
        if row.get("warm_up", e.training.sparsity_warm_up) != e.training.sparsity_warm_up:
            over = f"over {row['warm_up']:g} epochs, not {e.training.sparsity_warm_up:g}"
            return np.nan, f"{shown} was measured rising {over}, on {work.title}"
    worst = max(near, key=lambda row: upper(row["change"]))
    cost = upper(worst["change"])
    return cost, f"; {shown} costs at most {100 * cost:.2g} points ({worst['from']})"


def measured_warm_up(experiment: Experiment) -> float | None:
    """Return the epochs over which a sparsity rose where it was measured; None: it was not, or they are not stated."""
    work = find(experiment)
    rows = work.costs if work else ()
    return next((row["warm_up"] for row in rows if "warm_up" in row), None)


def _known(row: Mapping[str, Any]) -> str:
    """Return a measured value in words."""
    outer = row.get("outer", NO_OUTER)
    with_outer = f" with {outer[0]:g} and {outer[1]:g}" * (outer != NO_OUTER)
    by = f" by {row['workers']}" if "workers" in row else ""
    value = row["value"]
    return f"{value if isinstance(value, str) else f'{value:g}'}{with_outer}{by}"


def _batch(e: Experiment) -> Any:
    """Return the samples of an update: of all replicas, but with asynchronous updates of one."""
    return e.strategy.batch if e.strategy.update == "asynchronous" else e.global_batch


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
    """Return the settings off those that the workload was measured with; an outer optimizer is part of local steps."""
    s, t = e.strategy, e.training
    found: dict[str, Any] = {}
    if s.precision not in (*work.precisions, "fp64"):
        found["strategy.precision"] = s.precision
    if s.wire not in (SAME, s.precision) and not widens(s):
        found["strategy.wire"] = s.wire
    if s.expert_wire != SAME:
        found["strategy.expert_wire"] = s.expert_wire
    if s.update == "asynchronous":
        found["strategy.update"] = s.update
    if s.staleness:
        found["strategy.staleness"] = s.staleness
    if s.local_steps > 1 or (t.outer_rate, t.outer_momentum) != NO_OUTER:
        found["strategy.local_steps"] = s.local_steps
    for name in ("sparsity", "low_rank"):
        if value := getattr(t, name):
            found[f"training.{name}"] = value
    return found


def _refused(e: Experiment, why: str) -> Epochs:
    return refused(e.global_batch, f"{NOT_ASSESSED}: {why}")


def _named(e: Experiment) -> str:
    return (
        f"{e.model.name or e.model.family} on {e.dataset.name or 'these data'} with"
        f" {e.strategy.optimizer}"
    )


def _each(e: Experiment) -> Epochs:
    """Return the answer where other settings than the batch are arrays."""
    arrays = _arrays(e)
    shape = np.broadcast_shapes(*(value.shape for value in arrays.values()))
    rows = []
    for at in np.ndindex(shape):
        one = {name: np.broadcast_to(value, shape)[at].item() for name, value in arrays.items()}
        rows.append(epochs_of(_with(e, one)))
    numbers = np.array([row[:3] for row in rows], dtype=float).T.reshape(3, *shape)
    why = next((row.reason for row in rows if not row.known), rows[0].reason)
    return Epochs(numbers[0], numbers[1], numbers[2], why)


def _arrays(e: Experiment) -> dict[str, Any]:
    """Return the fields of layout and training that are arrays, and the target if it is one."""
    tables: dict[str, Any] = {"strategy": e.strategy, "training": e.training}
    found = {
        f"{table}.{item.name}": value
        for table, noun in tables.items()
        for item in fields(noun)
        if np.ndim(value := getattr(noun, item.name))
    }
    return found | ({"run.target": e.run.target} if np.ndim(e.run.target) else {})


def _with(e: Experiment, values: dict[str, Any]) -> Experiment:
    """Return a scalar experiment of those fields, for questions about accuracy alone."""
    tables: dict[str, dict[str, Any]] = {"strategy": {}, "training": {}, "run": {}}
    for name, value in values.items():
        table, _, field = name.partition(".")
        tables[table][field] = value
    nouns = {name: replace(getattr(e, name), **inner) for name, inner in tables.items()}
    return replace(e, **nouns)
