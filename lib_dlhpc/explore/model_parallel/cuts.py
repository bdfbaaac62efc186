"""Where to cut a network into stages: the slowest sets the step time, and each cut has its message."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs import BYTES, LayerTimes, layer_times, wire
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import Data, State, columns, stacked
from lib_dlhpc.explore.gantt.chart import gantt_state
from lib_dlhpc.explore.model_parallel.a100 import on_a100
from lib_dlhpc.layout import cut_points, live_names, stage_ends
from lib_dlhpc.prediction.pipelines.pipelined import RankTimes, pipeline_time
from lib_dlhpc.schedules import PIPELINES
from lib_dlhpc.simulation import simulate_pipeline
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count
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
SHIFTS = {"-2": -2, "-1": -1, "0": 0, "+1": 1, "+2": 2}
MICROBATCHES = (1, 2, 4, 8, 16, 32, 64)
LINKS = {f"{rate} Gb/s": rate * 1e9 for rate in (10, 25, 100, 200, 400)}
LEAST = 1e-9  # s: what is shorter is rounding
APART = 0.05  # of the time, from which prediction and simulation are said to differ
TERMS = ("forward", "backward", "message on")  # of a stage
UNEVEN = 1.25  # slowest stage over the mean, from which it is a wall


class Cut(NamedTuple):
    """A network in stages. shift: by how many places the first cut is moved; link: bit/s."""

    network: Annotated[str, Dropdown("Network", "What is cut", tuple(NETWORKS))] = "ResNet-50"
    stages: Annotated[int, Slider("Stages", "One GPU each, in a node of its own", STAGES)] = 4
    way: Annotated[str, Dropdown("Cut into", "What is equal for all stages", WAYS)] = WAYS[2]
    shift: Annotated[int, Slider("Move first cut", "By so many places", SHIFTS)] = 0
    microbatches: Annotated[int, Slider("Microbatches", "1F1B", MICROBATCHES)] = 16
    link: Annotated[float, Slider("Link", "Between two stages", LINKS)] = 200e9


class Stages(NamedTuple):
    """Stages of a network."""

    ends: tuple[int, ...]  # one past the last layer of each
    sends: Floats  # B of a microbatch, one fewer
    ranks: RankTimes  # what they take for a microbatch

    @property
    def work(self) -> Floats:
        """Seconds of a microbatch forward and backward."""
        return self.ranks.forward + self.ranks.backward


@on_bench(
    Cut(), "stage_times", "cut_bytes", "gantt", fine="No stage is much slower than the others."
)
def where_to_cut(setting: Cut) -> View:
    """Look for the longest bar, for all wait for it; then whether a cut one place further sends less."""
    charts: dict[str, Any] = {
        "stage_times": stages_view(setting),
        "cut_bytes": bytes_view(setting),
        "gantt": {**gantt_state(simulated_step(setting)), "summary": gantt_words(setting)},
    }
    return View(cut_words(setting), cut_wall(setting), charts)


@lru_cache(maxsize=64)
def experiment(setting: Cut) -> Experiment:
    """Return the run: one replica, one GPU a node, a stage each."""
    model, dataset, samples = NETWORKS[setting.network]
    gpus = {"nodes": setting.stages, "devices_per_node": 1, "pipeline": setting.stages}
    batch = {"batch": samples * setting.microbatches, "microbatches": setting.microbatches}
    return on_a100(model, dataset, {**gpus, **batch, "schedule": "1f1b"}, setting.link)


@lru_cache(maxsize=256)
def stages(setting: Cut) -> Stages:
    """Return the stages that the controls ask for, with the times and messages of their layers."""
    e, ends = experiment(setting), _ends(setting)
    forward, backward = (np.diff(_running(each)[[0, *ends]]) for each in _layer_seconds(setting))
    sends = _alive(setting)[list(ends[:-1])]
    costs = [wire(e, k, k + 1, 1).cost(size) for k, size in enumerate(sends)]
    latency, transfer = np.array([(cost.total, cost.bandwidth) for cost in costs]).T
    return Stages(ends, sends, RankTimes(forward, backward, latency, transfer))


def _layer_seconds(setting: Cut) -> LayerTimes:
    """Return s of each layer for a microbatch, forward and backward."""
    e, samples = experiment(setting), NETWORKS[setting.network][2]
    return layer_times(e.model, e.machine.device, samples, e.strategy.precision)


def _running(each: Floats) -> Floats:
    """Return the sums of what is before each layer, and of all."""
    return np.append(0.0, np.cumsum(each))


def _ends(setting: Cut) -> tuple[int, ...]:
    """Return one past the last layer of each stage, the first cut moved."""
    e = experiment(setting)
    edges = cut_points(e.model, setting.stages)
    if setting.way == "equal work":  # of the library, which asks no device for its times
        ends = stage_ends(e)
    else:
        each = {
            "equal time": sum(_layer_seconds(setting)),
            "equal numbers of layers": np.ones(len(e.model.layers)),
            "equal weights": e.model.layer_parameters,
        }[setting.way]
        ends = _nearest(_running(each), edges, setting.stages)
    at, after = edges.index(ends[0]), edges.index(ends[1])
    return (edges[min(max(at + setting.shift, 1), after - 1)], *ends[1:])


def _nearest(done: Floats, edges: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the edges at which the share that is done is nearest to equal parts, none taken twice."""
    share = done[list(edges)] / done[-1]
    found = [0]
    for stage in range(1, count):
        low, high = found[-1] + 1, len(edges) - 1 - (count - stage)
        found.append(low + int(np.argmin(abs(share[low : high + 1] - stage / count))))
    return (*(edges[k] for k in found[1:]), edges[-1])


def _alive(setting: Cut) -> Floats:
    """Return the bytes that a cut before each layer, and at the end, would send for a microbatch."""
    e, samples = experiment(setting), NETWORKS[setting.network][2]
    size = {
        layer.name: float(elements) * samples * BYTES[e.strategy.precision]
        for layer, elements in zip(e.model.layers, e.model.layer_output_elements, strict=True)
    }
    return np.array([sum(size[name] for name in alive) for alive in live_names(e.model)])


def layer_names(setting: Cut) -> list[str]:
    """Return the names of the layers of the setting's network."""
    return [layer.name for layer in experiment(setting).model.layers]


@lru_cache(maxsize=16)
def simulated_step(setting: Cut) -> Timeline:
    """Return all microbatches, simulated."""
    machine, (_, sends, ranks) = experiment(setting).machine, stages(setting)
    streams, times = PIPELINES["1f1b"](setting.stages, setting.microbatches), ranks[:2]
    return simulate_pipeline(streams, machine, setting.stages, 1, *times, sends)


def seconds(setting: Cut) -> tuple[float, float]:
    """Return s of all microbatches, predicted and simulated."""
    predicted = pipeline_time(stages(setting).ranks, setting.microbatches, "1f1b")
    return predicted, float(simulated_step(setting).stop.max())


def unevenness(setting: Cut) -> float:
    """Return by how many percent the slowest stage takes longer than the mean."""
    work = stages(setting).work
    return float(100 * (work.max() / work.mean() - 1))


def stages_view(setting: Cut) -> State:
    """Return the chart "stage_times": seconds of each stage for a microbatch, and of its message to the next."""
    found, names = stages(setting), layer_names(setting)
    layers = [
        names[a] if b - a == 1 else f"{names[a]} to {names[b - 1]}"
        for a, b in zip((0, *found.ends[:-1]), found.ends, strict=True)
    ]
    work, sends = found.work, np.append(found.ranks.latency, 0.0)
    slow, mean = int(work.argmax()), float(work.mean())
    bars = [
        {
            "stage": f"stage {stage}",
            "term": term,
            "start": start,
            "stop": stop,
            "seconds": stop - start,
            "layers": layers[stage],
            "details": f"stage {stage} ({layers[stage]}), {term}: {show(stop - start, 's')}",
        }
        for stage, times in enumerate(zip(*found.ranks[:2], sends, strict=True))
        for term, start, stop in stacked(dict(zip(TERMS, times, strict=True)))
    ]
    end = float(work[slow] + sends[slow])
    data: Data = {
        "bars": columns(bars),
        "notes": {"stage": [f"stage {slow}"], "stop": [end], "words": ["slowest"]},
        "mean": {"x": [mean], "words": [f"mean {show(mean, 's')}"]},
        "room": {"x": [0.0, 1.25 * float((work + sends).max())]},
    }
    return data, (
        f"Stage {slow} is the slowest: {show(float(work[slow]), 's')} per microbatch, where the mean is"
        f" {show(mean, 's')}. Its layers: {layers[slow]}."
    )


def bytes_view(setting: Cut) -> State:
    """Return the chart "cut_bytes": what each possible cut would send, and where it is cut."""
    places = cut_points(experiment(setting).model, setting.stages)[1:-1]
    size, names = _alive(setting)[list(places)].tolist(), layer_names(setting)
    cuts = set(stages(setting).ends[:-1])
    rows: list[dict[str, Any]] = [
        {"x": place, "y": sent, "words": f"before {names[place]}: {show(sent, 'B')}", "floor": 0.0}
        for place, sent in zip(places, size, strict=True)
    ]
    chosen = [{**row, "words": show(row["y"], "B")} for row in rows if row["x"] in cuts]
    data: Data = {
        "places": columns(rows),
        "cuts": columns(chosen),
        "room": {"x": [0, len(names)], "y": [0.0, 1.2 * max(size)]},
    }
    return data, (
        f"The cuts send {', '.join(row['words'] for row in chosen)} per microbatch. The least that any cut would send"
        f" is {show(min(size), 'B')}, the most {show(max(size), 'B')}."
    )


def gantt_words(setting: Cut) -> str:
    """Say in words what the picture of the microbatches shows."""
    terms, slow = breakdown(simulated_step(setting)).terms, int(stages(setting).work.argmax())
    messages = terms["exposed communication"]
    return (
        f"{setting.stages} stages, {count(setting.microbatches, 'microbatch')}, 1F1B."
        f" Stage {slow} is the slowest; on average a GPU is idle for"
        f" {show(terms['pipeline bubble'], 's')} in the bubble, and waits"
        f" {show(messages if messages > LEAST else 0.0, 's')} for messages."
    )


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
        f" {unevenness(setting):.0f}% longer than the mean; the largest message of a microbatch is"
        f" {show(float(found.sends.max()), 'B')}.{why if abs(expected / simulated - 1) > APART else ''}"
    )


def cut_wall(setting: Cut) -> str:
    """Say which stage, or which message, all others wait for; nothing where they do not."""
    found = stages(setting)
    slow, late = found.work.argmax(), found.ranks.latency.argmax()
    longest, mean = float(found.work[slow]), float(found.work.mean())
    message = float(found.ranks.latency[late])
    if message > mean / 2:
        return (
            f"The message: stage {late} sends {show(float(found.sends[late]), 'B')} per microbatch, which takes"
            f" {show(message, 's')} one way; a mean stage computes for {show(mean, 's')}."
        )
    if longest > UNEVEN * mean:
        return (
            f"Stage {slow} is the slowest: it takes {show(longest, 's')} per microbatch, the mean is {show(mean, 's')}."
            f" However many microbatches there are, the others wait {1 - mean / longest:.0%} of the time."
        )
    return ""
