"""Four ranks and one problem: a program of neighbors, simulated, and its trace.

read_it()    the experiment: which rank is late, by how much, messages, network, one link; the trace beside
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.traces.panel import TracePanel
from lib_dlhpc.simulation.neighbors import program, ring, simulate_neighbors
from lib_dlhpc.spec.machine import Machine, load_machine
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.analysis import Analysis, analyse

RANKS, STEPS = 4, 8
WORK, READ, SCATTER = 0.030, 0.002, 0.01  # s of a step; s; of the work
FIRST = 2 / 3  # of the work: what a rank does before its messages
NOBODY, IN_TURN = -1, -2
KINDS = {
    "computes longer": "load imbalance",
    "sends late": "late sender",
    "reads slowly": "slow disk",
}
LATE = (0.1, 0.25, 0.5, 1.0)  # of a step's work
SIZES = (1e4, 1e5, 1e6, 4e6)  # B
NETWORKS = (1e9, 10e9, 100e9)  # bit/s
SHARES = (1.0, 0.5, 0.25)
SLOW_LINK = 1  # the rank whose link to the one behind it can be slow


class Setting(NamedTuple):
    """What the controls say. late: of a step's work; share: of the bandwidth that the one link has."""

    rank: int = 2
    how: str = "computes longer"
    late: float = 0.5
    size: float = 1e6
    network: float = 10e9
    share: float = 1.0
    slow: int = SLOW_LINK
    seed: int = 0


def read_it() -> ipywidgets.Box:
    """Return the experiment."""
    who = [("nobody", NOBODY), *((f"rank {r}", r) for r in range(RANKS)), ("each in turn", IN_TURN)]
    controls = {
        "rank": slider("Who", "The rank with the problem", who, 2),
        "how": dropdown("It", "The problem", [(n, n) for n in KINDS], "computes longer"),
        "late": slider("By", "Of a step's work", [(f"{x:.0%}", x) for x in LATE], 0.5),
        "size": slider("Messages", "To each neighbor", [(show(b, "B"), b) for b in SIZES], 1e6),
        "network": slider(
            "Network", "Each link, each way", [(f"{b / 1e9:g} Gbit/s", b) for b in NETWORKS], 10e9
        ),
        "share": slider(
            "Link 1–2", "Of the bandwidth of the others", [(f"{s:g}×", s) for s in SHARES], 1.0
        ),
    }
    wall, panel = ipywidgets.HTML(), TracePanel()

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        found = panel.show(trace(setting))
        wall.value = wall_html(network_wall(setting, found), network_fine(found))

    note = "what happens on another rank where a hatched bar ends; then click a finding."
    return workbench(controls, [wall, *panel.widgets], update, note)


@lru_cache(maxsize=64)
def trace(setting: Setting) -> Timeline:
    """Return the simulated run with the problem that the controls set."""
    drawn = np.random.default_rng(setting.seed).normal(1.0, SCATTER, (2, STEPS, RANKS))
    work = WORK * np.maximum(drawn, 0.5)
    before, after = FIRST * work[0], (1 - FIRST) * work[1]
    reading = np.full((STEPS, RANKS), READ)
    more = planted(setting)
    if setting.how == "computes longer":
        after = after + more
    elif setting.how == "sends late":
        # All do the same work; the late rank does this part before it sends, the others after.
        whole = more.max(axis=1, keepdims=True)
        before, after = before + more, after + whole - more
    else:
        reading = reading + more
    what = program(STEPS, RANKS, before, after, reading, setting.size)
    slow = setting.slow if setting.share < 1 else -1
    return simulate_neighbors(what, ring(machine(setting.network), RANKS, slow, setting.share))


def planted(setting: Setting) -> np.ndarray:
    """Return the s by which each rank is late in each step, (STEPS, RANKS)."""
    more = np.zeros((STEPS, RANKS))
    if setting.rank >= 0:
        more[:, setting.rank] = setting.late * WORK
    elif setting.rank == IN_TURN:
        more[np.arange(STEPS), np.arange(STEPS) % RANKS] = setting.late * WORK
    return more


@lru_cache(maxsize=8)
def machine(network: float) -> Machine:
    """Return nodes of one laptop each, whose links have so many bit/s."""
    laptop = load_machine("laptop")
    link = replace(laptop.inter_node, bandwidth=network / 8)
    return replace(laptop, nodes=RANKS, inter_node=link)


@lru_cache(maxsize=64)
def analyzed(setting: Setting) -> Analysis:
    """Return the analysis of a run."""
    return analyse(trace(setting))


def network_wall(setting: Setting, found: Analysis) -> str:
    """Say why no network would help, where that is so; or that the network is the bottleneck."""
    ideal, span = found.efficiency.ideal_seconds, found.span
    if found.efficiency.transfer < 0.75:
        return (
            f"The network is the bottleneck: on an ideal network the run would take {show(ideal, 's')} of its"
            f" {show(span, 's')}."
        )
    best = float(found.compute.mean() + found.stalled.mean())
    if ideal > 1.15 * best:
        return (
            f"No network is fast enough: on an ideal one the run would still take {show(ideal, 's')} of its"
            f" {show(span, 's')}, while a rank computes and reads for {show(best, 's')} on average."
        )
    return ""


def network_fine(found: Analysis) -> str:
    """Say what an ideal network would bring."""
    ideal = found.efficiency.ideal_seconds
    return f"On an ideal network it would take {show(ideal, 's')} of {show(found.span, 's')}."


def gain_of_ideal_network(setting: Setting) -> float:
    """Return the % by which a run gets shorter on an ideal network."""
    found = analyzed(setting)
    return 100 * (1 - found.efficiency.ideal_seconds / found.span)
