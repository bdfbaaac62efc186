"""Spatial parallelism: each rank holds some rows of the images or slabs of the volumes, and all weights.

Before a convolution or a pool the ranks exchange halos, the rows beyond their own that its windows read
(Dryden et al. 2019, "Improving strong-scaling of CNN training by exploiting finer-grained parallelism",
section 3; Oyama et al. 2020). Where no rows are left, or fewer than ranks, the ranks all-gather the
output and compute the rest redundantly. A sample is cut along its first dimension of space.

Invariants: the gradient of a rank's rows is sharded alike; those of weights are reduced over the ranks up to the
all-gather, and are replicated after it.
"""

from functools import lru_cache
from typing import Any, TypeAlias

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout.cuts import Range, Ranges, even, length
from lib_dlhpc.layout.graph import WHOLE, Graph, ShardSpec
from lib_dlhpc.spec.model import Layer, Model

ROWS = 1  # axis of a sample (channels, rows, ...)
# By the likeness of a layer, and the rows of what it reads, the layers that were added for the first of its kind.
Known: TypeAlias = dict[tuple[Any, ...], list[Layer]]


@lru_cache(maxsize=16)  # stages, recomputation and microbatches leave it as it is
def split_space(model: Model, ranks: int, rank: int) -> Graph:
    """Return the graph of rank `rank` of `ranks` for a network of images or volumes.

    Raises SpecError if its samples have no space, or too few rows.
    """
    graph = Graph(model, "spatial", ranks, rank)
    graph.held["input"] = _samples(model, ranks)
    known = Known()
    for home, layer in enumerate(model.layers):
        _add(graph, home, layer, known)
    last = len(model.layers) - 1
    _whole(graph, last, model.layers[last].name)
    return graph


def rows_read(model: Model, ranks: int) -> tuple[Range, ...]:
    """Return which rows of a sample each rank reads: its own, and the halo of the first layer."""
    return tuple(each for (each,) in _samples(model, ranks).ranges)


def _samples(model: Model, ranks: int) -> ShardSpec:
    """Return the rows of the samples that each rank reads, halos included: reading costs no message."""
    shape = model.input_shape
    readers = [layer for layer in model.layers if "input" in layer.inputs]
    if len(shape) < 3 or any(_rows(layer) < ranks for layer in readers):
        raise SpecError(
            f"strategy.spatial = {ranks}: samples of shape {shape} cannot be cut into {ranks} parts; legal:"
            " up to the rows of the output of each layer that reads samples, of shape (channels, rows, ...)."
        )
    reads = [_needed(layer, ranks) for layer in readers]
    inside = [
        (max(0, min(a for a, _ in each)), min(shape[ROWS], max(b for _, b in each)))
        for each in zip(*reads, strict=True)
    ]
    return ShardSpec("input", shape, ROWS, tuple((each,) for each in inside))


def _add(graph: Graph, home: int, layer: Layer, known: Known) -> None:
    sources = [graph.held[name] for name in layer.inputs]
    rows = all(held.axis == ROWS for held in sources) and len(layer.output_shape) >= 3
    way = layer.traits.spatial if rows else ""
    key = (layer.likeness, *[source.ranges for source in sources])
    if way and key in known:
        graph.repeat(home, known[key])
        return
    start = len(graph.layers)
    if way == "windows" and _rows(layer) >= graph.ranks:
        _window(graph, home, layer, sources[0])
    elif way == "rows" and len({held.ranges for held in sources}) == 1:
        sources = [_own(graph, home, held) if held.name == "input" else held for held in sources]
        gives = ShardSpec("", layer.output_shape, ROWS, sources[0].ranges)
        graph.append(home, tuple(sources), gives, _share(graph, sources[0]), sums=True)
    else:
        inputs = tuple(_whole(graph, home, name) for name in layer.inputs)
        graph.append(home, inputs, ShardSpec("", layer.output_shape))
        return
    if "input" not in layer.inputs:
        known[key] = graph.added(start)


def _window(graph: Graph, home: int, layer: Layer, source: ShardSpec) -> None:
    """A convolution or a pool: the rows that it reads come first, so that it needs no padding there."""
    needed = _needed(layer, graph.ranks)
    reads = source
    if needed != tuple(each for (each,) in source.ranges):
        reads = _halo(graph, home, source, needed, layer.traits.padding_value)
    gives = ShardSpec("", layer.output_shape, ROWS, _even_rows(_rows(layer), graph.ranks))
    padding = (0, *layer.attributes["padding"][1:])
    graph.append(home, (reads,), gives, _share(graph, gives), sums=True, padding=padding)


def _halo(
    graph: Graph,
    home: int,
    source: ShardSpec,
    needed: tuple[Range, ...],
    padding_value: float = 0.0,
) -> ShardSpec:
    owned = tuple(each for (each,) in source.ranges)
    start, stop = needed[graph.rank]
    own = graph.local_shape(source)
    shape = (own[0], stop - start, *own[2:])
    attributes = {
        "group": graph.group,
        "axis": ROWS,
        "owned": owned,
        "needed": needed,
        "fill": padding_value,
        "rank": graph.rank,
    }
    elements = 1
    for extent in shape:
        elements *= extent
    name = f"{graph.model.layers[home].name}.halo"
    halo = Layer(name, "halo", (source.name,), own, shape, stored=elements, attributes=attributes)
    graph.place(halo, home)
    # Beyond the edge of the whole there is no such row: the shape says what the rank has.
    return ShardSpec(name, source.shape, ROWS, tuple((each,) for each in needed))


def _own(graph: Graph, home: int, samples: ShardSpec) -> ShardSpec:
    """Return the rank's own rows of the samples, without the halo that they were read with."""
    own = even(samples.shape[ROWS], graph.ranks)
    if own == tuple(each for (each,) in samples.ranges):
        return samples
    return _halo(graph, home, samples, own)


def _whole(graph: Graph, home: int, name: str) -> ShardSpec:
    """Return a layer's output such that every rank has all rows."""
    held = graph.held[name]
    if held.axis == WHOLE:
        return held
    if name == "input":
        held = _own(graph, home, held)
    gives = ShardSpec("", held.shape)
    backward = "none" if name == "input" else "slice"
    return graph.exchange(home, held, gives, "gather", "all_gather", backward, ROWS)


def _needed(layer: Layer, ranks: int) -> tuple[Range, ...]:
    """Return the input rows that each rank's outputs read; some may lie beyond the edge."""
    if layer.traits.spatial != "windows":
        return even(layer.input_shape[ROWS], ranks)
    kernel, stride, padding = (layer.attributes[key][0] for key in ("kernel", "stride", "padding"))
    return _windows(_rows(layer), ranks, kernel, stride, padding)


@lru_cache(maxsize=1024)  # most layers of a deep network have one of a few kernels
def _windows(rows: int, ranks: int, kernel: int, stride: int, padding: int) -> tuple[Range, ...]:
    return tuple(
        (start * stride - padding, (stop - 1) * stride - padding + kernel)
        for start, stop in even(rows, ranks)
    )


def _rows(layer: Layer) -> int:
    """Return the rows of a layer's output; 0 where it has no space."""
    return layer.output_shape[ROWS] if len(layer.output_shape) >= 3 else 0


@lru_cache(maxsize=1024)
def _even_rows(rows: int, ranks: int) -> tuple[Ranges, ...]:
    return tuple((each,) for each in even(rows, ranks))


def _share(graph: Graph, held: ShardSpec) -> float:
    return length(held.ranges[graph.rank]) / held.shape[ROWS]
