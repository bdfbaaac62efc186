"""A sweep run here from a page: every setting a row, predicted, simulated and measured.

from lib_dlhpc.explore.compare_sweep import swept
swept(load("labs/experiments/digits.toml"), {"strategy.batch": [8, 16, 32], "ranks": [1, 2]})
"""

import threading
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.compare import Sweep, sweep
from lib_dlhpc.compare.comparison import Begin
from lib_dlhpc.compare.sweep_text import cells, summary
from lib_dlhpc.explore.charts import chart
from lib_dlhpc.explore.compare_charts import swept_state
from lib_dlhpc.explore.compare_panel import Panel, Thread, styled
from lib_dlhpc.explore.panels import notice_html, table_html
from lib_dlhpc.launch.local import Job, start
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine

SECONDS = 2.0  # of real steps of each setting, about


def swept(
    experiment: Experiment,
    axes: Mapping[str, Sequence[Any]],
    ranks: int | None = None,
    machine: Machine | None = None,
    seconds: float = SECONDS,
    begin: Begin = start,
    thread: Thread = threading.Thread,
) -> ipywidgets.Box:
    """Return a button that runs every setting of a sweep here, and what comes of them.

    axes, ranks, machine: see `sweep`. begin: what starts the ranks. thread: in what they are watched.
    """
    many = 1
    for values in axes.values():
        many *= len(values)

    def work() -> None:
        seen = dict[str, None]()

        def look(job: Job) -> None:
            panel.look(job)
            seen[str(job.folder)] = None
            panel.say(f"Setting {len(seen)} of {many} ...")

        panel.say("Predicting and simulating ...")
        found = sweep(
            experiment, axes, ranks, machine, seconds=seconds, look=look, begin=begin
        )  # fmt: skip
        panel.show(swept_state(found), sweep_html(found))
        panel.say("<br>".join(map(escape, summary(found))))

    panel = Panel("Run them here", chart("swept"), work, thread)
    panel.say(f"{many} settings; nothing run yet.")
    return styled(panel.widget)


def sweep_html(of: Sweep) -> str:
    """Return a row for each setting, and what is to be known, as a table and notes."""
    found = [row.comparison for row in of.rows if row.comparison]
    notes = dict.fromkeys(note for each in found for note in each.notes)
    return "".join(map(notice_html, notes)) + table_html(cells(of))
