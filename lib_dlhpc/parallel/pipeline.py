"""Pipeline parallelism: messages between stages, and the weights that two ranks have: shared tables, copies of stages.

Sources: Huang et al. 2019 (GPipe); Narayanan et al. 2021, section 2.2.
"""

from lib_dlhpc.costs import compute, groups
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.layout import Part, mean_shards, shards, sizes, stride
from lib_dlhpc.program import Swap
from lib_dlhpc.program.calls import pipeline
from lib_dlhpc.schedules.pipeline import Pipeline
from lib_dlhpc.spec.experiment import Experiment


def pipeline_of(experiment: Experiment) -> Pipeline:
    """Return the streams of instructions of an experiment's pipeline; one rank has one as well."""
    s = experiment.strategy
    return pipeline(s.schedule, sizes(experiment).pipeline, int(s.microbatches), int(s.chunks))


def ways(experiment: Experiment) -> list[tuple[groups.Wire, ...]]:
    """Return for each place and chunk the path of its messages to the next stage; the first place follows the last.

    Where microbatches enter from both ends, the second chunk of a place sends to the place before.
    """
    apart, devices = stride(experiment, "pipeline"), groups.near(experiment)
    within, between = (groups.wire(experiment, 0, other, apart) for other in (0, devices))
    nodes = [place * apart // devices for place in range(sizes(experiment).pipeline)]
    following = [*nodes[1:], nodes[0]]
    found = [within if a == b else between for a, b in zip(nodes, following, strict=True)]
    if experiment.strategy.mirrored:
        return list(zip(found, [found[-1], *found[:-1]], strict=True))
    return [(way,) * int(experiment.strategy.chunks) for way in found]


def path_between(experiment: Experiment, place: int, other: int) -> groups.Wire:
    """Return the path between the ranks of two stages while all of a stage send."""
    apart = stride(experiment, "pipeline")
    return groups.wire(experiment, place * apart, other * apart, apart)


def swaps(experiment: Experiment, held: list[tuple[Part, ...]]) -> list[Swap]:
    """Return the sums of gradients that two ranks have; held: by place in the pipeline.

    Those are of tables that two stages have, and of all weights where each stage is on two ranks.
    """
    return [*_copies(experiment, held), *_tables(experiment, held)]


def _copies(experiment: Experiment, held: list[tuple[Part, ...]]) -> list[Swap]:
    """Return the sums of the gradients of both copies of a network; a rank has those of its shard only."""
    if not experiment.strategy.mirrored:
        return []
    found, size = [], compute.BYTES[experiment.strategy.precision]
    for place in range(len(held) // 2):
        other, moved = len(held) - 1 - place, 0.0
        for part in held[place]:
            moved += size * part.model.trained / mean_shards(experiment, part.model)
        one = ("data", f"copies of stages {place} and {other}", moved, (place, other))
        way = path_between(experiment, place, other)
        found.append(Swap(*one, _sum(experiment, way, moved), "the other copy"))
    return found


def _sum(experiment: Experiment, way: groups.Wire, size: float) -> Cost:
    """Return the cost of sending `size` B along a path while as many arrive, and of adding these."""
    gamma = groups.group_network(experiment, "pipeline").gamma
    return way.cost(size)._replace(reduction=size * gamma)


def _tables(experiment: Experiment, held: list[tuple[Part, ...]]) -> list[Swap]:
    """Return the sums of the gradients of tables that two stages have, on ranks that do not swap all of theirs.

    A rank has the gradients of its shard only, where they are sharded (ZeRO 2 and 3).
    """
    strategy, found, last = experiment.strategy, [], len(held) - 1
    size = compute.BYTES[strategy.precision] / (shards(experiment) if strategy.zero > 1 else 1)
    for place, of_rank in enumerate(held):
        for part in of_rank:
            back = strategy.mirrored and part.stage != place  # of the copy that starts at the end
            for name, stages in part.shared.items():
                table = next(layer for layer in part.model.layers if layer.name == name)
                for other in sorted({last - at if back else at % len(held) for at in stages}):
                    done = strategy.mirrored and other == last - place
                    if other > place and not table.frozen and not done:
                        way = path_between(experiment, place, other)
                        moved = float(table.parameters * size)
                        one = ("pipeline", f"table {name}", moved, (place, other))
                        found.append(Swap(*one, _sum(experiment, way, moved), "the exchange"))
    return found
