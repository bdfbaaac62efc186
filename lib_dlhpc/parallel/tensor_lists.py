"""What the host copies where a collective takes a list of tensors, one for each rank.

NCCL gathers into one buffer. PyTorch's all_gather returns a list instead and copies the part of each rank out of that
buffer; its reduce_scatter copies the parts into one (ProcessGroupNCCL.cpp: "Copy the flattened output tensors to the
outputs", "Copy the input tensors to the flattened inputs"). DeepSpeed's ZeRO 3 of 2021 called both for each weight, so
the host issued as many copies as there are ranks, weight by weight, and nothing else ran meanwhile, as each all_gather
first waited for the device (version 0.3.16, partition_parameters.py: _allgather_param, _reduce_scatter_gradient).
Weights of fewer than 100,000 elements stay on all ranks between passes: their gradients are scattered like others, and
after the update their new values are gathered (stage3.py: _post_step).

`device.list_copy` is the price of a copy, without what it moves. Python's views of the parts are not priced.
"""

from collections.abc import Iterable
from functools import lru_cache
from math import prod

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs.roofline import BYTES, streaming_rate
from lib_dlhpc.layout import Part, shards
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Collective, Compute, Instruction
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model

PERSISTENT = 100_000  # elements: stage3_param_persistence_threshold of DeepSpeed
Elements = tuple[tuple[int, ...], ...]


def copied(experiment: Experiment, passes: Passes) -> tuple[Floats, Floats]:
    """Return the seconds of copies that each layer of a part adds to its forward and to its backward pass.

    A forward pass that is repeated for backward gathers again, and adds its copies again.
    """
    if not copies(experiment):
        nothing = np.zeros(len(passes.part.model.layers))
        return nothing, nothing
    weights, emitted = elements(passes.part.model), []
    for instructions in (passes.forward, passes.backward):
        seconds = np.zeros(len(weights))
        for op in instructions:
            if isinstance(op, Collective) and op.kind == "data" and op.layers:
                _, first, stop = op.layers
                seconds[first] += _seconds(experiment, _lists(weights[first:stop], op.goal))
        emitted.append(seconds)
    ahead, back = emitted
    return ahead, np.maximum(back - ahead * _repeated(passes.backward, len(weights)), 0.0)


def copied_after_update(experiment: Experiment, held: tuple[Part, ...]) -> float:
    """Return the seconds of copies of the small weights that are gathered after the update."""
    if not copies(experiment):
        return 0.0
    every = [size for part in held for sizes in elements(part.model) for size in sizes]
    return _seconds(experiment, [size for size in every if size < PERSISTENT])


def copies(experiment: Experiment) -> bool:
    """Return whether collectives take lists: of ZeRO 3, layer by layer, where the device prices their copies."""
    strategy = experiment.strategy
    layer_by_layer = strategy.zero == 3 and strategy.zero_unit == "layer"
    return bool(experiment.machine.device.list_copy) and layer_by_layer and shards(experiment) > 1


@lru_cache(maxsize=64)
def elements(model: Model) -> Elements:
    """Return the elements of each weight of each layer."""
    sizes = []
    for layer in model.layers:
        shapes = getattr(layer.traits(layer), "shapes", None) if layer.parameters else {}
        whole = (layer.parameters,)
        sizes.append(whole if shapes is None else tuple(prod(shape) for shape in shapes.values()))
    return tuple(sizes)


def _lists(layers: Iterable[tuple[int, ...]], goal: str) -> list[int]:
    """Return the elements of the weights that a collective handles one by one."""
    every = [size for sizes in layers for size in sizes]
    return every if goal == "reduce_scatter" else [size for size in every if size >= PERSISTENT]


def _seconds(experiment: Experiment, sizes: list[int]) -> float:
    device, size = experiment.machine.device, BYTES[experiment.strategy.precision]
    moved = 2 * sum(sizes) * size / streaming_rate(device)
    many = shards(experiment) * len(sizes)
    return float(device.slowdown * (many * device.list_copy + moved))


def _repeated(instructions: list[Instruction], layers: int) -> Floats:
    """Return how often a backward pass repeats the forward pass of each layer."""
    counts = np.zeros(layers)
    for op in instructions:
        if isinstance(op, Compute) and op.phase == "forward":
            counts[op.layer] += 1
    return counts
