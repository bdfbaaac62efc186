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
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.compare.charts import compared_state
from lib_dlhpc.explore.compare.page import comparison_html
from lib_dlhpc.explore.compare.panel import RunPanel, styled
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
    """A run that is handed in, or that this very cell handed in before, and what the cell shows of it.

    ranks: one for each device and server by default. site: a Site, the name of one or its file. folder: the run
    folder; by default one below the current folder whose name is made of experiment and ranks. machine: of what
    is predicted, see `at_site`. options: of `lib_dlhpc.launch.submit`. What goes wrong is shown, and raised by
    `wait`. job: None if it could not be handed in; found: what it came to, once it is done.
    """

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
        self._again = False  # whether the button was pressed, and not the cell run
        self._panel = RunPanel("Submit again", "compared", lambda _: self._watch(), thread=thread)
        self._progress = ipywidgets.FloatProgress(max=float(experiment.run.epochs))
        self._progress.tooltip = "how far the run is"
        buttons, *below = self._panel.widget.children
        self._panel.widget.children = (buttons, self._progress, *below)
        self.children = styled(self._panel.widget).children
        self.add_class("dlhpc-results")
        try:
            self.job = self._attached() or self._handed_in()
        except SpecError as problem:
            self._report(problem)
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
        where = (self.to, site, self.folder, resume)
        return submit(self.experiment, self.ranks, *where, **self.options)

    def _watch(self) -> None:
        self._ended.clear()
        self.problem = None
        try:
            if self.job is None:
                self.job = self._attached() or self._handed_in()
            elif self._again and self.job.state in ENDS[1:]:
                self.job = self._handed_in(resume=True)
            self._follow(self.job)
        except (JobError, SpecError) as problem:
            self._report(problem)
            raise
        finally:
            self._again = True
            self._ended.set()

    def _report(self, problem: Exception) -> None:
        self.problem = problem
        self._panel.said.value = problem_html(str(problem))
        self._ended.set()

    def _follow(self, job: BatchJob) -> None:
        panel = self._panel
        while (state := job.state) not in ENDS:
            panel.say(escape(self._how(job, state)))
            panel.look(job)
            time.sleep(PAUSE)
        if state != "done":
            raise JobError(job.why())
        result = job.wait()
        self._progress.value = self._progress.max
        panel.say(f"{escape(job.label)} is done. Looking at its steps ...")
        self.found = found(job, self.machine)
        panel.show(compared_state(self.found), comparison_html(self.found))
        panel.say("<br>".join(map(escape, [_learned(job, result), *self.found.verdict])))
        panel.run.layout.visibility = "hidden"

    def _how(self, job: BatchJob, state: str) -> str:
        """Say how a job is, and show how far."""
        if state == "queued":
            return job.why()
        words, rows = f"{job.label} is {state}.", [row for row in job.metrics() if "step" in row]
        if not rows or state != "running":
            return words
        now = rows[-1]
        self._progress.value = now["epoch"]
        loss = f", loss {now['loss']:.4g}" if "loss" in now else ""
        of = f"epoch {now['epoch']:.1f} of {self._progress.max:g}"
        return f"{words} Step {now['step']:,}, {of}{loss}."


def run_folder(experiment: Experiment, ranks: int) -> str:
    """Return the name of a run folder that is the same for the same run, and another for any other."""
    text = json.dumps([to_tables(experiment), ranks], sort_keys=True, default=str)
    return f"dlhpc-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _learned(job: BatchJob, result: dict[str, Any]) -> str:
    rate = result["accuracy"]
    accuracy = "" if rate is None else f", test accuracy {rate:.1%}"
    samples, ranks = f"{result['samples']:,} samples", count(result["ranks"], "rank")
    words = f"{samples} on {ranks} in {show(result['seconds'], 's')}{accuracy}"
    return f"{job.label} is done: {words}. All of it is in {job.folder}."


submitted = Submitted  # as a cell says it
