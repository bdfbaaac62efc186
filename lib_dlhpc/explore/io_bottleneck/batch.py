"""Bytes of a step and of an epoch, against the batch: samples read, gradients sent."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.io_bottleneck.charts import volume_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.storage.io import Volumes, volumes
from lib_dlhpc.prediction.storage.profile import slides_run
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show

BATCHES = tuple(2**k for k in range(3, 11))
MODELS = {"ResNet-50": "resnet50", "AlexNet": "alexnet", "VGG-16": "vgg16"}
PER = {"one step": "step", "one epoch": "epoch"}
SWEPT = np.array(BATCHES)


class Setting(NamedTuple):
    """A run of the slides with another batch, network, number of nodes."""

    batch: Annotated[int, Slider("Batch", "Samples of each GPU", BATCHES, str)] = 64
    model: Annotated[str, Dropdown("Network", "Its gradients are sent", MODELS)] = "resnet50"
    nodes: Annotated[int, Slider("Nodes", "Of four GPUs each", (2, 4, 8, 16, 24))] = 16
    per: Annotated[str, Dropdown("In", "What is counted", PER)] = "step"


@on_bench(Setting(), "io_volume", fine="The batch fits into a GPU.")
def the_batch(setting: Setting) -> View:
    """Look for which of the two lines is flat in a step, and which in an epoch."""
    at, steps = BATCHES.index(setting.batch), moved(setting).steps
    asked = moved(setting).operations * (steps if setting.per == "epoch" else 1)
    read, sent = each_device(setting)
    here = [show(float(each[at]), "B") for each in (read, sent)]
    walls = predict(experiment(setting)).walls
    return View(
        f"<b>In one {setting.per} each GPU reads {here[0]} and sends {here[1]}.</b> Together they need"
        f" {format_plain(float(asked[at]))} metadata operations, and an epoch has {int(steps[at]):,} steps.",
        " ".join(wall for wall in walls if wall.startswith("Memory")),
        {"io_volume": volume_state({"read": (SWEPT, read), "sent": (SWEPT, sent)}, setting.batch)},
    )


@lru_cache(maxsize=64)
def experiment(setting: Setting) -> Experiment:
    """Return the run."""
    changes = {"model.name": setting.model, "strategy.batch": setting.batch}
    return slides_run(setting.nodes).set(changes)


@lru_cache(maxsize=64)
def moved(setting: Setting) -> Volumes:
    """Return what the run moves, with the batch as an array over BATCHES."""
    return volumes(experiment(setting).set({"strategy.batch": SWEPT}))


def each_device(setting: Setting) -> tuple[Any, Any]:
    """Return the bytes that a device reads and sends, over BATCHES, in a step or in an epoch."""
    found, devices = moved(setting), experiment(setting).devices
    read = found.stored / devices
    if setting.per == "step":
        return read, np.broadcast_to(found.gradients, read.shape)
    return read * found.steps, found.epoch_gradients


def grows() -> str:
    """Return in words what twice the batch does to the bytes of an epoch."""
    at = BATCHES.index(64)
    read, sent = (
        "half" if each[at + 1] < 0.75 * each[at] else "as much"
        for each in each_device(Setting(per="epoch"))
    )
    return f"{read} read, {sent} sent"
