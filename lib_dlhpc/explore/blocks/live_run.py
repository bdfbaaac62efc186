"""A run on MPI ranks of this machine, from a page that stays alive: two buttons, and what came out below them.

The lessons on data, model and hybrid parallelism share it: each says what a click trains and what it tells of it.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import ipywidgets
import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.folder import Folder
from lib_dlhpc.explore.blocks.panel import Panel
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.gantt.chart import gantt_state
from lib_dlhpc.launch.jobs import ENDS, BatchJob
from lib_dlhpc.launch.local import Job, start
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.store import load

PAUSE = 0.1  # s between two looks at a run

Begin = Callable[[Experiment, int], Job | BatchJob]  # starts the ranks of a run
# Trains, and returns the result and the timeline; says the words, or how many ranks are at work.
Train = Callable[..., tuple[dict[str, Any], Timeline]]
S = TypeVar("S")  # what the controls say


class Came(NamedTuple):
    """What is shown of a run that came through."""

    step: Timeline  # for the chart
    said: str  # HTML, above the chart
    result: str  # HTML, below it


def live_run(
    chosen: Callable[[], S],
    work: Callable[[S, Train], Came],
    begin: Begin = start,
    thread: Thread = threading.Thread,
    refused: Callable[[S], str] = lambda _: "",
) -> list[ipywidgets.Widget]:
    """Return the buttons Train and Cancel with what goes on, and a box for chart and tables.

    chosen: what the controls say. work(setting, train): calls train(experiment), any number of times, and tells
    what came of it. refused: why a setting cannot be run, or "". A SpecError or JobError takes the place of
    what is said; the run's folder is gone in any case.
    """

    def train(experiment: Experiment, words: str = "") -> tuple[dict[str, Any], Timeline]:
        ranks = experiment.devices
        at_work = words or f"{ranks_in_words(ranks)} at work ..."
        panel.say(at_work)
        job = begin(experiment, ranks)
        kept = Folder("run", job.folder)  # no longer than this page's kernel
        try:
            while (state := job.state) not in ENDS:
                panel.say("Queued ..." if state == "queued" else at_work)
                if panel.stop.wait(PAUSE):
                    job.cancel()
            return job.wait(), load(job.folder / "timeline.npz")
        finally:
            kept.remove()

    def run(panel: Panel) -> None:
        came = work(setting[0], train)
        panel.show(gantt_state(came.step), came.result)
        panel.said.value = came.said

    def refuse() -> str:
        setting[:] = [chosen()]  # as it was at the click
        return refused(setting[0])

    setting: list[S] = []
    panel = Panel("Train", "gantt", run, "Nothing trained yet.", "Seconds", thread, refuse)
    return list(panel.widget.children)


def one_step(timeline: Timeline, number: int) -> Timeline:
    """Return one step of each rank, from 0 s on: from its update before to its own; the last if there are fewer."""
    update = timeline.where("compute", "update")
    return between(timeline, lambda own: np.append(-np.inf, timeline.stop[own & update]), number)


def between(
    timeline: Timeline, marks: Callable[[NDArray[np.bool_]], NDArray[np.float64]], number: int
) -> Timeline:
    """Return what each rank begins between mark `number` and the next of its own, from 0 s on; or the last two.

    marks: the times (s) at which steps of a rank begin and end, for the mask of its rows.
    """
    kept = np.zeros(len(timeline), dtype=bool)
    for rank in np.unique(timeline.rank):
        own = timeline.rank == rank
        at = np.sort(marks(own))
        begin = min(number, len(at) - 2)
        kept |= own & (timeline.start >= at[begin]) & (timeline.start < at[begin + 1])
    step = timeline.select(kept)
    zero = step.start.min()
    return replace(step, start=step.start - zero, stop=step.stop - zero)


def with_rate(experiment: Experiment, rate: float) -> Experiment:
    """Return the run with the rate (samples/s) of one rank of this machine in the place of the catalog's laptop."""
    batch = experiment.global_batch
    known = {"calibration.rate": rate, "calibration.devices": 1, "calibration.batch": batch}
    return experiment.set(known)


def ranks_in_words(count: int) -> str:
    """Return "1 rank", "2 ranks" ..."""
    return f"{count} rank{'s' if count > 1 else ''}"
