"""Blocks of a network that are split alike: what was added for one is added for the next, in another place.

A deep network is a few blocks, many times. The rules of a split (tensor.py) read of a layer its likeness, how its
inputs are distributed, and what reads it: where these are those of an earlier block, so are its local layers.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, islice
from typing import NamedTuple

from lib_dlhpc.layout.graph import WORDS, Graph, RepeatedLayer, ShardSpec
from lib_dlhpc.spec.model import Layer, Model

Rule = Callable[[int, Layer], None]


class Block(NamedTuple):
    """Consecutive layers; reads: the outputs of others that they read; blocks with one likeness differ in names."""

    start: int
    stop: int
    reads: tuple[str, ...]
    likeness: Hashable


class _Made(NamedTuple):
    """What was added for a block: its local layers, and how its sources were converted.

    layers: of each its home in the block, and what follows the name of that in its own.
    """

    block: Block
    layers: tuple[tuple[Layer, int, str], ...]
    converted: tuple[tuple[tuple[str, str], ShardSpec], ...]


def add_in_blocks(graph: Graph, rule: Rule) -> None:
    """Add the local form of all layers of a graph's model by a rule; of blocks that are alike, as of the first."""
    known = dict[Hashable, _Made]()
    for block in blocks(graph.model):
        key = block.likeness, *[graph.distribution(name) for name in block.reads]
        if key in known:
            _repeat(graph, block, known[key])
            continue
        first, before = len(graph.layers), len(graph.converted)
        for home in range(block.start, block.stop):
            rule(home, graph.model.layers[home])
        # A conversion is named after its source, which other blocks do not have.
        if not any(" of " in layer.name for layer in graph.layers[first:]):
            new = tuple(islice(graph.converted.items(), before, None))
            known[key] = _Made(block, tuple(_added(graph, block, first)), new)


def _added(graph: Graph, block: Block, first: int) -> Iterator[tuple[Layer, int, str]]:
    """Yield the local layers from `first` on as in _Made."""
    for local, home in zip(graph.added(first), graph.homes[first:], strict=True):
        suffix = local.name.removeprefix(graph.model.layers[home].name)
        yield local, home - block.start, suffix


def _repeat(graph: Graph, block: Block, made: _Made) -> None:
    """Add what was added for a block, for another that is like it."""
    names, converted, held = dict[str, str](), graph.converted, graph.held
    own, old = (graph.model.layers[one.start : one.stop] for one in (block, made.block))
    for was, now in zip(made.block.reads, block.reads, strict=True):
        _name(graph, held[was].name, held[now].name, names)
    for local, home, suffix in made.layers:
        whole = own[home]
        name = names[local.name] = whole.name + suffix
        inputs = tuple([names[each] for each in local.inputs])
        of = whole if "whole" in local.attributes else None
        graph.place(RepeatedLayer(local, name, inputs, of), block.start + home)
    for (source, word), each in made.converted:
        converted[names[source], word] = each.called(names[each.name])
    for before, layer in zip(old, own, strict=True):
        there = held[before.name]
        held[layer.name] = there.called(names[there.name])


def _name(graph: Graph, old: str, new: str, names: dict[str, str]) -> None:
    """Name the output of a local layer, and all that it was converted into, after those of an earlier block."""
    names[old] = new
    for word in WORDS:
        if (found := graph.converted.get((new, word))) is not None:
            _name(graph, graph.converted[old, word].name, found.name, names)


@lru_cache(maxsize=16)
def blocks(model: Model) -> tuple[Block, ...]:
    """Return the blocks of a network, runs of layers with the same name up to the last dot; other layers alone."""
    layers, readers = model.layers, model.readers
    tied = {layer.attributes.get("tied") for layer in layers}
    found, start = list[Block](), 0
    for prefix, run in groupby(model.blocks):
        many = len([*run])
        for length in (many,) if prefix else (1,) * many:
            each = layers[start : start + length]
            found.append(_block(layers, start, each, readers, tied))
            start += length
    return tuple(found)


def _block(
    layers: tuple[Layer, ...],
    start: int,
    own: Sequence[Layer],
    readers: dict[str, list[int]],
    tied: set[str | None],
) -> Block:
    stop, inside = start + len(own), {layer.name: index for index, layer in enumerate(own)}
    reads = dict[str, int]()
    rows: list[Hashable] = []
    for layer in own:
        sources = [
            inside[name] if name in inside else ~reads.setdefault(name, len(reads))
            for name in layer.inputs
        ]
        # Readers in other blocks by their likeness, those of this one by their place.
        read_by = [
            number - start if number < stop else ~layers[number].likeness
            for number in readers.get(layer.name, ())
        ]
        rows.append((layer.likeness, layer.name in tied, *sources, "read by", *read_by))
    return Block(start, stop, tuple(reads), tuple(rows))
