"""Where eight hours go: the rate that each limit of input allows, beside the demand of the GPUs."""

from functools import lru_cache
from typing import Annotated, NamedTuple

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.io_bottleneck.charts import limits_state, reader_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.storage.io import Reading, needed_bandwidth, nodes_needed, reading
from lib_dlhpc.prediction.storage.profile import (
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
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

FILES = 1_300_000
IMAGENET = 140e9 / FILES  # B of its mean file
SIZES = (4e3, 16e3, 48e3, IMAGENET, 300e3, 1e6, 3e6, 10e6, 30e6)
PLACES = {
    "Lustre, shared": "stream",
    "each node's SSD, copied": "stage",
    "FanStore, over the SSDs": "cooperative",
}
FORMATS = {"one file per sample": "files", "packed": "packed"}
DEVICES = {
    "GTX 1080 Ti": "gtx1080ti",
    "V100": "v100-sxm2-16gb",
    "A100": "a100-sxm-40gb",
    "H100": "h100-sxm-80gb",
}
WORKLOADS = {  # of MLPerf Storage: row, B of a sample, samples per step
    "ResNet-50, 115 kB per sample": ("resnet50", 114660.07, 400),
    "CosmoFlow, 2.8 MB per sample": ("cosmoflow", 2828486, 1),
    "3D U-Net, 147 MB per sample": ("3dunet", 146600628, 7),
}


def size_words(size: float) -> str:
    """Return a file's size as the slider shows it."""
    return f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:g} MB"


class Setting(NamedTuple):
    """A run of the FanStore project's slides. size: B of a file."""

    size: Annotated[
        float,
        Slider("A file", "All have that size, and there are as many as before", SIZES, size_words),
    ] = IMAGENET
    nodes: Annotated[int, Slider("Nodes", "Of four GPUs each", (1, 2, 4, 8, 16, 24))] = 16
    readers: Annotated[
        int, Slider("Readers", "Processes of each GPU that fetch samples", (1, 2, 4, 8, 16))
    ] = 4
    access: Annotated[str, Dropdown("Read from", "Where samples lie", PLACES)] = "stream"
    format: Annotated[
        str, Dropdown("Files", "Packed: large files with an index in memory", FORMATS)
    ] = "files"
    device: Annotated[str, Dropdown("GPU", "How fast it trains", DEVICES)] = "gtx1080ti"


@on_bench(Setting(), "io_limits", "io_reader", fine="Input keeps up with the GPUs.")
def the_hours(setting: Setting) -> View:
    """Look for which bar ends short of the line; and in the second chart, how little of the time is transfer."""
    limits = found(setting)
    rates = {name: float(rate) for name, rate in limits.rates.items() if name != "prefetch"}
    reader = {name: float(seconds) for name, seconds in limits.reader.items()}
    parts = {name: reader[name] for name in reader if name not in ("decompression", "decoding")}
    return View(
        hours_words(setting),
        " ".join(predict(experiment(setting)).walls),
        {"io_limits": limits_state(rates, demand(setting)), "io_reader": reader_state(parts)},
    )


@lru_cache(maxsize=256)
def experiment(setting: Setting) -> Experiment:
    """Return the slides' run with these settings."""
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


def profile_table() -> Table:
    """Return the profile of the FanStore project's slides: what they count, what the library says."""
    own, slow = profile(slides_run()), slowed_to(slides_run(), HOURS * 3600)
    ours, eight = slides_run(access="cooperative"), own.implied(HOURS * 3600)
    low, high = (share_of_peak(ours, r) for r in (eight["samples/s"], predict(ours).throughput))
    images = skylake_run().set({"dataset.name": "neural-image", "dataset.bytes": 455e9})
    rate = slow.machine.storage["lustre"].metadata_rate
    stat, opened, nodes, efficiency = map(published, ("stat", "open", "nodes", "eff"))
    text = f"""
16 nodes of 4 GPUs, ResNet-50, ImageNet, 90 epochs | FanStore project | this library
stat and readdir at the start | {stat / 1e3:.0f} K, 64 at a time
 | {own.listings / 1e3:.0f} K, {own.listers:.0f} at a time
files looked up, opened, closed | {opened / 1e6:.0f} M, 256 at a time
 | {own.opened / 1e6:.0f} M, {own.readers:.0f} at a time
calls of read | about {READ_CALLS / 1e6:.0f} M | {own.reads / 1e6:.0f} M (given)
duration | about {HOURS:.0f} h
 | at least {own.time / 3600:.1f} h; {HOURS:.0f} h if servers do {rate / 1e3:.0f} k operations/s
read rate of a node, of a benchmark's peak | 7.8 to 9.5% | {low:.0%} to {high:.0%} of its SSD
nodes of 60 GB that hold 455 GB | {nodes:.0f} | {nodes_needed(images, NODE_STORAGE):.0f}
FanStore's weak scaling, 512 nodes | over {efficiency:.0%} | {weak_scaling(skylake_run()):.0%}
"""
    rows = text.strip().replace("\n |", " |").splitlines()
    return Table([row.split(" | ") for row in rows])


def published(name: str) -> float:
    """Return a number that FanStore's authors give."""
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
    run = Experiment(
        model="resnet50",
        dataset={"name": "imagenet", "samples": 1000, "files": 1000, "bytes": 1000 * size},
        machine="laptop",
        strategy={"devices_per_node": 1, "batch": batch},
    )
    return float(needed_bandwidth(run, step))
