"""Time to accuracy = time of a step × steps: a larger batch makes one longer and the other fewer.

steps_measured()     steps to 90 % of a perceptron against the batch, stored runs, and the fit
time_to_accuracy()   the experiment: ResNet-50 on machines of the catalog, the critical batch a control
"""

from functools import cache
from typing import Any, NamedTuple

import ipywidgets
import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.large_batch.charts import Point, arrival_state, time_state
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
GPUS = tuple(2**k for k in range(3, 15))
IMAGES = (4, 8, 16, 32, 64, 128, 256)
CRITICAL = tuple(2**k for k in range(9, 19))
MOST_NODES = 4096  # of each machine; beyond what it has, more of the same is assumed
EPOCHS = 90  # that suffice while the batch is far below the critical one (Goyal et al. 2017)
WORTH = 0.25  # of the time that twice the GPUs should save
Floats = NDArray[Any]


class Cost(NamedTuple):
    """What the controls say."""

    machine: str = "bigbasin"
    gpus: int = 256
    images: int = 32  # of a GPU
    critical: int = 16384

    @property
    def batch(self) -> int:
        """Samples of one step over all GPUs."""
        return self.gpus * self.images


def steps_measured() -> ipywidgets.VBox:
    """Return the stored measurement: steps to the target accuracy against the batch, and its fit."""
    points = [
        Point(b, mean, spread) for b, (mean, spread) in steps_to_target(stored_steps()).items()
    ]
    fewest, critical = critical_batch(stored_steps())
    figure = chart("arrival", *arrival_state(points, fewest, critical, TARGET))
    box = ipywidgets.VBox([figure])
    box.add_class("dlhpc-results")
    return box


def steps_needed(batch: int) -> float:
    """Return the stored mean of the steps to the target accuracy."""
    return steps_to_target(stored_steps())[batch][0]


def time_to_accuracy() -> ipywidgets.Box:
    """Return the experiment: time to the target against the GPUs, which the batch grows with."""
    controls = {
        "machine": dropdown(
            "Machine",
            "Of the catalog, not calibrated",
            [(f"{n}, {device}", n) for n, (device, _) in MACHINES.items()],
            "bigbasin",
        ),
        "gpus": slider("GPUs", "To look at", [(f"{p:,}", p) for p in GPUS], 256),
        "images": slider(
            "Images a GPU", "The batch is so many times the GPUs", [(str(n), n) for n in IMAGES], 32
        ),
        "critical": slider(
            "Critical batch", "A property of the task", [(f"{b:,}", b) for b in CRITICAL], 16384
        ),
    }
    verdict, wall, curve = ipywidgets.HTML(), ipywidgets.HTML(), chart("time_to_accuracy")

    def show() -> None:
        cost = Cost(**{name: control.value for name, control in controls.items()})
        curve.update(*time_view(cost))
        verdict.value = f'<p class="dlhpc-verdict">{time_words(cost)}</p>'
        wall.value = wall_html(time_wall(cost), "Twice the GPUs still pay here.")

    note = "where the line leaves the dots: beyond, a sample more hardly saves a step."
    return workbench(controls, [verdict, wall, curve], show, note)


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
    """Return the columns of the chart "time_to_accuracy"."""
    gpus = np.array(GPUS)
    ideal = np.asarray(predicted(cost, gpus).step_time) * samples_of_small() / (gpus * cost.images)
    now = (float(cost.gpus), float(seconds_to_accuracy(cost, cost.gpus)))
    turn = cost.critical / cost.images
    return time_state(gpus.astype(float), seconds_to_accuracy(cost, gpus), ideal, now, turn)


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
