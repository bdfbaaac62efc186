"""Whole steps for real: a network trained on MPI ranks of this machine, its timeline, and what was foretold.

The rate of a run on one rank is the only thing that the prediction is told of this machine, so it foretells
nothing until one rank has run. `dlhpc run labs/experiments/digits.toml -n 4` is such a run outside the page.
"""

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.charts import chart
from lib_dlhpc.explore.gantt import gantt_state
from lib_dlhpc.explore.panels import problem_html, table_html
from lib_dlhpc.explore.three_ways import terms_html, three_ways
from lib_dlhpc.explore.workbench import dropdown, slider, workbench
from lib_dlhpc.launch.local import Job, JobError, start
from lib_dlhpc.predict import predict
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.store import load

RANKS, BUCKETS = (1, 2, 3, 4), (1e3, 8e3, 100e3)
BATCH, EPOCHS = 240, 12
SHOWN = 10  # the step on the chart: the first ones make connections and fill caches
PAUSE = 0.1  # s between two looks at a run
WHEN = {True: "during backward", False: "after backward"}


class Setting(NamedTuple):
    """What the controls say. bucket: B."""

    ranks: int = 1
    bucket: float = 8e3
    overlap: bool = True


Rates = dict[Setting, float]  # samples/s


def experiment(setting: Setting) -> Experiment:
    """Return the run: a small network on digits, the same global batch on any number of ranks."""
    shared: dict[str, Any] = {
        "nodes": 1,
        "devices_per_node": setting.ranks,
        "batch": BATCH // setting.ranks,
    }
    shared["precision"] = "fp64"  # rounding must not tell one number of ranks from another
    exchange = {"allreduce": "ring", "bucket": setting.bucket, "overlap": setting.overlap}
    tables: dict[str, Any] = {
        "model": "cnn-digits", "dataset": "digits", "machine": "laptop",
        "strategy": {**shared, **exchange}, "run": {"epochs": EPOCHS}, "training": {"rate": 0.05},
    }  # fmt: skip
    return read_experiment(tables)


def train_here(
    begin: Callable[[Experiment, int], Job] = start, thread: Callable[..., Any] = threading.Thread
) -> ipywidgets.Box:
    """Return controls, a button that trains, the step that was measured, and rates beside predictions.

    begin: what starts the ranks. thread: in what they are watched.
    """
    controls = {
        "ranks": slider("Ranks", "They share the batch", [(str(n), n) for n in RANKS], 1),
        "bucket": dropdown("Bucket", "Gradients that leave together",
                           [(show(size, "B"), size) for size in BUCKETS], 8e3),
        "overlap": dropdown("Exchange", "When buckets leave",
                            [(words, early) for early, words in WHEN.items()], True),
    }  # fmt: skip
    train_it = ipywidgets.Button(description="Train", button_style="primary", tooltip="Seconds")
    cancel = ipywidgets.Button(description="Cancel", tooltip="Ends all ranks", disabled=True)
    asked, said = ipywidgets.HTML(), ipywidgets.HTML(_note("Nothing trained yet."))
    figure, result, below = chart("gantt"), ipywidgets.HTML(), ipywidgets.VBox([])
    rates: Rates = {}
    stop = threading.Event()

    def chosen() -> Setting:
        return Setting(**{name: control.value for name, control in controls.items()})

    def ask() -> None:
        asked.value = _note(asked_words(chosen()))

    def work(setting: Setting) -> None:
        job = None
        try:
            job = begin(experiment(setting), setting.ranks)
            while job.state == "running":
                if stop.wait(PAUSE):
                    job.cancel()
            told, timeline = job.wait(), load(job.folder / "timeline.npz")
            rates[setting] = told["samples"] / told["seconds"]
            figure.update(**gantt_state(one_step(timeline)))
            below.children = (figure, result)
            said.value = _note(
                f"<b>{show(rates[setting], 'samples/s')}</b> on {_ranks(setting.ranks)}; test accuracy"
                f" {told['accuracy']:.1%} after {EPOCHS} epochs, as on any other number of ranks."
            )
            result.value = result_html(setting, told["terms"], rates)
        except (JobError, SpecError) as reason:
            said.value = _note("Cancelled.") if stop.is_set() else problem_html(str(reason))
        finally:
            if job is not None:
                shutil.rmtree(job.folder, ignore_errors=True)
            train_it.disabled, cancel.disabled = False, True

    def clicked(_: Any) -> None:
        train_it.disabled, cancel.disabled = True, False
        stop.clear()
        said.value = _note(f"{_ranks(chosen().ranks)} at work ...")
        thread(target=work, args=(chosen(),), daemon=True).start()

    train_it.on_click(clicked)
    cancel.on_click(lambda _: stop.set())
    row = ipywidgets.HBox([train_it, cancel])
    note = "how soon a bucket leaves, and what the cores of this machine make of four ranks."
    return workbench(controls, [asked, row, said, below], ask, note)


def asked_words(setting: Setting) -> str:
    """Say what a click would train."""
    if setting.ranks == 1:
        return f"1 rank with the whole batch of {BATCH}: nothing to exchange."
    return (
        f"{setting.ranks} ranks, each with {BATCH // setting.ranks} samples of a batch of {BATCH}; buckets of"
        f" {show(setting.bucket, 'B')} leave {WHEN[setting.overlap]}."
    )


def one_step(timeline: Timeline, number: int = SHOWN) -> Timeline:
    """Return one step of each rank of a timeline, from 0 s on: the last one if there are fewer."""
    forward, kept = timeline.where("compute", "forward"), np.zeros(len(timeline.start), dtype=bool)
    for rank in np.unique(timeline.rank):
        own = timeline.rank == rank
        begins = np.sort(timeline.start[own & forward])
        at = min(number, len(begins) - 1)
        begin, end = begins[at], np.append(begins, np.inf)[at + 1]
        kept |= own & (timeline.start >= begin) & (timeline.start < end)
    step = timeline.select(kept)
    zero = step.start.min()
    return replace(step, start=step.start - zero, stop=step.stop - zero)


def result_html(setting: Setting, measured: Mapping[str, float], rates: Rates) -> str:
    """Return the terms of this run three ways and all rates so far beside predictions, and why they part."""
    known = next((rate for each, rate in rates.items() if each.ranks == 1), None)
    if known is None:
        return _note("Train on one rank as well: its rate is what the prediction starts from.")
    lines = [["ranks", "bucket", "exchange", "measured", "predicted", "error"]]
    for each in sorted(rates):
        run = [str(each.ranks), show(each.bucket, "B"), WHEN[each.overlap]]
        if each.ranks == 1:
            run[1:], beside = ["", ""], ["calibrates", ""]
        else:
            foretold = float(predict(calibrated(each, known)).throughput)
            beside = [show(foretold, "samples/s"), f"{foretold / rates[each] - 1:+.0%}"]
        lines.append([*run, show(rates[each], "samples/s"), *beside])
    ways = three_ways(calibrated(setting, known), measured)
    return (
        terms_html(ways)
        + table_html(lines)
        + _note(
            "<b>Why they part.</b> The prediction gives each rank a core of its own and knows of no Python between"
            " two messages. A step this short is mostly such work, and ranks that share a core wait for their"
            " turn, which the record calls communication."
        )
    )


def calibrated(setting: Setting, rate: float) -> Experiment:
    """Return the run with the rate of one rank (samples/s) in the place of the catalog's laptop."""
    known = {"calibration.rate": rate, "calibration.devices": 1, "calibration.batch": BATCH}
    return experiment(setting).set(known)


def _ranks(count: int) -> str:
    return f"{count} rank{'s' if count > 1 else ''}"


def _note(text: str) -> str:
    return f'<p class="dlhpc-verdict" role="status">{text}</p>'
