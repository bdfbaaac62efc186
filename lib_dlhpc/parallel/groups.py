"""Which ranks of a stage exchange with each other, and over which network."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from lib_dlhpc.costs import groups
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import Part, expert_nodes, in_step_replicas, shards, sizes
from lib_dlhpc.parallel.ramps import met
from lib_dlhpc.program import Group
from lib_dlhpc.schedules.network import flat
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import BY_NODE

OF_WEIGHTS = "data", "alike", "shards", "copies"
FAR, NEAR = "experts, between nodes", "experts, in a node"


def groups_of(experiment: Experiment) -> dict[str, Group]:
    """Return the groups of a scalar experiment by name; experiments with the same ranks have the same."""
    return _groups_of(_keyed(experiment))


def groups_of_stages(
    experiment: Experiment, stages: Sequence[Sequence[Part]]
) -> tuple[dict[str, Group], ...]:
    """Return the same of each stage, with networks for the groups of that stage; the same objects where these lie
    alike. stages: the parts of each, whose gradients may meet those of others."""
    key = _keyed(experiment)
    if len(stages) == 1 or _lie_alike(key):
        return (_groups_of(key),) * len(stages)
    sent = tuple(float(sum(part.model.trained for part in parts)) for parts in stages)
    return _groups_of_stages(key, sent, met(experiment.strategy))


def lie_apart(experiment: Experiment) -> bool:
    """Return whether groups of different stages lie differently on nodes or switches."""
    return bool(experiment.strategy.pipeline > 1) and not _lie_alike(_keyed(experiment))


def _keyed(experiment: Experiment) -> Keyed[Experiment]:
    s, share = experiment.strategy, float(experiment.calibration.link_efficiency)
    nodes = expert_nodes(experiment) if s.expert_exchange == BY_NODE else 1
    numbers = map(int, (s.nodes, experiment.devices_per_node, s.experts, s.context, nodes))
    size, shard_count = sizes(experiment), shards(experiment)
    # The number of replicas over which state is sharded; 1 if over all.
    spacing = shard_count if shard_count < size.data else 1
    return Keyed(experiment, id(experiment.machine), share, size, spacing, *numbers)


@lru_cache(maxsize=512)
def _lie_alike(key: Keyed[Experiment]) -> bool:
    stage_groups = _groups_of(key).values()
    return all(groups.lie_alike(key.value, group.size, group.stride) for group in stage_groups)


@lru_cache(maxsize=512)
def _groups_of_stages(
    key: Keyed[Experiment], sent: tuple[float, ...], meets: tuple[float, ...]
) -> tuple[dict[str, Group], ...]:
    """meets: which part of what another stage sends meets what a stage sends, by their distance; (): all."""
    stages, known = [], dict[tuple[int, ...], dict[str, Group]]()
    for place in range(len(sent)):
        own = dict[str, Group]()
        weighed = _weighed(sent, place, meets) if meets else sent
        for name, group in _groups_of(key).items():
            beside = weighed if name in OF_WEIGHTS else ()
            net = groups.spread(key.value, group.size, group.stride, place, beside)
            own[name] = replace(group, network=net)
        stages.append(known.setdefault(tuple(id(group.network) for group in own.values()), own))
    return tuple(stages)


def _weighed(sent: tuple[float, ...], place: int, meets: tuple[float, ...]) -> tuple[float, ...]:
    """Return what each stage sends while the one at a place does."""
    most = sent[place]
    parts = (meets[abs(other - place)] if other != place else 1.0 for other in range(len(sent)))
    return tuple(min(each, most) * part for each, part in zip(sent, parts, strict=True))


@lru_cache(maxsize=512)
def _groups_of(key: Keyed[Experiment]) -> dict[str, Group]:
    experiment = key.value
    _, data, spatial, tensor = sizes(experiment)
    shape, shared = (data, spatial, tensor), int(experiment.strategy.experts)
    found = {
        kind: Group(shape, axis, groups.group_network(experiment, kind))
        for axis, kind in enumerate(("data", "spatial", "tensor"))
    }
    blocks: tuple[int, ...] = (data // shared, shared, spatial, tensor)
    found["experts"] = Group(blocks, 1, groups.expert_network(experiment))
    found["alike"] = Group(blocks, 0, groups.alike_network(experiment))  # the same experts
    if experiment.strategy.expert_exchange == BY_NODE:
        nodes = expert_nodes(experiment)
        blocks = (data // shared, nodes, shared // nodes, spatial, tensor)
        both = groups.expert_networks(experiment, nodes)
        found[FAR], found[NEAR] = Group(blocks, 1, both[0]), Group(blocks, 2, both[1])
    context = int(experiment.strategy.context)
    blocks = (data // context, context, spatial, tensor)
    found["context"] = Group(blocks, 1, groups.context_network(experiment))
    shard_count = shards(experiment)
    if 1 < shard_count < data:
        blocks = (data // shard_count, shard_count, spatial, tensor)
        found["shards"] = Group(blocks, 1, groups.shard_network(experiment))
        found["copies"] = Group(blocks, 0, groups.copy_network(experiment))
    return found


def in_step(experiment: Experiment) -> Group:
    """Return the ranks that exchange within a pass: a replica, and those that share its experts or its tokens."""
    _, data, spatial, tensor = sizes(experiment)
    shared = in_step_replicas(experiment)
    together = shared * spatial * tensor
    return Group((data // shared, together), 1, flat(together, 0.0, 0.0))
