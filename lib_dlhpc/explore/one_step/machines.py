"""The machines of the lesson on one step: devices of the catalog, an example measured before, and the learner's own."""

import csv
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import traitlets

import lib_dlhpc
from lib_dlhpc.spec.machine import Device, Machine, read_device
from lib_dlhpc.spec.measured_machine import load_measured

SHIPPED = Path(lib_dlhpc.__file__).parent / "catalog" / "measured"
MACHINE, POINTS = "one_step.toml", "one_step.csv"
LOADS = "others"  # the line of the points that says how many cores others kept busy
MEASURED = "measured"
START, MEMORY, ARITHMETIC = "start", "memory", "arithmetic"
DEVICES = {
    "a laptop's core": "laptop-core",
    "the measured core": MEASURED,
    "Xeon 8280, 28 cores": "xeon-8280",
    "V100, 16 bits": "v100-sxm2-16gb",
    "A100, 16 bits": "a100-sxm-40gb",
    "H100, 16 bits": "h100-sxm-80gb",
}
_catalog = cache(read_device)
Raw = Mapping[str, Any]  # what calibration/worker.py writes


class Mine(traitlets.HasTraits):
    """This machine: `machine` and its raw points `raw`, the example until `learn` is called.

    own: the machine as measured here, None before.
    """

    machine: Any = traitlets.Any()
    raw: Any = traitlets.Any()
    own: Any = traitlets.Any(None)

    def __init__(self) -> None:
        super().__init__(machine=example(), raw=example_points())

    def learn(self, machine: Machine, raw: Raw) -> None:
        """Take over what was measured on this machine."""
        with self.hold_trait_notifications():
            self.raw, self.own, self.machine = raw, machine, machine

    def device(self, name: str) -> Device:
        """Return a device of DEVICES."""
        if name != MEASURED:
            return _catalog(name)
        device: Device = self.machine.device
        return device


@cache
def example() -> Machine:
    """Return the machine that was measured for this lesson."""
    return load_measured(SHIPPED / MACHINE)


@cache
def example_points() -> Raw:
    """Return what was measured of it: seconds of each repeat, in the form of calibration/worker.py."""
    with open(SHIPPED / POINTS, encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    lines = [(what, int(size), [float(cell) for cell in cells]) for what, size, *cells in rows]
    (loads,) = [seconds for what, _, seconds in lines if what == LOADS]
    names = ("what", "size", "seconds")
    points = [dict(zip(names, line, strict=True)) for line in lines if line[0] != LOADS]
    return {"others": loads, "points": points}


def precision_of(device: Device) -> str:
    """Return in what a device trains: 16-bit numbers where it is fast in them, else 32-bit ones."""
    return "fp16" if "fp16" in device.peak else "fp32"


def faster_arithmetic(device: Device, times: float) -> Device:
    """Return the device with arithmetic `times` as fast, and unchanged launch times."""
    peak = {name: times * rate for name, rate in device.peak.items()}
    layers = _layers_scaled(device, times, "rate", "backward_rate")
    return replace(device, peak=peak, half_work=times * device.half_work, layers=layers)


def faster_memory(device: Device, times: float) -> Device:
    """Return the device with memory `times` as fast."""
    layers = _layers_scaled(device, times, "bandwidth", "backward_bandwidth")
    return replace(device, memory_bandwidth=times * device.memory_bandwidth, layers=layers)


def faster_start(device: Device, times: float) -> Device:
    """Return the device with launch times that are `times` shorter."""
    layers = _layers_scaled(device, 1 / times, "launch", "backward_launch")
    started = _scaled(device, 1 / times, "launch", "half_work", "overhead")
    return replace(started, layers=layers)


def _layers_scaled(device: Device, times: float, *names: str) -> dict[str, Any]:
    """Return the rates of the layers with some numbers `times` as large."""
    return {kind: _scaled(rate, times, *names) for kind, rate in device.layers.items()}


def _scaled(thing: Any, times: float, *names: str) -> Any:
    return replace(thing, **{name: times * getattr(thing, name) for name in names})


def roofline_of(device: Device) -> Device:
    """Return the device without the measured rates of its layers: only what a roofline needs."""
    return replace(device, layers={}, overhead=0.0, slowdown=1.0)


def causes(seconds: Callable[[Device], Any], device: Device) -> dict[str, Any]:
    """Return the seconds on a device by cause: launches, and the two that then overlap."""
    bare = faster_start(device, inf)  # small work is done at the full rate
    streamed = replace(faster_arithmetic(bare, inf), half_work=0.0)
    return {
        START: seconds(device) - seconds(bare),
        MEMORY: seconds(streamed),
        ARITHMETIC: seconds(faster_memory(bare, inf)),
    }
