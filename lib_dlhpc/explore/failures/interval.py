"""How often to save: the cost of checkpoints and of failures, against the interval between two checkpoints."""

from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View, amount
from lib_dlhpc.explore.blocks.charts import State
from lib_dlhpc.explore.failures.charts import LOST, phases_state
from lib_dlhpc.explore.failures.losses import (
    HOPELESS,
    RUNS,
    SEED,
    Simulated,
    losses_state,
    simulated_point,
    simulating,
)
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.failures.resilience import Resilience
from lib_dlhpc.simulation import simulate_runs
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import DAY, HOUR, MINUTE
from lib_dlhpc.spec.units import format_quantity as show

MACHINE, PER_NODE, MOST_NODES = "h100-pod", 8, 16384
# Layers and width of Llama 3 405B, as a plain GPT: nearly as many weights.
LLAMA: dict[str, Any] = {"family": "gpt", "layers": 126, "hidden": 16384, "heads": 128}
LLAMA |= {"sequence": 8192, "vocabulary": 128_256}
LARGE = "as large as Llama 3, 408 G"
MODELS: dict[str, Any] = {
    "GPT-2, 1.5 billion parameters": "gpt2-1.5b",
    "GPT, 22 billion parameters": "gpt-22b",
    "GPT-3, 175 billion parameters": "gpt3-175b",
    LARGE: LLAMA,
    "GPT, 1 T weights": "gpt-1t",
}
GPUS = tuple(2**k for k in range(9, 18))
LLAMA_MTBF = 6333 * HOUR  # of a node: 419 interruptions, of all causes, of 2,048 nodes in 54 days
MTBFS = {"30 days": 30 * DAY, "90 days": 90 * DAY, "264 days": LLAMA_MTBF}
MTBFS |= {"2 years": 730 * DAY, "5 years": 1826 * DAY}
INTERVALS = tuple(
    MINUTE * m for m in (0.5, 1, 2, 5, 10, 15, 20, 30, 45, 60, 120, 180, 360, 720, 1440)
)
AT = np.unique([*np.geomspace(10, 2 * DAY, 61), *INTERVALS])  # s
# Steps of some seconds: 128 GPUs hold the network, as most runs of this size have it.
SPLIT: dict[str, Any] = {"tensor": 8, "pipeline": 16, "batch": 32, "microbatches": 32}
SPLIT |= {"precision": "bf16", "optimizer": "adam"}
EPOCHS = 10_000  # so long that beginning and end do not count
SPELL = 54 * DAY  # of Llama 3's count
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the best interval, at which runs are simulated
NETWORK = Dropdown("Network", "14 B of state for each weight", tuple(MODELS))
RATES = (1e9, 10e9, 40e9, 95e9, 400e9, 2e12)  # B/s
FILES = Slider("File system", "The shared file system, all writers together", RATES, amount("B/s"))
RESTARTS = (0.0, MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE)
BETWEEN = "Training between two checkpoints"
UNTIL = "From a failure until the state can be read"
Mtbf = Annotated[float, Slider("A node fails", "MTBF of a node", MTBFS)]
Restart = Annotated[float, Slider("Restart", UNTIL, RESTARTS, amount("s"))]


class Setting(NamedTuple):
    """A large run. mtbf: s of a node; rate: B/s of the file system; restart, interval: s."""

    gpus: Annotated[int, Slider("GPUs", "In nodes of 8; one that fails stops all", GPUS)] = 16384
    mtbf: Mtbf = LLAMA_MTBF
    model: Annotated[str, NETWORK] = LARGE
    rate: Annotated[float, FILES] = 95e9
    restart: Restart = 10 * MINUTE
    interval: Annotated[float, Slider("Interval", BETWEEN, INTERVALS, amount("s"))] = 5 * MINUTE


def the_interval() -> Bench[Setting]:
    """Return the experiment: what is lost against the interval, failures simulated beside it, and a run's days."""

    def view(setting: Setting) -> View:
        charts = {"failures_loss": loss_view(setting), "failures_phases": phases_view(setting)}
        return View(interval_words(setting), interval_wall(setting), charts)

    look = "which line rises and which falls, where they cross, and how flat their sum is there."
    charts, fine = ("failures_loss", "failures_phases"), "The run makes progress."
    losses = (charts[0], loss_view)
    return simulating(Setting(), view, losses, simulated_points, charts, fine, look)


@lru_cache(maxsize=256)
def experiment(
    setting: Setting, way: str = "synchronous", writers: str = "all", **more: Any
) -> Experiment:
    """Return the run; more: other fields of [machine] and [run]."""
    tier = {"bandwidth": setting.rate, "write_bandwidth": setting.rate}
    machine = {"name": MACHINE, "jitter": 0.0, "nodes": MOST_NODES, "storage": {"tectonic": tier}}
    machine |= {"node_mtbf": setting.mtbf, "restart_time": setting.restart}
    run = {"epochs": EPOCHS, "checkpoint_interval": setting.interval}
    own = {"checkpoint": way, "checkpoint_writers": writers}
    if "host_memory" in more:
        machine["host_memory"] = more.pop("host_memory")
    strategy = {"nodes": setting.gpus // PER_NODE, **SPLIT}
    parts = {"model": MODELS[setting.model], "dataset": "webtext", "strategy": strategy}
    parts |= {"machine": machine, "storage": {"tier": "tectonic", "local": "nvme"}}
    return read_experiment({**parts, "run": run | own | more})


@lru_cache(maxsize=256)
def found(setting: Setting) -> Resilience:
    """Return the run under failures."""
    return predict(experiment(setting)).resilience


def shares_at(setting: Setting, intervals: Any) -> dict[str, Any]:
    """Return the shares of the time by cause for each interval; NaN without progress."""
    own = found(setting)  # a step is the same whatever the interval
    many = own.prediction.experiment.set({"run.checkpoint_interval": intervals})
    return replace(own, prediction=replace(own.prediction, experiment=many)).shares


def loss_view(setting: Setting, simulated: Simulated = ()) -> State:
    """Return the columns of the chart "failures_loss": shares of the time, by cause and in all, over intervals in s."""
    shares, own, now = shares_at(setting, AT), found(setting), setting.interval
    curves = {name: shares[name] for name in LOST} | {"all losses": 1 - shares["training"]}
    best = {"Young": float(own.young), "Daly": float(own.daly), "exact": float(own.best)}
    data, words = losses_state(AT, curves, best, now, simulated)
    return data, f"With a checkpoint every {show(now, 's')} {words}"


def phases_view(setting: Setting) -> State:
    """Return the columns of the chart "failures_phases": a few failures of one run, simulated."""
    own = found(setting)
    span = min(6 * float(own.mtbf), 250 * setting.interval)
    draw = np.random.default_rng(SEED)
    strikes = np.cumsum(draw.exponential(float(own.mtbf), 60))
    failures = strikes[strikes < span].tolist()  # none after what is shown
    one = simulate_runs(span, setting.interval, own.saving, failures=failures)
    return phases_state({"this run": one.phases}, span)


def simulated_points(setting: Setting) -> Simulated:
    """Return the losses of simulated runs at some intervals."""
    own, points = found(setting), []
    for factor in FACTORS:
        interval = factor * float(own.best)
        predicted = 1 - float(own.goodput_at(interval))
        if predicted > HOPELESS:
            continue
        work = max(min(30 * float(own.mtbf), 1500 * interval), 40 * interval)
        runs = simulate_runs(work, interval, own.saving, float(own.mtbf), runs=RUNS, seed=SEED)
        points.append(simulated_point(interval, work, runs.wall, predicted))
    return tuple(points)


def interval_words(setting: Setting) -> str:
    """Say how much is lost, by cause, and which interval loses the least."""
    own = found(setting)
    cost, mtbf, lost = float(own.saving.blocked), float(own.mtbf), 1 - float(own.goodput)
    parts = own.shares
    return (
        f"<b>{lost:.1%} of the time is lost:</b> checkpoints {float(parts['checkpoints']):.1%}, repeated work"
        f" {float(parts['repeated work']):.1%}, restarts {float(parts['restarts']):.1%}. One checkpoint of"
        f" {show(float(own.saving.size), 'B')} takes {show(cost, 's')}; all nodes together fail once in"
        f" {show(mtbf, 's')}, {SPELL / mtbf:,.3g} times in 54 days. The best interval is"
        f" {show(float(own.best), 's')}: {1 - float(own.best_goodput):.1%} lost."
    )


def interval_wall(setting: Setting) -> str:
    """Say why there is little progress or none, or nothing."""
    own = found(setting)
    if own.goodput > 0.5:
        return ""
    cost, restart = show(float(own.saving.blocked), "s"), show(float(own.saving.restart), "s")
    every, once = (
        show(setting.interval, "s"),
        f"a failure comes once in {show(float(own.mtbf), 's')}",
    )
    if own.best_goodput < 0.5 and own.saving.blocked > setting.restart:
        why = f"one checkpoint takes {cost}, and {once}: no interval helps; faster files do"
    elif own.best_goodput < 0.5:
        why = f"a restart takes {restart}, and {once}: no interval helps"
    elif setting.interval > own.best:
        why = f"between two checkpoints lie {every}, and {once}: few segments complete. Save more often"
    else:
        why = f"saving takes {cost} after each {every} of training. Save less often"
    return f"Only {own.goodput:.1%} goodput: {why}."
