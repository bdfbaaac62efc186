"""Synchronous, asynchronous or local: how fast updates come, how stale they are, and who learns fastest.

the_race()      the experiment: three ways to train on the same workers, played and then learned with

When things happen comes from the simulator: asynchronous_sgd for parameter servers, rounds of a ring
for the two that keep step. What is learned is a noisy quadratic bowl in DIMENSIONS directions of
curvature h_i, loss sum h_i x_i^2 / 2, whose gradients carry noise of variance h_i (Zhang et al. 2019,
"Which algorithmic choices matter at which batch sizes?", section 3). No momentum, one learning rate.
"""

from functools import lru_cache
from typing import NamedTuple

import ipywidgets
import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.network import network_of
from lib_dlhpc.explore.charts import State, chart
from lib_dlhpc.explore.data_parallel import goyal
from lib_dlhpc.explore.data_parallel_charts import race_state, staleness_state
from lib_dlhpc.explore.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.predict import predict
from lib_dlhpc.schedules import schedule
from lib_dlhpc.simulate import rounds
from lib_dlhpc.simulate.asynchronous import AsynchronousRun, asynchronous_sgd
from lib_dlhpc.spec.units import format_quantity

LASTS = 8.0  # s that the race takes, some 30 steps
STEPS = 38  # of a worker, enough for it
SEED = 2
DIMENSIONS, COPIES = 12, 32  # directions of the bowl; how often it is run, to average the noise
CURVATURE = 1.0 / np.arange(1, DIMENSIONS + 1)
NOISE = 0.6  # standard deviation of a worker's gradient where the curvature is 1
TARGET = 0.1  # of the loss at the start
DIVERGED = 1.0
SERVED = 0.7  # share of what workers could compute below which servers are the wall
RATES = (0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 1.9)
Floats = NDArray[np.float64]


class Race(NamedTuple):
    """What the experiment sets. slow: how many times as long worker 0 takes; rate: of all workers together."""

    workers: int = 8
    servers: int = 2
    slow: float = 1.0
    local_steps: int = 4
    rate: float = 0.4


class Course(NamedTuple):
    """How one of the three fares: when its updates come (s), its loss after each, gradients a second."""

    time: Floats
    loss: Floats
    gradients: float

    @property
    def reached(self) -> float:
        """Seconds until the loss is TARGET and stays below; infinite if it never is."""
        above = np.flatnonzero(~(self.loss <= TARGET))
        at = int(above[-1]) + 1 if len(above) else 0
        return float(self.time[at]) if at < len(self.time) else np.inf


def the_race() -> ipywidgets.Box:
    """Return the experiment: loss against time for the three, and how stale the gradients are."""
    controls = {
        "workers": slider("Workers", "One GPU in a node of its own", [(str(p), p) for p in (1, 2, 4, 8, 16)], 8),
        "servers": slider("Servers", "They hold the weights, a shard each", [(str(n), n) for n in (1, 2, 4)], 2),
        "slow": dropdown("Slow worker", "It takes that many times as long",
                         [("none", 1.0), ("half as fast", 2.0), ("a quarter as fast", 4.0)], 1.0),
        "local_steps": slider("Local steps", "H, between two averages", [(str(h), h) for h in (1, 2, 4, 8, 16)], 4),
        "rate": slider("Learning rate", "Of all workers together", [(f"{r:g}", r) for r in RATES], 0.4),
    }  # fmt: skip
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    race, stale = chart("race"), chart("staleness")

    def show() -> None:
        setting = Race(**{name: control.value for name, control in controls.items()})
        race.update(*race_view(setting))
        stale.update(*staleness_state(served(setting).histogram))
        verdict.value = f'<p class="dlhpc-verdict">{race_words(setting)}</p>'
        wall.value = wall_html(race_wall(setting), "The servers keep up, and nobody runs away.")

    note = "who is the first below the dashed line. Then make one worker slow; then raise the learning rate."
    return workbench(controls, [verdict, wall, race, stale], show, note)


def courses(setting: Race) -> dict[str, Course]:
    """Return how the three fare in LASTS seconds."""
    local = setting.local_steps
    return {
        "synchronous": _together(setting, 1),
        "asynchronous": _apart(setting),
        f"local, H = {local}": _together(setting, local),
    }


def race_view(setting: Race) -> State:
    """Return the columns of the chart "race"."""
    curves = {name: (run.time, run.loss) for name, run in courses(setting).items()}
    return race_state(curves, TARGET, LASTS)


@lru_cache(maxsize=256)
def served(setting: Race) -> AsynchronousRun:
    """Return the asynchronous run; only workers, servers and the slow worker count."""
    if setting != Race(setting.workers, setting.servers, setting.slow):
        return served(Race(setting.workers, setting.servers, setting.slow))
    machine = goyal().machine
    return asynchronous_sgd(
        machine, setting.workers, gradient_bytes(), seconds(), steps=STEPS, servers=setting.servers,
        jitter=float(machine.jitter), speed=1 / slowness(setting), seed=SEED,
    )  # fmt: skip


@lru_cache(maxsize=256)
def averaged(workers: int, slow: float, local_steps: int) -> Floats:
    """Return when each average of all workers is done, in s: some local steps, then a ring allreduce.

    The exchange follows the computing, nothing is hidden: so that asking for one local step is
    synchronous training.
    """
    machine, count = goyal().machine, STEPS // local_steps + 1
    rng = np.random.default_rng(SEED)
    drawn = rng.normal(1.0, float(machine.jitter), (count, local_steps, workers))
    compute = seconds() * np.maximum(drawn, 0.0).sum(axis=1) * slowness(Race(workers, slow=slow))
    ends, now = np.zeros(count), np.zeros(workers)
    if workers == 1:
        return np.cumsum(compute[:, 0])
    plan = schedule("ring", workers, workers)
    alone = goyal().set({"strategy.nodes": workers, "strategy.devices_per_node": 1})
    kept, network = rounds.program(plan), network_of(alone)
    for number in range(count):
        now = rounds.finish_times(kept, network, gradient_bytes() / workers, now + compute[number])
        ends[number] = now.max()
    return ends


def slowness(setting: Race) -> Floats:
    """Return how many times as long each worker takes."""
    times = np.ones(setting.workers)
    times[0] = setting.slow
    return times


def seconds() -> float:
    """Return the compute time of a step of one GPU."""
    return float(predict(goyal(0.0)).compute)


def gradient_bytes() -> float:
    """Return the bytes of one gradient, and of the weights."""
    return 4.0 * float(goyal().model.parameters)


def most_stale_rate(workers: int) -> float:
    """Return the largest learning rate of all workers together at which stale gradients converge.

    A gradient that is tau updates old keeps x - eta h x_old from growing while
    eta h < 2 sin(pi / (2 (2 tau + 1))) (Levin and May 1976); tau = workers - 1 here, h at most 1.
    """
    stale = workers - 1
    return float(workers * 2 * np.sin(np.pi / (2 * (2 * stale + 1))))


def race_words(setting: Race) -> str:
    """Say who is first at the target, how many gradients a second each computes, and how stale they are."""
    runs = courses(setting)
    first = min(runs, key=lambda name: runs[name].reached)
    told = ", ".join(f"{name} {run.gradients:.3g}" for name, run in runs.items())
    if np.isinf(runs[first].reached):
        winner = "Nobody gets to a tenth of the loss."
    else:
        reached = format_quantity(runs[first].reached, "s")
        winner = f"{first[0].upper()}{first[1:]} is first at a tenth of the loss, after {reached}."
    stale = served(setting).staleness
    return (
        f"<b>{winner}</b><br>Gradients a second: {told}."
        f" An asynchronous gradient is {stale.mean():.3g} updates old on average, {stale.max()} at most."
    )


def race_wall(setting: Race) -> str:
    """Say who runs away, or that the servers cannot keep up, or nothing."""
    wild = [name for name, run in courses(setting).items() if not run.loss[-1] < DIVERGED]
    if wild:
        return (
            f"The learning rate {setting.rate:g}: {' and '.join(wild)} run{'s' * (len(wild) == 1)} away."
            f" Stale gradients allow {most_stale_rate(setting.workers):.3g} at most, fresh ones 2."
        )
    alone, got = float((1 / (seconds() * slowness(setting))).sum()), _apart(setting).gradients
    if got < SERVED * alone:
        return (
            f"The servers: {setting.workers} workers could compute {alone:.3g} gradients a second, and only"
            f" {got:.3g} arrive. They stand in line at the link of a server; give it more shards, or fewer workers."
        )
    return ""


def _together(setting: Race, local_steps: int) -> Course:
    time = averaged(setting.workers, setting.slow, local_steps)
    kept = time <= LASTS
    loss = _keep_step(setting.workers, setting.rate, local_steps, int(kept.sum()))
    gradients = setting.workers * local_steps * len(time) / float(time[-1])
    return Course(np.append(0.0, time[kept]), loss, gradients)


def _apart(setting: Race) -> Course:
    run = served(setting)
    kept = run.time <= LASTS
    loss = _stale(setting.workers, setting.rate, tuple(run.staleness[kept].tolist()))
    return Course(np.append(0.0, run.time[kept]), loss, kept.sum() / min(LASTS, run.time[-1]))


@lru_cache(maxsize=512)
def _keep_step(workers: int, rate: float, local_steps: int, count: int) -> Floats:
    """Return the loss after each average: all start from it, take their steps, and meet again."""
    rng, x = np.random.default_rng(SEED), np.ones((COPIES, 1, DIMENSIONS))
    loss = [_loss(x)]
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(count):
            own = np.repeat(x, workers, axis=1)
            for _ in range(local_steps):
                own = own - rate * _gradient(own, rng)
            x = own.mean(axis=1, keepdims=True)
            loss.append(_loss(x))
    return np.array(loss)


@lru_cache(maxsize=512)
def _stale(workers: int, rate: float, staleness: tuple[int, ...]) -> Floats:
    """Return the loss after each update by a gradient of weights that are so many updates old.

    A worker's gradient counts for its share: with nothing stale, a round of updates is one
    synchronous step.
    """
    rng = np.random.default_rng(SEED)
    weights = [np.ones((COPIES, 1, DIMENSIONS))]
    with np.errstate(over="ignore", invalid="ignore"):
        for old in staleness:
            weights.append(weights[-1] - rate / workers * _gradient(weights[-1 - old], rng))
    return np.array([_loss(x) for x in weights])


def _gradient(x: Floats, rng: np.random.Generator) -> Floats:
    return CURVATURE * x + NOISE * np.sqrt(CURVATURE) * rng.standard_normal(x.shape)


def _loss(x: Floats) -> float:
    """Relative to the start, where every x is 1."""
    return float((CURVATURE * x**2).sum(axis=-1).mean() / CURVATURE.sum())
