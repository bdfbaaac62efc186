"""Wide expert parallelism: replicas of one device each hold a part of the experts, and send tokens to each other.

A group of g replicas computes all other layers for its own sequences (data-parallel attention). Of E experts and r
copies of some, a device holds (E + r) / g. All replicas of a group are taken to be alike, with n tokens each in a step:

    weights    of the device's experts, those that n g tokens choose at random: 1 - (1 - k/E)^(n g)
    products   n k rows; `imbalance` times as many on the device that the others wait for
    dispatch   n k copies of a token, one for each expert; of prompts one for each node, forwarded inside
    combine    as many results, in the precision of activations
    exchange   max of  latency + bytes to other nodes / NIC  and  latency + bytes inside a node / link

All messages of an exchange are in flight at once, as one-sided writes. So the latency counts once: rounds of a pairwise
or hierarchical all-to-all would make decoding wait for each of them. With two microbatches, of which each layer takes
a s beside the experts, e in them, d and c in dispatch and combine, one works while the other is at an exchange:

    max(a, d) + max(e, d) + max(e, c) + max(a, c)

Kernels that forward the copies of prompts occupy 20 of 132 multiprocessors meanwhile, so that arithmetic takes 132 /
112 as long; in decoding none are occupied.

Sources: DeepSeek-AI 2025, "DeepSeek-V3/R1 Inference System Overview" (deepseek-ai/open-infra-index at 56d8685); DeepEP,
docs/legacy.md at dd758ca, whose measured exchanges tests/serving/test_wide_experts.py compares; SGLang team 2025,
"Deploying DeepSeek with PD disaggregation and large-scale expert parallelism on 96 H100 GPUs", "Two-batch overlap";
DeepSeek-AI 2024, "DeepSeek-V3", sections 3.2.2 (20 multiprocessors) and 3.3.3 (scales of 4 bytes for 128 elements).
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from lib_dlhpc.costs.groups import Wire, wire_on
from lib_dlhpc.costs.low_precision import SENT
from lib_dlhpc.costs.network import joined
from lib_dlhpc.costs.overlapped_prices import MULTIPROCESSORS, SERVING
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.layers.base.copies import expected_places
from lib_dlhpc.serving.service import Service, Serving
from lib_dlhpc.spec.model import Layer, Model


def sharded(layers: Sequence[Layer], group: int, redundant: int) -> tuple[Layer, ...]:
    """Return the layers of one device of a group: its part of the experts, copies included; all of the others."""
    if group == 1:
        return tuple(layers)
    return tuple(_part(layer, group, redundant) if layer.has_experts else layer for layer in layers)


def _part(layer: Layer, group: int, redundant: int) -> Layer:
    experts = layer.attributes["experts"]
    held = (experts + redundant) // group
    attributes = {**layer.attributes, "own": (0, held), "gathered": True}
    return replace(layer, parameters=layer.parameters // experts * held, attributes=attributes)


def routed(model: Model, tokens: int, serving: Serving) -> Model:
    """Return the model with the experts that the tokens of a step choose at random: weights, starts and rows.

    tokens: of a replica; those of all its group choose.
    """
    if not model.has_experts:
        return model
    layers = (
        _chosen(layer, tokens, serving) if layer.has_experts else layer for layer in model.layers
    )
    return replace(model, layers=tuple(layers))


def _chosen(layer: Layer, tokens: int, serving: Serving) -> Layer:
    own = layer.attributes
    chosen = 1 - (1 - own["chosen"] / own["experts"]) ** (tokens * serving.experts)
    name = "served" if serving.experts == 1 else "own"
    first, stop = own.get(name, (0, own["experts"]))
    attributes = {**own, name: (first, first + ceil((stop - first) * chosen))}
    flop = layer.forward_flop
    if serving.experts > 1:
        attributes["routed"] = own["routed"] * serving.imbalance
        flop *= serving.imbalance
    parameters = round(layer.parameters * chosen)
    return replace(layer, parameters=parameters, forward_flop=flop, attributes=attributes)


OCCUPIED = MULTIPROCESSORS / (MULTIPROCESSORS - SERVING)
"""How many times as long arithmetic takes beside the exchange of prompts."""


class Exchanges:
    """The exchanges of tokens between the replicas of a group, on the machine of a service."""

    def __init__(self, service: Service, layers: Sequence[Layer], precision: str) -> None:
        group, machine = service.service.experts, service.machine
        wide = float(BYTES[precision])
        self.imbalance = service.service.imbalance
        self.sizes = (SENT if service.service.precision == "fp8" else wide), wide
        whole, _, _ = joined(machine, -(-group // machine.devices_per_node), 1)
        self.group, self.near = group, min(group, whole.devices_per_node)
        ends = whole.devices_per_node, whole.devices_per_node
        self.inside: Wire = wire_on(whole, True, *ends)
        self.across: Wire = wire_on(whole, False, *ends)
        self.layers = [layer for layer in layers if layer.has_experts]

    def seconds(self, tokens: int, prompts: bool) -> tuple[float, float]:
        """Return the seconds of dispatch and of combine in all layers, of `tokens` of each device."""
        there, home = (
            sum(self._of(layer, tokens, prompts, size) for layer in self.layers)
            for size in self.sizes
        )
        return there, home

    def alternating(self, work: float, experts: float, tokens: int, prompts: bool) -> float:
        """Return the seconds of two microbatches of `tokens` each; work, experts: of one, the latter a part of it."""
        rest = work - experts
        there, home = self.seconds(tokens, prompts)
        return max(rest, there) + max(experts, there) + max(experts, home) + max(rest, home)

    def _of(self, layer: Layer, tokens: int, prompts: bool, size: float) -> float:
        moved = self.imbalance * tokens * layer.output_shape[-1] * size
        nodes, peers = self.group / self.near, self.group - 1
        copies = self._copies(layer, prompts)
        far = moved * copies[0] * (1 - 1 / nodes)
        near = moved * copies[1] * ((self.near - 1) / (self.near if prompts else self.group))
        inside = self.inside.latency + near * self.inside.beta if peers else 0.0
        return max(inside, self.across.latency + far * self.across.beta if nodes > 1 else 0.0)

    def _copies(self, layer: Layer, prompts: bool) -> tuple[float, float]:
        """Return the copies of a token that cross nodes, its own among them, and those inside."""
        chosen = float(layer.attributes["chosen"])
        if not prompts:
            return chosen, chosen
        nodes = -(-self.group // self.near)
        return _places(layer, nodes), _places(layer, self.group)


def _places(layer: Layer, many: int) -> float:
    """Return to how many different of `many` devices or nodes the experts of a token are expected to be.

    Where these do not fit the groups of experts, any experts are equally probable.
    """
    own = layer.attributes
    experts, chosen, groups = own["experts"], own["chosen"], own["groups"]
    if experts % many == 0 and (groups % many == 0 or many % groups == 0):
        return expected_places(experts, chosen, groups, own["chosen_groups"] or groups, many)
    return many * (1 - (1 - 1 / many) ** chosen)
