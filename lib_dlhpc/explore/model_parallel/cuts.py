"""Where to cut a network into stages: the slowest sets the step time, and each cut has its message.

where_to_cut()   the experiment: a convolutional or a Transformer network, cut by work, by layers, by weights
"""

from functools import lru_cache
from typing import NamedTuple

import ipywidgets
import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.compute import BYTES, LayerTimes, layer_times
from lib_dlhpc.costs.groups import wire
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.gantt.chart import gantt_state
from lib_dlhpc.explore.model_parallel.charts import cuts_state, stages_state
from lib_dlhpc.layout import cut_points, live_names, stage_ends
from lib_dlhpc.prediction.pipelined import Ranks, pipeline_time
from lib_dlhpc.schedules import PIPELINES
from lib_dlhpc.simulation.pipeline import simulate_pipeline
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline, breakdown

NETWORKS = {
    "ResNet-50": ("resnet50", "imagenet", 8),  # catalog names, samples of a microbatch
    "ResNet-1001": ("resnet1001-224", "imagenet", 1),
    "GPT-2, 1.5 billion": ("gpt2-1.5b", "webtext", 1),
    "VGG-16": ("vgg16", "imagenet", 8),
}
STAGES = (2, 3, 4, 6, 8)
WAYS = ("equal time", "equal work", "equal numbers of layers", "equal weights")
LINKS = {"10 Gb/s": 10e9, "25 Gb/s": 25e9, "100 Gb/s": 100e9, "200 Gb/s": 200e9, "400 Gb/s": 400e9}
LEAST = 1e-9  # s: what is shorter is rounding
APART = 0.05  # of the time, from which prediction and simulation are said to differ
UNEVEN = 1.25  # slowest stage over the mean, from which it is a wall
Floats = NDArray[np.float64]


class Cut(NamedTuple):
    """What the controls say. shift: by how many places the first cut is moved; link: bit/s."""

    network: str = "ResNet-50"
    stages: int = 4
    way: str = "equal numbers of layers"
    shift: int = 0
    microbatches: int = 16
    link: float = 200e9


class Stages(NamedTuple):
    """Stages of a network: where each ends, what it takes for a microbatch, what it sends on."""

    ends: tuple[int, ...]  # one past the last layer
    forward: Floats  # s
    backward: Floats  # s
    sends: Floats  # B of a microbatch, one fewer
    latency: Floats  # s of a message with its transfer
    transfer: Floats  # s

    @property
    def work(self) -> Floats:
        """Seconds of a microbatch forward and backward."""
        return self.forward + self.backward


def where_to_cut() -> ipywidgets.Box:
    """Return the experiment: the stages' times, and what a cut at each place would send."""
    controls = {
        "network": dropdown("Network", "What is cut", [(n, n) for n in NETWORKS], "ResNet-50"),
        "stages": slider(
            "Stages", "One GPU each, in a node of its own", [(str(n), n) for n in STAGES], 4
        ),
        "way": dropdown(
            "Cut into", "What is equal for all stages", [(n, n) for n in WAYS], WAYS[2]
        ),
        "shift": slider(
            "Move first cut",
            "By so many places",
            [(f"{n:+d}" if n else "0", n) for n in range(-2, 3)],
            0,
        ),
        "microbatches": slider(
            "Microbatches", "1F1B", [(str(n), n) for n in (1, 2, 4, 8, 16, 32, 64)], 16
        ),
        "link": slider("Link", "Between two stages", list(LINKS.items()), 200e9),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    times, places, picture = chart("stage_times"), chart("cut_bytes"), chart("gantt")

    def update() -> None:
        setting = Cut(**{name: control.value for name, control in controls.items()})
        found = stages(setting)
        times.update(*stages_view(setting))
        places.update(*cuts_state(every_cut(setting), found.ends[:-1], layer_names(setting)))
        drawn = gantt_state(simulated_step(setting))
        picture.update(drawn["data"], gantt_words(setting), drawn["signals"])
        verdict.value = f'<p class="dlhpc-verdict">{cut_words(setting)}</p>'
        wall.value = wall_html(cut_wall(setting), "No stage is much slower than the others.")

    note = "the longest bar, for all wait for it; then whether a cut one place further sends less."
    return workbench(controls, [verdict, wall, times, places, picture], update, note)


@lru_cache(maxsize=64)
def experiment(setting: Cut) -> Experiment:
    """Return the run: one replica on A100 GPUs, one a node, a stage each."""
    model, dataset, samples = NETWORKS[setting.network]
    return read_experiment(
        {
            "model": model,
            "dataset": dataset,
            "storage": {"tier": ""},
            "machine": {
                "name": "selene",
                "jitter": 0.0,
                "nics": 1,
                "inter_node": {"name": "ib-hdr", "latency": "6 us", "bandwidth": setting.link / 8},
            },
            "strategy": {
                "nodes": setting.stages,
                "devices_per_node": 1,
                "pipeline": setting.stages,
                "batch": samples * setting.microbatches,
                "microbatches": setting.microbatches,
                "schedule": "1f1b",
                "precision": "bf16",
            },
        }
    )


@lru_cache(maxsize=256)
def stages(setting: Cut) -> Stages:
    """Return the stages that the controls ask for, with the times and messages of their layers."""
    e, ends = experiment(setting), _ends(setting)
    forward, backward = (
        np.diff(np.append(0.0, np.cumsum(each))[[0, *ends]]) for each in _layer_seconds(setting)
    )
    sizes = _alive(setting)[list(ends[:-1])]
    ways = [wire(e, k, k + 1, 1).cost(size) for k, size in enumerate(sizes)]
    latency, transfer = (
        np.array([float(f) for f in each])
        for each in ([way.total for way in ways], [way.bandwidth for way in ways])
    )
    return Stages(ends, forward, backward, sizes, latency, transfer)


def _layer_seconds(setting: Cut) -> LayerTimes:
    """Return s of each layer for a microbatch, forward and backward."""
    e, samples = experiment(setting), NETWORKS[setting.network][2]
    return layer_times(e.model, e.machine.device, samples, e.strategy.precision)


def _ends(setting: Cut) -> tuple[int, ...]:
    """Return one past the last layer of each stage, the first cut moved."""
    model, edges = experiment(setting).model, _edges(setting)
    if setting.way == "equal work":  # of the library, which asks no device for its times
        ends = stage_ends(experiment(setting))
    else:
        each = {
            "equal time": sum(_layer_seconds(setting)),
            "equal numbers of layers": np.ones(len(model.layers)),
            "equal weights": model.layer_parameters,
        }[setting.way]
        ends = _nearest(np.append(0.0, np.cumsum(each)), edges, setting.stages)
    at = edges.index(ends[0])
    after = edges.index(ends[1]) if len(ends) > 1 else len(edges) - 1
    return (edges[min(max(at + setting.shift, 1), after - 1)], *ends[1:])


def _nearest(done: Floats, edges: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the edges at which the share that is done is nearest to equal parts, none taken twice."""
    found, low = [], 1
    for stage in range(1, count):
        high = len(edges) - 1 - (count - stage)
        choice = [abs(done[edges[k]] / done[-1] - stage / count) for k in range(low, high + 1)]
        low += int(np.argmin(choice))
        found.append(edges[low])
        low += 1
    return (*found, edges[-1])


def _edges(setting: Cut) -> tuple[int, ...]:
    """Return where a stage may begin or end."""
    return cut_points(experiment(setting).model, setting.stages)


def _alive(setting: Cut) -> Floats:
    """Return the bytes that a cut before each layer, and at the end, would send for a microbatch."""
    e, samples = experiment(setting), NETWORKS[setting.network][2]
    size = {
        layer.name: float(elements) * samples * BYTES[e.strategy.precision]
        for layer, elements in zip(e.model.layers, e.model.layer_output_elements, strict=True)
    }
    return np.array([sum(size[name] for name in alive) for alive in live_names(e.model)])


def every_cut(setting: Cut) -> tuple[NDArray[np.int64], Floats]:
    """Return the places where the network may be cut, and the bytes that each sends."""
    places = np.array(_edges(setting)[1:-1])
    return places, _alive(setting)[places]


def layer_names(setting: Cut) -> list[str]:
    """Return the names of the layers of the setting's network."""
    return [layer.name for layer in experiment(setting).model.layers]


@lru_cache(maxsize=16)
def simulated_step(setting: Cut) -> Timeline:
    """Return all microbatches, simulated."""
    e, found = experiment(setting), stages(setting)
    streams = PIPELINES["1f1b"](setting.stages, setting.microbatches)
    return simulate_pipeline(
        streams, e.machine, setting.stages, 1, found.forward, found.backward, found.sends
    )


def seconds(setting: Cut) -> tuple[float, float]:
    """Return s of all microbatches, predicted and simulated."""
    found, timeline = stages(setting), simulated_step(setting)
    ranks = Ranks(found.forward, found.backward, found.latency, found.transfer)
    return pipeline_time(ranks, setting.microbatches, "1f1b"), float(timeline.stop.max())


def gantt_words(setting: Cut) -> str:
    """Say in words what the picture of the microbatches shows."""
    terms, slow = breakdown(simulated_step(setting)).terms, int(stages(setting).work.argmax())
    messages = terms["exposed communication"]
    return (
        f"{setting.stages} stages, {setting.microbatches} microbatch{'es' * (setting.microbatches > 1)}, 1F1B."
        f" Stage {slow} is the slowest; on average a GPU is idle for"
        f" {show(terms['pipeline bubble'], 's')} in the bubble, and waits"
        f" {show(messages if messages > LEAST else 0.0, 's')} for messages."
    )


def unevenness(setting: Cut) -> float:
    """Return by how many percent the slowest stage takes longer than the mean."""
    work = stages(setting).work
    return float(100 * (work.max() / work.mean() - 1))


def stages_view(setting: Cut) -> State:
    """Return the columns of the chart "stage_times"."""
    found, names = stages(setting), layer_names(setting)
    starts = (0, *found.ends[:-1])
    words = [
        names[a] if b - a == 1 else f"{names[a]} to {names[b - 1]}"
        for a, b in zip(starts, found.ends, strict=True)
    ]
    return stages_state(found.forward, found.backward, np.append(found.latency, 0.0), words)


def cut_words(setting: Cut) -> str:
    """Say what the slowest stage costs, predicted and simulated."""
    found, (expected, simulated) = stages(setting), seconds(setting)
    work = setting.microbatches * float(found.work.sum())
    why = (
        " They differ because messages share a link in the simulation only, and the closed form of 1F1B is for"
        " nearly equal stages."
    )
    return (
        f"<b>{setting.stages} stages are {work / expected:.3g} times as fast as one GPU.</b> The batch takes"
        f" {show(expected, 's')} predicted, {show(simulated, 's')} simulated. The slowest stage takes"
        f" {unevenness(setting):.0f} % longer than the mean; the largest message of a microbatch is"
        f" {show(float(found.sends.max()), 'B')}.{why if abs(expected / simulated - 1) > APART else ''}"
    )


def cut_wall(setting: Cut) -> str:
    """Say which stage, or which message, all others wait for; nothing where they do not."""
    found = stages(setting)
    work, slow = found.work, int(found.work.argmax())
    late = int(found.latency.argmax())
    if found.latency[late] > work.mean() / 2:
        return (
            f"The message: stage {late} sends {show(float(found.sends[late]), 'B')} a microbatch, which takes"
            f" {show(float(found.latency[late]), 's')} one way; a mean stage computes for"
            f" {show(float(work.mean()), 's')}."
        )
    if work[slow] > UNEVEN * work.mean():
        return (
            f"Stage {slow} is the slowest: it takes {show(float(work[slow]), 's')} a microbatch, the mean is"
            f" {show(float(work.mean()), 's')}. However many microbatches there are, the others wait"
            f" {1 - float(work.mean() / work[slow]):.0%} of the time."
        )
    return ""


def cut_gain(network: str, way: str, other: str) -> float:
    """Return how many times as fast cutting `way` is as cutting the `other` way."""
    setting = Cut(network)
    return seconds(setting._replace(way=other))[0] / seconds(setting._replace(way=way))[0]
