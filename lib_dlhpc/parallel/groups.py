"""Which ranks of a stage exchange with each other, and over which network."""

from functools import lru_cache

from lib_dlhpc.costs import groups
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import expert_nodes, in_step_replicas, shards, sizes
from lib_dlhpc.program import Group
from lib_dlhpc.schedules.network import flat
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import BY_NODE

FAR, NEAR = "experts, between nodes", "experts, in a node"


def groups_of(experiment: Experiment) -> dict[str, Group]:
    """Return the groups of a scalar experiment by name; experiments with the same ranks have the same."""
    return _groups_of(_keyed(experiment))


def groups_of_stages(experiment: Experiment) -> tuple[dict[str, Group], ...]:
    """Return the same for the groups of each stage; the same objects for stages whose groups lie alike."""
    return _groups_of_stages(_keyed(experiment))


def _keyed(experiment: Experiment) -> Keyed[Experiment]:
    s, share = experiment.strategy, float(experiment.calibration.link_efficiency)
    nodes = expert_nodes(experiment) if s.expert_exchange == BY_NODE else 1
    own = map(int, (s.nodes, experiment.devices_per_node, s.experts, s.context, nodes))
    size, one = sizes(experiment), shards(experiment)
    apart = (
        one if one < size.data else 1
    )  # over how many replicas state is sharded, if not over all
    return Keyed(experiment, id(experiment.machine), share, size, apart, *own)


@lru_cache(maxsize=512)
def _groups_of_stages(key: Keyed[Experiment]) -> tuple[dict[str, Group], ...]:
    every, many = _groups_of(key), sizes(key.value).pipeline
    each = every.values()
    if many == 1 or all(groups.lie_alike(key.value, one.size, one.apart) for one in each):
        return (every,) * many
    found, known = [], {_networks(every): every}
    for place in range(many):
        own = _made(key.value, place)
        found.append(known.setdefault(_networks(own), own))
    return tuple(found)


def _networks(found: dict[str, Group]) -> tuple[int, ...]:
    return tuple(id(group.network) for group in found.values())


@lru_cache(maxsize=512)
def _groups_of(key: Keyed[Experiment]) -> dict[str, Group]:
    return _made(key.value)


def _made(experiment: Experiment, place: int | None = None) -> dict[str, Group]:
    """Return groups by name; place: of the stage whose groups set the price, default: all do."""
    _, data, spatial, tensor = sizes(experiment)
    shape, shared = (data, spatial, tensor), int(experiment.strategy.experts)
    found = {
        kind: Group(shape, axis, groups.group_network(experiment, kind, place))
        for axis, kind in enumerate(("data", "spatial", "tensor"))
    }
    blocks: tuple[int, ...] = (data // shared, shared, spatial, tensor)
    found["experts"] = Group(blocks, 1, groups.expert_network(experiment, place))
    alike = groups.alike_network(experiment, place)  # the same experts
    found["alike"] = Group(blocks, 0, alike)
    if experiment.strategy.expert_exchange == BY_NODE:
        nodes = expert_nodes(experiment)
        blocks = (data // shared, nodes, shared // nodes, spatial, tensor)
        both = groups.expert_networks(experiment, nodes, place)
        found[FAR], found[NEAR] = Group(blocks, 1, both[0]), Group(blocks, 2, both[1])
    context = int(experiment.strategy.context)
    blocks = (data // context, context, spatial, tensor)
    found["context"] = Group(blocks, 1, groups.context_network(experiment, place))
    one = shards(experiment)
    if 1 < one < data:
        blocks = (data // one, one, spatial, tensor)
        found["shards"] = Group(blocks, 1, groups.shard_network(experiment, place))
        found["copies"] = Group(blocks, 0, groups.copy_network(experiment, place))
    return found


def in_step(experiment: Experiment) -> Group:
    """Return the ranks that exchange within a pass: a replica, and those that share its experts or its tokens."""
    _, data, spatial, tensor = sizes(experiment)
    shared = in_step_replicas(experiment)
    together = shared * spatial * tensor
    return Group((data // shared, together), 1, flat(together, 0.0, 0.0))
