"""Time and energy to an accuracy: ResNet-50 on ImageNet, with GPUs, batch, power limit and target as controls."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Slider, View, on_bench
from lib_dlhpc.explore.energy_planning.charts import (
    Cost,
    causes_state,
    costs_state,
    hours,
    kilowatt_hours,
)
from lib_dlhpc.planner.pareto_front import front, knee
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.spec.experiment import Experiment

MOST_NODES = 256  # Big Basin has 44; beyond, more of the same is assumed
PER_NODE = 8
GPUS = tuple(2**k for k in range(5, 12))
BATCHES = tuple(2**k for k in range(9, 17))
LIMITS = (0, 250, 225, 200, 175, 150, 125)  # W of a GPU that draws 300 W
TARGETS = (0.66, 0.76, 0.764, 0.7645)  # each with another largest batch
CAUSES = {  # of the joules, by the names of a prediction's causes
    "computing": ("devices: forward", "devices: backward", "devices: update"),
    "waiting, exchanging": ("devices: waiting", "devices: exposed", "devices: input"),
    "hosts, switches": ("hosts", "switches", "storage"),
    "cooling": ("cooling",),
}


def limit_words(watts: float) -> str:
    """Return a power limit in words."""
    return f"{watts:g} W" if watts else "none"


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.4g}%"


class Setting(NamedTuple):
    """A run. limit: W of a GPU, 0: none; target: top-1 accuracy."""

    gpus: Annotated[int, Slider("GPUs", "P100, in nodes of 8", GPUS)] = 256
    batch: Annotated[int, Slider("Batch", "Images of a step, all GPUs together", BATCHES)] = 8192
    limit: Annotated[int, Slider("Power limit", "Of each GPU", LIMITS, limit_words)] = 0
    target: Annotated[float, Slider("Target", "Top-1 accuracy", TARGETS, percent)] = 0.76


class Map(NamedTuple):
    """All runs that meet a target: settings, s and J (columns), rows of the front by time, and its knee."""

    settings: tuple[Setting, ...]
    costs: Any
    front: tuple[int, ...]
    knee: int

    @property
    def named(self) -> dict[str, Setting]:
        """The runs that have a name."""
        rows = {"fastest": self.front[0], "knee": self.knee, "cheapest": self.front[-1]}
        return {name: self.settings[row] for name, row in rows.items()}


@on_bench(Setting(), "energy_map", "energy_causes", fine="The target was met with such a batch.")
def the_map(setting: Setting) -> View:
    """Look for how far right the front goes for its last joules, and how far up for its last minutes."""
    wall = wall_of(setting)
    found = runs(setting.target)
    mine = {} if wall else {"yours": setting}
    named = found.named
    sweeps = {
        "each power limit": [setting._replace(limit=limit) for limit in reversed(LIMITS)],
        "each number of GPUs": [setting._replace(gpus=gpus) for gpus in GPUS],
    }
    place = {each: row for row, each in enumerate(found.settings)}
    lines = {
        name: found.costs[[place[each] for each in own if each in place]]
        for name, own in sweeps.items()
    }
    costs = [
        Cost(seconds, joules, words_of(each))
        for each, (seconds, joules) in zip(found.settings, found.costs.tolist(), strict=True)
    ]
    marks = {name: costs[place[each]] for name, each in named.items()}
    bars = {name: by_cause(each) for name, each in (mine | named).items()}
    charts = {
        "energy_map": costs_state(
            costs, found.front, marks, None if wall else cost(setting), lines
        ),
        "energy_causes": causes_state(bars),
    }
    return View(map_words(setting, wall), wall, charts)


def map_words(setting: Setting, wall: str) -> str:
    """Say what a run costs, and how it compares with the fastest and the cheapest that meet the target."""
    found = runs(setting.target)
    fastest, cheapest = (cost(found.named[name]) for name in ("fastest", "cheapest"))
    ends = (
        f"The fastest run to {percent(setting.target)} takes {hours(fastest.seconds)} and"
        f" {kilowatt_hours(fastest.joules)}; the cheapest {hours(cheapest.seconds)} and"
        f" {kilowatt_hours(cheapest.joules)}."
    )
    if wall:
        return ends
    own, (epochs, _, _) = cost(setting), predicted(setting).to_accuracy.epochs[:3]
    near = any(each == setting for each in (found.settings[row] for row in found.front))
    return (
        f"<b>{hours(own.seconds)} and {kilowatt_hours(own.joules)} to {percent(setting.target)}</b>, {float(epochs):g}"
        f" epochs. {'No other run here is better in both.' if near else better_words(setting)} {ends}"
    )


def better_words(setting: Setting) -> str:
    """Say which run is as fast as this one, or faster, and needs the fewest joules."""
    found, own = runs(setting.target), cost(setting)
    rows = [row for row in found.front if found.costs[row][0] <= own.seconds]
    least = min(rows, key=lambda row: found.costs[row][1])
    saved = 1 - found.costs[least][1] / own.joules
    return f"As fast, or faster, with {saved:.0%} less energy: {words_of(found.settings[least])}."


def wall_of(setting: Setting) -> str:
    """Say why a run cannot be, or why nobody knows whether it meets the target, or nothing."""
    if setting.batch < setting.gpus:
        return f"Batch: {setting.batch:,} images are too few for {setting.gpus:,} GPUs."
    own = predicted(setting)
    if not own.to_accuracy.known:
        return f"Accuracy: {own.to_accuracy.epochs.reason}."
    return "" if own.fits else " ".join(own.walls)


def words_of(setting: Setting) -> str:
    """Return a run in words."""
    limit = f"at most {setting.limit} W each" if setting.limit else "no limit"
    return f"{setting.gpus:,} GPUs, batch {setting.batch:,}, {limit}"


def cost(setting: Setting) -> Cost:
    """Return what a run takes to the target."""
    found = predicted(setting).to_accuracy
    return Cost(float(found.time.median), float(found.energy.median), words_of(setting))


@lru_cache(maxsize=512)
def predicted(setting: Setting) -> Breakdown:
    """Return the prediction of a run."""
    return predict(experiment(setting.gpus, setting.batch, setting.limit, setting.target))


def experiment(gpus: Any, batch: Any, limit: Any, target: float) -> Experiment:
    """Return runs, arrays welcome: Goyal's with other numbers."""
    return _goyal().set(
        {
            "run.target": target,
            "strategy.nodes": gpus // PER_NODE,
            "strategy.batch": batch // gpus,
            "strategy.power_limit": limit,
        }
    )


@lru_cache(maxsize=1)
def _goyal() -> Experiment:
    return replay("goyal-2017").experiment.set({"machine.nodes": MOST_NODES})


@lru_cache(maxsize=len(TARGETS))
def runs(target: float) -> Map:
    """Return all runs that fit and meet the target: one prediction over arrays."""
    gpus, batch, limit = np.meshgrid(GPUS, BATCHES, LIMITS, indexing="ij")
    possible = batch >= gpus
    gpus, batch, limit = gpus[possible], batch[possible], limit[possible].astype(float)
    found = predict(experiment(gpus, batch, limit, target))
    costs = np.stack([found.to_accuracy.time.median, found.to_accuracy.energy.median], axis=1)
    inside = np.isfinite(costs[:, 0]) & np.broadcast_to(found.fits, len(costs))
    settings = tuple(
        Setting(int(g), int(b), int(w), target)
        for g, b, w in zip(gpus[inside], batch[inside], limit[inside], strict=True)
    )
    costs = costs[inside]
    best = front(costs)
    return Map(settings, costs, tuple(best), best[knee(costs[best])])


def by_cause(setting: Setting) -> dict[str, float]:
    """Return the J of a run to its target by cause."""
    found = predicted(setting)
    whole = float(found.to_accuracy.energy.median)
    each = {name: float(value) for name, value in found.energy.items()}
    step = sum(each.values())
    return {
        cause: whole * sum(value for name, value in each.items() if name.startswith(begins)) / step
        for cause, begins in CAUSES.items()
    }
