"""What a device holds in the course of a step, from layer to layer: it fills forward and empties backward.

The moments of ledger.py are the ends of these curves: the highest point of a course is the ledger's peak.
Each pass of a microbatch begins with nothing kept. A network that is not cut into stages, nothing offloaded.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.compute import BYTES, update_time
from lib_dlhpc.costs.kept import backward_bytes, backward_extra, forward_bytes
from lib_dlhpc.costs.segments import segments
from lib_dlhpc.costs.stage import made_again, stage_cost
from lib_dlhpc.layout import Part
from lib_dlhpc.prediction.hybrid import rank_model, rank_parts
from lib_dlhpc.prediction.ledger import moments
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment

Floats = NDArray[np.float64]
FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"


@dataclass(frozen=True)
class Course:
    """Points of a step, one for each layer on its way forward, and back, and the update; arrays of equal length."""

    time: Floats  # s at which it begins
    bytes: Floats  # held from then on, all terms together
    layer: tuple[str, ...]
    what: tuple[str, ...]  # FORWARD, BACKWARD, UPDATE
    fixed: (
        float  # B that are there all the time: weights, gradients, optimiser state, input, buffers
    )
    end: float  # s


def course(experiment: Experiment, scale: float = 1.0) -> Course:
    """Return what the first rank of a scalar experiment holds, layer by layer, in one step.

    Raises SpecError for a pipeline, and where something is offloaded.
    """
    strategy = experiment.strategy
    if int(strategy.pipeline) > 1 or strategy.offload != "none":
        raise SpecError(
            f"strategy.pipeline = {strategy.pipeline}, strategy.offload = {strategy.offload!r}: the course of a"
            " step is known for pipeline = 1 and offload = 'none' only."
        )
    (part,) = rank_parts(experiment)[0][0]
    size, many = BYTES[strategy.precision], int(strategy.microbatches)
    batch, recompute = ceil(strategy.batch / many), strategy.recompute
    ahead, home = moments(experiment)[:2]
    fixed = sum(
        value for term, value in ahead.terms.items() if term not in ("activations", "working set")
    )
    # What the ledger has in a backward pass beside what layers hold: gradients still to be added up.
    beside = home.terms["working set"] - batch * backward_extra(part, size, recompute)
    cost = stage_cost(experiment, part, strategy.batch / many, scale)
    backward = cost.layer_backward.copy()
    repeated = made_again(part.model, recompute)
    for segment in segments(part.model, recompute):
        inside = slice(segment.first, segment.stop)
        backward[segment.stop - 1] += cost.layer_forward[inside][repeated[inside]].sum()
    names = [layer.name for layer in rank_model((part,)).layers]
    seconds = np.concatenate([cost.layer_forward, backward[::-1]])
    back = batch * backward_bytes(part, size, recompute)[::-1] + max(0.0, beside)
    held = np.concatenate([batch * forward_bytes(part, size, recompute), back])
    took = np.tile(seconds, many)
    layers, words = (*names, *names[::-1]), (FORWARD,) * len(names) + (BACKWARD,) * len(names)
    end, update = float(took.sum()), _update(experiment, part, scale)
    return Course(
        time=np.concatenate([[0.0], np.cumsum(took)]),
        bytes=fixed + np.concatenate([np.tile(held, many), [0.0]]),
        layer=layers * many + ("",),
        what=words * many + (UPDATE,),
        fixed=float(fixed),
        end=end + update,
    )


def _update(experiment: Experiment, part: Part, scale: float) -> float:
    device, optimizer = experiment.machine.device, experiment.strategy.optimizer
    return float(scale * update_time(rank_model((part,)), device, optimizer))
