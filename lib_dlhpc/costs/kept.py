"""What a part of a network keeps from a sample's forward pass to its backward pass, layer by layer.

A layer's output is kept where a backward pass reads it. It is not where the layer itself needs only its
input and all its readers do without: a sum, a mean, a halo, an exchange, or the next stage. What is made again is kept
only where a layer outside of its segment reads it (costs/segments.py), and a segment is there as a whole
while it goes backward.
"""

from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.compute import BYTES
from lib_dlhpc.costs.segments import segments
from lib_dlhpc.costs.stage import halo_elements
from lib_dlhpc.layout import Part
from lib_dlhpc.spec.model import Layer, Model

Floats = NDArray[np.float64]
# Kinds whose backward needs their input and not their output, or neither.
NEED_INPUT_ONLY = ("conv", "dense", "batch_norm", "layer_norm", "add", "avg_pool", "upsample")
ELEMENT_WISE = ("relu", "leaky_relu", "tanh", "sigmoid", "gelu", "dropout")
COPIES = (
    "add",
    "halo",
    "exchange",
    "global_avg_pool",
)  # kinds that need nothing of their input any more
NEITHER = (*NEED_INPUT_ONLY, "gelu", "halo", "exchange", "receive")
AT_ONCE = 2  # layers on the device where what is kept waits elsewhere: one at hand, one on its way


def kept_bytes(part: Part, size: int, recompute: str = "none", gathered: bool = False) -> float:
    """Return the bytes of a sample that a part keeps; `size`: bytes of an element.

    gathered: whether what is gathered before a product is kept whole, as it is out of core; else backward
    gathers it again (Korthikanti et al. 2022, section 4.2.2).
    """
    return float(_kept(part.model, part.sends, size, recompute, gathered).sum())


@lru_cache(maxsize=4096)
def near_bytes(part: Part, size: int, recompute: str = "none") -> tuple[float, float]:
    """Return what a sample has on the device at worst, where all that is kept waits elsewhere, in bytes.

    That is what a layer and the one before it keep, of which one is on its way, or a whole segment that is
    made again; and the gradients of the layer's input and output.
    """
    model = part.model
    own = _kept(model, part.sends, size, recompute, True)
    whole = _kept(model, part.sends, size, "none", True)
    inside = {at: s for s in segments(model, recompute) for at in range(s.first, s.stop)}
    moved = size * moved_elements(model)
    most = 0.0, 0.0
    for index, layer in enumerate(model.layers):
        first = inside[index].first if index in inside else index
        stop = index if layer.kind in NEITHER else index + 1
        there = float(whole[first:stop].sum())
        before = own[:first][own[:first] > 0]
        there += float(before[-AT_ONCE if first == stop else 1 - AT_ONCE :].sum())
        if layer.kind in ELEMENT_WISE or layer.inputs == ("input",):
            moved[index] -= size * model.layer_input_elements[index]
        beside = float(moved[index] + size * waiting(model)[index])
        most = max(most, (there, beside), key=sum)
    return most


@lru_cache(maxsize=256)
def backward_extra(part: Part, size: int, recompute: str = "none", gathered: bool = False) -> float:
    """Return the bytes of a sample by which a part's backward pass exceeds all that it keeps."""
    total = kept_bytes(part, size, recompute, gathered)
    return max(0.0, float(backward_bytes(part, size, recompute, gathered).max(initial=0.0)) - total)


def forward_bytes(part: Part, size: int, recompute: str = "none") -> Floats:
    """Return the bytes of a sample that are kept when each layer has gone forward, shape (layers,)."""
    return np.cumsum(_kept(part.model, part.sends, size, recompute, False))


def backward_bytes(
    part: Part, size: int, recompute: str = "none", gathered: bool = False
) -> Floats:
    """Return the bytes of a sample that a part holds while each layer goes backward, shape (layers,).

    Backward lets go of layers from the last to the first, and has the gradients of one layer's input and
    output at a time; a segment that is made again is there as a whole first.
    """
    model = part.model
    own = np.cumsum(_kept(model, part.sends, size, recompute, gathered))
    held = own.copy()
    whole = _kept(model, part.sends, size, "none", gathered)
    for segment in segments(model, recompute):
        inside = slice(segment.first, segment.stop)
        before = own[segment.first - 1] if segment.first else 0.0
        held[inside] = before + np.cumsum(whole[inside])
    moved = size * moved_elements(model)
    fetched = {layer.name for layer in model.layers if _gathers(layer) and not gathered}
    for index, layer in enumerate(model.layers):
        if layer.inputs and layer.inputs[0] in fetched:  # what it read is there once more
            moved[index] += size * prod(layer.input_shape)
        if layer.kind in ("exchange", "halo"):
            moved[index] = size * _passed_on(layer)
            continue
        if layer.kind in ELEMENT_WISE or layer.inputs == ("input",):
            moved[index] -= size * model.layer_input_elements[index]
        if layer.kind in NEED_INPUT_ONLY:
            moved[index] -= whole[index]
            if size < BYTES["fp32"] and whole[index]:  # gradients of 32-bit logits take their place
                moved[index] += layer.mask_bytes
    return held + moved + size * waiting(model)


@lru_cache(maxsize=256)
def waiting(model: Model) -> Floats:
    """Return the elements of a sample's gradients that wait while each layer goes backward, shape (layers,).

    Where several layers have read an output, such as round a residual branch, its gradient waits for the
    last of them, beside the gradients of whatever layer is at hand.
    """
    readers: dict[str, list[int]] = {}
    for index, layer in enumerate(model.layers):
        for name in layer.inputs:
            readers.setdefault(name, []).append(index)
    found = np.zeros(len(model.layers))
    for layer in model.layers:
        reads = readers.get(layer.name, [])
        if len(reads) > 1:
            # Readers have it among their own gradients.
            found[reads[0] + 1 : reads[-1]] += prod(layer.output_shape)
            found[reads[1:-1]] -= prod(layer.output_shape)
    found.setflags(write=False)
    return found


def _passed_on(layer: Layer) -> int:
    """Return the elements that a layer of messages has at once: gradients, and copies while they travel."""
    before, after = prod(layer.input_shape), prod(layer.output_shape)
    if layer.kind == "halo":
        return before + after + sum(halo_elements(layer))
    forward, backward = layer.attributes["forward"], layer.attributes["backward"]
    there = before + max(before, after) if forward in ("all_gather", "reduce_scatter") else 0
    home = {"none": 0, "all_reduce": 0, "slice": before, "all_gather": 2 * before}
    return max(there, after + home.get(backward, before + after))


@lru_cache(maxsize=256)
def _kept(
    model: Model, sends: tuple[str, ...], size: int, recompute: str, gathered: bool
) -> Floats:
    """Return the bytes of a sample that each layer keeps, shape (layers,)."""
    readers = _readers(model, gathered)
    at = {layer.name: index for index, layer in enumerate(model.layers)}
    found = np.zeros(len(model.layers))
    for index, layer in enumerate(model.layers):
        found[index] = layer.stored * size + layer.mask_bytes
        reads = readers.get(layer.name, [])
        copied = all(_copies(reader) for reader in reads)
        if layer.kind in NEITHER and copied and (reads or layer.name in sends):
            found[index] = 0.0
        if not gathered and _gathers(layer):
            found[index] = 0.0
    for segment in segments(model, recompute):
        for index in range(segment.first, segment.stop):
            layer = model.layers[index]
            outside = [
                reader
                for reader in readers.get(layer.name, [])
                if not segment.first <= at[reader.name] < segment.stop
            ]
            found[index] = prod(layer.output_shape) * size if outside else 0.0
    found.setflags(write=False)
    return found


def _readers(model: Model, gathered: bool) -> dict[str, list[Layer]]:
    """Return whose backward pass may read each output: an exchange that keeps nothing of its own is none."""
    found: dict[str, list[Layer]] = {}
    for layer in reversed(model.layers):
        hands_on = _hands_on(layer) or (not gathered and _gathers(layer))
        readers = found.get(layer.name, []) if hands_on else [layer]
        for name in layer.inputs:
            found.setdefault(name, []).extend(readers)
    return found


def _hands_on(layer: Layer) -> bool:
    return layer.kind == "exchange" and layer.attributes["forward"] == "none"


def _copies(layer: Layer) -> bool:
    return layer.kind in COPIES


def _gathers(layer: Layer) -> bool:
    """Whether a layer puts together what the ranks have of a sequence, before a product."""
    return layer.kind == "exchange" and layer.attributes["backward"] == "reduce_scatter"


def moved_elements(model: Model) -> NDArray[np.float64]:
    """Return the elements of a sample that each layer reads and puts out or keeps, shape (layers,)."""
    views = np.array([layer.kind in ("flatten", "reshape") for layer in model.layers])
    most = np.maximum(model.layer_output_elements, model.layer_stored)
    return np.where(views, 0.0, model.layer_input_elements + most)
