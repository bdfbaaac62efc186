"""A sweep run here from a page: every setting a row, predicted, simulated and measured.

from lib_dlhpc.explore.compare.sweep import swept
swept(load("labs/experiments/digits.toml"), {"strategy.batch": [8, 16, 32], "ranks": [1, 2]})
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import prod
from typing import Any

import ipywidgets

from lib_dlhpc.comparison import Sweep, sweep
from lib_dlhpc.comparison.comparison import Begin, start_beside
from lib_dlhpc.comparison.sweep import placed_setting, settings_of
from lib_dlhpc.comparison.sweep_text import cells, moved, summary
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.panels import notice_html
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.compare.charts import swept_state
from lib_dlhpc.explore.compare.panel import Here, Idle, Shown, no_longer_than_the_page, styled
from lib_dlhpc.explore.explorer.labels import labeled
from lib_dlhpc.launch.local import Job
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine

SECONDS = 2.0  # of real steps of each setting, about
Axes = Mapping[str, Sequence[Any]]


class SweepHere(Here[Sweep]):
    """Runs of one experiment, of which something is varied.

    ranks, machine, most: see `sweep`. begin: what starts the ranks. thread: in what they are watched. refuse: as of
    Runner.
    """

    def __init__(
        self,
        ranks: int | None = None,
        machine: Machine | None = None,
        seconds: float = SECONDS,
        begin: Begin = start_beside,
        thread: Thread = threading.Thread,
        most: int | None = None,
        refuse: Callable[[], str] = lambda: "",
    ) -> None:
        self.where: dict[str, Any] = {"ranks": ranks, "machine": machine, "most": most}
        self.seconds, self.begin = seconds, begin
        self._axes: Axes = {}
        self._expected: Shown | None = None
        super().__init__("Run them here", "swept", thread, refuse)

    def follow(self, experiment: Experiment, axes: Axes, expected: Shown | None = None) -> None:
        """Take over another sweep, and say what of it can be run; the same one leaves a run and its result alone.

        expected: shown for as long as nothing was run.
        """
        another = (experiment, axes) != (self.experiment, self._axes)
        self._axes, self._expected = axes, expected
        if another or not self.started:
            self._take(experiment)

    def _idle(self, experiment: Experiment) -> Idle:
        runs, many, why_not = self._runs(experiment)
        some = f"{runs} of {many} settings" if runs else "No setting"
        notice = f"{some} can be run here. {labeled(why_not)}" if why_not else ""
        return Idle(f"{many} settings; nothing run yet.", notice, bool(runs), self._expected)

    def _runs(self, experiment: Experiment) -> tuple[int, int, str]:
        """Return how many settings can be run here, of how many, and why the first that cannot be cannot."""
        many = prod(map(len, self._axes.values()))
        if self.where["most"] is None:
            return many, many, ""  # whoever wrote them in a notebook learns it when they are run
        problems = []
        for setting in settings_of(self._axes):
            try:
                placed_setting(experiment, setting, **self.where)
            except SpecError as error:
                problems.append(str(error))
        return many - len(problems), many, problems[0] if problems else ""

    def _run(self, experiment: Experiment) -> Sweep:
        axes, panel, seen = self._axes, self.panel, dict[str, None]()
        many = self._runs(experiment)[0]

        def look(job: Job) -> None:
            panel.look(job)
            seen[str(job.folder)] = None
            panel.say(f"Setting {len(seen)} of {many} ...")

        panel.say("Predicting and simulating ...")
        with no_longer_than_the_page(self.begin) as begin:
            known = {**self.where, "seconds": self.seconds}
            return sweep(experiment, axes, **known, look=look, begin=begin)

    def _shown(self, found: Sweep) -> tuple[Shown, Any]:
        return (swept_state(found), sweep_html(found)), summary(found)


def swept(experiment: Experiment, axes: Axes, **options: Any) -> ipywidgets.Box:
    """Return a button that runs every setting of a sweep here, and what comes of them.

    axes: see `sweep`. options: of SweepHere.
    """
    here = SweepHere(**options)
    here.follow(experiment, axes)
    return styled(here.widget)


def sweep_html(of: Sweep) -> str:
    """Return a row for each setting, and what is to be known, as a table and notes."""
    found = [row.comparison for row in of.rows if row.comparison]
    notes = dict.fromkeys([*moved(of), *(note for each in found for note in each.notes)])
    return "".join(map(notice_html, notes)) + settings_html(cells(of))


def settings_html(lines: Sequence[Sequence[str]]) -> str:
    """Return a head and a row for each setting as a table that scrolls where it is wider than the page.

    A row with fewer cells says something at its end, for which it has all the room that is left.
    """
    head, *rows = lines
    columns = "".join(f"<th scope=col>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{_cells(row, len(head))}</tr>" for row in rows)
    return (
        '<div class="dlhpc-wide" tabindex="0" role="group" aria-label="Every setting"><table>'
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(row: Sequence[str], columns: int) -> str:
    *cells, last = row
    words = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'{words}<td colspan="{columns - len(cells)}">{escape(last)}</td>'
