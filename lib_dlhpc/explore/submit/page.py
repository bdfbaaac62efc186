"""An experiment handed to a batch system by one cell: how it is, how far, and in the end every way to know a step.

from lib_dlhpc.explore.submit.page import submitted
submitted(load("labs/experiments/digits.toml"), ranks=4, to="slurm", site="site.toml")

The cell may be run again, by whatever kernel: it finds its run, and hands in nothing twice.
"""

import hashlib
import json
import threading
import time
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets

from lib_dlhpc.comparison import Comparison
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.compare.charts import compared_state
from lib_dlhpc.explore.compare.page import comparison_html
from lib_dlhpc.explore.compare.panel import Panel, styled
from lib_dlhpc.explore.submit.found import found
from lib_dlhpc.launch import BatchJob, JobError, Site, attach, load_site, submit
from lib_dlhpc.launch.jobs import ENDS, TICKET
from lib_dlhpc.spec.experiment import Experiment, load, to_tables
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.training.check import check, check_ranks

PAUSE = 0.2  # s between two looks at a job


class Submitted(ipywidgets.VBox):
    """What the cell shows. job: the job, None if it could not be handed in; found: what it came to, once it is done."""

    def __init__(
        self,
        experiment: Experiment,
        ranks: int | None = None,
        to: str | None = None,
        site: Site | str | Path | None = None,
        folder: str | Path | None = None,
        machine: Machine | None = None,
        thread: Thread = threading.Thread,
        **options: Any,
    ) -> None:
        super().__init__()
        whole = int(experiment.devices + experiment.servers)
        self.experiment, self.ranks = experiment, whole if ranks is None else ranks
        self.to, self.site, self.machine, self.options = to, site, machine, options
        self.folder = Path(folder or run_folder(experiment, self.ranks)).absolute()
        self.job: BatchJob | None = None
        self.found: Comparison | None = None
        self.problem: Exception | None = None
        self._ended = threading.Event()
        self._panel = Panel("Submit again", chart("compared"), self._watch, thread)
        self._progress = ipywidgets.FloatProgress(max=float(experiment.run.epochs))
        self._progress.tooltip = "how far the run is"
        buttons, *below = self._panel.widget.children
        self._panel.widget.children = (buttons, self._progress, *below)
        self.children = styled(self._panel.widget).children
        self.add_class("dlhpc-results")
        try:
            self.job = self._attached() or self._handed_in()
        except SpecError as problem:
            self._tell_problem(problem)
            self._panel.cancel.disabled = True
        else:
            self._panel.run.click()

    def __repr__(self) -> str:
        return f"Submitted({self.folder.name})"

    def wait(self) -> Comparison:
        """Return what the run came to, once it is shown. Raises JobError or SpecError if that is nothing."""
        self._ended.wait()
        if self.problem is not None:
            raise self.problem
        assert self.found is not None
        return self.found

    def _attached(self) -> BatchJob | None:
        """Return the run that is in the folder already, if it is this one."""
        if not (self.folder / TICKET).exists():
            return None
        job, held = attach(self.folder), load(self.folder / "experiment.toml")
        if held != self.experiment or job.ticket.ranks != self.ranks:
            raise SpecError(f"{self.folder}: holds another run; name another folder.")
        return job

    def _handed_in(self, resume: bool = False) -> BatchJob:
        check(self.experiment)
        check_ranks(self.experiment, self.ranks)
        site = self.site
        if site is not None and not isinstance(site, Site):
            site = load_site(site)
        return submit(
            self.experiment, self.ranks, self.to, site, self.folder, resume, **self.options
        )

    def _watch(self) -> None:
        self._ended.clear()
        self.problem = None
        try:
            if self._again and self.job is not None and self.job.state in ENDS[1:]:
                self.job = self._handed_in(resume=True)
            elif self.job is None:
                self.job = self._attached() or self._handed_in()
            self._follow(self.job)
        except (JobError, SpecError) as problem:
            self._tell_problem(problem)
            raise
        finally:
            self._again = True
            self._ended.set()

    _again = False  # whether the button was pressed, and not the cell run

    def _follow(self, job: BatchJob) -> None:
        alike: Any = job  # it has the face of a run here
        while (state := job.state) not in ENDS:
            self._tell(job, state)
            self._panel.look(alike)
            time.sleep(PAUSE)
        if state != "done":
            raise JobError(job.why())
        result = job.wait()
        self._progress.value = self._progress.max
        self._panel.say(f"{escape(job.label)} is done. Looking at its steps ...")
        self.found = found(job, self.machine)
        self._panel.show(compared_state(self.found), comparison_html(self.found))
        self._panel.say("<br>".join(map(escape, [_learned(job, result), *self.found.verdict])))
        self._panel.run.layout.visibility = "hidden"

    def _tell(self, job: BatchJob, state: str) -> None:
        words = job.why() if state == "queued" else f"{job.label} is {state}."
        rows = [row for row in job.metrics() if "step" in row]
        if rows and state == "running":
            now = rows[-1]
            self._progress.value = now["epoch"]
            words += f" Step {now['step']:,}, epoch {now['epoch']:.1f} of {self._progress.max:g}"
            words += f", loss {now['loss']:.4g}." if "loss" in now else "."
        self._panel.say(escape(words))

    def _tell_problem(self, problem: Exception) -> None:
        self.problem = problem
        self._panel.said.value = problem_html(str(problem))
        self._ended.set()


def submitted(
    experiment: Experiment,
    ranks: int | None = None,
    to: str | None = None,
    site: Site | str | Path | None = None,
    folder: str | Path | None = None,
    machine: Machine | None = None,
    **options: Any,
) -> Submitted:
    """Hand in a run, or find the one that this very cell handed in before; return a widget that follows it.

    ranks: one for each device and server by default. site: a Site, the name of one or its file. folder: the run
    folder; by default one below the current folder whose name is made of experiment and ranks. machine: of what
    is predicted, see `at_site`. options: of `lib_dlhpc.launch.submit`. What goes wrong is shown in the widget;
    its `wait()` returns the comparison when the job is done.
    """
    return Submitted(experiment, ranks, to, site, folder, machine, **options)


def run_folder(experiment: Experiment, ranks: int) -> str:
    """Return the name of a run folder that is the same for the same run, and another for any other."""
    text = json.dumps([to_tables(experiment), ranks], sort_keys=True, default=str)
    return f"dlhpc-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _learned(job: BatchJob, result: dict[str, Any]) -> str:
    words = (
        f"{job.label} is done: {result['samples']:,} samples on {count(result['ranks'], 'rank')}"
    )
    words += f" in {show(result['seconds'], 's')}"
    if result["accuracy"] is not None:
        words += f", test accuracy {result['accuracy']:.1%}"
    return f"{words}. All of it is in {job.folder}."
