"""Pipeline parallelism: messages between stages, and the tables that two stages share.

Sources: Huang et al. 2019 (GPipe); Narayanan et al. 2021, section 2.2.
"""

from lib_dlhpc.costs import compute, groups
from lib_dlhpc.layout import Part, shards, sizes, stride
from lib_dlhpc.program import Swap
from lib_dlhpc.program.calls import pipeline
from lib_dlhpc.schedules.pipeline import Pipeline
from lib_dlhpc.spec.experiment import Experiment


def pipeline_of(experiment: Experiment) -> Pipeline:
    """Return the streams of instructions of an experiment's pipeline; one rank has one as well."""
    s = experiment.strategy
    return pipeline(s.schedule, sizes(experiment).pipeline, int(s.microbatches), int(s.chunks))


def ways(experiment: Experiment) -> list[groups.Wire]:
    """Return for each stage the path of its messages to the next; the first follows the last."""
    apart, devices = stride(experiment, "pipeline"), groups.near(experiment)
    within, between = (groups.wire(experiment, 0, other, apart) for other in (0, devices))
    nodes = [place * apart // devices for place in range(sizes(experiment).pipeline)]
    following = [*nodes[1:], nodes[0]]
    return [within if a == b else between for a, b in zip(nodes, following, strict=True)]


def path_between(experiment: Experiment, place: int, other: int) -> groups.Wire:
    """Return the path between the ranks of two stages while all of a stage send."""
    apart = stride(experiment, "pipeline")
    return groups.wire(experiment, place * apart, other * apart, apart)


def swaps(experiment: Experiment, held: list[tuple[Part, ...]]) -> list[Swap]:
    """Return the sums of the gradients of tables that two stages have; held: by place in the pipeline.

    A rank has the gradients of its shard only, where they are sharded (ZeRO 2 and 3).
    """
    strategy, found = experiment.strategy, []
    size = compute.BYTES[strategy.precision] / (shards(experiment) if strategy.zero > 1 else 1)
    for place, of_rank in enumerate(held):
        for part in of_rank:
            for name, stages in part.shared.items():
                table = next(layer for layer in part.model.layers if layer.name == name)
                for other in sorted({stage % len(held) for stage in stages}):
                    if other > place and not table.frozen:
                        way = path_between(experiment, place, other)
                        moved = float(table.parameters * size)
                        one = ("pipeline", f"table {name}", moved, (place, other))
                        found.append(Swap(*one, way.cost(moved), "the exchange"))
    return found
