"""Bytes of a step and of an epoch, against the batch: samples read, gradients sent."""

from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.io_bottleneck.charts import volume_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.io import Volumes, volumes
from lib_dlhpc.prediction.profile import slides_run
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show

BATCHES = tuple(2**k for k in range(3, 11))
MODELS = {"ResNet-50": "resnet50", "AlexNet": "alexnet", "VGG-16": "vgg16"}
NODES = (2, 4, 8, 16, 24)


class Setting(NamedTuple):
    """What the controls say. per: a "step" or an "epoch"."""

    batch: int = 64
    model: str = "resnet50"
    nodes: int = 16
    per: str = "step"


def the_batch() -> ipywidgets.Box:
    """Return the experiment: bytes that a device reads and sends, against its batch."""
    controls = {
        "batch": slider("Batch", "Samples of each GPU", [(str(n), n) for n in BATCHES], 64),
        "model": dropdown("Network", "Its gradients are sent", MODELS.items(), "resnet50"),
        "nodes": slider("Nodes", "Of four GPUs each", [(str(n), n) for n in NODES], 16),
        "per": dropdown(
            "In", "What is counted", [("one step", "step"), ("one epoch", "epoch")], "step"
        ),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    moved = chart("io_volume")

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        moved.update(*volume_view(setting))
        verdict.value = f'<p class="dlhpc-verdict">{volume_words(setting)}</p>'
        walls = [w for w in predict(experiment(setting)).walls if w.startswith("Memory")]
        wall.value = wall_html(" ".join(walls), "The batch fits into a GPU.")

    note = "which of the two lines is flat in a step, and which in an epoch."
    return workbench(controls, [verdict, wall, moved], update, note)


@lru_cache(maxsize=64)
def experiment(setting: Setting) -> Experiment:
    """Return the slides' run with another batch, network, number of nodes."""
    return slides_run(setting.nodes).set(
        {"model.name": setting.model, "strategy.batch": setting.batch}
    )


@lru_cache(maxsize=64)
def moved(setting: Setting) -> Volumes:
    """Return what the run moves, with the batch as an array over BATCHES."""
    return volumes(
        experiment(setting._replace(batch=64)).set({"strategy.batch": np.array(BATCHES)})
    )


def each_device(setting: Setting) -> tuple[Any, Any]:
    """Return the bytes that a device reads and sends, over BATCHES, in a step or in an epoch."""
    found, devices = moved(setting), experiment(setting).devices
    read = found.stored / devices
    if setting.per == "step":
        return read, np.broadcast_to(found.gradients, read.shape)
    return read * found.steps, found.epoch_gradients


def volume_view(setting: Setting) -> State:
    """Return the columns of the chart "io_volume"."""
    read, sent = each_device(setting)
    batches = np.array(BATCHES)
    return volume_state({"read": (batches, read), "sent": (batches, sent)}, setting.batch)


def volume_words(setting: Setting) -> str:
    """Say what a step reads and sends."""
    at, found = BATCHES.index(setting.batch), moved(setting)
    read, sent = (float(each[at]) for each in each_device(setting))
    asked = float(found.operations[at] * (found.steps[at] if setting.per == "epoch" else 1))
    return (
        f"<b>In one {setting.per} each GPU reads {show(read, 'B')} and sends {show(sent, 'B')}.</b> Together they"
        f" need {format_plain(asked)} metadata operations, and an epoch has {int(found.steps[at]):,} steps."
    )


def grows() -> str:
    """Return in words what twice the batch does to the bytes of an epoch."""
    read, sent = each_device(Setting(per="epoch"))
    at = BATCHES.index(64)
    reads, sends = (
        "half" if each[at + 1] < 0.75 * each[at] else "as much" for each in (read, sent)
    )
    return f"{reads} read, {sends} sent"
