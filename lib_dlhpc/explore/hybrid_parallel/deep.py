"""A very deep network on large images: 16 devices process a sample as stages, as slabs, or as both."""

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, amount
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.hybrid_parallel.background import Background, Compute, Ways, aside
from lib_dlhpc.explore.hybrid_parallel.charts import Way, best_of, memory_state, terms_state, way_of
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.machine import load_machine

seconds, size = amount("s"), amount("B")
SIDES = {"224 px": 224, "448 px": 448, "720 px": 720}
MACHINES = {"V100 of 16 GB (Lassen)": "lassen", "Xeon sockets of 96 GB (Frontera)": "frontera"}
SHARED = (2, 4, 8, 16)
DEVICES = (64, 128, 256, 512, 1024)
EACH, MICROBATCHES = (1, 2, 4), (1, 2, 4, 8)


class Deep(NamedTuple):
    """A run on images. shared: devices per replica; each: samples a device in a step."""

    side: Annotated[int, Slider("Image", "Pixels along its side", SIDES)] = 720
    machine: Annotated[str, Dropdown("Devices are", "They differ in memory", MACHINES)] = "lassen"
    devices: Annotated[int, Slider("Devices", "In all", DEVICES)] = 256
    shared: Annotated[int, Slider("Devices per replica", "Of one replica", SHARED)] = 16
    each: Annotated[int, Slider("Samples per device", "Of the batch: times the devices", EACH)] = 2
    microbatch: Annotated[int, Slider("Microbatch", "Samples at once", MICROBATCHES)] = 1


def the_deep(compute: Compute = aside, thread: Thread = threading.Thread) -> Background[Deep]:
    """Return the experiment: memory and one step of every layout, beside plain data parallelism."""
    fine = "Even data parallelism alone fits here."
    look = "how the bubble shrinks and other terms grow as stages become slabs."
    charts = ["hybrid_memory", "hybrid_terms"]
    return Background(Deep(), deep_view, charts, fine, look, compute, thread)


def deep_view(setting: Deep, ways: Sequence[Way], complete: bool) -> View:
    """Return what the layouts of a setting so far show; a way that does not fit says so."""
    possible = [way for way in ways if not way.illegal]
    held = {name_of(way): way.holds for way in possible}
    parts = {name_of(way) + " ✗" * (not way.fits): way.terms for way in possible}
    capacity = float(load_machine(setting.machine).device.memory)
    charts = {"hybrid_memory": memory_state(held, capacity), "hybrid_terms": terms_state(parts)}
    if not complete:
        return View(f"{len(ways)} layouts are computed ...", charts=charts if possible else {})
    return View(deep_words(ways), deep_wall(ways), charts)


def ways_of(setting: Deep) -> Ways:
    """Yield data parallelism alone, then the replica's devices as stages, as both, as slabs."""
    yield predicted(setting, 1, 1)
    stages = setting.shared
    while stages:
        yield predicted(setting, stages, setting.shared // stages)
        stages //= 2


def predicted(setting: Deep, stages: int, slabs: int) -> Way:
    """Return one layout, predicted."""
    try:
        return way_of(predict(experiment_of(setting, stages, slabs)))
    except SpecError as reason:
        return Way(1, stages, slabs, 0, illegal=str(reason))


def experiment_of(setting: Deep, stages: int, slabs: int) -> Experiment:
    """Return the run in one layout. Raises SpecError where there is none."""
    batch = setting.each * stages * slabs
    return _base(setting.side, setting.machine, setting.devices).set(
        {
            "strategy.pipeline": stages,
            "strategy.spatial": slabs,
            "strategy.batch": batch,
            "strategy.microbatches": max(1, batch // setting.microbatch),
        }
    )


@lru_cache(maxsize=16)
def _base(side: int, machine: str, devices: int) -> Experiment:
    model = {"name": "resnet1001-224", "image": side}
    images = {"name": "imagenet", "sample_shape": [3, side, side]}
    strategy = {"nodes": devices // int(load_machine(machine).devices_per_node)}
    tables = {"model": model, "dataset": images, "machine": machine, "strategy": strategy}
    return read_experiment(tables)


def name_of(way: Way) -> str:
    """Return the name of a layout on the charts."""
    named = ((way.pipeline, "stages"), (way.spatial, "slabs"))
    return " × ".join(f"{n} {word}" for n, word in named if n > 1) or "data alone"


def deep_words(ways: Sequence[Way]) -> str:
    """Say which layout is the fastest that fits, and what the others lose."""
    best = best_of(ways)
    if best is None:
        return "<b>No layout fits.</b>"
    words = f"<b>{name_of(best)} is the fastest that fits: {seconds(best.seconds)} per step.</b>"
    split = [way for way in ways if way.parts and way.pipeline * way.spatial > 1]
    for way in (split[0], split[-1]):
        parts = way.terms
        words += (
            f" {name_of(way)}: {seconds(way.seconds)}, of which {seconds(parts['pipeline bubble'])} bubble,"
            f" {seconds(parts['halos'])} halos, {seconds(parts['gradients'])} gradients."
        )
    return words


def deep_wall(ways: Sequence[Way]) -> str:
    """Say what does not fit and why, or nothing."""
    if illegal := [way.illegal for way in ways if way.illegal]:
        return f"Arithmetic: {illegal[0]}"
    over = next((way for way in ways if not way.fits), None)
    if over is None:
        return ""
    fitting = ", ".join(name_of(way) for way in ways if way.fits)
    cure = f"fits: {fitting}" if fitting else "more devices per replica, or fewer samples at once"
    return (
        f"Memory: {name_of(over)} needs {size(over.memory)} on each device, which has {size(over.capacity)}. A"
        f" pipeline's first stage stores every microbatch in flight, slabs store their shard of one; {cure}."
    )
