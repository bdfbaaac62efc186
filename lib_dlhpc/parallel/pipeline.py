"""Pipeline parallelism: messages between stages, and the weights that two ranks have: shared tables, copies of stages.

Sources: Huang et al. 2019 (GPipe); Narayanan et al. 2021, section 2.2.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import groups, roofline
from lib_dlhpc.costs.link_occupancy import SHARED
from lib_dlhpc.costs.network import Cost, joined
from lib_dlhpc.costs.platform import NO_LINK, platform
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import Part, mean_shards, shards, sizes, stride
from lib_dlhpc.parallel.overlapped_passes import overlaps_passes
from lib_dlhpc.program import PairAllreduce
from lib_dlhpc.program.calls import pipeline
from lib_dlhpc.schedules.pipeline import Pipeline
from lib_dlhpc.spec.experiment import Experiment


def pipeline_of(experiment: Experiment) -> Pipeline:
    """Return the streams of instructions of an experiment's pipeline; one rank has one as well."""
    s = experiment.strategy
    name = "overlapped dualpipe" if overlaps_passes(experiment) else s.schedule
    return pipeline(name, sizes(experiment).pipeline, int(s.microbatches), int(s.chunks))


def ways(experiment: Experiment) -> list[tuple[groups.Wire, ...]]:
    """Return for each place and chunk the path of its messages to the next stage; the first place follows the last.

    Where microbatches enter from both ends, the second chunk of a place sends to the place before.
    """
    s, machine = experiment.strategy, (experiment.machine, experiment.calibration)
    places = sizes(experiment).pipeline, stride(experiment, "pipeline"), int(s.chunks), s.mirrored
    nodes = int(s.nodes), int(experiment.devices_per_node)
    return _ways(Keyed(experiment, *map(id, machine), *places, *nodes))


@lru_cache(maxsize=512)  # the pipelines of a space
def _ways(key: Keyed[Experiment]) -> list[tuple[groups.Wire, ...]]:
    experiment = key.value
    many, devices = sizes(experiment).pipeline, groups.near(experiment)
    spacing = stride(experiment, "pipeline")
    across = spacing % devices and devices % spacing  # stages that lie across the edges of nodes
    if across or experiment.machine.topology != "single-switch":
        paths = [path_between(experiment, place, (place + 1) % many) for place in range(many)]
    else:
        within, between = (groups.wire(experiment, 0, other, spacing) for other in (0, devices))
        nodes = [place * spacing // devices for place in range(many)]
        following = [*nodes[1:], nodes[0]]
        paths = [within if a == b else between for a, b in zip(nodes, following, strict=True)]
    if experiment.strategy.mirrored:
        return list(zip(paths, [paths[-1], *paths[:-1]], strict=True))
    return [(way,) * int(experiment.strategy.chunks) for way in paths]


def path_between(experiment: Experiment, place: int, other: int) -> groups.Wire:
    """Return the path between the ranks of two stages while all of a stage send: the slowest of them."""
    spacing, devices = stride(experiment, "pipeline"), groups.near(experiment)
    if spacing % devices and devices % spacing:
        source, target = (np.arange(spacing) + stage * spacing for stage in (place, other))
        leaves = source // devices != target // devices
        if leaves.any():
            ends = source[leaves], target[leaves]
            most = max(np.bincount(ranks // devices).max() for ranks in ends)
            first, second = (int(ranks[0]) for ranks in ends)
            return groups.wire(experiment, first, second, float(most), (*ends, 1.0))
    if experiment.machine.topology == "rails" and (other - place) * spacing % devices:
        return _to_other_rails(experiment, place * spacing, other * spacing)
    return groups.wire(experiment, place * spacing, other * spacing, spacing)


def _to_other_rails(experiment: Experiment, first: int, second: int) -> groups.Wire:
    """Return the path between the ranks of two stages where it may leave a rail, above the leaf switches."""
    spacing, machine = stride(experiment, "pipeline"), experiment.calibrated_machine
    path = groups.wire(experiment, first, second, spacing)
    nodes, devices = int(experiment.strategy.nodes), int(experiment.devices_per_node)
    on = platform(*joined(machine, nodes, devices))
    links, _ = on.routes(first + np.arange(spacing), second + np.arange(spacing))
    used, count = np.unique(links[links != NO_LINK], return_counts=True)
    slowest = float((count / on.capacity[used]).max())
    if slowest <= path.beta * SHARED:
        return path
    return path._replace(beta=slowest, slower=path.slower * slowest / path.beta)


def swaps(experiment: Experiment, held: list[tuple[Part, ...]]) -> list[PairAllreduce]:
    """Return the sums of gradients that two ranks have; held: by place in the pipeline.

    Those are of tables that two stages have, and of all weights where each stage is on two ranks.
    """
    return [*_copies(experiment, held), *_tables(experiment, held)]


def _copies(experiment: Experiment, held: list[tuple[Part, ...]]) -> list[PairAllreduce]:
    """Return the sums of the gradients of both copies of a network; a rank has those of its shard only."""
    if not experiment.strategy.mirrored:
        return []
    size, last = roofline.BYTES[experiment.strategy.precision], len(held) - 1
    sent = [
        sum(size * part.model.trained / mean_shards(experiment, part.model) for part in of_rank)
        for of_rank in held
    ]
    copies = []
    for place, way in enumerate(_ways_of_copies(experiment, np.array(sent, float))):
        other, moved = last - place, sent[place]
        fields = ("data", f"copies of stages {place} and {other}", moved, (place, other))
        copies.append(PairAllreduce(*fields, _sum(experiment, way, moved), "the other copy"))
    return copies


def _ways_of_copies(experiment: Experiment, sent: NDArray[np.float64]) -> list[groups.Wire]:
    """Return for each place of the first half the path to the same stages' copy while all places send `sent` B.

    Ranks of a node whose copy is outside of it share its NICs, each until it has sent all. They are taken to begin
    together, which is too slow where their last passes end at different times.
    """
    many, devices = len(sent), groups.near(experiment)
    ranks = np.arange(many * stride(experiment, "pipeline")).reshape(many, -1)
    nodes = ranks // devices
    leaves = nodes != nodes[::-1]  # the copy of place r is at place p - 1 - r
    paths = []
    for place in range(many // 2):
        both = [place, many - 1 - place]
        if not leaves[both].any():
            paths.append(path_between(experiment, place, place))
            continue
        sent_here = sent[place] or 1.0
        meanwhile = np.broadcast_to(
            np.minimum(sent, sent_here)[:, np.newaxis] / sent_here, nodes.shape
        )
        # Of each node, counted as ranks that send as much as this one.
        leaving = np.bincount(nodes[leaves], meanwhile[leaves])
        busiest = float(leaving[nodes[both][leaves[both]]].max())
        first, copy = ranks[place, leaves[place]][0], ranks[-1 - place, leaves[place]][0]
        others = ranks[leaves], ranks[::-1][leaves], meanwhile[leaves]
        paths.append(groups.wire(experiment, int(first), int(copy), busiest, others))
    return paths


def _sum(experiment: Experiment, way: groups.Wire, size: float) -> Cost:
    """Return the cost of sending `size` B along a path while as many arrive, and of adding these."""
    gamma = groups.group_network(experiment, "pipeline").gamma
    return way.cost(size)._replace(reduction=size * gamma)


def _tables(experiment: Experiment, held: list[tuple[Part, ...]]) -> list[PairAllreduce]:
    """Return the sums of the gradients of tables that two stages have, on ranks that do not swap all of theirs.

    A rank has the gradients of its shard only, where they are sharded (ZeRO 2 and 3).
    """
    strategy, emitted, last = experiment.strategy, [], len(held) - 1
    size = roofline.BYTES[strategy.precision] / (shards(experiment) if strategy.zero > 1 else 1)
    for place, of_rank in enumerate(held):
        for part in of_rank:
            back = strategy.mirrored and part.stage != place  # of the copy that starts at the end
            for name, stages in part.shared.items():
                table = next(layer for layer in part.model.layers if layer.name == name)
                for other in sorted(
                    {last - stage if back else stage % len(held) for stage in stages}
                ):
                    done = strategy.mirrored and other == last - place
                    if other > place and not table.frozen and not done:
                        way = path_between(experiment, place, other)
                        moved = float(table.parameters * size)
                        fields = ("pipeline", f"table {name}", moved, (place, other))
                        emitted.append(PairAllreduce(*fields, way.cost(moved), "the exchange"))
    return emitted
