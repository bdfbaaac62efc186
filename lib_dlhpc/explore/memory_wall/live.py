"""A network of twice a cap, on this machine: refused in core, trained out of core, to the bit the same.

The cap is the system's: a process that asks for more gets none. What a run takes is its own peak of
resident memory, above what Python takes before (labs/fit_the_model/capped_run.py).
"""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.panels import problem_html, table_html
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, workbench
from lib_dlhpc.labs.fit_the_model.capped_run import CappedRun, available, capped
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.lifetime.owned import temporary_folder
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.ledger import peak
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.disk import Disk

CAPS = (30e6, 40e6, 60e6, 80e6)  # B
WIDTH, TIMES = 512, 2.05  # of a layer; the cap, in core
PIECE, PIECES = 4 << 20, 8  # B moved at once to time the disk, and how often
WAYS = {"activations": "activations", "all": "everything"}


class Setting(NamedTuple):
    """What the controls say. cap: B."""

    cap: float = 40e6
    batch: int = 512
    what: str = "all"


class Came(NamedTuple):
    """What came of the three runs, and the B/s of the disk: out, back."""

    refused: CappedRun  # in core, under the cap
    inside: CappedRun  # in core, without
    outside: CappedRun  # out of core, under the cap
    disk: tuple[float, float]


def experiment(setting: Setting, offload: str = "none") -> Experiment:
    """Return the run: equal layers, so many that in core they take about twice the cap."""
    weights, kept = 3 * 4 * WIDTH * (WIDTH + 1), 4 * WIDTH * setting.batch
    depth = max(4, round(TIMES * setting.cap / (weights + kept)))
    return read_experiment(
        {
            "model": {"family": "mlp", "widths": [WIDTH] * depth + [10], "activation": "tanh"},
            "dataset": {"name": "digits"},
            "machine": {"name": "laptop", "jitter": 0.0},
            "strategy": {"devices_per_node": 1, "batch": setting.batch, "offload": offload},
        }
    )


def ledger(own: Experiment) -> float:
    """Return the peak in B by the library, without what Python takes before."""
    terms = peak(own).terms
    return sum(value for name, value in terms.items() if name != "driver and workspace")


def run(setting: Setting) -> Came:
    """Run three times, in processes of their own. Raises LabError."""
    own, outside = experiment(setting), experiment(setting, setting.what)
    return Came(capped(own, setting.cap), capped(own), capped(outside, setting.cap), disk_rates())


def disk_rates() -> tuple[float, float]:
    """Return the B/s at which pieces leave memory for a file, and come back, as a run does it."""
    array, found = np.ones(PIECE, np.uint8), []
    with temporary_folder("dlhpc-disk-") as folder, Disk(folder, "rate") as disk:
        for move in (disk.write, disk.write, disk.read):  # places that were written before
            begin = time.perf_counter()
            for number in range(PIECES):
                disk.wait(move(number * PIECE, array))
            found.append(PIECES * PIECE / (time.perf_counter() - begin))
    return found[1], found[2]


def train_under_a_cap(
    measured: Callable[[Setting], Came] = run, thread: Callable[..., Any] = threading.Thread
) -> ipywidgets.Box:
    """Return controls, a button that trains, and what came of it. thread: in what it is done."""
    controls = {
        "cap": slider("Cap", "The system refuses more", [(show(c, "B"), c) for c in CAPS], 40e6),
        "batch": slider(
            "Batch",
            "More samples, more activations",
            [(str(n), n) for n in (64, 256, 512, 1024)],
            512,
        ),
        "what": dropdown(
            "On disk",
            "What waits there, out of core",
            [(words, name) for name, words in WAYS.items()],
            "all",
        ),
    }
    train_it = ipywidgets.Button(
        description="Train", button_style="primary", tooltip="Some ten seconds"
    )
    asked, said, result = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
    said.value = verdict_html("Nothing trained yet." if available() else NOT_HERE)
    train_it.disabled = not available()

    def chosen() -> Setting:
        return Setting(**{name: control.value for name, control in controls.items()})

    def ask() -> None:
        asked.value = verdict_html(asked_words(chosen()))

    def work(setting: Setting) -> None:
        try:
            came = measured(setting)
            said.value, result.value = (
                verdict_html(came_words(setting, came)),
                result_html(setting, came),
            )
        except (LabError, SpecError, OSError) as reason:
            said.value = problem_html(str(reason))
        finally:
            train_it.disabled = False

    def clicked(_: Any) -> None:
        train_it.disabled = True
        said.value = verdict_html(
            "At work: in core under the cap, in core without it, out of core ..."
        )
        thread(target=work, args=(chosen(),), daemon=True).start()

    train_it.on_click(clicked)
    note = "who is refused, what the ledger said before, and how much longer a step takes."
    return workbench(controls, [asked, train_it, said, result], ask, note)


NOT_HERE = (
    "This system does not tell what a process holds and cannot hold it to a cap; Linux does. The experiments"
    " above need none of it."
)


def asked_words(setting: Setting) -> str:
    """Say what a click would train, and what the ledger says of it."""
    own = experiment(setting)
    inside, outside = ledger(own), ledger(experiment(setting, setting.what))
    return (
        f"{len(own.model.options['widths']) - 1} layers of {WIDTH}, {show(own.model.parameters, '')} weights, fp32,"
        f" momentum. The ledger says {show(inside, 'B')} in core, {inside / setting.cap:.2f} times the cap of"
        f" {show(setting.cap, 'B')}, and {show(outside, 'B')} with {WAYS[setting.what]} on disk."
    )


def came_words(setting: Setting, came: Came) -> str:
    """Say who was refused, and whether the results are the same."""
    first = (
        "<b>In core the system refused it.</b>"
        if came.refused.refused
        else "<b>In core it came through</b>, for it needs less than the ledger says."
    )
    if came.outside.refused:
        return (
            f"{first} Out of core as well: with {WAYS[setting.what]} on disk, what stays in memory is more"
            " than the cap."
        )
    same = came.inside.weights == came.outside.weights and came.inside.loss == came.outside.loss
    bits = "the same to the last bit" if same else "not the same"
    return (
        f"{first} Out of core it held {show(came.outside.peak, 'B')} at the most, below the cap, and took"
        f" {came.outside.seconds / came.inside.seconds:.2f} times as long a step. Loss and all weights are"
        f" {bits}."
    )


def calibrated(setting: Setting, came: Came, offload: str = "none") -> Experiment:
    """Return the run with the rate in core (samples/s) and the disk of this machine in place of the catalog's."""
    own = experiment(setting, offload)
    known = {
        "calibration.rate": setting.batch / came.inside.seconds,
        "calibration.devices": 1,
        "calibration.batch": setting.batch,
        "machine.host_link.bandwidth": min(came.disk),
        "machine.host_link.efficiency": 1.0,
        "machine.host_link.latency": 0.0,
    }
    return own.set(known)


def result_html(setting: Setting, came: Came) -> str:
    """Return peak and time of each run beside ledger, prediction and simulation, with errors, and why they part."""
    lines = [
        ["", "ledger", "measured peak", "error", "step predicted", "simulated", "measured", "error"]
    ]
    for words, told, offload in (
        ("in core", came.inside, "none"),
        (f"{WAYS[setting.what]} on disk", came.outside, setting.what),
    ):
        known = calibrated(setting, came, offload)
        held, step = ledger(known), float(predict(known).step_time)
        row = [words, show(held, "B")]
        if told.refused:
            lines.append([*row, "refused", "", show(step, "s"), "", "refused", ""])
            continue
        played = breakdown(simulate(known)).step_time
        row += [
            show(told.peak, "B"),
            f"{held / told.peak - 1:+.0%}",
            show(step, "s"),
            show(played, "s"),
        ]
        off = "calibrates" if offload == "none" else f"{step / told.seconds - 1:+.0%}"
        lines.append([*row, show(told.seconds, "s"), off])
    out, back = (show(rate, "B/s") for rate in came.disk)
    return table_html(lines) + verdict_html(
        "<b>Why they part.</b> The ledger counts arrays, the system pages; out of core it counts the layers at hand,"
        " while reading ahead and writing behind hold some more. The file was written at"
        f" {out} and read at {back} just now, which is the system's memory of the file rather than the disk: where"
        " memory is short it is slower. Moving takes a core of its own, and here it may share one. What the"
        " simulation has no part for, it leaves out."
    )
