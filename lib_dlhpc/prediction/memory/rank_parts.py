"""A network that is split: what each rank holds, and offload traffic."""

from functools import lru_cache
from typing import Any, TypeAlias

from lib_dlhpc.costs import roofline
from lib_dlhpc.costs.offload import OffloadTraffic, offload_traffic
from lib_dlhpc.costs.stored_activations import stored_bytes
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import Part, represented, sizes
from lib_dlhpc.prediction.memory import offload
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model

Chain: TypeAlias = tuple[tuple[Part, ...], ...]  # the parts of each rank of a pipeline


def rank_parts(experiment: Experiment) -> tuple[Chain, ...]:
    """Return the parts of each rank of a pipeline, for the spatial positions that can be the slowest.

    The parts of ranks that are alike are the same object.
    Parts of a tensor group differ by at most one element, and the first is the larger.
    """
    size = sizes(experiment)
    places = sorted({0, min(1, size.spatial - 1), size.spatial - 1})
    return tuple(represented(experiment, place) for place in places)


def rank_model(held: tuple[Part, ...]) -> Model:
    """Return all chunks of a rank as one sequence of layers."""
    return held[0].model if len(held) == 1 else _joined(Keyed(held, *map(id, held)))


@lru_cache(maxsize=1024)
def _joined(key: Keyed[tuple[Part, ...]]) -> Model:
    first = key.value[0].model
    layers = tuple(layer for part in key.value for layer in part.model.layers)
    return Model(f"{first.name} and more", layers, first.input_shape)


def offloading(experiment: Experiment, scale: Any = 1.0) -> offload.OffloadNeed:
    """Return the required bandwidth of the rank with the most offload traffic; scalar experiments that offload."""
    from lib_dlhpc.parallel import program, update_time
    from lib_dlhpc.program import pass_seconds

    batch = experiment.strategy.batch / int(experiment.strategy.microbatches)
    found = []
    step = program(experiment, scale)
    for held, stage in zip(rank_parts(experiment)[0], step.stages, strict=True):
        passes = (
            sum(pass_seconds(chunk.forward) for chunk in stage),
            sum(pass_seconds(chunk.backward) for chunk in stage),
        )
        update = update_time(experiment, held, scale)
        found.append(offload.need(experiment, _away(experiment, held, batch), passes, update))
    return max(found, key=lambda need: need.required)


def _away(experiment: Experiment, held: tuple[Part, ...], batch: float) -> OffloadTraffic:
    strategy = experiment.strategy
    size = roofline.BYTES[strategy.precision]
    kept = batch * sum(stored_bytes(part, size, strategy.recompute, True) for part in held)
    return offload_traffic(experiment, rank_model(held).parameters, kept)
