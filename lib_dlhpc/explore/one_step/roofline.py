"""The roofline of one layer: how fast it is, and whether starting, memory or arithmetic takes its time."""

from functools import lru_cache
from typing import Annotated, NamedTuple

from lib_dlhpc.costs import BYTES, layer_times, peak_rate, traffic
from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View
from lib_dlhpc.explore.blocks.charts import Data, State, columns
from lib_dlhpc.explore.one_step.machines import (
    ARITHMETIC,
    DEVICES,
    MEMORY,
    START,
    Mine,
    causes,
    faster_arithmetic,
    precision_of,
    roofline_of,
)
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.machine import Device
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.units import format_plain as plain
from lib_dlhpc.spec.units import format_quantity as show

IMAGE = 16  # pixels of an edge, where a layer reads images
LAYERS = {"dense: a matmul": "dense", "convolution, 3 × 3": "conv3", "convolution, 1 × 1": "conv1"}
WIDTHS, BATCHES = [2**k for k in range(3, 13)], [2**k for k in range(13)]
DEVICE = Dropdown("Device", "What computes", DEVICES)
TIMES = {"as it is": 1.0, "2 ×": 2.0, "4 ×": 4.0, "8 ×": 8.0}
FASTER = Slider("Arithmetic", "What if it were faster", TIMES)
BOUND = {START: "launch-bound", MEMORY: "memory-bound", ARITHMETIC: "compute-bound"}
WIDEST = (0.02, 20_000.0)  # FLOP/B of the picture: no layer of the sliders is beyond


class Setting(NamedTuple):
    """A layer on a device. faster: how many times as fast its arithmetic is."""

    device: Annotated[str, DEVICE] = "v100-sxm2-16gb"
    layer: Annotated[str, Dropdown("Layer", "What is computed", LAYERS)] = "dense"
    width: Annotated[int, Slider("Width", "Numbers, or channels, in and out", WIDTHS)] = 4096
    batch: Annotated[int, Slider("Batch", "Samples at once", BATCHES)] = 1
    faster: Annotated[float, FASTER] = 1.0


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


def roofline(mine: Mine) -> Bench[Setting]:
    """Return the experiment: a layer below the roof of a device, and what holds it down."""

    def view(setting: Setting) -> View:
        device = device_of(setting, mine)
        charts = {"one_step_roofline": roofline_view(setting, device)}
        wall, fine = bound_words(point(setting, device), device)
        return View(roofline_words(setting, device), wall, charts, fine)

    look = (
        "how far below the roof the point is, and which way it goes as the batch grows: up, along the slope,"
        " or not at all."
    )
    bench = Bench(Setting(), view, ["one_step_roofline"], "", look)
    mine.observe(lambda _: bench.show(), "machine")
    return bench


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
    elements, parameters = traffic(network, BYTES[precision])

    def seconds(way: Device) -> float:
        return float(layer_times(network, way, batch, precision).forward[0])

    return Point(
        float(batch * network.layer_forward_flop[0]),
        float((batch * elements[0] + parameters[0]) * BYTES[precision]),
        seconds(device),
        causes(seconds, device),
    )


def roof(device: Device) -> tuple[float, float]:
    """Return the peak in FLOP/s and the FLOP for each byte from which on it can be reached."""
    peak = float(peak_rate(device, precision_of(device)))
    return peak, peak / float(device.memory_bandwidth)


def roofline_view(setting: Setting, device: Device) -> State:
    """Return the columns of "one_step_roofline": FLOP/s against FLOP per byte, the layer at every batch."""
    here, (peak, ridge), now = point(setting, device), roof(device), setting.batch
    path = [(n, point(setting._replace(batch=n), device)) for n in BATCHES]
    words = {n: f"batch {n:,}: {show(each.rate, 'FLOP/s')}" for n, each in path}
    dots = [
        {
            "x": each.intensity,
            "y": each.rate,
            "batch": n,
            "details": f"{words[n]}, {show(each.seconds, 's')}",
        }
        for n, each in path
    ]
    reached, above = float(device.efficiency) * peak, min(peak, peak * here.intensity / ridge)
    lowest = min(min(each.rate for _, each in path) / 3, peak * WIDEST[0] / ridge) / 2
    ends, most = [WIDEST[0], ridge, WIDEST[1]], f"peak {show(peak, 'FLOP/s')}"
    data: Data = {
        "roof": {"x": ends, "y": [min(peak, peak * x / ridge) for x in ends]},
        "reached": {"x": [ridge], "y": [reached], "end": ends[-1:], "words": ["large matmuls"]},
        "path": columns(dots),
        "now": {"x": [here.intensity], "y": [here.rate], "roof": [above], "words": [words[now]]},
        "names": {"x": ends[-1:], "y": [peak], "words": [most]},
        "room": {"x": list(WIDEST), "y": [lowest, 3 * peak]},
    }
    return data, (
        f"Batch {now:,}: {plain(here.intensity)} FLOP per byte, {show(here.rate, 'FLOP/s')},"
        f" {plain(above / here.rate)} times below the roof; the slope ends at {plain(ridge)} FLOP per byte, the roof is"
        f" at {show(peak, 'FLOP/s')}."
    )


def roofline_words(setting: Setting, device: Device) -> str:
    """Say how fast the layer is, what twice the batch would take, and what the peak alone would say."""
    here, (peak, _) = point(setting, device), roof(device)
    twice = point(setting._replace(batch=2 * setting.batch), device).seconds / here.seconds
    return (
        f"<b>{show(here.seconds, 's')}</b> for {show(here.work, 'FLOP')}: {show(here.rate, 'FLOP/s')},"
        f" {percent(here.rate / peak)} of the peak; the peak alone would predict {show(here.work / peak, 's')}."
        f" Twice the batch takes {twice:.2f} times as long."
    )


def bound_words(here: Point, device: Device) -> tuple[str, str]:
    """Say what holds the layer below the flat part of the roof, and what it reaches there."""
    peak, ridge = roof(device)
    walls = {
        START: f"Launch-bound: {here.causes[START] / here.seconds:.0%} of the time is launch overhead. More arithmetic"
        " in one call costs next to nothing.",
        MEMORY: f"Memory-bound: {show(here.moved, 'B')} are moved, {plain(here.intensity)} FLOP for each byte, and from"
        f" {plain(ridge)} on it would be compute-bound. A higher peak changes nothing.",
    }
    fine = f"Compute-bound: {here.rate / peak:.0%} of the peak; large matmuls reach {device.efficiency:.0%}."
    return walls.get(here.bound, ""), fine


def percent(share: float) -> str:
    """Return a share with two digits that count."""
    if share < 1e-4:
        return "less than 0.01%"
    return f"{100 * share:.2g}%" if share < 0.1 else f"{share:.0%}"


def gain(setting: Setting, mine: Mine) -> float:
    """Return how many times as fast the layer is where arithmetic is eight times as fast."""
    ways = (setting, setting._replace(faster=8.0))
    now, then = (point(each, device_of(each, mine)).seconds for each in ways)
    return now / then
