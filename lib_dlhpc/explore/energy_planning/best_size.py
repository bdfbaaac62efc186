"""The best model size for GPUs and days: a scaling law with the predicted utilization, or with a guessed one."""

from math import ceil
from typing import Annotated, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.convergence import LAWS
from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View, shown
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.energy_planning import planned_sizes as sizes
from lib_dlhpc.explore.energy_planning.charts import (
    GUESSED,
    PREDICTED,
    kilowatt_hours,
    losses_state,
    utilization_state,
)
from lib_dlhpc.planner import Size, Trained, guessed, trained
from lib_dlhpc.spec.units import DAY, format_quantity

FIXED = 0.4
DAYS = (1, 3, 10, 30, 90)
SERVED = (0.0, 1e11, 3e11, 1e12, 3e12)


def count(number: float) -> str:
    """Return parameters or tokens in words, such as 13 billion."""
    return format_quantity(number, "") if number else "none"


class Setting(NamedTuple):
    """A budget. served: tokens that the same GPUs serve within it, after training."""

    machine: Annotated[
        str, Dropdown("Machine", "Nodes of eight GPUs, and their links", sizes.MACHINES.keys())
    ] = sizes.FAST
    gpus: Annotated[int, Slider("GPUs", "All of them train one model", sizes.GPUS)] = 64
    days: Annotated[int, Slider("Days", "Of training and serving", DAYS, shown)] = 3
    served: Annotated[
        float, Slider("Served tokens", "Within the same days, after training", SERVED, count)
    ] = 0.0


def found_sizes(setting: Setting, law: str = "besiroglu") -> Trained:
    """Return what each size reaches with its predicted utilization."""
    own = sizes.family(setting.machine, setting.gpus)
    return trained(own, setting.days * DAY, served=setting.served, law=law)


def with_guess(setting: Setting) -> Trained:
    """Return the same with one utilization for all sizes."""
    own = guessed(sizes.family(setting.machine, setting.gpus), FIXED)
    return trained(own, setting.days * DAY, served=setting.served)


def best(setting: Setting, law: str = "besiroglu") -> Size:
    """Return the size of the least loss."""
    own = found_sizes(setting, law)
    return own.family[own.best]


def the_size() -> Bench[Setting]:
    """Return the experiment: loss and utilization against the size, and a table of all sizes."""
    table = ipywidgets.HTML()

    def view(setting: Setting) -> View:
        seen = size_view(setting)
        table.value = table_html(size_lines(setting))
        return seen

    look = (
        "the lowest point of each line: what does the guessed utilization get wrong? Hollow marks:"
        " weights or tokens outside the range that the law was fitted to."
    )
    results = ["size_loss", "size_utilization", table]
    return Bench(Setting(), view, results, "Weights and tokens are within what was measured.", look)


def size_view(setting: Setting) -> View:
    """Return loss and utilization of all sizes within a budget; raises SpecError where none can be trained."""
    own, guess = found_sizes(setting), with_guess(setting)
    beyond, end = own.beyond(own.best), "smallest" if own.best == 0 else "largest"
    wall = f"Extrapolated: {beyond}. Trust the direction, not the digits." * bool(beyond)
    wall += f" The best is the {end} size of the family: there may be a better one." * own.at_an_end
    charts = {
        "size_loss": losses_state({PREDICTED: own, GUESSED: guess}),
        "size_utilization": utilization_state(own, FIXED),
    }
    return View(size_words(setting), wall.strip(), charts)


def size_words(setting: Setting) -> str:
    """Say which size is the best, what it takes, and what a guessed utilization and the other law choose."""
    own, guess = found_sizes(setting), with_guess(setting)
    size, tokens = own.family[own.best], float(own.tokens[own.best])
    other = best(setting, next(name for name in LAWS if LAWS[name] is not own.law))
    joules, (low, high) = kilowatt_hours(float(own.energy[own.best])), own.near()
    return (
        f"<b>{count(size.weights)} parameters on {count(tokens)} tokens</b>, {tokens / size.weights:.3g} per"
        f" parameter: {own.loss[own.best]:.3f} nats per token, with {joules}. MFU {size.utilization:.0%}:"
        f" {size.layout}. Within 0.01 nats of it: {count(low.weights)} to {count(high.weights)}."
        f" With {FIXED:.0%} for all, one would choose {count(guess.family[guess.best].weights)};"
        f" Hoffmann's law of the same runs chooses {count(other.weights)}. {rates_words(setting.machine)}"
    )


def rates_words(machine: str) -> str:
    """Say which measured rate the rates of a machine start from, and how far off another one is."""
    measured = sizes.MEASURED[machine]
    error = abs(sizes.predicted_row(measured).error)
    return (
        f"Compute time is calibrated by one measured rate, {measured.start}; {measured.tested} is then"
        f" predicted within {ceil(100 * error)}%."
    )


def size_lines(setting: Setting) -> list[list[str]]:
    """Return a line for each size that can be trained."""
    own = found_sizes(setting)
    lines = [["parameters", "tokens", "loss", "MFU", "FLOP beyond 6N", "energy", "fastest layout"]]
    for row in np.flatnonzero(np.isfinite(own.loss)).tolist():
        size, mark = own.family[row], " (best)" * (row == own.best)
        lines.append(
            [
                count(size.weights) + mark,
                count(float(own.tokens[row])),
                f"{own.loss[row]:.3f}",
                f"{size.utilization:.0%}",
                f"{size.uncounted:+z.0%}",
                kilowatt_hours(float(own.energy[row])),
                size.layout,
            ]
        )
    return lines


def tokens_of(setting: Setting) -> str:
    """Return the tokens of the best size in words."""
    own = found_sizes(setting)
    return count(float(own.tokens[own.best]))


def served_best(setting: Setting) -> str:
    """Return the best size and its tokens per parameter in words."""
    own = found_sizes(setting)
    size = own.family[own.best]
    return f"{count(size.weights)}, with {float(own.tokens[own.best]) / size.weights:.0f} tokens per parameter"
