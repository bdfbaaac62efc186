"""A simulated step: its terms beside those predicted, why they differ, and its timeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.charts import between
from lib_dlhpc.explore.explorer.limits import messages
from lib_dlhpc.explore.explorer.section import Bands
from lib_dlhpc.explore.gantt.chart import gantt_state
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.simulation import StepProgress, measure, simulate, why
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Measured, Timeline, breakdown

ALL = "one step"
MOST_DRAWN = 2  # steps on the chart, or as many as lie between two averages of local updates ...
MOST_LOCAL = 8  # ... up to so many


@dataclass(frozen=True)
class Simulated:
    """A prediction's experiment as it was simulated, with what was predicted."""

    experiment: Experiment
    seed: int
    predicted: Mapping[str, float]  # s, by term
    timelines: Mapping[str, Timeline]  # by fidelity; the last is the one that was asked for
    bands: Bands = field(default_factory=dict)  # of the prediction, where its machine was measured

    @property
    def fidelity(self) -> str:
        """What was asked for."""
        return list(self.timelines)[-1]


def simulate_step(
    prediction: Breakdown,
    fidelity: str,
    seed: int,
    steps: int,
    progress: StepProgress | None,
    bands: Bands | None = None,
) -> Simulated:
    """Simulate the steps in rounds and, if asked for, also as events. Raises what `simulate` raises."""
    e, terms = prediction.experiment, prediction.terms
    predicted = {name: float(seconds) for name, seconds in terms.items()}
    ways = dict.fromkeys(["rounds", fidelity])
    timelines = {way: simulate(e, way, seed, steps, progress=progress) for way in ways}
    return Simulated(e, seed, predicted, timelines, bands or {})


def gantt_of(run: Simulated) -> dict[str, Any]:
    """Return the state of the chart "gantt"; of many steps, the first ones."""
    timeline = run.timelines[run.fidelity]
    local = int(run.experiment.strategy.local_steps)
    steps, drawn = breakdown(timeline).steps, max(MOST_DRAWN, min(local, MOST_LOCAL))
    if steps <= drawn:
        return gantt_state(timeline)
    state = gantt_state(first_steps(timeline, drawn))
    state["summary"] = f"The first {drawn} of {steps} steps. {state['summary']}"
    return state


def first_steps(timeline: Timeline, count: int) -> Timeline:
    """Return what each rank began before the forward that comes after its `count`-th update."""
    done = np.flatnonzero(timeline.where("compute", "update"))
    done = done[np.lexsort((timeline.start[done], timeline.rank[done]))]
    ranks = timeline.rank[done]
    last = done[np.arange(len(done)) - np.searchsorted(ranks, ranks) == count - 1]
    updated = np.full(timeline.ranks, np.inf)
    updated[timeline.rank[last]] = timeline.stop[last]
    later = timeline.where("compute", "forward") & (timeline.start >= updated[timeline.rank])
    end = np.full(timeline.ranks, np.inf)
    np.minimum.at(end, timeline.rank[later], timeline.start[later])
    return timeline.select(timeline.start < end[timeline.rank])


def simulated_html(run: Simulated) -> str:
    """Return the terms, predicted and simulated, as a table, and a sentence for each reason to differ."""
    ways = {way: measure(run.experiment, timeline) for way, timeline in run.timelines.items()}
    shown = ways[run.fidelity]
    held = _bands_of(run, shown)
    head = ["", "predicted", *(f"simulated, {way}" for way in ways), "difference"]
    head += [f"rank {shown.slowest:,}", *["90% band"] * bool(held)]
    columns = "".join(f"<th scope=col>{escape(text)}</th>" for text in head)
    names = [ALL, *(n for n, value in run.predicted.items() if value or shown.terms[n])]
    rows = "".join(_row(name, run, list(ways.values()), held) for name in names)
    words = (
        f"Simulated: the mean of the ranks; rank {shown.slowest:,} is the one that computes longest."
        f" Difference: {escape(run.fidelity)} minus predicted, over the predicted step."
    )
    words += " Band: of that fidelity, scaled as for the prediction." * bool(held)
    return (
        f'<div class="dlhpc-simulated"><table><caption>{escape(_caption(run, shown.steps))}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table><p><small>{words}</small></p>"
        f"{_why_html(why(run.experiment, run.fidelity, shown.terms, run.predicted))}</div>"
    )


def _caption(run: Simulated, steps: int) -> str:
    e = run.experiment
    words = f"{f'{steps} steps' if steps > 1 else 'One step'} on {int(e.devices):,} ranks"
    how = e.strategy.allreduce if e.strategy.update != "asynchronous" else "asynchronous"
    words += f", {how.replace('_', ' ')}, seed {run.seed}"
    if run.fidelity == "events" and e.strategy.update == "synchronous":
        words += f"; {messages(e, steps):,} messages, each followed on its own"
    return words


def _bands_of(run: Simulated, shown: Measured) -> Bands:
    """Return the bands of what was simulated, where the prediction has some."""
    if not run.bands:
        return {}
    from lib_dlhpc.prediction.measured.bands import carried

    predicted = {ALL: sum(run.predicted.values()), **run.predicted}
    return carried(run.bands, predicted, {ALL: shown.step_time, **shown.terms})


def _row(name: str, run: Simulated, ways: Sequence[Measured], held: Bands) -> str:
    step = sum(run.predicted.values())
    predicted = run.predicted.get(name, step)
    simulated = [one.terms.get(name, one.step_time) for one in ways]
    cells = [show(value, "s") for value in (predicted, *simulated)]
    off = f"{(simulated[-1] - predicted) / step:+z.2%}"
    cells.append("0%" if off == "+0.00%" else off)
    cells.append(show(ways[-1].slowest_terms.get(name, ways[-1].step_time), "s"))
    cells += [between(held[name])] if held else []
    shown = "</td><td>".join(map(escape, cells))
    return f"<tr><th scope=row>{escape(name)}</th><td>{shown}</td></tr>"


def _why_html(reasons: Sequence[str]) -> str:
    if not reasons:
        return "<p><b>No term differs</b> by more than rounding.</p>"
    # They are written for the command line, too.
    said = [reason.replace("--fidelity events", "fidelity events") for reason in reasons]
    items = "".join(f"<li>{escape(text[0].upper() + text[1:])}</li>" for text in said)
    return f"<p><b>Why they differ</b></p><ul>{items}</ul>"
