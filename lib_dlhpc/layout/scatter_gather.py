"""What tensor-parallel ranks send to the next stage of a pipeline: each its part of the positions.

All ranks of a tensor group hold the same output of a block. Each sends the positions of its own range to its peer in
the next stage, whose group gathers them inside its node; gradients return alike (Narayanan et al. 2021, "Efficient
Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 4.1). So a group sends one copy between
nodes, not one a rank. With sequence parallelism a rank holds its own positions only, and sends these as they are.
"""

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from lib_dlhpc.layout.cuts import bounds, even
from lib_dlhpc.layout.graph import Graph
from lib_dlhpc.spec.model import Layer

if TYPE_CHECKING:
    from lib_dlhpc.layout.part import Part

POSITIONS = 0  # axis of the positions in a sample of (positions, features)


def in_parts(part: "Part", graph: Graph) -> "Part":
    """Return a stage that sends and receives parts of what all ranks of its tensor group hold."""
    whole = graph.whole
    layers, names, received = [], dict[str, str](), list[Layer]()
    for layer in part.model.layers:
        if layer.kind == "receive" and _has_parts(layer, whole, graph.ranks):
            names[layer.name] = f"whole {layer.name}"
            received.append(_received(layer, graph))
            layers.append(_gathered(layer, names[layer.name], graph))
        elif layer.kind == "receive":
            received.append(layer)
        else:
            if not names.keys().isdisjoint(layer.inputs):
                inputs = tuple(names.get(name, name) for name in layer.inputs)
                layer = replace(layer, inputs=inputs)
            layers.append(layer)
    outputs = {layer.name: layer for layer in part.model.layers}
    sends = []
    for name in part.sends:
        if _has_parts(outputs[name], whole, graph.ranks):
            layers.append(_cut(outputs[name], names.get(name, name), graph))
            name = layers[-1].name
        sends.append(name)
    model = replace(part.model, layers=(*received, *layers))
    comes = tuple(layer.name for layer in received)
    return replace(part, model=model, receives=comes, sends=tuple(sends))


def _has_parts(layer: Layer, whole: frozenset[str], ranks: int) -> bool:
    """Return whether all ranks hold this output, and it has positions for each of them."""
    shape = layer.output_shape
    return layer.name in whole and len(shape) == 2 and shape[POSITIONS] >= ranks


def _part_shape(layer: Layer, graph: Graph) -> tuple[int, ...]:
    start, stop = even(layer.output_shape[POSITIONS], graph.ranks)[graph.rank]
    return (stop - start, *layer.output_shape[1:])


def _received(layer: Layer, graph: Graph) -> Layer:
    shape = _part_shape(layer, graph)
    return replace(
        layer, name=_sent(layer), input_shape=shape, output_shape=shape, stored=prod(shape)
    )


def _sent(layer: Layer) -> str:
    return f"part of {layer.name}"


def _gathered(layer: Layer, name: str, graph: Graph) -> Layer:
    """Return the layer that gathers a received output; its gradient is cut alike."""
    shapes = _part_shape(layer, graph), layer.output_shape
    return _exchange(name, _sent(layer), *shapes, ("all_gather", "slice"), graph)


def _cut(layer: Layer, source: str, graph: Graph) -> Layer:
    """Return the layer that cuts out what a rank sends; its gradient is gathered."""
    shapes = layer.output_shape, _part_shape(layer, graph)
    return _exchange(_sent(layer), source, *shapes, ("slice", "all_gather"), graph)


def _exchange(
    name: str,
    source: str,
    reads: tuple[int, ...],
    gives: tuple[int, ...],
    way: tuple[str, str],
    graph: Graph,
) -> Layer:
    attributes = {
        "group": graph.group,
        "forward": way[0],
        "backward": way[1],
        "axis": POSITIONS,
        "cuts": bounds(tuple(even(max(reads[0], gives[0]), graph.ranks))),
        "rank": graph.rank,
    }
    return Layer(
        name, "exchange", (source,), reads, gives, stored=prod(gives), attributes=attributes
    )
