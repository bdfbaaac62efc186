"""A cache under random access: its hit rate, by replacement policy."""

from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.io_bottleneck import limits
from lib_dlhpc.explore.io_bottleneck.charts import cache_state, policies_state
from lib_dlhpc.simulation import hit_rates, orders
from lib_dlhpc.spec.units import format_plain

POLICIES = {
    "keep": "none is evicted",
    "lru": "LRU",
    "fifo": "FIFO",
    "clock": "CLOCK",
    "random": "random",
    "belady": "Belady",
}
CHOICES = {words: name for name, words in POLICIES.items()}
SHARES = np.linspace(0, 1, 11)
CACHED = {f"{share:.0%}": share for share in SHARES.tolist()}
NODES = (1, 2, 4, 8, 16)
ORDERS = {"a fresh one in each epoch": True, "the same in each epoch": False}
SAMPLES, COUNTED = 400, 8  # simulated samples; how often a node reads all while hits are counted
WARM = 3.5  # times a node reads as many samples as there are, until its cache is full


class Setting(NamedTuple):
    """A cache and its readers. share: cached fraction; fresh: each epoch has another order."""

    share: Annotated[
        float, Slider("Cached", "Fraction of the data set in a node's cache", CACHED)
    ] = 0.5
    policy: Annotated[
        str, Dropdown("Policy", "What is evicted when the cache is full", CHOICES)
    ] = "lru"
    fresh: Annotated[bool, Dropdown("Order", "Of the samples in an epoch", ORDERS)] = True
    nodes: Annotated[
        int, Slider("Nodes", "Each reads its part of an epoch, and has a cache of its own", NODES)
    ] = 1


@on_bench(Setting(), "io_cache", "io_policies", fine="")
def the_cache(setting: Setting) -> View:
    """Look for which policies reach the dashed line; then, on many nodes, which exceeds it, and what it has to know."""
    share, policy, *readers = setting
    hits = np.array([hit_rate(policy, float(each), *readers) for each in SHARES])
    others = {words: hit_rate(name, share, *readers) for name, words in POLICIES.items()}
    hit, first = hits_of(setting), limits.Setting()
    allowed = float(limits.found(first).rate)
    come = (
        f"{format_plain(allowed / (1 - hit))} samples per second" if hit < 1 else "no limit at all"
    )
    return View(
        f"<b>{share:.0%} cached, {hit:.0%} hits.</b> Storage serves the other {1 - hit:.0%}: what"
        f" allowed {format_plain(allowed)} samples per second in the first figure would allow {come}; the GPUs there"
        f" would train {format_plain(limits.demand(first))}.",
        cache_wall(setting),
        {
            "io_cache": cache_state(SHARES, hits, share, POLICIES[policy]),
            "io_policies": policies_state(others, share, POLICIES[policy]),
        },
        cache_fine(setting),
    )


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


def hits_of(setting: Setting) -> float:
    """Return the hit rate of a setting."""
    return hit_rate(setting.policy, setting.share, setting.fresh, setting.nodes)


def cache_wall(setting: Setting) -> str:
    """Say why a cache has no hits, or nearly none."""
    if setting.share == 0:
        return "There is no cache: every sample comes from storage, in every epoch."
    if hits_of(setting) >= 0.5 * setting.share:
        return ""
    if setting.fresh:
        return (
            "A reader that reads everything once an epoch needs the sample it has just read last of all: the policy"
            " evicts what it needs next."
        )
    return "Each sample is evicted shortly before it is read again: a cycle longer than the cache has no hits."


def cache_fine(setting: Setting) -> str:
    """Say how the hit rate compares with the cached fraction."""
    if setting.share == 1:
        return "All of it fits: each sample is read from storage once."
    if hits_of(setting) <= setting.share + 0.05:
        return (
            "About the cached fraction, or less: no policy that does not know the order gets more."
        )
    if setting.fresh:
        return "More than the cached fraction: the order is drawn in advance, and this policy knows it."
    return "A node reads the same part in each epoch, so more of that part is in its cache."
