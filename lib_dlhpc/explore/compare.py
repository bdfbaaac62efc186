"""An experiment run here from a page: a button, how far it is, then a chart and a table of every way to know a step.

from lib_dlhpc.explore.compare import compared
compared(load("labs/experiments/digits.toml"), ranks=2)
"""

import threading
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.compare import Comparison
from lib_dlhpc.compare.comparison import ALL, SECONDS, WAYS, Begin, beside, foretold, measured
from lib_dlhpc.compare.placed import placed, why_not
from lib_dlhpc.compare.short import steps_in
from lib_dlhpc.explore.charts import chart
from lib_dlhpc.explore.compare_charts import ROWS, compared_state, foretold_state
from lib_dlhpc.explore.panels import notice_html, problem_html, table_html
from lib_dlhpc.explore.style import PAGE_STYLE
from lib_dlhpc.explore.workbench import verdict_html
from lib_dlhpc.launch.local import Job, JobError, start
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.measured import cores
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

Thread = Callable[..., Any]  # in what a run is watched
RANKS_A_CORE = 4  # more than so many ranks a core is no run but a queue


class RunHere:
    """The panel's state: one experiment, and what its newest run came to.

    `begin` starts the ranks, `thread` is in what they are watched. Whoever wants to know the newest Comparison
    has it in `found`.
    """

    def __init__(
        self,
        ranks: int | None = None,
        machine: Machine | None = None,
        seconds: float = SECONDS,
        begin: Begin = start,
        thread: Thread = threading.Thread,
        label: str = "Run this here",
    ) -> None:
        self.ranks, self.machine, self.seconds = ranks, machine, seconds
        self.begin, self.thread = begin, thread
        self.experiment: Experiment | None = None
        self.found: Comparison | None = None
        self.run = ipywidgets.Button(
            description=label, button_style="primary", tooltip="Takes some seconds"
        )
        self.cancel = ipywidgets.Button(
            description="Cancel", tooltip="Ends all ranks", disabled=True
        )
        self.said, self.table = ipywidgets.HTML(), ipywidgets.HTML()
        self.figure = chart("compared")
        self._below = ipywidgets.VBox([])
        self._stop = threading.Event()
        self._busy = False
        bar = ipywidgets.HBox([self.run, self.cancel])
        self.widget = ipywidgets.VBox([bar, self.said, self._below])
        self.run.on_click(lambda _: self._clicked())
        self.cancel.on_click(lambda _: self._stop.set())

    def follow(self, experiment: Experiment) -> None:
        """Take over another experiment: what was run of the one before is gone; say whether it can be run."""
        if experiment == self.experiment:
            return
        self.experiment, self.found = experiment, None
        if not self._busy:
            self._ready()

    def _ready(self) -> None:
        assert self.experiment is not None
        problem = why_not(self.experiment, RANKS_A_CORE * cores()) if self.ranks is None else ""
        self.run.disabled = bool(problem)
        self._below.children = ()
        self.said.value = (
            notice_html(f"Cannot be run here. {problem}")
            if problem
            else verdict_html("Nothing run yet.")
        )

    def _clicked(self) -> None:
        self.run.disabled, self.cancel.disabled, self._busy = True, False, True
        self._stop.clear()
        self.thread(target=self._work, args=(self.experiment,), daemon=True).start()

    def _work(self, experiment: Experiment) -> None:
        try:
            found = self._compare(experiment)
            if experiment == self.experiment:
                self.found = found
                self.figure.update(*compared_state(found))
                self.table.value = comparison_html(found)
                self._below.children = (self.figure, self.table)
                self.said.value = verdict_html("<br>".join(map(escape, found.verdict)))
        except (JobError, SpecError) as reason:
            stopped = self._stop.is_set()
            self.said.value = verdict_html("Cancelled.") if stopped else problem_html(str(reason))
        finally:
            self._busy = False
            self.run.disabled, self.cancel.disabled = False, True
            if experiment != self.experiment:
                self._ready()

    def _compare(self, experiment: Experiment) -> Comparison:
        self.said.value = verdict_html("Predicting and simulating ...")
        here = placed(experiment, self.ranks, self.machine)
        told = foretold(here)
        self.figure.update(*foretold_state(told))
        self._below.children = (self.figure,)
        wanted = steps_in(self.seconds, told.step["predicted"])
        at_work = count(here.ranks, "rank")
        self.said.value = verdict_html(f"{at_work} at work: {count(wanted, 'step')} ...")

        def look(job: Job) -> None:
            if self._stop.is_set():
                job.cancel()
            done = [row["step"] for row in job.metrics() if "step" in row]
            if done:
                self.said.value = verdict_html(
                    f"{at_work} at work: step {done[-1]} of {wanted} ..."
                )

        return beside(told, [measured(here, wanted, None, look, self.begin)])


def compared(
    experiment: Experiment,
    ranks: int | None = None,
    machine: Machine | None = None,
    seconds: float = SECONDS,
    begin: Begin = start,
    thread: Thread = threading.Thread,
) -> ipywidgets.Box:
    """Return a button that runs some steps of an experiment here, and what comes of them beside what was foretold.

    ranks, machine: see `compare`. begin: what starts the ranks. thread: in what they are watched.
    """
    panel = RunHere(ranks, machine, seconds, begin, thread)
    panel.follow(experiment)
    style = ipywidgets.HTML(PAGE_STYLE)
    style.add_class("dlhpc-hidden")
    panel.widget.add_class("dlhpc-results")
    panel.widget.children = (*panel.widget.children, style)
    return panel.widget


def comparison_html(of: Comparison) -> str:
    """Return the terms every way, how far each is off, and what is to be known, as a table and notes."""
    ways = [way for way in WAYS if way in of.step]
    foretold_ways = [way for way in ways if way != "measured"]
    lines = [["", *(ROWS[way] for way in ways), *(f"{way} off" for way in foretold_ways)]]
    for name, seconds in {ALL: of.step, **of.terms}.items():
        off = [seconds.get(way, 0.0) - seconds.get("measured", 0.0) for way in foretold_ways]
        errors = [f"{each / of.step['measured']:+.1%}" for each in off]
        times = [show(seconds[way], "s") if way in seconds else "" for way in ways]
        lines.append([name, *times, *errors])
    flag = (
        [
            f"{count(of.placed.ranks, 'rank')} share {count(of.placed.cores, 'core')}: errors are not judged."
        ]
        if of.oversubscribed
        else []
    )
    notes = "".join(notice_html(note) for note in (*flag, *of.notes))
    words = "off: what is foretold less what was measured, of the measured step."
    return f"{notes}{table_html(lines)}<p><small>{words}</small></p>"
