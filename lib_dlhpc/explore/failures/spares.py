"""Spares, or fewer replicas: how much of the machine trains while failed nodes are in repair."""

from dataclasses import replace
from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from lib_dlhpc.costs import NodePool
from lib_dlhpc.explore.blocks.bench import Slider, View, amount, on_bench
from lib_dlhpc.explore.blocks.charts import Data, State, columns
from lib_dlhpc.explore.blocks.lines import line_columns
from lib_dlhpc.explore.failures.interval import LLAMA_MTBF, PER_NODE, Mtbf, Restart
from lib_dlhpc.explore.failures.interval import Setting as Run
from lib_dlhpc.explore.failures.interval import found as run_of
from lib_dlhpc.prediction.failures.spares import elastic_goodput, waiting, waiting_goodput
from lib_dlhpc.spec.units import DAY, HOUR, MINUTE, count

GPUS = tuple(2**k for k in range(11, 18))
REPAIRS = {"4 h": 4 * HOUR, "12 h": 12 * HOUR, "1 day": DAY, "3 days": 3 * DAY, "7 days": 7 * DAY}
REPLICAS = (1, 4, 16, 64, 256)  # nodes
STALLS = (30.0, MINUTE, 3 * MINUTE, 10 * MINUTE)
AT_ONCE = 200  # numbers of spares that are compared; of more, those beside the best of every few
SPARES = (0, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
BACK = "Until a failed node is back"
OWN = "Nodes of a model replica, which stops if one of them fails"
ALL = "Of the other replicas, until they go on without it"
WAIT, ELASTIC = "all wait", "fewer replicas go on"


class Setting(NamedTuple):
    """A large run. mtbf: s of a node; repair, restart, stall: s; replica, spares: nodes."""

    gpus: Annotated[int, Slider("GPUs", "In nodes of 8, spares not counted", GPUS)] = 16384
    mtbf: Mtbf = LLAMA_MTBF
    repair: Annotated[float, Slider("Repair", BACK, REPAIRS)] = DAY
    restart: Restart = 10 * MINUTE
    replica: Annotated[
        int, Slider("Replica", OWN, REPLICAS, lambda nodes: count(nodes, "node"))
    ] = 16
    stall: Annotated[float, Slider("Stall", ALL, STALLS, amount("s"))] = 3 * MINUTE
    spares: Annotated[int, Slider("Spares", "Nodes that stand by", SPARES)] = 8


@on_bench(Setting(), "failures_spares", fine="A spare is ready for nearly every failure.")
def spares_or_fewer(setting: Setting) -> View:
    """Look for the number of spares at which the dashed line bends, and for what the solid one needs."""
    charts = {"failures_spares": spares_view(setting)}
    return View(spares_words(setting), spares_wall(setting), charts)


def pool_of(setting: Setting) -> NodePool:
    """Return the nodes of a setting."""
    nodes = setting.gpus // PER_NODE
    return NodePool(nodes, setting.spares, setting.mtbf, setting.repair, setting.replica)


def in_repair_of(setting: Setting) -> float:
    """Return how many nodes are in repair on the mean if all others train: N T / M_node."""
    pool = pool_of(setting)
    return pool.nodes * pool.repair / pool.node_mtbf


def goodput_of(setting: Setting, way: str) -> float:
    """Return the share of all nodes and their time that becomes training, in one of the two ways."""
    pool = pool_of(setting)
    if way == ELASTIC:
        return elastic_goodput(pool, setting.stall, setting.restart)
    return waiting_goodput(pool, alone(setting.gpus, setting.mtbf, setting.restart))


@lru_cache(maxsize=64)
def alone(gpus: int, mtbf: float, restart: float) -> float:
    """Return the goodput of the run with a spare for every failure, at its best checkpoint interval."""
    return float(run_of(Run(gpus, mtbf, restart=restart)).best_goodput)


@lru_cache(maxsize=64)
def best_spares(setting: Setting, way: str) -> int:
    """Return how many spares have the highest goodput; setting.spares does not matter."""
    load = in_repair_of(setting)
    most = int(load + 8 * np.sqrt(load) + 10)
    step = max(1, most // AT_ONCE)

    def goodput(spares: int) -> float:
        return goodput_of(setting._replace(spares=spares), way)

    near = max(range(0, most + 1, step), key=goodput)
    return max(range(max(near - step, 0), min(near + step, most) + 1), key=goodput)


def spares_view(setting: Setting) -> State:
    """Return the columns of the chart "failures_spares": goodput of both ways over spare nodes."""
    best = best_spares(setting._replace(spares=0), WAIT)
    end = max(2 * best, 24, min(setting.spares, 8 * best))
    at = np.unique(np.linspace(0, end, 41).astype(int))
    curves = {
        way: (at, np.array([goodput_of(setting._replace(spares=int(n)), way) for n in at]))
        for way in (ELASTIC, WAIT)
    }
    load = in_repair_of(setting)
    now = {way: goodput_of(setting, way) for way in curves}
    inside = setting.spares <= end
    data: Data = {
        **line_columns(curves),
        "marks": columns([{"x": load, "words": f"{load:.1f} in repair on average"}]),
        "now": columns(
            [
                {"x": setting.spares, "y": y, "words": f"{y:.1%}", "dy": dy}
                for y, dy in zip(now.values(), (-12, 14), strict=True)
                if inside
            ]
        ),
        "room": {"x": [0, int(end)], "y": [0.0, 1.0]},
    }
    each = ", ".join(f"{way} {share:.1%}" for way, share in now.items())
    return data, f"Goodput of all nodes with {setting.spares} spares: {each}."


def spares_words(setting: Setting) -> str:
    """Say how often a spare is missing, and how many spares have the highest goodput."""
    pool, load = pool_of(setting), in_repair_of(setting)
    own, best = setting._replace(spares=0), best_spares(setting._replace(spares=0), WAIT)
    few = best_spares(own, ELASTIC)
    top, other = goodput_of(own._replace(spares=best), WAIT), goodput_of(own, ELASTIC)
    return (
        f"<b>{load:.1f} nodes are in repair on average.</b> With {count(setting.spares, 'spare')}, a run that"
        f" needs all nodes waits {waiting(replace(pool, replica=0)):.1%} of the time. Its goodput is highest with"
        f" {best} spares, {top:.1%}. With fewer replicas, goodput is {other:.1%} without any spare, and highest with"
        f" {few}."
    )


def spares_wall(setting: Setting) -> str:
    """Say that the run waits for spares, or nothing."""
    waits = waiting(replace(pool_of(setting), replica=0))
    if waits < 0.02:
        return ""
    return f"{setting.spares} spares: a run that needs all nodes waits {waits:.1%} of the time until one is repaired."
