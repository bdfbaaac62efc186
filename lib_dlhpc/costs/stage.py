"""Cost of a part of a network for one microbatch on one rank: computation, and messages within the part.

Computation is the roofline of the rank's own layers (compute.py). Each communication layer is priced on the
network of its group (groups.py). Recomputation adds the forward pass of the recomputed layers (segments.py), with
their messages.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import compute, groups
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.costs.segments import segments
from lib_dlhpc.layout import Part
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Layer, Model

GROUPS = ("tensor", "spatial")


class Messages(NamedTuple):
    """The messages of one pass through a part, for one sample: the number of each collective, and elements in total."""

    exchanges: tuple[tuple[str, str, int, int], ...]  # group, collective, count, elements in total
    halos: tuple[int, int, int]  # layers, elements received, elements sent


@dataclass(frozen=True)
class StageCost:
    """Seconds of a part for one microbatch. Messages are by kind: "tensor" and "halo"."""

    forward: Any
    backward: Any
    recomputation: Any  # forward pass repeated in backward
    forward_messages: dict[str, Cost]
    backward_messages: dict[str, Cost]  # those of recomputation included
    hidden_messages: dict[str, Cost]  # overlapped with the backward pass
    layer_forward: NDArray[np.float64]  # (layers,)
    layer_backward: NDArray[np.float64]  # (layers,), without recomputation

    def message_time(self, messages: dict[str, Cost]) -> Any:
        """Return the total seconds of messages."""
        return sum(cost.total for cost in messages.values())

    @property
    def ahead(self) -> Any:
        """Seconds of a forward pass with its messages."""
        return self.forward + self.message_time(self.forward_messages)

    @property
    def back(self) -> Any:
        """Seconds of a backward pass with its messages and its recomputation."""
        return self.backward + self.recomputation + self.message_time(self.backward_messages)


def stage_cost(experiment: Experiment, part: Part, batch: Any, scale: Any) -> StageCost:
    """Return the cost of a part for a microbatch of `batch` samples; compute takes `scale` times the roofline."""
    strategy, model = experiment.strategy, part.model
    times = compute.layer_times(model, experiment.machine.device, batch, strategy.precision)
    repeated = recomputed(model, strategy.recompute)
    there, back, redone, regathered = messages(model, strategy.recompute)
    size = batch * compute.BYTES[strategy.precision]
    behind = _priced(experiment, regathered, size)
    backward = _merged(_priced(experiment, back, size), _priced(experiment, redone, size))
    routed = _routed(experiment, part, size)
    backward = _merged(backward, routed)
    if strategy.recompute == "full":
        backward = _merged(backward, routed)
    return StageCost(
        forward=scale * times.forward.sum(),
        backward=scale * times.backward.sum(),
        recomputation=scale * times.forward[repeated].sum(),
        forward_messages=_merged(_priced(experiment, there, size), routed),
        backward_messages=backward if experiment.overlap else _merged(backward, behind),
        hidden_messages=behind if experiment.overlap else {},
        layer_forward=scale * times.forward,
        layer_backward=scale * times.backward,
    )


@lru_cache(maxsize=256)
def recomputed(model: Model, recompute: str) -> NDArray[np.bool_]:
    """Return which layers the backward pass recomputes, shape (layers,)."""
    found = np.zeros(len(model.layers), dtype=bool)
    for segment in segments(model, recompute):
        found[segment.first : segment.stop] = True
    return found


@lru_cache(maxsize=256)
def messages(model: Model, recompute: str) -> tuple[Messages, Messages, Messages, Messages]:
    """Return the messages of a part: forward, backward, of recomputation, and of repeated all-gathers."""
    repeated = recomputed(model, recompute)
    repeats = [layer for layer, twice in zip(model.layers, repeated, strict=True) if twice]
    return (
        _messages(model.layers, "forward"),
        _messages(model.layers, "backward"),
        _messages(tuple(repeats), "forward"),
        _messages(tuple(regathered(model, recompute)), "forward"),
    )


@lru_cache(maxsize=256)
def regathered(model: Model, recompute: str) -> tuple[Layer, ...]:
    """Return the layers that all-gather the input of a product, and repeat it for the gradient of the weights.

    Only the shards are stored. The repeated all-gather overlaps the product for the gradient of the input
    (Korthikanti et al. 2022, section 4.2.2).
    """
    repeated = recomputed(model, recompute)
    return tuple(
        layer
        for layer, twice in zip(model.layers, repeated, strict=True)
        if not twice
        and layer.kind == "exchange"
        and (layer.attributes["forward"], layer.attributes["backward"])
        == ("all_gather", "reduce_scatter")
    )


def _messages(layers: tuple[Layer, ...], direction: str) -> Messages:
    found: dict[tuple[str, str, int], list[int]] = {}
    halos = [0, 0, 0]
    for layer in layers:
        if layer.kind == "exchange":
            way = layer.attributes[direction]
            whole = max(prod(layer.input_shape), prod(layer.output_shape))
            if way in ("all_reduce", "all_gather", "reduce_scatter"):
                # Counted by size: the size decides the algorithm.
                counted = found.setdefault((layer.attributes["group"], way, whole), [0, 0])
                counted[0] += 1
                counted[1] += whole
        elif layer.kind == "halo" and not (direction == "backward" and layer.inputs == ("input",)):
            borrowed, lent = halo_elements(layer)
            sent = bool(borrowed or lent)
            halos = [halos[0] + sent, halos[1] + borrowed, halos[2] + lent]
    return Messages(
        tuple((group, way, many, size) for (group, way, _), (many, size) in found.items()),
        (halos[0], halos[1], halos[2]),
    )


def halo_elements(layer: Layer) -> tuple[int, int]:
    """Return the elements of a sample that a rank receives and sends in a halo layer."""
    options = layer.attributes
    rank, owned, needed = options["rank"], options["owned"], options["needed"]
    row = prod(layer.input_shape) // max(1, layer.input_shape[options["axis"]])
    total = (min(start for start, _ in owned), max(stop for _, stop in owned))
    borrowed = _overlap(needed[rank], total) - _overlap(needed[rank], owned[rank])
    lent = sum(
        max(0, _overlap(owned[rank], wanted) - _overlap(_common(owned[rank], mine), wanted))
        for other, (wanted, mine) in enumerate(zip(needed, owned, strict=True))
        if other != rank
    )
    return row * borrowed, row * lent


def halo_pairs(layer: Layer, direction: str) -> tuple[tuple[int, int, float], ...]:
    """Return who sends how many elements to whom in a halo; backward they go home."""
    options = layer.attributes
    row = prod(layer.input_shape) / max(1, layer.input_shape[options["axis"]])
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


def share_of_experts(model: Model) -> float:
    """Return the share of a model's parameters that are those of experts."""
    own = sum(layer.parameters for layer in model.layers if layer.kind == "experts")
    return own / max(1, model.parameters)


def routed_elements(layer: Layer) -> int:
    """Return the elements of a sample that a rank sends to the experts of a layer; it receives as many."""
    return int(layer.attributes["chosen"] * prod(layer.output_shape))


def _routed(experiment: Experiment, part: Part, size: Any) -> dict[str, Cost]:
    """Return the cost of sending positions to their experts and back, in one pass (Lepikhin et al. 2020)."""
    shared = int(experiment.strategy.experts)
    layers = [layer for layer in part.model.layers if layer.kind == "experts"]
    if shared == 1 or not layers:
        return {}
    net = groups.expert_network(experiment)
    elements = sum(routed_elements(layer) for layer in layers)
    return {"experts": groups.all_to_all(2 * elements * size, net, 2 * len(layers))}


def _priced(experiment: Experiment, sent: Messages, size: Any) -> dict[str, Cost]:
    """Return the cost of messages by kind; `size`: bytes of an element of the microbatch."""
    total: dict[str, Cost] = {}
    for group, way, many, elements in sent.exchanges:
        net = groups.group_network(experiment, group)
        cost = groups.exchange_cost(way, elements * size, net, many)
        kind = "tensor" if group == "tensor" else "halo"
        total[kind] = total.get(kind, groups.NOTHING) + cost
    layers, borrowed, lent = sent.halos
    if borrowed or lent:
        net = groups.group_network(experiment, "spatial")
        cost = groups.halo_cost(net, max(borrowed, lent) * size, layers)
        total["halo"] = total.get("halo", groups.NOTHING) + cost
    return total


def _merged(one: dict[str, Cost], other: dict[str, Cost]) -> dict[str, Cost]:
    return {
        kind: one.get(kind, groups.NOTHING) + other.get(kind, groups.NOTHING)
        for kind in {**one, **other}
    }


def extra_reductions(model: Model) -> list[tuple[str, float]]:
    """Return the groups beside data over which gradients are reduced, each with the share of them that is."""
    found: dict[str, int] = {}
    for layer in model.layers:
        for group in layer.attributes.get("sum", ()):
            found[group] = found.get(group, 0) + layer.parameters
    return [(group, count / max(1, model.parameters)) for group, count in found.items()]
