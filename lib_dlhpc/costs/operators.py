"""Time, bytes and kernels of a step on one device by class of operator, and what fusing neighbors removes.

A kernel without a product only moves data, so its time is its bytes over the bandwidth, and a launch. Eager frameworks
start one kernel per layer: each output is written to memory and read again by the next layer. Compilers (XLA;
torch.compile with Triton, Ansel et al. 2024, doi:10.1145/3620665.3640366) make one kernel of neighbors: values between
them stay on the chip. Here neighbors are layers without products, connected, with as many products before each on
the longest path: so no product needs what the kernel has not computed yet.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.roofline import (
    BYTES,
    UPDATE_TRAFFIC,
    layer_activities,
    product_bytes,
    streaming_rate,
    update_time,
)
from lib_dlhpc.spec.machine import Device
from lib_dlhpc.spec.model import Layer, Model

GEMM, ATTENTION, NORM, ELEMENTWISE, OPTIMIZER = (
    "GEMM",
    "attention",
    "normalization",
    "elementwise",
    "optimizer",
)
CLASSES = (GEMM, ATTENTION, NORM, ELEMENTWISE, OPTIMIZER)
PASSES = 3  # forward, and backward with twice its bytes and kernels


class Operators(NamedTuple):
    """One class of operators in a step: seconds on the device, those of launches, bytes moved, kernels."""

    seconds: float
    launches: float
    moved: float
    kernels: float


def class_of(layer: Layer) -> str:
    """Return the class of a layer; layers with products are GEMMs unless they mix positions."""
    if "attention" in layer.kind or layer.kind in ("state_space", "indexer"):
        return ATTENTION
    if layer.forward_flop:
        return GEMM
    return NORM if layer.kind.endswith("norm") else ELEMENTWISE


def by_operator(
    model: Model, device: Device, batch: int, precision: str, optimizer: str, fused: bool = False
) -> dict[str, Operators]:
    """Return what each class takes of a step. fused: neighbors without products share a kernel.

    A fused kernel with a norm counts as normalization. Fused attention is a matter of the model (spec/fusion.py). The
    host's time to issue kernels is hidden, as by CUDA graphs.
    """
    device = replace(device, dispatch=0.0)
    size, slow = BYTES[precision], float(device.slowdown)
    activities = layer_activities(model, device, batch, precision)
    busy = np.array(
        sum(part.forward + part.backward for part in (activities.arithmetic, activities.memory))
    )
    launches = np.array(activities.launch.forward + activities.launch.backward)
    times = 1.0 + model.layer_gradients
    moved = times * product_bytes(model, batch, size)
    starts = np.array([layer.traits.starts(layer)[1] for layer in model.layers], float)
    kernels = times * np.where(moved > 0, starts, 0.0)
    classes = np.array([class_of(layer) for layer in model.layers])
    for members in chains(model) if fused else ():
        first, *others = members
        moved[first] = PASSES * fused_bytes(model, members, batch, size)
        busy[first] = slow * moved[first] / streaming_rate(device)
        kernels[first], launches[first] = PASSES, PASSES * slow * device.launch
        if NORM in classes[list(members)]:
            classes[first] = NORM
        for array in (busy, launches, moved, kernels):
            array[others] = 0.0
    operators = {
        name: Operators(
            float(busy[here].sum()),
            float(launches[here].sum()),
            float(moved[here].sum()),
            float(kernels[here].sum()),
        )
        for name in CLASSES[:-1]
        for here in [classes == name]
    }
    update = float(update_time(model, device, optimizer))
    return operators | {
        OPTIMIZER: Operators(update, 0.0, 4.0 * UPDATE_TRAFFIC[optimizer] * model.trained, 1.0)
    }


@lru_cache(maxsize=64)
def chains(model: Model) -> tuple[tuple[int, ...], ...]:
    """Return the layers that can share a kernel, two or more each, in order of the network."""
    place = {layer.name: index for index, layer in enumerate(model.layers)}
    depth, root = list[int](), list(range(len(model.layers)))

    def top(index: int) -> int:
        while root[index] != index:
            index = root[index]
        return index

    for index, layer in enumerate(model.layers):
        before = [place[name] for name in layer.inputs if name in place]
        depth.append(max((depth[k] for k in before), default=0) + (not _light(layer)))
        for k in before:
            if _light(layer) and _light(model.layers[k]) and depth[k] == depth[index]:
                root[max(top(k), top(index))] = min(top(k), top(index))
    chain_of = dict[int, list[int]]()
    for index in range(len(model.layers)):
        chain_of.setdefault(top(index), []).append(index)
    return tuple(tuple(members) for members in chain_of.values() if len(members) > 1)


def fused_bytes(model: Model, members: tuple[int, ...], batch: int, size: int) -> float:
    """Return the bytes that one kernel for these layers reads and writes in a forward pass."""
    names = {model.layers[k].name for k in members}
    read = {name: shape for k in members for name, shape in _reads(model.layers[k])}
    elements = sum(elements for name, elements in read.items() if name not in names)
    elements += sum(
        int(np.prod(model.layers[k].output_shape)) for k in _seen(model, names, members)
    )
    weights = sum(model.layers[k].parameters for k in members if not model.layers[k].traits.lookup)
    return float((batch * elements + weights) * size)


def _light(layer: Layer) -> bool:
    traits = layer.traits
    return not (layer.forward_flop or traits.message or traits.stand_in)


def _reads(layer: Layer) -> Iterator[tuple[str, int]]:
    """Yield the tensors that a layer reads, with their elements: those of its first input's shape."""
    elements = int(np.prod(layer.input_shape))
    return ((name, elements) for name in layer.inputs)


def _seen(model: Model, own: set[str], members: tuple[int, ...]) -> NDArray[np.intp]:
    """Return which of the members other layers read, or no layer, as the end of the network."""
    readers: dict[str, list[str]] = {name: [] for name in own}
    for layer in model.layers:
        for name in layer.inputs:
            if name in own:
                readers[name].append(layer.name)
    names = [model.layers[k].name for k in members]
    outside = [not readers[name] or bool(set(readers[name]) - own) for name in names]
    return np.array(members)[outside]
