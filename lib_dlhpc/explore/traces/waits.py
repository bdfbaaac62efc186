"""Four ranks and one problem: a program of neighbors, simulated, and its trace."""

from dataclasses import replace
from functools import lru_cache
from typing import Annotated, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, amount, controls_of
from lib_dlhpc.explore.blocks.workbench import wall_html, workbench
from lib_dlhpc.explore.traces.panel import TracePanel
from lib_dlhpc.simulation import program, ring, simulate_neighbors
from lib_dlhpc.spec.machine import Machine, load_machine
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.analysis import Analysis, analyze

RANKS, STEPS = 4, 8
WORK, READ, SCATTER = 0.030, 0.002, 0.01  # s of a step; s; of the work
FIRST = 2 / 3  # of the work: what a rank does before its messages
NOBODY, IN_TURN = -1, -2
KINDS = {
    "computes longer": "load imbalance",
    "sends late": "late sender",
    "reads slowly": "slow disk",
}
NETWORKS = {f"{rate} Gbit/s": rate * 1e9 for rate in (1, 10, 100)}  # bit/s
SLOW_LINK = 1  # the rank whose link to the one behind it can be slow
WHO = {"nobody": NOBODY, **{f"rank {rank}": rank for rank in range(RANKS)}, "each in turn": IN_TURN}
LATE = Slider("By", "Of a step's work", (0.1, 0.25, 0.5, 1.0), "{:.0%}".format)
SIZE = Slider("Messages", "To each neighbor", (1e4, 1e5, 1e6, 4e6), amount("B"))
LINK = Slider("Link 1–2", "Of the bandwidth of the others", (1.0, 0.5, 0.25), "{:g}×".format)


class Setting(NamedTuple):
    """A run and its problem. late: of a step's work; share: of the bandwidth that the one link has."""

    rank: Annotated[int, Slider("Who", "The rank with the problem", WHO)] = 2
    how: Annotated[str, Dropdown("It", "The problem", KINDS.keys())] = "computes longer"
    late: Annotated[float, LATE] = 0.5
    size: Annotated[float, SIZE] = 1e6
    network: Annotated[float, Slider("Network", "Each link, each way", NETWORKS)] = 10e9
    share: Annotated[float, LINK] = 1.0
    slow: int = SLOW_LINK
    seed: int = 0


def read_it() -> ipywidgets.Box:
    """Return the experiment."""
    controls, wall, panel = controls_of(Setting()), ipywidgets.HTML(), TracePanel()

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        found = panel.show(trace(setting))
        ideal = show(found.efficiency.ideal_seconds, "s")
        fine = f"On an ideal network it would take {ideal} of {show(found.span, 's')}."
        wall.value = wall_html(network_wall(setting, found), fine)

    note = "what happens on another rank where a hatched bar ends; then click a finding."
    return workbench(controls, [wall, *panel.widgets], update, note)


@lru_cache(maxsize=64)
def trace(setting: Setting) -> Timeline:
    """Return the simulated run with the problem that the controls set."""
    drawn = np.random.default_rng(setting.seed).normal(1.0, SCATTER, (2, STEPS, RANKS))
    work = WORK * np.maximum(drawn, 0.5)
    before, after, reading = FIRST * work[0], (1 - FIRST) * work[1], np.full((STEPS, RANKS), READ)
    more = planted(setting)
    if setting.how == "computes longer":
        after = after + more
    elif setting.how == "sends late":
        # All do the same work; the late rank does this part before it sends, the others after.
        before, after = before + more, after + more.max(axis=1, keepdims=True) - more
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
    """Return nodes of one laptop each, with links of a bandwidth in bit/s."""
    laptop = load_machine("laptop")
    link = replace(laptop.inter_node, bandwidth=network / 8)
    return replace(laptop, nodes=RANKS, inter_node=link)


@lru_cache(maxsize=64)
def analyzed(setting: Setting) -> Analysis:
    """Return the analysis of a run."""
    return analyze(trace(setting))


def network_wall(setting: Setting, found: Analysis) -> str:
    """Say why no network would help, where that is so; or that the network is the bottleneck."""
    seconds, best = found.efficiency.ideal_seconds, float((found.compute + found.stalled).mean())
    ideal, span = show(seconds, "s"), show(found.span, "s")
    if found.efficiency.transfer < 0.75:
        return f"The network is the bottleneck: on an ideal network the run would take {ideal} of its {span}."
    if seconds <= 1.15 * best:
        return ""
    return (
        f"No network is fast enough: on an ideal one the run would still take {ideal} of its {span},"
        f" while a rank computes and reads for {show(best, 's')} on average."
    )


def gain_of_ideal_network(setting: Setting) -> float:
    """Return the % by which a run gets shorter on an ideal network."""
    found = analyzed(setting)
    return 100 * (1 - found.efficiency.ideal_seconds / found.span)
