"""A simulation that feeds training: which ranks do what, the buffer between them, and who waits for whom."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from html import escape
from typing import Annotated, NamedTuple

import ipywidgets

from lib_dlhpc.explore.blocks.bench import Slider, controls_of
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.workbench import verdict_html, wall_html, workbench
from lib_dlhpc.explore.traces.charts import coupled_state
from lib_dlhpc.prediction.communication import coupled
from lib_dlhpc.simulation import simulate_coupled
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.spec.workflow import Costs, Workflow, read_workflow
from lib_dlhpc.timeline.coupled import mean_terms

RANKS, BATCHES, BATCH = 8, 60, 8
SHARED = 0
# s on one core of a laptop, as `dlhpc couple` measures them, rounded.
COSTS = Costs(
    point=25e-9, sample=1.6e-3, small_step=2.5e-5, update=1.4e-3, latency=3e-6, byte=1e-10
)
WORTH = 0.03  # of a run: what another placement must save to be worth a word
ALL = "all, in turn"
WHO = {ALL: SHARED, **{f"{n} of {RANKS}": n for n in range(1, RANKS)}}


def batches_words(batches: int) -> str:
    """Return "1 batch", "2 batches" ..."""
    return count(batches, "batch")


SAMPLE = "How far the simulation goes for one"
Sampling = partial(Slider, "A sample", SAMPLE, shown=lambda n: count(n, "step"))
Depth = partial(Slider, "Buffer", "Between the two", shown=batches_words)
VARIES = "Standard deviation of a rank's time for a batch"


class Setting(NamedTuple):
    """A workflow. simulating: ranks, SHARED: all do both; sampling: steps of a sample."""

    simulating: Annotated[int, Slider("Simulate", "Ranks that do; the others train", WHO)] = 1
    sampling: Annotated[int, Sampling(values=(1, 2, 4, 8, 16))] = 4
    depth: Annotated[int, Depth(values=(1, 2, 4, 8))] = 2
    jitter: Annotated[float, Slider("Varies", VARIES, (0.0, 0.1, 0.3), "{:.0%}".format)] = 0.1


@lru_cache(maxsize=64)
def workflow(setting: Setting, batches: int = BATCHES) -> Workflow:
    """Return the workflow that the controls describe."""
    steps, grid = setting.sampling * BATCH * batches, 64
    pace = {"steps": steps, "sampling": setting.sampling, "restart": 16, "substeps": 4}
    layers = [
        {"kind": "conv", "channels": channels, "kernel": 3, "padding": 1} for channels in (4, 1)
    ]
    one_rank = {"nodes": 1, "devices_per_node": 1}
    own = read_workflow(
        {
            "simulation": {"grid": grid, "halo": 2, **pace},
            "coupling": {"depth": setting.depth},
            "model": {"family": "sequential", "input": [1, grid, grid], "layers": layers},
            "strategy": {"batch": BATCH, "precision": "fp64", "optimizer": "adam", **one_rank},
            "training": {"rate": 0.05, "decay": "cosine"},
        }
    )
    shared = setting.simulating == SHARED
    return own.placed("shared") if shared else own.placed("separate", setting.simulating)


def costs(setting: Setting) -> Costs:
    """Return what things cost."""
    return replace(COSTS, jitter=setting.jitter)


@lru_cache(maxsize=64)
def ways(setting: Setting) -> tuple[coupled.CoupledPrediction, ...]:
    """Return all placements of the ranks: all doing both, then 1, 2 ... simulating."""
    every = coupled.placements(workflow(setting), costs(setting), RANKS)
    return tuple(sorted(every, key=number_of))


def number_of(way: coupled.CoupledPrediction) -> int:
    """Return the ranks that simulate, SHARED for all doing both."""
    return SHARED if way.placement == "shared" else way.simulating


def named(way: coupled.CoupledPrediction) -> str:
    """Return a placement in words."""
    return ALL if way.placement == "shared" else f"{way.simulating} + {way.training}"


def best(setting: Setting) -> coupled.CoupledPrediction:
    """Return the fastest placement."""
    return min(ways(setting), key=lambda way: way.seconds)


def couple() -> ipywidgets.Box:
    """Return the experiment."""
    controls, bars = controls_of(Setting()), chart("traces_coupled")
    wall, said, terms = (ipywidgets.HTML() for _ in range(3))

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        now = coupled.predict_coupled(workflow(setting), costs(setting), RANKS)
        wall.value = wall_html(pace_wall(setting, now), "Neither side waits long for the other.")
        said.value = verdict_html(best_words(setting, now))
        bars.update(*coupled_state({named(way): way.terms for way in ways(setting)}, named(now)))
        terms.value = terms_html(setting, now)

    note = "the placement whose bar is shortest: are its waits gone, and what took their place?"
    return workbench(controls, [wall, said, bars, terms], update, note)


def waited(terms: Mapping[str, float]) -> float:
    """Return the s that the mean rank waits for the other side."""
    return terms["wait for samples"] + terms["wait for room"]


def pace_wall(setting: Setting, now: coupled.CoupledPrediction) -> str:
    """Say which side waits for the other, where one does."""
    if waited(now.terms) < WORTH * now.seconds:
        return ""
    p, c = show(now.produce, "s"), show(now.consume, "s")
    pace = f"A batch takes {p} to produce and {c} to train on"
    enough = coupled.enough_depth(workflow(setting), costs(setting), RANKS)
    if 0.9 < now.produce / now.consume < 1 / 0.9 and enough > setting.depth:
        return f"{pace}: equal, but both vary. A buffer of {enough} batches would smooth that."
    starved = now.slower == "simulation"
    who = "training waits for samples" if starved else "the simulation waits for room"
    return f"{pace}: {who}. A buffer delays that and shortens no run: move ranks."


def best_words(setting: Setting, now: coupled.CoupledPrediction) -> str:
    """Say what the chosen placement takes, and which is the fastest."""
    fastest, waits = best(setting), waited(now.terms)
    idle = f", of which the mean rank waits {show(waits, 's')} for the other side" if waits else ""
    words = f"<b>{escape(named(now))}: {show(now.seconds, 's')}</b>{idle}."
    if fastest.seconds < (1 - WORTH) * now.seconds:
        return f"{words} {escape(named(fastest))} would take {show(fastest.seconds, 's')}."
    return f"{words} No placement is much faster."


def terms_html(setting: Setting, now: coupled.CoupledPrediction) -> str:
    """Return the terms of the chosen placement, predicted and simulated."""
    simulated = mean_terms(simulate_coupled(workflow(setting), costs(setting), RANKS))
    rows = {name: (seconds, simulated[name]) for name, seconds in now.terms.items()}
    rows["the run"] = now.seconds, sum(simulated.values())
    lines = [[name, *(show(seconds, "s") for seconds in both)] for name, both in rows.items()]
    return table_html([["mean rank", "predicted", "simulated"], *lines])


def times_faster(setting: Setting) -> float:
    """Return how many times faster the fastest placement is than the chosen one."""
    now = coupled.predict_coupled(workflow(setting), costs(setting), RANKS)
    return now.seconds / best(setting).seconds
