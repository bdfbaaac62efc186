"""FanStore on a slider: the data set over the nodes' own SSDs, beside the shared file system.

fanstore()      the experiment: nodes, data, what a node is, copies, compression, SSD
"""

from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets
import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.io_bottleneck.charts import capacity_state, efficiency_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.io import bytes_in_a_node, nodes_needed, reading
from lib_dlhpc.prediction.profile import skylake_run
from lib_dlhpc.prediction.validate import results
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show

NODES = tuple(2**k for k in range(10))
DATA = {  # name in the catalog, B
    "ImageNet, 140 GB": ("imagenet", 140e9),
    "neural images, 455 GB": ("neural-image", 455e9),
    "reactor status, 65 GB": ("reactor-status", 65e9),
}
DEVICES = {"two Skylake sockets": ("xeon-8160", 2), "four V100 (what if)": ("v100-sxm2-16gb", 4)}
COPIES = (1, 2, 4)
STORED = {  # bytes over stored bytes; B/s that one reader decompresses
    "as it is": (1.0, np.inf),
    "2 : 1, fast (1 GB/s a reader)": (2.0, 1e9),
    "3 : 1, slow (40 MB/s a reader)": (3.0, 40e6),
}
SSDS = (30e9, 60e9, 144e9)
READERS = 4  # of each device
Floats = NDArray[Any]


class Setting(NamedTuple):
    """What the controls say. ssd: B."""

    nodes: int = 512
    data: str = "ImageNet, 140 GB"
    device: str = "two Skylake sockets"
    copies: int = 1
    stored: str = "as it is"
    ssd: float = 144e9


def fanstore() -> ipywidgets.Box:
    """Return the experiment: the efficiency of each node, and whether its partition of the data fits."""
    controls = {
        "nodes": slider("Nodes", "To look at", [(str(n), n) for n in NODES], 512),
        "data": dropdown(
            "Data set", "What is trained on", [(n, n) for n in DATA], "ImageNet, 140 GB"
        ),
        "device": dropdown(
            "A node has", "How fast it trains", [(n, n) for n in DEVICES], "two Skylake sockets"
        ),
        "copies": slider(
            "Copies", "Of the data set, over all nodes", [(str(n), n) for n in COPIES], 1
        ),
        "stored": dropdown("Stored", "Compressed or not", [(n, n) for n in STORED], "as it is"),
        "ssd": slider("SSD", "Of each node", [(show(b, "B"), b) for b in SSDS], 144e9),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    left, held = chart("io_efficiency"), chart("io_capacity")

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        left.update(*efficiency_view(setting))
        held.update(*capacity_view(setting))
        verdict.value = f'<p class="dlhpc-verdict">{node_words(setting)}</p>'
        wall.value = wall_html(node_wall(setting), "The data fits, and input keeps up.")

    note = "where the dashed line leaves the others, and from how many nodes on the data fits."
    return workbench(controls, [verdict, wall, left, held], update, note)


def experiment(setting: Setting, way: str = "FanStore", nodes: Any = 0) -> Experiment:
    """Return the run "never waiting", on the "shared file system", or on "FanStore"; nodes may be an array."""
    name, size = DATA[setting.data]
    device, count = DEVICES[setting.device]
    many = setting.nodes if isinstance(nodes, int) and nodes == 0 else nodes
    run = skylake_run(many, "cooperative" if way == "FanStore" else "stream")
    changes = {
        "dataset.name": name,
        "dataset.bytes": size,
        "machine.device": device,
        "machine.devices_per_node": count,
        "machine.storage.ssd.capacity": setting.ssd,
        "storage.workers": READERS,
    }
    if way == "never waiting":
        changes |= {"storage.tier": ""}
    if way == "FanStore":
        less, unpacked = STORED[setting.stored]
        changes |= {"storage.compression": less, "storage.decompress": unpacked}
        changes["storage.replication"] = np.minimum(setting.copies, many)[()]  # one a node at most
    return run.set(changes)


@lru_cache(maxsize=64)
def rates(setting: Setting, way: str) -> Floats:
    """Return samples/s for each number of NODES, whether the data fits or not."""
    fixed = setting._replace(nodes=1)
    return np.asarray(predict(experiment(fixed, way, np.array(NODES))).throughput, float)


@lru_cache(maxsize=64)
def held(setting: Setting) -> Floats:
    """Return the bytes in each node for each number of NODES."""
    fixed = setting._replace(nodes=1)
    return np.asarray(bytes_in_a_node(experiment(fixed, "FanStore", np.array(NODES))), float)


def curves(setting: Setting) -> dict[str, tuple[Floats, Floats]]:
    """Return the rate of a node over that of one alone that never waits, by way; FanStore where the data fits."""
    nodes = np.array(NODES)
    one = rates(setting, "never waiting")[0]
    fits = held(setting) <= setting.ssd
    found = {}
    for way in ("never waiting", "FanStore", "shared file system"):
        kept = fits if way == "FanStore" else np.full(len(nodes), True)
        found[way] = nodes[kept], (rates(setting, way) / nodes / one)[kept]
    return found


def efficiency_view(setting: Setting) -> State:
    """Return the columns of the chart "io_efficiency"."""
    return efficiency_state(curves(setting), setting.nodes, published())


def capacity_view(setting: Setting) -> State:
    """Return the columns of the chart "io_capacity"."""
    return capacity_state(np.array(NODES), held(setting), setting.ssd, setting.nodes)


def published() -> tuple[int, float]:
    """Return the nodes and the efficiency that FanStore's authors give as a lower bound."""
    return 512, float(results()["fanstore18-eff"]["value"])


@lru_cache(maxsize=256)
def remote(setting: Setting) -> float:
    """Return the share of a node's reads that are remote."""
    return float(reading(experiment(setting)).remote)


def node_words(setting: Setting) -> str:
    """Say how much is remote, and what each way trains."""
    at = NODES.index(setting.nodes)
    ours, theirs, all_of_it = (
        float(rates(setting, way)[at])
        for way in ("FanStore", "shared file system", "never waiting")
    )
    needed = float(nodes_needed(experiment(setting)))
    return (
        f"<b>On {setting.nodes} nodes {remote(setting):.1%} of a node's reads are remote.</b> FanStore feeds"
        f" {format_plain(ours)} samples a second of the {format_plain(all_of_it)} that could be trained, the shared"
        f" file system {format_plain(theirs)}. {setting.copies} cop{'y' if setting.copies == 1 else 'ies'} of the"
        f" data take{'s' if setting.copies == 1 else ''} at least {needed:.0f} node{'s' if needed > 1 else ''}."
    )


def node_wall(setting: Setting) -> str:
    """Say what limits: the SSDs, too few nodes for the copies, or input."""
    if setting.copies > setting.nodes:
        return f"{setting.copies} copies need as many nodes: each stores one at most."
    return " ".join(predict(experiment(setting)).walls)


def cost_of_remote(setting: Setting) -> str:
    """Return in words what remote reads cost of the throughput."""
    at = NODES.index(setting.nodes)
    lost = 1 - float(rates(setting, "FanStore")[at] / rates(setting, "never waiting")[at])
    return "nothing" if lost < 0.01 else f"{lost:.0%}"
