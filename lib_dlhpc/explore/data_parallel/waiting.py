"""Waiting for the slowest: a synchronous step is as long as the slowest of p ranks, and p makes it slower."""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import slowest
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import State, marked
from lib_dlhpc.spec.units import count

COUNTS = tuple(2**k for k in range(12))
JITTERS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
SIGMA = "Standard deviation of a step's compute time, of its mean"
SLOW = {"none": 1.0, "10% slower": 1.1, "half as fast": 2.0}
BARS = 129  # more ranks are shown by evenly spaced ones
WALL = 0.1  # idle share of the machine, from which it is a wall


class Ranks(NamedTuple):
    """Steps of some ranks. jitter: sigma over mean; slow: how many times as long one rank takes."""

    ranks: Annotated[int, Slider("GPUs", "p", COUNTS)] = 256
    jitter: Annotated[float, Slider("Jitter", SIGMA, JITTERS, "{:.0%}".format)] = 0.03
    slow: Annotated[
        float, Dropdown("One slow GPU", "Its compute time over that of the others", SLOW)
    ] = 1.0
    steps: Annotated[int, Slider("Steps", "To average over", (1, 3, 10, 30, 100))] = 10
    seed: Annotated[int, Slider("Draw", "Another draw of the jitter", range(1, 9))] = 1


@on_bench(Ranks(), "rank_times", "slowest", fine="Less than a tenth of the machine is idle.")
def the_slowest(setting: Ranks) -> View:
    """Look for the hatched area: GPUs that are done, and idle. Then double the GPUs: what does the slowest do?"""
    times, share = factors(setting), waiting_share(setting)
    expected = float(slowest(setting.ranks, setting.jitter))
    shared = "; the formula does not include the slow GPU" if setting.slow > 1 else ""
    words = (
        f"<b>{count(setting.ranks, 'GPU')}: a step takes {times.max(axis=1).mean() - 1:.1%} longer than the mean.</b>"
        f" Blom's formula says {expected - 1:.1%}{shared}."
        f" On average {share:.1%} of the machine is idle, waiting for the slowest."
    )
    who, cure = "The jitter of", "Look for what disturbs them"
    if setting.slow > expected:
        who, cure = "One slow GPU among", "Replace it, give it less to do"
    wall = (
        f"{who} {setting.ranks:,} GPUs: their idle time adds up to {share * setting.ranks:.3g} GPUs."
        f" {cure}, or do not wait at all (next section)."
    )
    charts = {"rank_times": ranks_chart(times[-1]), "slowest": slowest_chart(setting)}
    return View(words, wall if share >= WALL else "", charts)


def factors(setting: Ranks) -> NDArray[np.float64]:
    """Return compute time over its mean, shape (steps, ranks); as `simulate` draws it."""
    rng = np.random.default_rng(setting.seed)
    drawn = rng.normal(1.0, setting.jitter, (setting.steps, setting.ranks))
    times = np.maximum(drawn, 0.0)
    times[:, 0] *= setting.slow
    return times


def waiting_share(setting: Ranks) -> float:
    """Return the share of all GPU time that is spent waiting for the slowest."""
    times = factors(setting)
    return float(1 - times.mean() / times.max(axis=1).mean())


def expected_wait(ranks: int, jitter: float) -> float:
    """Return by how many percent a step is longer than the mean compute time."""
    return 100 * (float(slowest(ranks, jitter)) - 1)


def ranks_chart(times: NDArray[np.float64]) -> State:
    """Return the compute time of every rank in one step, fastest first; what is above it is idle time."""
    order, count, last = np.sort(times), len(times), float(times.max())
    # The last bar is the slowest alone, however many ranks there are.
    edges = np.append(np.unique(np.linspace(0, count - 1, BARS).astype(int)), count)
    bars = {
        "start": edges[:-1],
        "stop": edges[1:],
        "time": np.add.reduceat(order, edges[:-1]) / np.diff(edges),
        "slowest": np.full(len(edges) - 1, last),
        "floor": np.zeros(len(edges) - 1),
    }
    level = {"y": [last], "words": [f"the slowest: {last:.3g}"]}
    return {"bars": bars, "slowest": level}, (
        f"The last of the steps: the fastest of {count:,} needs {order[0]:.3g} times the mean, the slowest"
        f" {last:.3g}; {1 - order.mean() / last:.1%} of all GPU time is idle."
    )


def slowest_chart(setting: Ranks) -> State:
    """Return the step for each number of ranks: Blom's line, and mean, p10 and p90 of what was drawn."""
    drawn = [factors(setting._replace(ranks=p)).max(axis=1) for p in COUNTS]
    means, line = [float(times.mean()) for times in drawn], slowest(COUNTS, setting.jitter)
    low, high = np.quantile(drawn, [0.1, 0.9], axis=1)
    words = [f"{count(p, 'GPU')}: {y - 1:+z.1%}" for p, y in zip(COUNTS, means, strict=True)]
    at, right = COUNTS.index(setting.ranks), setting.ranks > 90
    slow = [setting.slow] if setting.slow > 1 else []
    data = {
        "line": {"x": COUNTS, "y": line},
        "points": {"x": COUNTS, "y": means, "low": low, "high": high, "words": words},
        "now": marked(
            f"{words[at]} in {setting.steps} steps", right, 10, x=setting.ranks, y=means[at]
        ),
        "slow": {"y": slow, "words": ["the slow GPU alone"] * len(slow)},
        "room": {"y": [1.0, max(1.02, *means, *high, *line)]},
    }
    return data, (
        f"A step of {count(setting.ranks, 'GPU')} takes {means[at] - 1:.1%} longer than the mean, as drawn; of"
        f" {COUNTS[-1]:,} {means[-1] - 1:.1%} longer."
    )
