"""This machine, measured: raw points of products, messages and sums, and the lines that are fitted to them.

calibrate_here(mine)   the experiment: what to look at, a size, how long to measure; Measure and Cancel
"""

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.calibration.machine import fit_machine, measure_machine
from lib_dlhpc.calibration.messages import curve, protocol_step
from lib_dlhpc.calibration.numbers import TRAFFIC
from lib_dlhpc.calibration.programs import WORKER
from lib_dlhpc.calibration.robust import calm
from lib_dlhpc.costs.compute import layer_times
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.blocks.panels import notice_html, table_html
from lib_dlhpc.explore.blocks.ranks import stoppable
from lib_dlhpc.explore.blocks.runner import Runner, Thread
from lib_dlhpc.explore.blocks.workbench import slider, verdict_html, workbench
from lib_dlhpc.explore.one_step.charts import measured_state
from lib_dlhpc.explore.one_step.machines import Mine, Raw, roofline_of
from lib_dlhpc.explore.one_step.roofline import model
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.machine import Device, Machine
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

GEMM, MESSAGE, SUM, COPY = "gemm float32", "message", "sum", "copy"
SECONDS = (4, 8, 15, 30)
RANKS = 2
BUSY = 0.3  # cores that others keep busy; from there on it is said
ONE_CORE = "There is one core here: ranks would wait for it, not for messages."
FINE = 40  # points of a line
SHOWN = 6  # repeats of a point that are drawn
NUMBERS = {
    "device.peak.fp32": ("largest rate of a product", "FLOP/s"),
    "device.half_work": ("product that is half as fast", "FLOP"),
    "device.launch": ("one numpy call", "s"),
    "device.memory_bandwidth": ("bytes that a sum moves", "B/s"),
    "intra_node.latency": ("message: α", "s"),
    "intra_node.bandwidth": ("message: 1/β", "B/s"),
}


class Setting(NamedTuple):
    """Where the sliders stand: edge of a matrix, B of a message, B of an array."""

    edge: int = 64
    message: int = 8
    array: int = 4**8


def calibrate_here(
    mine: Mine,
    measured: Callable[..., dict[str, Any]] = measure_machine,
    thread: Thread = threading.Thread,
) -> ipywidgets.Box:
    """Return sliders, buttons, and the measurements: the example first, this machine after Measure.

    measured: what measures, see measure_machine. thread: in what it is done.
    """
    raw = mine.raw
    controls = {
        "edge": slider("Edge", "Of square matrices", _sizes(raw, GEMM, ""), 64),
        "message": slider("Message", "From one rank to the other", _sizes(raw, MESSAGE, "B"), 8),
        "array": slider("Array", "Two of them are added", _sizes(raw, SUM, "B"), 4**8),
        "seconds": slider(
            "Seconds", "How long to measure, about", [(f"{s} s", s) for s in SECONDS], 8
        ),
    }
    numbers = ipywidgets.HTML()
    figures = {name: chart(f"one_step_{name}") for name in ("products", "messages", "sums")}

    def update() -> None:
        setting = Setting(*(controls[name].value for name in Setting._fields))
        show_points(figures, setting, mine)
        numbers.value = numbers_html(mine.machine)
        if not runner.busy:
            runner.say(origin_words(mine))

    def work(runner: Runner) -> None:
        seconds = float(controls["seconds"].value)
        run, parts = stoppable(runner.stop), itertools.count(1)

        def part(*words: Any, **more: Any) -> Any:
            runner.say(
                f"{RANKS} ranks at work, part {next(parts)}; in all about {seconds:g} s, longer beside other"
                " processes ..."
            )
            return run(*words, **more)

        found = fit_machine(measured(RANKS, seconds, part))
        mine.learn(found.machine, found.raw[WORKER])
        runner.said.value = verdict_html(origin_words(mine)) + busy_html(mine.raw)

    def alone() -> str:
        return ONE_CORE if cores() < RANKS else ""

    runner = Runner("Measure", work, origin_words(mine), "Takes some seconds", thread, alone)
    mine.observe(lambda _: update(), "machine")
    note = "points above and below the lines: which law does not hold, and at which sizes?"
    return workbench(controls, [*runner.widget.children, *figures.values(), numbers], update, note)


def show_points(figures: dict[str, Figure], setting: Setting, mine: Mine) -> None:
    """Show what was measured, with the sizes of the setting marked."""
    figures["products"].update(*products_view(setting, mine))
    figures["messages"].update(*messages_view(setting, mine))
    figures["sums"].update(*sums_view(setting, mine))


def products_view(setting: Setting, mine: Mine) -> State:
    """Return the columns of "one_step_products": FLOP/s of square products against their edge."""
    edges, took = curve(mine.raw, GEMM)
    fine = np.unique(np.geomspace(edges[0], edges[-1], FINE).round().astype(int)).tolist()
    device, (low, high) = roofline_of(mine.machine.device), ends(mine.machine)

    def rates(of: Device) -> list[float]:
        return [2 * n**3 / product(n, of) for n in fine]

    raw = [(n, 2 * n**3 / s) for n, s in _raw(mine.raw, GEMM)]
    edge, took_here = _nearest(edges, took, setting.edge)
    half = float(device.half_work)
    said = f"A product of {show(half, 'FLOP')}, edge {(half / 2) ** (1 / 3):.0f}, is half as fast as a large one."
    fitted = (fine, rates(low), rates(device), rates(high))
    here = edge, 2 * edge**3 / took_here, 2 * edge**3 / product(edge, device)
    return measured_state({"products": raw}, fitted, here, 0.0, ("", "FLOP/s"), said)


def messages_view(setting: Setting, mine: Mine) -> State:
    """Return the columns of "one_step_messages": s of a message one way against its bytes."""
    sizes, took = curve(mine.raw, MESSAGE)
    fine = np.geomspace(sizes[0], sizes[-1], FINE).tolist()
    link, known = mine.machine.intra_node, mine.machine.measured.intervals
    (least, most), (narrow, wide) = (known[f"intra_node.{n}"] for n in ("latency", "bandwidth"))

    def seconds(latency: float, bandwidth: float) -> list[float]:
        return [latency + size / bandwidth for size in fine]

    alpha, rate = float(link.latency), float(link.bandwidth * link.efficiency)
    step, jump = protocol_step(sizes, took)
    said = f"Latency equals transfer at {show(alpha * rate, 'B')}. " + (
        f"From {show(step, 'B')} on the protocol changes (rendezvous), {show(jump, 's')} longer."
        if step
        else "No change of protocol is visible."
    )
    size, took_here = _nearest(sizes, took, setting.message)
    here = size, took_here, alpha + size / rate
    fitted = (fine, seconds(least, wide), seconds(alpha, rate), seconds(most, narrow))
    raw = {"messages": _raw(mine.raw, MESSAGE)}
    return measured_state(raw, fitted, here, float(step), ("B", "s"), said)


def sums_view(setting: Setting, mine: Mine) -> State:
    """Return the columns of "one_step_sums": B/s that adding and copying arrays move, against their bytes."""
    sizes, took = curve(mine.raw, SUM)
    device, known = mine.machine.device, mine.machine.measured.intervals
    low, high = known["device.memory_bandwidth"]
    launch = float(device.launch)
    fine = np.geomspace(sizes[0], sizes[-1], FINE).tolist()

    def rate(size: float, bandwidth: float) -> float:
        return TRAFFIC * size / (launch + TRAFFIC * size / bandwidth)

    def rates(bandwidth: float) -> list[float]:
        return [rate(size, bandwidth) for size in fine]

    def moved(what: str, times: int) -> list[tuple[float, float]]:
        return [(size, times * size / s) for size, s in _raw(mine.raw, what)]

    bandwidth = float(device.memory_bandwidth)
    size, took_here = _nearest(sizes, took, setting.array)
    here = size, TRAFFIC * size / took_here, rate(size, bandwidth)
    best, last = max(TRAFFIC * n / s for n, s in zip(sizes, took, strict=True)), sizes[-1]
    said = f"The largest array moves {show(TRAFFIC * last / took[-1], 'B/s')}, the best {show(best, 'B/s')}."
    fitted = (fine, rates(low), rates(bandwidth), rates(high))
    raw = {"sums": moved(SUM, TRAFFIC), "copies": moved(COPY, 2)}
    return measured_state(raw, fitted, here, 0.0, ("B", "B/s"), said)


def product(edge: int, device: Device) -> float:
    """Return the seconds of a product of square matrices, as a dense layer has them."""
    return float(layer_times(model("dense", edge), device, edge, "fp32").forward[0])


def ends(machine: Machine) -> tuple[Device, Device]:
    """Return the device at the slow and at the fast end of what was measured of products."""
    device, known = roofline_of(machine.device), machine.measured.intervals  # type: ignore[union-attr]
    efficiency, half, launch = (known[f"device.{n}"] for n in ("efficiency", "half_work", "launch"))
    return (
        replace(device, efficiency=efficiency[0], half_work=half[1], launch=launch[1]),
        replace(device, efficiency=efficiency[1], half_work=half[0], launch=launch[0]),
    )


def message_ratio(mine: Mine, small: int = 8, large: int = 4096) -> float:
    """Return how many times as long as the small message the large one was measured to take."""
    sizes, took = curve(mine.raw, MESSAGE)
    return took[sizes.index(large)] / took[sizes.index(small)]


def numbers_html(machine: Machine) -> str:
    """Return what was fitted, with its intervals, as a table."""
    measured = machine.measured
    assert measured is not None
    lines = [["", "measured", "90 % interval"]]
    for key, (name, unit) in NUMBERS.items():
        low, high = measured.intervals[key]
        lines.append(
            [name, show(_value(machine, key), unit), f"{show(low, unit)} to {show(high, unit)}"]
        )
    return table_html(lines)


def origin_words(mine: Mine) -> str:
    """Say of which machine the points are."""
    measured = mine.machine.measured
    ranks = count(measured.ranks, "rank")
    if mine.own is None:
        return (
            f"<b>An example, not this machine:</b> {measured.host}, {ranks}, {measured.date}. Press Measure:"
            " then all figures of this page are for this machine."
        )
    return f"<b>This machine,</b> {measured.host}, measured just now on {ranks}."


def busy_html(raw: Raw) -> str:
    """Say where others had a share of the cores meanwhile."""
    loads = np.asarray(raw["others"], float)
    load = float(loads[calm(loads)].mean())
    if load < BUSY:
        return ""
    return notice_html(
        f"Other programs kept {load:.1f} cores busy meanwhile; the calmer half of the repeats counts. Messages"
        " suffer most, for both ranks must have a core at the same time."
    )


def _sizes(raw: Raw, what: str, unit: str) -> list[tuple[str, int]]:
    return [(show(size, unit) if unit else f"{size}", size) for size in curve(raw, what)[0]]


def _raw(raw: Raw, what: str) -> list[tuple[float, float]]:
    """Return size and seconds of the repeats that count."""
    quiet = calm(raw["others"])
    return [
        (float(point["size"]), float(seconds))
        for point in raw["points"]
        if point["what"] == what
        for seconds in np.asarray(point["seconds"])[quiet][:SHOWN]
    ]


def _nearest(sizes: list[int], took: list[float], wanted: int) -> tuple[int, float]:
    """Return the size that was measured nearest to the wanted one, and its seconds."""
    at = min(range(len(sizes)), key=lambda k: abs(np.log(sizes[k] / wanted)))
    return sizes[at], took[at]


def _value(machine: Machine, key: str) -> float:
    value: Any = machine
    for name in key.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return float(value)
