"""The bubble of a pipeline of 405 billion parameters: one step by schedule, simulated, and its memory."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import State, columns
from lib_dlhpc.explore.gantt.chart import gantt_state
from lib_dlhpc.explore.language_model.layout import LAYERS, Recompute, base, wall
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.pipelines.bubbles import PassTimes, RankCost, bubbles
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline, breakdown

ONE, TWO, ALL = "1F1B", "interleaved, 2 chunks", "interleaved, a layer a chunk"
SCHEDULES = (ONE, TWO, ALL, "zero bubble (ZB-H1)")
LANES = 8
_NOTHING_FREED = (
    " This ZB-H1 holds all of a microbatch until its weight gradients are computed. Qi et al. free what these do not"
    " need, and hold about as much as 1F1B."
)


class Setting(NamedTuple):
    """A pipeline of stages of 8 GPUs each. recompute: as in the strategy."""

    stages: Annotated[int, Slider("Stages", "A node of 8 GPUs each", (8, 16))] = 16
    microbatches: Annotated[int, Slider("Microbatches", "A sequence each", (8, 16, 32))] = 16
    schedule: Annotated[str, Dropdown("Schedule", "Who computes what when", SCHEDULES)] = ONE
    recompute: Recompute = "none"


@on_bench(Setting(), "gantt", "llm_bubbles", fine="It fits.")
def the_bubble(setting: Setting) -> View:
    """Look for the hatched stripes, then the words on memory: what does each schedule pay for its smaller bubble?"""
    step = simulated(setting)
    shown = range(0, step.ranks, step.ranks // LANES)  # a rank of each stage, or of each second
    gantt = {**gantt_state(step, ranks=shown), "summary": gantt_words(setting)}
    charts: dict[str, Any] = {"gantt": gantt, "llm_bubbles": bubbles_state(setting)}
    return View(bubble_words(setting), wall(predicted(setting)), charts)


def experiment(setting: Setting, nodes: int = 0) -> Experiment:
    """Return the run. nodes: of one pipeline unless given."""
    chunks = {TWO: 2, ALL: LAYERS // setting.stages}.get(setting.schedule, 1)
    name = "zb-h1" if setting.schedule == SCHEDULES[-1] else "interleaved" if chunks > 1 else "1f1b"
    batch = setting.microbatches
    split: dict[str, Any] = {"pipeline": setting.stages, "schedule": name, "chunks": chunks}
    split |= {"nodes": nodes or setting.stages, "zero": 1 if nodes else 0}
    split |= {"batch": batch, "microbatches": batch, "recompute": setting.recompute}
    own = {f"strategy.{key}": value for key, value in split.items()}
    return base().set({**own, "machine.jitter": 0.0})


@lru_cache(maxsize=64)
def predicted(setting: Setting) -> Breakdown:
    """Return the prediction for as many pipelines as 16,384 GPUs are, their optimizer state sharded."""
    return predict(experiment(setting, nodes=int(base().strategy.nodes)))


@lru_cache(maxsize=1)
def simulated(setting: Setting) -> Timeline:
    """Return a step of one pipeline, simulated."""
    return simulate(experiment(setting))


@lru_cache(maxsize=4)
def passes(stages: int, recompute: str) -> PassTimes:
    """Return the seconds of a middle stage for a microbatch, its tensor collectives included."""
    own = simulate(experiment(Setting(stages, 1, SCHEDULES[-1], recompute)))
    middle = own.rank == own.ranks // 2
    parts = zip(own.name[middle], own.stop[middle] - own.start[middle], strict=True)
    took = {str(own.names[name]): float(seconds) for name, seconds in parts}
    forward, backward = (
        took[each] + took.get(f"tensor exchange: {each}", 0.0)
        for each in ("forward 0", "backward 0")
    )
    weights = took["weight gradients 0"]
    return PassTimes(forward, backward + weights, weights)


def closed_forms(setting: Setting) -> dict[str, RankCost]:
    """Return the idle time of three schedules in closed form, and what they hold."""
    return bubbles(setting.stages, passes(setting.stages, setting.recompute))


def bubbles_state(setting: Setting) -> State:
    """Return the idle time of three schedules, with what they hold."""
    rows: list[dict[str, Any]] = []
    for name, own in closed_forms(setting).items():
        times = "twice" if own.weights == 2 else "once"
        words, held = f"{show(own.idle, 's')}, weights {times}", f"{own.activations} microbatches"
        row = {"label": name, "order": len(rows), "idle": own.idle, "words": words, "held": held}
        rows.append(row)
    said = "; ".join(f"{row['label']} {row['words']}, {row['held']}" for row in rows)
    return {"bars": columns(rows)}, f"Idle time of a rank in closed form: {said}."


@lru_cache(maxsize=64)
def bubble(setting: Setting) -> float:
    """Return the share of a step of one pipeline that is bubble, predicted."""
    step = predict(experiment(setting))
    return float(step.pipeline_bubble / step.step_time)


def simulated_bubble(setting: Setting) -> float:
    """Return the share of a step that is bubble, simulated."""
    terms = breakdown(simulated(setting)).terms
    return terms["pipeline bubble"] / sum(terms.values())


def fullest(setting: Setting) -> tuple[int, float]:
    """Return the fullest rank of the pipeline, and the bytes of each of its GPUs."""
    most = max(predicted(setting).moments, key=lambda moment: moment.total)
    return most.rank, float(most.total)


def bubble_words(setting: Setting) -> str:
    """Say how large the bubble is, predicted and simulated, and what the fullest GPU holds."""
    rank, held = fullest(setting)
    return (
        f"<b>{bubble(setting):.0%} of the step is bubble</b> ({simulated_bubble(setting):.0%} simulated). The step"
        f" takes {show(float(simulated(setting).stop.max()), 's')}; the fullest GPU, of rank {rank} of the pipeline,"
        f" holds {show(held, 'B')}.{_NOTHING_FREED if setting.schedule == SCHEDULES[-1] else ''}"
    )


def gantt_words(setting: Setting) -> str:
    """Say in words what the picture shows."""
    idle = breakdown(simulated(setting)).terms["pipeline bubble"]
    every = "each" if setting.stages == LANES else "every second"
    return (
        f"A GPU of {every} of {setting.stages} stages, {setting.microbatches} microbatches, {setting.schedule}. On"
        f" average a GPU is idle for {show(idle, 's')} in the bubble."
    )
