"""A part layer after layer: forward in order, backward from the end, each layer with its communication."""

from functools import lru_cache
from math import prod
from typing import NamedTuple

from lib_dlhpc.costs.exchanges import halo_elements, halo_pairs, regathered, routed_elements
from lib_dlhpc.costs.groups import GOALS
from lib_dlhpc.layers.base.copies import copies
from lib_dlhpc.layout import Part, expert_nodes
from lib_dlhpc.parallel.context import with_context
from lib_dlhpc.parallel.groups import FAR, NEAR
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Collective, Compute, Instruction, Wait
from lib_dlhpc.program.instructions import NARROW, SAMPLES
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Layer
from lib_dlhpc.spec.strategy import BY_NODE, DIRECT, FP8, SAME

FORWARDED = "the expert exchange in a node"


def layer_by_layer(experiment: Experiment, part: Part) -> Passes:
    """Return the passes of a part without any other kind of parallelism than its own layers have.

    A product's all-gathered input is gathered once more in backward; with overlap that is hidden (Korthikanti et
    al. 2022, section 4.2.2).
    """
    passes, shared = Passes(part), sharing(experiment)
    again = {layer.name for layer in regathered(part.model, experiment.strategy.recompute)}
    numbered = [*enumerate(part.model.layers)]
    after = dict[tuple[int, str, bool], list[Collective] | None]()  # of layers that are alike

    def add(to: list[Instruction], number: int, layer: Layer, direction: str) -> None:
        key = layer.likeness, direction, layer.inputs == ("input",)
        if key not in after:
            after[key] = communication(layer, direction) if computes_alone(layer, shared) else None
        if (messages := after[key]) is None:
            to += one_layer(number, layer, direction, shared)
        else:
            to.append(computed(number, direction))
            to += messages

    for number, layer in numbered:
        add(passes.forward, number, layer, "forward")
    for number, layer in reversed(numbered):
        if layer.name in again:
            twice = passes.hidden if experiment.overlap else passes.backward
            twice += communication(layer, "forward")
        add(passes.backward, number, layer, "backward")
    passes.last = list(passes.backward)
    return passes


class Sharing(NamedTuple):
    """Over how many ranks experts are sharded, in which format positions travel to them, and how."""

    ranks: int = 1
    there: str = SAMPLES
    once: bool = False  # each rank gets one copy of a position; else each expert its own
    nodes: int = 1  # of several each gets one, too, which is forwarded inside


AT_HOME = Sharing()


def sharing(experiment: Experiment) -> Sharing:
    """Return how the ranks of an experiment share its experts."""
    s = experiment.strategy
    nodes = expert_nodes(experiment) if s.expert_exchange == BY_NODE else 1
    there = SAMPLES if s.expert_wire == SAME else NARROW
    return Sharing(int(s.experts), there, s.expert_exchange != DIRECT, nodes)


def computes_alone(layer: Layer, experts: Sharing) -> bool:
    """Return whether no rank exchanges around a layer's computation, but after it."""
    shares = layer.has_experts and experts.ranks > 1
    return "context" not in layer.attributes and not shares


def one_layer(number: int, layer: Layer, direction: str, experts: Sharing) -> list[Instruction]:
    """Return a layer's computation in one direction, with its collectives.

    Positions, and in backward their gradients, are sent to the experts before their work and home after it (Lepikhin
    et al. 2020, "GShard", section 3.2).
    """
    work = computed(number, direction)
    if computes_alone(layer, experts):
        return [work, *communication(layer, direction)]
    if "context" in layer.attributes:
        return with_context(layer, work)
    if experts.nodes > 1:
        ways = enumerate((experts.there, SAMPLES))
        there, home = (
            _by_node(layer, f"{direction} {number}.{n}", content, experts) for n, content in ways
        )
        return [*there, work, *home]
    sent = copies(layer, experts.ranks) if experts.once else routed_elements(layer)
    routed = Collective("experts", "experts", "all_to_all", sent)
    return [routed._replace(content=experts.there), work, routed]


def _by_node(layer: Layer, key: str, content: str, experts: Sharing) -> list[Instruction]:
    """Return the exchange of positions of which each node gets one copy, while those before are forwarded inside.

    Both levels are busy at once (DeepSeek-AI 2024, section 3.2.2); each device's copy passes the links of a node.
    """
    far = Collective("experts", FAR, "all_to_all", copies(layer, experts.nodes), content)
    if experts.ranks == experts.nodes:
        return [far]
    inside = copies(layer, experts.ranks)
    near = Collective("experts", NEAR, "all_to_all", inside, content, NEAR, key, label=FORWARDED)
    return [near, far, Wait("experts", NEAR, key, FORWARDED)]


# Passes have much in common: what is equal in them is one object.
computed = lru_cache(maxsize=1 << 14)(Compute)
_exchanged = lru_cache(maxsize=1 << 12)(Collective)


def communication(layer: Layer, direction: str) -> list[Collective]:
    """Return the collectives of a communication layer in one direction.

    What a product in fp8 reads is cast before it is gathered: its input, and in backward the gradient of its output.
    """
    if layer.kind == "exchange":
        group, way = layer.attributes["group"], layer.attributes[direction]
        whole = max(prod(layer.input_shape), prod(layer.output_shape))
        kind = "tensor" if group == "tensor" else "halo"
        if way == "log_softmax":  # of each position its largest logit, and the sum of exponentials
            return [_exchanged(kind, group, "allreduce", prod(layer.output_shape[:-1]))] * 2
        of = NARROW if layer.narrow == FP8 and way == "all_gather" else SAMPLES
        return [_exchanged(kind, group, GOALS[way], whole, of)] if way in GOALS else []
    if layer.kind == "halo" and not (direction == "backward" and layer.inputs == ("input",)):
        pairs = halo_pairs(layer, direction)
        if pairs:
            most = max(halo_elements(layer))
            return [Collective("halo", "spatial", "halo", most, pairs=pairs)]
    return []
