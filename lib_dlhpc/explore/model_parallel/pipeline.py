"""A pipeline of GPUs: who computes what when, the bubble, and the activations that wait for backward."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import Data, State, columns, stacked
from lib_dlhpc.explore.blocks.lines import line_columns
from lib_dlhpc.explore.gantt.chart import gantt_state
from lib_dlhpc.explore.model_parallel.a100 import on_a100
from lib_dlhpc.parallel import program
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.memory.rank_memory import moments
from lib_dlhpc.prediction.pipelines.pipelined import in_flight
from lib_dlhpc.program import pass_seconds
from lib_dlhpc.program.calls import PASSES as PHASES
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline, breakdown

LAYERS = 48  # of equal size, as in the Transformer that GPipe was measured with
SIZES = {"layers": LAYERS, "hidden": 2048, "heads": 32, "sequence": 1024, "vocabulary": 64}
NETWORK = {"family": "gpt", **SIZES, "dropout": 0.1}
RANKS = (2, 4, 8, 16)
MICROBATCHES = (1, 2, 4, 8, 16, 32, 64)
BATCHES = (8, 16, 32, 64, 128)
SCHEDULES = {  # as in the strategy, with chunks of a rank
    "GPipe": ("gpipe", 1),
    "1F1B": ("1f1b", 1),
    "interleaved, 2 chunks": ("interleaved", 2),
    "interleaved, 3 chunks": ("interleaved", 3),
    "zero bubble": ("zb-h1", 1),
}
ACTIVATIONS = {"stored": "none", "recomputed": "full"}
PASSES = {
    "gpipe": "All microbatches go forward, then all backward",
    "1f1b": "As soon as the pipeline is full, each GPU does one forward and one backward pass in turn",
    "interleaved": "Each GPU has several chunks of the network, so the pipeline fills sooner",
    "zb-h1": "As 1F1B, but weight gradients wait until a GPU would be idle",
}
APART = 0.2  # of the formula's bubble, from which stages are said not to be equal
LARGE = 0.25  # share of a step from which the bubble is a wall
WHEN = "Who computes what when"
LEFT = "What a forward pass leaves for the backward pass"


class Pipe(NamedTuple):
    """A pipeline. batch: samples of a step; recompute: as in the strategy."""

    ranks: Annotated[int, Slider("GPUs", "p: each has a stage, or several", RANKS)] = 4
    microbatches: Annotated[int, Slider("Microbatches", "m: parts of the batch", MICROBATCHES)] = 8
    schedule: Annotated[str, Dropdown("Schedule", WHEN, tuple(SCHEDULES))] = "GPipe"
    batch: Annotated[int, Slider("Batch", "Samples of a step", BATCHES)] = 16
    recompute: Annotated[str, Dropdown("Activations", LEFT, ACTIVATIONS)] = "none"


@on_bench(
    Pipe(),
    "gantt",
    "pipeline_memory",
    "pipeline_bubble",
    fine="It fits, and most of the step is computation.",
)
def a_pipeline(setting: Pipe) -> View:
    """Look for the hatched stripes: who is idle, and for whom does it wait? Then the tallest bar of the memory."""
    step = max(1, setting.ranks // 8)
    gantt = gantt_state(simulated_step(setting), ranks=range(0, setting.ranks, step))
    charts: dict[str, Any] = {
        "gantt": {**gantt, "summary": gantt_words(setting)},
        "pipeline_memory": memory_view(setting),
        "pipeline_bubble": bubble_view(setting),
    }
    return View(pipeline_words(setting), pipeline_wall(setting), charts)


@lru_cache(maxsize=256)
def pipeline(setting: Pipe) -> Experiment:
    """Return the step: 48 equal layers, eight GPUs in a node."""
    schedule, chunks = SCHEDULES[setting.schedule]
    per, chosen = min(setting.ranks, 8), setting._asdict()
    gpus = {"nodes": setting.ranks // per, "devices_per_node": per, "pipeline": chosen.pop("ranks")}
    how = {**chosen, "schedule": schedule, "chunks": chunks, "optimizer": "adam"}
    return on_a100(NETWORK, "webtext", {**gpus, **how})


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


def simulated_bubble(setting: Pipe) -> float:
    """Return the simulated bubble over the time that a mean rank computes."""
    terms = breakdown(simulated_step(setting)).terms
    return terms["pipeline bubble"] / (terms["forward"] + terms["backward"])


def formula(setting: Pipe) -> float:
    """Return (p-1)/(v m): the bubble over the work if all stages are equal and messages free.

    Zero bubble: (p-1)(F + B - W) of m (F + B + W), with F, B, W of the mean stage.
    """
    schedule, chunks = SCHEDULES[setting.schedule]
    share = 1.0 / chunks
    if schedule == "zb-h1":
        stages = [stage for (stage,) in program(pipeline(setting)).stages]
        forward, backward, weights = (
            sum(pass_seconds(stage.block(phase, False)) for stage in stages) for phase in PHASES
        )
        share = (forward + backward - weights) / (forward + backward + weights)
    return share * (setting.ranks - 1) / setting.microbatches


def alone(setting: Pipe) -> float:
    """Return the seconds of a step on one GPU, the whole batch at once, as if it fitted."""
    one = dict.fromkeys(("nodes", "devices_per_node", "pipeline", "microbatches", "chunks"), 1)
    known = {**one, "schedule": "gpipe", "recompute": "none"}
    e = pipeline(setting).set({f"strategy.{name}": value for name, value in known.items()})
    return float(predict(e).step_time)


def speed_up(setting: Pipe) -> float:
    """Return how many times as fast as one GPU the pipeline is."""
    return alone(setting) / float(predicted(setting).step_time)


def kept(setting: Pipe) -> list[float]:
    """Return for each rank how many microbatches of its layers it stores at most."""
    schedule, chunks = SCHEDULES[setting.schedule]
    p, m = setting.ranks, setting.microbatches
    return [in_flight(rank, p, m, schedule, chunks) / chunks for rank in range(p)]


def memory_view(setting: Pipe) -> State:
    """Return the chart "pipeline_memory": what is always there, and what is stored for backward passes."""
    every, stores = moments(pipeline(setting)), kept(setting)
    capacity = float(pipeline(setting).machine.device.memory)
    held = []
    for rank in range(setting.ranks):
        most = max((each for each in every if each.rank == rank), key=lambda each: each.total)
        own = most.terms["activations"] + most.terms["working set"]
        held.append({"weights and their state": most.total - own, "activations": own})
    totals = [sum(parts.values()) for parts in held]
    bars = [
        {
            "rank": rank,
            "term": term,
            "start": start,
            "stop": stop,
            "size": show(parts[term], "B"),
            "details": f"rank {rank}, {term}: {show(parts[term], 'B')}",
        }
        for rank, parts in enumerate(held)
        for term, start, stop in stacked(parts)
    ]
    ranks = [{"rank": rank, "y": total} for rank, total in enumerate(totals)]
    over = [{**own, "start": capacity, "stop": own["y"]} for own in ranks if own["y"] > capacity]
    largest = max(totals)
    data: Data = {
        "bars": columns(bars),
        "over": columns(over),
        "tops": {**columns(ranks), "words": [f"{many:.3g}" for many in stores]},
        "capacity": {"y": [capacity], "words": [f"{show(capacity, 'B')} available"]},
        "room": {"y": [0.0, 1.12 * max(capacity, largest)]},
    }
    return data, (
        f"The fullest GPU holds {show(largest, 'B')} of {show(capacity, 'B')}: it"
        f" {'fits' if largest <= capacity else 'does not fit'}. Rank 0 stores"
        f" {stores[0]:.3g} microbatch{'es' * bool(stores[0] != 1)} at once,"
        f" the last rank {stores[-1]:.3g}."
    )


def bubble_view(setting: Pipe) -> State:
    """Return the chart "pipeline_bubble": each schedule over microbatches, and what was simulated."""
    curves = {}
    for name in ("GPipe", *list(SCHEDULES)[2:]):
        line = "GPipe and 1F1B" if name == "GPipe" else name.replace(",", "")
        by = 1 if name == "GPipe" else setting.ranks  # chunks pass in groups of as many as ranks
        there = [m for m in MICROBATCHES if m <= setting.batch and m % by == 0]
        bubbles = [bubble_of(setting._replace(schedule=name, microbatches=m)) for m in there]
        if there:
            curves[line] = (np.array(there), np.array(bubbles))
    now, simulated = setting.microbatches, simulated_bubble(setting)
    words = f"simulated: {simulated:.1%}"
    here: dict[str, Any] = {"x": [now], "y": [simulated], "words": [words], "dy": [-14]}
    said = ", ".join(f"{name} {y[x == now][0]:.1%}" for name, (x, y) in curves.items() if now in x)
    return {**line_columns(curves), "now": here}, (
        f"With {count(now, 'microbatch')}, predicted: {said}; simulated {simulated:.1%}."
    )


def pipeline_words(setting: Pipe) -> str:
    """Say how long a step takes, how large the bubble is, three ways, and what is stored."""
    step, terms = predicted(setting), breakdown(simulated_step(setting)).terms
    return (
        f"<b>{setting.ranks} GPUs are {speed_up(setting):.3g} times as fast as one.</b> A step takes"
        f" {show(float(step.step_time), 's')} predicted, {show(sum(terms.values()), 's')} simulated. Bubble over work:"
        f" {formula(setting):.1%} by the formula, {bubble_of(setting):.1%} predicted,"
        f" {simulated_bubble(setting):.1%} simulated. Rank 0 stores {kept(setting)[0]:.3g} of"
        f" {count(setting.microbatches, 'microbatch')} at once.{uneven_words(setting)}"
    )


def uneven_words(setting: Pipe) -> str:
    """Say why the stages are not equal, or nothing where they are."""
    stages = setting.ranks * SCHEDULES[setting.schedule][1]
    if LAYERS % stages:
        return f" {LAYERS} layers cannot form {stages} equal stages."
    why = " The stages are not equal: those that store more microbatches were given fewer layers."
    return why if bubble_of(setting) > (1 + APART) * formula(setting) else ""


def gantt_words(setting: Pipe) -> str:
    """Say in words what the picture of the step shows."""
    p, m = setting.ranks, setting.microbatches
    shown = f"{p} GPUs" if p <= 8 else f"8 of {p} GPUs"
    idle = breakdown(simulated_step(setting)).terms["pipeline bubble"]
    return (
        f"{shown}, {count(m, 'microbatch')}. {PASSES[SCHEDULES[setting.schedule][0]]}. A GPU is idle for"
        f" {show(idle, 's')} on average."
    )


def pipeline_wall(setting: Pipe) -> str:
    """Say which limit is hit: memory on one side, the bubble on the other."""
    step, m = predicted(setting), setting.microbatches
    bubble = float(step.pipeline_bubble / step.step_time)
    if not step.fits:
        return (
            f"{step.walls[0]} Rank 0 stores {kept(setting)[0]:.3g} of {count(m, 'microbatch')}; a schedule that stores"
            " fewer, or more GPUs, would help."
        )
    if bubble > LARGE:
        return f"The bubble: {bubble:.0%} of the step. {setting.ranks} stages need more than {count(m, 'microbatch')}."
    slow = float(step.forward + step.backward - step.recomputation) * setting.ranks / alone(setting)
    if slow > 1 + LARGE:
        return (
            f"Microbatches of {setting.batch / m:.3g}: so small that the same work takes {slow:.2f} times as long as"
            " in one piece."
        )
    return ""
