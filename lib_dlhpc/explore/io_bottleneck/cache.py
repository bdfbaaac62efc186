"""A cache under random access: what it finds, by what is dropped when it is full.

the_cache()     the experiment: cached share, order of an epoch, nodes, rule
found(...)      the hit rate of a rule, played
"""

from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.io_bottleneck import limits as hours
from lib_dlhpc.explore.io_bottleneck.charts import cache_state, rules_state
from lib_dlhpc.simulation.caching import hit_rates, orders
from lib_dlhpc.spec.units import format_plain

RULES = {
    "keep": "nothing: first come stays",
    "lru": "what was read longest ago",
    "fifo": "what came first",
    "clock": "what was not read lately",
    "random": "any, by lot",
    "belady": "what is read last again",
}
SHARES = np.linspace(0, 1, 11)
NODES = (1, 2, 4, 8, 16)
ORDERS = {"a fresh one in each epoch": True, "the same in each epoch": False}
SAMPLES, COUNTED = 400, 8  # played; how often a node reads so many while hits are counted
WARM = 3.5  # times a node reads as many samples as there are, until its cache is full


class Setting(NamedTuple):
    """What the controls say. fresh: each epoch has another order."""

    share: float = 0.5
    rule: str = "lru"
    fresh: bool = True
    nodes: int = 1


def the_cache() -> ipywidgets.Box:
    """Return the experiment: what rules find, against the share of the data set that is cached."""
    controls = {
        "share": slider(
            "Cached",
            "Share of the data set that a node's cache holds",
            [(f"{s:.0%}", float(s)) for s in SHARES],
            0.5,
        ),
        "rule": dropdown(
            "Dropped is", "When the cache is full", [(w, n) for n, w in RULES.items()], "lru"
        ),
        "fresh": dropdown("Order", "In which an epoch reads", ORDERS.items(), True),
        "nodes": slider(
            "Nodes",
            "Each reads its part of an epoch, and has a cache",
            [(str(n), n) for n in NODES],
            1,
        ),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    line, bars = chart("io_cache"), chart("io_rules")

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        line.update(*cache_view(setting))
        bars.update(*rules_view(setting))
        verdict.value = f'<p class="dlhpc-verdict">{cache_words(setting)}</p>'
        wall.value = wall_html(cache_wall(setting), cache_fine(setting))

    note = "which rules reach the dashed line; then, on many nodes, which gets above it, and what it has to know."
    return workbench(controls, [verdict, wall, line, bars], update, note)


@lru_cache(maxsize=4096)
def found(rule: str, share: float, fresh: bool = True, nodes: int = 1) -> float:
    """Return the share of samples found by one node once its cache is full: played, mean over epochs."""
    warm = int(np.ceil(WARM * nodes)) if fresh else 2
    epochs = warm + COUNTED * (nodes if fresh else 1)
    rates = hit_rates(rule, _orders(fresh, nodes, epochs), round(share * SAMPLES))
    return float(np.mean(rates[warm:]))


@lru_cache(maxsize=16)
def _orders(fresh: bool, nodes: int, epochs: int) -> list[list[int]]:
    return orders(SAMPLES, epochs, nodes, shuffle=fresh)


def cache_view(setting: Setting) -> State:
    """Return the columns of the chart "io_cache"."""
    hits: Any = np.array([found(setting.rule, float(s), *setting[2:]) for s in SHARES])
    return cache_state(SHARES, hits, setting.share, f"dropping {RULES[setting.rule]}")


def rules_view(setting: Setting) -> State:
    """Return the columns of the chart "io_rules"."""
    hits = {words: found(name, setting.share, *setting[2:]) for name, words in RULES.items()}
    return rules_state(hits, setting.share, RULES[setting.rule])


def cache_words(setting: Setting) -> str:
    """Say what is found, and what that does for the run of experiment 1."""
    hit = found(setting.rule, setting.share, *setting[2:])
    allowed = float(hours.found(hours.Setting()).rate)
    come = allowed / (1 - hit) if hit < 1 else np.inf
    rate = f"{format_plain(come)} samples a second" if np.isfinite(come) else "no limit at all"
    return (
        f"<b>{setting.share:.0%} cached, {hit:.0%} found.</b> Storage has to give the other {1 - hit:.0%}: what"
        f" allowed {format_plain(allowed)} samples a second in experiment 1 would allow {rate}; the GPUs there"
        f" would train {format_plain(hours.demand(hours.Setting()))}."
    )


def cache_wall(setting: Setting) -> str:
    """Say why a cache that holds something finds nothing, or nearly so."""
    hit = found(setting.rule, setting.share, *setting[2:])
    if setting.share == 0:
        return "There is no cache: every sample comes from storage, in every epoch."
    if hit >= 0.5 * min(setting.share, 1.0):
        return ""
    if not setting.fresh:
        return (
            "Each sample is dropped shortly before it is read again: a round that is longer than the cache"
            " finds nothing in it."
        )
    return (
        "Whoever reads everything once an epoch has just read what comes last again: the rule drops what comes"
        " next."
    )


def cache_fine(setting: Setting) -> str:
    """Say how what is found compares with the cached share."""
    hit = found(setting.rule, setting.share, *setting[2:])
    if setting.share == 1:
        return "All of it fits: what was read once is never read from storage again."
    if hit > setting.share + 0.05:
        if setting.fresh:
            return (
                "More than the cached share: the order is drawn in advance, and this rule knows it."
            )
        return "Each epoch a node reads the same part, and of that more is in its cache."
    return "About the cached share, or less: no rule that does not know the order gets more."
