"""How often to save: the cost of checkpoints and of failures, against the interval between two checkpoints.

the_interval()      the experiment: formula, three best intervals, failures simulated beside it
published_table()   published figures of checkpoints and failures, beside their predictions
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets
import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, wall_html, workbench
from lib_dlhpc.explore.failures.charts import Simulated, loss_state, phases_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.resilience import Resilience, resilience
from lib_dlhpc.prediction.validate import validate
from lib_dlhpc.simulation.failures import simulate_runs
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
MACHINE, PER_NODE, MOST_NODES = "h100-pod", 8, 16384
# Layers and width of Llama 3 405B, as a plain GPT: nearly as many weights.
LLAMA = {
    "family": "gpt",
    "layers": 126,
    "hidden": 16384,
    "heads": 128,
    "sequence": 8192,
    "vocabulary": 128_256,
}
MODELS: dict[str, dict[str, Any]] = {
    "GPT-2, 1.5 G weights": {"name": "gpt2-1.5b"},
    "GPT, 22 G weights": {"name": "gpt-22b"},
    "GPT-3, 175 G weights": {"name": "gpt3-175b"},
    "as large as Llama 3, 408 G": LLAMA,
    "GPT, 1 T weights": {"name": "gpt-1t"},
}
LARGE = "as large as Llama 3, 408 G"
GPUS = tuple(2**k for k in range(9, 18))
LLAMA_MTBF = 6333 * HOUR  # of a node: 419 failures of 2,048 nodes in 54 days
MTBFS = {
    "30 days": 30 * DAY,
    "90 days": 90 * DAY,
    "264 days": LLAMA_MTBF,
    "2 years": 730 * DAY,
    "5 years": 1826 * DAY,
}
RATES = (1e9, 10e9, 40e9, 95e9, 400e9, 2e12)  # B/s
RESTARTS = (0.0, MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE)
INTERVALS = tuple(
    MINUTE * m for m in (0.5, 1, 2, 5, 10, 15, 20, 30, 45, 60, 120, 180, 360, 720, 1440)
)
AT = np.unique([*np.geomspace(10, 2 * DAY, 61), *INTERVALS])  # s
# Steps of some seconds: 128 GPUs hold the network, as most runs of this size have it.
SPLIT = {
    "tensor": 8,
    "pipeline": 16,
    "batch": 32,
    "microbatches": 32,
    "precision": "bf16",
    "optimizer": "adam",
}
EPOCHS = 10_000  # so long that beginning and end do not count
SPELL = 54 * DAY  # of Llama 3's count
FACTORS, RUNS = (0.25, 0.5, 1.0, 2.0, 4.0), 200  # of the best interval, and runs simulated at each
HOPELESS = 0.9  # share of the time that is lost, above which runs take too long to simulate
SEED = 9
PUBLISHED = {
    "llama3-effective-time": ("Llama 3, 54 days: time that became training (at least)", "{:.3g} %"),
    "daly06-opt-24h": ("Daly: saving takes 5 min, a failure a day: best interval", "{:.3g} min"),
    "daly06-opt-15min": ("Daly: the same, a failure in 15 min", "{:.3g} min"),
    "bloom-ckpt-size": ("BLOOM, a checkpoint of 176 G weights", "{:.3g} TiB"),
    "bloom-ckpt-overhead": ("BLOOM, 720 checkpoints of 40 s in 90 days", "{:.3g} h"),
}


class Setting(NamedTuple):
    """What the controls say. mtbf: s of a node; rate: B/s of the file system; restart, interval: s."""

    gpus: int = 16384
    mtbf: float = LLAMA_MTBF
    model: str = LARGE
    rate: float = 95e9
    restart: float = 10 * MINUTE
    interval: float = 5 * MINUTE


def the_interval() -> ipywidgets.Box:
    """Return the experiment: what is lost against the interval, failures simulated beside it, and a run's days."""
    controls = {
        "gpus": slider(
            "GPUs", "In nodes of 8; one that fails stops all", [(f"{n:,}", n) for n in GPUS], 16384
        ),
        "mtbf": slider("A node fails", "MTBF of a node", MTBFS.items(), LLAMA_MTBF),
        "model": dropdown(
            "Network", "14 B of state for each weight", [(n, n) for n in MODELS], LARGE
        ),
        "rate": slider(
            "File system",
            "The shared file system, all writers together",
            choices(RATES, "B/s"),
            95e9,
        ),
        "restart": slider(
            "Restart", "From a failure until the state can be read", choices(RESTARTS, "s"), 600.0
        ),
        "interval": slider(
            "Interval", "Training between two checkpoints", choices(INTERVALS, "s"), 300.0
        ),
    }
    verdict, wall, said = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
    losses, phases = chart("failures_loss"), chart("failures_phases")
    button = ipywidgets.Button(
        description=f"Simulate {RUNS} runs",
        button_style="primary",
        layout={"width": "auto", "align_self": "flex-start"},
        tooltip="A second or two: at five intervals, with failures drawn at random",
    )

    def chosen() -> Setting:
        return Setting(**{name: control.value for name, control in controls.items()})

    def update() -> None:
        setting = chosen()
        losses.update(*loss_view(setting))
        phases.update(*phases_view(setting))
        verdict.value = verdict_html(interval_words(setting))
        wall.value = wall_html(interval_wall(setting), "The run makes progress.")
        said.value = ""

    def simulated(_: Any) -> None:
        setting = chosen()
        points = simulated_points(setting)
        losses.update(*loss_view(setting, points))
        said.value = verdict_html(simulated_words(points))

    button.on_click(simulated)
    note = "which line rises and which falls, where they cross, and how flat their sum is there."
    return workbench(controls, [verdict, wall, losses, button, said, phases], update, note)


def choices(values: Iterable[float], unit: str) -> list[tuple[str, float]]:
    """Return the choices of a control: each value with its text."""
    return [(show(value, unit), value) for value in values]


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
    return read_experiment(
        {
            "model": MODELS[setting.model],
            "dataset": {"name": "webtext"},
            "machine": machine,
            "storage": {"tier": "tectonic", "local": "nvme"},
            "strategy": {"nodes": setting.gpus // PER_NODE, **SPLIT},
            "run": run | own | more,
        }
    )


@lru_cache(maxsize=256)
def found(setting: Setting) -> Resilience:
    """Return the run under failures."""
    return predict(experiment(setting)).resilience


def shares_at(setting: Setting, intervals: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return the shares of the time by cause for each interval, stacked; NaN without progress."""
    once = found(setting).prediction  # a step is the same whatever the interval
    many = once.experiment.set({"run.checkpoint_interval": intervals})
    shares = resilience(replace(once, experiment=many)).shares
    return {name: np.broadcast_to(values, intervals.shape) for name, values in shares.items()}


def loss_view(setting: Setting, simulated: Simulated = ()) -> State:
    """Return the columns of the chart "failures_loss"."""
    shares, own = shares_at(setting, AT), found(setting)
    curves = {name: shares[name] for name in ("checkpoints", "repeated work", "restarts")}
    marks = {"Young": own.young, "Daly": own.daly, "exact": own.best}
    marks = {name: float(seconds) for name, seconds in marks.items()}
    return loss_state(AT, curves, 1 - shares["training"], marks, setting.interval, simulated)


def phases_view(setting: Setting) -> State:
    """Return the columns of the chart "failures_phases": a few failures of one run, simulated."""
    own = found(setting)
    span = min(6 * float(own.mtbf), 250 * setting.interval)
    draw = np.random.default_rng(SEED)
    strikes = np.cumsum(draw.exponential(float(own.mtbf), 60))  # none after what is shown
    one = simulate_runs(
        span, setting.interval, own.saving, failures=strikes[strikes < span].tolist()
    )
    return phases_state({"this run": one.phases}, span)


def simulated_points(setting: Setting) -> Simulated:
    """Return the losses of simulated runs at some intervals: (s, mean, 10 %, 90 %)."""
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
    cost, mtbf, share = float(own.saving.blocked), float(own.mtbf), float(own.goodput)
    if share > 0.5:
        return ""
    restart, once = float(own.saving.restart), f"a failure comes once in {show(mtbf, 's')}"
    if float(own.best_goodput) < 0.5 and cost > setting.restart:
        why = f"one checkpoint takes {show(cost, 's')}, and {once}: no interval helps; faster files do"
    elif float(own.best_goodput) < 0.5:
        why = f"a restart takes {show(restart, 's')}, and {once}: no interval helps"
    elif setting.interval > float(own.best):
        why = (
            f"between two checkpoints lie {show(setting.interval, 's')}, and {once}: few segments complete."
            " Save more often"
        )
    else:
        why = f"saving takes {show(cost, 's')} after each {show(setting.interval, 's')} of training. Save less often"
    return f"Only {share:.1%} goodput: {why}."


def published_table() -> Table:
    """Return published figures, predictions and errors, as a table."""
    known = {row.id: row for row in validate(["definitions"], PUBLISHED)}
    lines = [["", "published", "predicted", "error"]]
    for name, (words, shown) in PUBLISHED.items():
        row = known[name]
        both = (shown.format(value) for value in (row.published, row.predicted))
        lines.append([words, *both, f"{row.error:+.1%}"])
    return Table(lines)
