"""The run at 32 times the base batch, on MPI ranks of this machine: curves live, cancel, and what was foretold.

`dlhpc run labs/experiments/large_batch.toml -n 4` runs the same experiment.
"""

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.style import PAGE_STYLE
from lib_dlhpc.explore.blocks.three_ways import terms_html, three_ways
from lib_dlhpc.explore.blocks.workbench import dropdown, verdict_html
from lib_dlhpc.explore.failures.folder import Folder
from lib_dlhpc.explore.large_batch.charts import Curve, runs_state
from lib_dlhpc.explore.large_batch.live import Cancelled, learn
from lib_dlhpc.explore.large_batch.rules import base, mean
from lib_dlhpc.launch.jobs import ENDS, BatchJob
from lib_dlhpc.launch.local import Job, JobError, start
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.large_batch import CHANCE, MNIST, Trial, experiment_of

RANKS = 4
BATCH, SEED = 1024, 0
PAUSE = 0.25  # s between two looks at a run


@cache
def experiment(precision: str = "fp32", ranks: int = RANKS) -> Experiment:
    """Return the run: LARS at 32 times the base batch, its rate from the validation split, shared by ranks."""
    chosen = mean("lars", BATCH)
    alone = experiment_of(MNIST, Trial("test", "lars", BATCH, chosen.rate, chosen.warm_up, SEED))
    shared = {"strategy.devices_per_node": ranks, "strategy.batch": BATCH // ranks}
    return alone.set({**shared, "strategy.precision": precision})


def train_here(
    begin: Callable[[Experiment, int], Job | BatchJob] = start,
    thread: Callable[..., Any] = threading.Thread,
) -> ipywidgets.VBox:
    """Return a button that trains on MPI ranks, then on one; one that cancels; and the curves as they come.

    begin: what starts the ranks. thread: in what they are watched.
    """
    train_it = ipywidgets.Button(
        description=f"Train on {RANKS} MPI ranks",
        button_style="primary",
        layout={"width": "auto"},
        tooltip="Takes some ten seconds; the page stays usable",
    )
    cancel = ipywidgets.Button(description="Cancel", tooltip="Ends all ranks", disabled=True)
    numbers = dropdown(
        "Numbers", "In which ranks compute", [("float32", "fp32"), ("float64", "fp64")], "fp32"
    )
    said = ipywidgets.HTML(
        verdict_html("Not run yet. It takes some ten seconds; the page stays usable.")
    )
    epochs = float(experiment().run.epochs)
    level = (base().mean, f"the base batch, stored: {base().mean:.1%}")
    figure, below = chart("live_runs", *runs_state([], epochs, level)), ipywidgets.VBox([])
    stop = threading.Event()

    def draw(*curves: Curve) -> None:
        figure.update(*runs_state(curves, epochs, level))

    def work(precision: str) -> None:
        kept = None
        try:
            job = begin(experiment(precision), RANKS)
            kept = Folder("run", job.folder)  # no longer than this page's kernel
            below.children = (figure,)
            while job.state not in ENDS:
                if stop.wait(PAUSE):
                    job.cancel()
                draw(curve_of(job.metrics()))
            ranks, result = curve_of(job.metrics()), job.wait()
            alone = Curve("one rank", [0.0], [CHANCE])

            def told(epoch: float, accuracy: float) -> None:
                alone.epochs.append(epoch)
                alone.accuracy.append(accuracy)

            learn(experiment(precision, 1), told, stop)
            draw(ranks, alone)
            said.value = result_words(result, alone.accuracy[-1], precision)
        except SpecError as reason:
            said.value = problem_html(f"{reason} Everything above needs no MPI.")
        except (JobError, Cancelled) as reason:
            said.value = problem_html(str(reason) or "The run was cancelled.")
        finally:
            if kept is not None:
                kept.remove()
            train_it.disabled, cancel.disabled = False, True

    def started(_: Any) -> None:
        train_it.disabled, cancel.disabled = True, False
        stop.clear()
        said.value = verdict_html(f"{RANKS} ranks are at work ...")
        thread(target=work, args=(numbers.value,), daemon=True).start()

    train_it.on_click(started)
    cancel.on_click(lambda _: stop.set())
    row = ipywidgets.HBox([train_it, cancel, numbers], layout={"flex_flow": "row wrap"})
    box = ipywidgets.VBox([ipywidgets.HTML(PAGE_STYLE), row, said, below])
    box.add_class("dlhpc-results")
    return box


def curve_of(metrics: list[dict[str, Any]]) -> Curve:
    """Return the accuracy after each epoch that a run has reported."""
    rows = [row for row in metrics if row.get("accuracy") is not None]
    return Curve(
        f"{RANKS} ranks",
        [0.0, *(row["epoch"] for row in rows)],
        [CHANCE, *(row["accuracy"] for row in rows)],
    )


def result_words(result: dict[str, Any], alone: float, precision: str) -> str:
    """Lay what came out beside what was foretold, and say why they part. alone: accuracy of one rank."""
    columns = three_ways(experiment(precision), result["terms"])
    ratio = sum(columns["measured"].values()) / sum(columns["predicted"].values())
    return (
        verdict_html(
            f"<b>Accuracy.</b> {RANKS} ranks {result['accuracy']:.1%}, one rank {alone:.1%}. {ROUNDING[precision]}"
        )
        + terms_html(columns)
        + verdict_html(
            f"<b>Time.</b> A step takes {ratio:.2g} times the prediction. <b>Why they"
            " part.</b> The prediction is for the laptop of the catalog, with a core for each rank, and not calibrated"
            " to this machine. Where ranks share cores they wait for their turn: look at what waiting and"
            " communication took."
        )
    )


ROUNDING = {
    "fp32": (
        "Samples and steps are the same; ranks add in another order, which changes the last digit. At this rate"
        f" {mean('lars', BATCH).steps} steps can make that as large as another seed: look when the curves part. Is it"
        " rounding, or a mistake? Ask float64."
    ),
    "fp64": "With twice the digits rounding has no time to grow: the curves lie on each other.",
}
