"""An unmodified MPI program on the page: a button, its trace with the analysis, and its prediction beside it."""

import threading
from collections.abc import Callable, Mapping
from html import escape

import ipywidgets

from lib_dlhpc.explore.blocks.bench import Bench, View
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.runner import Runner, Thread
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.traces import here
from lib_dlhpc.explore.traces.here import NOBODY, RANKS, Setting, Traced, Ways
from lib_dlhpc.explore.traces.panel import TracePanel
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline.analysis import Analysis

say = sentences(__file__)

SHORT = 0.002  # s: no error is given for less
FILES = {
    "trace.json": "Save for Perfetto or Chrome (JSON)",
    "trace.otf2.zip": "Save for Vampir, Scalasca ... (OTF2, zipped)",
}


def trace_here(
    traced: Callable[[Setting, threading.Event], Traced] = here.run,
    thread: Thread = threading.Thread,
) -> Bench[Setting]:
    """Return controls, buttons, and what a click yields."""
    panel, result, saved = TracePanel(), ipywidgets.HTML(), ipywidgets.HTML()
    below = ipywidgets.VBox([])

    def work(runner: Runner) -> None:
        setting = bench.setting
        runner.say(f"{RANKS} ranks at work, traced ...")
        outcome = traced(setting, runner.stop)
        analysis, table = panel.show(outcome.timeline), here.ways(setting, outcome)
        result.value = ways_html(table) + verdict_html(say.why)
        files = here.files(outcome.timeline).items()
        links = (here.download_html(name, content, FILES[name]) for name, content in files)
        saved.value = f"<p>{' &nbsp; '.join(links)}</p>"
        below.children = (*panel.widgets, result, saved)
        runner.say(found_words(setting, analysis, table))

    runner = Runner("Run and trace", work, "Nothing has run yet.", "Some seconds", thread)
    look = "which rank is blamed and for how much; then click a finding and see whether you agree."
    results = [ipywidgets.HTML(source_html()), *runner.widget.children, below]
    bench = Bench(Setting(), lambda setting: View(asked_words(setting)), results, look=look)
    return bench


def asked_words(setting: Setting) -> str:
    """Say what a click would run."""
    late = "nobody is late"
    if setting.rank != NOBODY:
        where = "before it sends" if setting.how == "sends late" else "after its messages"
        late = f"rank {setting.rank} is late by {show(setting.by, 's')} {where}"
    return (
        f"{RANKS} ranks, {here.STEPS} steps; in each {late}, a message of {show(setting.size, 'B')} to both neighbors,"
        " one allreduce. <code>dlhpc trace run</code> records the calls; the program is unmodified."
    )


def source_html() -> str:
    """Return the program, to be unfolded."""
    code = escape(here.PROGRAM.read_text(encoding="utf-8"))
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
        return f"<b>No rank was made late; this machine did it: {escape(one.sentence)}</b>"
    cost = table["what the late rank costs"]
    if cost["measured"] > 0:
        return (
            f"<b>✓ Rank {setting.rank} was late, and is blamed for {show(cost['measured'], 's')}; planted:"
            f" {show(cost['predicted'], 's')}, or {show(cost['simulated'], 's')} by what the ranks really slept.</b>"
        )
    return (
        f"<b>✗ Rank {setting.rank} was late, and the analysis does not say so: on this machine, now, other ranks vary"
        " as much. Plant more, or try again.</b>"
    )


def ways_html(table: Mapping[str, Mapping[str, float]]) -> str:
    """Return the terms by engine, with the errors of prediction and simulation."""

    def error(own: Mapping[str, float], engine: str) -> str:
        real = own["measured"]
        return f"{own[engine] / real - 1:+z.0%}" if real > SHORT else ""

    lines = [["mean rank", "predicted", "error", "simulated", "error", "measured"]]
    for name, own in table.items():
        cells = [(show(own[e], "s"), error(own, e)) for e in ("predicted", "simulated")]
        lines.append([name, *cells[0], *cells[1], show(own["measured"], "s")])
    return table_html(lines)
