"""Time to accuracy = time of a step × steps: a larger batch makes one longer and the other fewer."""

from functools import cache
from typing import Annotated, Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import chart, columns, marked
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.studies.large_batch_results import critical_batch, steps_to_target, stored_steps
from lib_dlhpc.studies.large_batch_steps import TARGET

PRECISIONS = {"bigbasin": "fp32", "abci": "fp16", "h100-pod": "bf16"}  # of machines of the catalog
MACHINES = {"bigbasin, P100": "bigbasin", "abci, V100": "abci", "h100-pod, H100": "h100-pod"}
GPUS = tuple(2**k for k in range(3, 15))
MOST_NODES = 4096  # of each machine; beyond what it has, more of the same is assumed
EPOCHS = 90  # that suffice while the batch is far below the critical one (Goyal et al. 2017)
WORTH = 0.25  # of the time that twice the GPUs should save
NOT_CALIBRATED, TIMES = (
    "Of the catalog, not calibrated",
    "The batch is this times the number of GPUs",
)
CRITICAL = Slider("Critical batch", "A property of the task", [2**k for k in range(9, 19)])


class Cost(NamedTuple):
    """What a run is on; images: of a GPU."""

    machine: Annotated[str, Dropdown("Machine", NOT_CALIBRATED, MACHINES)] = "bigbasin"
    gpus: Annotated[int, Slider("GPUs", "To look at", GPUS)] = 256
    images: Annotated[int, Slider("Images per GPU", TIMES, [2**k for k in range(2, 9)])] = 32
    critical: Annotated[int, CRITICAL] = 16384

    @property
    def batch(self) -> int:
        """Samples of one step over all GPUs."""
        return self.gpus * self.images


def steps_measured() -> ipywidgets.VBox:
    """Return the stored measurement: steps to the target accuracy against the batch, and its fit."""
    measured, (fewest, critical) = steps_to_target(stored_steps()), critical_batch(stored_steps())
    small, *_, large = measured
    most, least = measured[small][0], measured[large][0]
    batch = np.geomspace(small, large, 65)
    ideal = most * small / batch
    kept = ideal > 0.5 * fewest
    points = [
        {"x": size, "y": y, "low": max(y - spread, 1.0), "high": y + spread}
        | {"words": f"batch {size:,}: {y:.3g} steps"}
        for size, (y, spread) in measured.items()
    ]
    data: dict[str, dict[str, Any]] = {
        "points": columns(points),
        "fit": {"x": batch, "y": fewest * (1 + critical / batch)},
        "ideal": {"x": batch[kept], "y": ideal[kept]},
        "floor": {"y": [fewest], "words": [f"fewest steps: {fewest:.3g}"]},
        "critical": {"x": [critical], "words": [f"critical batch: {critical:.3g}"]},
    }
    words = (
        f"Steps to {TARGET:.0%}: {most:.3g} at batch {small:,}, {least:.3g} at {large:,}. Fitted:"
        f" {fewest:.3g} (1 + {critical:.3g} / batch)."
    )
    box = ipywidgets.VBox([chart("arrival", data, words)])
    box.add_class("dlhpc-results")
    return box


def steps_needed(batch: int) -> float:
    """Return the stored mean of the steps to the target accuracy."""
    return steps_to_target(stored_steps())[batch][0]


@on_bench(Cost(), "time_to_accuracy", fine="Twice the GPUs still pay here.")
def time_to_accuracy(cost: Cost) -> View:
    """Look for where the line leaves the dots: beyond it, more samples per step hardly save steps."""
    gpus, turn = np.array(GPUS), cost.critical / cost.images
    seconds, ideal = seconds_to_accuracy(cost, gpus), seconds_to_accuracy(cost, gpus, np.inf)
    step = float(predicted(cost, cost.gpus).step_time)
    steps = float(steps_to_accuracy(cost.batch, cost.critical))
    now, best = show(step * steps, "s"), int(np.argmin(seconds))
    far = bool(cost.gpus > np.sqrt(GPUS[0] * GPUS[-1]))
    turns = [{"x": turn, "words": "critical batch"}] if GPUS[0] <= turn <= GPUS[-1] else []
    data: dict[str, dict[str, Any]] = {
        "line": {"x": gpus, "y": seconds},
        "ideal": {"x": gpus, "y": ideal},
        "now": marked(f"now: {now}", far, 11, x=cost.gpus, y=step * steps),
        "critical": columns(turns),
    }
    summary = (
        f"On {cost.gpus:,} GPUs it takes {now}; the shortest time, {show(float(seconds[best]), 's')},"
        f" takes {gpus[best]:,}."
    )
    words = (
        f"<b>{now}</b> = {steps:,.0f} steps of {cost.batch:,} samples × {show(step, 's')};"
        f" {EPOCHS * (1 + cost.batch / cost.critical):,.0f} epochs where a small batch needs {EPOCHS};"
        f" {step * steps * cost.gpus / 3600:,.0f} GPU-hours. Twice the GPUs would {gain_words(cost)}."
    )
    return View(words, time_wall(cost), {"time_to_accuracy": (data, summary)})


@cache
def _machine(name: str) -> Experiment:
    return Experiment(
        model="resnet50",
        dataset="imagenet",
        machine={"name": name, "nodes": MOST_NODES},
        strategy={"precision": PRECISIONS[name], "allreduce": "hierarchical"},
        run={"epochs": EPOCHS},
    )


def predicted(cost: Cost, gpus: Any) -> Breakdown:
    """Return the prediction of a step on a number of GPUs, which may be an array."""
    experiment = _machine(cost.machine)
    nodes = gpus // int(experiment.machine.devices_per_node)
    return predict(experiment.set({"strategy.nodes": nodes, "strategy.batch": cost.images}))


def steps_to_accuracy(batch: Any, critical: float) -> Any:
    """Return the steps to the target with this batch: fewest (1 + critical / batch).

    A small batch needs EPOCHS passes. McCandlish et al. 2018, equation 2.11.
    """
    samples = EPOCHS * float(_machine("bigbasin").dataset.samples)
    return samples / critical + samples / np.asarray(batch, dtype=float)


def seconds_to_accuracy(cost: Cost, gpus: Any, critical: float | None = None) -> Any:
    """Return the seconds to the target on a number of GPUs. critical: in place of the critical batch of `cost`."""
    step = np.asarray(predicted(cost, gpus).step_time)
    return step * steps_to_accuracy(gpus * cost.images, critical or cost.critical)


def saved(cost: Cost) -> float:
    """Return the share of the time that twice the GPUs save, the batch twice as large."""
    now, twice = (seconds_to_accuracy(cost, gpus) for gpus in (cost.gpus, 2 * cost.gpus))
    return 1 - float(twice / now)


def gain_words(cost: Cost) -> str:
    """Say what twice the GPUs do to the time."""
    share = saved(cost)
    return f"save {share:.0%} of the time" if share > 0 else f"take {-share:.0%} longer"


def time_wall(cost: Cost) -> str:
    """Say why the batch is not possible, or why a larger one no longer pays, or nothing."""
    if not predicted(cost, cost.gpus).fits:
        return (
            f"Memory: {cost.images} images do not fit a GPU. Accumulate the gradients of several microbatches:"
            " the step is the same, but takes correspondingly longer."
        )
    if saved(cost) > WORTH:
        return ""
    more = cost.batch / cost.critical
    if more >= 1:
        return (
            f"The critical batch: {cost.batch:,} is {more:g} times that. Steps can fall by {1 / (1 + more):.0%}"
            f" more at the most, however many GPUs; you compute {1 + more:.3g} times the samples of a small batch."
        )
    return f"The allreduce: twice the GPUs {gain_words(cost)}, since it takes longer."
