"""Columns and sentences for the drawings of the lesson on split networks; see charts.py for their use."""

from collections.abc import Container, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.charts import State, append
from lib_dlhpc.explore.blocks.lines import Curves, line_columns, value_at
from lib_dlhpc.results import palette
from lib_dlhpc.results.palette import SERIES
from lib_dlhpc.spec.model import Layer
from lib_dlhpc.spec.units import format_quantity as show

# No causes of time, so the series' colors; dash and symbol distinguish the lines without them.
LINES = {
    "this machine": (SERIES[0], [1, 0], "circle"),
    "one node for all": (SERIES[2], [6, 3], "square"),
    "ideal": (SERIES[6], [2, 3], "diamond"),
    "column then row": (SERIES[0], [1, 0], "circle"),
    "columns twice": (SERIES[2], [6, 3], "square"),
    "rows twice": (SERIES[1], [2, 2], "triangle-up"),
    "GPipe and 1F1B": (SERIES[0], [1, 0], "circle"),
    "interleaved 2 chunks": (SERIES[2], [6, 3], "square"),
    "interleaved 3 chunks": (SERIES[1], [2, 2], "triangle-up"),
}
# Light and dark differ as well.
MEMORY = {"weights and their state": palette.BACKWARD, "activations": palette.FORWARD}
STAGE = {"forward": palette.FORWARD, "backward": palette.BACKWARD, "message on": palette.NEIGHBORS}
BYTES = 2  # of an element in bf16
WORDS = {
    "all_reduce": "sum",
    "all_gather": "gather",
    "reduce_scatter": "sum and slice",
    "slice": "slice",
    "none": "",
}
Floats = NDArray[Any]


def parts_state(
    every: Sequence[tuple[Layer, ...]], again: Container[str], rows: int, width: int, split: str
) -> State:
    """Who has what of X, A, Y, B and Z, by the layers of each rank, and which messages come in between.

    again: names of layers that gather once more for the gradients of weights.
    """
    layers = [{layer.name: layer for layer in own} for own in every]
    ranks, first = len(layers), every[0]
    one, two = (layer for layer in first if layer.kind == "dense")
    sizes = (
        ("X", rows, width),
        ("A", width, 4 * width),
        ("Y", rows, 4 * width),
        ("B", 4 * width, width),
        ("Z", rows, width),
    )
    holds = [
        _reads([own[one.name] for own in layers], width),
        _weights([own[one.name] for own in layers], sizes[1][1:]),
        _reads([own[two.name] for own in layers], 4 * width),
        _weights([own[two.name] for own in layers], sizes[3][1:]),
        (1, []),
    ]
    parts: dict[str, list[Any]] = {
        n: []
        for n in (
            "left",
            "right",
            "top",
            "bottom",
            "rank",
            "mine",
            "words",
            "ink",
            "details",
            "flat",
        )
    }
    names: dict[str, list[Any]] = {"x": [], "words": [], "size": []}
    said = []
    for number, ((name, height, across), (axis, ranges)) in enumerate(
        zip(sizes, holds, strict=True)
    ):
        left = number + 0.14
        append(names, x=left + 0.36, words=name, size=f"{height:,} × {across:,}")
        extent = (height, across)[axis]
        for rank, (start, stop) in enumerate(ranges or [(0, extent)]):
            a, b = start / extent, stop / extent
            mine = rank == 0
            word = str(rank) if ranges and ranks > 1 else "all"
            append(
                parts,
                left=left + 0.72 * a * axis,
                right=left + 0.72 * (b if axis else 1),
                top=0.0 if axis else a,
                bottom=1.0 if axis else b,
                rank=word,
                mine=mine,
                words=word,
                ink="white" if mine else "currentColor",
                flat=not axis,
                details=f"{name}: {'rank ' + word if ranges else 'every rank'} has"
                f" {'columns' if axis else 'rows'} {start:,} to {stop - 1:,}",
            )
        what = "all of it on every GPU" if not ranges else ("by columns" if axis else "by rows")
        said.append(f"{name} {what}")
    sent = _messages(first, again)
    places = zip(sent["said"], sent["before"], sent["after"], strict=True)
    sent_words = [f"{way} between {a} and {b}" for way, a, b in places]
    summary = f"Split {split} over {ranks} GPU{'s' * (ranks > 1)}: {', '.join(said)}."
    return {"parts": parts, "names": names, "messages": sent}, summary + (
        f" Messages: {'; '.join(sent_words)}." if sent_words else " No messages."
    )


def _reads(each: Sequence[Layer], whole: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the axis and the ranges of the columns that the ranks' products read; none if all of them."""
    if each[0].input_shape[-1] == whole:
        return 1, []
    edges = np.append(0, np.cumsum([layer.input_shape[-1] for layer in each])).tolist()
    return 1, list(pairwise(edges))


def _weights(each: Sequence[Layer], size: tuple[int, ...]) -> tuple[int, list[tuple[int, int]]]:
    """Return the axis and the ranges of the weights that the ranks have."""
    if "part" not in each[0].attributes:
        return 1, []
    axis = each[0].attributes["part"]["weight"][0]
    return axis, [layer.attributes["part"]["weight"][1][0] for layer in each]


def _messages(layers: Sequence[Layer], again: Container[str]) -> dict[str, list[Any]]:
    """Return the exchanges of a rank: the gap in the drawing at which they are, and what goes which way."""
    columns: dict[str, list[Any]] = {
        n: [] for n in ("x", "line", "words", "said", "size", "before", "after")
    }
    products = [k for k, layer in enumerate(layers) if layer.kind == "dense"]
    for k, layer in enumerate(layers):
        if layer.kind != "exchange":
            continue
        gap = 2 * sum(p < k for p in products) + 1
        # What gathers or sums Y is behind A where A's output is whole at once, else before B.
        own = layer.name.split(".")[0]
        of_next = own == layers[products[1]].name if len(products) > 1 else False
        if gap == 3 and not of_next:
            gap = 2
        gap = 4 if gap == 5 else gap
        both = [
            (way, arrow, WORDS[layer.attributes[way]])
            for way, arrow in (("forward", "→"), ("backward", "←"))
        ]
        if layer.name in again:
            both.append(("backward once more", "←", "gather"))
        for line, (way, arrow, word) in enumerate(both):
            if not word:
                continue
            size = max(prod(layer.input_shape), prod(layer.output_shape)) * BYTES
            sent = 0 if word == "cut" else size
            append(
                columns,
                x=float(gap),
                line=line,
                words=f"{arrow} {word}",
                size=sent,
                said=f"{way} {word}{', ' + show(sent, 'B') if sent else ', which is free'}",
                before="XAYBZ"[gap - 1],
                after="XAYBZ"[gap],
            )
    return columns


def products_state(gpus: Floats, lines: Mapping[str, Floats], now: int) -> State:
    """Seconds of both products over GPUs: on this machine, in a node large enough, and ideally."""
    curves = {name: (gpus, y) for name, y in lines.items()}
    columns, ends = line_columns(curves)
    here = lines["this machine"]
    best = int(gpus[int(np.argmin(here))])
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": ends,
        "now": value_at({"now:": curves["this machine"]}, now, lambda y: show(y, "s")),
    }
    return data, (
        f"{now} GPUs take {show(float(here[gpus == now][0]), 's')}; on this machine {best} are the fastest,"
        f" {show(float(here.min()), 's')}."
    )


def bytes_state(gpus: Floats, lines: Mapping[str, Floats], now: int, split: str) -> State:
    """Bytes that a GPU sends in a step over GPUs, for each way to split."""
    several = gpus > 1
    curves = {_plain(name): (gpus[several], y[several]) for name, y in lines.items()}
    columns, ends = line_columns(curves)
    marked = {"now:": curves[_plain(split)]}
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": ends,
        "now": value_at(marked, now, lambda y: show(y, "B")),
    }
    if now == 1:
        return data, "One GPU has nobody to send to."
    sizes = ", ".join(f"{name} {show(float(y[gpus == now][0]), 'B')}" for name, y in lines.items())
    return data, f"Of {now} GPUs each sends: {sizes}."


def kept_state(
    rest: Sequence[float], kept: Sequence[float], microbatches: Sequence[float], capacity: float
) -> State:
    """Bytes on each rank of a pipeline: what is always there, and what is stored for backward passes."""
    bars: dict[str, list[Any]] = {
        n: [] for n in ("rank", "term", "start", "stop", "size", "details")
    }
    over: dict[str, list[Any]] = {n: [] for n in ("rank", "start", "stop")}
    tops: dict[str, list[Any]] = {n: [] for n in ("rank", "y", "words")}
    for rank, (fixed, own, many) in enumerate(zip(rest, kept, microbatches, strict=True)):
        for term, start, stop in zip(MEMORY, (0.0, fixed), (fixed, fixed + own), strict=True):
            append(
                bars,
                rank=rank,
                term=term,
                start=start,
                stop=stop,
                size=show(stop - start, "B"),
                details=f"rank {rank}, {term}: {show(stop - start, 'B')}",
            )
        if fixed + own > capacity:
            append(over, rank=rank, start=capacity, stop=fixed + own)
        append(tops, rank=rank, y=fixed + own, words=f"{many:.3g}")
    largest = max(a + b for a, b in zip(rest, kept, strict=True))
    data: dict[str, dict[str, Any]] = {
        "bars": bars,
        "over": over,
        "tops": tops,
        "capacity": {"y": [capacity], "words": [f"{show(capacity, 'B')} there are"]},
        "room": {"y": [0.0, 1.12 * max(capacity, largest)]},
    }
    verdict = "fits" if largest <= capacity else "does not fit"
    return data, (
        f"The fullest GPU holds {show(largest, 'B')} of {show(capacity, 'B')}: it {verdict}. Rank 0 stores"
        f" {microbatches[0]:.3g} microbatches at once, the last rank {microbatches[-1]:.3g}."
    )


def bubble_state(lines: Curves, now: int, simulated: float) -> State:
    """The bubble over the work for each schedule over microbatches, and what was simulated."""
    there = {_plain(name): curve for name, curve in lines.items() if len(curve[0])}
    columns, ends = line_columns(there)
    data: dict[str, dict[str, Any]] = {
        "lines": columns,
        "ends": ends,
        "now": {
            "x": [now],
            "y": [simulated],
            "words": [f"simulated: {simulated:.1%}"],
            "dy": [-14],
        },
    }
    bubbles = [f"{name} {y[x == now][0]:.1%}" for name, (x, y) in there.items() if (x == now).any()]
    return (
        data,
        f"With {now} microbatches, predicted: {', '.join(bubbles)}; simulated {simulated:.1%}.",
    )


def stages_state(forward: Floats, backward: Floats, sends: Floats, layers: Sequence[str]) -> State:
    """Seconds of each stage for a microbatch, and of its message to the next."""
    bars: dict[str, list[Any]] = {
        n: [] for n in ("stage", "term", "start", "stop", "seconds", "layers", "details")
    }
    notes: dict[str, list[Any]] = {n: [] for n in ("stage", "stop", "words")}
    work = forward + backward
    slow, mean = int(work.argmax()), float(work.mean())
    for stage, words in enumerate(layers):
        edges = np.append(0.0, np.cumsum([forward[stage], backward[stage], sends[stage]]))
        for term, start, stop in zip(STAGE, edges[:-1], edges[1:], strict=True):
            if stop > start:
                append(
                    bars,
                    stage=f"stage {stage}",
                    term=term,
                    start=start,
                    stop=stop,
                    seconds=stop - start,
                    layers=words,
                    details=f"stage {stage} ({words}), {term}: {show(float(stop - start), 's')}",
                )
        if stage == slow:
            append(notes, stage=f"stage {stage}", stop=edges[-1], words="slowest")
    data: dict[str, dict[str, Any]] = {
        "bars": bars,
        "notes": notes,
        "mean": {"x": [mean], "words": [f"mean {show(mean, 's')}"]},
        "room": {"x": [0.0, 1.25 * float((work + sends).max())]},
    }
    return data, (
        f"Stage {slow} is the slowest: {show(float(work[slow]), 's')} a microbatch, where the mean is"
        f" {show(mean, 's')}. Its layers: {layers[slow]}."
    )


def cuts_state(places: tuple[Floats, Floats], cuts: Sequence[int], layers: Sequence[str]) -> State:
    """Bytes that each possible cut would send, by its place among the layers; and where it is cut."""
    at, size = places
    chosen = [int(cut) in set(cuts) for cut in at]
    words = [
        f"before {layers[int(cut)]}: {show(float(b), 'B')}" for cut, b in zip(at, size, strict=True)
    ]
    data: dict[str, dict[str, Any]] = {
        "places": {"x": at, "y": size, "chosen": chosen, "words": words, "floor": [0.0] * len(at)},
        "cuts": {
            "x": [int(c) for c in at[chosen]],
            "y": [float(b) for b in size[chosen]],
            "words": [show(float(b), "B") for b in size[chosen]],
        },
        "room": {"x": [0, len(layers)], "y": [0.0, 1.2 * float(size.max())]},
    }
    sent = ", ".join(show(float(b), "B") for b in size[chosen])
    return data, (
        f"The cuts send {sent} a microbatch. The least that any cut would send is {show(float(size.min()), 'B')},"
        f" the most {show(float(size.max()), 'B')}."
    )


def _plain(name: str) -> str:
    return name.replace(",", "")
