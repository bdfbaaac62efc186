"""Slack of a pipeline: passes off the critical path run at a lower clock, and the step takes as long as before."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import Data, State, columns
from lib_dlhpc.prediction.energy.slack import Slack, slack
from lib_dlhpc.program.calls import FORWARD
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show

MODELS = {
    "GPT-2, 1.5 billion parameters": "gpt2-1.5b",
    "GPT, 22 billion parameters": "gpt-22b",
    "GPT-3, 175 billion parameters": "gpt3-175b",
}
SCHEDULES = {"GPipe": "gpipe", "1F1B": "1f1b", "zero bubble": "zb-h1"}
STAGES, MICROBATCHES = (2, 4, 8), (4, 8, 16, 32)
PER_NODE = 8
HIGHEST, LOWER = "highest for all", "lower where there is slack"
SLOWED = 1.005  # times as long: from here on a pass counts as slowed
LANE = 0.84  # height of a lane that a pass takes


class Setting(NamedTuple):
    """A pipeline on a node of A100. clocks: what the chart shows."""

    model: Annotated[str, Dropdown("Network", "What is trained", MODELS)] = "gpt-22b"
    stages: Annotated[int, Slider("Stages", "Of the 8 GPUs; the rest splits layers", STAGES)] = 8
    microbatches: Annotated[int, Slider("Microbatches", "Of a step", MICROBATCHES)] = 8
    schedule: Annotated[str, Dropdown("Schedule", "Who computes what when", SCHEDULES)] = "1f1b"
    clocks: Annotated[str, Dropdown("Clocks", "Of the passes", (HIGHEST, LOWER))] = LOWER


@on_bench(Setting(), "energy_slack", fine="The step is as long as before.")
def the_slack(setting: Setting) -> View:
    """Look for which passes are never hatched: they are the critical path. Then more microbatches."""
    own = found(setting)
    times = own.stretched / own.seconds
    slowed, clock = int((times > SLOWED).sum()), float(times.max())
    words = (
        f"<b>{own.saving:.1%} of the GPUs' energy saved, and the step still takes {show(own.step, 's')}.</b>"
        f" {slowed} of {len(times)} passes are slowed, up to {clock:.2f} times as long. GPUs are busy for"
        f" {busy(own, own.seconds):.0%} of the step at the highest clock, and for {busy(own, own.stretched):.0%} now."
    )
    wall = "" if own.saving >= 0.03 else f"Little slack: {own.saving:.1%}. {little(setting)}"
    return View(words, wall, {"energy_slack": passes_state(setting)})


def little(setting: Setting) -> str:
    """Say why there is little slack."""
    if setting.schedule == "gpipe":
        return "In GPipe another pass waits for nearly each of them."
    own = found(setting)
    return (
        f"GPUs compute for {busy(own, own.seconds):.0%} of the step: few passes wait for anything."
    )


def busy(own: Slack, seconds: NDArray[Any]) -> float:
    """Return the share of the step in which a mean GPU computes."""
    stages = 1 + max(call.place for call in own.passes)
    return float(seconds.sum() / stages / own.step)


@lru_cache(maxsize=128)
def _found(setting: Setting) -> Slack:
    return slack(experiment(setting))


def found(setting: Setting) -> Slack:
    """Return the slack of a pipeline; the same whichever clocks are shown."""
    return _found(setting._replace(clocks=LOWER))


def experiment(setting: Setting) -> Experiment:
    """Return the run: one replica on one node."""
    split = {"tensor": PER_NODE // setting.stages, "pipeline": setting.stages}
    split |= {"microbatches": setting.microbatches, "batch": setting.microbatches}
    strategy = {"nodes": 1, "devices_per_node": PER_NODE, "schedule": setting.schedule, **split}
    strategy |= {"precision": "bf16", "optimizer": "adam"}
    tables = {"model": setting.model, "dataset": "webtext", "machine": "selene"}
    return read_experiment({**tables, "strategy": strategy})


def passes_state(setting: Setting) -> State:
    """Each pass as a bar on the lane of its stage; hatched: what a lower clock adds."""
    own, lower = found(setting), setting.clocks == LOWER
    begins = own.stretched_begins if lower else own.begins
    rows = []
    for call, begin, fast, slow in zip(own.passes, begins, own.seconds, own.stretched, strict=True):
        kind = "forward" if call.phase == FORWARD else "backward"
        row = {"stage": call.place + 1, "kind": kind, "microbatch": call.microbatch + 1}
        row |= {"top": call.place + (1 - LANE) / 2, "bottom": call.place + (1 + LANE) / 2}
        stop = float(begin + (slow if lower else fast))
        row |= {"start": float(begin), "fast": float(begin + fast), "stop": stop}
        row["times"] = f"{float(slow / fast) if lower else 1.0:.2f}"
        rows.append(row)
    stages = setting.stages
    lanes = [{"middle": k + 0.5, "words": f"stage {k + 1}"} for k in range(stages)]
    data: Data = {
        "passes": columns(rows),
        "lanes": columns(lanes),
        "end": {"x": [own.step], "words": [show(own.step, "s")]},
        "room": {"x": [0.0, 1.02 * own.step], "y": [0.0, float(stages)]},
    }
    each = own.stretched / own.seconds if lower else np.ones(len(rows))
    slower = [float(np.mean(each[[c.place == k for c in own.passes]])) for k in range(stages)]
    named = ", ".join(f"stage {k + 1} {value:.2f}" for k, value in enumerate(slower))
    return data, f"Mean time of a pass over that at the highest clock: {named}."
