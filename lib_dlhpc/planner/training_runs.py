"""What is learned as a choice: the batch, and settings that change accuracy; each is a run of its own.

A run trains for the epochs that it needs to meet run.target, so a plan compares time and energy to the target: a larger
batch costs epochs, compression costs accuracy that the target must leave over. That holds for the run of the file, too,
where the [plan] has neither. What nobody measured stays as in the file. Measurements of compression, of formats on the
wire and of local updates are of a number of workers, so such runs are planned with a replica on each device; a
sparsity is planned with the warm-up with which it was measured.
"""

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

from lib_dlhpc.convergence import epochs_of, verdict
from lib_dlhpc.convergence.assessment import measured_warm_up
from lib_dlhpc.costs.device_work import check_precision
from lib_dlhpc.costs.wire_format import is_cast
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.exchanged import widens
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.planning import SETTINGS, VARIED, Axes, Bounds
from lib_dlhpc.spec.strategy import SPLIT_FIELDS, Strategy

FREE = ("microbatches", "recompute")  # beside a format on the wire


def runs_of(experiment: Experiment) -> tuple[list[Experiment], Counter[str]]:
    """Return the run of each batch and settings of the [plan], and those that are refused by reason.

    A run has one batch in its [plan], whatever the layout of the file, and no settings; runs are in the order of their
    batches. Where the [plan] has neither, that is the run of the file. Raises SpecError if all are refused.
    """
    if not is_asked(experiment):
        return [_offered(_run(experiment, samples(experiment), {}), experiment)], Counter()
    asked = experiment.plan.batch
    settings = {
        name: values
        for name, values in experiment.plan.axes.items()
        if name in SETTINGS and not isinstance(values, Bounds)
    }
    runs, refused = list[Experiment](), Counter[str]()
    for batch in sorted(asked) or [samples(experiment)]:
        for values in product(*settings.values()):
            given = dict(zip(settings, values, strict=True))
            words = [f"batch of {batch:,}"] if asked else []
            words += [f"{name} = {value}" for name, value in given.items()]
            for nodes in _node_counts(experiment, given):
                on = [f"{nodes[0]} node{'s' * (nodes[0] > 1)}"] if nodes else []
                try:
                    runs.append(_offered(_run(experiment, batch, given, nodes), experiment))
                except SpecError as error:
                    refused[f"{', '.join([*words, *on])}: {error}"] += 1
    if not runs:
        where, what = ("axes", "setting") if settings else ("batch", "batch")
        single = "" if settings else ". To plan one batch as it is, set strategy.batch instead."
        raise SpecError(f"plan.{where}: every {what} is refused: {'; '.join(refused)}{single}")
    return runs, refused


def is_asked(experiment: Experiment) -> bool:
    """Return whether the [plan] has batches or settings that change accuracy."""
    return bool(experiment.plan.batch or SETTINGS.keys() & experiment.plan.axes.keys())


def named(run: Experiment, asked: Axes) -> dict[str, Any]:
    """Return the settings of a run that the [plan] asked for, as dotted fields."""
    fields = [SETTINGS[name].split(".") for name in asked if name in SETTINGS]
    return {f"{table}.{name}": getattr(getattr(run, table), name) for table, name in fields}


def samples(experiment: Experiment) -> int:
    """Return the global batch of a run: the one of its [plan], or else its own."""
    asked = experiment.plan.batch
    return asked[0] if len(asked) == 1 else int(experiment.global_batch)


def alone(experiment: Experiment) -> Experiment:
    """Return a run with its global batch on one device: what its steps and epochs are, whatever the layout."""
    strategy = replace(
        experiment.strategy,
        nodes=1,
        devices_per_node=1,
        tensor=1,
        pipeline=1,
        spatial=1,
        context=1,
        batch=samples(experiment),
    )
    return replace(experiment, strategy=strategy)


def _node_counts(experiment: Experiment, given: dict[str, Any]) -> list[tuple[int, ...]]:
    """Return the numbers of nodes that are runs of their own, (nodes,) each: what is learned depends on the replicas.

    Else a single ().
    """
    asked = experiment.plan.axes.get("nodes")
    if not (isinstance(asked, tuple) and _fixed(experiment, given)):
        return [()]
    return [(nodes,) for nodes in asked]


def _run(
    experiment: Experiment, batch: int, given: dict[str, Any], nodes: tuple[int, ...] = ()
) -> Experiment:
    """Return the run of a batch and settings. Raises SpecError where they contradict each other."""
    axes = {name: each for name, each in experiment.plan.axes.items() if name not in SETTINGS}
    changes = {SETTINGS[name]: value for name, value in given.items()}
    if "local_steps" in given:
        changes["strategy.update"] = "local" if given["local_steps"] > 1 else "synchronous"
    if fixed := _fixed(experiment, given):
        changes |= {f"strategy.{name}": getattr(Strategy, name) for name in ("data", *fixed)}
        changes["strategy.batch"] = max(1, batch // int(experiment.devices))
        axes |= {name: _default(name, axes) for name in fixed if name in VARIED or name in axes}
    if nodes:
        axes |= {"nodes": nodes}
        changes["strategy.nodes"] = nodes[0]
        changes["strategy.batch"] = max(1, batch // int(nodes[0] * experiment.devices_per_node))
    run = experiment.set(changes)
    warm_up = measured_warm_up(run) if given.get("sparsity") else None
    if warm_up is not None:
        run = run.set({"training.sparsity_warm_up": warm_up})
    return replace(run, plan=replace(run.plan, batch=(batch,), axes=axes))


def _fixed(experiment: Experiment, given: dict[str, Any]) -> tuple[str, ...]:
    """Return the fields of a layout that stay at their default with these settings, or those of the file."""
    training, strategy = experiment.training, experiment.strategy
    own = {"sparsity": training.sparsity, "low_rank": training.low_rank}
    own |= {"local_steps": strategy.local_steps, **given}
    if own["sparsity"] or own["low_rank"] or own["local_steps"] > 1:
        return SPLIT_FIELDS
    cast = {name: each for name, each in given.items() if name in ("wire", "precision")}
    sent = replace(strategy, **cast)
    if is_cast(sent) and not widens(sent):
        return tuple(name for name in SPLIT_FIELDS if name not in FREE)
    return ()


def _default(name: str, axes: Axes) -> tuple[Any]:
    """Return the only value of an axis: the default. Raises SpecError if the axes do not have it."""
    value, asked = getattr(Strategy, name), axes.get(name)
    if isinstance(asked, Bounds):
        without = not (asked.least or value) <= value <= (asked.most or value)
    else:
        without = asked is not None and value not in asked
    if without:
        raise SpecError(
            f"plan.axes.{name}: only {value!r} is legal here, and it is not on the axis."
        )
    return (value,)


def _offered(run: Experiment, file: Experiment) -> Experiment:
    """Return a run with its epochs, if they are known. Raises SpecError unless a plan may offer it."""
    check_precision(run)
    one = _assessed(run)
    offered, reason = verdict(one, file)
    if not offered:
        raise SpecError(reason if is_asked(file) else f"run.target = {file.run.target:g}: {reason}")
    epochs = epochs_of(one)
    return replace(run, run=replace(run.run, epochs=float(epochs.epochs))) if epochs.known else run


def _assessed(run: Experiment) -> Experiment:
    """Return what is learned by a run: with all its replicas, if their number matters."""
    if not _fixed(run, {}):
        return alone(run)
    devices = int(run.devices)
    if samples(run) % devices:
        raise SpecError(f"{devices:,} replicas do not divide the global batch")
    return replace(run, strategy=replace(run.strategy, batch=samples(run) // devices))
