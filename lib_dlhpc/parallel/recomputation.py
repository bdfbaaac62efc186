"""Activation recomputation: the forward pass of a segment, repeated before its backward pass, with its messages.

Sources: Chen et al. 2016; Korthikanti et al. 2022 (attention alone).
"""

from lib_dlhpc.costs.segments import segments
from lib_dlhpc.layout import Part
from lib_dlhpc.parallel.layers import communication
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Compute, Instruction
from lib_dlhpc.spec.experiment import Experiment


def recompute(experiment: Experiment, _: tuple[Part, ...], passes: Passes) -> None:
    """Repeat the forward pass of each segment that is not stored, just before its backward pass."""
    model, shared = passes.part.model, int(experiment.strategy.experts)
    before: dict[int, list[Instruction]] = {}  # by the first layer of the backward pass
    for segment in segments(model, experiment.strategy.recompute):
        again = before.setdefault(segment.stop - 1, [])
        for number in range(segment.first, segment.stop):
            again.append(Compute(number, "forward"))
            again += communication(model.layers[number], "forward", shared)
    passes.backward = _inserted(passes.backward, before)
    passes.last = _inserted(passes.last, before)


def _inserted(
    instructions: list[Instruction], before: dict[int, list[Instruction]]
) -> list[Instruction]:
    found: list[Instruction] = []
    for each in instructions:
        if isinstance(each, Compute):
            found += before.get(each.layer, [])
        found.append(each)
    return found
