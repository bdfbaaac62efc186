"""The passes of a stage through its microbatches, recorded by hooks of PyTorch."""

from typing import Any

import torch
from torch import nn


class Passes:
    """Records the passes of a module; the k-th forward of a step is that of microbatch k.

    done: ("forward" or "backward", microbatch), in order. overwritten: microbatches whose input was written to
    between forward and backward: autograd keeps the tensor and no copy, and does not see what a receive writes.
    """

    def __init__(self, stage: nn.Module) -> None:
        self.done: list[tuple[str, int]] = []
        self.overwritten: list[int] = []
        stage.register_forward_hook(self._forward)

    def _forward(self, stage: nn.Module, given: Any, output: torch.Tensor) -> None:
        microbatch = sum(kind == "forward" for kind, _ in self.done)
        self.done.append(("forward", microbatch))
        value, was = given[0], given[0].detach().clone()

        def backward(gradient: torch.Tensor) -> None:
            self.done.append(("backward", microbatch))
            if not torch.equal(value, was):
                self.overwritten.append(microbatch)

        if output.requires_grad:
            output.register_hook(backward)
