"""Out of core: how fast must the host link be, how much of a slower one is exposed, and when is recomputation better?

out_of_core()      the experiment: time of a step against the bandwidth of the host link
"""

from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets
import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.memory_wall import ledger as memory_wall
from lib_dlhpc.explore.memory_wall.charts import link_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.hybrid import offloading
from lib_dlhpc.prediction.offload import PAGE, Need, paged_time
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

MODELS = {
    "GPT-2, 1.5 G weights": "gpt2-1.5b",
    "BERT large": "bert-large",
    "ResNet-50": "resnet50",
    "VGG-16": "vgg16",
}
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
DEVICE = "a100-sxm-40gb"
LATENCY = 0.0  # s; the bandwidth is the question here
HIDDEN = 0.02  # share of a step below which exposed time does not matter


class Setting(NamedTuple):
    """What the controls say. link: B/s; page: B."""

    model: str = "gpt2-1.5b"
    batch: int = 4
    what: str = "activations"
    link: int = LINKS["PCIe 4"]
    page: int = PAGE


def out_of_core() -> ipywidgets.Box:
    """Return the experiment: time against bandwidth, prefetched, page by page, and recomputed."""
    controls = {
        "model": dropdown("Network", "Trained on one A100 of 40 GB", MODELS.items(), "gpt2-1.5b"),
        "batch": slider("Batch", "Samples on the GPU", [(str(n), n) for n in BATCHES], 4),
        "what": dropdown(
            "Offloaded",
            "What is moved out, until it is used again",
            [("activations", "activations"), ("weights and state too", "all")],
            "activations",
        ),
        "link": slider("Host link", "To the offloaded data", LINKS.items(), LINKS["PCIe 4"]),
        "page": slider("Page", "Bytes of a page fault", PAGES.items(), PAGE),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    picture = chart("memory_link")

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        picture.update(*link_view(setting))
        verdict.value = f'<p class="dlhpc-verdict">{link_words(setting)}</p>'
        wall.value = wall_html(link_wall(setting), "Nothing is exposed: all transfers are hidden.")

    note = "where the solid line leaves the dotted one; and where it crosses that of recomputation."
    return workbench(controls, [verdict, wall, picture], update, note)


@lru_cache(maxsize=512)
def experiment(setting: Setting, **strategy: Any) -> Experiment:
    """Return the run on one GPU, with a host link of that bandwidth."""
    own = memory_wall.Setting(setting.model, setting.batch, "fp16", "adam", DEVICE)
    link = {"bandwidth": float(setting.link), "efficiency": 1.0, "latency": LATENCY}
    found = memory_wall.experiment(own, **strategy)
    return found.set({f"machine.host_link.{name}": value for name, value in link.items()})


@lru_cache(maxsize=256)
def seconds(setting: Setting, way: str) -> float:
    """Return the step of "in core", as if it fitted, "recompute", "prefetched", or "page by page"."""
    if way == "page by page":
        own = experiment(setting, offload=setting.what)
        moved = needed(setting).moved
        return seconds(setting, "in core") + paged_time(own, moved, setting.page)
    strategy = {
        "in core": {},
        "recompute": {"recompute": "full"},
        "prefetched": {"offload": setting.what},
    }[way]
    return float(predict(experiment(setting, **strategy)).step_time)


def forward_share(setting: Setting) -> float:
    """Return what share of a step in core the forward pass is."""
    return float(predict(experiment(setting)).forward) / seconds(setting, "in core")


@lru_cache(maxsize=256)
def needed(setting: Setting) -> Need:
    """Return the transfers of the run."""
    return offloading(experiment(setting, offload=setting.what))


def curves(setting: Setting) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Return seconds of a step against B/s, for each way."""
    found = {}
    for way in ("in core", "prefetched", "page by page", "recompute"):
        flat = way in ("in core", "recompute")
        each = [setting if flat else setting._replace(link=int(rate)) for rate in RATES]
        found[way] = RATES, np.array([seconds(one, way) for one in each])
    return found


def link_view(setting: Setting) -> State:
    """Return the columns of the chart "memory_link"."""
    return link_state(curves(setting), setting.link, needed(setting).required, list(LINKS.items()))


def crossing(setting: Setting) -> float:
    """Return the B/s from which fetching ahead beats recomputation; infinite if it never does."""
    again, ahead = seconds(setting, "recompute"), curves(setting)["prefetched"][1]
    below = np.flatnonzero(ahead <= again)
    if not len(below):
        return float("inf")
    if below[0] == 0:
        return float(RATES[0])
    k = below[0]
    share = np.log(ahead[k - 1] / again) / np.log(ahead[k - 1] / ahead[k])
    return float(RATES[k - 1] * (RATES[k] / RATES[k - 1]) ** share)


def link_words(setting: Setting) -> str:
    """Say what is moved, how fast it would have to be, and from where on recomputation loses."""
    need, where = needed(setting), crossing(setting)
    name = next(word for word, rate in LINKS.items() if rate == setting.link)
    turn = (
        f"Full recomputation is faster below {show(where, 'B/s')}."
        if np.isfinite(where)
        else "Full recomputation is faster at any bandwidth here: it moves nothing."
    )
    return (
        f"<b>{show(need.moved, 'B')} move in a step, out and back; to hide them takes"
        f" {show(need.required, 'B/s')} each way.</b>"
        f" {name} has {show(setting.link, 'B/s')}: {show(seconds(setting, 'prefetched'), 's')} a step fetched"
        f" ahead, {show(seconds(setting, 'page by page'), 's')} page by page,"
        f" {show(seconds(setting, 'in core'), 's')} if it fitted. {turn}"
    )


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
