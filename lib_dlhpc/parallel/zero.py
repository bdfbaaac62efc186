"""ZeRO: weights are gathered ahead of their layers (stage 3), or after the update (1 and 2).

At most two layers have their weights on the device: the current one, and the next, whose all-gather overlaps it
(AT_ONCE, as in the memory model and the trainer). Source: Rajbhandari et al. 2020, section 7.
"""

from lib_dlhpc.costs import compute
from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.stored_activations import AT_ONCE
from lib_dlhpc.layout import Part, sizes
from lib_dlhpc.parallel.data import STREAM
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Collective, Compute, Instruction, Wait
from lib_dlhpc.program.instructions import WEIGHTS
from lib_dlhpc.spec.experiment import Experiment

LABEL = "weights and gradients"


def shard(experiment: Experiment, held: tuple[Part, ...], passes: Passes) -> None:
    """Gather the weights of each layer before its passes (ZeRO 3); wait for the gradients of each pass (2 and 3)."""
    strategy = experiment.strategy
    if strategy.zero < 2 or sizes(experiment).data == 1:
        return
    if strategy.zero == 3:
        chunk = held.index(passes.part)
        passes.forward = _gathered(experiment, passes.part, chunk, passes.forward)
        passes.backward = _gathered(experiment, passes.part, chunk, passes.backward)
        passes.last = _gathered(experiment, passes.part, chunk, passes.last)
    for each in (passes.backward, passes.last):
        each.append(Wait("data", STREAM, "", LABEL))


def gathered_after_update(experiment: Experiment, held: tuple[Part, ...]) -> list[Instruction]:
    """Return the all-gathers of updated weights, a bucket at a time (ZeRO 1 and 2)."""
    strategy = experiment.strategy
    if strategy.zero not in (1, 2) or sizes(experiment).data == 1:
        return []
    element = compute.BYTES[strategy.precision]
    found: list[Instruction] = []
    for chunk, part in enumerate(held):
        stop, cut = len(part.model.layers), buckets(part.model, float(strategy.bucket), element)
        for size, first in zip(cut.sizes.tolist(), cut.last_layer.tolist(), strict=True):
            if size:
                found.append(_gather(experiment, size / element, (chunk, first, stop)))
                stop = first
    return found


def _gather(
    experiment: Experiment, elements: float, layers: tuple[int, ...], key: str = ""
) -> Collective:
    one = ("data", "data", "allgather", elements, WEIGHTS, STREAM, key)
    return Collective(*one, experiment.strategy.allreduce, layers=layers)


def _weights(part: Part) -> list[int]:
    """Return the elements of the weights that each layer of a part reads: a tied one reads the embedding's."""
    layers = part.model.layers
    tables = {layer.name: layer.parameters for layer in layers if layer.traits.lookup}
    return [
        0
        if layer.traits.stand_in
        else layer.parameters + tables.get(layer.attributes.get("tied", ""), 0)
        for layer in layers
    ]


def _gathered(
    experiment: Experiment, part: Part, chunk: int, instructions: list[Instruction]
) -> list[Instruction]:
    """Post an all-gather as soon as a layer frees its weights; wait for it before the layer that needs it.

    A layer frees its weights unless the same layer is next: recomputation gathers those of a segment once more.
    """
    weights = _weights(part)
    needs = [
        (at, each.layer)
        for at, each in enumerate(instructions)
        if isinstance(each, Compute) and weights[each.layer]
    ]
    freed = [None, *(layer for _, layer in needs)]
    needs = [need for need, before in zip(needs, freed, strict=False) if need[1] != before]
    window = AT_ONCE if experiment.overlap else 1
    coming, needed = iter(needs), {at for at, _ in needs}
    found: list[Instruction] = []

    def gather() -> None:
        at, layer = next(coming, (0, -1))
        if layer >= 0:
            one = (chunk, layer, layer + 1)
            found.append(_gather(experiment, weights[layer], one, f"weights {at}"))

    for _ in range(window):
        gather()
    for at, each in enumerate(instructions):
        if at in needed:
            found += [Wait("data", STREAM, f"weights {at}", LABEL), each]
            gather()
        else:
            found.append(each)
    return found
