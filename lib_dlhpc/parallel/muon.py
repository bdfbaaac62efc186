"""Muon where replicas shard the state: the momentum of whole matrices is gathered before the update.

A rank has a slice of each bucket. It needs all of a matrix to orthogonalize it, so replicas all-gather the momentum,
in the precision of weights; each orthogonalizes the matrices that its slices touch, and keeps its slices of them. A
matrix that several slices touch is computed several times: with a bucket for each layer, by every rank. Larger buckets
divide the arithmetic. Source: Liu et al. 2025, "Muon is scalable for LLM training" (arXiv 2502.16982), algorithm 1.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.muon import MUON, Matrices, matrices, matrices_of, seconds
from lib_dlhpc.costs.roofline import orthogonal_rate
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import Part, shards
from lib_dlhpc.parallel.data_parallel import STREAM, cut, sharded_over
from lib_dlhpc.program import Collective, Instruction
from lib_dlhpc.program.instructions import GATHER, WEIGHTS
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import FORWARD

LABEL = "momentum"
Ranks: TypeAlias = NDArray[np.int64]


def gathers_momentum(experiment: Experiment) -> bool:
    """Return whether replicas gather the momentum of whole matrices."""
    strategy = experiment.strategy
    return bool(strategy.optimizer == MUON and strategy.zero and shards(experiment) > 1)


def gathered_momentum(experiment: Experiment, held: tuple[Part, ...]) -> list[Instruction]:
    """Return the all-gathers of momentum before the update, a bucket at a time; the trainer gathers in its update."""
    emitted = list[Instruction]()
    if not gathers_momentum(experiment):
        return emitted
    group, algorithm = sharded_over(experiment), experiment.strategy.allreduce
    for part in held:
        of_layer = np.zeros(len(part.model.layers))
        for layer, matrix in matrices_of(part.model):
            of_layer[layer] += matrix.elements
        for bucket in cut(experiment, part):
            elements = float(of_layer[bucket.first : bucket.stop].sum())
            if elements:
                fields = ("data", group, GATHER, elements, WEIGHTS, STREAM, "", algorithm, LABEL)
                emitted.append(Collective(*fields))
    return emitted


def orthogonalization_time(experiment: Experiment, held: tuple[Part, ...]) -> float:
    """Return the seconds in which the busiest of the replicas that share a state orthogonalizes its matrices."""
    if experiment.strategy.optimizer != MUON:
        return 0.0
    device = experiment.machine.device
    rate, ranks = orthogonal_rate(device), shards(experiment) if experiment.strategy.zero else 1
    load = np.zeros(ranks + 1)
    for part in held:
        for first, stop in _units(experiment, part):
            key = Keyed((part, first, stop, ranks), id(part), first, stop, ranks)
            for matrix, low, high in _touched(key):
                matrix_seconds = seconds(matrix, device, rate) / matrix.many
                np.add.at(load, low, matrix_seconds)
                np.add.at(load, high + 1, -matrix_seconds)
    return float(device.slowdown * load.cumsum().max())


def _units(experiment: Experiment, part: Part) -> Iterator[tuple[int, int]]:
    """Yield the layers, first and one past the last, of what replicas cut into slices."""
    strategy = experiment.strategy
    if strategy.zero == 3 and strategy.zero_unit == "layer" and strategy.gather != FORWARD:
        yield from ((index, index + 1) for index in range(len(part.model.layers)))
    else:
        yield from ((bucket.first, bucket.stop) for bucket in cut(experiment, part))


@lru_cache(maxsize=4096)
def _touched(key: Keyed[tuple[Part, int, int, int]]) -> tuple[tuple[Matrices, Ranks, Ranks], ...]:
    """Return the matrices of a unit, and of each the first and the last rank whose slice has a part of it."""
    part, first, stop, ranks = key.value
    offset, spans = 0, list[tuple[Matrices, int]]()
    for layer in part.model.layers[first:stop]:
        layer_matrices = matrices(layer)
        shapes = getattr(layer.traits(layer), "shapes", None) if layer.parameters else {}
        for name, shape in ({"": (layer.parameters,)} if shapes is None else shapes).items():
            if name in layer_matrices:
                spans.append((layer_matrices[name], offset))
            offset += prod(shape)
    begins, result = np.arange(ranks) * offset // ranks, []  # of slices
    for matrix, begin in spans:
        edges = begin + matrix.rows * matrix.columns * np.arange(matrix.many + 1)
        low = np.searchsorted(begins, edges[:-1], "right") - 1
        high = np.searchsorted(begins, edges[1:] - 1, "right") - 1
        result.append((matrix, low, high))
    return tuple(result)
