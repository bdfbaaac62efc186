"""Predictions, sweeps and validations in words and as columns, for notebooks (see results/)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.prediction.accuracy import accuracy_columns, accuracy_facts
from lib_dlhpc.results import Columns, Summary, percent, shown
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.units import WH

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown
    from lib_dlhpc.prediction.sweeps.sweep import Sweep

ROWS = 20  # of a sweep's table


def summary(of: "Breakdown") -> Summary:
    """Return the most important numbers of a prediction, and its terms; arrays as ranges."""
    experiment, step = of.experiment, of.step_time
    memory = shown(experiment.machine.device.memory, "B")
    facts = {
        "step": shown(step, "s"),
        "throughput": f"{shown(of.throughput, '')} samples/s",
        **_rates(of),
        "efficiency": percent(of.efficiency),
        "memory": f"{shown(of.memory_total, 'B')} of {memory}",
        "time to train": shown(of.time_to_train, "s"),
        "energy to train": shown(np.divide(of.energy_to_train, WH), "Wh"),
    }
    if np.all(np.isfinite(of.carbon)):
        facts["carbon"] = f"{shown(np.multiply(of.carbon, 1000), 'g')} CO2e"
    if np.any(of.price):
        facts["price"] = f"{shown(of.price, '')} {experiment.machine.currency}"
    facts |= accuracy_facts(of)
    if not np.all(of.fits):
        facts["fits in memory"] = _fitting(of.fits)
    rows = [
        (name, shown(seconds, "s"), percent(np.divide(seconds, step)))
        for name, seconds in of.terms.items()
        if np.any(seconds)
    ]
    low, high = int(np.min(experiment.devices)), int(np.max(experiment.devices))
    devices = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    title = f"{_model(experiment)} on {experiment.machine.name or 'a machine'}, {devices} devices"
    return Summary(title, facts, ("term", "time", "share of the step"), rows)


def _rates(of: "Breakdown") -> dict[str, str]:
    """Return tokens/s of a language model, and the utilization of a device."""
    found = {"tokens": f"{shown(of.tokens, '')} tokens/s"} if np.any(of.tokens) else {}
    return found | {"MFU": percent(of.utilization)}


def columns(of: "Breakdown") -> Columns:
    """Return a row for each term of each element: fields of the experiment, `term`, `seconds`.

    The fields are model, machine, devices, global_batch, and by dotted name those that are arrays.
    """
    experiment, terms = of.experiment, of.terms
    run = {"devices": experiment.devices, "global_batch": experiment.global_batch}
    run |= dict(_arrays(experiment, "")) | accuracy_columns(of)
    shape = np.broadcast_shapes(*map(np.shape, (*run.values(), *terms.values())))
    named = {"model": _model(experiment), "machine": experiment.machine.name, **run}
    each = {name: np.broadcast_to(value, shape).ravel().tolist() for name, value in named.items()}
    return _tidy(each, {name: np.broadcast_to(value, shape) for name, value in terms.items()})


def bars(of: "Breakdown") -> Columns:
    """Return the columns with `configuration` in place of the fields: the values of the arrays in words."""
    found, swept = columns(of), [name for name, _ in _arrays(of.experiment, "")]
    places = zip(*(found[name] for name in swept), strict=True)
    words = [_setting(dict(zip(swept, place, strict=True))) for place in places]
    named = words or [found["model"][0]] * len(found["term"])
    return {"configuration": named, "term": found["term"], "seconds": found["seconds"]}


def sweep_summary(of: "Sweep") -> Summary:
    """Return the ranges of a sweep, the best configuration, and the first rows."""
    facts = {
        "step": shown(of.step_time, "s"),
        "throughput": f"{shown(of.throughput, '')} samples/s",
        "memory": shown(of.memory_total, "B"),
        "fits in memory": _fitting(of.fits),
    }
    if of.fits.any():
        facts["highest throughput at"] = _setting(of.best())
    found = zip(
        product(*of.axes.values()),
        of.step_time.flat,
        of.throughput.flat,
        of.memory_total.flat,
        of.fits.flat,
        strict=True,
    )
    rows = [
        (
            _setting(dict(zip(of.axes, place, strict=True))),
            shown(step, "s"),
            f"{shown(throughput, '')} samples/s",
            shown(memory, "B"),
            "yes" if fits else "no",
        )
        for place, step, throughput, memory, fits in islice(found, ROWS)
    ]
    title = f"{of.fits.size:,} configurations over {', '.join(of.axes)}"
    header = ("configuration", "step", "throughput", "memory", "fits")
    return Summary(title, facts, header, rows, max(of.fits.size - ROWS, 0))


def sweep_columns(of: "Sweep") -> Columns:
    """Return a row for each term of each configuration: the axes, `term`, `seconds`."""
    return _tidy(_grid(of.axes), of.terms)


def sweep_lines(of: "Sweep", quantity: str) -> tuple[Columns, str]:
    """Return columns for lines of a quantity, and the name of their x: the longest axis.

    The other axes are joined in the column `series`.
    """
    grid, x = _grid(of.axes), max(of.axes, key=lambda name: len(of.axes[name]))
    others = [name for name in of.axes if name != x]
    places = zip(*(grid[name] for name in others), strict=True) if others else [()] * len(grid[x])
    series = [_setting(dict(zip(others, place, strict=True))) for place in places]
    return {x: grid[x], "series": series, quantity: getattr(of, quantity).ravel().tolist()}, x


def _grid(axes: Mapping[str, Sequence[Any]]) -> Columns:
    """Return the axes as columns: every combination, in the order of the arrays."""
    places = zip(*product(*axes.values()), strict=True)
    return {
        name: [value.item() if isinstance(value, np.generic) else value for value in values]
        for name, values in zip(axes, places, strict=True)
    }


def _tidy(each: Columns, terms: Mapping[str, Any]) -> Columns:
    """Return a row for each term of each configuration; `each`: columns of the configurations."""
    repeated = {name: [value for value in values for _ in terms] for name, values in each.items()}
    seconds = np.stack([np.ravel(values) for values in terms.values()], axis=-1)
    return {**repeated, "term": [*terms] * len(seconds), "seconds": seconds.ravel().tolist()}


def _arrays(noun: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted name and value of each field that is an array; networks have none."""
    for name, value in vars(noun).items():
        if isinstance(value, np.ndarray) and value.ndim:
            yield path + name, value
        elif is_dataclass(value) and not isinstance(value, Model):
            yield from _arrays(value, f"{path}{name}.")


def _model(experiment: Experiment) -> str:
    return experiment.model.name or experiment.model.family


def _setting(values: Mapping[str, Any]) -> str:
    """Return the configuration in words: "nodes = 4, batch = 32"."""
    return ", ".join(f"{name.rpartition('.')[2]} = {value}" for name, value in values.items())


def _fitting(fits: Any) -> str:
    """Return "no" for one configuration that does not fit, or how many of several do."""
    if np.ndim(fits) == 0:
        return "yes" if fits else "no"
    return f"{np.sum(fits):,} of {np.size(fits):,}"
