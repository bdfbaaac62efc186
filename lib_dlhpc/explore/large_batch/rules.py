"""How far can the batch grow? What was published, and stored runs of ours: rules beside each other.

published_error()   the published figure: error on ImageNet against the batch
how_far()           the experiment: accuracy against the batch for four rules, ten seeds each
growth_table()      a growing batch in place of a decaying rate
"""

import csv
import re
from dataclasses import dataclass
from typing import Any

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.large_batch.charts import Point, accuracy_state, error_state, tuning_state
from lib_dlhpc.prediction.validate import results
from lib_dlhpc.spec.catalog import ROOT
from lib_dlhpc.spec.training import Training
from lib_dlhpc.training.large_batch import MNIST
from lib_dlhpc.training.large_batch_results import Mean, batches, mean_of, paired, stored, tuning
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.weights import Parameter

NAMES = {"linear": "linear scaling", "tuned": "SGD, rate retuned", "lars": "LARS", "lamb": "LAMB"}
BATCHES = MNIST.rules["linear"].batches
COLLAPSED = 0.4  # accuracy at and below which a run has learned next to nothing
CLOSE = 0.015  # of the base batch's accuracy
NOTABLE = 2.26  # Student's t from which ten seeds tell two rules apart (5 %, two sides, 9 degrees of freedom)


def published_error() -> Figure:
    """Return the published figure: top-1 error of ResNet-50 on ImageNet against the batch."""
    return chart("published_error", *error_state(published()))


def published() -> dict[str, list[Point]]:
    """Return the published errors, one series a rule, with the deviation where it was published."""
    series: dict[str, list[Point]] = {"linear scaling": [], "LARS": [], "another rule": []}
    for name, row in results().items():
        if re.fullmatch(r"goyal17-err-\d+", name):
            spread = re.search(r"std ([\d.]+)", row["notes"])
            deviation = float(spread.group(1)) / 100 if spread else 0.0
            point = Point(
                float(row["batch_global"]), float(row["value"]) / 100, deviation, "Goyal 2017"
            )
            series["linear scaling"].append(point)
    jia = results()["jia18-r50-2048-acc"]
    series["LARS"].append(
        Point(float(jia["batch_global"]), 1 - float(jia["value"]) / 100, 0.0, "Jia 2018")
    )
    with open(ROOT / "published" / "large_batch.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            error = 1 - float(row["accuracy"])
            series[row["rule"]].append(Point(float(row["batch"]), error, 0.0, row["who"]))
    return {name: sorted(points) for name, points in series.items()}


def mean(rule: str, batch: int) -> Mean:
    """Return a stored mean over ten seeds."""
    return mean_of(stored(), rule, batch)


def base() -> Mean:
    """Return the small batch that all others are compared with."""
    return mean("linear", MNIST.base_batch)


def times_base(factor: int) -> int:
    """Return the batch that is so many times the base batch."""
    return factor * MNIST.base_batch


def how_far() -> ipywidgets.Box:
    """Return the experiment: accuracy against the batch, and how the rates were chosen."""
    rules = [(name, rule) for rule, name in NAMES.items()]
    controls = {
        "batch": slider("Batch", "To look at", [(f"{b:,}", b) for b in BATCHES], times_base(32)),
        "first": dropdown("Compare", "Seed by seed", rules, "lars"),
        "second": dropdown("with", "Seed by seed", rules, "tuned"),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    curves, rates = chart("batch_accuracy"), chart("tuning")

    def show() -> None:
        batch, first, second = (control.value for control in controls.values())
        curves.update(*accuracy_view(batch))
        rates.update(*tuning_view(batch))
        verdict.value = f'<p class="dlhpc-verdict">{compared(batch, first, second)}</p>'
        wall.value = wall_html(
            batch_wall(batch), "Linear scaling works here: as good as the base batch."
        )

    note = (
        "the batch at which each rule leaves the others; then the bars: are the differences larger?"
    )
    return workbench(controls, [verdict, wall, curves, rates], show, note)


def accuracy_view(batch: int) -> State:
    """Return the columns of the chart "batch_accuracy"."""
    series = {}
    for rule, name in NAMES.items():
        found = [(size, mean(rule, size)) for size in batches(stored(), rule)]
        series[name] = [
            Point(size, m.mean, m.deviation, f"{m.mean:.1%} ± {m.deviation:.1%}")
            for size, m in found
        ]
    return accuracy_state(series, batch, MNIST.epochs)


def tuning_view(batch: int) -> State:
    """Return the columns of the chart "tuning"."""
    rates: dict[str, list[tuple[float, float, float]]] = {}
    chosen = {}
    for rule, name in (("tuned", "SGD, rate retuned"), ("lars", "LARS"), ("lamb", "LAMB")):
        rows = tuning(stored(), rule, batch)
        if not rows:
            continue
        short = MNIST.rules[rule].warm_ups[0]
        for rate, warm_up, average, lowest in rows:
            line = (
                name if warm_up == short or rule == "lamb" else f"{name.split(',')[0]}, 12 epochs"
            )
            if rule == "lamb" and warm_up != short:
                continue
            rates.setdefault(line, []).append((rate, average, lowest))
        best = max(rows, key=lambda row: row[2])
        line = name if best[1] == short or rule == "lamb" else f"{name.split(',')[0]}, 12 epochs"
        chosen[line] = best[0]
    return tuning_state(rates, chosen)


def compared(batch: int, first: str, second: str) -> str:
    """Say how two rules differ at a batch, seed by seed."""
    there = [rule for rule in (first, second) if batch not in batches(stored(), rule)]
    if there:
        return f"<b>{NAMES[there[0]]} was not run at batch {batch:,}.</b> Choose another batch or rule."
    one, other = mean(first, batch), mean(second, batch)
    words = " and ".join(
        f"{NAMES[rule]} {m.mean:.1%} ± {m.deviation:.1%} (rate {m.rate:g}, warm-up {m.warm_up:g} epochs)"
        for rule, m in ((first, one), (second, other))
    )
    if first == second:
        return f"<b>Batch {batch:,}:</b> {words}. Choose two rules."
    p = paired(stored(), (first, batch), (second, batch))
    sure = "more than chance" if abs(p.t) > NOTABLE else "no difference that these seeds can show"
    return (
        f"<b>Batch {batch:,}: {p.mean * 100:+.1f} points</b> for {NAMES[first]} over {NAMES[second]}, seed by seed,"
        f" t = {p.t:.1f} with {p.seeds} seeds: {sure}.<br>{words[0].upper()}{words[1:]}."
        f" The base batch: {base().mean:.1%}."
    )


def batch_wall(batch: int) -> str:
    """Say which rules fail at a batch, or nothing while linear scaling holds."""
    linear, best_of = mean("linear", batch), base()
    if linear.mean > best_of.mean - CLOSE:
        return ""
    how = "collapses to" if linear.mean <= COLLAPSED else "falls to"
    words = (
        f"Linear scaling {how} {linear.mean:.0%}, {batch // MNIST.base_batch} times the base batch."
    )
    if batch not in batches(stored(), "lars"):
        return words
    tuned, lars = mean("tuned", batch), mean("lars", batch)
    if linear.mean < tuned.mean:
        share = (tuned.mean - linear.mean) / (best_of.mean - linear.mean)
        words += f" SGD with a retuned rate closes {share:.0%} of the gap."
    lost = (best_of.mean - lars.mean) * 100
    if lost > 100 * CLOSE:
        return f"{words} LARS breaks too, by {lost:.1f} points."
    return f"{words} LARS is {lost:.1f} points below the base."


def growth_table() -> Table:
    """Return a decaying rate beside a growing batch: accuracy and steps (Smith et al. 2018)."""
    rows = [
        ("the rate decays tenfold, twice", mean("decay", MNIST.base_batch)),
        ("the batch grows tenfold, twice", mean("growth", MNIST.base_batch)),
    ]
    lines = [["from batch 32 and rate 0.02", "steps", "test accuracy"]]
    lines += [[name, f"{m.steps:,}", f"{m.mean:.1%} ± {m.deviation:.1%}"] for name, m in rows]
    return Table(lines)


def longer_step(rule: str, times: float) -> float:
    """Return how many times as long the first step of a layer is if its gradient is `times` as long.

    The layer has 1,000 weights and a gradient of about their length; the rule is that of the trainer.
    """
    lengths = []
    for factor in (1.0, times):
        draw = np.random.default_rng(0)
        weights, gradients = draw.normal(size=1000), factor * draw.normal(size=1000)
        layer = Layer(
            weights.copy(), gradients, [Parameter("dense.weight", 0, 0, 1000, (1000,), True)]
        )
        Optimizer(rule, Training()).update(layer, rate=1.0)
        lengths.append(float(np.linalg.norm(layer.weights - weights)))
    return lengths[1] / lengths[0]


@dataclass
class Layer:
    """One layer as an optimizer sees it."""

    weights: Any
    gradients: Any
    parameters: list[Parameter]


def lars_step(weights: float, gradient: float, rate: float, trust: float = 1e-3) -> float:
    """Return the length of a first step under LARS, without weight decay."""
    local: Any = trust * weights / gradient
    return float(rate * local * gradient)
