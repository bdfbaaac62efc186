"""The panel of the network laboratory: choose a network, run allreduces in it for real, see where they cross."""

import threading
from collections.abc import Callable
from html import escape
from statistics import median_high
from typing import Annotated, Any, NamedTuple

import ipywidgets

from lib_dlhpc.explore.allreduce.charts import name_of
from lib_dlhpc.explore.blocks.bench import Slider, amount, controls_of
from lib_dlhpc.explore.blocks.charts import State, chart, columns
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.runner import Runner, Thread
from lib_dlhpc.explore.blocks.workbench import verdict_html, workbench
from lib_dlhpc.launch.network import available
from lib_dlhpc.launch.network.crossover import ALGORITHMS, SIZES, Crossover, grid, measure, textbook
from lib_dlhpc.launch.network.crossover import by_ping_pong as predicted_by
from lib_dlhpc.spec.units import format_quantity as show

RANKS, CURVE = 4, 24  # points of a line
RATES = (5e6, 10e6, 20e6, 50e6, 100e6, 200e6, 500e6)  # bit/s
DELAYS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 10e-3)  # s
LOAD = 5e6  # B/s of bandwidth that a size is for: slower networks get smaller messages
MEGABITS = {f"{rate / 1e6:g} Mbit/s": rate / 8 for rate in RATES}
NONE = "Not measured yet. Links like these are made on this machine."


class Links(NamedTuple):
    """The network. bandwidth: B/s; latency: s."""

    bandwidth: Annotated[float, Slider("Bandwidth", "Of each rank's link, each way", MEGABITS)] = (
        100e6 / 8
    )
    latency: Annotated[
        float, Slider("Latency", "From rank to rank, one way", DELAYS, amount("s"))
    ] = 1e-3


def network_lab(
    measured: Callable[..., Crossover] = measure,
    reason: Callable[[], str] = available,
    thread: Thread = threading.Thread,
) -> ipywidgets.Box:
    """Return sliders for bandwidth and latency, and a button that measures; the page stays alive meanwhile.

    measured: what does it, in a thread of its own. reason: why there is no laboratory here, or an empty text.
    """
    controls, figure, off = controls_of(Links()), chart("slow_network"), reason()

    def chosen() -> Links:
        return Links(**{name: control.value for name, control in controls.items()})

    def update() -> None:
        figure.update(*state(*chosen(), None))
        if off:
            runner.said.value = problem_html(f"{off} The dotted lines need none of it.")
        elif not runner.busy:
            runner.say(NONE)

    def work(_: Runner) -> None:
        links = chosen()
        runner.say(f"{RANKS} ranks are at work behind these links ...")
        found = measured(RANKS, *links, ALGORITHMS, sizes(links.bandwidth))
        if links != chosen():
            runner.say("The sliders have moved since: measure once more.")
            return
        figure.update(*state(*links, found))
        runner.said.value = words(found)

    tooltip = "Takes about half a minute; the page stays usable"
    runner = Runner(f"Measure on {RANKS} ranks", work, tooltip=tooltip, thread=thread)
    runner.run.layout.align_self = "flex-start"
    runner.offer(not off)
    look = "the size at which one algorithm overtakes another, and what moves it."
    return workbench(controls, [runner.run, runner.said, figure], update, look)


def sizes(bandwidth: float) -> list[int]:
    """Return the message sizes in B for a bandwidth in B/s: none that takes too long to wait for."""
    most = max(SIZES[0], SIZES[-1] * bandwidth / LOAD)
    return [size for size in SIZES if size <= most]


def state(bandwidth: float, latency: float, found: Crossover | None) -> State:
    """Seconds over sizes in B: the textbook's lines, and with `found` the predicted ones and measured points."""
    fine, lines = grid(SIZES, CURVE), []
    for name in ALGORITHMS:
        curves = {"textbook": textbook(name, RANKS, fine, bandwidth, latency)}
        if found:
            curves["predicted"] = predicted_by(name, RANKS, fine, found.messages)
        lines += [
            {"algorithm": name, "way": way, "size": size, "seconds": seconds}
            for way, curve in curves.items()
            for size, seconds in zip(fine, curve, strict=True)
        ]
    points: list[dict[str, Any]] = [
        {
            "algorithm": row.algorithm,
            "name": name_of(row.algorithm),
            "size": row.size,
            "seconds": row.measured,
            "measured": show(row.measured, "s"),
            "predicted": show(row.predicted, "s"),
            "error": f"{round(100 * row.error):+d}%".replace("+0%", "0%"),
        }
        for row in (found.rows if found else ())
    ]
    data = {"lines": columns(lines), "points": columns(points)}
    if not points:
        return data, "Nothing measured yet; lines by the textbook."
    last = [row for row in points if row["size"] == points[-1]["size"]]
    errors = ", ".join("{name} {measured} ({error})".format(**row) for row in last)
    return data, f"Measured at {show(last[0]['size'], 'B')}, error of the prediction: {errors}."


def words(found: Crossover) -> str:
    """Say what the ping-pong found, how far the predictions are off, and where algorithms cross."""
    off = [abs(row.error) for row in found.rows]
    by_hand = [abs(row.textbook / row.measured - 1) for row in found.rows]
    at = found.messages
    lines = [
        f"<b>Ping-pong.</b> 1/β = {show(1 / at.beta, 'B/s')}, α = {show(at.alpha, 's')}; a sender of more"
        f" than {at.short} B waits {show(at.acknowledgement, 's')} to know that it has arrived.",
        f"<b>Error.</b> With these, predictions are off by {median_high(off):.0%} (median; worst"
        f" {max(off):.0%}); with α + nβ as chosen by {median_high(by_hand):.0%} (worst {max(by_hand):.0%}).",
    ]
    lines += [
        f"<b>Crossing.</b> {escape(name_of(each.one))} and {escape(name_of(each.other))}: measured at"
        f" {show(each.measured, 'B')}, predicted at {show(each.predicted, 'B')}."
        for each in found.crossings
        if each.measured and each.predicted
    ]
    return verdict_html("<br>".join(lines))
