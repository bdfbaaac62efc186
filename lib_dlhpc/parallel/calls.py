"""What a call of an exchange of experts takes beyond its messages, where one copy of a token goes to a device.

HybridEP gathers the routing of all ranks, finds where each row goes, and fills and empties its buffers, beside the
kernel that sends (NVIDIA, DeepEP branch hybrid-ep, docs/README_Hybrid-EP.md: columns "Torch API" and "Kernel only").
`device.exchange_call` is the price; it is the same for 8 and for 36 ranks. A layer calls twice in forward, and twice
in backward. The device is busy with calls, so the host, where it is slow, gains on it.
"""

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import BY_NODE

CALLS = 2  # of a pass: dispatch and combine


def called(experiment: Experiment, passes: Passes) -> Floats | float:
    """Return the seconds of calls that each layer of a part adds to its forward, and to its backward pass."""
    strategy, device = experiment.strategy, experiment.machine.device
    if strategy.expert_exchange != BY_NODE or strategy.experts == 1 or not device.exchange_call:
        return 0.0
    theirs = [layer.has_experts for layer in passes.part.model.layers]
    return CALLS * float(device.exchange_call) * np.array(theirs, np.float64)
