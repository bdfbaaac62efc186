"""Activation recomputation: the forward pass of a segment, repeated before its backward pass, with its messages.

Sources: Chen et al. 2016; Korthikanti et al. 2022 (attention alone); DeepSeek-AI 2024, section 3.2.3 (norms and
up-projections).
"""

from lib_dlhpc.costs.segments import segments
from lib_dlhpc.layout import Part
from lib_dlhpc.parallel.layers import AT_HOME, Sharing, one_layer, sharing
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Compute, Instruction
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model


def recompute(experiment: Experiment, _: tuple[Part, ...], passes: Passes) -> None:
    """Repeat the forward pass of each segment that is not stored, just before its backward pass."""
    how = (passes.part.model, experiment.strategy.recompute, sharing(experiment))
    again = repeated(passes.backward, *how)
    passes.last = list(again) if passes.last == passes.backward else repeated(passes.last, *how)
    passes.backward = again


def repeated(
    instructions: list[Instruction], model: Model, recompute: str, experts: Sharing = AT_HOME
) -> list[Instruction]:
    """Return a backward pass with each segment's forward pass inserted before its backward pass."""
    before: dict[int, list[Instruction]] = {}  # by the first layer of the backward pass
    for segment in segments(model, recompute):
        again = before.setdefault(segment.stop - 1, [])
        for number in segment.repeated:
            again += one_layer(number, model.layers[number], "forward", experts)
    emitted: list[Instruction] = []
    for instruction in instructions:
        if isinstance(instruction, Compute):
            emitted += before.pop(instruction.layer, [])
        emitted.append(instruction)
    return emitted
