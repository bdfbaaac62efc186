"""Zero-bubble pipelines: backward passes in two parts, so that weight gradients fill what would be idle time.

A stage needs the gradient of its input before the stage before it can continue; the gradients of its weights can wait.
Products compute the two apart, at the same cost each; all other layers compute both at once, in the first part.

Source: Qi et al. 2024, "Zero bubble pipeline parallelism", section 2.
"""

from lib_dlhpc.costs.exchanges import regathered
from lib_dlhpc.layout import Part
from lib_dlhpc.parallel.layers import communication, computed
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Collective, Compute, Instruction
from lib_dlhpc.spec.experiment import Experiment


def split_backward(experiment: Experiment, _: tuple[Part, ...], passes: Passes) -> None:
    """Move weight gradients, and the buckets that they fill, from backward to a pass of their own."""
    if not experiment.strategy.splits_backward:
        return
    passes.backward, passes.weights = _in_two(experiment, passes.part, passes.backward)
    passes.last = _in_two(experiment, passes.part, passes.last)[1]


def _in_two(
    experiment: Experiment, part: Part, instructions: list[Instruction]
) -> tuple[list[Instruction], list[Instruction]]:
    """Return a backward pass without weight gradients, and what computes them."""
    layers = part.model.layers
    again = {layer.name for layer in regathered(part.model, experiment.strategy.recompute)}
    backward: list[Instruction] = []
    weights: list[Instruction] = []
    for instruction in instructions:
        if isinstance(instruction, Collective) and instruction.layers:
            weights.append(instruction)
        elif not isinstance(instruction, Compute) or instruction.phase != "backward":
            backward.append(instruction)
        elif layers[instruction.layer].traits.splits_backward:
            backward.append(computed(instruction.layer, "input_grad"))
            weights.append(computed(instruction.layer, "weight_grad"))
        else:
            if layers[instruction.layer].name in again and not experiment.overlap:
                # The repeated all-gather before it is for a weight gradient.
                count = len(communication(layers[instruction.layer], "forward"))
                weights += backward[len(backward) - count :]
                del backward[len(backward) - count :]
            backward.append(instruction)
    return backward, weights
