"""One step, layer by layer: forward, backward and update of a network, and what twice the batch takes.

step_by_layers(mine)   the experiment: network, device, batch, and how fast arithmetic is
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.costs.compute import layer_times, update_time
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, wall_html, workbench
from lib_dlhpc.explore.one_step.charts import BETWEEN, batch_state, layers_state
from lib_dlhpc.explore.one_step.machines import (
    DEVICES,
    Mine,
    faster_arithmetic,
    faster_memory,
    faster_start,
    precision_of,
    without_arithmetic,
    without_memory,
    without_start,
)
from lib_dlhpc.explore.one_step.roofline import ARITHMETIC, BOUND, FASTER, MEMORY, START
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.machine import Device
from lib_dlhpc.spec.units import format_quantity as show

MODELS = {
    "digits, dense layers": "mlp-digits",
    "digits, convolutions": "cnn-digits",
    "LeNet-5": "lenet5",
    "ResNet-50": "resnet50",
    "BERT base": "bert-base",
}
BATCHES = tuple(2**k for k in range(11))
MOST_ROWS = 12  # layers that are shown one by one; more are put together by kind
OPTIMIZER = "momentum"
HELP = {"arithmetic": faster_arithmetic, "memory": faster_memory, "starting": faster_start}


class Setting(NamedTuple):
    """What the controls say."""

    model: str = "cnn-digits"
    device: str = "laptop-core"
    batch: int = 8
    faster: float = 1.0


class Row(NamedTuple):
    """A layer, or all of a kind: seconds of its passes, and what bounds it."""

    name: str
    seconds: dict[str, float]
    bound: str


def step_by_layers(mine: Mine) -> ipywidgets.Box:
    """Return the experiment: where a step's time goes, and how it grows with the batch."""
    controls = {
        "model": dropdown("Network", "What is trained", MODELS.items(), "cnn-digits"),
        "device": dropdown("Device", "What computes", DEVICES.items(), "laptop-core"),
        "batch": slider("Batch", "Samples of a step", [(f"{n:,}", n) for n in BATCHES], 8),
        "faster": slider("Arithmetic", "What if it were faster", FASTER, 1.0),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    layers, grown = chart("one_step_layers"), chart("one_step_batch")

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        device = device_of(setting, mine)
        layers.update(*layers_view(setting, device))
        grown.update(*batch_view(setting, device))
        verdict.value = verdict_html(step_words(setting, device))
        wall.value = wall_html(" ".join(predict(experiment(setting, device)).walls), "It fits.")

    mine.observe(lambda _: update(), "machine")
    note = "what bounds the longest bars; then where the line of a step bends into the dashed one."
    return workbench(controls, [verdict, wall, layers, grown], update, note)


def device_of(setting: Setting, mine: Mine) -> Device:
    """Return the device of a setting."""
    return faster_arithmetic(mine.device(setting.device), setting.faster)


@lru_cache(maxsize=256)
def _catalog(model: str, batch: int, precision: str) -> Experiment:
    return read_experiment(
        {
            "model": {"name": model},
            "dataset": {"name": "wikipedia-books" if model == "bert-base" else "imagenet"},
            "machine": {"name": "laptop", "jitter": 0.0},
            "storage": {"tier": ""},
            "strategy": {
                "devices_per_node": 1,
                "batch": batch,
                "precision": precision,
                "optimizer": OPTIMIZER,
            },
        }
    )


def experiment(setting: Setting, device: Device) -> Experiment:
    """Return the run on one device."""
    own = _catalog(setting.model, setting.batch, precision_of(device))
    return replace(own, machine=replace(own.machine, device=device))


def step_time(setting: Setting, device: Device) -> float:
    """Return the seconds of a step."""
    return float(predict(experiment(setting, device)).step_time)


def growth(setting: Setting, device: Device) -> float:
    """Return how many times as long a step takes with twice the batch."""
    twice = setting._replace(batch=2 * setting.batch)
    return step_time(twice, device) / step_time(setting, device)


def rows(setting: Setting, device: Device) -> list[Row]:
    """Return the layers of a step, or their kinds, then the update and what lies between the layers."""
    model, batch, precision = experiment(setting, device).model, setting.batch, precision_of(device)
    busy, bare = replace(device, overhead=0.0), without_start(device)
    ways = (busy, bare, without_memory(bare), without_arithmetic(bare))
    each = [layer_times(model, way, batch, precision) for way in ways]
    seconds, rest, arithmetic, memory = (times.forward + times.backward for times in each)
    causes = {START: seconds - rest, ARITHMETIC: arithmetic, MEMORY: memory}
    few = len(model.layers) <= MOST_ROWS
    names = [layer.name if few else layer.kind for layer in model.layers]
    found = []
    for name in dict.fromkeys(names):
        here = np.array([each == name for each in names])
        if not seconds[here].sum():
            continue
        bound = max(causes, key=lambda cause: float(causes[cause][here].sum()))
        passes = {
            "forward": float(each[0].forward[here].sum()),
            "backward": float(each[0].backward[here].sum()),
        }
        found.append(Row(name if few else f"{name} ({here.sum()})", passes, BOUND[bound]))
    if not few:
        found.sort(key=lambda row: -sum(row.seconds.values()))
    update, streamed = (float(update_time(model, way, OPTIMIZER)) for way in (device, bare))
    bound = BOUND[MEMORY if streamed > update / 2 else START]
    found.append(Row("update", {"update": update}, bound))
    if device.overhead:
        found.append(Row(BETWEEN, {BETWEEN: float(device.slowdown * device.overhead)}, ""))
    return found


def layers_view(setting: Setting, device: Device) -> State:
    """Return the columns of the chart "one_step_layers"."""
    return layers_state(rows(setting, device))


def batch_view(setting: Setting, device: Device) -> State:
    """Return the columns of the chart "one_step_batch"."""
    each = [setting._replace(batch=batch) for batch in BATCHES]
    seconds = [step_time(one, device) for one in each]
    walls = [one.batch for one in each if predict(experiment(one, device)).walls]
    return batch_state(BATCHES, seconds, setting.batch, walls)


def shares(setting: Setting, device: Device) -> dict[str, float]:
    """Return the share of a step's time in layers that are bound by each cause."""
    found: dict[str, float] = dict.fromkeys(BOUND.values(), 0.0)
    every = rows(setting, device)
    whole = sum(sum(row.seconds.values()) for row in every)
    for row in every:
        if row.bound:
            found[row.bound] += sum(row.seconds.values()) / whole
    return found


def step_words(setting: Setting, device: Device) -> str:
    """Say how long a step takes, what bounds it, and what would help."""
    bound = ", ".join(
        f"{share:.0%} in {name} layers"
        for name, share in shares(setting, device).items()
        if share >= 0.005
    )
    return (
        f"<b>A step takes {show(step_time(setting, device), 's')}</b>: {bound}. Twice the batch takes"
        f" {growth(setting, device):.2f} times as long. {_help(setting, device)}"
    )


def gains(setting: Setting, device: Device) -> dict[str, float]:
    """Return by which share a step is shorter with each of arithmetic, memory and starting twice as fast."""
    now = step_time(setting, device)
    return {name: 1 - step_time(setting, way(device, 2.0)) / now for name, way in HELP.items()}


def _help(setting: Setting, device: Device) -> str:
    each = [f"{name} {gain:.0%}" for name, gain in gains(setting, device).items()]
    return f"Twice as fast would shorten it: {', '.join(each)}."
