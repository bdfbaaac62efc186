"""Low-rank compression: after backward, two factors of each gradient are summed, one after the other.

Source: Vogels et al. 2019, "PowerSGD"; costs/low_rank.py has the numbers.
"""

from lib_dlhpc.costs import low_rank as costs
from lib_dlhpc.layout import Part, sizes
from lib_dlhpc.parallel.data_parallel import STREAM
from lib_dlhpc.program import Collective, Instruction, Transfer
from lib_dlhpc.program.instructions import WEIGHTS
from lib_dlhpc.spec.experiment import Experiment

LEFT, RIGHT = "left factors", "right factors"
PROJECT, PROJECT_BACK, MULTIPLY = "project", "project back", "multiply the factors"


def factored(experiment: Experiment, part: Part) -> list[Instruction]:
    """Return the exchange of the gradients of a network that is not split."""
    model, alone = part.model, sizes(experiment).data == 1
    sent = costs.sent(model, int(experiment.training.low_rank))

    def work(label: str, traffic: int) -> Transfer:
        return Transfer("data", STREAM, costs.product_time(experiment, traffic), 0.0, label=label)

    def total(label: str, elements: int, layers: tuple[int, ...]) -> list[Instruction]:
        one = ("data", "data", "allreduce", float(elements), WEIGHTS, STREAM)
        found = Collective(*one, label=label, ranked=True, layers=layers)
        return [] if alone or not elements else [found]

    # What is sent whole travels with the left factors; with the right ones the same gradients are complete.
    return [
        work(PROJECT, costs.FIRST_TRAFFIC),
        *total(LEFT, sent.left + sent.whole, (0, 0, len(model.layers))),
        work(PROJECT_BACK, costs.SECOND_TRAFFIC),
        *total(RIGHT, sent.right, ()),
        work(MULTIPLY, costs.LAST_TRAFFIC),
    ]
