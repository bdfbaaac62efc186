"""Time to accuracy = time of a step × steps: a larger batch makes one longer and the other fewer.

steps_measured()     steps to 90 % of a perceptron against the batch, stored runs, and the fit
time_to_accuracy()   the experiment: ResNet-50 on machines of the catalog, the critical batch a control
"""

from functools import cache
from typing import Annotated, Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View
from lib_dlhpc.explore.blocks.charts import State, chart, columns
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity
from lib_dlhpc.training.large_batch_results import critical_batch, steps_to_target, stored_steps
from lib_dlhpc.training.large_batch_steps import TARGET

MACHINES = {  # machine of the catalog -> its GPUs, precision
    "bigbasin": ("P100", "fp32"),
    "abci": ("V100", "fp16"),
    "h100-pod": ("H100", "bf16"),
}
CHOICES = {f"{name}, {device}": name for name, (device, _) in MACHINES.items()}
GPUS = tuple(2**k for k in range(3, 15))
IMAGES = (4, 8, 16, 32, 64, 128, 256)
CRITICAL = tuple(2**k for k in range(9, 19))
MOST_NODES = 4096  # of each machine; beyond what it has, more of the same is assumed
EPOCHS = 90  # that suffice while the batch is far below the critical one (Goyal et al. 2017)
WORTH = 0.25  # of the time that twice the GPUs should save


class Cost(NamedTuple):
    """What a run is on; images: of a GPU."""

    machine: Annotated[str, Dropdown("Machine", "Of the catalog, not calibrated", CHOICES)] = (
        "bigbasin"
    )
    gpus: Annotated[int, Slider("GPUs", "To look at", GPUS)] = 256
    images: Annotated[
        int, Slider("Images a GPU", "The batch is so many times the GPUs", IMAGES)
    ] = 32
    critical: Annotated[int, Slider("Critical batch", "A property of the task", CRITICAL)] = 16384

    @property
    def batch(self) -> int:
        """Samples of one step over all GPUs."""
        return self.gpus * self.images


def steps_measured() -> ipywidgets.VBox:
    """Return the stored measurement: steps to the target accuracy against the batch, and its fit."""
    steps = steps_to_target(stored_steps())
    fewest, critical = critical_batch(stored_steps())
    small, *_, large = steps
    most, least = steps[small][0], steps[large][0]
    batch = np.geomspace(small, large, 65)
    ideal = most * small / batch
    kept = ideal > 0.5 * fewest
    points = columns(
        {
            "x": float(size),
            "y": mean,
            "low": max(mean - spread, 1.0),
            "high": mean + spread,
            "words": f"batch {size:,}: {mean:.3g} steps",
        }
        for size, (mean, spread) in steps.items()
    )
    data: dict[str, dict[str, Any]] = {
        "points": points,
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


def time_to_accuracy() -> Bench[Cost]:
    """Return the experiment: time to the target against the GPUs, which the batch grows with."""
    look = "where the line leaves the dots: beyond, a sample more hardly saves a step."
    return Bench(Cost(), cost_view, ["time_to_accuracy"], "Twice the GPUs still pay here.", look)


def cost_view(cost: Cost) -> View:
    """Return what a run costs."""
    return View(time_words(cost), time_wall(cost), {"time_to_accuracy": time_view(cost)})


@cache
def _machine(name: str) -> Experiment:
    return read_experiment(
        {
            "model": {"name": "resnet50"},
            "dataset": {"name": "imagenet"},
            "machine": {"name": name, "nodes": MOST_NODES},
            "strategy": {"precision": MACHINES[name][1], "allreduce": "hierarchical"},
            "run": {"epochs": EPOCHS},
        }
    )


def predicted(cost: Cost, gpus: Any) -> Breakdown:
    """Return the prediction of a step on so many GPUs; arrays are welcome."""
    experiment = _machine(cost.machine)
    nodes = gpus // int(experiment.machine.devices_per_node)
    return predict(experiment.set({"strategy.nodes": nodes, "strategy.batch": cost.images}))


def steps_to_accuracy(batch: Any, critical: float) -> Any:
    """Return the steps to the target with this batch: fewest (1 + critical / batch).

    The fewest are those that make EPOCHS passes enough for a small batch. McCandlish et al. 2018,
    equation 2.11.
    """
    return samples_of_small() / critical * (1 + critical / np.asarray(batch, dtype=float))


def samples_of_small() -> float:
    """Return the samples that a small batch needs to the target."""
    return EPOCHS * float(_machine("bigbasin").dataset.samples)


def seconds_to_accuracy(cost: Cost, gpus: Any) -> Any:
    """Return the seconds to the target on so many GPUs."""
    step = np.asarray(predicted(cost, gpus).step_time)
    return step * steps_to_accuracy(gpus * cost.images, cost.critical)


def time_view(cost: Cost) -> State:
    """Return the chart "time_to_accuracy": seconds to the target against GPUs, and if steps fell for ever."""
    gpus = np.array(GPUS)
    seconds, now = seconds_to_accuracy(cost, gpus), float(seconds_to_accuracy(cost, cost.gpus))
    ideal = np.asarray(predicted(cost, gpus).step_time) * samples_of_small() / (gpus * cost.images)
    far = bool(cost.gpus > np.sqrt(GPUS[0] * GPUS[-1]))
    turn, best = cost.critical / cost.images, int(np.argmin(seconds))
    here = {"words": f"now: {format_quantity(now, 's')}", "side": "right" if far else "left"}
    data: dict[str, dict[str, Any]] = {
        "line": {"x": gpus, "y": seconds},
        "ideal": {"x": gpus, "y": ideal},
        "now": columns([{"x": cost.gpus, "y": now, **here, "shift": -11 if far else 11}]),
        "critical": columns(
            {"x": x, "words": "critical batch"} for x in [turn] if GPUS[0] <= x <= GPUS[-1]
        ),
    }
    return data, (
        f"On {cost.gpus:,} GPUs it takes {format_quantity(now, 's')}; the shortest there is,"
        f" {format_quantity(float(seconds[best]), 's')}, takes {gpus[best]:,}."
    )


def saved(cost: Cost) -> float:
    """Return the share of the time that twice the GPUs save, the batch twice as large."""
    return 1 - float(
        seconds_to_accuracy(cost, 2 * cost.gpus) / seconds_to_accuracy(cost, cost.gpus)
    )


def gain_words(cost: Cost) -> str:
    """Say what twice the GPUs do to the time."""
    share = saved(cost)
    return f"save {share:.0%} of the time" if share > 0 else f"take {-share:.0%} longer"


def time_words(cost: Cost) -> str:
    """Say what the batch costs: steps, time of one, and the samples beyond those of a small batch."""
    step = float(predicted(cost, cost.gpus).step_time)
    steps = float(steps_to_accuracy(cost.batch, cost.critical))
    return (
        f"<b>{format_quantity(step * steps, 's')}</b> = {steps:,.0f} steps of {cost.batch:,} samples ×"
        f" {format_quantity(step, 's')}; {EPOCHS * (1 + cost.batch / cost.critical):,.0f} epochs where a small"
        f" batch needs {EPOCHS}; {step * steps * cost.gpus / 3600:,.0f} GPU-hours."
        f" Twice the GPUs would {gain_words(cost)}."
    )


def time_wall(cost: Cost) -> str:
    """Say why the batch is not possible, or why a larger one no longer pays, or nothing."""
    if not predicted(cost, cost.gpus).fits:
        return (
            f"Memory: {cost.images} images do not fit a GPU. Accumulate the gradients of several microbatches:"
            " the step is the same, and takes as much longer."
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
