"""How often to save: the cost of checkpoints and of failures, against the interval between two checkpoints."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View, amount
from lib_dlhpc.explore.blocks.charts import State, columns, marked
from lib_dlhpc.explore.blocks.lines import line_columns
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.failures.charts import LOST, phases_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.resilience import Resilience
from lib_dlhpc.simulation import simulate_runs
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
MACHINE, PER_NODE, MOST_NODES = "h100-pod", 8, 16384
# Layers and width of Llama 3 405B, as a plain GPT: nearly as many weights.
LLAMA: dict[str, Any] = {"family": "gpt", "layers": 126, "hidden": 16384, "heads": 128}
LLAMA |= {"sequence": 8192, "vocabulary": 128_256}
LARGE = "as large as Llama 3, 408 G"
MODELS: dict[str, Any] = {
    "GPT-2, 1.5 G weights": "gpt2-1.5b",
    "GPT, 22 G weights": "gpt-22b",
    "GPT-3, 175 G weights": "gpt3-175b",
    LARGE: LLAMA,
    "GPT, 1 T weights": "gpt-1t",
}
GPUS = tuple(2**k for k in range(9, 18))
LLAMA_MTBF = 6333 * HOUR  # of a node: 419 failures of 2,048 nodes in 54 days
MTBFS = {"30 days": 30 * DAY, "90 days": 90 * DAY, "264 days": LLAMA_MTBF}
MTBFS |= {"2 years": 730 * DAY, "5 years": 1826 * DAY}
INTERVALS = tuple(
    MINUTE * m for m in (0.5, 1, 2, 5, 10, 15, 20, 30, 45, 60, 120, 180, 360, 720, 1440)
)
AT = np.unique([*np.geomspace(10, 2 * DAY, 61), *INTERVALS])  # s
LEAST = 1e-4  # share of the time, where the chart of losses ends
# Steps of some seconds: 128 GPUs hold the network, as most runs of this size have it.
SPLIT: dict[str, Any] = {"tensor": 8, "pipeline": 16, "batch": 32, "microbatches": 32}
SPLIT |= {"precision": "bf16", "optimizer": "adam"}
EPOCHS = 10_000  # so long that beginning and end do not count
SPELL = 54 * DAY  # of Llama 3's count
FACTORS, RUNS = (0.25, 0.5, 1.0, 2.0, 4.0), 200  # of the best interval, and runs simulated at each
HOPELESS = 0.9  # share of the time that is lost, above which runs take too long to simulate
SEED = 9
PUBLISHED = {
    "llama3-effective-time": ("Llama 3, 54 days: time that became training (at least)", "{:.3g}%"),
    "daly06-opt-24h": ("Daly: saving takes 5 min, a failure a day: best interval", "{:.3g} min"),
    "daly06-opt-15min": ("Daly: the same, a failure in 15 min", "{:.3g} min"),
    "bloom-ckpt-size": ("BLOOM, a checkpoint of 176 G weights", "{:.3g} TiB"),
    "bloom-ckpt-overhead": ("BLOOM, 720 checkpoints of 40 s in 90 days", "{:.3g} h"),
}
NETWORK = Dropdown("Network", "14 B of state for each weight", tuple(MODELS))
RATES = (1e9, 10e9, 40e9, 95e9, 400e9, 2e12)  # B/s
FILES = Slider("File system", "The shared file system, all writers together", RATES, amount("B/s"))
RESTARTS = (0.0, MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE)
BETWEEN = "Training between two checkpoints"
UNTIL = "From a failure until the state can be read"
Simulated = Sequence[tuple[float, float, float, float, float]]  # as simulated_points has them


class Setting(NamedTuple):
    """A large run. mtbf: s of a node; rate: B/s of the file system; restart, interval: s."""

    gpus: Annotated[int, Slider("GPUs", "In nodes of 8; one that fails stops all", GPUS)] = 16384
    mtbf: Annotated[float, Slider("A node fails", "MTBF of a node", MTBFS)] = LLAMA_MTBF
    model: Annotated[str, NETWORK] = LARGE
    rate: Annotated[float, FILES] = 95e9
    restart: Annotated[float, Slider("Restart", UNTIL, RESTARTS, amount("s"))] = 10 * MINUTE
    interval: Annotated[float, Slider("Interval", BETWEEN, INTERVALS, amount("s"))] = 5 * MINUTE


def the_interval() -> Bench[Setting]:
    """Return the experiment: what is lost against the interval, failures simulated beside it, and a run's days."""
    said = ipywidgets.HTML()
    button = ipywidgets.Button(
        description=f"Simulate {RUNS} runs",
        button_style="primary",
        layout={"width": "auto", "align_self": "flex-start"},
        tooltip="A second or two: at five intervals, with failures drawn at random",
    )

    def view(setting: Setting) -> View:
        said.value = ""  # of another setting
        charts = {"failures_loss": loss_view(setting), "failures_phases": phases_view(setting)}
        return View(interval_words(setting), interval_wall(setting), charts)

    def simulate(_: Any) -> None:
        points = simulated_points(bench.setting)
        bench.charts["failures_loss"].update(*loss_view(bench.setting, points))
        said.value = verdict_html(simulated_words(points))

    button.on_click(simulate)
    look = "which line rises and which falls, where they cross, and how flat their sum is there."
    results = ["failures_loss", button, said, "failures_phases"]
    bench = Bench(Setting(), view, results, "The run makes progress.", look)
    return bench


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
    lost = 1 - shares["training"]
    curves = {name: shares[name] for name in LOST} | {"all losses": lost}
    seen = {name: y >= LEAST for name, y in curves.items()}
    shown = {n: (AT[seen[n]], y[seen[n]]) for n, y in curves.items() if seen[n].any()}
    best = {"Young": float(own.young), "Daly": float(own.daly), "exact": float(own.best)}
    marks = [(f"{name}: {show(x, 's')}", x) for name, x in best.items() if AT[0] <= x <= AT[-1]]
    rules = [{"x": x, "words": w, "dy": -4 - 14 * k} for k, (w, x) in enumerate(marks)]
    bars = [{"x": p[0], "y": p[1], "low": max(p[2], LEAST), "high": p[3]} for p in simulated]
    here = float(np.interp(np.log(now), np.log(AT), np.nan_to_num(lost, nan=1.0)))
    right = now > np.sqrt(AT[0] * AT[-1])
    data = {
        **line_columns(shown),
        "marks": columns(rules),
        "now": marked(f"now: {here:.1%} lost", right, 11, x=now, y=max(here, LEAST)),
        "simulated": columns(bars),
        "room": {"y": [LEAST, 1.0], "x": [float(AT[0]), float(AT[-1])]},
    }
    data["ends"]["late"] = [x > AT[-1] / 30 for x in data["ends"]["x"]]
    named = ", ".join(f"{name} {show(x, 's')}" for name, x in best.items())
    words = f"With a checkpoint every {show(now, 's')} {here:.1%} of the time is lost. Best intervals: {named}."
    if simulated:
        each = ", ".join(f"{mean:.1%} at {show(at, 's')}" for at, mean, *_ in simulated)
        words += f" Simulated runs lost {each}."
    return data, words


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
    """Return the losses of simulated runs at some intervals: (s, mean, 10%, 90%)."""
    own, points = found(setting), []
    for factor in FACTORS:
        interval = factor * float(own.best)
        predicted = 1 - float(own.goodput_at(interval))
        if predicted > HOPELESS:
            continue
        work = max(min(30 * float(own.mtbf), 1500 * interval), 40 * interval)
        runs = simulate_runs(work, interval, own.saving, float(own.mtbf), runs=RUNS, seed=SEED)
        low, high = np.quantile(1 - work / runs.wall, (0.1, 0.9)).tolist()
        points.append((interval, 1 - runs.goodput, low, high, predicted))
    return tuple(points)


def simulated_words(points: Simulated) -> str:
    """Say how far the simulated runs are from the formula."""
    if not points:
        return "Not simulated: hardly any run would complete."
    off = max(abs(mean / predicted - 1) for _, mean, _, _, predicted in points)
    return (
        f"<b>Simulated.</b> The mean loss of {RUNS} runs is within {off:.1%} of the formula at each of"
        f" {len(points)} intervals. Bars: eight of ten runs; a single run may be luckier, or not."
    )


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
