"""A trace and its analysis on a page: the chart, findings that point into it, what becomes of each rank's time.

panel = TracePanel(); panel.show(timeline); panel.widget
"""

from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.traces.charts import efficiency_state, ranks_state, trace_state
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.analysis import Analysis, Finding, analyse
from lib_dlhpc.timeline.analysis.report import limit

MOST = 4  # findings shown
NEAR = 3.0  # times the length of a place: what is shown around it at least
STEPS = 8  # parts of a run: what is shown around a place is one of them at least
WHOLE = "Whole run"


class TracePanel:
    """The widgets of one trace; `show` puts another trace into them. closed: without the analysis at first."""

    def __init__(self, closed: bool = False) -> None:
        self.trace, self.ranks = chart("traces_gantt"), chart("traces_ranks")
        self.efficiency = chart("traces_efficiency")
        self.verdict, self.more = ipywidgets.HTML(), ipywidgets.HTML()
        self.buttons = ipywidgets.HBox([], layout={"flex_flow": "row wrap"})
        self.said = ipywidgets.HTML()
        self.analysed = ipywidgets.VBox([])
        self.all = (self.buttons, self.said, self.ranks, self.efficiency, self.more)
        self.closed = closed
        self.widgets = [self.verdict, self.trace, self.analysed]
        self.timeline: Timeline | None = None
        self.found: Analysis | None = None

    def show(self, timeline: Timeline) -> Analysis:
        """Show a trace, and return its analysis."""
        self.timeline, self.found = timeline, analyse(timeline)
        self.trace.update(*trace_state(timeline))
        self.said.value = ""
        self.ranks.update(*ranks_state(self.found))
        self.efficiency.update(*efficiency_state(self.found))
        self.more.value = matrix_html(self.found)
        self.buttons.children = self._buttons(self.found)
        self.open(not self.closed)
        return self.found

    def open(self, wanted: bool) -> None:
        """Show the analysis below the chart, or do not."""
        self.analysed.children = self.all if wanted else ()
        assert self.found is not None
        words = (
            limit(self.found)
            if wanted
            else f"A run of {show(self.found.span, 's')}: who waits for whom?"
        )
        self.verdict.value = verdict_html(f"<b>{escape(words)}</b>")

    def point(self, finding: Finding | None) -> None:
        """Mark the place of a finding and show what is around it; None: the whole run."""
        assert self.timeline is not None and self.found is not None
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

    def _buttons(self, found: Analysis) -> tuple[Any, ...]:
        if not found.findings:
            return (ipywidgets.HTML(f"<p>{escape(found.nothing)}</p>"),)
        made = [_button(WHOLE, "Show all of it", lambda: self.point(None))]
        for one in found.findings[:MOST]:
            name = f"{one.kind}: rank {one.rank}, {show(one.seconds, 's')}"
            made.append(_button(name, "Show the place", lambda one=one: self.point(one)))
        return tuple(made)


def matrix_html(analysis: Analysis) -> str:
    """Return who sent how much to whom, as a table that folds."""
    sent = analysis.matrix.bytes
    if not sent.any():
        return ""
    ranks = range(analysis.ranks)
    lines = [["from / to", *(f"rank {r}" for r in ranks)]]
    lines += [
        [f"rank {r}", *(show(float(sent[r, c]), "B") if sent[r, c] else "–" for c in ranks)]
        for r in ranks
    ]
    count = int(analysis.matrix.messages.sum())
    return (
        f'<details class="dlhpc-why"><summary>Communication matrix: {count} messages,'
        f' {show(float(sent.sum()), "B")}</summary><div style="overflow-x: auto">{table_html(lines)}</div></details>'
    )


def _button(name: str, tooltip: str, do: Any) -> Any:
    made = ipywidgets.Button(description=name, tooltip=tooltip, layout={"width": "auto"})
    made.on_click(lambda _: do())
    return made
