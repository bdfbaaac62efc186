"""What a rank of a split network does for one microbatch: work and messages in turn, layer by layer.

Recomputation precedes backward, in one piece.
"""

from dataclasses import dataclass
from math import prod
from typing import NamedTuple, TypeAlias

from lib_dlhpc.costs import compute, groups
from lib_dlhpc.costs.stage import halo_elements, recomputed, regathered, routed_elements, stage_cost
from lib_dlhpc.layout import Part
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Layer

TALKING = ("all_reduce", "all_gather", "reduce_scatter")


class Work(NamedTuple):
    """Seconds of arithmetic, of one layer of the part or (-1) of recomputation."""

    seconds: float
    layer: int = -1


class Communication(NamedTuple):
    """Messages of a group: one of TALKING on `bytes` in all, or a halo."""

    group: str
    way: str
    bytes: float
    seconds: float  # in closed form
    pairs: tuple[tuple[int, int, float], ...] = ()  # of a halo: from, to (places in the group), B


Item: TypeAlias = Work | Communication


@dataclass(frozen=True)
class Program:
    """A part of the network, for one microbatch."""

    forward: tuple[Item, ...]
    backward: tuple[Item, ...]
    sends: float  # B to the next stage


def program(experiment: Experiment, part: Part, scale: float) -> Program:
    """Return what a rank does in one part; compute takes `scale` times the roofline."""
    strategy = experiment.strategy
    batch = strategy.batch / strategy.microbatches
    cost = stage_cost(experiment, part, batch, scale)
    size = float(batch * compute.BYTES[strategy.precision])
    forward: list[Item] = []
    backward: list[Item] = []
    # With overlap it is behind the work.
    twice = () if experiment.overlap else regathered(part.model, strategy.recompute)
    for number, (layer, ahead, back) in enumerate(
        zip(part.model.layers, cost.layer_forward, cost.layer_backward, strict=True)
    ):
        forward += [Work(float(ahead), number), *_communication(experiment, layer, "forward", size)]
        # Backward is gone through from its end.
        backward += [
            *_communication(experiment, layer, "backward", size),
            Work(float(back), number),
        ]
        backward += _communication(experiment, layer, "forward", size) if layer in twice else []
    again: list[Item] = [Work(float(cost.recomputation))]
    for layer, twice in zip(
        part.model.layers, recomputed(part.model, strategy.recompute), strict=True
    ):
        again += _communication(experiment, layer, "forward", size) if twice else []
    return Program(
        tuple(forward), (*again, *reversed(backward)), float(part.elements(part.sends) * size)
    )


def _communication(experiment: Experiment, layer: Layer, direction: str, size: float) -> list[Item]:
    if layer.kind == "exchange":
        whole = max(prod(layer.input_shape), prod(layer.output_shape)) * size
        return _exchange(experiment, layer.attributes["group"], layer.attributes[direction], whole)
    if layer.kind == "experts" and experiment.strategy.experts > 1:
        # To the experts and back; here both come after the layer's work.
        moved = routed_elements(layer) * size
        cost = groups.all_to_all(moved, groups.expert_network(experiment))
        exchange = Communication("experts", "all_to_all", moved, float(cost.total))
        return [exchange, exchange]
    if layer.kind == "halo" and not (direction == "backward" and layer.inputs == ("input",)):
        borrowed, lent = halo_elements(layer)
        pairs = _pairs(layer, direction, size)
        if pairs:
            cost = groups.halo_cost(experiment, borrowed * size, lent * size, 1)
            return [
                Communication("spatial", "halo", (borrowed + lent) * size, float(cost.total), pairs)
            ]
    return []


def _pairs(layer: Layer, direction: str, size: float) -> tuple[tuple[int, int, float], ...]:
    """Return who sends how many bytes to whom in a halo; backward they go home."""
    options = layer.attributes
    row = prod(layer.input_shape) / max(1, layer.input_shape[options["axis"]]) * size
    found = []
    for taker, wanted in enumerate(options["needed"]):
        has = options["owned"][taker]
        for giver, owned in enumerate(options["owned"]):
            if giver != taker:
                # What a rank has itself it never asks others for.
                rows = _overlap(wanted, owned) - _overlap(wanted, _common(owned, has))
                ends = (giver, taker) if direction == "forward" else (taker, giver)
                found += [(*ends, rows * row)] if rows > 0 else []
    return tuple(found)


def _common(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> int:
    start, stop = _common(one, other)
    return max(0, stop - start)


def _exchange(experiment: Experiment, group: str, way: str, whole: float) -> list[Item]:
    if way not in TALKING:
        return []
    net = groups.group_network(experiment, group)
    cost = groups.exchange_cost(way, whole, net, 1)
    return [Communication(group, way, whole, float(cost.total))]
