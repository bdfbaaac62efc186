"""A network of twice a cap, on this machine: refused in core, trained out of core, bitwise identical.

The operating system enforces the cap: allocations beyond it fail. A run's memory is its peak of resident
memory, above what Python takes before (labs/fit_the_model/capped_run.py).
"""

import threading
import time
from collections.abc import Callable
from typing import Annotated, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View, amount
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.runner import Runner, Thread
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.labs.fit_the_model.capped_run import CappedRun, available, capped
from lib_dlhpc.lifetime.owned import temporary_folder
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory.rank_memory import peak
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.disk import Disk

CAPS = (30e6, 40e6, 60e6, 80e6)  # B
WIDTH, TIMES = 512, 2.05  # of a layer; the cap, in core
PIECE, PIECES = 4 << 20, 8  # B moved at once to time the disk, and how often
WAYS = {"activations": "activations", "everything": "all"}
NOT_HERE = (
    "This system neither reports the memory of a process nor enforces a cap; Linux does. The experiments"
    " above need none of it."
)
HEAD = ("", "ledger", "measured peak", "error", "step predicted", "simulated", "measured", "error")


class Setting(NamedTuple):
    """What a click trains. cap: B."""

    cap: Annotated[float, Slider("Cap", "The system refuses more", CAPS, amount("B"))] = 40e6
    batch: Annotated[
        int, Slider("Batch", "More samples, more activations", (64, 256, 512, 1024), str)
    ] = 512
    what: Annotated[str, Dropdown("On disk", "What is offloaded, out of core", WAYS)] = "all"

    @property
    def words(self) -> str:
        """What is offloaded, as the list of choices says it."""
        return next(words for words, what in WAYS.items() if what == self.what)


class Outcome(NamedTuple):
    """The three runs, and the B/s of the disk: out, back."""

    refused: CappedRun  # in core, under the cap
    inside: CappedRun  # in core, without
    outside: CappedRun  # out of core, under the cap
    disk: tuple[float, float]


def experiment(setting: Setting, offload: str = "none") -> Experiment:
    """Return the run: enough equal layers to take about twice the cap in core."""
    weights, kept = 3 * 4 * WIDTH * (WIDTH + 1), 4 * WIDTH * setting.batch
    depth = max(4, round(TIMES * setting.cap / (weights + kept)))
    return Experiment(
        model={"family": "mlp", "widths": [WIDTH] * depth + [10], "activation": "tanh"},
        dataset="digits",
        machine={"name": "laptop", "jitter": 0.0},
        strategy={"devices_per_node": 1, "batch": setting.batch, "offload": offload},
    )


def ledger(own: Experiment) -> float:
    """Return the peak in B by the library, without what Python takes before."""
    moment = peak(own)
    return moment.total - moment.terms["driver and workspace"]


def run(setting: Setting) -> Outcome:
    """Run three times, in processes of their own. Raises LabError."""
    own, outside = experiment(setting), experiment(setting, setting.what)
    return Outcome(
        capped(own, setting.cap), capped(own), capped(outside, setting.cap), disk_rates()
    )


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
    measured: Callable[[Setting], Outcome] = run, thread: Thread = threading.Thread
) -> Bench[Setting]:
    """Return controls, a button that trains, and what came of it. thread: in what it is done."""
    result = ipywidgets.HTML()

    def work(runner: Runner) -> None:
        setting = bench.setting
        runner.say("At work: in core under the cap, in core without it, out of core ...")
        outcome = measured(setting)
        runner.check()
        result.value = result_html(setting, outcome)
        runner.say(outcome_words(setting, outcome))

    idle = "Nothing trained yet." if available() else NOT_HERE
    runner = Runner("Train", work, idle, "Some ten seconds", thread)
    runner.offer(available())
    look = "which run is refused, what the ledger predicted, and how much longer a step takes."
    bench = Bench(Setting(), asked_view, [*runner.widget.children, result], look=look)
    return bench


def asked_view(setting: Setting) -> View:
    """Say what a click would train, and what the ledger says of it."""
    own = experiment(setting)
    inside, outside = ledger(own), ledger(experiment(setting, setting.what))
    return View(
        f"{len(own.model.options['widths']) - 1} layers of {WIDTH}, {show(own.model.parameters, '')} weights, fp32,"
        f" momentum. The ledger says {show(inside, 'B')} in core, {inside / setting.cap:.2f} times the cap of"
        f" {show(setting.cap, 'B')}, and {show(outside, 'B')} with {setting.words} on disk."
    )


def outcome_words(setting: Setting, outcome: Outcome) -> str:
    """Say which run was refused, and whether the results are the same."""
    inside, outside = outcome.inside, outcome.outside
    first = "<b>In core the run finished</b>, since it needs less than the ledger says."
    if outcome.refused.refused:
        first = "<b>In core the system refused it.</b>"
    if outside.refused:
        return f"{first} It did so out of core, too: with {setting.words} on disk, the rest is larger than the cap."
    same = (inside.weights, inside.loss) == (outside.weights, outside.loss)
    return (
        f"{first} Out of core it needed {show(outside.peak, 'B')} at most, below the cap, and took"
        f" {outside.seconds / inside.seconds:.2f} times as long a step. Loss and all weights are"
        f" {'bitwise identical' if same else 'not the same'}."
    )


def calibrated(setting: Setting, outcome: Outcome, offload: str = "none") -> Experiment:
    """Return the run with the rate in core (samples/s) and the disk of this machine in place of the catalog's."""
    known = {
        "calibration.rate": setting.batch / outcome.inside.seconds,
        "calibration.devices": 1,
        "calibration.batch": setting.batch,
        "machine.host_link.bandwidth": min(outcome.disk),
        "machine.host_link.efficiency": 1.0,
        "machine.host_link.latency": 0.0,
    }
    return experiment(setting, offload).set(known)


def result_html(setting: Setting, outcome: Outcome) -> str:
    """Return peak and time of each run beside ledger, prediction and simulation, with errors, and why they differ."""
    lines: list[tuple[str, ...]] = [HEAD]
    for words, ran, offload in (
        ("in core", outcome.inside, "none"),
        (f"{setting.words} on disk", outcome.outside, setting.what),
    ):
        known = calibrated(setting, outcome, offload)
        held, step = ledger(known), float(predict(known).step_time)
        size, predicted = show(held, "B"), show(step, "s")
        if ran.refused:
            lines.append((words, size, "refused", "", predicted, "", "refused", ""))
            continue
        real, over = show(ran.peak, "B"), f"{held / ran.peak - 1:+z.0%}"
        simulated, took = show(breakdown(simulate(known)).step_time, "s"), show(ran.seconds, "s")
        off = "calibrates" if offload == "none" else f"{step / ran.seconds - 1:+z.0%}"
        lines.append((words, size, real, over, predicted, simulated, took, off))
    out, back = (show(rate, "B/s") for rate in outcome.disk)
    return table_html(lines) + verdict_html(
        "<b>Why they differ.</b> The ledger counts arrays, the system pages; out of core it counts the layers in use,"
        " while prefetch and write-behind buffers take some more. The file was written at"
        f" {out} and read at {back} just now, which is the page cache rather than the disk: where"
        " memory is short it is slower. Transfers need a core of their own, and may have to share one here."
    )
