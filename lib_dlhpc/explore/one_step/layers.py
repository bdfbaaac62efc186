"""One step, layer by layer: forward, backward and update of a network, and what twice the batch takes."""

from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.costs import layer_times, update_time
from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View
from lib_dlhpc.explore.blocks.charts import Data, State, beside, columns
from lib_dlhpc.explore.one_step import machines
from lib_dlhpc.explore.one_step.charts import BETWEEN, PASSES
from lib_dlhpc.explore.one_step.roofline import BOUND, DEVICE, FASTER
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.machine import Device
from lib_dlhpc.spec.units import format_quantity as show

MODELS = {"digits, dense layers": "mlp-digits", "digits, convolutions": "cnn-digits"}
MODELS |= {"LeNet-5": "lenet5", "ResNet-50": "resnet50", "BERT base": "bert-base"}
BATCHES = tuple(2**k for k in range(11))
MOST_ROWS = 12  # layers that are shown one by one; more are put together by kind
OPTIMIZER = "momentum"
HELP = {
    "arithmetic": machines.faster_arithmetic,
    "memory": machines.faster_memory,
    "starting": machines.faster_start,
}


class Setting(NamedTuple):
    """A step of a network on a device. faster: how many times as fast its arithmetic is."""

    model: Annotated[str, Dropdown("Network", "What is trained", MODELS)] = "cnn-digits"
    device: Annotated[str, DEVICE] = "laptop-core"
    batch: Annotated[int, Slider("Batch", "Samples of a step", BATCHES)] = 8
    faster: Annotated[float, FASTER] = 1.0


class Row(NamedTuple):
    """A layer, or all of a kind: seconds of its passes, and what bounds it."""

    name: str
    passes: dict[str, float]
    bound: str

    @property
    def seconds(self) -> float:
        """Seconds of all passes."""
        return sum(self.passes.values())


def step_by_layers(mine: machines.Mine) -> Bench[Setting]:
    """Return the experiment: where a step's time goes, and how it grows with the batch."""

    def view(setting: Setting) -> View:
        device = device_of(setting, mine)
        walls = " ".join(predict(experiment(setting, device)).walls)
        layers, batches = layers_view(setting, device), batch_view(setting, device)
        charts = {"one_step_layers": layers, "one_step_batch": batches}
        return View(step_words(setting, device), walls, charts)

    look = "what bounds the longest bars; then where the line of a step bends into the dashed one."
    bench = Bench(Setting(), view, ["one_step_layers", "one_step_batch"], "It fits.", look)
    mine.observe(lambda _: bench.show(), "machine")
    return bench


def device_of(setting: Setting, mine: machines.Mine) -> Device:
    """Return the device of a setting."""
    return machines.faster_arithmetic(mine.device(setting.device), setting.faster)


@lru_cache(maxsize=256)
def _catalog(model: str, batch: int, precision: str) -> Experiment:
    dataset = "wikipedia-books" if model == "bert-base" else "imagenet"
    own = {"batch": batch, "precision": precision, "optimizer": OPTIMIZER, "devices_per_node": 1}
    about = {"model": model, "dataset": dataset, "machine": {"name": "laptop", "jitter": 0.0}}
    return read_experiment({**about, "storage": {"tier": ""}, "strategy": own})


def experiment(setting: Setting, device: Device) -> Experiment:
    """Return the run on one device."""
    own = _catalog(setting.model, setting.batch, machines.precision_of(device))
    return replace(own, machine=replace(own.machine, device=device))


def step_time(setting: Setting, device: Device) -> float:
    """Return the seconds of a step."""
    return float(predict(experiment(setting, device)).step_time)


def growth(setting: Setting, device: Device) -> float:
    """Return how many times as long a step takes with twice the batch."""
    twice = setting._replace(batch=2 * setting.batch)
    return step_time(twice, device) / step_time(setting, device)


def rows(setting: Setting, device: Device) -> list[Row]:
    """Return the layers of a step, or their kinds, then the update and what lies between the layers."""
    model, precision = experiment(setting, device).model, machines.precision_of(device)
    busy = replace(device, overhead=0.0)

    def seconds(way: Device) -> Any:
        times = layer_times(model, way, setting.batch, precision)
        return times.forward + times.backward

    times, by_cause = (
        layer_times(model, busy, setting.batch, precision),
        machines.causes(seconds, busy),
    )
    few = len(model.layers) <= MOST_ROWS
    names = np.array([layer.name if few else layer.kind for layer in model.layers])
    found = []
    for name in dict.fromkeys(names.tolist()):
        here = names == name
        each = {"forward": times.forward, "backward": times.backward}
        passes = {part: float(seconds_of[here].sum()) for part, seconds_of in each.items()}
        bound = max(by_cause, key=lambda cause: float(by_cause[cause][here].sum()))
        found.append(Row(name if few else f"{name} ({here.sum()})", passes, BOUND[bound]))
    found = [row for row in found if row.seconds]
    if not few:
        found.sort(key=lambda row: -row.seconds)
    ways = (device, machines.faster_start(device, inf))
    update, streamed = (float(update_time(model, way, OPTIMIZER)) for way in ways)
    bound = machines.MEMORY if streamed > update / 2 else machines.START
    found.append(Row("update", {"update": update}, BOUND[bound]))
    if device.overhead:
        found.append(Row(BETWEEN, {BETWEEN: float(device.slowdown * device.overhead)}, ""))
    return found


def layers_view(setting: Setting, device: Device) -> State:
    """Return the columns of the chart "one_step_layers": seconds of each layer by pass, and what bounds it."""
    every = rows(setting, device)
    whole = sum(row.seconds for row in every)
    words = {
        row.name: f"{row.seconds / whole:.0%}{', ' * bool(row.bound)}{row.bound}" for row in every
    }
    data = stacks({row.name: row.passes for row in every}, PASSES, "s", words=words)
    longest = max(every, key=lambda row: row.seconds)
    most = f"{longest.name} takes most, {words[longest.name]}"
    return data, f"{show(whole, 's')} in all; {most}."


def batch_view(setting: Setting, device: Device) -> State:
    """Return the columns of the chart "one_step_batch": the time of a step, beside one in proportion to its samples."""
    runs = {n: predict(experiment(setting._replace(batch=n), device)) for n in BATCHES}
    seconds = {n: float(run.step_time) for n, run in runs.items()}
    first, last, now = BATCHES[0], BATCHES[-1], setting.batch
    took, one = seconds[now], seconds[last] / last
    lines = [{"line": "a step", "x": n, "y": each} for n, each in seconds.items()]
    lines += [{"line": "in proportion", "x": n, "y": one * n} for n in (first, last)]
    wall = [
        {"x": n, "end": last, "words": "does not fit", **beside(n > BATCHES[len(BATCHES) // 2], 6)}
        for n, run in runs.items()
        if run.walls
    ]
    words = f"{show(took, 's')}, {show(took / now, 's')} per sample"
    data: Data = {
        "lines": columns(lines),
        "now": {"x": [now], "y": [took], "words": [f"batch {now:,}: {words}"]},
        "wall": columns(wall[:1]),
        "room": {"y": [min(seconds[first], one) / 1.5, 2 * seconds[last]]},
    }
    return data, (
        f"Batch {now:,}: {words}; at the largest batch {show(one, 's')} per sample, so that"
        f" {max(0.0, 1 - one * now / took):.0%} of this step is not proportional to its samples."
    )


def shares(setting: Setting, device: Device) -> dict[str, float]:
    """Return the share of a step's time in layers that are bound by each cause."""
    every = rows(setting, device)
    whole = sum(row.seconds for row in every)
    return {b: sum(row.seconds for row in every if row.bound == b) / whole for b in BOUND.values()}


def gains(setting: Setting, device: Device) -> dict[str, float]:
    """Return by which share a step is shorter with each of arithmetic, memory and starting twice as fast."""
    now = step_time(setting, device)
    return {name: 1 - step_time(setting, way(device, 2.0)) / now for name, way in HELP.items()}


def step_words(setting: Setting, device: Device) -> str:
    """Say how long a step takes, what bounds it, and what would help."""
    of_it = shares(setting, device).items()
    bound = ", ".join(f"{share:.0%} in {name} layers" for name, share in of_it if share >= 0.005)
    helped = ", ".join(f"{name} {gain:.0%}" for name, gain in gains(setting, device).items())
    return (
        f"<b>A step takes {show(step_time(setting, device), 's')}</b>: {bound}. Twice the batch takes"
        f" {growth(setting, device):.2f} times as long. Twice as fast would shorten it: {helped}."
    )
