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


def shard(experiment: Experiment, _: tuple[Part, ...], passes: Passes) -> None:
    """Gather the weights of each layer before its passes (ZeRO 3); wait for the gradients of each pass (2 and 3)."""
    strategy = experiment.strategy
    if strategy.zero < 2 or sizes(experiment).data == 1:
        return
    if strategy.zero == 3:
        passes.forward = _gathered(experiment, passes.part, passes.forward)
        passes.backward = _gathered(experiment, passes.part, passes.backward)
        passes.last = _gathered(experiment, passes.part, passes.last)
    for each in (passes.backward, passes.last):
        each.append(Wait("data", STREAM, "", LABEL))


def gathered_after_update(experiment: Experiment, held: tuple[Part, ...]) -> list[Instruction]:
    """Return the all-gathers of updated weights, a bucket at a time (ZeRO 1 and 2)."""
    strategy = experiment.strategy
    if strategy.zero not in (1, 2) or sizes(experiment).data == 1:
        return []
    element = compute.BYTES[strategy.precision]
    found: list[Instruction] = []
    for part in held:
        cut = buckets(part.model, float(strategy.bucket), element).sizes / element
        found += [_gather(experiment, elements) for elements in cut.tolist() if elements]
    return found


def _gather(experiment: Experiment, elements: float, key: str = "") -> Collective:
    one = ("data", "data", "allgather", elements, WEIGHTS, STREAM, key)
    return Collective(*one, experiment.strategy.allreduce)


def _gathered(
    experiment: Experiment, part: Part, instructions: list[Instruction]
) -> list[Instruction]:
    """Post an all-gather as soon as a layer frees its weights; wait for it before the layer that needs it.

    A layer frees its weights unless the same layer is next: recomputation gathers those of a segment once more.
    """
    layers = part.model.layers
    needs = [
        (at, each.layer)
        for at, each in enumerate(instructions)
        if isinstance(each, Compute) and layers[each.layer].parameters
    ]
    freed = [None, *(layer for _, layer in needs)]
    needs = [need for need, before in zip(needs, freed, strict=False) if need[1] != before]
    window = AT_ONCE if experiment.overlap else 1
    coming, needed = iter(needs), {at for at, _ in needs}
    found: list[Instruction] = []

    def gather() -> None:
        at, layer = next(coming, (0, -1))
        if layer >= 0:
            found.append(_gather(experiment, layers[layer].parameters, f"weights {at}"))

    for _ in range(window):
        gather()
    for at, each in enumerate(instructions):
        if at in needed:
            found += [Wait("data", STREAM, f"weights {at}", LABEL), each]
            gather()
        else:
            found.append(each)
    return found
