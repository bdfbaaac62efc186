"""The map: every layout of N GPUs as tensor, pipeline and data, for a GPT on the machine of Megatron-LM.

the_map()       the experiment: seconds of a step in every cell, and why a cell is impossible
ways_of()       all of them, predicted one after another
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import ipywidgets

from lib_dlhpc.costs.segments import segments
from lib_dlhpc.costs.split_calibration import scale_of
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html
from lib_dlhpc.explore.hybrid_parallel.background import Compute, as_they_come, aside
from lib_dlhpc.explore.hybrid_parallel.charts import TERMS, Way, map_state, terms_state, way_of
from lib_dlhpc.prediction import breakdown
from lib_dlhpc.prediction.validate import results
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity

TENSOR = (1, 2, 4, 8, 16)
MICROBATCHES = (1, 2, 4, 8)
NODES = (1, 2, 4, 8)
TERA = 1e12
BUBBLE = 0.15  # share of a step from which it is a wall


class Publication(NamedTuple):
    """A run of Narayanan et al. 2021: layers, hidden, heads, GPUs, batch, and its layout."""

    row: str
    layers: int
    hidden: int
    heads: int
    gpus: int
    batch: int
    tensor: int
    pipeline: int
    microbatch: int
    stages: tuple[int, ...]  # to choose from on the map


# Tables 1 and 2 of Narayanan et al. 2021; the split of 18 B and 39 B is recalled, not read.
RUNS = {
    "GPT-3, 384 GPUs": Publication(
        "megatron21-ptd-174-384", 96, 12288, 96, 384, 1536, 8, 12, 1, (1, 4, 8, 12, 16, 24, 48, 96)
    ),
    "GPT-3, 1,536 GPUs": Publication(
        "megatron21-ptd-174-1536",
        96,
        12288,
        96,
        1536,
        1536,
        8,
        12,
        1,
        (1, 4, 8, 12, 16, 24, 48, 96),
    ),
    "39 B, 512 GPUs": Publication(
        "megatron21-39b", 48, 8192, 64, 512, 1536, 8, 2, 4, (1, 2, 4, 8, 16, 32)
    ),
    "18 B, 256 GPUs": Publication(
        "megatron21-18b", 40, 6144, 48, 256, 1024, 8, 1, 4, (1, 2, 4, 8, 16, 32)
    ),
}
FIRST = "GPT-3, 384 GPUs"
CALIBRATES = "39 B, 512 GPUs"  # from here to all others


class Ways(NamedTuple):
    """What the experiment sets. microbatch: sequences of a microbatch."""

    run: str = FIRST
    microbatch: int = 1
    node: int = 8  # GPUs of a node, each with a NIC
    recompute: str = "full"
    schedule: str = "1f1b"


def the_map(
    compute: Compute | None = None, thread: Callable[..., Any] = threading.Thread
) -> ipywidgets.Box:
    """Return the experiment: the map, and the best and the published way beside each other.

    compute: what predicts the layouts of a setting; by default a process of its own.
    """
    controls = {
        "run": dropdown("Run", "Network and GPUs", [(name, name) for name in RUNS], FIRST),
        "microbatch": slider(
            "Microbatch", "Sequences of a microbatch", [(str(n), n) for n in MICROBATCHES], 1
        ),
        "node": slider(
            "GPUs a node",
            "Linked inside; each has a NIC of its own",
            [(str(n), n) for n in NODES],
            8,
        ),
        "recompute": dropdown(
            "Activations",
            "Stored for backward, or recomputed",
            [("recomputed", "full"), ("attention recomputed", "selective"), ("stored", "none")],
            "full",
        ),
        "schedule": dropdown(
            "Schedule", "Of the microbatches", [("1F1B", "1f1b"), ("GPipe", "gpipe")], "1f1b"
        ),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    ways, bars = chart("hybrid_map"), chart("hybrid_terms")

    def setting() -> Ways:
        return Ways(**{name: control.value for name, control in controls.items()})

    def draw(chosen: Ways, found: list[Way], all_of_them: bool) -> None:
        run = RUNS[chosen.run]
        ways.update(*map_state(found, best_of(found), (run.tensor, run.pipeline)))
        words = map_words(chosen, found) if all_of_them else progress(chosen, found)
        verdict.value = f'<p class="dlhpc-verdict" role="status">{words}</p>'
        if all_of_them:
            bars.update(*compared_view(chosen, found))
            wall.value = wall_html(
                map_wall(chosen, found), "The published layout fits, and no single term dominates."
            )

    note = "where the hatching ends (memory), and which term grows from there to the right and downwards."
    results = [verdict, wall, ways, bars]
    return as_they_come(controls, results, setting, compute or aside("map"), draw, note, thread)


def experiment_of(setting: Ways, tensor: int, pipeline: int) -> Experiment:
    """Return the run in one layout. Raises SpecError where it is impossible."""
    run = RUNS[setting.run]
    data, left = divmod(run.gpus, tensor * pipeline)
    if left:
        raise SpecError(f"{run.gpus} GPUs are no multiple of {tensor} × {pipeline}")
    if run.heads % tensor:
        raise SpecError(f"{run.heads} heads cannot be split over {tensor}")
    batch = run.batch / data
    many = batch / setting.microbatch
    if many != int(many):
        raise SpecError(
            f"{run.batch:,} sequences for {data} replicas: no multiple of {setting.microbatch} each"
        )
    return _base(setting.run, setting.node).set(
        {
            "strategy.tensor": tensor,
            "strategy.pipeline": pipeline,
            "strategy.batch": int(batch),
            "strategy.microbatches": int(many),
            "strategy.recompute": setting.recompute,
            "strategy.schedule": setting.schedule,
        }
    )


@lru_cache(maxsize=32)
def _base(name: str, node: int) -> Experiment:
    run = RUNS[name]
    network = {
        "family": "gpt",
        "layers": run.layers,
        "hidden": run.hidden,
        "heads": run.heads,
        "sequence": 2048,
        "vocabulary": 51200,
        "dropout": 0.1,
    }
    nodes = run.gpus // node
    return read_experiment(
        {
            "model": network,
            "dataset": "webtext",
            "machine": {"name": "selene", "devices_per_node": node, "nics": node, "nodes": nodes},
            "strategy": {
                "nodes": nodes,
                "precision": "fp16",
                "optimizer": "adam",
                "overlap": False,
                "batch": run.batch,
            },
        }
    )


@cache
def slowness() -> float:
    """Return the compute time of the run at 512 GPUs over that of the roofline."""
    setting, run = Ways(CALIBRATES, RUNS[CALIBRATES].microbatch), RUNS[CALIBRATES]
    there = experiment_of(setting, run.tensor, run.pipeline)
    return scale_of(
        published_step(CALIBRATES), lambda scale: float(breakdown(there, scale).step_time)
    )


def published_step(name: str) -> float:
    """Return the seconds of a published step: its FLOP with recomputation, over FLOP/s."""
    run = RUNS[name]
    model = _base(name, 8).model
    again = sum(model.layer_forward_flop[s.first : s.stop].sum() for s in segments(model, "full"))
    rate = float(results()[run.row]["value"]) * TERA * run.gpus
    return float(run.batch * (model.train_flop + again) / rate)


def ways_of(setting: Ways) -> Iterator[Way]:
    """Yield all ways of a run, predicted, row by row."""
    for tensor in TENSOR:
        for pipeline in RUNS[setting.run].stages:
            yield predicted(setting, tensor, pipeline)


def predicted(setting: Ways, tensor: int, pipeline: int) -> Way:
    """Return one layout, predicted."""
    try:
        there = experiment_of(setting, tensor, pipeline)
        return way_of(breakdown(there, slowness()))
    except SpecError as reason:
        return Way(tensor, pipeline, 1, 0, illegal=str(reason))


def best_of(ways: Sequence[Way]) -> Way | None:
    """Return the fastest way that fits."""
    fitting = [way for way in ways if way.fits]
    return min(fitting, key=lambda way: way.seconds, default=None)


def compared_view(setting: Ways, ways: Sequence[Way]) -> State:
    """Return the columns of the bars: the best way, the published one, and the two ends of the map."""
    fitting, there = [way for way in ways if way.fits], published_of(setting, ways)
    chosen = {"published": there} if there.parts else {}
    best = best_of(ways)
    if best:
        chosen = {"best": best, **chosen}
        chosen["most stages"] = max(fitting, key=lambda way: (way.pipeline, -way.tensor))
        chosen["most tensor"] = max(fitting, key=lambda way: (way.tensor, -way.pipeline))
    rows = {
        f"{name}: {way.tensor} × {way.pipeline}": dict(zip(TERMS, way.parts, strict=True))
        for name, way in chosen.items()
    }
    return terms_state(rows)


def published_of(setting: Ways, ways: Sequence[Way]) -> Way:
    """Return the published way among all."""
    run = RUNS[setting.run]
    return next(way for way in ways if way[:2] == (run.tensor, run.pipeline))


def progress(setting: Ways, ways: Sequence[Way]) -> str:
    """Say how much is computed."""
    return f"{len(ways)} of {len(TENSOR) * len(RUNS[setting.run].stages)} layouts are computed ..."


def map_words(setting: Ways, ways: Sequence[Way]) -> str:
    """Say which way is the best, and how near the prediction of the published one is."""
    best, there = best_of(ways), published_of(setting, ways)
    if best is None:
        return f"<b>None of {len(ways)} layouts fits.</b>"
    words = (
        f"<b>Best of {len(ways)} layouts: tensor {best.tensor} × pipeline {best.pipeline} × data {best.data},"
        f" {_time(best.seconds)} a step.</b>"
    )
    if there.illegal:
        return words
    gain = there.seconds / best.seconds - 1
    words += (
        f" The published {there.tensor} × {there.pipeline} × {there.data} would take {_time(there.seconds)}"
        + (
            f", {gain:.0%} more."
            if gain > 0
            else ", and does not fit."
            if gain < 0
            else ": it is the best."
        )
    )
    if setting == as_published(setting.run):
        real = published_step(setting.run)
        words += (
            f" It took {_time(real)}: the prediction is off by {there.seconds / real - 1:+.1%}"
            + (", since this run was used to calibrate." if setting.run == CALIBRATES else ".")
        )
    return words


def as_published(name: str) -> Ways:
    """Return the setting in which a run was published."""
    return Ways(name, RUNS[name].microbatch)


def map_wall(setting: Ways, ways: Sequence[Way]) -> str:
    """Say which wall the published layout meets, or nothing."""
    there = published_of(setting, ways)
    if there.illegal:
        return f"Arithmetic: {there.illegal}."
    if not there.fits:
        return (
            f"Memory: published as it was, a GPU needs {_size(there.memory)} and has {_size(there.capacity)};"
            f" {sum(way.fits for way in ways)} of {len(ways)} layouts fit. Recompute activations, store fewer"
            " microbatches (1F1B), or take smaller ones."
        )
    parts = dict(zip(TERMS, there.parts, strict=True))
    sums, bubble = (
        parts[name] / there.seconds for name in ("tensor allreduces", "pipeline bubble")
    )
    if setting.node < there.tensor:
        return (
            f"The network: tensor groups of {there.tensor} span {there.tensor // setting.node} nodes; their allreduces"
            f" take {_time(parts['tensor allreduces'])}, {sums:.0%} of the step: two in every layer and pass."
        )
    if bubble > BUBBLE:
        many = RUNS[setting.run].batch // there.data // setting.microbatch
        return (
            f"The bubble: {bubble:.0%} of the step of the published layout. {many} microbatches are few for"
            f" {there.pipeline} stages."
        )
    return ""


def tensor_across(node: int = 1) -> float:
    """Return how many times as long the published GPT-3 step takes with `node` GPUs a node."""
    run = RUNS[FIRST]
    apart, together = (predicted(Ways(node=n), run.tensor, run.pipeline).seconds for n in (node, 8))
    return apart / together


def _time(seconds: Any) -> str:
    return format_quantity(float(seconds), "s")


def _size(count: Any) -> str:
    return format_quantity(float(count), "B")
