"""Workers at sites far apart: how many steps each takes before changes of weights go to an outer optimizer (DiLoCo)."""

from functools import lru_cache

from lib_dlhpc.convergence.accuracy_costs import NO_OUTER, REFERENCE, stored
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.spec.units import format_quantity as show

SITES, ALONE = 8, (1, 10, 100, 500)
LINKS = ("1 Gb/s", "10 Gb/s", "100 Gb/s")
LATENCY = "20 ms"  # between sites
OUTER = {"outer_rate": 0.7, "outer_momentum": 0.9}  # of Douillard et al. 2023


@lru_cache(maxsize=16)
def apart(local_steps: int, link: str) -> Breakdown:
    """Return the prediction of Llama 3.2 1B on one H100 at each of eight sites; one local step is synchronous."""
    strategy = {"nodes": SITES, "devices_per_node": 1, "batch": 8, "precision": "bf16"}
    # One bucket for all gradients, as each bucket pays the latency.
    strategy |= {"optimizer": "adam", "bucket": "3 GB"}
    local = local_steps > 1
    if local:
        strategy |= {"update": "local", "local_steps": local_steps}
    between = {"name": "ib-ndr", "bandwidth": link, "latency": LATENCY}
    tables = {
        "model": {"name": "llama3.2-1b", "sequence": 2048},
        "dataset": "webtext",
        "machine": {"name": "h100-pod", "nics": 1, "inter_node": between},
        "strategy": strategy,
        "training": OUTER if local else {},
    }
    return predict(read_experiment(tables))


def waits(step: Breakdown) -> float:
    """Return the share of a step that waits for weights or gradients."""
    return float(step.exposed["data"] / step.step_time)


def of_the_work(local_steps: int, link: str) -> float:
    """Return how long a step waits for weights or gradients, over the rest of the step."""
    share = waits(apart(local_steps, link))
    return share / (1 - share)


def sites_table() -> Table:
    """Return the mean time of a step, and the share that waits, by local steps and link."""
    lines = [["local steps", *LINKS, "a GPU holds"]]
    for count in ALONE:
        steps = [apart(count, link) for link in LINKS]
        cells = [f"{show(float(each.step_time), 's')}, {waits(each):.0%} waiting" for each in steps]
        name = f"{count}" if count > 1 else "1: synchronous"
        lines.append([name, *cells, show(float(steps[0].memory_total), "B")])
    return Table(lines)


def accuracy(local_steps: int, outer: tuple[float, ...] = NO_OUTER) -> str:
    """Return the mean accuracy of the catalog's runs on MNIST; outer: rate and momentum. One step: no local ones."""
    name, value = ("strategy.local_steps", local_steps) if local_steps > 1 else REFERENCE
    found = [
        run.accuracy
        for run in stored()
        if (run.setting, run.value) == (name, value)
        and (run.outer_rate, run.outer_momentum) == outer
    ]
    return f"{sum(found) / len(found):.1%}"
