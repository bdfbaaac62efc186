"""Which allreduce, when? Time against message size on a flat network, latency against bandwidth."""

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, NamedTuple

import numpy as np

from lib_dlhpc.costs import Network, flat
from lib_dlhpc.explore.allreduce.charts import name_of
from lib_dlhpc.explore.blocks.bench import Slider, View, amount, gigabits, on_bench
from lib_dlhpc.explore.blocks.charts import Data, State, columns, marked, spread_labels
from lib_dlhpc.prediction.communication.collectives import ALGORITHMS, Cost
from lib_dlhpc.spec.units import format_quantity

FLAT = ("recursive_doubling", "rabenseifner", "ring", "torus_2d", "binomial")
RANKS = (2, 3, 4, 6, 7, 8, 12, 16, 24, 31, 32, 48, 64, 100, 127, 128, 256, 512, 1000, 1024, 2048)
LATENCIES = (0.5e-6, 1e-6, 2e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6)  # s
BANDWIDTHS = tuple(rate / 8 for rate in (1e9, 2e9, 10e9, 25e9, 50e9, 100e9, 200e9, 400e9))  # B/s
REDUCTIONS = (1e9, 5e9, 20e9, 100e9, 1e12)  # B/s
SIZES = (8.0, 64.0, 256.0, 1e3, 4e3, 16e3, 64e3, 256e3, 1e6, 4e6, 16e6, 64e6, 256e6, 1e9)  # B
LARGEST = 1e9  # B, where the chart ends
FLOOR = 0.9  # share of latency from which bandwidth hardly matters


class Flat(NamedTuple):
    """A flat network and a message. latency: s; bandwidth, reduction: B/s; size: B."""

    ranks: Annotated[int, Slider("Ranks", "p", RANKS)] = 32
    latency: Annotated[float, Slider("Latency", "alpha", LATENCIES, amount("s"))] = 10e-6
    bandwidth: Annotated[
        float, Slider("Bandwidth", "1 / beta, one direction", BANDWIDTHS, gigabits)
    ] = 2e9 / 8
    reduction: Annotated[float, Slider("Reduction", "1 / gamma", REDUCTIONS, amount("B/s"))] = 1e9
    size: Annotated[float, Slider("Message", "n, the buffer of each rank", SIZES, amount("B"))] = (
        1e3
    )

    @property
    def network(self) -> Network:
        """Its alpha, beta and gamma."""
        return flat(self.ranks, self.latency, 1 / self.bandwidth, 1 / self.reduction)


class Interval(NamedTuple):
    """Sizes in B between which `algorithm` is the fastest."""

    algorithm: str
    start: float
    stop: float


@on_bench(
    Flat(), "message_sizes", fine="Bandwidth matters here: a faster network shortens the time."
)
def message_sizes(setting: Flat) -> View:
    """Look for the size at which the lines cross, and what moves it: ranks, latency or bandwidth."""
    times, found = fastest_first(setting.size, setting.network), winners(setting.network)
    best = next(iter(times.values()))
    wall = ""
    if best.latency >= FLOOR * best.total:
        wall = (
            f"The latency floor: even infinite bandwidth leaves {format_quantity(float(best.latency), 's')}"
            " of this allreduce. Send larger buckets, or fewer."
        )
    words = _words(format_quantity(setting.size, "B"), times, found)
    return View(words, wall, {"message_sizes": _chart(setting, found)})


def fastest_first(size: float, network: Network, names: tuple[str, ...] = FLAT) -> dict[str, Cost]:
    """Return what each algorithm costs for `size` B, the fastest first."""
    costs = {name: ALGORITHMS[name](size, network) for name in names}
    return dict(sorted(costs.items(), key=lambda item: float(item[1].total)))


def winners(network: Network, names: tuple[str, ...] = FLAT) -> list[Interval]:
    """Return which algorithm is the fastest for which sizes, from 0 B on.

    Each time is a straight line in the size, so the winners are their lower envelope. Of equal ones
    the first of `names` wins.
    """
    fixed = {name: float(ALGORITHMS[name](0.0, network).total) for name in names}
    slope = {name: float(sum(ALGORITHMS[name](1.0, network)[1:])) for name in names}
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


def crossover(ranks: int, latency: float, bandwidth: float, reduction: float = np.inf) -> float:
    """Return the size in B beyond which Rabenseifner beats recursive doubling, `ranks` a power of two."""
    rounds, share = np.log2(ranks), (ranks - 1) / ranks
    per_byte = (rounds - 2 * share) / bandwidth + (rounds - share) / reduction
    return float(rounds * latency / per_byte)


def _words(size: str, times: Mapping[str, Cost], found: list[Interval]) -> str:
    """Say who wins at the marked size, by how much, and where the winner changes."""
    (first, best), (second, other) = islice(times.items(), 2)
    lag = float(other.total / best.total)
    margin = f"{lag:.3g} times as fast as" if lag > 1.005 else "as fast as"
    words = (
        f"<b>{size}: {name_of(first)} wins</b> with {format_quantity(float(best.total), 's')},"
        f" {margin} {name_of(second)}. {float(best.latency / best.total):.0%} of that is latency."
    )
    if len(found) == 1:
        return f"{words} On this network it wins at every size."
    steps = [f"{name_of(i.algorithm)} up to {format_quantity(i.stop, 'B')}" for i in found[:-1]]
    return f"{words}<br>Fastest: {', '.join(steps)}, then {name_of(found[-1].algorithm)}."


def _chart(setting: Flat, found: list[Interval]) -> State:
    """Return time over size for each algorithm, and a strip of the winners."""
    sizes, now = np.geomspace(1, LARGEST, 55), setting.size
    times = {name: ALGORITHMS[name](sizes, setting.network).total for name in FLAT}
    lines = [  # with symbols that take turns, and none at the very end
        {"line": name, "size": x, "seconds": y, "symbol": k % 9 == 2 * i % 9 and k < 54}
        for i, (name, curve) in enumerate(times.items())
        for k, (x, y) in enumerate(zip(sizes, curve, strict=True))
    ]
    last = [curve[-1] for curve in times.values()]
    ends = {
        "line": list(times),
        "words": [name_of(name) for name in times],
        "seconds": last,
        "place": spread_labels(last, [line["seconds"] for line in lines]),
    }
    right = now > 1e7
    marker = marked(f"{format_quantity(now, 'B')} now", right, 6, size=now)
    near = int(np.argmin(np.abs(np.log(sizes / now))))
    there = sorted(times, key=lambda name: times[name][near])
    shown = (f"{name_of(n)} {format_quantity(float(times[n][near]), 's')}" for n in there)
    data = {"lines": columns(lines), "ends": ends, **_strip(found), "marker": marker}
    return data, f"At about {format_quantity(now, 'B')}: {', '.join(shown)}."


def _strip(found: list[Interval]) -> Data:
    """Return the winners between the ends of the chart, and where they change."""
    shown = [(each.algorithm, max(each.start, 1.0), min(each.stop, LARGEST)) for each in found]
    regions = [
        {"line": name, "start": a, "stop": b, "middle": np.sqrt(a * b), "words": name_of(name)}
        for name, a, b in shown
        if a < b
    ]
    starts = [region["start"] for region in regions[1:]]
    turns = {"size": starts, "words": [format_quantity(start, "B") for start in starts]}
    return {"regions": columns(regions), "turns": turns}
