"""Power swings of synchronous training at a facility, and what floors, staggered jobs and batteries cost."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import Data, State, columns
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.energy.power_swings import (
    Wave,
    floored,
    staggered,
    stalled,
    step_wave,
    stored,
)
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.spec.units import HOUR, YEAR
from lib_dlhpc.spec.units import format_quantity as show

GPUS, BATCHES, JOBS = (1024, 4096, 16384), (1, 2, 4), (1, 2, 4, 8)
PER_NODE = 8
EXCHANGE, CHECKPOINT = "exchange of each step", "checkpoint, a minute"
EVERY, STALL = 1800.0, 60.0  # s of training between checkpoints, and s of one
FLOORS = {"none": 0.0, "60% of the highest": 0.6, "80%": 0.8, "95%": 0.95}
PARTS = {"none": 0.0, "half of the swing": 0.5, "nine tenths": 0.9}
EFFICIENCY = 0.9  # of a round trip through a battery: illustrative
LIMIT = 0.1  # of the highest power: illustrative, as the limits of utilities differ
AS_IT_IS, SMOOTHED = "as it is", "smoothed"
PERIODS = 2  # in the chart
GWH = 3.6e12


class Setting(NamedTuple):
    """A job, or several, on H100. floor: of the highest power; battery: part of the swing that it takes."""

    gpus: Annotated[int, Slider("GPUs", "H100, of all jobs", GPUS)] = 16384
    batch: Annotated[int, Slider("Batch", "Sequences of a GPU in a step", BATCHES)] = 1
    event: Annotated[str, Dropdown("All wait for", "What stops them", (EXCHANGE, CHECKPOINT))] = (
        EXCHANGE
    )
    jobs: Annotated[int, Slider("Jobs", "Independent, evenly staggered", JOBS)] = 1
    floor: Annotated[float, Dropdown("Floor", "Useless work below it", FLOORS)] = 0.0
    battery: Annotated[float, Dropdown("Battery", "Takes of the swing", PARTS)] = 0.0


class Swing(NamedTuple):
    """Power of one job, of several, and of these smoothed by floor and battery, which holds `held` J."""

    plain: Wave
    several: Wave
    smooth: Wave
    held: float

    @property
    def more(self) -> float:
        """The part of the energy that floor and battery add; staggered jobs add none."""
        return max(0.0, self.smooth.mean / self.several.mean - 1)


@on_bench(Setting(), "energy_swings", fine="The swing is below a tenth of the highest power.")
def the_swings(setting: Setting) -> View:
    """Look for the depth of the valleys and their period; then for the least energy that fills them."""
    own = found(setting)
    smooth, cost = own.smooth, ""
    if setting.floor or setting.battery:
        gwh = own.more * own.several.mean * YEAR / GWH
        cost = f" Smoothing takes {own.more:.1%} more energy, {gwh:.2f} GWh in a year."
    if own.held:
        cost += f" The battery holds {own.held / HOUR / 1e3:,.3g} kWh."
    words = (
        f"<b>{show(float(smooth.watts.min()), 'W')} to {show(float(smooth.watts.max()), 'W')},"
        f" {show(smooth.swing, 'W')} of swing every {show(own.plain.period / setting.jobs, 's')}.</b> As it is:"
        f" {show(own.plain.swing, 'W')}.{cost}"
    )
    return View(words, wall(own), {"energy_swings": swings_state(setting)})


def wall(own: Swing) -> str:
    """Say that the swing is large, or nothing."""
    share = own.smooth.swing / float(own.smooth.watts.max())
    if share <= LIMIT:
        return ""
    return f"Grid: the swing is {share:.0%} of the highest power; the (illustrative) limit is {LIMIT:.0%}."


@lru_cache(maxsize=64)
def step_of(gpus: int, batch: int) -> Breakdown:
    """Return the predicted step of one job: replicas of Llama 3 8B, optimizer state sharded."""
    strategy: dict[str, Any] = {"nodes": gpus // PER_NODE, "devices_per_node": PER_NODE}
    strategy |= {"batch": batch, "zero": 1, "recompute": "full"}
    strategy |= {"precision": "bf16", "optimizer": "adam"}
    machine = {"name": "h100-pod", "jitter": 0.0}
    tables = {"model": "llama3-8b", "dataset": "webtext", "machine": machine}
    return predict(read_experiment({**tables, "strategy": strategy}))


def wave_of(setting: Setting, jobs: int) -> Wave:
    """Return the power of all GPUs with their jobs in phase."""
    step = step_of(setting.gpus // jobs, setting.batch)
    wave = step_wave(step)
    if setting.event == CHECKPOINT:
        wave = stalled(wave, step, EVERY, STALL)
    return Wave(wave.seconds, jobs * wave.watts)


def found(setting: Setting) -> Swing:
    """Return the power of one job on all GPUs, and of what the setting makes of it."""
    plain = wave_of(setting, 1)
    several = staggered(wave_of(setting, setting.jobs), setting.jobs)
    lifted = floored(several, setting.floor * float(several.watts.max()))
    smooth, held = stored(lifted, setting.battery, EFFICIENCY)
    return Swing(plain, several, smooth, held)


def swings_state(setting: Setting) -> State:
    """Return the columns of the chart "energy_swings": W over the time of two periods, as it is and smoothed."""
    own = found(setting)
    span = PERIODS * own.plain.period
    rows: list[dict[str, Any]] = []
    for name, wave in ((AS_IT_IS, own.plain), (SMOOTHED, own.smooth)):
        times = int(np.ceil(span / wave.period))
        starts = np.concatenate([[0.0], np.cumsum(np.tile(wave.seconds, times))])
        watts = np.tile(wave.watts, times)
        kept = starts[:-1] < span
        ends = [*starts[:-1][kept].tolist(), span]
        levels = [*watts[kept].tolist(), float(watts[kept][-1])]
        rows += [{"line": name, "x": x, "y": y} for x, y in zip(ends, levels, strict=True)]
    most = max(float(own.plain.watts.max()), float(own.smooth.watts.max()))
    mean = own.smooth.mean
    data: Data = {
        "lines": columns(rows),
        "mean": {"y": [mean], "words": [f"mean {show(mean, 'W')}"]},
        "room": {"x": [0.0, span], "y": [0.0, 1.05 * most]},
    }
    low, high = float(own.smooth.watts.min()), float(own.smooth.watts.max())
    return data, (
        f"Power over {show(span, 's')}: as it is {show(float(own.plain.watts.min()), 'W')} to"
        f" {show(float(own.plain.watts.max()), 'W')}; smoothed {show(low, 'W')} to {show(high, 'W')}."
    )
