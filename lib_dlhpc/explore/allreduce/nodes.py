"""Nodes that share NICs: the same algorithms where the devices of a node send through its NICs."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from lib_dlhpc.costs import Level, Network
from lib_dlhpc.explore.allreduce.charts import CAUSES, name_of
from lib_dlhpc.explore.allreduce.sizes import BANDWIDTHS, SIZES, fastest_first
from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, amount, gigabits, on_bench
from lib_dlhpc.explore.blocks.charts import Data
from lib_dlhpc.prediction.communication.collectives import Cost
from lib_dlhpc.schedules import COLLECTIVES, schedule
from lib_dlhpc.spec.units import format_quantity

TWO_LEVELS = ("rabenseifner", "torus_2d", "hierarchical", "ring", "recursive_doubling", "binomial")
NODES = (2, 4, 8, 16, 32, 64)
INSIDE = {"PCIe, 12 GB/s": 12e9, "NVLink, 150 GB/s": 150e9, "NVLink, 450 GB/s": 450e9}


class Nodes(NamedTuple):
    """Nodes, and a message. network: B/s of one NIC; inside: B/s between devices of a node; size: B."""

    nodes: Annotated[int, Slider("Nodes", "Nodes", NODES)] = 32
    devices: Annotated[int, Slider("Devices per node", "They share NICs", (1, 2, 4, 8, 16))] = 8
    nics: Annotated[int, Slider("NICs per node", "Used together", (1, 2, 4, 8))] = 1
    network: Annotated[float, Slider("NIC", "Rate of one NIC", BANDWIDTHS[2:], gigabits)] = 12.5e9
    inside: Annotated[float, Dropdown("Inside a node", "The links between its devices", INSIDE)] = (
        150e9
    )
    size: Annotated[
        float, Slider("Message", "n, the buffer of each device", SIZES[3:], amount("B"))
    ] = 64e6

    @property
    def levels(self) -> Network:
        """Two levels; 1.5 us inside a node, 3 us between nodes."""
        inner = Level(self.devices, 1.5e-6, 1 / self.inside)
        return Network(inner, Level(self.nodes, 3e-6, 1 / (self.network * self.nics)), 3 / 900e9)


@on_bench(Nodes(), "nics", fine="No algorithm floods the NICs here.")
def nodes_and_nics(setting: Nodes) -> View:
    """Look for the traffic of each NIC: long bars send the buffer through it in every round."""
    times = fastest_first(setting.size, setting.levels, TWO_LEVELS)
    carried = {name: buffers_out(name, setting.nodes, setting.devices) for name in times}
    (first, best), *_, (last, worst) = times.items()
    words = (
        f"<b>{name_of(first)} wins</b> with {format_quantity(float(best.total), 's')};"
        f" {name_of(last)} takes {float(worst.total / best.total):.3g} times as long. The buffer leaves a node"
        f" {_often(carried[first])} in the first and {_often(carried[last])} in the other."
    )
    summary = f"{name_of(first)} is the fastest for {format_quantity(setting.size, 'B')}, {name_of(last)} the slowest."
    chart = (_bars(times, carried), summary)
    return View(words, _wall(setting, carried), {"nics": chart})


@lru_cache(maxsize=512)
def buffers_out(algorithm: str, nodes: int, devices: int) -> float:
    """Return how often the buffer leaves the busiest node, counted message by message."""
    ranks = nodes * devices
    elements = 4 * ranks  # so that halves and blocks are whole
    options = COLLECTIVES["allreduce"][algorithm].on_nodes(ranks, devices)
    sent = np.zeros(nodes)
    for part in schedule(algorithm, ranks, elements, **options):
        home = part.source // devices
        far = home != part.target // devices
        sent += np.bincount(home[far], weights=part.count[far], minlength=nodes)
    return float(sent.max()) / elements


def _often(times: float) -> str:
    return "once" if times == 1 else f"{times:.3g} times"


def _wall(setting: Nodes, carried: Mapping[str, float]) -> str:
    """Say which algorithm floods the NICs, or nothing."""
    worst = max(carried, key=lambda name: carried[name])
    least = 2 * (setting.nodes - 1) / setting.nodes
    if carried[worst] < 4 * least:
        return ""
    sent = format_quantity(carried[worst] * setting.size, "B")
    return (
        f"The NICs: in {name_of(worst)} all {setting.devices} devices of a node send whole buffers through them"
        f" in every round, {sent} in all. {carried[worst] / least:.3g} times what is needed."
    )


def _bars(times: Mapping[str, Cost], carried: Mapping[str, float]) -> Data:
    """Return the seconds of each algorithm by cause, and the buffers that leave the busiest node."""
    rows, words = {}, {}
    for algorithm, cost in times.items():
        name, whole = name_of(algorithm), format_quantity(float(cost.total), "s")
        rows[name] = {cause: float(getattr(cost, cause)) for cause in CAUSES}
        words[name] = f"{whole}, {carried[algorithm]:.3g} × through the NICs"
    longest = max(float(cost.total) for cost in times.values())
    return stacks(rows, CAUSES, "s", words=words) | {"room": {"x": [0.0, 1.55 * longest]}}
