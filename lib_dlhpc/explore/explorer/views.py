"""What the explorer shows of an experiment: the state of each chart, and the figures in words."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.charts import (
    State,
    between,
    memory_state,
    scaling_state,
    sensitivity_state,
    step_state,
    totals_state,
)
from lib_dlhpc.prediction import Breakdown, breakdown, sensitivity
from lib_dlhpc.prediction.replays import Replay
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show


@dataclass(frozen=True)
class Views:
    """The states of all charts and the headline, for one prediction."""

    charts: dict[str, State]
    headline: tuple[tuple[str, str, str], ...]  # name, value, remark
    walls: tuple[str, ...]


def node_counts(most: int, now: int) -> np.ndarray:
    """Return powers of two up to `most` nodes, `most` and `now` among them, sorted."""
    powers = 2 ** np.arange(int(np.log2(most)) + 1)
    return np.unique(np.append(powers, [most, now]))


def views(
    prediction: Breakdown, replay: Replay | None = None, bands: Mapping[str, Any] | None = None
) -> Views:
    """Return what to show of a scalar prediction; `replay` adds the published result beside it.

    bands: (low, high) s that the step and its terms may take, by name, where that is known.
    """
    e = prediction.experiment
    curve = _over_devices(e, prediction.compute_scale)
    low, high = curve.step_time_bounds
    devices = curve.experiment.devices
    now = (float(e.devices), float(prediction.speedup))
    scaling = scaling_state(
        devices,
        curve.speedup,
        hidden=curve.speedup * curve.step_time / low,
        exposed=curve.speedup * curve.step_time / high,
        now=now,
    )
    charts = {
        "step": step_state(
            prediction.terms,
            _nothing_hidden(prediction),
            float(prediction.step_time_bounds[0]),
            bands,
        ),
        "scaling": scaling,
        "efficiency": scaling,
        "memory": memory_state(prediction.memory, e.machine.device.memory),
        "totals": totals_state(
            devices,
            curve.time_to_train,
            curve.energy_to_train,
            curve.device_hours,
            now=float(e.devices),
        ),
        "sensitivity": sensitivity_state(sensitivity(prediction)),
    }
    return Views(charts, _headline(prediction, replay, bands or {}), tuple(prediction.walls))


def _over_devices(experiment: Experiment, scale: Any) -> Breakdown:
    """Predict the same run on every sensible number of nodes, the batch a device kept.

    On a machine of one node the devices in it are varied instead.
    """
    machine, strategy = experiment.machine, experiment.strategy
    several: dict[str, Any]
    if int(machine.nodes) > 1:
        several = {"nodes": node_counts(int(machine.nodes), int(strategy.nodes))}
    else:
        most, now = int(machine.devices_per_node), int(experiment.devices_per_node)
        several = {"devices_per_node": node_counts(most, now)}
    ((name, counts),), per_node = several.items(), int(experiment.devices_per_node)
    devices = counts * per_node if name == "nodes" else counts * int(strategy.nodes)
    several = {name: counts[devices % int(strategy.replica) == 0]}  # whole replicas
    return breakdown(replace(experiment, strategy=replace(strategy, **several)), scale)


def _nothing_hidden(prediction: Breakdown) -> dict[str, Any]:
    """The terms of the step's upper bound: all communication and all input on top of compute."""
    return {
        **prediction.terms,
        "exposed communication": prediction.unhidden,
        "input stall": prediction.input_time,
    }


def _headline(
    prediction: Breakdown, replay: Replay | None, bands: Mapping[str, Any]
) -> tuple[tuple[str, str, str], ...]:
    e = prediction.experiment
    low, high = (show(float(bound), "s") for bound in prediction.step_time_bounds)
    seconds = float(prediction.time_to_train)
    time = show(seconds, "s")
    if replay:
        error = replay.error(seconds)
        remark = f"published {show(replay.published_time, 's')}, prediction {error:+.0%}"
        if replay.miss(seconds):
            time = f"{time}, {abs(error):.0%} too {'long' if error > 0 else 'short'}"
            remark = f"a miss: published {show(replay.published_time, 's')}"
    else:
        remark = f"{int(prediction.steps):,} steps, {e.run.epochs:g} epochs"
    bounds = f"bounds {low} to {high}"
    if "one step" in bands:
        bounds = f"90 % band {between(bands['one step'])}; {bounds}"
    return (
        ("One step", show(float(prediction.step_time), "s"), bounds),
        (
            "Throughput",
            f"{show(float(prediction.throughput), '')}/s",
            f"samples, in batches of {int(e.global_batch):,}",
        ),
        (
            "Efficiency",
            f"{float(prediction.efficiency):.1%}",
            f"{float(prediction.speedup):,.1f} times one device, on {int(e.devices):,}",
        ),
        ("Time to train", time, remark),
        ("Energy (modelled)", show(float(prediction.energy_to_train) / 3600, "Wh"), "PUE included"),
        ("Cost", f"{format_plain(float(prediction.device_hours))} h", "device-hours"),
    )
