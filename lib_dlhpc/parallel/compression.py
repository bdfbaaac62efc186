"""Deep gradient compression: after backward, the largest gradients are selected, all-gathered and added.

Nothing overlaps: the largest elements of a tensor are known once all of it is. Source: Lin et al. 2018, "Deep gradient
compression"; costs/compression.py has the numbers.
"""

from math import inf

from lib_dlhpc.costs import compression as costs
from lib_dlhpc.layout import Part, sizes
from lib_dlhpc.parallel.data_parallel import STREAM
from lib_dlhpc.program import Collective, Instruction, Transfer
from lib_dlhpc.program.instructions import GATHER, PAIRS, WEIGHTS
from lib_dlhpc.spec.experiment import Experiment

SELECT, ADD = "select the largest", "add the largest"
LARGEST, WHOLE = "largest gradients", "small tensors"


def exchanged(experiment: Experiment, part: Part) -> list[Instruction]:
    """Return the exchange of the gradients of a network that is not split."""
    replicas, model = sizes(experiment).data, part.model
    share = costs.density(experiment.training, inf)
    pairs, whole = costs.sent(model, share)
    layers = (0, 0, len(model.layers))
    selection = costs.selection_time(experiment)
    emitted: list[Instruction] = [Transfer("data", STREAM, selection, 0.0, label=SELECT)]
    if pairs and replicas > 1:
        fields = ("data", "data", GATHER, float(replicas * pairs), PAIRS, STREAM)
        emitted.append(Collective(*fields, label=LARGEST, ranked=True, layers=layers))
    if whole and replicas > 1:
        fields = ("data", "data", "allreduce", float(whole), WEIGHTS, STREAM)
        emitted.append(Collective(*fields, label=WHOLE, ranked=True, layers=layers))
    if pairs:
        adding = costs.addition_time(experiment, replicas * pairs)
        emitted.append(Transfer("data", STREAM, adding, 0.0, label=ADD))
    return emitted
