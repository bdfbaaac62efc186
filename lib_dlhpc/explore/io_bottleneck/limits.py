"""Where eight hours go: the rate that each limit of input allows, beside the demand of the GPUs.

the_hours()         the experiment: file size, nodes, readers, where from, format, GPU
profile_table()     the published profile, counted and timed
"""

from functools import lru_cache
from typing import NamedTuple

import ipywidgets

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.io_bottleneck.charts import limits_state, reader_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.io import Reading, needed_bandwidth, nodes_needed, reading
from lib_dlhpc.prediction.profile import (
    HOURS,
    NODE_STORAGE,
    READ_CALLS,
    Profile,
    profile,
    share_of_peak,
    skylake_run,
    slides_run,
    slowed_to,
    weak_scaling,
)
from lib_dlhpc.prediction.validate import results
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show

FILES = 1_300_000
IMAGENET = 140e9 / FILES  # B of its mean file
SIZES = (4e3, 16e3, 48e3, IMAGENET, 300e3, 1e6, 3e6, 10e6, 30e6)
NODES = (1, 2, 4, 8, 16, 24)
READERS = (1, 2, 4, 8, 16)
PLACES = {
    "Lustre, shared": "stream",
    "each node's SSD, copied": "stage",
    "FanStore, over the SSDs": "cooperative",
}
FORMATS = {"one file a sample": "files", "packed": "packed"}
DEVICES = {
    "GTX 1080 Ti": "gtx1080ti",
    "V100": "v100-sxm2-16gb",
    "A100": "a100-sxm-40gb",
    "H100": "h100-sxm-80gb",
}
WORKLOADS = {  # of MLPerf Storage: row, B of a sample, samples a step
    "ResNet-50, 115 KB a sample": ("resnet50", 114660.07, 400),
    "CosmoFlow, 2.8 MB a sample": ("cosmoflow", 2828486, 1),
    "3D U-Net, 147 MB a sample": ("3dunet", 146600628, 7),
}


class Setting(NamedTuple):
    """What the controls say. size: B of a file; readers: of each GPU."""

    size: float = IMAGENET
    nodes: int = 16
    readers: int = 4
    access: str = "stream"
    format: str = "files"
    device: str = "gtx1080ti"


def the_hours() -> ipywidgets.Box:
    """Return the experiment: samples/s that each limit allows, and where the time of a reader goes."""
    controls = {
        "size": slider(
            "A file",
            "All have that size, and there are as many as before",
            [(size_words(b), b) for b in SIZES],
            IMAGENET,
        ),
        "nodes": slider("Nodes", "Of four GPUs each", [(str(n), n) for n in NODES], 16),
        "readers": slider(
            "Readers", "Processes of each GPU that fetch samples", [(str(n), n) for n in READERS], 4
        ),
        "access": dropdown("Read from", "Where samples lie", PLACES.items(), "stream"),
        "format": dropdown(
            "Files", "Packed: large files with an index in memory", FORMATS.items(), "files"
        ),
        "device": dropdown("GPU", "How fast it trains", DEVICES.items(), "gtx1080ti"),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    allowed, day = chart("io_limits"), chart("io_reader")

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        allowed.update(*limits_view(setting))
        day.update(*reader_view(setting))
        verdict.value = f'<p class="dlhpc-verdict">{hours_words(setting)}</p>'
        wall.value = wall_html(
            " ".join(predict(experiment(setting)).walls), "Input keeps up with the GPUs."
        )

    note = (
        "which bar ends short of the line; and in the second chart, how little of the time is"
        " transfer."
    )
    return workbench(controls, [verdict, wall, allowed, day], update, note)


@lru_cache(maxsize=256)
def experiment(setting: Setting) -> Experiment:
    """Return the slides' run with what the controls say in place."""
    local = "" if setting.access == "stream" else "ssd"
    return slides_run(setting.nodes).set(
        {
            "dataset.bytes": setting.size * FILES,
            "machine.device": setting.device,
            "storage.access": setting.access,
            "storage.local": local,
            "storage.format": setting.format,
            "storage.workers": setting.readers,
        }
    )


@lru_cache(maxsize=256)
def found(setting: Setting) -> Reading:
    """Return the limits of input."""
    return reading(experiment(setting))


def bytes_read(setting: Setting) -> float:
    """Return the B/s that the run reads: what input allows, or what the GPUs train if that is less."""
    rate = min(float(found(setting).rate), demand(setting))
    return rate * float(experiment(setting).dataset.sample_bytes)


@lru_cache(maxsize=256)
def hours(setting: Setting) -> Profile:
    """Return the counts and the time of the run."""
    return profile(experiment(setting))


@lru_cache(maxsize=256)
def demand(setting: Setting) -> float:
    """Return the samples/s that the GPUs train if no sample is ever late."""
    own = experiment(setting).set(
        {"storage.tier": "", "storage.access": "stream", "storage.local": ""}
    )
    return float(predict(own).throughput)


def limits_view(setting: Setting) -> State:
    """Return the columns of the chart "io_limits"."""
    rates = {name: float(rate) for name, rate in found(setting).rates.items() if name != "prefetch"}
    return limits_state(rates, demand(setting))


def reader_view(setting: Setting) -> State:
    """Return the columns of the chart "io_reader"."""
    parts = {name: float(seconds) for name, seconds in found(setting).reader.items()}
    return reader_state({name: parts[name] for name in parts if not name.startswith("deco")})


def hours_words(setting: Setting) -> str:
    """Say how long the run takes at least, how much of it waits, and for how many operations."""
    own, prediction = hours(setting), predict(experiment(setting))
    waits = float(prediction.steps * prediction.input_stall)
    spent = f"<b>90 epochs take at least {float(own.time) / 3600:.1f} h</b>"
    if any(wall.startswith("Storage") for wall in prediction.walls):
        spent = f"<b>It does not fit</b>; if it did, {spent[3:-4]}"
    late = f"{waits / 3600:.1f} h wait for samples" if waits > 180 else "nothing waits for samples"
    start = float(prediction.start_time)
    copied = f", {show(start, 's')} go by before the first step" if start > 60 else ""
    if setting.format == "packed" or setting.access == "cooperative":
        asked = "no metadata operation"
    else:
        where = "the shared file system" if setting.access == "stream" else "the nodes' own"
        asked = f"{3 * float(own.opened) / 1e6:,.0f} million metadata operations of {where}"
    return f"{spent}: {late}{copied}. Samples take {asked} and {show(float(own.bytes), 'B')}."


def size_words(size: float) -> str:
    """Return a file's size as the slider shows it."""
    return f"{size / 1e3:.0f} KB" if size < 1e6 else f"{size / 1e6:g} MB"


def profile_table() -> Table:
    """Return the slides' profile: what they count, what the library says."""
    own, slow = profile(slides_run()), slowed_to(slides_run(), HOURS * 3600)
    ours, eight = slides_run(access="cooperative"), own.implied(HOURS * 3600)
    shares = [share_of_peak(ours, rate) for rate in (eight["samples/s"], predict(ours).throughput)]
    images = skylake_run().set({"dataset.name": "neural-image", "dataset.bytes": 455e9})
    rate = slow.machine.storage["lustre"].metadata_rate
    hours_said = f"at least {own.time / 3600:.1f} h; {HOURS:.0f} h if servers do {rate / 1e3:.0f} k operations/s"
    lines = [
        ["16 nodes of 4 GPUs, ResNet-50, ImageNet, 90 epochs", "slides", "this library"],
        [
            "stat and readdir at the start",
            f"{_published('stat') / 1e3:.0f} K, 64 at a time",
            f"{own.listings / 1e3:.0f} K, {own.listers:.0f} at a time",
        ],
        [
            "files looked up, opened, closed",
            f"{_published('open') / 1e6:.0f} M, 256 at a time",
            f"{own.opened / 1e6:.0f} M, {own.readers:.0f} at a time",
        ],
        ["calls of read", f"about {READ_CALLS / 1e6:.0f} M", f"{own.reads / 1e6:.0f} M (given)"],
        ["duration", f"about {HOURS:.0f} h", hours_said],
        [
            "read rate of a node, of a benchmark's peak",
            "7.8 to 9.5 %",
            f"{shares[0]:.0%} to {shares[1]:.0%} of its SSD",
        ],
        [
            "nodes of 60 GB that hold 455 GB",
            f"{_published('nodes'):.0f}",
            f"{nodes_needed(images, NODE_STORAGE):.0f}",
        ],
        [
            "FanStore's weak scaling, 512 nodes",
            f"over {_published('eff'):.0%}",
            f"{weak_scaling(skylake_run()):.0%}",
        ],
    ]
    return Table(lines)


def _published(name: str) -> float:
    return float(results()[f"fanstore18-{name}"]["value"])


def demand_table() -> Table:
    """Return what MLPerf Storage asks for one accelerator: the B/s that its published step needs."""
    lines = [["for one accelerator", "A100", "H100"]]
    for name, (key, size, batch) in WORKLOADS.items():
        steps = [float(results()[f"mlps-{key}-{device}"]["value"]) for device in ("a100", "h100")]
        lines.append([name, *(show(bandwidth(size, batch, step), "B/s") for step in steps)])
    return Table(lines)


def bandwidth(size: float, batch: int, step: float) -> float:
    """Return the B/s that feed one accelerator which takes `step` s for `batch` samples of `size` B."""
    run = read_experiment(
        {
            "model": "resnet50",
            "dataset": {"name": "imagenet", "samples": 1000, "files": 1000, "bytes": 1000 * size},
            "machine": "laptop",
            "strategy": {"devices_per_node": 1, "batch": batch},
        }
    )
    return float(needed_bandwidth(run, step))
