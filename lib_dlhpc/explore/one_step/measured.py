"""This machine, measured: raw points of products, messages and sums, and the lines that are fitted to them."""

import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.calibration.machine import fit_machine, measure_machine
from lib_dlhpc.calibration.messages import curve, protocol_step
from lib_dlhpc.calibration.numbers import TRAFFIC
from lib_dlhpc.calibration.programs import WORKER
from lib_dlhpc.calibration.robust import calm
from lib_dlhpc.costs import layer_times
from lib_dlhpc.explore.blocks.bench import Slider, amount, controls_of
from lib_dlhpc.explore.blocks.charts import Data, State, beside, chart, columns
from lib_dlhpc.explore.blocks.panels import notice_html, table_html
from lib_dlhpc.explore.blocks.ranks import stoppable
from lib_dlhpc.explore.blocks.runner import Runner, Thread
from lib_dlhpc.explore.blocks.workbench import verdict_html, workbench
from lib_dlhpc.explore.one_step.machines import Mine, Raw, example_points, roofline_of
from lib_dlhpc.explore.one_step.roofline import model
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.machine import Device, Machine
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

GEMM, MESSAGE, SUM, COPY = "gemm float32", "message", "sum", "copy"
ONE_WAY, HOW_LONG = "From one rank to the other", "How long to measure, about"
RANKS = 2
BUSY = 0.3  # cores that others keep busy; from there on it is said
ONE_CORE = "There is one core here: ranks would wait for it, not for messages."
FINE = 40  # points of a line
SHOWN = 6  # repeats of a point that are drawn
NUMBERS = {
    "device.peak.fp32": ("largest rate of a matmul", "FLOP/s"),
    "device.half_work": ("matmul that is half as fast", "FLOP"),
    "device.launch": ("one numpy call", "s"),
    "device.memory_bandwidth": ("bytes that a sum moves", "B/s"),
    "intra_node.latency": ("message: α", "s"),
    "intra_node.bandwidth": ("message: 1/β", "B/s"),
}


def _sizes(what: str) -> list[int]:
    """Return the sizes of which the example has points."""
    return curve(example_points(), what)[0]


class Setting(NamedTuple):
    """Where the sliders stand: edge of a matrix, B of a message, B of an array, and s to measure."""

    edge: Annotated[int, Slider("Edge", "Of square matrices", _sizes(GEMM), str)] = 64
    message: Annotated[int, Slider("Message", ONE_WAY, _sizes(MESSAGE), amount("B"))] = 8
    array: Annotated[int, Slider("Array", "Two of them are added", _sizes(SUM), amount("B"))] = 4**8
    seconds: Annotated[int, Slider("Seconds", HOW_LONG, (4, 8, 15, 30), "{} s".format)] = 8


def calibrate_here(
    mine: Mine,
    measured: Callable[..., dict[str, Any]] = measure_machine,
    thread: Thread = threading.Thread,
) -> ipywidgets.Box:
    """Return sliders, buttons, and the measurements: the example first, this machine after Measure.

    measured: what measures, see measure_machine. thread: in what it is done.
    """
    controls, numbers = controls_of(Setting()), ipywidgets.HTML()
    figures = {name: chart(f"one_step_{name}") for name in VIEWS}

    def chosen() -> Setting:
        return Setting(**{name: control.value for name, control in controls.items()})

    def update() -> None:
        for name, view in VIEWS.items():
            figures[name].update(*view(chosen(), mine))
        numbers.value = numbers_html(mine.machine)
        if not runner.busy:
            runner.say(origin_words(mine))

    def work(runner: Runner) -> None:
        seconds = float(chosen().seconds)
        run, parts = stoppable(runner.stop), itertools.count(1)

        def part(*words: Any, **more: Any) -> Any:
            runner.say(
                f"{RANKS} ranks at work, part {next(parts)}; in all about {seconds:g} s, longer if other"
                " processes run ..."
            )
            return run(*words, **more)

        found = fit_machine(measured(RANKS, seconds, part))
        mine.learn(found.machine, found.raw[WORKER])
        runner.said.value = verdict_html(origin_words(mine)) + busy_html(mine.raw)

    def alone() -> str:
        return ONE_CORE if cores() < RANKS else ""

    runner = Runner("Measure", work, origin_words(mine), "Takes some seconds", thread, alone)
    mine.observe(lambda _: update(), "machine")
    look = "points above and below the lines: which law does not hold, and at which sizes?"
    results = [*runner.widget.children, *figures.values(), numbers]
    return workbench(controls, results, update, look)


def products_view(setting: Setting, mine: Mine) -> State:
    """Return the columns of "one_step_products": FLOP/s of square products against their edge."""
    device, (low, high) = roofline_of(mine.machine.device), ends(mine.machine)
    half = float(device.half_work)
    said = f"A matmul of {show(half, 'FLOP')}, edge {(half / 2) ** (1 / 3):.0f}, is half as fast as a large one."

    def law(edge: float) -> list[float]:
        return [2 * edge**3 / product(int(edge), of) for of in (low, device, high)]

    drawn = {"matmuls": (GEMM, lambda edge, s: 2 * edge**3 / s)}
    return _view(mine.raw, drawn, law, setting.edge, ("", "FLOP/s"), said)


def messages_view(setting: Setting, mine: Mine) -> State:
    """Return the columns of "one_step_messages": s of a message one way against its bytes."""
    link, known = mine.machine.intra_node, mine.machine.measured.intervals
    (least, most), (narrow, wide) = (known[f"intra_node.{n}"] for n in ("latency", "bandwidth"))
    alpha, rate = float(link.latency), float(link.bandwidth * link.efficiency)
    step, jump = protocol_step(*curve(mine.raw, MESSAGE))
    said = f"Latency equals transfer at {show(alpha * rate, 'B')}. " + (
        f"From {show(step, 'B')} on the protocol changes (rendezvous), which takes {show(jump, 's')} longer."
        if step
        else "No change of protocol is visible."
    )

    def law(size: float) -> list[float]:
        return [least + size / wide, alpha + size / rate, most + size / narrow]

    drawn = {"messages": (MESSAGE, lambda size, s: s)}
    return _view(mine.raw, drawn, law, setting.message, ("B", "s"), said, float(step))


def sums_view(setting: Setting, mine: Mine) -> State:
    """Return the columns of "one_step_sums": B/s that adding and copying arrays move, against their bytes."""
    sizes, took = curve(mine.raw, SUM)
    device = mine.machine.device
    low, high = mine.machine.measured.intervals["device.memory_bandwidth"]
    moved = [TRAFFIC * size / s for size, s in zip(sizes, took, strict=True)]
    said = f"The largest array moves {show(moved[-1], 'B/s')}, the best {show(max(moved), 'B/s')}."

    def law(size: float) -> list[float]:
        each = (low, float(device.memory_bandwidth), high)
        return [TRAFFIC * size / (float(device.launch) + TRAFFIC * size / rate) for rate in each]

    drawn = {
        "sums": (SUM, lambda size, s: TRAFFIC * size / s),
        "copies": (COPY, lambda size, s: 2 * size / s),
    }
    return _view(mine.raw, drawn, law, setting.array, ("B", "B/s"), said)


def _view(
    raw: Raw,
    drawn: Mapping[str, tuple[str, Callable[[float, float], float]]],
    law: Callable[[float], list[float]],
    wanted: int,
    units: tuple[str, str],
    said: str,
    step: float = 0.0,
) -> State:
    """Return the columns of what was measured, what was fitted to it, and both at the slider.

    drawn: by the name of the points what was measured, and y from size and s; the fit is of the first. law: from x
    to the low end, the fit and the high end. units: of x and y. said: the end of the summary. step: x of a step that
    shows, 0 for none.
    """
    what, amount_of = next(iter(drawn.values()))
    sizes, took = curve(raw, what)
    at = min(range(len(sizes)), key=lambda k: abs(np.log(sizes[k] / wanted)))
    x, measured, value = sizes[at], amount_of(sizes[at], took[at]), law(sizes[at])[1]
    fine = np.geomspace(sizes[0], sizes[-1], FINE)
    if not units[0]:
        fine = np.unique(fine.round())
    fit = [dict(zip(("x", "low", "y", "high"), (n, *law(n)), strict=True)) for n in fine.tolist()]
    points: list[dict[str, Any]] = [
        {
            "kind": kind,
            "x": size,
            "y": y(size, s),
            "details": f"{kind}, {show(size, units[0])}: {show(y(size, s), units[1])}",
        }
        for kind, (name, y) in drawn.items()
        for size, s in _repeats(raw, name)
    ]
    every = [p["y"] for p in points] + [row[end] for row in fit for end in ("low", "high")]
    words = [f"measured {show(measured, units[1])}", f"fit {show(value, units[1])}"]
    late = step > fine[len(fine) // 2]
    change = {"x": step, "words": f"another way from {show(step, units[0])}", **beside(late, 6)}
    data: Data = {
        "points": columns(points),
        "fit": columns(fit),
        "now": {"x": [x], "y": [measured], "words": ["\n".join(words)]},
        "step": {name: [each] * bool(step) for name, each in change.items()},
        "room": {"y": [min(every) / 1.5, 2.2 * max(every)]},
    }
    return data, (
        f"At {show(x, units[0])}: {', '.join(words)}, the fit {value / measured - 1:+z.0%} off. {said}"
    )


def _repeats(raw: Raw, what: str) -> list[tuple[float, float]]:
    """Return size and seconds of the repeats that count."""
    quiet = calm(raw["others"])
    return [
        (float(point["size"]), float(seconds))
        for point in raw["points"]
        if point["what"] == what
        for seconds in np.asarray(point["seconds"])[quiet][:SHOWN]
    ]


VIEWS = {"products": products_view, "messages": messages_view, "sums": sums_view}


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


def message_ratio(mine: Mine) -> float:
    """Return how many times as long as a message of 8 B one of 4,096 B was measured to take."""
    sizes, took = curve(mine.raw, MESSAGE)
    return took[sizes.index(4096)] / took[sizes.index(8)]


def numbers_html(machine: Machine) -> str:
    """Return what was fitted, with its intervals, as a table."""
    measured = machine.measured
    assert measured is not None
    lines = [["", "measured", "90% interval"]]
    for key, (name, unit) in NUMBERS.items():
        value: Any = machine
        for part in key.split("."):
            value = value[part] if isinstance(value, dict) else getattr(value, part)
        low, high = (show(end, unit) for end in measured.intervals[key])
        lines.append([name, show(float(value), unit), f"{low} to {high}"])
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
        f"Other programs kept {load:.1f} cores busy during this, so only the calmer half of the repeats counts."
        " Messages suffer most, because both ranks need a core at the same time."
    )
