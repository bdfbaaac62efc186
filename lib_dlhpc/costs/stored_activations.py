"""Stored activations: the bytes of a sample that a part of a network stores for its backward pass, layer by layer.

A layer's output is stored if a backward pass reads it. It is not if the layer itself needs only its input and
no reader needs it: a sum, a mean, a halo, an exchange, or the next stage. A recomputed output is stored only if a
layer outside its segment reads it (costs/segments.py); during its backward pass a whole segment is in memory.

What a layer in a narrow format reads is stored in it: in place of 16 bits, unless another layer's backward pass reads
those (as TransformerEngine's; DeepSeek-AI 2024, "DeepSeek-V3", section 3.3.3). Casts of one layer at a time are not
counted.
"""

from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs.cross_entropy import held_by_loss, kept_for_loss
from lib_dlhpc.costs.distinct_layers import distinct_layers
from lib_dlhpc.costs.exchanges import halo_elements
from lib_dlhpc.costs.light_recomputation import reads_input
from lib_dlhpc.costs.low_precision import width
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.costs.segments import segments
from lib_dlhpc.layout import Part, gathers_keys, key_elements, ring_blocks
from lib_dlhpc.spec.loss import is_logits
from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.spec.strategy import EARLY_STOP, LIGHT, PER_OP

AFTER, BETWEEN = "after", "between"  # see backward_extra
REPEATED_RUNS = ("full", EARLY_STOP, PER_OP)  # of layers, whose inputs are stored
AT_ONCE = 2  # layers on the device if activations are offloaded: one in use, one in flight


def stored_bytes(
    part: Part, size: int, recompute: str = "none", gathered: bool = False, experts: bool = True
) -> float:
    """Return the bytes of a sample that a part stores; `size`: bytes of an element.

    gathered: whether the gathered input of a product is stored, as with offloading; else backward repeats the
    all-gather (Korthikanti et al. 2022, section 4.2.2). experts: whether what experts store counts.
    """
    stored = _stored(part.model, part.sends, size, recompute, gathered)
    if not experts:
        stored = stored[[not layer.has_experts for layer in part.model.layers]]
    return float(stored.sum())


@lru_cache(maxsize=4096)
def resident_bytes(part: Part, size: int, recompute: str = "none") -> tuple[float, float]:
    """Return the most bytes of a sample on the device if all stored activations are offloaded: stored, working set.

    Stored are those of a layer and of the one in flight before it, or a whole recomputed segment; the working set
    is the gradients of the layer's input and output.
    """
    model = part.model
    stored = _stored(model, part.sends, size, recompute, True)
    whole = _stored(model, part.sends, size, "none", True)
    inside = {index: s for s in segments(model, recompute) for index in range(s.first, s.stop)}
    moved = size * moved_elements(model)
    most = 0.0, 0.0
    for index, layer in enumerate(model.layers):
        first = inside[index].first if index in inside else index
        stop = index if not reads_output(layer) else index + 1
        there = float(whole[first:stop].sum())
        before = stored[:first][stored[:first] > 0]
        there += float(before[-AT_ONCE if first == stop else 1 - AT_ONCE :].sum())
        if layer.traits.elementwise or layer.inputs == ("input",):
            moved[index] -= size * model.layer_input_elements[index]
        working = float(moved[index] + size * pending_gradients(model)[index])
        most = max(most, (there, working), key=sum)
    return most


@lru_cache(maxsize=4096)
def backward_extra(
    part: Part, size: int, recompute: str = "none", gathered: bool = False, in_two: str = ""
) -> float:
    """Return the bytes of a sample by which a part's backward pass exceeds all that it stores.

    in_two: where weight gradients are computed apart, so that what they need is left until then: AFTER the pass, or
    BETWEEN the exchanges of experts, a leg of the pass each (parallel/overlapped_passes.py); "": nowhere.
    """
    held = backward_bytes(part, size, recompute, gathered)
    if in_two:
        held = held + _left(part.model, size, in_two == BETWEEN)
        held = held + _leaving(part.model, part.sends, size, gathered)
    return max(0.0, float(held.max(initial=0.0)) - stored_bytes(part, size, recompute, gathered))


def forward_bytes(part: Part, size: int, recompute: str = "none") -> Floats:
    """Return the bytes of a sample that are stored after the forward pass of each layer, shape (layers,)."""
    return np.cumsum(_stored(part.model, part.sends, size, recompute, False))


def backward_bytes(
    part: Part, size: int, recompute: str = "none", gathered: bool = False
) -> Floats:
    """Return the bytes of a sample that a part holds during the backward pass of each layer, shape (layers,).

    Backward frees layers from the last to the first, and holds the gradients of one layer's input and output
    at a time; all that a segment recomputes is in memory first, but an activation of experts during their own pass.
    """
    model = part.model
    stored = _stored(model, part.sends, size, recompute, gathered)
    whole = _stored(model, part.sends, size, "none", gathered)
    freed = np.cumsum(stored)
    held = freed.copy()
    if cuts := segments(model, recompute):
        again = [index for segment in cuts for index in segment.repeated]
        there = stored.copy()
        there[again] = whole[again]
        first = np.repeat([segment.first for segment in cuts], [s.stop - s.first for s in cuts])
        inside = [index for segment in cuts for index in range(segment.first, segment.stop)]
        before, all_there = np.append(0.0, freed)[first], np.append(0.0, np.cumsum(there))
        held[inside] = all_there[1:][inside] - all_there[first] + before
    if recompute == LIGHT:
        held += [_remade(layer, size) for layer in model.layers]
    return held + _moved(model, part.sends, size, gathered)


@lru_cache(maxsize=1024)
def _moved(model: Model, sends: tuple[str, ...], size: int, gathered: bool) -> Floats:
    """Return the bytes of a sample of gradients and copies in the backward pass of each layer, shape (layers,)."""
    whole = _stored(model, sends, size, "none", gathered)
    moved = size * moved_elements(model)
    fetched = {layer.name for layer in model.layers if _gathers(layer) and not gathered}
    for index, layer in enumerate(model.layers):
        if layer.inputs and layer.inputs[0] in fetched:  # its gathered input is in memory once more
            moved[index] += size * prod(layer.input_shape)
        if layer.traits.message and layer.inputs:
            moved[index] = size * _message_elements(layer)
            continue
        if layer.traits.elementwise or layer.inputs == ("input",):
            moved[index] -= size * model.layer_input_elements[index]
        if frees_output(layer):
            moved[index] -= whole[index]
            if is_logits(layer) and whole[index]:  # their gradients are among what the loss holds
                moved[index] += held_by_loss(layer, size) - size * prod(layer.output_shape)
        if gathers_keys(layer):  # those of all ranks; gradients in fp32, and two messages with them
            keys = key_elements(layer)
            moved[index] += size * ring_blocks(layer) * keys
            moved[index] += BYTES["fp32"] * (3 * keys + prod(layer.output_shape))
    traffic: Floats = moved + size * pending_gradients(model)
    traffic.setflags(write=False)
    return traffic


@lru_cache(maxsize=1024)
def pending_gradients(model: Model) -> Floats:
    """Return the elements of a sample's pending gradients during the backward pass of each layer, shape (layers,).

    If several layers read an output, as around a residual branch, its gradient is held until the last of them
    has added to it, beside the gradients of the current layer.
    """
    readers: dict[str, list[int]] = {}
    for index, layer in enumerate(model.layers):
        for name in layer.inputs:
            readers.setdefault(name, []).append(index)
    gradients = np.zeros(len(model.layers))
    for layer in model.layers:
        reads = readers.get(layer.name, [])
        if len(reads) > 1:
            # Readers count it among their own gradients.
            gradients[reads[0] + 1 : reads[-1]] += prod(layer.output_shape)
            gradients[reads[1:-1]] -= prod(layer.output_shape)
    gradients.setflags(write=False)
    return gradients


def waiting_bytes(part: Part, size: int) -> float:
    """Return the bytes of a sample that weight gradients need which are computed apart from the rest of backward."""
    return float(_waiting(part.model, size).sum())


@lru_cache(maxsize=1024)
def _waiting(model: Model, size: int) -> Floats:
    """Return the bytes of a sample that wait for weight gradients once backward has passed each layer, (layers,).

    Those are the gradient of its output, and its input, which waits where it is stored: each once, for all that read
    it. Of experts, they are both for each of their products.
    """
    index_of = {layer.name: index for index, layer in enumerate(model.layers)}
    waiting = np.zeros(len(model.layers))
    inputs = dict[int, float]()  # and bytes of an element
    for index, layer in enumerate(model.layers):
        if layer.traits.own_operands:
            waiting[index] = _own_operands(layer, size)
        elif layer.traits.splits_backward:
            element = width(layer, size) if reads_narrow(layer) else size
            waiting[index] = max(element * prod(layer.output_shape), layer.mask_bytes)
            name = layer.inputs[0]
            while name in index_of and (
                _gathers(model.layers[index_of[name]])
                or _passes_through(model.layers[index_of[name]])
            ):
                name = model.layers[index_of[name]].inputs[0]
            if name in index_of:
                inputs[index_of[name]] = max(element, inputs.get(index_of[name], 0))
    for index, sizes in inputs.items():
        waiting[index] += sizes * prod(model.layers[index].output_shape)
    waiting.setflags(write=False)
    return waiting


@lru_cache(maxsize=1024)
def _left(model: Model, size: int, by_leg: bool) -> Floats:
    """Return the bytes of a sample that wait during the input gradients of each layer, (layers,): of those after it.

    by_leg: of those in its leg; experts are one, as are the layers between two of them.
    """
    waits, left = _waiting(model, size), np.zeros(len(model.layers))
    for index in reversed(range(len(model.layers) - 1)):
        near = model.layers[index : index + 2]
        if not (by_leg and any(layer.traits.own_operands for layer in near)):
            left[index] = left[index + 1] + waits[index + 1]
    left.setflags(write=False)
    return left


@lru_cache(maxsize=1024)
def _leaving(model: Model, sends: tuple[str, ...], size: int, gathered: bool) -> Floats:
    """Return the bytes of a sample that the end of each layer's input gradients takes more than all else of it.

    By then experts have what their weight gradients need in place of what they stored, and rows go home.
    """
    whole, leaving = _stored(model, sends, size, "none", gathered), np.zeros(len(model.layers))
    for index, layer in enumerate(model.layers):
        if layer.traits.own_operands:
            end = _own_operands(layer, size) + size * layer.traits.leaving_elements(layer)
            before = whole[index] + size * layer.traits.working_elements(layer)
            leaving[index] = max(0.0, end - before)
    leaving.setflags(write=False)
    return leaving


def _own_operands(layer: Layer, size: int) -> float:
    """Return the bytes of a sample of operands that a layer keeps for its weight gradients."""
    return width(layer, size) * sum(layer.traits.operands(layer))


def _message_elements(layer: Layer) -> int:
    """Return the elements that a communication layer holds at once: gradients, and copies in flight."""
    before, after = prod(layer.input_shape), prod(layer.output_shape)
    if layer.kind == "halo":
        return before + after + sum(halo_elements(layer))
    forward, backward = layer.attributes["forward"], layer.attributes["backward"]
    there = before + max(before, after) if forward in ("all_gather", "reduce_scatter") else 0
    home = {"none": 0, "all_reduce": 0, "slice": before, "all_gather": 2 * before}
    return max(there, after + home.get(backward, before + after))


@lru_cache(maxsize=4096)
def _stored(
    model: Model, sends: tuple[str, ...], size: int, recompute: str, gathered: bool
) -> Floats:
    """Return the bytes of a sample that each layer stores, shape (layers,)."""
    if recompute == "none":
        return _all_stored(model, sends, size, gathered)
    stored, readers = (
        _stored(model, sends, size, "none", gathered).copy(),
        _readers(model, gathered),
    )
    index_of = {layer.name: index for index, layer in enumerate(model.layers)}
    if recompute == LIGHT:
        for index, layer in enumerate(model.layers):
            if gathered or not _gathers(layer):
                stored[index] -= _remade(layer, size)
    for segment in segments(model, recompute):
        for index in segment.repeated:
            layer = model.layers[index]
            outside = [
                reader
                for reader in readers.get(layer.name, [])
                if not segment.first <= index_of[reader.name] < segment.stop
                and (recompute != LIGHT or reads_input(reader))
            ]
            wide = prod(layer.output_shape) * size
            stored[index] = wide + _more_narrow(layer, outside, wide) if outside else 0.0
    # A sum is recomputed from inputs that are not, and which no backward pass reads: they are stored, too.
    if recompute in REPEATED_RUNS:
        for name in {name for segment in segments(model, recompute) for name in segment.reads}:
            index = index_of.get(name, -1)
            if index >= 0 and not stored[index]:
                stored[index] = prod(model.layers[index].output_shape) * size
    stored.setflags(write=False)
    return stored


def _all_stored(model: Model, sends: tuple[str, ...], size: int, gathered: bool) -> Floats:
    """Return the same if nothing is recomputed."""
    readers, narrow = _readers(model, gathered), any(layer.narrow for layer in model.layers)
    stored = model.layer_stored * size + model.layer_mask_bytes
    for index, layer in enumerate(model.layers):
        if not gathered and _gathers(layer):
            stored[index] = 0.0
            continue
        if is_logits(layer):
            stored[index] += kept_for_loss(layer, size) - layer.mask_bytes
        reads, output_read = readers.get(layer.name, []), reads_output(layer)
        input_readers = [reader for reader in reads if reads_input(reader)]
        if not output_read and not input_readers and (reads or layer.name in sends):
            stored[index] = 0.0
        elif narrow:
            wide = min(layer.stored, prod(layer.output_shape)) * size
            stored[index] += _more_narrow(layer, input_readers, wide)
            if layer.narrow and output_read:  # its own products read what it stores
                stored[index] -= layer.traits.operands(layer)[0] * (size - width(layer, size))
    stored.setflags(write=False)
    return stored


def _remade(layer: Layer, size: int) -> float:
    """Return the bytes of a sample that light recomputation makes again within a layer's backward pass."""
    return layer.traits.light_elements(layer) * width(layer, size)


def _more_narrow(layer: Layer, readers: list[Layer], wide: float) -> float:
    """Return by how many bytes of a sample an output takes more if what layers in a narrow format read of it is
    stored so.

    readers: whose backward pass reads it; wide: its bytes in 16 bits, which go where nothing else reads them.
    """
    narrow = [width(reader, 0.0) for reader in readers if reads_narrow(reader)]
    if not narrow:
        return 0.0
    freed = wide if len(narrow) == len(readers) and not reads_output(layer) else 0.0
    return prod(layer.output_shape) * max(narrow) - freed


def reads_narrow(layer: Layer) -> bool:
    """Return whether backward of a layer reads its input in a narrow format; experts read copies that they store."""
    return bool(layer.narrow) and not reads_output(layer)


@lru_cache(maxsize=1024)
def _readers(model: Model, gathered: bool) -> dict[str, list[Layer]]:
    """Return the layers whose backward pass may read each output; an exchange without state passes it through."""
    found: dict[str, list[Layer]] = {}
    for layer in reversed(model.layers):
        passes_through = _passes_through(layer) or (not gathered and _gathers(layer))
        readers = found.get(layer.name, []) if passes_through else [layer]
        for name in layer.inputs:
            found.setdefault(name, []).extend(readers)
    return found


def _passes_through(layer: Layer) -> bool:
    return layer.kind == "exchange" and layer.attributes["forward"] in ("none", "log_softmax")


def reads_output(layer: Layer) -> bool:
    """Return whether a layer's backward pass reads its output."""
    return "output" in layer.traits.backward_reads


def frees_output(layer: Layer) -> bool:
    """Return whether a layer's output is free by its backward pass: its readers are done, and it does not read it."""
    return not (reads_output(layer) or layer.traits.elementwise or layer.traits.message)


def _gathers(layer: Layer) -> bool:
    """Whether a layer all-gathers the sequence shards of the ranks before a product."""
    return layer.kind == "exchange" and layer.attributes["backward"] == "reduce_scatter"


def moved_elements(model: Model) -> NDArray[np.float64]:
    """Return the elements of a sample that each layer reads and writes or stores, or works with, shape (layers,)."""
    few, place = distinct_layers(model)
    return _moved_elements(few)[place]


def _moved_elements(model: Model) -> NDArray[np.float64]:
    views = np.array([layer.traits.view for layer in model.layers])
    most = np.maximum(model.layer_output_elements, model.layer_stored)
    moved = np.where(views, 0.0, model.layer_input_elements + most)
    working = np.array([layer.traits.working_elements(layer) for layer in model.layers])
    return np.where(working > 0, working, moved)
