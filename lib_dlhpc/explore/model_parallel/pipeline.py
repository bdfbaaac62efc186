"""A pipeline of GPUs: who computes what when, the bubble, and the activations that wait for backward.

a_pipeline()     the experiment, on a Transformer of 48 equal layers, the one that GPipe was measured with
"""

from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.gantt.chart import gantt_state
from lib_dlhpc.explore.model_parallel.charts import bubble_state, kept_state
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.ledger import moments
from lib_dlhpc.prediction.pipelined import in_flight
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline, breakdown

LAYERS = 48
RANKS = (2, 4, 8, 16)
MICROBATCHES = (1, 2, 4, 8, 16, 32, 64)
SCHEDULES = {
    "GPipe": ("gpipe", 1),
    "1F1B": ("1f1b", 1),
    "interleaved, 2 chunks": ("interleaved", 2),
    "interleaved, 3 chunks": ("interleaved", 3),
}
APART = 0.2  # of the formula's bubble, from which stages are said not to be equal
LARGE = 0.25  # share of a step from which the bubble is a wall


class Pipe(NamedTuple):
    """What the controls say. batch: samples of a step; recompute: as in the strategy."""

    ranks: int = 4
    microbatches: int = 8
    schedule: str = "GPipe"
    batch: int = 16
    recompute: str = "none"


def a_pipeline() -> ipywidgets.Box:
    """Return the experiment: one step as a picture, the memory of each rank, the bubble."""
    controls = {
        "ranks": slider("GPUs", "p: each has a stage, or several", [(str(n), n) for n in RANKS], 4),
        "microbatches": slider(
            "Microbatches", "m: parts of the batch", [(str(n), n) for n in MICROBATCHES], 8
        ),
        "schedule": dropdown(
            "Schedule", "Who computes what when", [(n, n) for n in SCHEDULES], "GPipe"
        ),
        "batch": slider(
            "Batch", "Samples of a step", [(str(n), n) for n in (8, 16, 32, 64, 128)], 16
        ),
        "recompute": dropdown(
            "Activations",
            "What a forward pass leaves for the backward pass",
            [("stored", "none"), ("recomputed", "full")],
            "none",
        ),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    picture, held, bubbles = chart("gantt"), chart("pipeline_memory"), chart("pipeline_bubble")

    def update() -> None:
        setting = Pipe(**{name: control.value for name, control in controls.items()})
        try:
            timeline = simulated_step(setting)
        except SpecError as reason:
            verdict.value = "<p>The charts still show the last pipeline that is possible.</p>"
            wall.value = wall_html(str(reason), "")
            return
        drawn = gantt_state(timeline, ranks=_shown(setting.ranks))
        picture.update(drawn["data"], gantt_words(setting), drawn["signals"])
        held.update(*memory_view(setting))
        bubbles.update(*bubble_view(setting))
        verdict.value = f'<p class="dlhpc-verdict">{pipeline_words(setting)}</p>'
        wall.value = wall_html(
            pipeline_wall(setting), "It fits, and most of the step is computation."
        )

    note = "the hatched stripes: who is idle, and for whom does it wait? Then the tallest bar of the memory."
    return workbench(controls, [verdict, wall, picture, held, bubbles], update, note)


@lru_cache(maxsize=256)
def pipeline(setting: Pipe) -> Experiment:
    """Return the step: 48 equal layers in bf16 on A100 GPUs, eight in a node."""
    schedule, chunks = SCHEDULES[setting.schedule]
    per = min(setting.ranks, 8)
    network = {
        "family": "gpt",
        "layers": LAYERS,
        "hidden": 2048,
        "heads": 32,
        "sequence": 1024,
        "vocabulary": 64,
        "dropout": 0.1,
    }
    shared: dict[str, Any] = {
        "nodes": setting.ranks // per,
        "devices_per_node": per,
        "pipeline": setting.ranks,
        "batch": setting.batch,
        "microbatches": setting.microbatches,
        "schedule": schedule,
        "chunks": chunks,
        "recompute": setting.recompute,
        "precision": "bf16",
        "optimizer": "adam",
    }
    return read_experiment(
        {
            "model": network,
            "dataset": "webtext",
            "machine": {"name": "selene", "jitter": 0.0},
            "strategy": shared,
            "storage": {"tier": ""},
        }
    )


@lru_cache(maxsize=256)
def predicted(setting: Pipe) -> Breakdown:
    """Return the prediction of a step; raises SpecError for a pipeline that cannot be."""
    return predict(pipeline(setting))


@lru_cache(maxsize=16)
def simulated_step(setting: Pipe) -> Timeline:
    """Return the step, simulated; raises SpecError for a pipeline that cannot be."""
    return simulate(pipeline(setting))


def bubble_of(setting: Pipe) -> float:
    """Return the predicted bubble over the time that a mean rank computes."""
    step = predicted(setting)
    return float(step.pipeline_bubble / (step.forward + step.backward))


def formula(setting: Pipe) -> float:
    """Return (p-1)/(v m): the bubble over the work if all stages are equal and messages free."""
    return (setting.ranks - 1) / (SCHEDULES[setting.schedule][1] * setting.microbatches)


def alone(setting: Pipe) -> float:
    """Return the seconds of a step on one GPU, the whole batch at once, as if it fitted."""
    e = pipeline(setting)
    one = {
        "nodes": 1,
        "devices_per_node": 1,
        "pipeline": 1,
        "microbatches": 1,
        "chunks": 1,
        "schedule": "gpipe",
        "recompute": "none",
    }
    return float(
        predict(e.set({f"strategy.{name}": value for name, value in one.items()})).step_time
    )


def speed_up(setting: Pipe) -> float:
    """Return how many times as fast as one GPU the pipeline is."""
    return alone(setting) / float(predicted(setting).step_time)


def kept(setting: Pipe) -> list[float]:
    """Return for each rank how many microbatches of its layers it stores at most."""
    schedule, chunks = SCHEDULES[setting.schedule]
    p, m = setting.ranks, setting.microbatches
    return [in_flight(rank, p, m, schedule, chunks) / chunks for rank in range(p)]


def memory_view(setting: Pipe) -> State:
    """Return the columns of the chart "pipeline_memory"."""
    most: dict[int, Any] = {}
    for moment in moments(pipeline(setting)):
        if moment.rank not in most or moment.total > most[moment.rank].total:
            most[moment.rank] = moment
    for_backward = [m.terms["activations"] + m.terms["working set"] for m in most.values()]
    rest = [m.total - own for m, own in zip(most.values(), for_backward, strict=True)]
    capacity = float(pipeline(setting).machine.device.memory)
    return kept_state(rest, for_backward, kept(setting), capacity)


def bubble_view(setting: Pipe) -> State:
    """Return the columns of the chart "pipeline_bubble": each schedule over microbatches."""
    lines = {}
    for name, (_, chunks) in SCHEDULES.items():
        if name == "1F1B":  # the same as GPipe's
            continue
        there = [
            m
            for m in MICROBATCHES
            if m <= setting.batch and (chunks == 1 or m % setting.ranks == 0)
        ]
        each = [setting._replace(schedule=name, microbatches=m) for m in there]
        words = "GPipe and 1F1B" if chunks == 1 else name
        lines[words] = (np.array(there), np.array([bubble_of(one) for one in each]))
    simulated = breakdown(simulated_step(setting)).terms
    now = simulated["pipeline bubble"] / (simulated["forward"] + simulated["backward"])
    return bubble_state(lines, setting.microbatches, now)


def pipeline_words(setting: Pipe) -> str:
    """Say how long a step takes, how large the bubble is, three ways, and what is stored."""
    step, terms = predicted(setting), breakdown(simulated_step(setting)).terms
    simulated = terms["pipeline bubble"] / (terms["forward"] + terms["backward"])
    return (
        f"<b>{setting.ranks} GPUs are {speed_up(setting):.3g} times as fast as one.</b> A step takes"
        f" {show(float(step.step_time), 's')} predicted, {show(sum(terms.values()), 's')} simulated. Bubble over work:"
        f" {formula(setting):.1%} by the formula, {bubble_of(setting):.1%} predicted, {simulated:.1%} simulated."
        f" Rank 0 stores {_number(kept(setting)[0])} of {setting.microbatches} microbatches at once."
        f"{uneven_words(setting)}"
    )


def uneven_words(setting: Pipe) -> str:
    """Say why the stages are not equal, or nothing where they are."""
    stages = setting.ranks * SCHEDULES[setting.schedule][1]
    if LAYERS % stages:
        return f" {LAYERS} layers do not make {stages} equal stages."
    if bubble_of(setting) > (1 + APART) * formula(setting):
        return (
            " The stages are not equal: those that store more microbatches were given fewer layers."
        )
    return ""


def gantt_words(setting: Pipe) -> str:
    """Say in words what the picture of the step shows."""
    p, m = setting.ranks, setting.microbatches
    shown = f"{p} GPUs" if len(_shown(p)) == p else f"8 of {p} GPUs"
    way = {
        "gpipe": "All microbatches go forward, then all backward",
        "1f1b": "As soon as the pipeline is full, each GPU does one forward and one backward pass in turn",
        "interleaved": "Each GPU has several chunks of the network, so the pipeline fills sooner",
    }[SCHEDULES[setting.schedule][0]]
    idle = breakdown(simulated_step(setting)).terms["pipeline bubble"]
    return f"{shown}, {m} microbatch{'es' * (m > 1)}. {way}. A GPU is idle for {show(idle, 's')} on average."


def pipeline_wall(setting: Pipe) -> str:
    """Say which limit is hit: memory on one side, the bubble on the other."""
    step, keeps = predicted(setting), kept(setting)[0]
    bubble = float(step.pipeline_bubble / step.step_time)
    if not bool(step.fits):
        what = f"Rank 0 stores {_number(keeps)} of {setting.microbatches} microbatches"
        return f"{step.walls[0]} {what}; a schedule that stores fewer, or more GPUs, would help."
    if bubble > LARGE:
        return (
            f"The bubble: {bubble:.0%} of the step. {setting.microbatches} microbatches for"
            f" {setting.ranks} stages are too few."
        )
    slow = float(step.forward + step.backward - step.recomputation) * setting.ranks / alone(setting)
    if slow > 1 + LARGE:
        return (
            f"Microbatches of {setting.batch / setting.microbatches:.3g}: so small that the same work takes"
            f" {slow:.2f} times as long as in one piece."
        )
    return ""


def _shown(ranks: int) -> list[int]:
    return list(range(ranks)) if ranks <= 8 else list(range(0, ranks, ranks // 8))


def _number(value: float) -> str:
    return f"{value:.3g}"
