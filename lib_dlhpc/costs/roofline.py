"""Compute time of each layer: a roofline whose efficiency grows with the size of the kernel.

    time = max( (w + w_half) / (peak * efficiency),  bytes / memory bandwidth ) + launch

The first term is w / (peak * e(w)) with e(w) = efficiency * w / (w + w_half): a kernel of w_half FLOP
reaches half the rate of a large one. Roofline: Williams, Waterman & Patterson 2009; the saturating
efficiency: Hockney's n_1/2 (1985). A measured rate of a kind of layer (costs/layer_rates.py)
replaces the roofline. Where a device states its multiprocessors, w counts the slots of whole waves of
tiles (costs/gemm_tiles.py); where it states the host's time for a kernel, no layer starts before it is issued.
Layers in a narrow format have its peak, in fp8 with the efficiency measured in it, and casts beside
(costs/low_precision.py).
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import cross_entropy, gemm_tiles, host, layer_rates, low_precision
from lib_dlhpc.costs.async_tp import Cut
from lib_dlhpc.costs.distinct_layers import distinct_layers
from lib_dlhpc.costs.muon import MUON, REST_TRAFFIC, orthogonalization_time, rest
from lib_dlhpc.costs.network import last_axis
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.spec.machine import Device
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import FORMATS, FP8, NARROW

REMEMBERED = 64  # samples in a microbatch of which the seconds are remembered
# Of a weight in memory.
BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, **dict.fromkeys(NARROW, 2)}
MIXED = ("fp16", "bf16", *NARROW)  # 2-byte weights, gradients and activations; fp32 master weights

# Optimizer state in 4-byte numbers a parameter, and the numbers that an update reads or writes; Muon's are of matrices.
STATE = {"sgd": 0, "momentum": 1, "lars": 1, "adam": 2, "lamb": 2, MUON: 1}
UPDATE_TRAFFIC = {"sgd": 3, "momentum": 5, "lars": 7, "adam": 7, "lamb": 9, MUON: 5}


class LayerTimes(NamedTuple):
    """Seconds of each layer on one device for one batch; the last axis is the layer."""

    forward: Any
    backward: Any


class Activities(NamedTuple):
    """Seconds of each layer by what limits them; a layer by roofline is limited by one of the first two."""

    arithmetic: LayerTimes
    memory: LayerTimes
    launch: LayerTimes  # of kernels, and the overhead of a pass: the device waits


class Counts(NamedTuple):
    """What the roofline reads of layers, an array of each; FLOP and elements a sample, `read` once a batch."""

    moved: NDArray[np.float64]
    read: NDArray[np.float64]  # parameters
    flop: NDArray[np.float64]
    gradients: NDArray[np.float64]
    repeated: NDArray[np.float64]  # FLOP of forward that backward repeats
    blocks: NDArray[np.float64]  # see _blocks
    rows: NDArray[np.float64]  # of products, see gemm_tiles.shapes
    inputs: NDArray[np.float64]
    outputs: NDArray[np.float64]
    loss: NDArray[np.float64]  # B that the loss moves, in forward and in backward
    loss_back: NDArray[np.float64]
    cast: NDArray[np.float64]  # elements that products in a narrow format read, see narrow.operands
    cast_back: NDArray[np.float64]
    cast_once: NDArray[np.float64]
    cast_size: NDArray[np.float64]
    cast_moved: NDArray[np.float64]
    beside: NDArray[np.float64]  # B that kernels beside products move, see Kind.beside
    beside_back: NDArray[np.float64]
    products: NDArray[np.float64]  # that start on an idle device, see Kind.starts
    kernels: NDArray[np.float64]

    @property
    def operands(self) -> low_precision.Operands:
        """What products in a narrow format read."""
        return low_precision.Operands(
            self.cast, self.cast_back, self.cast_once, self.cast_size, self.cast_moved
        )


def peak_rate(device: Device, precision: str) -> float:
    """Return the peak FLOP/s of a device at a precision; NaN if the device does not support it.

    16 bits on a device without fast arithmetic in them computes in fp32 and saves bytes only. Narrow: of linear
    layers.
    """
    precision = FORMATS.get(precision, precision)
    if precision in ("fp16", "bf16"):
        other = "bf16" if precision == "fp16" else "fp16"
        rates = [device.peak[key] for key in (precision, "fp32") if key in device.peak]
        return max(rates) if rates else device.peak.get(other, np.nan)
    if precision == "tf32":
        return device.peak.get("tf32", device.peak.get("fp32", np.nan))
    if precision == "fp32" and "fp32" not in device.peak:
        return device.peak.get("bf16", np.nan)
    return device.peak.get(precision, np.nan)


def layer_times(
    model: Model, device: Device, batch: Any, precision: str, each_pass: bool = False
) -> LayerTimes:
    """Return forward and backward seconds of each layer, shape of `batch` + (layers,)."""
    return total(layer_activities(model, device, batch, precision, each_pass=each_pass))


def total(activities: Activities) -> LayerTimes:
    """Return the seconds of each layer, whatever limits it."""
    return LayerTimes(
        activities.launch.forward + (activities.arithmetic.forward + activities.memory.forward),
        activities.launch.backward + (activities.arithmetic.backward + activities.memory.backward),
    )


def layer_activities(
    model: Model,
    device: Device,
    batch: Any,
    precision: str,
    exchanged: Any = 0.0,
    cut: Cut | None = None,
    each_pass: bool = False,
) -> Activities:
    """Return the seconds of each layer by what limits it, shape of `batch` + (layers,) each.

    exchanged: s after each layer in which the device works on collectives, alike in both passes. cut: products that are
    computed in pieces; their seconds are those of all pieces. each_pass: see narrow.casts_each_pass.
    """
    batch = last_axis(batch)
    activities = _of_kernels(model, device, batch, precision, each_pass)
    pieces: tuple[Any, Any] = (1, 1)
    if cut:
        pieces = cut.forward, cut.backward
        smaller = _of_kernels(model, device, batch / cut.many, precision, each_pass)
        both = zip(activities, smaller, strict=True)
        activities = Activities(*(LayerTimes(*map(_in_pieces, pieces, *pair)) for pair in both))
        summed = batch * cut.summed * BYTES[precision] / last_axis(streaming_rate(device))
        activities = activities._replace(
            memory=LayerTimes(activities.memory.forward + summed, activities.memory.backward)
        )
    # The overhead of a pass outside the layers is charged to the first layer.
    first, slow = np.arange(len(model.layers)) == 0, last_axis(device.slowdown)
    forward = activities.launch.forward + first * last_axis(device.overhead)
    if device.layers:
        forward = forward + layer_rates.outside(model, device.layers, batch, BYTES[precision])
    activities = activities._replace(launch=LayerTimes(forward, activities.launch.backward))
    if np.any(device.dispatch):
        calls = pieces if cut and cut.issued_apart else (1, 1)
        activities = activities._replace(
            launch=_dispatched(model, device, activities, exchanged, calls)
        )
    return Activities(*(LayerTimes(slow * ahead, slow * back) for ahead, back in activities))


def _in_pieces(pieces: NDArray[np.int64], whole: Any, part: Any) -> Any:
    """Return the seconds of layers, of which some have several pieces."""
    return np.where(pieces > 1, pieces * part, whole)


def _of_kernels(
    model: Model, device: Device, batch: Any, precision: str, each_pass: bool
) -> Activities:
    """Return the seconds of each layer by roofline or measured rate; batch: with a last axis for the layers."""
    few, place = distinct_layers(model)
    activities = Activities(
        *(
            LayerTimes(*(np.take(seconds, place, axis=-1) for seconds in times))
            for times in _of_unlike(few, device, batch, precision, each_pass)
        )
    )
    if device.layers:
        known, rated = layer_rates.rated(model, device.layers, batch, BYTES[precision])
        activities = Activities(
            *(
                LayerTimes(*(np.where(known, new, old) for new, old in zip(*pair, strict=True)))
                for pair in zip(rated, activities, strict=True)
            )
        )
    return activities


def _of_unlike(
    few: Model, device: Device, batch: Any, precision: str, each_pass: bool
) -> Activities:
    """Return the seconds of the unlike layers of a network, or of a part of it, by roofline."""
    inputs = few, device, batch, precision, each_pass
    if np.size(batch) > REMEMBERED:
        return _priced(Keyed(inputs))
    sizes = np.shape(batch), np.asarray(batch, np.float64).tobytes()
    return _priced_once(Keyed(inputs, id(few), id(device), *sizes, precision, each_pass))


def _priced(key: Keyed[tuple[Model, Device, Any, str, bool]]) -> Activities:
    few, *how = key.value
    return _roofline(_counts(few, BYTES[key.value[3]]), *how)


_priced_once = lru_cache(maxsize=256)(_priced)


def _roofline(
    counts: Counts, device: Device, batch: Any, precision: str, each_pass: bool
) -> Activities:
    """Return the seconds of layers by what limits them; batch: with a last axis for the layers."""
    size, rate = BYTES[precision], _rates(counts.operands, device, precision)
    half = np.where(counts.flop > 0, last_axis(device.half_work) * counts.products, 0.0)
    bandwidth = last_axis(streaming_rate(device))
    memory_time = _product_bytes(counts, batch, size) / bandwidth
    launch = np.where(counts.moved > 0, last_axis(device.launch) * counts.kernels, 0.0)
    work, times = batch * counts.flop, counts.gradients
    ahead: Any = 1.0
    back: Any = 1.0
    if np.any(device.multiprocessors):
        shapes = counts.rows, counts.inputs, counts.outputs
        ahead, back = gemm_tiles.slower(shapes, batch, last_axis(device.multiprocessors))
    # Backward forms two products of the forward's size, one for the input and one for the weights, if they are trained.
    products = (np.maximum(times - 1, 0) + back) * work + batch * counts.repeated
    kernel = _fused_attention(counts.blocks, device)
    arithmetic = (kernel * ahead * work + half) / rate, (kernel * products + times * half) / rate
    memory = memory_time, times * memory_time
    activities = Activities(
        LayerTimes(*(np.where(a >= m, a, 0.0) for a, m in zip(arithmetic, memory, strict=True))),
        LayerTimes(*(np.where(a >= m, 0.0, m) for a, m in zip(arithmetic, memory, strict=True))),
        LayerTimes(launch, times * launch),
    )
    beside = (moved / bandwidth for moved in _beside(counts, device, batch, size, each_pass))
    return activities._replace(
        memory=LayerTimes(*(a + b for a, b in zip(activities.memory, beside, strict=True)))
    )


def _rates(operands: low_precision.Operands, device: Device, precision: str) -> Any:
    """Return the FLOP/s of large products of each layer, or with a last axis of one."""
    wide = "bf16" if precision in NARROW else precision
    rate = last_axis(peak_rate(device, wide) * device.efficiency)
    if not np.any(operands.weights):
        return rate
    known = FORMATS[precision] == FP8 and np.any(device.fp8_efficiency)
    share = device.fp8_efficiency if known else device.efficiency
    faster = last_axis(peak_rate(device, precision) * share)
    return np.where(operands.weights > 0, faster, rate)


def product_bytes(model: Model, batch: Any, size: int) -> Any:
    """Return the bytes that the kernel of each layer reads and writes in a forward pass, (..., layers)."""
    few, place = distinct_layers(model)
    return np.take(_product_bytes(_counts(few, size), batch, size), place, axis=-1)


def _product_bytes(counts: Counts, batch: Any, size: int) -> Any:
    return (batch * counts.moved + counts.read) * size - low_precision.saved(
        counts.operands, batch, size
    )


def _beside(
    counts: Counts, device: Device, batch: Any, size: int, each_pass: bool
) -> tuple[Any, Any]:
    """Return the bytes, forward and backward, of kernels beside a layer's own: casts, copies, an unfused loss."""
    ahead, back = low_precision.cast_bytes(counts.operands, batch, each_pass)
    ahead, back = ahead + batch * counts.beside, back + batch * counts.beside_back
    if device.unfused_loss:
        ahead, back = ahead + batch * counts.loss, back + batch * counts.loss_back
    return ahead, back


def beside_backward(model: Model, device: Device, batch: Any, size: int) -> Any:
    """Return the s of each layer's backward pass in kernels beside its products, (..., layers); a measured rate has
    them in it."""
    few, place = distinct_layers(model)
    rated = [layer_rates.is_rated(layer, device.layers) for layer in few.layers]
    moved = last_axis(batch) * np.where(rated, 0.0, _counts(few, size).beside_back)[place]
    return last_axis(device.slowdown) * (moved / last_axis(streaming_rate(device)))


@lru_cache(maxsize=1024)
def _counts(model: Model, size: int) -> Counts:
    """Return the counts of each layer; size: B of an element."""
    return Counts(
        *traffic(model, size),
        model.layer_forward_flop,
        model.layer_gradients,
        _repeated_flop(model),
        _blocks(model),
        *gemm_tiles.shapes(model),
        *cross_entropy.loss_bytes(model),
        *low_precision.operands(model),
        *_beside_products(model, size),
    )


def _beside_products(model: Model, size: int) -> NDArray[np.float64]:
    """Return B that kernels beside products move in each direction, and how often products and kernels start."""
    pairs = ((layer.traits, layer) for layer in model.layers)
    columns = [(*traits.beside(layer, size), *traits.starts(layer)) for traits, layer in pairs]
    return np.array(columns, np.float64).T


def _dispatched(
    model: Model, device: Device, activities: Activities, exchanged: Any, calls: tuple[Any, Any]
) -> LayerTimes:
    """Return the seconds of launches, with those in which a layer waits for the host to issue it.

    calls: in which the host issues each layer, forward and backward.
    """
    (forward, backward), issue = total(activities), last_axis(device.dispatch)
    ahead, back = (count * many for count, many in zip(host.kernels(model), calls, strict=True))
    exchanged = np.broadcast_to(exchanged, np.broadcast_shapes(forward.shape, np.shape(exchanged)))
    reverse = (..., slice(None, None, -1))
    late = host.waited(forward, issue * ahead, exchanged, host.waits(model)) - forward
    late_back = host.dispatched(backward[reverse], (issue * back)[reverse], exchanged[reverse])[
        reverse
    ]
    return LayerTimes(
        activities.launch.forward + late, activities.launch.backward + late_back - backward
    )


@lru_cache(maxsize=1024)
def traffic(model: Model, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return elements of `size` B that each layer reads and writes a sample, and parameters that it reads once a batch.

    A layer that stores more than its output also writes what it stores. Messages are priced by their groups.
    """
    traits = [layer.traits for layer in model.layers]
    moved = model.layer_input_elements + np.maximum(model.layer_output_elements, model.layer_stored)
    moved += np.array([layer.traits.extra_traffic(layer, size) for layer in model.layers])
    still = [trait.view or trait.message or trait.stand_in for trait in traits]
    lookup = [trait.lookup for trait in traits]
    return np.where(still, 0.0, moved), np.where(lookup, 0.0, model.layer_parameters)


@lru_cache(maxsize=1024)
def _repeated_flop(model: Model) -> NDArray[np.float64]:
    """Return the FLOP a sample of each layer's forward pass that its backward pass repeats."""
    return np.array([layer.traits.repeated_flop(layer) for layer in model.layers])


def _fused_attention(blocks: NDArray[np.float64], device: Device) -> Any:
    """Return by what fused attention takes longer than products of its FLOP: fewer blocks, at a lower rate."""
    share = last_axis(device.attention)
    slower = blocks * last_axis(device.efficiency) / np.where(np.equal(share, 0), 1.0, share)
    return np.where((blocks > 0) & np.greater(share, 0), slower, 1.0)


@lru_cache(maxsize=1024)
def _blocks(model: Model) -> NDArray[np.float64]:
    """Return which part of its FLOP each fused attention computes; 0 for other layers."""
    return np.array([layer.traits.computed_part(layer) for layer in model.layers])


def streaming_rate(device: Device) -> Any:
    """Return the B/s at which kernels that only move data do so."""
    reached = np.where(np.equal(device.streaming, 0), 1.0, device.streaming)[()]
    return device.memory_bandwidth * reached


def streaming_time(device: Device, optimizer: str, moved: Any) -> Any:
    """Return the time to move bytes through memory in s: as an update of this optimizer does, if that is measured."""
    rate = device.layers.get(optimizer)
    bandwidth = streaming_rate(device) if rate is None else rate.bandwidth
    return device.slowdown * moved / bandwidth


def update_time(model: Model, device: Device, optimizer: str, casts: bool = True) -> Any:
    """Return the time of one optimizer update of all trained fp32 (master) parameters in s: memory-bound, but for Muon.

    casts: whether weights that are used in a narrow format are cast as well.
    """
    seconds = streamed_update_time(model, device, optimizer, casts)
    if optimizer == MUON:
        orthogonal = orthogonalization_time(model, device, orthogonal_rate(device))
        seconds = seconds + device.slowdown * orthogonal
    return seconds


def orthogonal_rate(device: Device) -> Any:
    """Return the FLOP/s of large products in the iterations of Muon."""
    return peak_rate(device, "bf16") * device.efficiency


def streamed_update_time(model: Model, device: Device, optimizer: str, casts: bool = True) -> Any:
    """Return the seconds of an update in which it only moves data."""
    numbers = UPDATE_TRAFFIC[optimizer] * model.trained + REST_TRAFFIC * rest(model, optimizer)
    rate, moved = device.layers.get(optimizer), 4 * numbers
    launch, bandwidth = (rate.launch, rate.bandwidth) if rate else (0.0, streaming_rate(device))
    seconds = launch + moved / bandwidth
    if casts:
        seconds = seconds + low_precision.held_bytes(model) / streaming_rate(device)
    return device.slowdown * seconds
