"""Expert parallelism: the experts of a layer are sharded over replicas; positions are sent to their experts.

The replicas are neighbors in the data group (Lepikhin et al. 2020, "GShard"): `experts` consecutive replicas hold
all experts, an equal number each; the gradients of an expert are reduced over the replicas that hold it.
"""

from dataclasses import replace
from functools import lru_cache

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout.groups import group, place, shards, sizes
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.spec.strategy import BY_NODE, DIRECT


@lru_cache(maxsize=256)
def expert_layers(model: Model) -> tuple[Layer, ...]:
    """Return the layers whose experts can be sharded."""
    return tuple(layer for layer in model.layers if layer.has_experts)


def check_experts(experiment: Experiment) -> None:
    """Raise SpecError for experts that cannot be sharded so."""
    shared = int(experiment.strategy.experts)
    if shared == 1:
        return
    model, replicas = experiment.model, sizes(experiment).data
    layers = expert_layers(model)
    if not layers:
        raise SpecError(
            f"strategy.experts = {shared}: {model.name or 'the model'} has no experts; the legal value is 1."
        )
    if replicas % shared:
        raise SpecError(
            f"strategy.experts = {shared}: it must divide the {replicas} replicas, which share them out."
        )
    tensor = int(experiment.strategy.tensor)
    if experiment.strategy.expert_exchange != DIRECT:
        _check_copies(experiment, layers)
    for layer in layers:
        count = layer.attributes["experts"]
        # A tensor group serves them in equal parts, each by the same replicas.
        parts = shared * tensor if count >= tensor else shared
        if count % parts:
            over = f" times strategy.tensor = {tensor}" if parts > shared else ""
            raise SpecError(
                f"strategy.experts = {shared}{over}: it must divide the {count} experts of {layer.name}."
            )


def expert_nodes(experiment: Experiment) -> int:
    """Return over how many nodes, or domains of nodes, the ranks that share experts spread."""
    return -(-int(experiment.strategy.experts) // _replicas_near(experiment))


def _replicas_near(experiment: Experiment) -> int:
    """Return the replicas of a node, or of a domain of nodes."""
    s = experiment.strategy
    near = int(experiment.devices_per_node) * min(int(experiment.machine.domain), int(s.nodes))
    return max(1, near // (int(s.tensor) * int(s.spatial)))


def _check_copies(experiment: Experiment, layers: tuple[Layer, ...]) -> None:
    """Raise SpecError where the copies that devices and nodes get are not known."""
    s = experiment.strategy
    asked, places = f"strategy.expert_exchange = {s.expert_exchange!r}", {"devices": int(s.experts)}
    if s.tensor > 1:
        raise SpecError(f"{asked} with strategy.tensor = {s.tensor}: the legal value is 1.")
    if s.expert_exchange == BY_NODE:
        places["nodes"], near = expert_nodes(experiment), _replicas_near(experiment)
        if places["nodes"] > 1 and s.experts % near:
            raise SpecError(
                f"{asked} with strategy.experts = {s.experts}: they must fill nodes of {near} replicas, or be in one."
            )
    for layer in layers:
        groups = layer.attributes["groups"]
        for kind, many in places.items():
            if groups % many and many % groups:
                raise SpecError(
                    f"{asked}: the {groups} groups of {layer.name} and its {many} {kind}:"
                    " one number must divide the other."
                )


@lru_cache(maxsize=256)
def own_experts(
    model: Model, shared: int, place: int, imbalance: float, gathered: bool = False
) -> Model:
    """Return a model with only the experts of one rank, if `shared` replicas hold all; place: among them.

    Its counts are those of the busiest rank, with `imbalance` times the mean's positions: the others wait for it.
    gathered: whether the exchange itself copies positions to rows, and sums rows (one copy a device).
    """
    if not model.has_experts:
        return model
    layers = (
        _own(layer, shared, place, imbalance, gathered) if layer.has_experts else layer
        for layer in model.layers
    )
    return replace(model, layers=tuple(layers))


def _own(layer: Layer, shared: int, place: int, imbalance: float, gathered: bool) -> Layer:
    if shared == 1 and "served" not in layer.attributes:  # each rank has them all
        return layer
    attributes = dict(layer.attributes, routed=layer.attributes["routed"] * imbalance)
    if shared > 1:
        first, stop = layer.attributes.get("served", (0, layer.attributes["experts"]))
        many = (stop - first) // shared
        own = (first + place * many, first + (place + 1) * many)
        attributes |= {
            "own": own,
            "gathered": gathered,
            "part": dict.fromkeys(layer.traits.expert_parameters, (0, (own,))),
            "whole": layer.attributes.get("whole", layer),
        }
    return replace(
        layer,
        parameters=layer.parameters // shared,
        forward_flop=layer.forward_flop * imbalance,
        stored=round(layer.stored * imbalance),
        attributes=attributes,
    )


def mean_shards(experiment: Experiment, model: Model) -> float:
    """Return over how many replicas ZeRO shards the state of a rank's trained weights, in the harmonic mean.

    That of experts is sharded over the replicas that hold them, all other over all (Rajbhandari et al. 2022,
    "DeepSpeed-MoE", section 5.2).
    """
    many, shared = shards(experiment), int(experiment.strategy.experts)
    if many == 1 or shared == 1 or not model.trained:
        return float(many)
    theirs = sum(layer.trained for layer in model.layers if layer.has_experts)
    return model.trained * many / (model.trained - theirs + shared * theirs)


def expert_group(experiment: Experiment, rank: int) -> tuple[int, ...]:
    """Return the ranks that together with this one hold all experts, in order."""
    shared, data = int(experiment.strategy.experts), group(experiment, rank, "data")
    first = place(experiment, rank).data // shared * shared
    return data[first : first + shared]


def alike_group(experiment: Experiment, rank: int) -> tuple[int, ...]:
    """Return the ranks that have the same experts as this one, in order."""
    shared, data = int(experiment.strategy.experts), group(experiment, rank, "data")
    return data[place(experiment, rank).data % shared :: shared]
