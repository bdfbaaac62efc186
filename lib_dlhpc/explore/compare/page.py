"""An experiment run here from a page: a button, how far it is, then a chart and a table of every way to know a step.

from lib_dlhpc.explore.compare.page import compared
compared(load("labs/experiments/digits.toml"), ranks=2)
"""

import threading
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.comparison import Comparison, comparison
from lib_dlhpc.comparison.placed import check_here, placed, why_not
from lib_dlhpc.explore.blocks.panels import notice_html, table_html
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.compare.charts import ROWS, compared_state, predicted_state
from lib_dlhpc.explore.compare.panel import Here, Idle, Shown, no_longer_than_the_page, styled
from lib_dlhpc.explore.explorer.labels import labeled
from lib_dlhpc.launch.local import Job
from lib_dlhpc.prediction.measured.bands import ALL
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

RANKS_A_CORE = 4  # with more ranks a core, a run measures their scheduling


class RunHere(Here[Comparison]):
    """A run of one experiment.

    ranks, machine: see `compare`. begin: what starts the ranks. thread: in what they are watched. refuse: as of Runner.
    """

    def __init__(
        self,
        ranks: int | None = None,
        machine: Machine | None = None,
        seconds: float = comparison.SECONDS,
        begin: comparison.Begin = comparison.start_beside,
        thread: Thread = threading.Thread,
        label: str = "Run this here",
        refuse: Callable[[], str] = lambda: "",
    ) -> None:
        self.ranks, self.machine, self.seconds, self.begin = ranks, machine, seconds, begin
        super().__init__(label, "compared", thread, refuse)

    def follow(self, experiment: Experiment) -> None:
        """Take over another experiment, and say whether it can be run."""
        if experiment != self.experiment:
            self._take(experiment)

    def _idle(self, experiment: Experiment) -> Idle:
        problem = why_not(experiment, RANKS_A_CORE * cores()) if self.ranks is None else ""
        notice = f"Cannot be run here. {labeled(problem)}" if problem else ""
        return Idle("Nothing run yet.", notice, not problem)

    def _run(self, experiment: Experiment) -> Comparison:
        panel = self.panel
        panel.say("Predicting and simulating ...")
        here = placed(experiment, self.ranks, self.machine)
        check_here(here)
        expected = comparison.estimated(here)
        panel.show(predicted_state(expected))
        wanted = expected.steps_in(self.seconds)
        at_work = f"{count(here.ranks, 'rank')} at work:"
        panel.say(f"{at_work} {count(wanted, 'step')} ...")

        def look(job: Job) -> None:
            panel.look(job)
            done = [row["step"] for row in job.metrics() if "step" in row]
            if done:
                panel.say(f"{at_work} step {done[-1]} of {wanted} ...")

        with no_longer_than_the_page(self.begin) as begin:
            return comparison.beside(
                expected, [comparison.measured(here, wanted, None, look, begin)]
            )

    def _shown(self, found: Comparison) -> tuple[Shown, Any]:
        return (compared_state(found), comparison_html(found)), found.verdict


def compared(experiment: Experiment, ranks: int | None = None, **options: Any) -> ipywidgets.Box:
    """Return a button that runs some steps of an experiment here, and what comes of them beside the prediction.

    ranks: see `compare`. options: of RunHere.
    """
    here = RunHere(ranks, **options)
    here.follow(experiment)
    return styled(here.widget)


def comparison_html(of: Comparison) -> str:
    """Return the terms every way, how far each is off, and what is to be known, as a table and notes."""
    ways = [way for way in comparison.WAYS if way in of.step]
    other_ways = [way for way in ways if way != "measured"]
    lines = [["", *(ROWS[way] for way in ways), *(f"{way} off" for way in other_ways)]]
    for name, seconds in {ALL: of.step, **of.terms}.items():
        off = [seconds.get(way, 0.0) - seconds.get("measured", 0.0) for way in other_ways]
        errors = [f"{each / of.step['measured']:+z.1%}" for each in off]
        times = [show(seconds[way], "s") if way in seconds else "" for way in ways]
        lines.append([name, *times, *errors])
    notes = "".join(map(notice_html, of.notes))
    words = "off: predicted less measured, of the measured step."
    words += f" This machine was {of.placed.calibration}." if of.placed.calibration else ""
    return f"{notes}{table_html(lines)}<p><small>{escape(words)}</small></p>"
