"""The same network split three ways on MPI ranks of this machine: its step, its terms, and the same loss.

The rate of a run on one rank is all that calibrates the predictions; its loss is what all other runs are
compared with.
"""

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import ipywidgets

from lib_dlhpc.explore.blocks.live_run import (
    Begin,
    Came,
    Train,
    live_run,
    one_step,
    ranks_in_words,
    with_rate,
)
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.blocks.three_ways import three_ways
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, workbench
from lib_dlhpc.launch.local import start
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show

WAYS = {
    "data": "samples (data)",
    "tensor": "every layer (tensor)",
    "pipeline": "the sequence of layers (pipeline)",
}
RANKS, MICROBATCHES = (1, 2, 4), (1, 2, 4, 8)
WIDTHS = [64, 384, 384, 384, 384, 384, 10]
QUICKEST = ("one rank alone", *WAYS.values())
BATCH, EPOCHS = 240, 6
SHOWN = 10  # the step on the chart: the first ones make connections and fill caches
LEAST = 1e-9  # s: a shorter term is rounding


class Setting(NamedTuple):
    """What the controls say: what is split, over how many ranks, and microbatches."""

    way: str = "pipeline"
    ranks: int = 1
    microbatches: int = 4


class Ran(NamedTuple):
    """What came out of a run: samples/s, and the mean loss of the last epoch."""

    rate: float
    loss: float


Runs = dict[Setting, Ran]


def experiment(setting: Setting) -> Experiment:
    """Return the run: a perceptron on digits, the same global batch in float64 however it is split."""
    whole = setting.ranks == 1
    shared: dict[str, Any] = {
        "nodes": 1,
        "devices_per_node": setting.ranks,
        "allreduce": "ring",
        "precision": "fp64",
        "schedule": "1f1b",
        "microbatches": 1 if whole else setting.microbatches,
        "batch": BATCH // setting.ranks if setting.way == "data" else BATCH,
    }
    if setting.way != "data":
        shared[setting.way] = setting.ranks
    return read_experiment(
        {
            "model": {"family": "mlp", "widths": WIDTHS},
            "dataset": "digits",
            "machine": "laptop",
            "strategy": shared,
            "run": {"epochs": EPOCHS},
            "training": {"rate": 0.05},
        }
    )


def quickest(setting: Setting) -> str:
    """Return which of QUICKEST has the shortest predicted step, on the catalog's laptop."""
    settings = [setting._replace(ranks=1), *(setting._replace(way=way) for way in WAYS)]
    times = [float(predict(experiment(each)).step_time) for each in settings]
    return QUICKEST[times.index(min(times))]


def split_here(begin: Begin = start, thread: Thread = threading.Thread) -> ipywidgets.Box:
    """Return controls, a button that trains, the step that was measured, and its terms three ways.

    begin: what starts the ranks. thread: in what they are watched.
    """
    controls = {
        "way": dropdown(
            "Split",
            "What the ranks divide among them",
            [(words, name) for name, words in WAYS.items()],
            "pipeline",
        ),
        "ranks": slider("Ranks", "One has it all", [(str(n), n) for n in RANKS], 1),
        "microbatches": slider(
            "Microbatches", "Parts of a rank's batch", [(str(n), n) for n in MICROBATCHES], 4
        ),
    }
    asked = ipywidgets.HTML()
    runs: Runs = {}

    def chosen() -> Setting:
        return Setting(**{name: control.value for name, control in controls.items()})

    def ask() -> None:
        asked.value = verdict_html(asked_words(chosen()))

    def work(setting: Setting, train: Train) -> Came:
        outcome, timeline = train(experiment(setting))
        runs[_key(setting)] = Ran(outcome["samples"] / outcome["seconds"], outcome["loss"])
        result = result_html(setting, outcome["terms"], runs)
        return Came(one_step(timeline, SHOWN), verdict_html(came_out(setting, runs)), result)

    note = "who is idle and why; and the loss, which must not depend on the split."
    return workbench(controls, [asked, *live_run(chosen, work, begin, thread)], ask, note)


def asked_words(setting: Setting) -> str:
    """Say what a click would train."""
    if setting.ranks == 1:
        return (
            f"1 rank with all {len(WIDTHS) - 1} layers and the whole batch of {BATCH}: what the others are"
            " compared with."
        )
    parts = f"{setting.microbatches} microbatch{'es' * (setting.microbatches > 1)}"
    return {
        "data": f"{setting.ranks} ranks with all layers and {BATCH // setting.ranks} samples each, in {parts}.",
        "tensor": f"{setting.ranks} ranks, each with a shard of every layer and all {BATCH} samples, in {parts}.",
        "pipeline": f"{setting.ranks} ranks, each with some layers; {BATCH} samples pass through in {parts}.",
    }[setting.way]


def came_out(setting: Setting, runs: Runs) -> str:
    """Say how fast the run was, and how far its loss is from that of one rank."""
    ran, alone = runs[_key(setting)], _alone(runs)
    rate = f"<b>{show(ran.rate, 'samples/s')}</b> on {ranks_in_words(setting.ranks)}; loss {ran.loss:.12f}"
    if alone is None or setting.ranks == 1:
        return f"{rate}."
    off = abs(ran.loss - alone.loss) / alone.loss
    return (
        f"{rate}, on one rank {alone.loss:.12f}: {f'they differ by {off:.0e} of it' if off else 'the same to the bit'}."
        f" {ran.rate / alone.rate:.2g} times as fast as one rank."
    )


def result_html(setting: Setting, measured: Mapping[str, float], runs: Runs) -> str:
    """Return the terms of this run three ways with errors, all runs so far, and why they differ."""
    alone = _alone(runs)
    if alone is None:
        return verdict_html(
            "Train on one rank as well: its rate is what the prediction starts from."
        )
    ways = three_ways(calibrated(setting, alone.rate), measured)
    lines = [["split", "ranks", "microbatches", "measured", "predicted", "error"]]
    for each, ran in sorted(runs.items()):
        if each.ranks == 1:
            lines.append(["nothing", "1", "", show(ran.rate, "samples/s"), "calibrates", ""])
            continue
        predicted = float(predict(calibrated(each, alone.rate)).throughput)
        said = [WAYS[each.way], str(each.ranks), str(each.microbatches)]
        rates = [show(ran.rate, "samples/s"), show(predicted, "samples/s")]
        lines.append([*said, *rates, f"{predicted / ran.rate - 1:+.0%}"])
    return (
        errors_html(ways)
        + table_html(lines)
        + verdict_html(
            "<b>Why they differ.</b> The prediction gives each rank a core of its own, knows the rate of whole"
            " batches, and nothing of the Python around each layer and message. Shards and microbatches"
            " shrink the arithmetic and not that overhead; ranks that share a core wait for it, which the trace"
            " counts as communication or waiting. A pipeline's bubble is the idle time that its own passes would have"
            " if messages were free; what is beyond that is communication. And a real run writes"
            " a snapshot after each epoch."
        )
    )


def errors_html(ways: Mapping[str, Mapping[str, float]]) -> str:
    """Return the terms that any of the ways has, with what the prediction is off by, as a table."""
    names = [
        name
        for name in ways["predicted"]
        if any(terms.get(name, 0.0) > LEAST for terms in ways.values())
    ]
    lines = [["time of one step", *ways, "predicted less measured"]]
    for name in [*names, "all"]:
        row = [
            sum(terms.values()) if name == "all" else max(0.0, terms.get(name, 0.0))
            for terms in ways.values()
        ]
        off = row[0] - row[-1]
        share = f" ({off / row[-1]:+.0%})" if row[-1] else ""
        sign = "−" if off < 0 else "+"
        lines.append([name, *(show(s, "s") for s in row), f"{sign}{show(abs(off), 's')}{share}"])
    return table_html(lines)


def calibrated(setting: Setting, rate: float) -> Experiment:
    """Return the run with the rate of one rank (samples/s) in the place of the catalog's laptop."""
    return with_rate(experiment(setting), rate)


def _key(setting: Setting) -> Setting:
    """One rank is one rank, whatever the other controls say."""
    return Setting("data", 1, 1) if setting.ranks == 1 else setting


def _alone(runs: Runs) -> Ran | None:
    return next((ran for each, ran in runs.items() if each.ranks == 1), None)
