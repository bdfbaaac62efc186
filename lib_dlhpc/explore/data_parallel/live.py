"""Whole steps for real: a network trained on MPI ranks of this machine, its timeline, and its prediction.

The rate of a run on one rank is all that calibrates the prediction, so there is none until one rank has run.
`dlhpc run labs/experiments/digits.toml -n 4` is such a run outside the page.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks import live_run
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, amount
from lib_dlhpc.explore.blocks.live_run import Came, Train, on_ranks
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.three_ways import terms_html, three_ways
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.data_parallel.buckets import WHEN, Overlap
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline

say = sentences(__file__)

RANKS, BUCKETS = (1, 2, 3, 4), (1e3, 8e3, 100e3)
BATCH, EPOCHS = 240, 12
SHOWN = 10  # the step on the chart: the first ones make connections and fill caches
IN_WORDS = {early: words for words, early in WHEN.items()}


class Setting(NamedTuple):
    """A run. bucket: B."""

    ranks: Annotated[int, Slider("Ranks", "They share the batch", RANKS)] = 1
    bucket: Annotated[
        float, Dropdown("Bucket", "Gradients in one allreduce", BUCKETS, amount("B"))
    ] = 8e3
    overlap: Overlap = True


Rates = dict[Setting, float]  # samples/s


def asked_words(setting: Setting) -> str:
    """Say what a click would train."""
    if setting.ranks == 1:
        return f"1 rank with the whole batch of {BATCH}: nothing to exchange."
    return (
        f"{setting.ranks} ranks, each with {BATCH // setting.ranks} samples of a batch of {BATCH}; buckets of"
        f" {show(setting.bucket, 'B')}, exchanged {IN_WORDS[setting.overlap]}."
    )


@on_ranks(Setting(), asked_words)
def train_here(setting: Setting, train: Train) -> Came:
    """Look for the first allreduce of a step, and what four ranks do on the cores of this machine."""
    outcome, timeline = train(experiment(setting))
    rates: Rates = train.known
    rates[setting] = outcome["samples"] / outcome["seconds"]
    said = (
        f"<b>{show(rates[setting], 'samples/s')}</b> on {count(setting.ranks, 'rank')}; test accuracy"
        f" {outcome['accuracy']:.1%} after {EPOCHS} epochs, as on any other number of ranks."
    )
    result = result_html(setting, outcome["terms"], rates)
    return Came(one_step(timeline), verdict_html(said), result)


def experiment(setting: Setting) -> Experiment:
    """Return the run: a small network on digits, the same global batch on any number of ranks."""
    strategy: dict[str, Any] = {
        "nodes": 1,
        "devices_per_node": setting.ranks,
        "batch": BATCH // setting.ranks,
        "precision": "fp64",  # rounding must not tell one number of ranks from another
        "allreduce": "ring",
        "bucket": setting.bucket,
        "overlap": setting.overlap,
    }
    named = {"model": "cnn-digits", "dataset": "digits", "machine": "laptop"}
    rest = {"strategy": strategy, "run": {"epochs": EPOCHS}, "training": {"rate": 0.05}}
    return read_experiment({**named, **rest})


def one_step(timeline: Timeline, number: int = SHOWN) -> Timeline:
    """Return one step of each rank, from its forward to the next, from 0 s on: the last one if there are fewer."""
    forward = timeline.where("compute", "forward")
    return live_run.between(
        timeline, lambda own: np.append(timeline.start[own & forward], np.inf), number
    )


def result_html(setting: Setting, measured: Mapping[str, float], rates: Rates) -> str:
    """Return the terms of this run three ways and all rates so far beside predictions, and why they differ."""
    known = next((rate for each, rate in rates.items() if each.ranks == 1), None)
    if known is None:
        return verdict_html(live_run.ALONE_MISSING)
    lines = [["ranks", "bucket", "exchange", "measured", "predicted", "error"]]
    for each in sorted(rates):
        rate = show(rates[each], "samples/s")
        if each.ranks == 1:
            lines.append(["1", "", "", rate, *live_run.CALIBRATES])
            continue
        run = [str(each.ranks), show(each.bucket, "B"), IN_WORDS[each.overlap]]
        cells = live_run.predicted_cells(experiment(each), known, rates[each])
        lines.append([*run, rate, *cells])
    ways = three_ways(live_run.with_rate(experiment(setting), known), measured)
    return terms_html(ways) + table_html(lines) + verdict_html(say.why)


def times_as_fast(ranks: int) -> float:
    """Return the predicted speedup of ranks over one rank, on the catalog's laptop."""
    return live_run.times_as_fast(experiment(Setting(ranks)), experiment(Setting(1)))
