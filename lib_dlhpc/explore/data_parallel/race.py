"""Synchronous, asynchronous or local: how fast updates come, how stale they are, and who learns fastest.

the_race()      the experiment: three ways to train on the same workers, simulated, then used to learn

When things happen comes from the simulator: asynchronous_sgd for parameter servers, rounds of a ring
for the two that synchronize. The loss is that of bowl.py.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.costs.network import network_of
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.data_parallel.bowl import Floats, most_stale_rate, stale, synchronized
from lib_dlhpc.explore.data_parallel.buckets import goyal
from lib_dlhpc.explore.data_parallel.charts import race_state, staleness_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.schedules import schedule
from lib_dlhpc.simulation import rounds
from lib_dlhpc.simulation.asynchronous import AsynchronousRun, asynchronous_sgd
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity

LASTS = 8.0  # s, the length of the race, some 30 steps
STEPS = 38  # of a worker, enough for it
SEED = 2  # of the jitter
TARGET = 0.1  # of the loss at the start
DIVERGED = 1.0
SERVED = 0.8  # share of what workers could compute below which servers are the wall
RATES = (0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 1.9)


class Race(NamedTuple):
    """What the experiment sets. slow: how many times as long worker 0 takes; rate: of all workers together."""

    workers: int = 8
    servers: int = 2
    slow: float = 1.0
    local_steps: int = 4
    rate: float = 0.4


class Course(NamedTuple):
    """One method: the times of its updates (s), its loss after each, gradients a second."""

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
        "workers": slider(
            "Workers", "One GPU in a node of its own", [(str(p), p) for p in (1, 2, 4, 8, 16)], 8
        ),
        "servers": slider(
            "Servers", "Each has a shard of the weights", [(str(n), n) for n in (1, 2, 4)], 2
        ),
        "slow": dropdown(
            "Slow worker",
            "Its compute time over that of the others",
            [("none", 1.0), ("half as fast", 2.0), ("a quarter as fast", 4.0)],
            1.0,
        ),
        "local_steps": slider(
            "Local steps", "H, between two averages", [(str(h), h) for h in (1, 2, 4, 8, 16)], 4
        ),
        "rate": slider(
            "Learning rate", "Of all workers together", [(f"{r:g}", r) for r in RATES], 0.4
        ),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    race, ages = chart("race"), chart("staleness")

    def show() -> None:
        setting = Race(**{name: control.value for name, control in controls.items()})
        race.update(*race_view(setting))
        ages.update(*staleness_state(served(setting).histogram))
        verdict.value = f'<p class="dlhpc-verdict">{race_words(setting)}</p>'
        wall.value = wall_html(race_wall(setting), "The servers keep up, and no method diverges.")

    note = "which method is the first below the dashed line?"
    return workbench(controls, [verdict, wall, race, ages], show, note)


def courses(setting: Race) -> dict[str, Course]:
    """Return the three methods over LASTS seconds."""
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
    """Return the asynchronous run; it depends on workers, servers and the slow worker only."""
    if setting != Race(setting.workers, setting.servers, setting.slow):
        return served(Race(setting.workers, setting.servers, setting.slow))
    machine = goyal().machine
    return asynchronous_sgd(
        machine,
        setting.workers,
        gradient_bytes(),
        seconds(),
        steps=STEPS,
        servers=setting.servers,
        jitter=float(machine.jitter),
        speed=1 / slowness(setting),
        seed=SEED,
    )


@lru_cache(maxsize=256)
def averaged(workers: int, slow: float, local_steps: int) -> Floats:
    """Return when each average of all workers is done, in s: some local steps, then a ring allreduce.

    The allreduce follows the computation, nothing is hidden, so that one local step is synchronous
    training.
    """
    machine, count = goyal().machine, STEPS // local_steps + 1
    rng = np.random.default_rng(SEED)
    drawn = rng.normal(1.0, float(machine.jitter), (count, local_steps, workers))
    compute = seconds() * np.maximum(drawn, 0.0).sum(axis=1) * slowness(Race(workers, slow=slow))
    ends, now = np.zeros(count), np.zeros(workers)
    if workers == 1:
        return np.cumsum(compute[:, 0])
    plan = schedule("ring", workers, workers)
    kept, network = rounds.program(plan), network_of(_nodes_of_one(workers))
    for number in range(count):
        now = rounds.finish_times(kept, network, gradient_bytes() / workers, now + compute[number])
        ends[number] = now.max()
    return ends


def predicted(setting: Race) -> dict[str, float]:
    """Return the gradients a second that `predict` gives each of the three, all workers being equal."""
    base = _nodes_of_one(setting.workers)
    ways: dict[str, dict[str, Any]] = {
        "synchronous": {},
        "asynchronous": {"strategy.update": "asynchronous", "strategy.servers": setting.servers},
        f"local, H = {setting.local_steps}": {
            "strategy.update": "local",
            "strategy.local_steps": setting.local_steps,
        },
    }
    batch = int(base.strategy.batch)
    return {
        name: float(predict(base.set(changes)).throughput) / batch for name, changes in ways.items()
    }


def _nodes_of_one(workers: int) -> Experiment:
    """Return the run on one GPU of so many nodes, its ring not overlapped and all gradients in one bucket."""
    return goyal().set(
        {
            "strategy.nodes": workers,
            "strategy.devices_per_node": 1,
            "strategy.allreduce": "ring",
            "strategy.overlap": False,
            "strategy.bucket": 1e9,
        }
    )


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


def race_words(setting: Race) -> str:
    """Say which is the first at the target, how many gradients a second each computes, and how stale they are."""
    runs = courses(setting)
    first = min(runs, key=lambda name: runs[name].reached)
    known = predicted(setting)
    rates = ", ".join(f"{n} {run.gradients:.3g} ({known[n]:.3g})" for n, run in runs.items())
    without = "; the prediction knows of no slow worker" if setting.slow > 1 else ""
    if np.isinf(runs[first].reached):
        winner = "No method reaches a tenth of the loss."
    else:
        reached = format_quantity(runs[first].reached, "s")
        winner = f"{first[0].upper()}{first[1:]} is first at a tenth of the loss, after {reached}."
    old = served(setting).staleness
    return (
        f"<b>{winner}</b><br>Gradients a second, simulated (predicted): {rates}{without}."
        f" An asynchronous gradient is {old.mean():.3g} updates old on average, {old.max()} at most."
    )


def race_wall(setting: Race) -> str:
    """Say which diverges, or that the servers cannot keep up, or nothing."""
    wild = [name for name, run in courses(setting).items() if not run.loss[-1] < DIVERGED]
    if wild:
        return (
            f"The learning rate {setting.rate:g}: {' and '.join(wild)} diverge{'s' * (len(wild) == 1)}."
            f" Gradients as stale as those of equal workers tolerate {most_stale_rate(setting.workers):.3g} at most,"
            " fresh ones 2."
        )
    alone, got = float((1 / (seconds() * slowness(setting))).sum()), _apart(setting).gradients
    if got < SERVED * alone:
        return (
            f"The servers: {setting.workers} workers could compute {alone:.3g} gradients a second, and only"
            f" {got:.3g} arrive. They queue at the link of a server: use more servers, or fewer workers."
        )
    return ""


def _together(setting: Race, local_steps: int) -> Course:
    time = averaged(setting.workers, setting.slow, local_steps)
    kept = time <= LASTS
    loss = synchronized(setting.workers, setting.rate, local_steps, int(kept.sum()))
    gradients = setting.workers * local_steps * len(time) / float(time[-1])
    return Course(np.append(0.0, time[kept]), loss, gradients)


def _apart(setting: Race) -> Course:
    run = served(setting)
    kept = run.time <= LASTS
    loss = stale(setting.workers, setting.rate, tuple(run.staleness[kept].tolist()))
    return Course(np.append(0.0, run.time[kept]), loss, kept.sum() / min(LASTS, run.time[-1]))
