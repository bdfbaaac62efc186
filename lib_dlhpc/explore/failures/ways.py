"""Who waits for a checkpoint: four ways to save, how long each stalls training, and what each loses.

four_ways()    the experiment; its walls: a write that is slower than the interval, a copy that does not fit
"""

from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, wall_html, workbench
from lib_dlhpc.explore.failures.charts import WAYS, costs_state, ways_state
from lib_dlhpc.explore.failures.interval import INTERVALS, LARGE, MODELS, RATES, choices, experiment
from lib_dlhpc.explore.failures.interval import Setting as Run
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.resilience import Resilience
from lib_dlhpc.spec.units import format_quantity as show

WORDS = {
    "synchronous": "training stalls until the shared file system has everything",
    "asynchronous": "training stalls for a copy to host memory; it is written in the background",
    "multilevel": "training stalls until the node-local drives have their shards; these are written on to the shared"
    " file system, and failures that spare the drives read nothing from it",
    "incremental": "training stalls while everything is hashed and the changed chunks are written",
}
MEMORIES = (0.25e9, 1e9, 2e9, 4e9, 16e9, 256e9, 2e12)  # B of a node's host, for copies
CHANGED = (0.01, 0.05, 0.1, 0.3, 1.0)
WRITERS = {"all nodes, a shard each": "all", "the first node": "first"}
BEST = 0.0  # the position of the interval at which each way has its own best one
LATE = 1.0 + 1e-9


class Setting(NamedTuple):
    """What the controls say. interval: s, or BEST; rate: B/s of the file system; memory: B of a host."""

    model: str = LARGE
    writers: str = "all"
    interval: float = 1200.0
    rate: float = 95e9
    memory: float = 256e9
    changed: float = 0.1


def four_ways() -> ipywidgets.Box:
    """Return the experiment: one checkpoint of each way, and what each way loses in a long run."""
    intervals = [("each its best", BEST), *choices(INTERVALS, "s")]
    controls = {
        "model": dropdown(
            "Network", "14 B of state for each weight", [(n, n) for n in MODELS], LARGE
        ),
        "writers": dropdown("Who writes", "To the shared file system", WRITERS.items(), "all"),
        "interval": slider("Interval", "Training between two checkpoints", intervals, 1200.0),
        "rate": slider(
            "File system",
            "The shared file system, all writers together",
            choices(RATES, "B/s"),
            95e9,
        ),
        "memory": slider(
            "Host memory",
            "Of a node, that training leaves for copies",
            choices(MEMORIES, "B"),
            256e9,
        ),
        "changed": slider(
            "Changed",
            "Share of the state that an incremental one writes",
            [(f"{share:.0%}", share) for share in CHANGED],
            0.1,
        ),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    costs, ways_chart = chart("failures_costs"), chart("failures_ways")

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        costs.update(*costs_view(setting))
        ways_chart.update(*ways_view(setting))
        verdict.value = verdict_html(ways_words(setting))
        wall.value = wall_html(" ".join(ways_walls(setting)), room_words(setting))

    note = "how far the square is from the circle: a cheap checkpoint can be frequent."
    return workbench(controls, [verdict, wall, costs, ways_chart], update, note)


@lru_cache(maxsize=512)
def found(setting: Setting, way: str) -> Resilience:
    """Return the run under failures with one way to save, at its interval."""
    run = Run(model=setting.model, rate=setting.rate, interval=setting.interval or 1200.0)
    more: dict[str, Any] = {"host_memory": setting.memory, "changed": setting.changed}
    own = predict(experiment(run, way, setting.writers, **more)).resilience
    if setting.interval == BEST:
        best = max(float(own.best), 1.0)
        better = own.prediction.experiment.set({"run.checkpoint_interval": best})
        own = predict(better).resilience
    return own


def costs_view(setting: Setting) -> State:
    """Return the columns of the chart "failures_costs"."""
    prices = {way: found(setting, way).saving for way in WAYS}
    each = {way: (float(p.blocked), float(p.background)) for way, p in prices.items()}
    return costs_state(each, setting.interval or None, WORDS)


def ways_view(setting: Setting) -> State:
    """Return the columns of the chart "failures_ways"."""
    ways = {}
    for way in WAYS:
        own = found(setting, way)
        ways[way] = {name: float(s) for name, s in own.shares.items()}, float(own.interval)
    return ways_state(ways)


def ways_words(setting: Setting) -> str:
    """Say how long each way stalls training, and which loses least."""
    own = {way: found(setting, way) for way in WAYS}
    stop, copied = (float(own[way].saving.blocked) for way in ("synchronous", "asynchronous"))
    ratio = f"{stop / copied:,.0f} times less" if stop > copied else "more: one node copies it all"
    best = max(own, key=lambda way: float(own[way].goodput))
    return (
        f"<b>Stall: {show(stop, 's')} until all is written, {show(copied, 's')} for a copy</b>,"
        f" {ratio}."
        f" Goodput is {float(own['synchronous'].goodput):.1%} synchronous,"
        f" {float(own['asynchronous'].goodput):.1%} asynchronous; the best is {best},"
        f" {float(own[best].goodput):.1%}."
    )


def ways_walls(setting: Setting) -> list[str]:
    """Say which copy does not fit, and which write is not done when the next checkpoint is due."""
    walls, copy = [], float(found(setting, "asynchronous").saving.host_copy)
    if copy > setting.memory:
        help_ = "let all nodes write" if setting.writers == "first" else "take more nodes"
        walls.append(
            f"Memory, asynchronous: a host stores {show(copy, 'B')} until it is written, and has"
            f" {show(setting.memory, 'B')}; {help_}."
        )
    for way in ("asynchronous", "multilevel"):
        own = found(setting, way)
        behind, every = float(own.saving.background), float(own.interval)
        if behind > LATE * every:
            walls.append(
                f"Too slow, {way}: the background write takes {show(behind, 's')}, and after"
                f" {show(every, 's')} the next one is due: training waits {show(behind - every, 's')} for each."
            )
    return walls


def room_words(setting: Setting) -> str:
    """Say how much of the host's memory a copy takes."""
    copy = float(found(setting, "asynchronous").saving.host_copy)
    return f"Every copy fits, {show(copy, 'B')} of {show(setting.memory, 'B')}, and is written in time."
