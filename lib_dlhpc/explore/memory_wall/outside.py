"""Out of core: how fast must the host link be, how much of a slower one is exposed, when is recomputation better?"""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.memory_wall import ledger
from lib_dlhpc.explore.memory_wall.charts import link_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory.offload import PAGE, OffloadNeed, paged_time
from lib_dlhpc.prediction.memory.rank_parts import offloading
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

MODELS = {
    "GPT-2, 1.5 billion parameters": "gpt2-1.5b",
    "BERT large": "bert-large",
    "ResNet-50": "resnet50",
    "VGG-16": "vgg16",
}
OFFLOADED = {"activations": "activations", "weights and state too": "all"}
LINKS = {  # B/s in each direction, as used
    "disk": 200_000_000,
    "SATA SSD": 500_000_000,
    "NVMe SSD": 3_000_000_000,
    "PCIe 3": 12_000_000_000,
    "PCIe 4": 25_000_000_000,
    "PCIe 5": 50_000_000_000,
    "NVLink to the CPU": 400_000_000_000,
}
PAGES = {"64 KiB": PAGE, "512 KiB": 8 * PAGE, "2 MiB": 32 * PAGE}
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
RATES = np.unique(np.round([*np.geomspace(1e8, 1e12, 17), *LINKS.values()])).astype(np.int64)
HIDDEN = 0.02  # share of a step below which exposed time does not matter


class Setting(NamedTuple):
    """A run out of core. link: B/s; page: B."""

    model: Annotated[str, Dropdown("Network", "Trained on one A100 of 40 GB", MODELS)] = "gpt2-1.5b"
    batch: Annotated[int, Slider("Batch", "Samples on the GPU", BATCHES)] = 4
    what: Annotated[
        str, Dropdown("Offloaded", "What is moved out, until it is used again", OFFLOADED)
    ] = "activations"
    link: Annotated[int, Slider("Host link", "To the offloaded data", LINKS)] = LINKS["PCIe 4"]
    page: Annotated[int, Slider("Page", "Bytes of a page fault", PAGES)] = PAGE


@on_bench(Setting(), "memory_link", fine="Nothing is exposed: all transfers are hidden.")
def out_of_core(setting: Setting) -> View:
    """Look for where the solid line leaves the dotted one; and where it crosses the line of recomputation."""
    need, where = needed(setting), crossing(setting)
    name = next(word for word, rate in LINKS.items() if rate == setting.link)
    ahead, paged, inside = (
        show(seconds(setting, way), "s") for way in ("prefetched", "page by page", "in core")
    )
    loses = np.isfinite(where)
    turn = f"below {show(where, 'B/s')}." if loses else "at any bandwidth here: it moves nothing."
    return View(
        f"<b>{show(need.moved, 'B')} move in a step, out and back; hiding them takes"
        f" {show(need.required, 'B/s')} each way.</b> {name} has {show(setting.link, 'B/s')}: {ahead} per step fetched"
        f" ahead, {paged} page by page, {inside} if it fitted. Full recomputation is faster {turn}",
        link_wall(setting),
        {"memory_link": link_state(curves(setting), setting.link, need.required, LINKS)},
    )


@lru_cache(maxsize=512)
def experiment(setting: Setting, **strategy: Any) -> Experiment:
    """Return the run on one GPU, with a host link of that bandwidth."""
    own = ledger.Setting(setting.model, setting.batch)
    link = {"bandwidth": float(setting.link), "efficiency": 1.0, "latency": 0.0}
    found = ledger.experiment(own, **strategy)
    return found.set({f"machine.host_link.{name}": value for name, value in link.items()})


def seconds(setting: Setting, way: str) -> float:
    """Return the step of "in core", as if it fitted, "recompute", "prefetched", or "page by page"."""
    if way == "page by page":
        own = experiment(setting, offload=setting.what)
        moved = needed(setting).moved
        return seconds(setting, "in core") + paged_time(own, moved, setting.page)
    if way != "prefetched":  # nothing crosses the link
        setting = Setting(setting.model, setting.batch)
    return _seconds(setting._replace(page=PAGE), way)


@lru_cache(maxsize=1024)
def _seconds(setting: Setting, way: str) -> float:
    strategies = {"recompute": {"recompute": "full"}, "prefetched": {"offload": setting.what}}
    return float(predict(experiment(setting, **strategies.get(way, {}))).step_time)


def forward_share(setting: Setting) -> float:
    """Return what share of a step in core the forward pass is."""
    return float(predict(experiment(setting)).forward) / seconds(setting, "in core")


def needed(setting: Setting) -> OffloadNeed:
    """Return the transfers of the run."""
    return _needed(setting._replace(page=PAGE))


@lru_cache(maxsize=1024)
def _needed(setting: Setting) -> OffloadNeed:
    return offloading(experiment(setting, offload=setting.what))


def curves(setting: Setting) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Return seconds of a step against B/s, for each way."""
    links = [setting._replace(link=int(rate)) for rate in RATES]
    found = {}
    for way in ("in core", "prefetched", "page by page", "recompute"):
        flat = way in ("in core", "recompute")
        each = [setting] * len(links) if flat else links
        found[way] = RATES, np.array([seconds(one, way) for one in each])
    return found


def crossing(setting: Setting) -> float:
    """Return the B/s from which fetching ahead beats recomputation; infinite if it never does."""
    again, ahead = seconds(setting, "recompute"), curves(setting)["prefetched"][1]
    if ahead[-1] > again:
        return float("inf")
    return float(np.exp(np.interp(-np.log(again), -np.log(ahead), np.log(RATES))))


def link_wall(setting: Setting) -> str:
    """Say how much of the transfers is exposed, or nothing; or that the rest does not fit either."""
    inside = predict(experiment(setting, offload=setting.what))
    if not inside.fits:
        return " ".join(inside.walls)
    late, whole = needed(setting).exposed, seconds(setting, "prefetched")
    if late < HIDDEN * whole:
        return ""
    again = seconds(setting, "recompute")
    other = "Recomputation is faster" if again < whole else "Recomputation would be slower still"
    return (
        f"The host link: {show(needed(setting).required, 'B/s')} are needed and {show(setting.link, 'B/s')} are there,"
        f" so the GPU waits {late / whole:.0%} of each step. {other}: {show(again, 's')}."
    )
