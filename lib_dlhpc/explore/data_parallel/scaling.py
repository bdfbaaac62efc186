"""Weak and strong scaling: the efficiency of each GPU when the batch grows with them, and when it does not."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.explore.blocks.bench import Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import State, columns
from lib_dlhpc.explore.blocks.lines import line_columns, value_at, values_at
from lib_dlhpc.explore.data_parallel.buckets import PER_NODE, Allreduce, Nic, goyal
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count, format_plain, format_quantity

GPUS = tuple(2**k for k in range(3, 15))
BATCHES = (256, 1024, 2048, 4096, 8192, 16384, 32768)
FLOOR = 0.5  # share of a step that is not computing, from which more GPUs are a waste


class Scaling(NamedTuple):
    """One run on many numbers of GPUs. gpus: to look at; images: a GPU; nic: B/s of a node."""

    gpus: Annotated[int, Slider("GPUs", "To look at", GPUS)] = 256
    images: Annotated[
        int, Slider("Images per GPU", "Weak scaling: they stay the same", (4, 8, 16, 32, 64))
    ] = 32
    batch: Annotated[int, Slider("Global batch", "Strong scaling: they stay the same", BATCHES)] = (
        8192
    )
    allreduce: Allreduce = "hierarchical"
    nic: Nic = 50e9 / 8


class Curve(NamedTuple):
    """Predictions over numbers of GPUs; no entry where nothing fits or a GPU has no image."""

    gpus: Floats
    rate: Floats  # images per second
    left: Floats  # rate of each GPU over that in one node


@on_bench(Scaling(), "gpu_share", "images_a_second", fine="Both ways still scale here.")
def weak_and_strong(setting: Scaling) -> View:
    """Look for where the strong line leaves the weak one, and where it turns down for good."""
    curves = {"weak": weak(setting), "strong": strong(setting)}
    said = []
    for name, curve in curves.items():
        at = np.flatnonzero(curve.gpus == setting.gpus)
        if len(at):
            epoch = float(goyal().dataset.samples) / float(curve.rate[at[0]])
            takes = format_quantity(epoch, "s")
            said.append(f"{name} {curve.left[at[0]]:.0%}, an epoch takes {takes}")
        else:
            said.append(f"{name}: not possible")
    words = f"<b>{count(setting.gpus, 'GPU')}, efficiency:</b> {'; '.join(said)}."
    charts = {
        "gpu_share": _share_chart(setting, curves),
        "images_a_second": _rate_chart(setting, curves),
    }
    return View(words, _wall(setting), charts)


def weak(setting: Scaling) -> Curve:
    """Return weak scaling: the images of one GPU stay, the global batch grows."""
    return _curve(setting, np.array(GPUS), np.full(len(GPUS), setting.images))


def strong(setting: Scaling) -> Curve:
    """Return strong scaling: the global batch stays, a GPU's share of it shrinks to one image at least."""
    gpus = np.array([p for p in GPUS if p <= setting.batch])
    return _curve(setting, gpus, setting.batch // gpus)


def strong_gain(gpus: int, more: int) -> float:
    """Return how many times faster `more` GPUs are than `gpus` for the same global batch of 8,192."""
    one, other = (predict(_at(Scaling(), p, 8192 // p)).throughput for p in (gpus, more))
    return float(other / one)


def node_rate(setting: Scaling) -> float:
    """Return the images a second of each GPU in one node of 8: what the publication compares with."""
    return float(predict(_at(setting, PER_NODE, setting.images)).throughput) / PER_NODE


def published() -> list[tuple[int, float, str]]:
    """Return (GPUs, efficiency over 8 GPUs, words) that Goyal et al. published."""
    weak, longer = results()["goyal17-r50-eff"], results()["goyal17-r50-iterinc"]
    slower = 1 / (1 + float(longer["value"]))
    return [
        (int(weak["count"]), float(weak["value"]), "published"),
        (int(longer["count"]), slower, "published, and used to calibrate"),
    ]


def _curve(setting: Scaling, gpus: NDArray[Any], images: NDArray[Any]) -> Curve:
    prediction = predict(_at(setting, gpus, images))
    kept = np.asarray(prediction.fits)
    rate = np.asarray(prediction.throughput)[kept]
    return Curve(gpus[kept], rate, rate / gpus[kept] / node_rate(setting))


def _at(setting: Scaling, gpus: Any, images: Any) -> Experiment:
    return goyal().set(
        {
            "strategy.nodes": gpus // PER_NODE,
            "strategy.batch": images,
            "strategy.allreduce": setting.allreduce,
            "machine.inter_node.bandwidth": setting.nic,
        }
    )


def _share_chart(setting: Scaling, curves: Mapping[str, Curve]) -> State:
    """Return the rate of each GPU over that in one node, against GPUs; with the published points."""
    shown = {name: (curve.gpus, curve.left) for name, curve in curves.items()}
    weak = curves["weak"]
    points = [
        {"x": gpus, "y": left, "words": f"{gpus:,} GPUs, {words}: {left:.0%}"}
        | {"error": f"{np.interp(np.log(gpus), np.log(weak.gpus), weak.left) / left - 1:+z.1%}"}
        for gpus, left, words in published()
    ]
    data = {
        **line_columns(shown),
        "published": columns(points),
        "now": value_at(shown, setting.gpus, "{:.0%}".format),
    }
    here = ", ".join(f"{name} {y:.0%}" for name, y in values_at(shown, setting.gpus))
    first = points[0]
    return data, (
        f"At {count(setting.gpus, 'GPU')}: {here or 'nothing to predict'}. Published: {first['y']:.0%} at"
        f" {first['x']:,}, which weak scaling meets with an error of {first['error']}."
    )


def _rate_chart(setting: Scaling, curves: Mapping[str, Curve]) -> State:
    """Return images per second against GPUs, log-log."""
    shown = {name: (curve.gpus, curve.rate) for name, curve in curves.items()}
    ideal = (np.array(GPUS), np.array(GPUS) * node_rate(setting))
    data = line_columns({**shown, "ideal": ideal})
    data["now"] = value_at(shown, setting.gpus, format_plain)
    gpus, rate = shown["strong"]
    if not len(rate):
        return data, "Strong scaling fits nowhere here."
    best = int(np.argmax(rate))
    return data, (
        f"Strong scaling is the fastest at {count(gpus[best], 'GPU')}, {format_plain(rate[best])} images per second."
    )


def _wall(setting: Scaling) -> str:
    """Say why strong scaling ends here, or nothing."""
    share = setting.batch / setting.gpus
    if share < 1:
        return (
            f"{setting.batch:,} images on {setting.gpus:,} GPUs: less than one each. Some are idle."
        )
    there = predict(_at(setting, setting.gpus, int(share)))
    if not there.fits:
        return (
            f"Memory: {int(share):,} images per GPU need {format_quantity(float(there.memory_total), 'B')}"
            f" of {format_quantity(float(goyal().machine.device.memory), 'B')}. Use more GPUs, or accumulate"
            " the gradients of several microbatches."
        )
    if float(there.efficiency) > 1 - FLOOR:
        return ""
    idle = float(there.exposed_communication) + float(there.straggler_wait)
    return (
        f"The communication floor: {share:g} image{'s' * (share > 1)} per GPU, so a GPU computes for only"
        f" {format_quantity(float(there.compute), 's')} per step, and is then idle for {format_quantity(idle, 's')}."
        " More GPUs make the allreduce longer, not shorter."
    )
