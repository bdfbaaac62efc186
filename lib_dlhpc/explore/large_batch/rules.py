"""How far can the batch grow? What was published, and stored runs of ours: rules beside each other."""

import csv
import re
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import State, apart, chart, columns
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.large_batch.charts import GAP, LOWEST, Point, measured
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.spec.catalog import ROOT
from lib_dlhpc.spec.training import Training
from lib_dlhpc.studies.large_batch import MNIST
from lib_dlhpc.studies.large_batch_results import Mean, batches, mean_of, paired, stored, tuning
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.weights import Parameter

NAMES = {"linear": "linear scaling", "tuned": "SGD, rate retuned", "lars": "LARS", "lamb": "LAMB"}
RULES = {name: rule for rule, name in NAMES.items()}
BATCHES = MNIST.rules["linear"].batches
COLLAPSED = 0.4  # accuracy at and below which a run has learned next to nothing
CLOSE = 0.015  # of the base batch's accuracy
NOTABLE = 2.26  # Student's t from which ten seeds tell two rules apart (5%, two sides, 9 degrees of freedom)


class Compared(NamedTuple):
    """A batch, and two rules that are compared seed by seed."""

    batch: Annotated[int, Slider("Batch", "To look at", BATCHES)] = 32 * MNIST.base_batch
    first: Annotated[str, Dropdown("Compare", "Seed by seed", RULES)] = "lars"
    second: Annotated[str, Dropdown("with", "Seed by seed", RULES)] = "tuned"


@on_bench(
    Compared(),
    "batch_accuracy",
    "tuning",
    fine="Linear scaling works here: as good as the base batch.",
)
def how_far(setting: Compared) -> View:
    """Look for the batch at which each rule leaves the others; then the bars: are the differences larger?"""
    batch = setting.batch
    charts = {"batch_accuracy": accuracy_view(batch), "tuning": tuning_view(batch)}
    return View(compared(*setting), batch_wall(batch), charts)


def mean(rule: str, batch: int) -> Mean:
    """Return a stored mean over ten seeds."""
    return mean_of(stored(), rule, batch)


def spread(m: Mean) -> str:
    """Return a mean and its deviation in words."""
    return f"{m.mean:.1%} ± {m.deviation:.1%}"


def base() -> Mean:
    """Return the small batch that all others are compared with."""
    return mean("linear", MNIST.base_batch)


def times_base(factor: int) -> int:
    """Return the batch that is a multiple of the base batch."""
    return factor * MNIST.base_batch


def accuracy_view(batch: int) -> State:
    """Return the chart "batch_accuracy": mean and deviation on the test samples against the batch.

    Drawn is what is wrong, on a logarithmic axis: 95 and 93% lie as far apart as 60 and 46%.
    """
    found = {
        name: [(size, mean(rule, size)) for size in batches(stored(), rule)]
        for rule, name in NAMES.items()
    }
    wrong = {
        name: [Point(size, max(1 - m.mean, LOWEST), m.deviation, spread(m)) for size, m in own]
        for name, own in found.items()
    }
    ends = {name: points[-1] for name, points in wrong.items() if len(points) > 1}
    places = np.exp(apart(np.log([p.y for p in ends.values()]), 3.4 * GAP))
    names = {"line": list(ends), "words": list(ends)}
    data: dict[str, dict[str, Any]] = {
        "points": measured(wrong),
        "ends": {**names, "x": [p.x for p in ends.values()], "place": places},
        "now": {"x": [batch], "words": [f"batch {batch:,}"]},
    }
    at = ", ".join(
        f"{name} {m.mean:.1%}" for name, own in found.items() for x, m in own if x == batch
    )
    return data, f"Batch {batch:,}, test accuracy after {MNIST.epochs} epochs: {at}."


def tuning_view(batch: int) -> State:
    """Return the chart "tuning": validation accuracy against the rate, a line for each rule and warm-up."""
    rates: list[dict[str, Any]] = []
    best: list[tuple[str, float, float]] = []
    for rule in ("tuned", "lars", "lamb"):
        tried = sorted(tuning(stored(), rule, batch), key=lambda row: row[1])  # by warm-up
        means: dict[tuple[str, float], float] = {}
        for rate, warm_up, average, lowest in tried:
            if rule != "lamb" or warm_up == SHORT:
                means[_line(rule, warm_up), rate] = average
                wrong = {"y": max(1 - average, LOWEST), "low": max(1 - lowest, LOWEST)}
                rates.append({"line": _line(rule, warm_up), "x": rate, **wrong})
        if tried:
            rate, warm_up, *_ = max(tried, key=lambda row: (row[2], -row[0]))
            at = _line(rule, warm_up), rate
            best.append((*at, means[at]))
    chosen = columns(
        {
            "x": rate,
            "y": max(1 - y, LOWEST),
            "words": f"{name.split(',')[0]} {rate:g}",
            "beside": name.startswith("SGD"),  # above its ring it would touch LAMB's on a phone
        }
        for name, rate, y in best
    )
    picked = "; ".join(f"{name}: {y:.1%} at rate {rate:g}" for name, rate, y in best)
    words = f"Best on the validation samples: {picked}." if best else "No rate was chosen here."
    return {"points": columns(rates), "chosen": chosen}, words


SHORT = MNIST.rules["lars"].warm_ups[0]


def _line(rule: str, warm_up: float) -> str:
    short = rule == "lamb" or warm_up == SHORT
    return NAMES[rule] if short else f"{NAMES[rule].split(',')[0]}, 12 epochs"


def compared(batch: int, first: str, second: str) -> str:
    """Say how two rules differ at a batch, seed by seed."""
    there = [rule for rule in (first, second) if batch not in batches(stored(), rule)]
    if there:
        return f"<b>{NAMES[there[0]]} was not run at batch {batch:,}.</b> Choose another batch or rule."
    one, other = mean(first, batch), mean(second, batch)
    words = " and ".join(
        f"{NAMES[rule]} {spread(m)} (rate {m.rate:g}, warm-up {m.warm_up:g} epochs)"
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
    lines += [[name, f"{m.steps:,}", spread(m)] for name, m in rows]
    return Table(lines)


def published_error() -> Figure:
    """Return the published figure: top-1 error of ResNet-50 on ImageNet against the batch."""
    series = published()
    linear = series["linear scaling"]
    others = [p.y for name, points in series.items() if name != "linear scaling" for p in points]
    summary = (
        f"Linear scaling: {linear[0].y:.1%} wrong at batch {linear[0].x:,.0f}, {linear[-2].y:.1%} at"
        f" {linear[-2].x:,.0f}, {linear[-1].y:.1%} at {linear[-1].x:,.0f}. Other rules stay between"
        f" {min(others):.1%} and {max(others):.1%}."
    )
    return chart("published_error", {"points": measured(series)}, summary)


def published() -> dict[str, list[Point]]:
    """Return the published errors, one series a rule, with the deviation where it was published."""
    series: dict[str, list[Point]] = {"linear scaling": [], "LARS": [], "another rule": []}
    for name, row in results().items():
        if re.fullmatch(r"goyal17-err-\d+", name):
            std = re.search(r"std ([\d.]+)", row["notes"])
            numbers = row["batch_global"], row["value"], std[1] if std else 0.0
            batch, error, deviation = map(float, numbers)
            point = Point(batch, error / 100, deviation / 100, "Goyal 2017")
            series["linear scaling"].append(point)
    jia = results()["jia18-r50-2048-acc"]
    error = 1 - float(jia["value"]) / 100
    series["LARS"].append(Point(float(jia["batch_global"]), error, 0.0, "Jia 2018"))
    with open(ROOT / "published" / "large_batch.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            error = 1 - float(row["accuracy"])
            series[row["rule"]].append(Point(float(row["batch"]), error, 0.0, row["who"]))
    return {name: sorted(points) for name, points in series.items()}


def longer_step(rule: str, times: float) -> float:
    """Return how many times as long the first step of a layer is if its gradient is `times` as long.

    The layer has 1,000 weights and a gradient of about their length; the rule is that of the trainer.
    """

    def length(factor: float) -> float:
        draw = np.random.default_rng(0)
        weights, gradients = draw.normal(size=1000), factor * draw.normal(size=1000)
        whole = [Parameter("dense.weight", 0, 0, 1000, (1000,), True)]
        layer: Any = SimpleNamespace(weights=weights.copy(), gradients=gradients, parameters=whole)
        Optimizer(rule, Training()).update(layer, rate=1.0)
        return float(np.linalg.norm(layer.weights - weights))

    return length(times) / length(1.0)


def lars_step(weights: float, gradient: float, rate: float, trust: float = 1e-3) -> float:
    """Return the length of a first step under LARS, without weight decay."""
    return rate * (trust * weights / gradient) * gradient
