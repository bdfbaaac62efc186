"""A trace and its analysis on a page: the chart, findings that point into it, what becomes of each rank's time.

panel = TracePanel(); panel.show(timeline); panel.widgets
"""

from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.traces.charts import efficiency_state, ranks_state, trace_state
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.analysis import Analysis, Finding, analyze
from lib_dlhpc.timeline.analysis.report import limit

MOST = 4  # findings shown
NEAR = 3.0  # times the length of a place: what is shown around it at least
STEPS = 8  # parts of a run: what is shown around a place is one of them at least


class TracePanel:
    """The widgets of one trace; `show` puts another trace into them."""

    timeline: Timeline
    found: Analysis

    def __init__(self) -> None:
        names = ("traces_gantt", "traces_ranks", "traces_efficiency")
        self.trace, self.ranks, self.efficiency = map(chart, names)
        self.verdict, self.said, self.more = (ipywidgets.HTML() for _ in range(3))
        self.buttons = ipywidgets.HBox([], layout={"flex_flow": "row wrap"})
        self.analyzed = ipywidgets.VBox([])
        self.widgets = [self.verdict, self.trace, self.analyzed]

    def show(self, timeline: Timeline, opened: bool = True) -> Analysis:
        """Show a trace, and return its analysis. opened: whether the analysis is on the page as well."""
        self.timeline, self.found = timeline, analyze(timeline)
        self.point(None)
        self.ranks.update(*ranks_state(self.found))
        self.efficiency.update(*efficiency_state(self.found))
        self.more.value = matrix_html(self.found)
        self.buttons.children = self._buttons()
        self.open(opened)
        return self.found

    def open(self, wanted: bool = True) -> None:
        """Show the analysis below the chart, or do not."""
        parts = (self.buttons, self.said, self.ranks, self.efficiency, self.more)
        self.analyzed.children = parts if wanted else ()
        closed = f"A run of {show(self.found.span, 's')}: who waits for whom?"
        words = limit(self.found) if wanted else closed
        self.verdict.value = verdict_html(f"<b>{escape(words)}</b>")

    def point(self, finding: Finding | None) -> None:
        """Mark the place of a finding and show what is around it; None: the whole run."""
        if finding is None:
            self.trace.update(*trace_state(self.timeline))
            self.said.value = ""
            return
        where = finding.where
        begin, end = float(self.timeline.start.min()), float(self.timeline.stop.max())
        span = max(NEAR * (where.stop - where.start), self.found.span / STEPS)
        middle = (where.start + where.stop) / 2
        window = max(middle - span / 2, begin), min(middle + span / 2, end)
        self.trace.update(*trace_state(self.timeline, where, window))
        self.said.value = verdict_html(escape(finding.sentence))

    def _buttons(self) -> tuple[Any, ...]:
        if not self.found.findings:
            return (ipywidgets.HTML(f"<p>{escape(self.found.nothing)}</p>"),)
        found = (
            _button(
                f"{one.kind}: rank {one.rank}, {show(one.seconds, 's')}",
                "Show the place",
                partial(self.point, one),
            )
            for one in self.found.findings[:MOST]
        )
        return _button("Whole run", "Show all of it", partial(self.point, None)), *found


def matrix_html(analysis: Analysis) -> str:
    """Return who sent how much to whom, as a table that folds."""
    sent, ranks = analysis.matrix.bytes, range(analysis.ranks)
    if not sent.any():
        return ""
    lines = [["from / to", *(f"rank {r}" for r in ranks)]]
    lines += [
        [f"rank {r}", *(show(float(sent[r, c]), "B") if sent[r, c] else "–" for c in ranks)]
        for r in ranks
    ]
    count = int(analysis.matrix.messages.sum())
    return (
        f'<details class="dlhpc-why"><summary>Communication matrix: {count} messages,'
        f" {show(float(sent.sum()), 'B')}</summary>{table_html(lines)}</details>"
    )


def _button(name: str, tooltip: str, do: Callable[[], None]) -> Any:
    made = ipywidgets.Button(description=name, tooltip=tooltip, layout={"width": "auto"})
    made.on_click(lambda _: do())
    return made
