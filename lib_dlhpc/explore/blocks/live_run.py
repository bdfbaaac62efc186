"""A run on MPI ranks of this machine, from a page that stays alive: two buttons, and what came out below them.

@on_ranks(Setting(), asked_words)
def train_here(setting: Setting, train: Train) -> Came:
    'Look for the first allreduce of a step.'
    result, timeline = train(experiment(setting))
    return Came(one_step(timeline, 10), said_html(result), result_html(result))

train_here()                controls, the buttons, and what came out: a Bench
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.bench import S, View
from lib_dlhpc.explore.blocks.folder import Folder
from lib_dlhpc.explore.blocks.panel import AtClick, Panel, at_click
from lib_dlhpc.explore.gantt.chart import gantt_state
from lib_dlhpc.launch.jobs import ENDS, BatchJob
from lib_dlhpc.launch.local import Job, start
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.store import load

PAUSE = 0.1  # s between two looks at a run
ALONE_FIRST = "One rank is at work, to calibrate and to compare with ..."
ALONE_MISSING = "Train on one rank as well: its rate is what the prediction starts from."
CALIBRATES = ["calibrates", ""]  # in the place of predicted_cells, of one rank

Begin = Callable[[Experiment, int], Job | BatchJob]  # starts the ranks of a run


class Ran(NamedTuple):
    """A run: samples/s, losses on batches and on test samples, s of a step by term."""

    rate: float
    loss: float
    test_loss: float = 0.0
    terms: Mapping[str, float] = {}


class Came(NamedTuple):
    """What is shown of a run that came through."""

    step: Timeline  # for the chart
    said: str  # HTML, above the chart
    result: str  # HTML, below it


@dataclass(frozen=True)
class Train:
    """Trains any number of times, and returns the result and the timeline; the run's folder is gone in any case."""

    panel: Panel
    begin: Begin

    @property
    def known(self) -> dict[Any, Any]:
        """What clicks found so far."""
        return self.panel.known

    def beside_one_rank(self, setting: Any, experiment: Callable[[Any], Experiment]) -> Timeline:
        """Train as the setting says, after its `alone` unless that is known; both are then known, as Ran."""
        if setting.alone not in self.known:
            self.once(setting.alone, experiment, ALONE_FIRST)
        return self.once(setting, experiment)

    def once(
        self, setting: Any, experiment: Callable[[Any], Experiment], words: str = ""
    ) -> Timeline:
        """Train as a setting says, and keep what came out as a Ran."""
        out, timeline = self(experiment(setting), words)
        self.known[setting] = Ran(
            out["samples"] / out["seconds"], out["loss"], out["test_loss"], out["terms"]
        )
        return timeline

    def __call__(self, experiment: Experiment, words: str = "") -> tuple[dict[str, Any], Timeline]:
        """Train, and say the words meanwhile, or how many ranks are at work."""
        panel, ranks = self.panel, experiment.devices
        at_work = words or f"{count(ranks, 'rank')} at work ..."
        panel.say(at_work)
        job = self.begin(experiment, ranks)
        kept = Folder("run", job.folder)  # no longer than this page's kernel
        try:
            while (state := job.state) not in ENDS:
                panel.say("Queued ..." if state == "queued" else at_work)
                if panel.stop.wait(PAUSE):
                    job.cancel()
            return job.wait(), load(job.folder / "timeline.npz")
        finally:
            kept.remove()


def on_ranks(
    first: S, asked: Callable[[S], str | View], **options: Any
) -> Callable[[Callable[[S, Train], Came]], AtClick[S]]:
    """Make work(setting, train) an experiment, a button that trains on ranks, started by `begin` where that is given.

    first, asked, options: as of at_click. A SpecError or JobError takes the place of what is said.
    """

    def made(work: Callable[[S, Train], Came]) -> AtClick[S]:
        @wraps(work)
        def run(panel: Panel, setting: S, begin: Begin = start) -> None:
            came = work(setting, Train(panel, begin))
            panel.show(gantt_state(came.step), came.result)
            panel.said.value = came.said

        labels = ("Train", "gantt", "Nothing trained yet.", "Seconds")
        return at_click(first, asked, *labels, **options)(run)

    return made


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


def times_as_fast(experiment: Experiment, alone: Experiment) -> float:
    """Return how many times as fast as one rank a run is predicted to be, on the catalog's laptop."""
    return float(predict(experiment).throughput / predict(alone).throughput)


def predicted_cells(experiment: Experiment, rate: float, measured: float) -> list[str]:
    """Return the samples/s that the rate of one rank predicts, and the error, for a table of runs."""
    found = float(predict(with_rate(experiment, rate)).throughput)
    return [show(found, "samples/s"), f"{found / measured - 1:+z.0%}"]
