"""A cache under random access: its hit rate, by replacement policy.

the_cache()     the experiment: cached fraction, order of an epoch, nodes, policy
hit_rate(...)   of a policy, simulated
"""

from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.io_bottleneck import limits as hours
from lib_dlhpc.explore.io_bottleneck.charts import cache_state, policies_state
from lib_dlhpc.simulation.caching import hit_rates, orders
from lib_dlhpc.spec.units import format_plain

POLICIES = {
    "keep": "none is evicted",
    "lru": "LRU",
    "fifo": "FIFO",
    "clock": "CLOCK",
    "random": "random",
    "belady": "Belady",
}
SHARES = np.linspace(0, 1, 11)
NODES = (1, 2, 4, 8, 16)
ORDERS = {"a fresh one in each epoch": True, "the same in each epoch": False}
SAMPLES, COUNTED = 400, 8  # simulated; how often a node reads so many while hits are counted
WARM = 3.5  # times a node reads as many samples as there are, until its cache is full


class Setting(NamedTuple):
    """What the controls say. fresh: each epoch has another order."""

    share: float = 0.5
    policy: str = "lru"
    fresh: bool = True
    nodes: int = 1


def the_cache() -> ipywidgets.Box:
    """Return the experiment: hit rates of policies, against the cached fraction."""
    controls = {
        "share": slider(
            "Cached",
            "Fraction of the data set in a node's cache",
            [(f"{s:.0%}", float(s)) for s in SHARES],
            0.5,
        ),
        "policy": dropdown(
            "Policy",
            "What is evicted when the cache is full",
            [(w, n) for n, w in POLICIES.items()],
            "lru",
        ),
        "fresh": dropdown("Order", "Of the samples in an epoch", ORDERS.items(), True),
        "nodes": slider(
            "Nodes",
            "Each reads its part of an epoch, and has a cache of its own",
            [(str(n), n) for n in NODES],
            1,
        ),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    line, bars = chart("io_cache"), chart("io_policies")

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        line.update(*cache_view(setting))
        bars.update(*policies_view(setting))
        verdict.value = f'<p class="dlhpc-verdict">{cache_words(setting)}</p>'
        wall.value = wall_html(cache_wall(setting), cache_fine(setting))

    note = "which policies reach the dashed line; then, on many nodes, which exceeds it, and what it has to know."
    return workbench(controls, [verdict, wall, line, bars], update, note)


@lru_cache(maxsize=4096)
def hit_rate(policy: str, share: float, fresh: bool = True, nodes: int = 1) -> float:
    """Return the hit rate of one node once its cache is full: simulated, mean over epochs."""
    warm = int(np.ceil(WARM * nodes)) if fresh else 2
    epochs = warm + COUNTED * (nodes if fresh else 1)
    rates = hit_rates(policy, _orders(fresh, nodes, epochs), round(share * SAMPLES))
    return float(np.mean(rates[warm:]))


@lru_cache(maxsize=16)
def _orders(fresh: bool, nodes: int, epochs: int) -> list[list[int]]:
    return orders(SAMPLES, epochs, nodes, shuffle=fresh)


def cache_view(setting: Setting) -> State:
    """Return the columns of the chart "io_cache"."""
    hits: Any = np.array([hit_rate(setting.policy, float(s), *setting[2:]) for s in SHARES])
    return cache_state(SHARES, hits, setting.share, POLICIES[setting.policy])


def policies_view(setting: Setting) -> State:
    """Return the columns of the chart "io_policies"."""
    hits = {words: hit_rate(name, setting.share, *setting[2:]) for name, words in POLICIES.items()}
    return policies_state(hits, setting.share, POLICIES[setting.policy])


def cache_words(setting: Setting) -> str:
    """Say what the hit rate is, and what it does for the run of the first figure."""
    hit = hit_rate(setting.policy, setting.share, *setting[2:])
    allowed = float(hours.found(hours.Setting()).rate)
    come = allowed / (1 - hit) if hit < 1 else np.inf
    rate = f"{format_plain(come)} samples a second" if np.isfinite(come) else "no limit at all"
    return (
        f"<b>{setting.share:.0%} cached, {hit:.0%} hits.</b> Storage serves the other {1 - hit:.0%}: what"
        f" allowed {format_plain(allowed)} samples a second in the first figure would allow {rate}; the GPUs there"
        f" would train {format_plain(hours.demand(hours.Setting()))}."
    )


def cache_wall(setting: Setting) -> str:
    """Say why a cache has no hits, or nearly none."""
    hit = hit_rate(setting.policy, setting.share, *setting[2:])
    if setting.share == 0:
        return "There is no cache: every sample comes from storage, in every epoch."
    if hit >= 0.5 * min(setting.share, 1.0):
        return ""
    if not setting.fresh:
        return (
            "Each sample is evicted shortly before it is read again: a cycle longer than the cache"
            " has no hits."
        )
    return (
        "A reader of everything once an epoch needs last what it has just read: the policy evicts what it needs"
        " next."
    )


def cache_fine(setting: Setting) -> str:
    """Say how the hit rate compares with the cached fraction."""
    hit = hit_rate(setting.policy, setting.share, *setting[2:])
    if setting.share == 1:
        return "All of it fits: each sample is read from storage once."
    if hit > setting.share + 0.05:
        if setting.fresh:
            return "More than the cached fraction: the order is drawn in advance, and this policy knows it."
        return "Each epoch a node reads the same part, and of that more is in its cache."
    return "About the cached fraction, or less: no policy that does not know the order gets more."
