"""One step three ways: what was predicted, what was simulated, what was measured, term by term."""

from collections.abc import Mapping

from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity
from lib_dlhpc.timeline import breakdown

Terms = dict[str, float]  # s of a step, by cause


def three_ways(experiment: Experiment, measured: Mapping[str, float]) -> dict[str, Terms]:
    """Return the terms of a step: predicted, simulated, measured."""
    terms = predict(experiment).terms
    return {
        "predicted": {name: float(seconds) for name, seconds in terms.items()},
        "simulated": dict(breakdown(simulate(experiment)).terms),
        "measured": dict(measured),
    }


def terms_html(columns: Mapping[str, Terms]) -> str:
    """Return the terms that any of the ways has, and their sums, as a table."""
    first = next(iter(columns.values()))
    parts = [name for name in first if any(terms.get(name) for terms in columns.values())]
    lines = [["time of one step", *columns]]
    lines += [
        [part, *(format_quantity(terms.get(part, 0.0), "s") for terms in columns.values())]
        for part in parts
    ]
    whole = [format_quantity(sum(terms.values()), "s") for terms in columns.values()]
    return table_html([*lines, ["all", *whole]])
