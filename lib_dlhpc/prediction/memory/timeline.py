"""Memory of a device over a step, layer by layer: it grows in forward and shrinks in backward.

The moments of rank_memory.py are points of this timeline: its peak is the ledger's peak.
Each microbatch begins without activations. Only without a pipeline and without offloading.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs.low_precision import casts_each_pass
from lib_dlhpc.costs.power_limit import clocked
from lib_dlhpc.costs.roofline import BYTES, layer_times
from lib_dlhpc.costs.segments import segments
from lib_dlhpc.costs.stored_activations import backward_bytes, backward_extra, forward_bytes
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import folded
from lib_dlhpc.parallel import update_time
from lib_dlhpc.prediction.memory.rank_memory import moments
from lib_dlhpc.prediction.memory.rank_parts import rank_model, rank_parts
from lib_dlhpc.spec.experiment import Experiment

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"


@dataclass(frozen=True)
class MemoryTimeline:
    """Points of a step, one for each layer forward, each layer backward, and the update; arrays of equal length."""

    time: Floats  # s at which it begins
    bytes: Floats  # allocated from then on, sum of all terms
    layer: tuple[str, ...]
    what: tuple[str, ...]  # FORWARD, BACKWARD, UPDATE
    fixed: float  # B of the whole step: weights, gradients, optimizer state, input, buffers
    end: float  # s


def memory_timeline(experiment: Experiment) -> MemoryTimeline:
    """Return the memory of the first rank of a scalar experiment, layer by layer, in one step.

    Raises SpecError for a pipeline and for offloading.
    """
    strategy = experiment.strategy
    if int(strategy.pipeline) > 1 or strategy.offload != "none":
        raise SpecError(
            f"strategy.pipeline = {strategy.pipeline}, strategy.offload = {strategy.offload!r}: a memory timeline"
            " needs pipeline = 1 and offload = 'none'."
        )
    experiment = folded(experiment)
    (part,) = rank_parts(experiment)[0][0]
    size, many = BYTES[strategy.precision], int(strategy.microbatches)
    batch, recompute = ceil(strategy.batch / many), strategy.recompute
    forward, back = moments(experiment)[:2]
    fixed = sum(
        value for term, value in forward.terms.items() if term not in ("activations", "working set")
    )
    # The ledger's working set also holds gradients of a pass, before accumulation.
    extra = back.terms["working set"] - batch * backward_extra(part, size, recompute)
    each = strategy.batch / many
    device = clocked(experiment.machine.device, strategy.power_limit)
    casts = casts_each_pass(strategy)
    times = layer_times(part.model, device, each, strategy.precision, each_pass=casts)
    ahead, backward = times.forward, times.backward.copy()
    for segment in segments(part.model, recompute):
        backward[segment.stop - 1] += ahead[list(segment.repeated)].sum()
    names = [layer.name for layer in rank_model((part,)).layers]
    seconds = np.concatenate([ahead, backward[::-1]])
    in_backward = batch * backward_bytes(part, size, recompute)[::-1] + max(0.0, extra)
    held = np.concatenate([batch * forward_bytes(part, size, recompute), in_backward])
    durations = np.tile(seconds, many)
    layers, passes = (*names, *names[::-1]), (FORWARD,) * len(names) + (BACKWARD,) * len(names)
    end, update = float(durations.sum()), update_time(experiment, (part,), 1.0)
    return MemoryTimeline(
        time=np.concatenate([[0.0], np.cumsum(durations)]),
        bytes=fixed + np.concatenate([np.tile(held, many), [0.0]]),
        layer=layers * many + ("",),
        what=passes * many + (UPDATE,),
        fixed=float(fixed),
        end=end + update,
    )
