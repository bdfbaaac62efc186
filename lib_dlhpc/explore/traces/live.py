"""An unmodified MPI program on the page: a button, its trace with the analysis, and what was foretold beside it.

trace_here()    the experiment: who is late, how, by how much; run, cancel; files to take away
"""

import threading
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.panels import problem_html, table_html
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, workbench
from lib_dlhpc.explore.traces.here import (
    FOUND_AS,
    NOBODY,
    PROGRAM,
    RANKS,
    STEPS,
    Came,
    Setting,
    Ways,
    download_html,
    files,
    run,
    ways,
)
from lib_dlhpc.explore.traces.panel import TracePanel
from lib_dlhpc.explore.traces.process import Cancelled, RunError
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline.analysis import Analysis

BY = (0.02, 0.04, 0.08)  # s a step
SIZES = (10_000, 100_000, 1_000_000)  # B
SHORT = 0.002  # s: of what is shorter no error is told
WORDS = {
    "trace.json": "Save for Perfetto or Chrome (JSON)",
    "trace.otf2.zip": "Save for Vampir, Scalasca ... (OTF2, zipped)",
}


class RealRun:
    """Two buttons, what is said of a run, and a box for what came of it. The page stays alive meanwhile.

    work(setting, stop, tell): does it in a thread of its own, and returns what to say and what to show.
    """

    def __init__(
        self,
        chosen: Callable[[], Any],
        work: Callable[[Any, threading.Event, Callable[[str], None]], tuple[str, list[Any]]],
        thread: Callable[..., Any],
        name: str,
        tooltip: str,
    ) -> None:
        self.chosen, self.work, self.thread = chosen, work, thread
        self.go = ipywidgets.Button(description=name, button_style="primary", tooltip=tooltip)
        self.cancel = ipywidgets.Button(
            description="Cancel", tooltip="Ends all ranks", disabled=True
        )
        self.said, self.below = (
            ipywidgets.HTML(verdict_html("Nothing has run yet.")),
            ipywidgets.VBox([]),
        )
        self.stop = threading.Event()
        self.go.on_click(self._clicked)
        self.cancel.on_click(lambda _: self.stop.set())
        row = ipywidgets.HBox([self.go, self.cancel], layout={"flex_flow": "row wrap"})
        self.widgets = [row, self.said, self.below]

    def tell(self, words: str) -> None:
        """Say how far it is."""
        self.said.value = verdict_html(words)

    def _clicked(self, _: Any) -> None:
        self.go.disabled, self.cancel.disabled = True, False
        self.stop.clear()
        self.thread(target=self._run, args=(self.chosen(),), daemon=True).start()

    def _run(self, setting: Any) -> None:
        try:
            words, shown = self.work(setting, self.stop, self.tell)
            self.below.children = tuple(shown)
            self.tell(words)
        except Cancelled:
            self.tell("Cancelled.")
        except (RunError, SpecError) as reason:
            self.said.value = problem_html(str(reason))
        finally:
            self.go.disabled, self.cancel.disabled = False, True


def trace_here(
    traced: Callable[[Setting, threading.Event], Came] = run,
    thread: Callable[..., Any] = threading.Thread,
) -> ipywidgets.Box:
    """Return controls, buttons, and what came of a click. thread: in what it is done."""
    who = [("nobody", NOBODY), *((f"rank {r}", r) for r in range(RANKS))]
    controls = {
        "rank": slider("Late is", "The rank that is planted", who, 2),
        "how": dropdown("It", "What it does", [(n, n) for n in FOUND_AS], "computes longer"),
        "by": slider("By", "In each step", [(show(s, "s"), s) for s in BY], 0.04),
        "size": slider("Messages", "To each neighbor", [(show(b, "B"), b) for b in SIZES], 100_000),
    }
    question, panel, result = ipywidgets.HTML(), TracePanel(), ipywidgets.HTML()
    saved = ipywidgets.HTML()

    def chosen() -> Setting:
        return Setting(**{name: control.value for name, control in controls.items()})

    def ask() -> None:
        question.value = verdict_html(asked_words(chosen()))

    def work(
        setting: Setting, stop: threading.Event, tell: Callable[[str], None]
    ) -> tuple[str, list[Any]]:
        tell(f"{RANKS} ranks at work, traced ...")
        came = traced(setting, stop)
        analysis, table = panel.show(came.timeline), ways(setting, came)
        result.value = ways_html(table) + verdict_html(WHY)
        links = (download_html(n, data, WORDS[n]) for n, data in files(came.timeline).items())
        saved.value = f"<p>{' &nbsp; '.join(links)}</p>"
        return found_words(setting, analysis, table), [*panel.widgets, result, saved]

    real = RealRun(chosen, work, thread, "Run and trace", "Some seconds")
    source = ipywidgets.HTML(source_html())
    note = "who is blamed and for how much; then click a finding and see whether you agree."
    return workbench(controls, [question, source, *real.widgets], ask, note)


def asked_words(setting: Setting) -> str:
    """Say what a click would run."""
    late = "nobody is late"
    if setting.rank != NOBODY:
        where = "before it sends" if setting.how == "sends late" else "behind its messages"
        late = f"rank {setting.rank} is late by {show(setting.by, 's')} {where}"
    return (
        f"{RANKS} ranks, {STEPS} steps; in each {late}, a message of {show(setting.size, 'B')} to both neighbors, one"
        " allreduce. <code>dlhpc trace run</code> records the calls; the program does not know."
    )


def source_html() -> str:
    """Return the program, to be unfolded."""
    code = escape(PROGRAM.read_text(encoding="utf-8"))
    return (
        '<details class="dlhpc-why"><summary>The program: plain mpi4py</summary>'
        f'<pre style="overflow-x: auto">{code}</pre></details>'
    )


def found_words(setting: Setting, analysis: Analysis, table: Ways) -> str:
    """Say what the analysis has found of what was planted."""
    if setting.rank == NOBODY:
        if not analysis.findings:
            return "<b>✓ Nobody was late, and nobody is blamed.</b>"
        one = analysis.findings[0]
        return f"<b>Nobody was made late; this machine has done it: {escape(one.sentence)}</b>"
    cost = table["what the late rank costs"]
    if cost["measured"] > 0:
        return (
            f"<b>✓ Rank {setting.rank} was late, and is blamed for {show(cost['measured'], 's')}; planted:"
            f" {show(cost['predicted'], 's')}, or {show(cost['simulated'], 's')} as the ranks really slept.</b>"
        )
    return (
        f"<b>✗ Rank {setting.rank} was late, and the analysis does not say so: on this machine, now, others scatter as"
        " much. Plant more, or try again.</b>"
    )


def ways_html(table: Mapping[str, Mapping[str, float]]) -> str:
    """Return the terms by engine, with the errors of prediction and simulation."""
    lines = [["mean rank", "predicted", "error", "simulated", "error", "measured"]]
    for name, own in table.items():
        cells = [name]
        for engine in ("predicted", "simulated"):
            real = own["measured"]
            error = f"{own[engine] / real - 1:+.0%}" if real > SHORT else ""
            cells += [show(own[engine], "s"), error]
        lines.append([*cells, show(own["measured"], "s")])
    return f'<div style="overflow-x: auto">{table_html(lines)}</div>'


WHY = (
    "<b>Predicted</b> from what was asked for; <b>simulated</b> from what each rank really slept in each step; both"
    " with a laptop's memory as the network.<br><b>Why they part.</b> A sleep lasts longer than asked for when the core"
    " is taken: that is the error of the prediction alone. What is left for both: with more ranks than cores, a rank"
    " whose message is there may still wait for its turn on a core, which shows as moving data, and what it sends next"
    " is late. No formula of networks knows of that."
)
