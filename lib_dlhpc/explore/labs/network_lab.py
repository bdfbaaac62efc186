"""The panel of the network laboratory: choose a network, run allreduces in it for real, see where they cross."""

import threading
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.explore.allreduce.charts import name_of
from lib_dlhpc.explore.blocks.charts import State, append, chart
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.workbench import slider, verdict_html, workbench
from lib_dlhpc.launch.network import NetworkError, available
from lib_dlhpc.launch.network.crossover import ALGORITHMS, SIZES, Crossover, grid, measure, textbook
from lib_dlhpc.launch.network.crossover import by_ping_pong as predicted_by
from lib_dlhpc.spec.units import format_quantity

RANKS, CURVE = 4, 24  # points of a line
RATES = (5e6, 10e6, 20e6, 50e6, 100e6, 200e6, 500e6)  # bit/s
DELAYS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 10e-3)  # s
LOAD = 5e6  # B/s of bandwidth that a size is for: slower networks get smaller messages


def network_lab(
    measured: Callable[..., Crossover] = measure, reason: Callable[[], str] = available
) -> ipywidgets.Box:
    """Return sliders for bandwidth and latency, and a button that measures; the page stays alive meanwhile.

    measured: what does it, in a thread of its own. reason: why there is no laboratory here, or an empty text.
    """
    controls = {
        "bandwidth": slider(
            "Bandwidth",
            "Of each rank's link, each way",
            [(f"{rate / 1e6:g} Mbit/s", rate / 8) for rate in RATES],
            100e6 / 8,
        ),
        "latency": slider(
            "Latency",
            "From rank to rank, one way",
            [(format_quantity(delay, "s"), delay) for delay in DELAYS],
            1e-3,
        ),
    }
    button = ipywidgets.Button(
        description=f"Measure on {RANKS} ranks",
        button_style="primary",
        layout={"width": "auto", "align_self": "flex-start"},
        tooltip="Takes about half a minute; the page stays usable",
    )
    said, figure = ipywidgets.HTML(), chart("slow_network")
    now: dict[str, Any] = {"busy": False, "off": reason()}

    def chosen() -> tuple[float, float]:
        return controls["bandwidth"].value, controls["latency"].value

    def show() -> None:
        figure.update(*state(*chosen(), None))
        button.disabled = bool(now["busy"] or now["off"])
        if now["off"]:
            said.value = problem_html(f"{now['off']} The dotted lines need none of it.")
        elif not now["busy"]:
            said.value = verdict_html(
                "Not measured yet. Links like these are made on this machine."
            )

    def work(bandwidth: float, latency: float) -> None:
        try:
            found = measured(RANKS, bandwidth, latency, ALGORITHMS, sizes(bandwidth))
        except NetworkError as error:
            shown = problem_html(str(error))
        else:
            shown = words(found)
            if (bandwidth, latency) == chosen():
                figure.update(*state(bandwidth, latency, found))
            else:
                shown = verdict_html("The sliders have moved since: measure once more.")
        now["busy"] = False
        said.value = shown
        button.disabled = False

    def start(_: Any) -> None:
        now["busy"] = button.disabled = True
        said.value = verdict_html(f"{RANKS} ranks are at work behind these links ...")
        threading.Thread(target=work, args=chosen(), daemon=True).start()

    button.on_click(start)
    return workbench(
        controls,
        [button, said, figure],
        show,
        "the size at which one algorithm overtakes another, and what moves it.",
    )


def sizes(bandwidth: float) -> list[int]:
    """Return the message sizes in B for a bandwidth in B/s: none that takes too long to wait for."""
    most = max(SIZES[0], SIZES[-1] * bandwidth / LOAD)
    return [size for size in SIZES if size <= most]


def state(bandwidth: float, latency: float, found: Crossover | None) -> State:
    """Seconds over sizes in B: the textbook's lines, and with `found` the predicted ones and measured points."""
    lines: dict[str, list[Any]] = {n: [] for n in ("algorithm", "way", "size", "seconds")}
    points: dict[str, list[Any]] = {
        n: [] for n in ("algorithm", "name", "size", "seconds", "measured", "predicted", "error")
    }
    fine = grid(SIZES, CURVE)
    for name in ALGORITHMS:
        curves = {"textbook": textbook(name, RANKS, fine, bandwidth, latency)}
        if found:
            curves["predicted"] = predicted_by(name, RANKS, fine, found.messages)
        for way, curve in curves.items():
            for size, seconds in zip(fine, curve, strict=True):
                append(lines, algorithm=name, way=way, size=size, seconds=seconds)
    for row in found.rows if found else ():
        append(
            points,
            algorithm=row.algorithm,
            name=name_of(row.algorithm),
            size=row.size,
            seconds=row.measured,
            measured=format_quantity(row.measured, "s"),
            predicted=format_quantity(row.predicted, "s"),
            error=_percent(row.error),
        )
    data = {"lines": lines, "points": points}
    if not found:
        return data, "Nothing measured yet; lines by the textbook."
    last = [row for row in found.rows if row.size == found.rows[-1].size]
    errors = ", ".join(
        f"{name_of(r.algorithm)} {format_quantity(r.measured, 's')} ({_percent(r.error)})"
        for r in last
    )
    return (
        data,
        f"Measured at {format_quantity(last[0].size, 'B')}, error of the prediction: {errors}.",
    )


def words(found: Crossover) -> str:
    """Say what the ping-pong found, how far the predictions are off, and where algorithms cross."""
    off = sorted(abs(row.error) for row in found.rows)
    by_hand = sorted(abs(row.textbook / row.measured - 1) for row in found.rows)
    at = found.messages
    crossed = [each for each in found.crossings if each.measured and each.predicted]
    lines = [
        f"<b>Ping-pong.</b> 1/β = {format_quantity(1 / at.beta, 'B/s')}, α = {format_quantity(at.alpha, 's')};"
        f" a sender of more than {at.short} B waits {format_quantity(at.acknowledgement, 's')} to know that"
        " it has arrived.",
        f"<b>Error.</b> With these, predictions are off by {_median(off):.0%} (median; worst {off[-1]:.0%});"
        f" with α + nβ as chosen by {_median(by_hand):.0%} (worst {by_hand[-1]:.0%}).",
        *(
            f"<b>Crossing.</b> {escape(name_of(each.one))} and {escape(name_of(each.other))}: measured at"
            f" {format_quantity(each.measured or 0.0, 'B')}, predicted at"
            f" {format_quantity(each.predicted or 0.0, 'B')}."
            for each in crossed
        ),
    ]
    return verdict_html("<br>".join(lines))


def _percent(error: float) -> str:
    return f"{round(100 * error):+d}%".replace("+0%", "0%")


def _median(values: Sequence[float]) -> float:
    return values[len(values) // 2]
