"""Synchronous, asynchronous or local: three ways to train on the same workers, and who learns fastest."""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import State
from lib_dlhpc.explore.blocks.lines import line_columns
from lib_dlhpc.explore.data_parallel.bowl import most_stale_rate, stale, synchronized
from lib_dlhpc.explore.data_parallel.updates import averaged, predicted, served, step_seconds
from lib_dlhpc.spec.units import count, format_quantity

LASTS = 8.0  # s, the length of the race, some 30 steps
TARGET = 0.1  # of the loss at the start
LOWEST, DIVERGED = 1e-3, 1.0  # of the loss: where the chart ends, and what is too much
SERVED = 0.8  # share of what workers could compute below which servers are the wall
COUNTS = (1, 2, 4, 8, 16)
RATES = (0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 1.9)
SLOW = {"none": 1.0, "half as fast": 2.0, "a quarter as fast": 4.0}


class Race(NamedTuple):
    """Workers and servers. slow: how many times as long worker 0 takes; rate: of all workers together."""

    workers: Annotated[int, Slider("Workers", "One GPU in a node of its own", COUNTS)] = 8
    servers: Annotated[int, Slider("Servers", "Each has a shard of the weights", (1, 2, 4))] = 2
    slow: Annotated[
        float, Dropdown("Slow worker", "Its compute time over that of the others", SLOW)
    ] = 1.0
    local_steps: Annotated[int, Slider("Local steps", "H, between two averages", COUNTS)] = 4
    rate: Annotated[float, Slider("Learning rate", "Of all workers together", RATES)] = 0.4


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


@on_bench(Race(), "race", "staleness", fine="The servers keep up, and no method diverges.")
def the_race(setting: Race) -> View:
    """Look for which method is the first below the dashed line?"""
    runs, run = courses(setting), served(setting.workers, setting.servers, setting.slow)
    charts = {"race": race_chart(runs), "staleness": staleness_chart(run.histogram)}
    return View(_words(setting, runs, run.staleness), _wall(setting, runs), charts)


def courses(setting: Race) -> dict[str, Course]:
    """Return the three methods over LASTS seconds."""
    return {
        "synchronous": _together(setting, 1),
        "asynchronous": _apart(setting),
        f"local, H = {setting.local_steps}": _together(setting, setting.local_steps),
    }


def _together(setting: Race, local_steps: int) -> Course:
    time = averaged(setting.workers, setting.slow, local_steps)
    kept = time <= LASTS
    loss = synchronized(setting.workers, setting.rate, local_steps, int(kept.sum()))
    gradients = setting.workers * local_steps * len(time) / float(time[-1])
    return Course(np.append(0.0, time[kept]), loss, gradients)


def _apart(setting: Race) -> Course:
    run = served(setting.workers, setting.servers, setting.slow)
    kept = run.time <= LASTS
    loss = stale(setting.workers, setting.rate, tuple(run.staleness[kept].tolist()))
    return Course(np.append(0.0, run.time[kept]), loss, kept.sum() / min(LASTS, run.time[-1]))


def _words(setting: Race, runs: Mapping[str, Course], old: NDArray[np.int64]) -> str:
    """Say which is the first at the target, how many gradients a second each computes, and how stale they are."""
    first = min(runs, key=lambda name: runs[name].reached)
    winner = "No method reaches a tenth of the loss."
    if np.isfinite(runs[first].reached):
        reached = format_quantity(runs[first].reached, "s")
        winner = f"{first[0].upper()}{first[1:]} is the first to reach a tenth of the loss, after {reached}."
    known = predicted(setting.workers, setting.servers, setting.local_steps)
    rates = ", ".join(
        f"{name} {run.gradients:.3g} ({rate:.3g})"
        for (name, run), rate in zip(runs.items(), known, strict=True)
    )
    without = "; the prediction does not include the slow worker" if setting.slow > 1 else ""
    return (
        f"<b>{winner}</b><br>Gradients per second, simulated (predicted): {rates}{without}."
        f" An asynchronous gradient is {old.mean():.3g} updates old on average, {old.max()} at most."
    )


def _wall(setting: Race, runs: Mapping[str, Course]) -> str:
    """Say which diverges, or that the servers cannot keep up, or nothing."""
    wild = [name for name, run in runs.items() if not run.loss[-1] < DIVERGED]
    if wild:
        return (
            f"The learning rate {setting.rate:g}: {' and '.join(wild)} diverge{'s' * (len(wild) == 1)}."
            f" Gradients as stale as those of equal workers tolerate {most_stale_rate(setting.workers):.3g} at most,"
            " fresh ones 2."
        )
    alone = float((1 / step_seconds(setting.workers, setting.slow)).sum())
    got = runs["asynchronous"].gradients
    if got < SERVED * alone:
        return (
            f"The servers: {setting.workers} workers could compute {alone:.3g} gradients per second, and only"
            f" {got:.3g} arrive. They queue at the link of a server: use more servers, or fewer workers."
        )
    return ""


def race_chart(runs: Mapping[str, Course]) -> State:
    """Return loss over the loss at the start against seconds, for each way to train."""
    shown = {}
    for name, run in runs.items():
        known = np.isfinite(run.loss)
        shown[name] = (run.time[known], np.clip(run.loss[known], LOWEST, 10.0))
    data = line_columns(shown)
    data["ends"]["x"] = [LASTS] * len(shown)
    data["target"] = {"y": [TARGET], "words": ["a tenth of the loss"]}
    left = ", ".join(f"{name} {loss[-1]:.2g}" for name, (_, loss) in shown.items())
    return data, f"Loss after {format_quantity(LASTS, 's')}, over that at the start: {left}."


def staleness_chart(histogram: NDArray[np.int64]) -> State:
    """Return the share of the updates by their staleness."""
    ages, share = np.arange(len(histogram)), histogram / histogram.sum()
    mean = float((ages * share).sum())
    words = [f"{each:.0%}" for each in share]
    data = {
        "bars": {"staleness": ages, "share": share, "words": words},
        "mean": {"x": [mean], "words": [f"mean {mean:.3g}"]},
    }
    usual = int(np.argmax(histogram))
    return data, f"Staleness is most often {count(usual, 'update')}, {mean:.3g} on average."
