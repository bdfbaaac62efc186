"""The roofline of one layer: how fast it is, and whether starting, memory or arithmetic takes its time.

roofline(mine)   the experiment: device, kind of layer, width, batch, and how fast arithmetic is
"""

from functools import lru_cache
from typing import NamedTuple

import ipywidgets

from lib_dlhpc.costs.compute import BYTES, layer_times, peak_rate, traffic
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, wall_html, workbench
from lib_dlhpc.explore.one_step.charts import roofline_state
from lib_dlhpc.explore.one_step.machines import (
    DEVICES,
    Mine,
    faster_arithmetic,
    precision_of,
    roofline_of,
    without_arithmetic,
    without_memory,
    without_start,
)
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.machine import Device
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.units import format_plain as plain
from lib_dlhpc.spec.units import format_quantity as show

IMAGE = 16  # pixels of an edge, where a layer reads images
LAYERS = {
    "dense: a matrix product": "dense",
    "convolution, 3 × 3": "conv3",
    "convolution, 1 × 1": "conv1",
}
WIDTHS = tuple(2**k for k in range(3, 13))
BATCHES = tuple(2**k for k in range(13))
# FLOP a byte and TFLOP/s of the check: the end of the slope is at 10 to 52 FLOP a byte.
ASKED, PEAK = (2, 4, 8, 24, 48, 96), 15.7
FASTER = [("as it is", 1.0), ("2 ×", 2.0), ("4 ×", 4.0), ("8 ×", 8.0)]
START, MEMORY, ARITHMETIC = "start", "memory", "arithmetic"
BOUND = {START: "launch-bound", MEMORY: "memory-bound", ARITHMETIC: "compute-bound"}


class Setting(NamedTuple):
    """What the controls say."""

    device: str = "v100-sxm2-16gb"
    layer: str = "dense"
    width: int = 4096
    batch: int = 1
    faster: float = 1.0


class Point(NamedTuple):
    """One layer forward: FLOP, bytes between it and memory, seconds, and those seconds by cause."""

    work: float
    moved: float
    seconds: float
    causes: dict[str, float]

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.work / self.seconds

    @property
    def intensity(self) -> float:
        """FLOP for each byte."""
        return self.work / self.moved

    @property
    def bound(self) -> str:
        """The largest of the causes."""
        return max(self.causes, key=lambda cause: self.causes[cause])


def roofline(mine: Mine) -> ipywidgets.Box:
    """Return the experiment: a layer below the roof of a device, and what holds it down."""
    first = Setting()
    controls = {
        "device": dropdown("Device", "What computes", DEVICES.items(), first.device),
        "layer": dropdown("Layer", "What is computed", LAYERS.items(), first.layer),
        "width": slider("Width", "Numbers, or channels, in and out", _numbers(WIDTHS), first.width),
        "batch": slider("Batch", "Samples at once", _numbers(BATCHES), first.batch),
        "faster": slider("Arithmetic", "What if it were faster", FASTER, first.faster),
    }
    verdict, wall, figure = ipywidgets.HTML(), ipywidgets.HTML(), chart("one_step_roofline")

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        device = device_of(setting, mine)
        figure.update(*roofline_view(setting, device))
        verdict.value = verdict_html(roofline_words(setting, device))
        wall.value = wall_html(roofline_wall(setting, device), roofline_fine(setting, device))

    mine.observe(lambda _: update(), "machine")
    note = (
        "how far below the roof the point is, and which way it goes as the batch grows: up, along the slope,"
        " or not at all."
    )
    return workbench(controls, [verdict, wall, figure], update, note)


@lru_cache(maxsize=512)
def model(layer: str, width: int) -> Model:
    """Return a network of that one layer."""
    if layer == "dense":
        return read_model({"family": "mlp", "widths": [width, width]})
    kernel = int(layer.removeprefix("conv"))
    conv = {"kind": "conv", "channels": width, "kernel": kernel, "padding": kernel // 2}
    return read_model({"family": "sequential", "input": [width, IMAGE, IMAGE], "layers": [conv]})


def device_of(setting: Setting, mine: Mine) -> Device:
    """Return the device of a setting, as a roofline knows it."""
    return faster_arithmetic(roofline_of(mine.device(setting.device)), setting.faster)


def point(setting: Setting, device: Device) -> Point:
    """Return what one forward pass of the layer does and takes."""
    network, batch = model(setting.layer, setting.width), setting.batch
    precision = precision_of(device)
    elements, parameters = traffic(network)
    whole, bare = device, without_start(device)
    ways = (whole, bare, without_memory(bare), without_arithmetic(bare))
    seconds, rest, arithmetic, memory = (
        float(layer_times(network, way, batch, precision).forward[0]) for way in ways
    )
    return Point(
        float(batch * network.layer_forward_flop[0]),
        float((batch * elements[0] + parameters[0]) * BYTES[precision]),
        seconds,
        {START: seconds - rest, MEMORY: memory, ARITHMETIC: arithmetic},
    )


def roof(device: Device) -> tuple[float, float]:
    """Return the peak in FLOP/s and the FLOP for each byte from which on it can be reached."""
    peak = float(peak_rate(device, precision_of(device)))
    return peak, peak / float(device.memory_bandwidth)


def roofline_view(setting: Setting, device: Device) -> State:
    """Return the columns of the chart "one_step_roofline"."""
    path = [point(setting._replace(batch=batch), device) for batch in BATCHES]
    here, (peak, ridge) = point(setting, device), roof(device)
    return roofline_state(path, BATCHES, here, setting.batch, peak, ridge, float(device.efficiency))


def roofline_words(setting: Setting, device: Device) -> str:
    """Say how fast the layer is, what twice the batch would take, and what the peak alone would say."""
    here, (peak, _) = point(setting, device), roof(device)
    twice = point(setting._replace(batch=2 * setting.batch), device).seconds / here.seconds
    return (
        f"<b>{show(here.seconds, 's')}</b> for {show(here.work, 'FLOP')}: {show(here.rate, 'FLOP/s')},"
        f" {percent(here.rate / peak)} of the peak, which alone would say {show(here.work / peak, 's')}."
        f" Twice the batch takes {twice:.2f} times as long."
    )


def roofline_wall(setting: Setting, device: Device) -> str:
    """Return what holds the layer below the flat part of the roof; "" if nothing does."""
    here, (_, ridge) = point(setting, device), roof(device)
    if here.bound == START:
        share = here.causes[START] / here.seconds
        return (
            f"Launch-bound: {share:.0%} of the time is launch overhead. More arithmetic"
            " in one call costs next to nothing."
        )
    if here.bound == MEMORY:
        return (
            f"Memory-bound: {show(here.moved, 'B')} are moved, {plain(here.intensity)} FLOP for each byte, and from"
            f" {plain(ridge)} on it would be compute-bound. A higher peak changes nothing."
        )
    return ""


def roofline_fine(setting: Setting, device: Device) -> str:
    """Say what a layer reaches that is bound by arithmetic."""
    here, (peak, _) = point(setting, device), roof(device)
    return f"Compute-bound: {here.rate / peak:.0%} of the peak; large products reach {device.efficiency:.0%}."


def percent(share: float) -> str:
    """Return a share with two digits that count."""
    if share < 1e-4:
        return "less than 0.01%"
    return f"{100 * share:.2g}%" if share < 0.1 else f"{share:.0%}"


def gain(setting: Setting, mine: Mine, faster: float = 8.0) -> float:
    """Return how many times as fast the layer is where arithmetic is so many times as fast."""
    faster_one = setting._replace(faster=faster)
    return (
        point(setting, device_of(setting, mine)).seconds
        / point(faster_one, device_of(faster_one, mine)).seconds
    )


def _numbers(values: tuple[int, ...]) -> list[tuple[str, int]]:
    return [(f"{n:,}", n) for n in values]
