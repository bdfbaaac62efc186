"""The explorer's controls: one for each field that it lets you change, and what each may hold."""

from functools import cache
from typing import Any

import ipywidgets
import numpy as np

from lib_dlhpc.costs.compute import peak_rate
from lib_dlhpc.explore.blocks.steps import Steps
from lib_dlhpc.explore.explorer.measured import OTHER, OWN, chosen, on_own, titles
from lib_dlhpc.explore.explorer.views import node_counts
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.schedules import COLLECTIVES
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.measured_machine import STAND_IN
from lib_dlhpc.spec.strategy import ALLREDUCES, AUTO, OPTIMIZERS, TRAINING_PRECISIONS
from lib_dlhpc.spec.units import format_quantity

BUCKETS = [1e6, 2e6, 5e6, 10e6, 25e6, 50e6, 100e6, 250e6, 1e9, 1e12]
IN_MEMORY = "in memory (no input)"
YOURS = "your own"
CUSTOM = "from your file"

# The data set that goes with a family of models when the model is changed; ImageNet for all others.
DATASETS = {
    "bert": "wikipedia-books",
    "gpt": "webtext",
    "lstm_language_model": "webtext",
    "cosmoflow": "cosmoflow",
    "cosmoflow_large": "cosmoflow",
    "frnn": "reactor-status",
    "srgan_generator": "neural-image",
    "srgan_discriminator": "neural-image",
    "lenet5": "mnist-5k",
    "sequential": "digits",
    "mlp": "digits",
}

FIELDS = {  # control -> the field of the experiment that it sets
    "model": "model.name",
    "machine": "machine.name",
    "nodes": "strategy.nodes",
    "batch": "strategy.batch",
    "precision": "strategy.precision",
    "optimizer": "strategy.optimizer",
    "allreduce": "strategy.allreduce",
    "overlap": "strategy.overlap",
    "bucket": "strategy.bucket",
    "tier": "storage.tier",
    "dataset": "dataset.name",
    "epochs": "run.epochs",
}


def make_controls() -> dict[str, Any]:
    """Return the controls by name, empty; show() fills them."""
    full = ipywidgets.Layout(width="auto")
    style = {"description_width": "7.5em"}

    def make(kind: Any, label: str, tooltip: str, **more: Any) -> Any:
        return kind(description=label, tooltip=tooltip, layout=full, style=style, **more)

    dropdown = ipywidgets.Dropdown
    return {
        "replay": make(dropdown, "Run", "A historical run, or your own"),
        "model": make(dropdown, "Model", "The network"),
        "machine": make(dropdown, "Machine", "The supercomputer"),
        "nodes": make(Steps, "Nodes", "Nodes used"),
        "batch": make(Steps, "Batch a device", "Samples on each device in a step"),
        "precision": make(dropdown, "Precision", "fp16 and bf16: mixed, with fp32 master weights"),
        "optimizer": make(dropdown, "Optimizer", "What it keeps for each weight takes memory"),
        "allreduce": make(dropdown, "Allreduce", "How gradients are summed over devices"),
        "overlap": make(
            ipywidgets.Checkbox,
            "Overlap with backward",
            "Send buckets while backward runs",
            indent=False,
        ),
        "bucket": make(Steps, "Bucket", "Gradients are sent in pieces of this size"),
        "tier": make(dropdown, "Storage", "Where samples are read from"),
        "dataset": make(dropdown, "Data set", "What is trained on"),
        "epochs": make(
            ipywidgets.BoundedFloatText, "Epochs", "Passes over the data set", min=0.01, max=10000
        ),
    }


def show(controls: dict[str, Any], experiment: Experiment) -> None:
    """Make the controls offer what is legal for the experiment and stand at its values."""
    e, strategy, machine = experiment, experiment.strategy, experiment.machine
    select(controls["model"], _titles("models", e.model.name), e.model.name)
    machines = [*titles(machine), *_titles("machines", machine.name)]
    select(controls["machine"], machines, chosen(machine))
    select(controls["dataset"], _titles("datasets", e.dataset.name), e.dataset.name)
    nodes = node_counts(int(machine.nodes), int(strategy.nodes))
    controls["nodes"].offer([(f"{n:,}", int(n)) for n in nodes], int(strategy.nodes))
    batches = np.unique(np.append(2 ** np.arange(13), int(strategy.batch)))
    controls["batch"].offer([(f"{n:,}", int(n)) for n in batches], int(strategy.batch))
    precisions = [p for p in TRAINING_PRECISIONS if not np.isnan(peak_rate(machine.device, p))]
    select(controls["precision"], [(p, p) for p in precisions], strategy.precision)
    select(controls["optimizer"], [(name, name) for name in OPTIMIZERS], strategy.optimizer)
    select(controls["allreduce"], _allreduces(), strategy.allreduce)
    sizes = sorted({*BUCKETS, float(strategy.bucket)})
    labels = [(format_quantity(b, "B") if b < 1e12 else "all at once", b) for b in sizes]
    controls["bucket"].offer(labels, float(strategy.bucket))
    tiers = [(IN_MEMORY, ""), *((name, name) for name in machine.storage)]
    select(controls["tier"], tiers, e.storage.tier)
    controls["overlap"].value = strategy.overlap
    controls["epochs"].value = e.run.epochs


def _allreduces() -> list[tuple[str, str]]:
    """Return labels and names of those that may be chosen."""
    records = COLLECTIVES["allreduce"]
    return [("cheapest for each size", AUTO), *((records[name].label, name) for name in ALLREDUCES)]


def _titles(kind: str, now: str) -> list[tuple[str, str]]:
    options = _entries(kind)
    return options if now in catalog.names(kind) else [(CUSTOM, now), *options]


@cache
def _entries(kind: str) -> list[tuple[str, str]]:
    return [(catalog.read(kind, name)["title"], name) for name in catalog.names(kind)]


def select(control: Any, options: list[tuple[str, Any]], value: Any) -> None:
    """Make a dropdown offer `options` and stand at `value`, told to the browser in one message."""
    with control.hold_sync():
        # Unchanged options are left alone: the browser would rebuild the whole control.
        if list(control.options) != options:
            control.options = options
        control.value = value


def change(experiment: Experiment, name: str, value: Any) -> Experiment:
    """Return the experiment after one control moved, with what no longer fits put right.

    A new machine has other tiers, other precisions and perhaps fewer nodes; a new model has its usual
    data set and optimizer. Raises SpecError.
    """
    changes: dict[str, Any] = {FIELDS[name]: value}
    if name == "model":
        family = catalog.read("models", value)["family"]
        changes["dataset.name"] = DATASETS.get(family, "imagenet")
        changes["strategy.optimizer"] = "adam" if family in ("bert", "gpt") else "momentum"
    if name == "machine":
        if value == OTHER:
            return experiment  # it is there only while it is chosen
        if value == OWN:
            return on_own(experiment, _fitting(experiment, STAND_IN))
        changes |= _fitting(experiment, value)
    return what_if(experiment, changes)


def _fitting(experiment: Experiment, name: str) -> dict[str, Any]:
    from lib_dlhpc.spec.machine import load_machine

    machine, strategy = load_machine(name), experiment.strategy
    changes: dict[str, Any] = {"strategy.devices_per_node": 0}
    if int(strategy.nodes) > machine.nodes:
        changes["strategy.nodes"] = machine.nodes
    if experiment.storage.tier not in machine.storage:
        changes["storage.tier"] = ""
        changes["run.checkpoint_interval"] = 0.0
    if np.isnan(peak_rate(machine.device, strategy.precision)):
        changes["strategy.precision"] = "bf16" if "fp32" not in machine.device.peak else "fp32"
    return changes
