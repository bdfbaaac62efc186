"""Which allreduce, when? Two experiments: message sizes on a flat network, and nodes that share NICs.

message_sizes()      time against message size; latency against bandwidth
nodes_and_nics()     the same algorithms where the devices of a node share its NICs
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.costs.network import Level, Network, flat
from lib_dlhpc.explore.allreduce.charts import nics_state, sizes_state
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.prediction.collectives import ALGORITHMS, Cost
from lib_dlhpc.schedules import COLLECTIVES, schedule
from lib_dlhpc.spec.units import format_quantity

FLAT = ("recursive_doubling", "rabenseifner", "ring", "torus_2d", "binomial")
TWO_LEVELS = ("rabenseifner", "torus_2d", "hierarchical", "ring", "recursive_doubling", "binomial")
RANKS = (2, 3, 4, 6, 7, 8, 12, 16, 24, 31, 32, 48, 64, 100, 127, 128, 256, 512, 1000, 1024, 2048)
LATENCIES = (0.5e-6, 1e-6, 2e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6)  # s
RATES = (1e9, 2e9, 10e9, 25e9, 50e9, 100e9, 200e9, 400e9)  # bit/s
REDUCTIONS = (1e9, 5e9, 20e9, 100e9, 1e12)  # B/s
SIZES = (8.0, 64.0, 256.0, 1e3, 4e3, 16e3, 64e3, 256e3, 1e6, 4e6, 16e6, 64e6, 256e6, 1e9)  # B
LARGEST = 1e9  # B, where the chart ends
FLOOR = 0.9  # share of latency from which bandwidth hardly matters


class Flat(NamedTuple):
    """What the first experiment sets: ranks, s, B/s, B/s, B."""

    ranks: int
    latency: float
    bandwidth: float
    reduction: float
    size: float

    @property
    def network(self) -> Network:
        """Its alpha, beta and gamma."""
        return flat(self.ranks, self.latency, 1 / self.bandwidth, 1 / self.reduction)


class Interval(NamedTuple):
    """Sizes in B between which `algorithm` is the fastest."""

    algorithm: str
    start: float
    stop: float


def costs(size: float, network: Network, names: tuple[str, ...] = FLAT) -> dict[str, Cost]:
    """Return what each algorithm costs for `size` B, in the order of `names`."""
    return {name: ALGORITHMS[name](size, network) for name in names}


def winners(network: Network, names: tuple[str, ...] = FLAT) -> list[Interval]:
    """Return which algorithm is the fastest for which sizes, from 0 B on.

    Each time is a straight line in the size, so the winners are their lower envelope. Of equal ones
    the first of `names` wins.
    """
    fixed = {name: float(cost.total) for name, cost in costs(0.0, network, names).items()}
    slope = {n: float(c.bandwidth + c.reduction) for n, c in costs(1.0, network, names).items()}
    now = min(names, key=lambda n: (fixed[n], slope[n]))
    start = 0.0
    found: list[Interval] = []
    while True:
        better = {
            n: max(start, (fixed[n] - fixed[now]) / (slope[now] - slope[n]))
            for n in names
            if slope[n] < slope[now] * (1 - 1e-9)
        }
        if not better:
            return [*found, Interval(now, start, np.inf)]
        after = min(better, key=lambda n: (better[n], slope[n]))
        if better[after] > start:
            found.append(Interval(now, start, better[after]))
        now, start = after, better[after]


def message_sizes() -> ipywidgets.Box:
    """Return the first experiment: time against message size on a flat network."""
    controls = {
        "ranks": slider("Ranks", "p", [(f"{p:,}", p) for p in RANKS], 32),
        "latency": slider("Latency", "alpha", _shown(LATENCIES, "s"), 10e-6),
        "bandwidth": slider(
            "Bandwidth",
            "1 / beta, one direction",
            [(f"{r / 1e9:g} Gb/s", r / 8) for r in RATES],
            2e9 / 8,
        ),
        "reduction": slider("Reduction", "1 / gamma", _shown(REDUCTIONS, "B/s"), 1e9),
        "size": slider("Message", "n, the buffer of each rank", _shown(SIZES, "B"), 1e3),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    figure = chart("message_sizes")

    def show() -> None:
        setting = Flat(**{name: control.value for name, control in controls.items()})
        figure.update(*sizes_view(setting))
        verdict.value = f'<p class="dlhpc-verdict">{sizes_words(setting)}</p>'
        wall.value = wall_html(
            latency_wall(setting), "Bandwidth matters here: a faster network shortens the time."
        )

    note = "the size at which the lines cross, and what moves it: ranks, latency or bandwidth."
    return workbench(controls, [verdict, wall, figure], show, note)


def sizes_view(setting: Flat) -> State:
    """Return the columns of the chart "message_sizes", and its summary."""
    sizes = np.geomspace(1, LARGEST, 55)
    times = {n: np.asarray(c.total) for n, c in _swept(sizes, setting.network).items()}
    return sizes_state(sizes, times, winners(setting.network), setting.size)


def sizes_words(setting: Flat) -> str:
    """Say who wins at the marked size, by how much, and where the winner changes."""
    times = costs(setting.size, setting.network)
    first, second = sorted(times, key=lambda name: float(times[name].total))[:2]
    best, lag = times[first], float(times[second].total / times[first].total)
    size = format_quantity(setting.size, "B")
    margin = f"{lag:.3g} times as fast as" if lag > 1.005 else "as fast as"
    latency = float(best.latency / best.total)
    words = (
        f"<b>{size}: {title(first)} wins</b> with {format_quantity(float(best.total), 's')},"
        f" {margin} {title(second)}. {latency:.0%} of that is latency."
    )
    changes = winners(setting.network)
    if len(changes) == 1:
        return f"{words} On this network it wins at every size."
    steps = [f"{title(i.algorithm)} up to {format_quantity(i.stop, 'B')}" for i in changes[:-1]]
    return f"{words}<br>Fastest: {', '.join(steps)}, then {title(changes[-1].algorithm)}."


def latency_wall(setting: Flat) -> str:
    """Say why no bandwidth helps, or nothing where it would."""
    times = costs(setting.size, setting.network)
    best = min(times.values(), key=lambda cost: float(cost.total))
    if best.latency < FLOOR * best.total:
        return ""
    floor = format_quantity(float(best.latency), "s")
    return (
        f"The latency floor: even infinite bandwidth leaves {floor} of this allreduce."
        " Send larger buckets, or fewer."
    )


def nodes_and_nics() -> ipywidgets.Box:
    """Return the experiment of two levels: devices of a node share its NICs."""
    controls = {
        "nodes": slider("Nodes", "Nodes", [(str(2**k), 2**k) for k in range(1, 7)], 32),
        "devices": slider("Devices a node", "They share NICs", _counts(1, 2, 4, 8, 16), 8),
        "nics": slider("NICs a node", "Used together", _counts(1, 2, 4, 8), 1),
        "network": slider(
            "NIC", "Rate of one NIC", [(f"{r / 1e9:g} Gb/s", r / 8) for r in RATES[2:]], 100e9 / 8
        ),
        "inside": dropdown(
            "Inside a node",
            "The links between its devices",
            [("PCIe, 12 GB/s", 12e9), ("NVLink, 150 GB/s", 150e9), ("NVLink, 450 GB/s", 450e9)],
            150e9,
        ),
        "size": slider("Message", "n, the buffer of each device", _shown(SIZES[3:], "B"), 64e6),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    figure = chart("nics")

    def show() -> None:
        setting = Nodes(**{name: control.value for name, control in controls.items()})
        times, carried = nics_view(setting)
        figure.update(*nics_state(times, carried, setting.size))
        verdict.value = f'<p class="dlhpc-verdict">{nics_words(times, carried)}</p>'
        wall.value = wall_html(nic_wall(setting, carried), "No algorithm floods the NICs here.")

    note = "the traffic of each NIC: long bars send the buffer through it in every round."
    return workbench(controls, [verdict, wall, figure], show, note)


class Nodes(NamedTuple):
    """What the experiment of two levels sets: counts, B/s, B/s, B."""

    nodes: int
    devices: int
    nics: int
    network: float
    inside: float
    size: float

    @property
    def levels(self) -> Network:
        """Two levels; 1.5 us inside a node, 3 us between nodes."""
        inner = Level(self.devices, 1.5e-6, 1 / self.inside)
        return Network(inner, Level(self.nodes, 3e-6, 1 / (self.network * self.nics)), 3 / 900e9)


def nics_view(setting: Nodes) -> tuple[dict[str, Cost], dict[str, float]]:
    """Return the cost of each algorithm, fastest first, and how many buffers leave a node for each."""
    times = costs(setting.size, setting.levels, TWO_LEVELS)
    order = sorted(times, key=lambda name: float(times[name].total))
    carried = {name: buffers_out(name, setting.nodes, setting.devices) for name in order}
    return {name: times[name] for name in order}, carried


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


def nics_words(times: Mapping[str, Cost], carried: Mapping[str, float]) -> str:
    """Say who wins, who loses, and the traffic through the NICs of a node."""
    first, last = next(iter(times)), list(times)[-1]
    factor = float(times[last].total / times[first].total)
    return (
        f"<b>{title(first)} wins</b> with {format_quantity(float(times[first].total), 's')};"
        f" {title(last)} takes {factor:.3g} times as long. The buffer leaves a node"
        f" {carried[first]:.3g} times in the first and {carried[last]:.3g} times in the other."
    )


def nic_wall(setting: Nodes, carried: Mapping[str, float]) -> str:
    """Say which algorithm floods the NICs, or nothing."""
    worst = max(carried, key=lambda name: carried[name])
    least = 2 * (setting.nodes - 1) / setting.nodes
    if carried[worst] < 4 * least:
        return ""
    sent = format_quantity(carried[worst] * setting.size, "B")
    return (
        f"The NICs: in {title(worst)} all {setting.devices} devices of a node send whole buffers through them"
        f" in every round, {sent} in all. {carried[worst] / least:.3g} times what is needed."
    )


def crossover(ranks: int, latency: float, bandwidth: float, reduction: float = np.inf) -> float:
    """Return the size in B beyond which Rabenseifner beats recursive doubling, `ranks` a power of two."""
    rounds, share = np.log2(ranks), (ranks - 1) / ranks
    per_byte = (rounds - 2 * share) / bandwidth + (rounds - share) / reduction
    return float(rounds * latency / per_byte)


def title(algorithm: str) -> str:
    """Return the name of an algorithm in texts."""
    names = {"rabenseifner": "Rabenseifner", "torus_2d": "2-D torus"}
    return names.get(algorithm, algorithm.replace("_", " "))


def _swept(sizes: np.ndarray, network: Network) -> dict[str, Cost]:
    return {name: ALGORITHMS[name](sizes, network) for name in FLAT}


def _shown(values: tuple[float, ...], unit: str) -> list[tuple[str, float]]:
    return [(format_quantity(value, unit), value) for value in values]


def _counts(*values: int) -> list[tuple[str, int]]:
    return [(str(value), value) for value in values]
