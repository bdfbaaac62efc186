"""Weak and strong scaling: the efficiency of each GPU when the batch grows with them, and when it does not.

weak_and_strong()   the experiment, with what Goyal et al. published beside it
"""

from typing import Any, NamedTuple

import ipywidgets
import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.data_parallel.buckets import ALLREDUCES, NICS, PER_NODE, goyal
from lib_dlhpc.explore.data_parallel.charts import left_state, rate_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validate import results, validate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity

GPUS = tuple(2**k for k in range(3, 15))
FLOOR = 0.5  # share of a step that is not computing, from which more GPUs are a waste
Floats = NDArray[np.float64]


class Scaling(NamedTuple):
    """What the experiment sets: GPUs to look at, images a GPU (weak), global batch (strong), network."""

    gpus: int = 256
    images: int = 32
    batch: int = 8192
    allreduce: str = "hierarchical"
    nic: float = 50e9 / 8


class Curve(NamedTuple):
    """Predictions over numbers of GPUs; no entry where nothing fits or a GPU has no image."""

    gpus: Floats
    rate: Floats  # images a second
    left: Floats  # rate of each GPU over that in one node


def weak_and_strong() -> ipywidgets.Box:
    """Return the experiment: efficiency and images a second against GPUs, weak and strong."""
    controls = {
        "gpus": slider("GPUs", "To look at", [(f"{p:,}", p) for p in GPUS], 256),
        "images": slider(
            "Images a GPU",
            "Weak scaling: they stay the same",
            [(str(n), n) for n in (4, 8, 16, 32, 64)],
            32,
        ),
        "batch": slider(
            "Global batch",
            "Strong scaling: they stay the same",
            [(f"{n:,}", n) for n in (256, 1024, 2048, 4096, 8192, 16384, 32768)],
            8192,
        ),
        "allreduce": dropdown(
            "Allreduce",
            "How a bucket is summed",
            [(name, name) for name in ALLREDUCES],
            "hierarchical",
        ),
        "nic": slider("NIC", "Of a node", [(f"{r / 1e9:g} Gb/s", r / 8) for r in NICS], 50e9 / 8),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    left, rate = chart("gpu_share"), chart("images_a_second")

    def show() -> None:
        setting = Scaling(**{name: control.value for name, control in controls.items()})
        weak_curve, strong_curve = weak(setting), strong(setting)
        left.update(*left_view(setting, weak_curve, strong_curve))
        rate.update(*rate_view(setting, weak_curve, strong_curve))
        verdict.value = f'<p class="dlhpc-verdict">{scaling_words(setting)}</p>'
        wall.value = wall_html(scaling_wall(setting), "Both ways still scale here.")

    note = "where the strong line leaves the weak one, and where it turns down for good."
    return workbench(controls, [verdict, wall, left, rate], show, note)


def weak(setting: Scaling) -> Curve:
    """Return weak scaling: the images of one GPU stay, the global batch grows."""
    return _curve(setting, np.array(GPUS), np.full(len(GPUS), setting.images))


def strong(setting: Scaling) -> Curve:
    """Return strong scaling: the global batch stays, a GPU's share of it shrinks to one image at least."""
    gpus = np.array([p for p in GPUS if p <= setting.batch])
    return _curve(setting, gpus, setting.batch // gpus)


def _curve(setting: Scaling, gpus: NDArray[Any], images: NDArray[Any]) -> Curve:
    prediction = predict(_at(setting, gpus, images))
    kept = np.asarray(prediction.fits)
    rate = np.asarray(prediction.throughput)[kept]
    return Curve(gpus[kept], rate, rate / gpus[kept] / node_rate(setting))


def node_rate(setting: Scaling) -> float:
    """Return the images a second of each GPU in one node of 8: what the publication compares with."""
    return float(predict(_at(setting, PER_NODE, setting.images)).throughput) / PER_NODE


def _at(setting: Scaling, gpus: Any, images: Any) -> Experiment:
    return goyal().set(
        {
            "strategy.nodes": gpus // PER_NODE,
            "strategy.batch": images,
            "strategy.allreduce": setting.allreduce,
            "machine.inter_node.bandwidth": setting.nic,
        }
    )


def published() -> list[tuple[int, float, str]]:
    """Return (GPUs, efficiency over 8 GPUs, words) that Goyal et al. published."""
    weak, longer = results()["goyal17-r50-eff"], results()["goyal17-r50-iterinc"]
    return [
        (int(weak["count"]), float(weak["value"]), "published"),
        (
            int(longer["count"]),
            1 / (1 + float(longer["value"])),
            "published, and used to calibrate",
        ),
    ]


def published_table() -> Table:
    """Return published results of this run beside predictions, with the error."""
    rows = {
        "goyal17-r50-1h": ("90 epochs on 256 GPUs", "{:.3g} min"),
        "goyal17-r50-eff": ("256 GPUs over 32 times one node of 8", "{:.1%}"),
    }
    lines = [["Goyal et al. 2017", "published", "predicted", "error"]]
    for row in validate(["goyal17"]):
        if row.id in rows:
            name, shown = rows[row.id]
            values = (shown.format(value) for value in (row.published, row.predicted))
            lines.append([name, *values, f"{row.error:+.1%}"])
    return Table(lines)


def left_view(setting: Scaling, weak_curve: Curve, strong_curve: Curve) -> State:
    """Return the columns of the chart "gpu_share"."""
    lines = {name: (c.gpus, c.left) for name, c in _named(weak_curve, strong_curve)}
    return left_state(lines, published(), setting.gpus)


def rate_view(setting: Scaling, weak_curve: Curve, strong_curve: Curve) -> State:
    """Return the columns of the chart "images_a_second"."""
    lines = {name: (c.gpus, c.rate) for name, c in _named(weak_curve, strong_curve)}
    ideal = (np.array(GPUS, dtype=float), np.array(GPUS) * node_rate(setting))
    return rate_state({**lines, "ideal": ideal}, setting.gpus)


def _named(weak_curve: Curve, strong_curve: Curve) -> list[tuple[str, Curve]]:
    return [("weak", weak_curve), ("strong", strong_curve)]


def scaling_words(setting: Scaling) -> str:
    """Say how efficient each GPU is, weak and strong, and how long an epoch takes."""
    samples = float(goyal().dataset.samples)
    said = []
    for name, curve in _named(weak(setting), strong(setting)):
        at = np.flatnonzero(curve.gpus == setting.gpus)
        if not len(at):
            said.append(f"{name}: not possible")
            continue
        epoch = format_quantity(samples / float(curve.rate[at[0]]), "s")
        said.append(f"{name} {curve.left[at[0]]:.0%}, an epoch takes {epoch}")
    return f"<b>{setting.gpus:,} GPUs, efficiency:</b> {'; '.join(said)}."


def scaling_wall(setting: Scaling) -> str:
    """Say why strong scaling ends here, or nothing."""
    share = setting.batch / setting.gpus
    if share < 1:
        return (
            f"{setting.batch:,} images on {setting.gpus:,} GPUs: less than one each. Some are idle."
        )
    there = predict(_at(setting, setting.gpus, int(share)))
    if not there.fits:
        return (
            f"Memory: {int(share):,} images a GPU need {format_quantity(float(there.memory_total), 'B')}"
            f" of {format_quantity(float(goyal().machine.device.memory), 'B')}. Use more GPUs, or accumulate"
            " the gradients of several microbatches."
        )
    idle = 1 - float(there.efficiency)
    if idle < FLOOR:
        return ""
    out, wait = float(there.exposed_communication), float(there.straggler_wait)
    return (
        f"The communication floor: {share:g} image{'s' * (share > 1)} a GPU, so a step computes only"
        f" {format_quantity(float(there.compute), 's')}, and is then idle for"
        f" {format_quantity(out + wait, 's')}. More GPUs make the allreduce longer, not shorter."
    )


def strong_gain(gpus: int, more: int, batch: int = 8192) -> float:
    """Return how many times faster `more` GPUs are than `gpus` for the same global batch."""
    rates = [predict(_at(Scaling(), p, batch // p)).throughput for p in (gpus, more)]
    return float(rates[1] / rates[0])
