"""Waiting for the slowest: a synchronous step is as long as the slowest of p ranks, and p makes it slower.

the_slowest()   the experiment: jitter, one slow GPU, and how the expected largest grows with p
"""

from typing import NamedTuple

import ipywidgets
import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.stragglers import slowest
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.data_parallel.charts import ranks_state, slowest_state

COUNTS = tuple(2**k for k in range(12))
JITTERS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
WALL = 0.1  # idle share of the machine, from which it is a wall


class Ranks(NamedTuple):
    """What the experiment sets: ranks, sigma over mean, how many times as long one rank takes, steps, seed."""

    ranks: int = 256
    jitter: float = 0.03
    slow: float = 1.0
    steps: int = 10
    seed: int = 1


def the_slowest() -> ipywidgets.Box:
    """Return the experiment: who waits in one step, and how the step grows with the ranks."""
    controls = {
        "ranks": slider("GPUs", "p", [(f"{p:,}", p) for p in COUNTS], 256),
        "jitter": slider(
            "Jitter",
            "Standard deviation of a step's compute time, of its mean",
            [(f"{j:.0%}", j) for j in JITTERS],
            0.03,
        ),
        "slow": dropdown(
            "One slow GPU",
            "Its compute time over that of the others",
            [("none", 1.0), ("10 % slower", 1.1), ("half as fast", 2.0)],
            1.0,
        ),
        "steps": slider("Steps", "To average over", [(str(n), n) for n in (1, 3, 10, 30, 100)], 10),
        "seed": slider("Draw", "Another draw of the jitter", [(str(n), n) for n in range(1, 9)], 1),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    waiting, growth = chart("rank_times"), chart("slowest")

    def show() -> None:
        setting = Ranks(**{name: control.value for name, control in controls.items()})
        waiting.update(*ranks_state(factors(setting)[-1]))
        growth.update(*growth_view(setting))
        verdict.value = f'<p class="dlhpc-verdict">{waiting_words(setting)}</p>'
        wall.value = wall_html(waiting_wall(setting), "Less than a tenth of the machine is idle.")

    note = "the hatched area: GPUs that are done, and idle. Then double the GPUs: what does the slowest do?"
    return workbench(controls, [verdict, wall, waiting, growth], show, note)


def factors(setting: Ranks) -> NDArray[np.float64]:
    """Return compute time over its mean, shape (steps, ranks); as `simulate` draws it."""
    rng = np.random.default_rng(setting.seed)
    drawn = rng.normal(1.0, setting.jitter, (setting.steps, setting.ranks))
    times = np.maximum(drawn, 0.0)
    times[:, 0] *= setting.slow
    return times


def growth_view(setting: Ranks) -> State:
    """Return the columns of the chart "slowest": Blom's line, and the slowest of what was drawn."""
    counts = np.array(COUNTS)
    drawn = [factors(setting._replace(ranks=int(p))).max(axis=1) for p in counts]
    spread = np.array([np.quantile(times, [0.1, 0.9]) for times in drawn])
    means = np.array([times.mean() for times in drawn])
    line = slowest(counts, setting.jitter)
    return slowest_state(counts, line, means, spread, setting.ranks, setting.slow)


def waiting_words(setting: Ranks) -> str:
    """Say how long the step is, drawn and expected, and how much of the machine waits."""
    times = factors(setting)
    step = float(times.max(axis=1).mean())
    expected = float(slowest(setting.ranks, setting.jitter))
    shared = "; the formula knows of no slow GPU" if setting.slow > 1 else ""
    return (
        f"<b>{setting.ranks:,} GPUs: a step takes {step - 1:.1%} longer than the mean.</b>"
        f" Blom's formula says {expected - 1:.1%}{shared}."
        f" On average {waiting_share(setting):.1%} of the machine is idle, waiting for the slowest."
    )


def waiting_share(setting: Ranks) -> float:
    """Return the share of all GPU time that is spent waiting for the slowest."""
    times = factors(setting)
    return float(1 - times.mean() / times.max(axis=1).mean())


def waiting_wall(setting: Ranks) -> str:
    """Say how many GPUs the idle time is worth, or nothing where it is little."""
    share = waiting_share(setting)
    if share < WALL:
        return ""
    lost = share * setting.ranks
    who, cure = "The jitter of", "Look for what disturbs them"
    if setting.slow > float(slowest(setting.ranks, setting.jitter)):
        who, cure = "One slow GPU among", "Replace it, give it less to do"
    return (
        f"{who} {setting.ranks:,} GPUs: their idle time adds up to {lost:.3g} GPUs."
        f" {cure}, or do not wait at all (next section)."
    )


def expected_wait(ranks: int, jitter: float) -> float:
    """Return by how many percent a step is longer than the mean compute time."""
    return 100 * (float(slowest(ranks, jitter)) - 1)
