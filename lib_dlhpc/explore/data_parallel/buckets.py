"""One step of data parallelism: gradients are exchanged in buckets during backward. How much is exposed?"""

from functools import cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.costs import BYTES, buckets
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, amount, gigabits, on_bench
from lib_dlhpc.explore.blocks.charts import State, marked
from lib_dlhpc.explore.blocks.lines import line_columns
from lib_dlhpc.explore.gantt.chart import gantt_state
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity
from lib_dlhpc.timeline import breakdown

PER_NODE = 8  # GPUs in a node of that machine
MOST_NODES = 2048  # the machine had 44; beyond, the lesson supposes more of the same
GPUS = (8, 16, 32, 64, 128, 256)
IMAGES = (1, 2, 4, 8, 16, 32, 64)
BUCKETS = (1e3, 10e3, 100e3, 1e6, 4e6, 10e6, 25e6, 50e6, 100e6, 200e6)  # B
NICS = tuple(rate / 8 for rate in (1e9, 10e9, 25e9, 50e9, 100e9, 400e9))  # B/s
WHEN = {"during backward": True, "after backward": False}
ALLREDUCES = ("hierarchical", "rabenseifner", "ring")
NOTABLE = 0.05  # share of a step from which exposed communication is a wall
Allreduce = Annotated[str, Dropdown("Allreduce", "How a bucket is summed", ALLREDUCES)]
Overlap = Annotated[bool, Dropdown("Exchange", "When the buckets are exchanged", WHEN)]
Nic = Annotated[float, Slider("NIC", "Of a node", NICS, gigabits)]  # B/s


@cache
def goyal(jitter: float | None = None) -> Experiment:
    """Return "ImageNet in one hour", its measured rate turned into that of one GPU alone.

    Its input never stalls, so storage is left out. jitter: in place of the machine's.
    """
    changes: dict[str, Any] = {"machine.nodes": MOST_NODES, "storage.tier": ""}
    if jitter is not None:
        changes["machine.jitter"] = jitter
    return what_if(replay("goyal-2017").experiment, changes)


class Step(NamedTuple):
    """One step of Goyal's run. bucket: B of gradients in one allreduce; nic: B/s of a node."""

    gpus: Annotated[int, Slider("GPUs", "In nodes of 8", GPUS)] = 256
    images: Annotated[int, Slider("Images per GPU", "Batch of one GPU", IMAGES)] = 32
    bucket: Annotated[
        float, Slider("Bucket", "Bytes of gradients in one allreduce", BUCKETS, amount("B"))
    ] = 25e6
    overlap: Overlap = True
    allreduce: Allreduce = "hierarchical"
    nic: Nic = 50e9 / 8


@on_bench(Step(), "gantt", "bucket_sizes", fine="Little of the allreduce is exposed.")
def one_step(setting: Step) -> View:
    """Look for the buckets on the communication stream: which of them end after backward?"""
    experiment = step_of(**setting._asdict())
    prediction, timeline = predict(experiment), simulate(experiment)
    return View(
        step_words(prediction, breakdown(timeline).step_time),
        bucket_wall(prediction),
        {"gantt": gantt_state(timeline, ranks=[0]), "bucket_sizes": buckets_chart(experiment)},
    )


def step_of(*values: Any, **named: Any) -> Experiment:
    """Return the experiment of a Step with these values; all GPUs are equally fast in it."""
    step = Step(*values, **named)
    strategy = {name: getattr(step, name) for name in ("bucket", "overlap", "allreduce")}
    strategy |= {"nodes": step.gpus // PER_NODE, "batch": step.images}
    known = {f"strategy.{name}": value for name, value in strategy.items()}
    return goyal(0.0).set({**known, "machine.inter_node.bandwidth": step.nic})


def buckets_chart(experiment: Experiment) -> State:
    """Return the chart "bucket_sizes": a step with overlap and without, over sizes in B."""
    sizes = np.unique([*BUCKETS, *np.geomspace(BUCKETS[0], BUCKETS[-1], 61)])
    swept, now = experiment.set({"strategy.bucket": sizes}), predict(experiment)
    curves = {
        words: (sizes, np.asarray(predict(swept.set({"strategy.overlap": early})).step_time))
        for words, early in WHEN.items()
    }
    bucket, step = float(experiment.strategy.bucket), _time(now.step_time)
    right = bucket > np.sqrt(BUCKETS[0] * BUCKETS[-1])
    data = {
        **line_columns(curves),
        "floor": {"y": [float(now.compute)], "words": [f"computing alone: {_time(now.compute)}"]},
        "now": marked(f"now: {step}", right, 11, x=bucket, y=float(now.step_time)),
    }
    early, late = (_time(y.min()) for _, y in curves.values())
    return data, (
        f"With buckets of {format_quantity(bucket, 'B')} a step takes {step}. The shortest possible takes {early}"
        f" with the allreduce during backward, and {late} with it afterward."
    )


def step_words(prediction: Breakdown, simulated: float) -> str:
    """Say how long a step takes, predicted and simulated, and how much of its allreduce is hidden."""
    whole, out = float(prediction.communication.total), float(prediction.exposed_communication)
    count = bucket_count(prediction.experiment)
    sent = "One bucket takes" if count == 1 else f"{count} buckets take"
    return (
        f"<b>One step: {_time(prediction.step_time)}</b> predicted, {_time(simulated)} simulated."
        f" {sent} {_time(whole)} on the network;"
        f" {max(0.0, 1 - out / whole):.0%} of that is hidden behind backward, {_time(out)} are exposed."
    )


def bucket_count(experiment: Experiment) -> int:
    """Return the number of buckets of a step."""
    strategy = experiment.strategy
    cut = buckets(experiment.model, strategy.bucket, BYTES[strategy.precision])
    return int(np.count_nonzero(cut.sizes))


def bucket_wall(prediction: Breakdown) -> str:
    """Say why much of the allreduce is exposed, or nothing where it is not."""
    cost, out = prediction.communication, float(prediction.exposed_communication)
    if out < NOTABLE * float(prediction.step_time):
        return ""
    whole, backward = float(cost.total), float(prediction.backward)
    if not prediction.experiment.strategy.overlap:
        return f"Nothing is hidden: the GPUs are idle for all {_time(whole)} of the allreduce."
    count = bucket_count(prediction.experiment)
    if float(cost.latency) > 0.5 * whole:
        return (
            f"Buckets too small: {count} allreduces wait {_time(cost.latency)} for latency alone,"
            f" and backward takes only {_time(backward)}."
        )
    if count == 1:
        return (
            "Bucket too large: it is complete when backward ends, so there is nothing left to overlap"
            f" with, and all {_time(whole)} are exposed."
        )
    if whole > backward:
        return (
            f"The network: the allreduce takes {_time(whole)} and backward {_time(backward)};"
            " no bucket size hides the difference."
        )
    return "The last bucket is large, and complete only when backward ends: all of it is exposed."


def _time(seconds: Any) -> str:
    return format_quantity(float(seconds), "s")
