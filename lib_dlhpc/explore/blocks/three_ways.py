"""One step three ways: what was predicted, what was simulated, what was measured, term by term."""

from collections.abc import Mapping

from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import breakdown

LEAST = 1e-9  # s: a shorter term is rounding
Terms = dict[str, float]  # s of a step, by cause


def three_ways(experiment: Experiment, measured: Mapping[str, float]) -> dict[str, Terms]:
    """Return the terms of a step: predicted, simulated, measured."""
    terms = predict(experiment).terms
    return {
        "predicted": {name: float(seconds) for name, seconds in terms.items()},
        "simulated": dict(breakdown(simulate(experiment)).terms),
        "measured": dict(measured),
    }


def terms_html(ways: Mapping[str, Mapping[str, float]]) -> str:
    """Return the terms that any of the ways has, and their sums, as a table: predicted first, measured last."""
    there = [{n: s if s > LEAST else 0.0 for n, s in terms.items()} for terms in ways.values()]
    names = [name for name in there[0] if any(terms.get(name) for terms in there)]
    rows = {name: [terms.get(name, 0.0) for terms in there] for name in names}
    rows["all"] = [sum(terms.values()) for terms in there]
    lines = [
        [name, *(show(s, "s") for s in row), error(row[0], row[-1])] for name, row in rows.items()
    ]
    return table_html([["time of one step", *ways, "predicted less measured"], *lines])


def error(predicted: float, measured: float) -> str:
    """Return predicted less measured, and its share of what was measured."""
    off = predicted - measured
    share = f" ({off / measured:+z.0%})" if measured else ""
    return f"{'−' if off < 0 else '+'}{show(abs(off), 's')}{share}"
