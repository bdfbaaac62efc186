"""The run at 32 times the base batch, on MPI ranks of this machine: live curves beside its prediction.

`dlhpc run labs/experiments/large_batch.toml -n 4` runs the same experiment.
"""

import threading
from functools import cache
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.folder import Folder
from lib_dlhpc.explore.blocks.live_run import Begin
from lib_dlhpc.explore.blocks.panel import Panel
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.blocks.three_ways import terms_html, three_ways
from lib_dlhpc.explore.blocks.workbench import dropdown, verdict_html
from lib_dlhpc.explore.large_batch.charts import Curve, runs_state
from lib_dlhpc.explore.large_batch.live import begun, learn
from lib_dlhpc.explore.large_batch.rules import base, mean
from lib_dlhpc.launch.jobs import ENDS
from lib_dlhpc.launch.local import start
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.studies.large_batch import MNIST, Trial, experiment_of

RANKS = 4
BATCH, SEED = 1024, 0
PAUSE = 0.25  # s between two looks at a run
PRECISIONS = [("float32", "fp32"), ("float64", "fp64")]


@cache
def experiment(precision: str = "fp32", ranks: int = RANKS) -> Experiment:
    """Return the run: LARS at 32 times the base batch, its rate from the validation split, shared by ranks."""
    chosen = mean("lars", BATCH)
    alone = experiment_of(MNIST, Trial("test", "lars", BATCH, chosen.rate, chosen.warm_up, SEED))
    shared = {"strategy.devices_per_node": ranks, "strategy.batch": BATCH // ranks}
    return alone.set({**shared, "strategy.precision": precision})


def train_here(begin: Begin = start, thread: Thread = threading.Thread) -> ipywidgets.VBox:
    """Return a button that trains on MPI ranks, then on one, and the curves as they come.

    begin: what starts the ranks.
    """
    numbers = dropdown("Numbers", "Precision of the ranks", PRECISIONS, "fp32")
    epochs = float(experiment().run.epochs)
    level = (base().mean, f"the base batch, stored: {base().mean:.1%}")

    def work(panel: Panel) -> None:
        def draw(*curves: Curve) -> None:
            panel.show(runs_state(curves, epochs, level))

        precision = numbers.value
        panel.say(f"{RANKS} ranks are at work ...")
        job = begin(experiment(precision), RANKS)
        kept = Folder("run", job.folder)  # no longer than this page's kernel
        try:
            while job.state not in ENDS:
                if panel.stop.wait(PAUSE):
                    job.cancel()
                draw(curve_of(job.metrics()))
            ranks, result = curve_of(job.metrics()), job.wait()
        finally:
            kept.remove()
        alone = begun("one rank")
        learn(experiment(precision, 1), alone.add, panel.check)
        draw(ranks, alone)
        panel.say(result_words(result, alone.accuracy[-1], precision))

    idle = "Not run yet. It takes some ten seconds; the page stays usable."
    panel = Panel(f"Train on {RANKS} MPI ranks", "live_runs", work, idle, thread=thread)
    panel.widget.children = (numbers, *panel.widget.children)
    panel.widget.add_class("dlhpc-results")
    return panel.widget


def curve_of(metrics: list[dict[str, Any]]) -> Curve:
    """Return the accuracy after each epoch that a run has reported."""
    curve = begun(f"{RANKS} ranks")
    for row in metrics:
        if row.get("accuracy") is not None:
            curve.add(row["epoch"], row["accuracy"])
    return curve


def result_words(result: dict[str, Any], alone: float, precision: str) -> str:
    """Lay the result beside its prediction, and say why they differ. alone: accuracy of one rank."""
    ways = three_ways(experiment(precision), result["terms"])
    ratio = sum(ways["measured"].values()) / sum(ways["predicted"].values())
    accuracy = f"<b>Accuracy.</b> {RANKS} ranks {result['accuracy']:.1%}, one rank {alone:.1%}. {ROUNDING[precision]}"
    time = (
        f"<b>Time.</b> A step takes {ratio:.2g} times the prediction. <b>Why they differ.</b> The prediction is for"
        " the laptop of the catalog, with a core for each rank, and not calibrated to this machine. Ranks that share a"
        " core wait for it: look at the terms of waiting and communication."
    )
    return verdict_html(accuracy) + terms_html(ways) + verdict_html(time)


ROUNDING = {
    "fp32": (
        "Samples and steps are the same; ranks sum in another order, which changes the last digit. At this rate"
        f" {mean('lars', BATCH).steps} steps can make that as large as another seed: look at when the curves diverge."
        " Is it rounding, or a bug? Try float64."
    ),
    "fp64": "With twice the digits rounding has no time to grow: the curves coincide.",
}
