"""FanStore on a slider: the data set over the nodes' own SSDs, beside the shared file system."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, amount, on_bench
from lib_dlhpc.explore.io_bottleneck.charts import capacity_state, efficiency_state
from lib_dlhpc.explore.io_bottleneck.limits import published
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.storage.io import bytes_in_a_node, nodes_needed, reading
from lib_dlhpc.prediction.storage.profile import skylake_run
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count, format_plain

NODES = tuple(2**k for k in range(10))
DATA = {  # name in the catalog, B
    "ImageNet, 140 GB": ("imagenet", 140e9),
    "neural images, 455 GB": ("neural-image", 455e9),
    "reactor status, 65 GB": ("reactor-status", 65e9),
}
DEVICES = {"two Skylake sockets": ("xeon-8160", 2), "four V100 (what if)": ("v100-sxm2-16gb", 4)}
STORED = {  # bytes over stored bytes; B/s that one reader decompresses
    "as it is": (1.0, np.inf),
    "2 : 1, fast (1 GB/s a reader)": (2.0, 1e9),
    "3 : 1, slow (40 MB/s a reader)": (3.0, 40e6),
}
SSDS = (30e9, 60e9, 144e9)
READERS = 4  # of each device
WAYS = ("never waiting", "FanStore", "shared file system")


class Setting(NamedTuple):
    """A data set on the SSDs of nodes. ssd: B."""

    nodes: Annotated[int, Slider("Nodes", "To look at", NODES)] = 512
    data: Annotated[str, Dropdown("Data set", "What is trained on", DATA.keys())] = (
        "ImageNet, 140 GB"
    )
    device: Annotated[str, Dropdown("A node has", "How fast it trains", DEVICES.keys())] = (
        "two Skylake sockets"
    )
    copies: Annotated[int, Slider("Copies", "Of the data set, over all nodes", (1, 2, 4))] = 1
    stored: Annotated[str, Dropdown("Stored", "Compressed or not", STORED.keys())] = "as it is"
    ssd: Annotated[float, Slider("SSD", "Of each node", SSDS, amount("B"))] = 144e9


@on_bench(Setting(), "io_efficiency", "io_capacity", fine="The data fits, and input keeps up.")
def fanstore(setting: Setting) -> View:
    """Look for where the dashed line leaves the others, and how many nodes it takes to hold the data."""
    at, copies = NODES.index(setting.nodes), setting.copies
    most, ours, theirs = (format_plain(float(rates(setting, way)[at])) for way in WAYS)
    needed = float(nodes_needed(experiment(setting)))
    take = "copy of the data takes" if copies == 1 else "copies of the data take"
    bound = (512, published("eff"))
    capacity = capacity_state(np.array(NODES), held(setting), setting.ssd, setting.nodes)
    efficiency = efficiency_state(curves(setting), setting.nodes, bound)
    return View(
        f"<b>On {count(setting.nodes, 'node')} {remote(setting):.1%} of a node's reads are remote.</b> FanStore feeds"
        f" {ours} samples per second of the {most} that could be trained, the shared file system {theirs}."
        f" {copies} {take} at least {count(round(needed), 'node')}.",
        node_wall(setting),
        {"io_efficiency": efficiency, "io_capacity": capacity},
    )


def experiment(setting: Setting, way: str = "FanStore", nodes: Any = None) -> Experiment:
    """Return the run, one of WAYS. nodes: in place of the setting's, an array."""
    name, size = DATA[setting.data]
    device, count = DEVICES[setting.device]
    many = setting.nodes if nodes is None else nodes
    changes = {
        "dataset.name": name,
        "dataset.bytes": size,
        "machine.device": device,
        "machine.devices_per_node": count,
        "machine.storage.ssd.capacity": setting.ssd,
        "storage.workers": READERS,
    }
    if way == "never waiting":
        changes["storage.tier"] = ""
    if way == "FanStore":
        changes["storage.compression"], changes["storage.decompress"] = STORED[setting.stored]
        changes["storage.replication"] = np.minimum(setting.copies, many)[()]  # one a node at most
    return skylake_run(many, "cooperative" if way == "FanStore" else "stream").set(changes)


@lru_cache(maxsize=64)
def rates(setting: Setting, way: str) -> Floats:
    """Return samples/s for each number of NODES, whether the data fits or not."""
    return np.asarray(predict(experiment(setting, way, np.array(NODES))).throughput, float)


@lru_cache(maxsize=64)
def held(setting: Setting) -> Floats:
    """Return the bytes in each node for each number of NODES."""
    return np.asarray(bytes_in_a_node(experiment(setting, nodes=np.array(NODES))), float)


def curves(setting: Setting) -> dict[str, tuple[Floats, Floats]]:
    """Return the rate of a node over that of one alone that never waits, by way; FanStore where the data fits."""
    nodes = np.array(NODES)
    each = {way: rates(setting, way) / nodes / rates(setting, WAYS[0])[0] for way in WAYS}
    fits = held(setting) <= setting.ssd
    shown = {way: fits if way == "FanStore" else np.full(len(nodes), True) for way in WAYS}
    return {way: (nodes[shown[way]], each[way][shown[way]]) for way in WAYS}


@lru_cache(maxsize=256)
def remote(setting: Setting) -> float:
    """Return the share of a node's reads that are remote."""
    return float(reading(experiment(setting)).remote)


def node_wall(setting: Setting) -> str:
    """Say what limits: the SSDs, too few nodes for the copies, or input."""
    if setting.copies > setting.nodes:
        return f"{setting.copies} copies need {setting.copies} nodes: each node stores one at most."
    return " ".join(predict(experiment(setting)).walls)


def cost_of_remote(setting: Setting) -> str:
    """Return in words what remote reads cost of the throughput."""
    at = NODES.index(setting.nodes)
    most, ours = (float(rates(setting, way)[at]) for way in WAYS[:2])
    lost = 1 - ours / most
    return "nothing" if lost < 0.01 else f"{lost:.0%}"
