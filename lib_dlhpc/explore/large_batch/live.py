"""Break it, repair it: runs on digits in this kernel, seconds long, their curves beside each other.

A run has a thread of its own, on one rank without MPI; Cancel ends it within an epoch.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from html import escape
from math import ceil
from time import monotonic
from typing import Annotated, Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.runner import Cancelled, Runner, Thread
from lib_dlhpc.explore.blocks.workbench import wall_html
from lib_dlhpc.explore.large_batch.charts import RUNS, Curve, runs_state
from lib_dlhpc.explore.large_batch.rules import COLLAPSED
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.studies.large_batch import CHANCE, DIGITS, Rule, Trial, experiment_of
from lib_dlhpc.training.learning_rate import rate_at
from lib_dlhpc.training.rank import Diverged
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.threads import one_thread
from lib_dlhpc.training.trainer import train

SCALED = "linear scaling"
RATES = {SCALED: 0.02, "SGD, rate as it is": 0.02, "LARS": 10.0}
SHORT = {SCALED: "linear", "SGD, rate as it is": "SGD", "LARS": "LARS"}  # on the chart
TIMES = Slider("Rate ×", "Times the rate of the rule", (0.25, 0.5, 1.0, 2.0, 4.0), "{:g}".format)
WARM_UP = Slider(
    "Warm-up", "Epochs in which the rate rises", (0.0, 2.0, 8.0, 16.0), "{:g} epochs".format
)
RULE = Dropdown("Rule", "How the rate follows the batch", RATES.keys())
PAUSE = 0.2  # s between two pictures of a run, at least
EPOCHS = DIGITS.epochs
LEARNED = "This run learned."
LEVEL = (CHANCE, f"chance: {CHANCE:.0%}")


class Setting(NamedTuple):
    """A run. times: of the rate of the rule."""

    batch: Annotated[int, Slider("Batch", "Samples of one step", [2**k for k in range(4, 11)])] = (
        128
    )
    rule: Annotated[str, RULE] = SCALED
    times: Annotated[float, TIMES] = 1.0
    warm_up: Annotated[float, WARM_UP] = 8.0
    seed: Annotated[int, Slider("Seed", "Different initial weights and sample order", range(5))] = 0

    @property
    def name(self) -> str:
        """What the run is called on the chart."""
        factor = "" if self.times == 1 else f", rate × {self.times:g}"
        return f"{SHORT[self.rule]} {self.batch:,}{factor}"


def break_and_repair(thread: Thread = threading.Thread) -> Bench[Setting]:
    """Return the experiment: controls, a button that trains, and the curves of the last six runs."""
    runs, wall = chart("live_runs"), ipywidgets.HTML()
    clear = ipywidgets.Button(
        description="Clear", tooltip="Removes all runs from the chart", layout={"width": "auto"}
    )
    curves: list[Curve] = []

    def work(runner: Runner) -> None:
        clear.disabled = True
        try:
            _train(runner, bench.setting, curves, runs, wall)
        finally:
            clear.disabled = False

    def cleared(_: Any = None) -> None:
        curves.clear()
        runs.update(*runs_state(curves, EPOCHS, LEVEL))
        wall.value = ""

    cleared()
    clear.on_click(cleared)
    runner = Runner(
        "Train",
        work,
        "Each run draws its accuracy below.",
        "Some seconds; the page stays usable",
        thread,
    )
    row = ipywidgets.HBox([runner.run, runner.cancel, clear], layout={"flex_flow": "row wrap"})
    look = "the batch at which linear scaling breaks; then what repairs it there."
    results = ["rate_schedule", row, runner.said, wall, runs]
    bench = Bench(Setting(), asked_view, results, look=look)
    return bench


def _train(
    runner: Runner, chosen: Setting, curves: list[Curve], runs: Any, wall: ipywidgets.HTML
) -> None:
    """Train, with the curve of the run on the chart `runs` as it grows."""
    run, name, words = begun(chosen.name), escape(chosen.name), "Done."
    curves[:] = [*curves[-len(RUNS) + 1 :], run]
    drawn = 0.0

    def report(epoch: float, share: float) -> None:
        nonlocal drawn
        run.add(epoch, share)
        if monotonic() - drawn > PAUSE:
            drawn = monotonic()
            runner.say(f"{name} is training ...", epoch / EPOCHS)
            runs.update(*runs_state(curves, EPOCHS, LEVEL))

    runner.say(f"{name} is training ...", 0.0)
    try:
        learn(experiment_of_setting(chosen), report, runner.check)
    except Cancelled:
        words = f"Cancelled after epoch {run.epochs[-1]:.0f}."
    except Diverged as error:
        words = f"Diverged after epoch {run.epochs[-1]:.0f}: {error}."
        report(min(run.epochs[-1] + 1, EPOCHS), CHANCE)
    runs.update(*runs_state(curves, EPOCHS, LEVEL))
    wall.value = wall_html(run_wall(chosen, run.accuracy[-1], runner.stop.is_set()), LEARNED)
    runner.say(f"{name}: {words}")


def experiment_of_setting(setting: Setting) -> Experiment:
    """Return the experiment that the controls describe."""
    rule = Rule(
        (setting.batch,),
        (RATES[setting.rule] * setting.times,),
        (setting.warm_up,),
        "lars" if setting.rule == "LARS" else "momentum",
        scaled=setting.rule == SCALED,
    )
    study = replace(DIGITS, rules={"live": rule})
    trial = Trial("test", "live", setting.batch, rule.rates[0], setting.warm_up, setting.seed)
    return experiment_of(study, trial)


def begun(name: str) -> Curve:
    """Return a run before its first step, which answers by chance."""
    return Curve(name, [0.0], [CHANCE])


def learn(
    experiment: Experiment, report: Callable[[float, float], None], check: Callable[[], None]
) -> None:
    """Train on one rank in this process; report(epoch, accuracy) after each epoch.

    check: called after each epoch; raises Cancelled to end the run. Raises Diverged as `train` does.
    """

    def reported(row: dict[str, Any]) -> None:
        check()
        if row.get("accuracy") is not None:
            report(row["epoch"], row["accuracy"])

    with one_thread(), np.errstate(over="ignore", invalid="ignore"):
        train(experiment, SingleRank(), report=reported)


def asked_view(setting: Setting) -> View:
    """Return what a click would train: the rate over the epochs, and the steps."""
    experiment, epochs = experiment_of_setting(setting), float(EPOCHS)
    at = np.unique([*np.linspace(0, epochs, 81), setting.warm_up])
    rates = [rate_at(experiment.training, float(x), epochs, setting.batch) for x in at]
    top, factor = int(np.argmax(rates)), setting.batch / DIGITS.base_batch
    summary = (
        f"The rate begins at {rates[0]:.3g} and peaks at {rates[top]:.3g} in epoch {at[top]:.3g}."
    )
    product = f"{experiment.training.rate:g} × {factor:g} = " if setting.rule == SCALED else ""
    each = ceil(experiment.dataset.trained / setting.batch)
    words = (
        f"<b>{factor:g} times the base batch of {DIGITS.base_batch}, rate {product}{peak_rate(setting):.3g}</b> after"
        f" the warm-up: {each} steps per epoch, {each * EPOCHS:,} in all; seed {setting.seed}."
    )
    return View(words, charts={"rate_schedule": ({"line": {"x": at, "y": rates}}, summary)})


def peak_rate(setting: Setting) -> float:
    """Return the rate after the warm-up."""
    factor = setting.batch / DIGITS.base_batch if setting.rule == SCALED else 1.0
    return RATES[setting.rule] * setting.times * factor


def run_wall(setting: Setting, accuracy: float, cancelled: bool) -> str:
    """Say why a run learned nothing, or nothing."""
    if cancelled or accuracy > COLLAPSED:
        return ""
    if setting.rule == "LARS":
        return f"{setting.name}: {accuracy:.0%}. Each layer moves by its share of |w|; even that was too far."
    return (
        f"{setting.name}: {accuracy:.0%} right, chance is {CHANCE:.0%}. At rate {peak_rate(setting):.3g} a step"
        " leaves the region in which the gradient is valid. Try a smaller rate, a longer warm-up, or LARS."
    )
