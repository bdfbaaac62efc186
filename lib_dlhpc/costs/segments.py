"""The segments of layers that activation recomputation recomputes, and what it stores to do so."""

from bisect import bisect_right
from functools import lru_cache
from itertools import groupby, pairwise
from math import sqrt

import numpy as np

from lib_dlhpc.costs.light_recomputation import light_runs
from lib_dlhpc.costs.per_op_recomputation import per_op_runs, repeated
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.model import BLOCK, Layer, Model
from lib_dlhpc.spec.strategy import EARLY_STOP, LIGHT, PER_OP

ELEMENT = 4  # bytes, for segments of equal size


@dataclass(frozen=True)
class Segment:
    """Layers first, ..., stop - 1, before whose backward pass the `repeated` ones are recomputed from their inputs."""

    first: int
    stop: int
    reads: tuple[str, ...]  # "input", the samples, among them
    repeated: tuple[int, ...]


@lru_cache(maxsize=1024)
def segments(model: Model, recompute: str) -> tuple[Segment, ...]:
    """Return the segments of a network, or of one rank's part of it, from the first layer to the last.

    recompute: "none"; "selective": each attention, whose input is stored and whose scores are not
    (Korthikanti et al. 2022, section 5); "light": norms, activations and expanded latent vectors, up to the last layer
    that reads them (costs/light_recomputation.py); "per-op": each block but fused attention and every second matmul
    (costs/per_op_recomputation.py); "full": each block of a transformer (section 4.1), on stages without one nothing,
    and of other networks all layers, in about sqrt(n) segments of about equal stored bytes, n being the places where a
    single array is live (Chen et al. 2016, "Training deep nets with sublinear memory cost", section 4.1); "early-stop":
    the same, up to the last layer whose output or mask backward reads (PyTorch, torch.utils.checkpoint,
    set_checkpoint_early_stop): not a block's last matmul and sum.
    """
    if recompute == "none":
        return ()
    layers = model.layers
    if recompute == LIGHT:
        return tuple(_segment(layers, *run) for run in light_runs(layers))
    if recompute == PER_OP:
        return tuple(_segment(layers, *run) for run in per_op_runs(layers, _blocks(layers)))
    if recompute == "selective":
        runs = [(index, index + 1) for index, layer in enumerate(layers) if layer.traits.selective]
    else:
        runs = _blocks(layers) if model.has_blocks or model.in_blocks else _equal(model)
    if recompute == EARLY_STOP:
        return tuple(_segment(layers, *run, _read(layers, *run)) for run in runs)
    return tuple(_segment(layers, *run, tuple(range(*run))) for run in runs)


def _segment(
    layers: tuple[Layer, ...], first: int, stop: int, repeated: tuple[int, ...]
) -> Segment:
    return Segment(first, stop, _reads(tuple(layers[index] for index in repeated)), repeated)


def _read(layers: tuple[Layer, ...], first: int, stop: int) -> tuple[int, ...]:
    """Return the layers of a run up to the last of which backward reads something."""
    masks = (index for index in range(first, stop) if layers[index].mask_bytes)
    last = max((*repeated(layers, first, stop, set()), *masks), default=first - 1)
    return tuple(range(first, last + 1))


def surely_repeated(model: Model, recompute: str, anywhere: bool) -> tuple[int, ...]:
    """Return which layers an early stop, or recomputation by operator, repeats wherever stages are cut.

    anywhere: also within a block, and where several outputs are live. Then any layer may be the last of its stage, and
    which products are every second one is not known.
    """
    all_segments, layers = segments(model, recompute), model.layers
    every = tuple(index for segment in all_segments for index in segment.repeated)
    if recompute == PER_OP:
        certain = (
            index
            for index in every
            if not layers[index].traits.product and _keeps_output(layers[index])
        )
        return tuple(certain) if anywhere else every
    if anywhere:
        return tuple(
            index for index in every if _keeps_output(layers[index]) or layers[index].mask_bytes
        )
    ends = sorted({*cut_points(model), *(segment.stop for segment in all_segments)})
    return tuple(index for index in every if _read(layers, index, ends[bisect_right(ends, index)]))


def cut_within(model: Model, recompute: str, ends: tuple[int, ...]) -> bool:
    """Return whether stages that may end there are cut within a block, or where several outputs are live."""
    if not model.has_blocks:
        return not {*ends[1:-1]} <= {*cut_points(model)}
    return any(
        segment.first < end < segment.stop for segment in segments(model, recompute) for end in ends
    )


def _keeps_output(layer: Layer) -> bool:
    return "output" in layer.traits.backward_reads


def cut_points(model: Model) -> tuple[int, ...]:
    """Return each index between the first layer and the last before which a single output is live.

    Live is what a layer from there on reads; samples are not counted, as they are in memory in any case.
    """
    last = {name: index for index, layer in enumerate(model.layers) for name in layer.inputs}
    points, alive = [], 0
    ends = [0] * (len(model.layers) + 1)
    for index, layer in enumerate(model.layers):
        alive -= ends[index]
        if index and alive == 1 and not model.layers[index - 1].traits.stand_in:
            points.append(index)
        if layer.name in last and layer.kind != "table":
            alive += 1
            ends[last[layer.name] + 1] += 1
    return tuple(points)


def _blocks(layers: tuple[Layer, ...]) -> list[tuple[int, int]]:
    runs = []
    for block, run in groupby(range(len(layers)), key=lambda index: _block(layers[index])):
        indices = list(run)
        if block:
            runs.append((indices[0], indices[-1] + 1))
    return runs


def _block(layer: Layer) -> str:
    match = BLOCK.match(layer.name)
    return match.group() if match and not layer.traits.stand_in else ""


def _equal(model: Model) -> list[tuple[int, int]]:
    points = np.array(cut_points(model), int)
    first = next(
        (index for index, layer in enumerate(model.layers) if not layer.traits.stand_in), None
    )
    if first is None:
        return []
    edges = {first, len(model.layers)}
    many = max(1, round(sqrt(len(points))))
    if len(points):
        stored = np.concatenate([[0], np.cumsum([_kept(layer) for layer in model.layers])])
        for share in range(1, many):
            edges.add(int(points[np.argmin(np.abs(stored[points] - stored[-1] * share / many))]))
    return list(pairwise(sorted(edges)))


def _kept(layer: Layer) -> int:
    """Return the bytes of a sample's activations, unsharded.

    Ranks that communicate within a segment must recompute it at the same time, so all must cut alike.
    """
    if layer.traits.message:
        return 0
    whole = layer.attributes.get("whole", layer)
    return int(ELEMENT * whole.stored + whole.mask_bytes)


def _reads(layers: tuple[Layer, ...]) -> tuple[str, ...]:
    made = {layer.name for layer in layers}
    reads = (name for layer in layers for name in layer.inputs if name not in made)
    return tuple(dict.fromkeys(reads))
