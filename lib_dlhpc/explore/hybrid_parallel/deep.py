"""A very deep network on large images: 16 devices process a sample as stages, as slabs, or as both.

the_deep()      the experiment: memory and one step of every layout, beside plain data parallelism
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html
from lib_dlhpc.explore.hybrid_parallel.background import Compute, as_they_come, aside
from lib_dlhpc.explore.hybrid_parallel.charts import (
    HELD,
    TERMS,
    Way,
    memory_state,
    terms_state,
    way_of,
)
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.spec.units import format_quantity

SIDES = (224, 448, 720)
MACHINES = {"lassen": "V100 of 16 GB (Lassen)", "frontera": "Xeon sockets of 96 GB (Frontera)"}
SHARED = (2, 4, 8, 16)
DEVICES = (64, 128, 256, 512, 1024)
EACH, MICROBATCHES = (1, 2, 4), (1, 2, 4, 8)
SAMPLES_SHOWN = "imagenet"


class Deep(NamedTuple):
    """What the experiment sets. each: samples a device in a step; microbatch: samples at once."""

    side: int = 720
    machine: str = "lassen"
    devices: int = 256
    shared: int = 16
    each: int = 2
    microbatch: int = 1


def the_deep(
    compute: Compute | None = None, thread: Callable[..., Any] = threading.Thread
) -> ipywidgets.Box:
    """Return the experiment. compute, thread: as in the map."""
    controls = {
        "side": slider("Image", "Pixels along its side", [(f"{s} px", s) for s in SIDES], 720),
        "machine": dropdown(
            "Devices are",
            "They differ in memory",
            [(words, name) for name, words in MACHINES.items()],
            "lassen",
        ),
        "devices": slider("Devices", "In all", [(f"{p:,}", p) for p in DEVICES], 256),
        "shared": slider("Devices a replica", "Of one replica", [(str(n), n) for n in SHARED], 16),
        "each": slider(
            "Samples a device", "Of the batch: times the devices", [(str(n), n) for n in EACH], 2
        ),
        "microbatch": slider(
            "Microbatch", "Samples at once", [(str(n), n) for n in MICROBATCHES], 1
        ),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    memory, bars = chart("hybrid_memory"), chart("hybrid_terms")

    def setting() -> Deep:
        return Deep(**{name: control.value for name, control in controls.items()})

    def draw(chosen: Deep, found: list[Way], all_of_them: bool) -> None:
        if not all_of_them:
            verdict.value = f"<p>{len(found)} layouts are computed ...</p>"
            return
        memory.update(*memory_view(chosen, found))
        bars.update(*bars_view(found))
        verdict.value = f'<p class="dlhpc-verdict" role="status">{deep_words(found)}</p>'
        wall.value = wall_html(deep_wall(found), "Even data parallelism alone fits here.")

    note = "how the bubble shrinks and other terms grow as stages become slabs."
    results = [verdict, wall, memory, bars]
    return as_they_come(controls, results, setting, compute or aside("deep"), draw, note, thread)


def ways_of(setting: Deep) -> Iterator[Way]:
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
    per_node = load_machine(machine).devices_per_node
    return read_experiment(
        {
            "model": {"name": "resnet1001-224", "image": side},
            "dataset": {"name": SAMPLES_SHOWN, "sample_shape": [3, side, side]},
            "machine": machine,
            "strategy": {"nodes": devices // int(per_node)},
        }
    )


def name_of(way: Way) -> str:
    """Return the name of a layout on the charts."""
    if way.pipeline == way.spatial == 1:
        return "data alone"
    named = ((way.pipeline, "stages"), (way.spatial, "slabs"))
    return " × ".join(f"{n} {word}" for n, word in named if n > 1)


def memory_view(setting: Deep, ways: Sequence[Way]) -> State:
    """Return the columns of the memory chart."""
    rows = {name_of(way): dict(zip(HELD, way.held, strict=True)) for way in ways if way.held}
    return memory_state(rows, float(load_machine(setting.machine).device.memory))


def bars_view(ways: Sequence[Way]) -> State:
    """Return the columns of the bars; a way that does not fit says so."""
    return terms_state(
        {
            name_of(way) + " ✗" * (not way.fits): dict(zip(TERMS, way.parts, strict=True))
            for way in ways
            if way.parts
        }
    )


def best_of(ways: Sequence[Way]) -> Way | None:
    """Return the fastest way that fits."""
    return min((way for way in ways if way.fits), key=lambda way: way.seconds, default=None)


def deep_words(ways: Sequence[Way]) -> str:
    """Say which layout is the fastest that fits, and what the others lose."""
    best = best_of(ways)
    if best is None:
        return "<b>No layout fits.</b>"
    words = [f"<b>{name_of(best)} is the fastest that fits: {_time(best.seconds)} a step.</b>"]
    split = [way for way in ways if way.parts and way.pipeline * way.spatial > 1]
    for way in (split[0], split[-1]):
        parts = dict(zip(TERMS, way.parts, strict=True))
        words.append(
            f" {name_of(way)}: {_time(way.seconds)}, of which {_time(parts['pipeline bubble'])} bubble,"
            f" {_time(parts['halos'])} halos, {_time(parts['gradients'])} gradients."
        )
    return "".join(words)


def deep_wall(ways: Sequence[Way]) -> str:
    """Say what does not fit and why, or nothing."""
    for way in ways:
        if way.illegal:
            return f"Arithmetic: {way.illegal}"
    over = [way for way in ways if not way.fits]
    if not over:
        return ""
    need, has = (format_quantity(value, "B") for value in (over[0].memory, over[0].capacity))
    fitting = [name_of(way) for way in ways if way.fits]
    cure = (
        f"fits: {', '.join(fitting)}"
        if fitting
        else "more devices a replica, or fewer samples at once"
    )
    return (
        f"Memory: {name_of(over[0])} needs {need} a device and has {has}. A pipeline's first stage stores every"
        f" microbatch in flight, slabs store their shard of one; {cure}."
    )


def _time(seconds: float) -> str:
    return format_quantity(seconds, "s")
