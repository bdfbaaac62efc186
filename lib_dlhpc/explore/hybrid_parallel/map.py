"""The map: every layout of N GPUs as tensor, pipeline and data, for a GPT on the machine of Megatron-LM."""

import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Annotated, Any, NamedTuple

from lib_dlhpc.costs import scale_of, segments
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, amount
from lib_dlhpc.explore.blocks.charts import State, columns
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.hybrid_parallel import background
from lib_dlhpc.explore.hybrid_parallel.background import Background, Compute, aside
from lib_dlhpc.explore.hybrid_parallel.charts import Way, best_of, terms_state, way_of
from lib_dlhpc.prediction import breakdown
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.spec.experiment import Experiment

seconds, size = amount("s"), amount("B")
TENSOR = (1, 2, 4, 8, 16)
DEEP, SHALLOW = (1, 4, 8, 12, 16, 24, 48, 96), (1, 2, 4, 8, 16, 32)  # stages on the map
COUNTS = (1, 2, 4, 8)
TERA = 1e12
BUBBLE = 0.15  # share of a step from which it is a wall
FAST, SLOW = (0xE5, 0xF2, 0xFA), (0x0B, 0x4F, 0x80)  # of the map, light to dark
LIGHT = 0.55  # from there on letters are white
LATER = "The best and the published layout are compared when all are computed."
COMING = ("…", "being computed")  # in a cell, and in full


class Publication(NamedTuple):
    """A run of Narayanan et al. 2021: its network, GPUs, batch, and layout; and the stages of its map."""

    row: str
    layers: int
    hidden: int
    heads: int
    gpus: int
    batch: int
    tensor: int
    pipeline: int
    microbatch: int
    stages: tuple[int, ...]

    @property
    def rate(self) -> float:
        """TFlop/s per GPU."""
        return float(results()[f"megatron21-{self.row}"]["value"])


# Tables 1 and 2 of Narayanan et al. 2021; the split of 18 B and 39 B is recalled, not read.
RUNS = {
    "GPT-3, 384 GPUs": Publication("ptd-174-384", 96, 12288, 96, 384, 1536, 8, 12, 1, DEEP),
    "GPT-3, 1,536 GPUs": Publication("ptd-174-1536", 96, 12288, 96, 1536, 1536, 8, 12, 1, DEEP),
    "39 B, 512 GPUs": Publication("39b", 48, 8192, 64, 512, 1536, 8, 2, 4, SHALLOW),
    "18 B, 256 GPUs": Publication("18b", 40, 6144, 48, 256, 1024, 8, 1, 4, SHALLOW),
}
FIRST = "GPT-3, 384 GPUs"
CALIBRATES = "39 B, 512 GPUs"  # from here to all others
ACTIVATIONS = {"recomputed": "full", "attention recomputed": "selective", "stored": "none"}
SCHEDULES = {"1F1B": "1f1b", "GPipe": "gpipe"}
NODE = 8  # GPUs of a node as published; of a tensor group, too
# Few tensor ranks, docs/limits.md: from 24 runs with 1, 2 or 4 tensor ranks.
FEW = "With fewer than 8 tensor ranks on several nodes, measured steps are predicted 3 to 40% too short."
INSIDE, STORED = "Linked inside; each has a NIC of its own", "Stored for backward, or recomputed"


class Ways(NamedTuple):
    """A run. microbatch: sequences of a microbatch; node: GPUs of a node."""

    run: Annotated[str, Dropdown("Run", "Network and GPUs", tuple(RUNS))] = FIRST
    microbatch: Annotated[int, Slider("Microbatch", "Sequences of a microbatch", COUNTS)] = 1
    node: Annotated[int, Slider("GPUs per node", INSIDE, COUNTS)] = 8
    recompute: Annotated[str, Dropdown("Activations", STORED, ACTIVATIONS)] = "full"
    schedule: Annotated[str, Dropdown("Schedule", "Of the microbatches", SCHEDULES)] = "1f1b"


def the_map(compute: Compute = aside, thread: Thread = threading.Thread) -> Background[Ways]:
    """Return the experiment: seconds of a step in every cell, the best and the published way beside each other.

    compute: what predicts the layouts of a setting; by default a process of its own.
    """
    charts = ["hybrid_map", "hybrid_terms"]
    fine = "The published layout fits, and no single term dominates."
    look = "where the hatching ends (memory), and which term grows from there to the right and downwards."
    return Background(Ways(), map_view, charts, fine, look, compute, thread)


def map_view(setting: Ways, ways: Sequence[Way], complete: bool) -> View:
    """Return what the layouts of a run show."""
    run = RUNS[setting.run]
    places = [(tensor, pipeline) for tensor in TENSOR for pipeline in run.stages]
    coming = places[len(ways) :]  # they are computed in this order
    cells = {"hybrid_map": cells_state(ways, (run.tensor, run.pipeline), coming)}
    if not complete:
        words = f"{len(ways)} of {len(places)} layouts are computed ..."
        bars = {} if ways else {"hybrid_terms": (terms_state({})[0], LATER)}
        return View(words, charts={**cells, **bars})
    charts = {**cells, "hybrid_terms": compared_view(setting, ways)}
    return View(map_words(setting, ways), map_wall(setting, ways), charts)


def ways_of(setting: Ways) -> background.Ways:
    """Yield all layouts of a run, predicted, row by row."""
    for tensor in TENSOR:
        for pipeline in RUNS[setting.run].stages:
            yield predicted(setting, tensor, pipeline)


def predicted(setting: Ways, tensor: int, pipeline: int) -> Way:
    """Return one layout, predicted."""
    try:
        return way_of(breakdown(experiment_of(setting, tensor, pipeline), slowness()))
    except SpecError as reason:
        return Way(tensor, pipeline, 1, 0, illegal=str(reason))


def experiment_of(setting: Ways, tensor: int, pipeline: int) -> Experiment:
    """Return the run in one layout. Raises SpecError where it is impossible."""
    run = RUNS[setting.run]
    data, left = divmod(run.gpus, tensor * pipeline)
    if left:
        raise SpecError(f"{run.gpus} GPUs are no multiple of {tensor} × {pipeline}")
    if run.heads % tensor:
        raise SpecError(f"{run.heads} heads cannot be split over {tensor}")
    many, left = divmod(run.batch, data * setting.microbatch)
    if left:
        what = f"{run.batch:,} sequences for {data} replicas"
        raise SpecError(f"{what}: no multiple of {setting.microbatch} each")
    split = {"tensor": tensor, "pipeline": pipeline, "batch": run.batch // data}
    how = {"microbatches": many, "recompute": setting.recompute, "schedule": setting.schedule}
    changes = {f"strategy.{name}": value for name, value in {**split, **how}.items()}
    return _base(setting.run, setting.node).set(changes)


@lru_cache(maxsize=32)
def _base(name: str, node: int) -> Experiment:
    run = RUNS[name]
    nodes = run.gpus // node
    network = {"family": "gpt", "layers": run.layers, "hidden": run.hidden, "heads": run.heads}
    how = {"precision": "fp16", "optimizer": "adam", "overlap": False, "batch": run.batch}
    return Experiment(
        model={**network, "sequence": 2048, "vocabulary": 51200, "dropout": 0.1},
        dataset="webtext",
        machine={"name": "selene", "devices_per_node": node, "nics": node, "nodes": nodes},
        strategy={"nodes": nodes, **how},
    )


@cache
def slowness() -> float:
    """Return the compute time of the run at 512 GPUs over that of the roofline."""
    run = RUNS[CALIBRATES]
    there = experiment_of(as_published(CALIBRATES), run.tensor, run.pipeline)
    step = published_step(CALIBRATES)
    return scale_of(step, lambda scale: float(breakdown(there, scale).step_time))


def published_step(name: str) -> float:
    """Return the seconds of a published step: its FLOP with recomputation, over FLOP/s."""
    run, model = RUNS[name], _base(name, 8).model
    again = sum(model.layer_forward_flop[s.first : s.stop].sum() for s in segments(model, "full"))
    return float(run.batch * (model.train_flop + again) / (run.rate * TERA * run.gpus))


def as_published(name: str) -> Ways:
    """Return the setting in which a run was published."""
    return Ways(name, RUNS[name].microbatch)


def published_of(setting: Ways, ways: Sequence[Way]) -> Way:
    """Return the published way among all."""
    run = RUNS[setting.run]
    return next(way for way in ways if way[:2] == (run.tensor, run.pipeline))


def cells_state(
    ways: Sequence[Way], published: tuple[int, int], coming: Sequence[tuple[int, int]] = ()
) -> State:
    """Return the chart "hybrid_map". published: tensor, pipeline; coming: the same of each way not computed yet."""
    best = best_of(ways)
    fitting = [way.seconds for way in ways if way.fits]
    low, high = min(fitting, default=1.0), max(fitting, default=1.0)
    cells = []
    for way in ways:
        shade = (way.seconds - low) / max(high - low, 1e-9) if way.fits else 0.0
        mixed = (round(a + shade * (b - a)) for a, b in zip(FAST, SLOW, strict=True))
        marks = ["best"] * (way == best) + ["published"] * (way[:2] == published)
        said = _cell_words(way)
        cells.append(
            {
                **_cell(way.tensor, way.pipeline, *said, ", ".join(marks)),
                "data": way.data or "",
                "fits": way.fits,
                "legal": not way.illegal,
                "color": f"#{bytes(mixed).hex()}",
                "ink": "white" if shade > LIGHT else "black",
            }
        )
    for place in coming:
        cells.append(_cell(*place, *COMING, "published" * (place == published)))
    data = {"cells": columns(cells)}
    if best is None:
        nothing = "Nothing fits: take more GPUs, or recompute activations."
        return data, nothing if ways else f"{len(coming)} layouts, being computed."
    order = "(tensor, pipeline, data)"
    was = [
        f"; published was {_layout(way)} {order}, {_cell_words(way)[1]}"
        for way in ways
        if way[:2] == published
    ]
    return data, (
        f"{len(fitting)} of {len(ways)} layouts fit. The fastest is {_layout(best)} {order},"
        f" {seconds(best.seconds)} per step{''.join(was)}."
    )


def _cell(tensor: int, pipeline: int, words: str, details: str, mark: str) -> dict[str, Any]:
    """Return a cell of a layout that has no time."""
    return {
        "tensor": tensor,
        "pipeline": pipeline,
        "data": "",
        "fits": False,
        "legal": False,
        "words": words,
        "short": words.split()[0],
        "details": f"tensor {tensor}, pipeline {pipeline}: {details}",
        "mark": mark,
        "color": "",
        "ink": "black",
    }


def _cell_words(way: Way) -> tuple[str, str]:
    """Return what stands in a cell, and the same in full."""
    if way.illegal:
        return "–", way.illegal
    need, has = size(way.memory), size(way.capacity)
    if way.fits:
        return seconds(way.seconds), f"{seconds(way.seconds)} per step with {need}"
    return f"✗ {need}", f"does not fit: a GPU needs {need} and has {has}"


def compared_view(setting: Ways, ways: Sequence[Way]) -> State:
    """Return the bars of the best way, the published one, and the two ends of the map."""
    fitting, best = [way for way in ways if way.fits], best_of(ways)
    chosen = {"best": best, "published": published_of(setting, ways)}
    if best:
        chosen["most stages"] = max(fitting, key=lambda way: (way.pipeline, -way.tensor))
        chosen["most tensor"] = max(fitting, key=lambda way: (way.tensor, -way.pipeline))
    there = {name: way for name, way in chosen.items() if way and way.parts}
    return terms_state({f"{n}: {w.tensor} × {w.pipeline}": w.terms for n, w in there.items()})


def map_words(setting: Ways, ways: Sequence[Way]) -> str:
    """Say which way is the best, and how near the prediction of the published one is."""
    best, there = best_of(ways), published_of(setting, ways)
    if best is None:
        return f"<b>None of {len(ways)} layouts fits.</b>"
    words = (
        f"<b>Best of {len(ways)} layouts: tensor {best.tensor} × pipeline {best.pipeline} × data {best.data},"
        f" {seconds(best.seconds)} per step.</b>"
    )
    if best.tensor < NODE:
        words += f" {FEW}"
    if there.illegal:
        return words
    gain = there.seconds / best.seconds - 1
    words += f" The published {_layout(there)} would take {seconds(there.seconds)}"
    if gain:
        words += f", {gain:.0%} more." if gain > 0 else ", and does not fit."
    else:
        words += ": it is the best."
    if setting != as_published(setting.run):
        return words
    real = published_step(setting.run)
    end = ", since this run was used to calibrate" if setting.run == CALIBRATES else ""
    return f"{words} It took {seconds(real)}: the prediction is off by {there.seconds / real - 1:+z.1%}{end}."


def map_wall(setting: Ways, ways: Sequence[Way]) -> str:
    """Say which wall the published layout meets, or nothing."""
    there = published_of(setting, ways)
    if there.illegal:
        return f"Arithmetic: {there.illegal}."
    if not there.fits:
        return (
            f"Memory: published as it was, a GPU needs {size(there.memory)} and has {size(there.capacity)};"
            f" {sum(way.fits for way in ways)} of {len(ways)} layouts fit. Recompute activations, store fewer"
            " microbatches (1F1B), or take smaller ones."
        )
    sums, bubble = there.terms["tensor allreduces"], there.terms["pipeline bubble"] / there.seconds
    if setting.node < there.tensor:
        return (
            f"The network: tensor groups of {there.tensor} span {there.tensor // setting.node} nodes; their allreduces"
            f" take {seconds(sums)}, {sums / there.seconds:.0%} of the step: two in every layer and pass."
        )
    if bubble > BUBBLE:
        many = RUNS[setting.run].batch // there.data // setting.microbatch
        return (
            f"The bubble: {bubble:.0%} of the step of the published layout. {many} microbatches are few for"
            f" {there.pipeline} stages."
        )
    return ""


def tensor_across() -> float:
    """Return how many times as long the published GPT-3 step takes with one GPU a node."""
    run = RUNS[FIRST]
    apart, together = (predicted(Ways(node=n), run.tensor, run.pipeline).seconds for n in (1, 8))
    return apart / together


def _layout(way: Way) -> str:
    return f"{way.tensor} × {way.pipeline} × {way.data}"
