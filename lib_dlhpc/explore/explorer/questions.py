"""What module 00 asks: the answers of lesson.toml that are numbers."""

from functools import cache

import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.explorer.presets import FIRST, preset
from lib_dlhpc.prediction import Breakdown, predict, sensitivity
from lib_dlhpc.spec.units import format_quantity as show

UNSPLIT = {
    "strategy.tensor": 1,
    "strategy.pipeline": 1,
    "strategy.batch": 1,
    "strategy.microbatches": 1,
}


@cache
def helps() -> dict[str, float]:
    """Return what the parts of the first run's machine save of its step when they are twice as good."""
    return sensitivity(predict(preset(FIRST).experiment))


def gpt3(split: bool) -> Breakdown:
    """Return GPT-3 on 1,024 GPUs, split as published or not at all."""
    published = preset("narayanan-2021").experiment
    return predict(published if split else published.set(UNSPLIT))


def throughput(_: np.random.Generator) -> Drawn:
    """Return the images/s of Goyal's run, the same for each learner."""
    found = predict(preset(FIRST).experiment)
    images, gpus = float(found.throughput), int(found.experiment.devices)
    return {}, images, {"of_one": images / gpus, "steps": 1 / float(found.step_time)}


lesson = Lesson.read(
    __file__,
    outcomes={
        "network_twice": (lambda: 100 * helps()["network bandwidth"], None),
        "unsplit": (lambda: float(gpt3(split=False).memory_total) / 1e9, None),
    },
    numbers={
        "compute": lambda: f"{100 * helps()['compute rate']:.0f}",
        "room": lambda: show(float(gpt3(split=True).experiment.machine.device.memory), "B"),
        "split": lambda: show(float(gpt3(split=True).memory_total), "B"),
    },
    draws={"throughput": throughput},
)
ask = lesson.ask
