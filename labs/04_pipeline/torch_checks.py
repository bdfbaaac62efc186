"""Checks of lab 4 in PyTorch: the laws of checks.py, for a 1F1B step on processes of torch.distributed.

In a terminal:     python torch_checks.py torch_step.py "your name"

The order of the passes is recorded on each rank; the bubble and what is kept are counted from it.
"""

from checks import EVEN, KEPT, ONE, RANKS, SHAPES, UNEVEN, carried_out, short, thrifty

from lib_dlhpc.labs.emulated.pipeline_step import staged_task
from lib_dlhpc.labs.findings import broken, later
from lib_dlhpc.labs.mistakes import Endless, LabError
from lib_dlhpc.labs.program import arguments, end_together, end_with, existing
from lib_dlhpc.labs.torch_ranks.runs import pipeline
from lib_dlhpc.labs.torch_ranks.world import World

SECONDS = 20.0  # without a sign of any rank
STEP = "Step"
LAWS = {EVEN: "Even microbatches", UNEVEN: "Uneven microbatches"}  # all are 1F1B here


def torch_findings(world, file, name, step="step"):
    """Return what holds for a function of a file, given by its name."""

    def run(task, kind):
        return *pipeline(world, file, step, task), ""

    try:
        found = [*orders(world, file, step), *carried_out(run, name)]
        return [each._replace(law=LAWS.get(each.law, each.law)) for each in found]
    except Endless as error:  # nobody waits for the same again
        return [broken(ONE, str(error)), later(KEPT), later(STEP)]


def orders(world, file, step):
    """Return what holds for the order of the passes, on several shapes."""
    performed = {}
    try:
        for ranks, many in SHAPES:
            task = staged_task(0, ranks, 2 * many, many)
            performed[ranks, many] = pipeline(world, file, step, task)[1].streams
    except Endless:
        raise
    except LabError as error:
        return [broken(ONE, str(error)), later(KEPT)]

    def stream(rank, ranks, microbatches):
        return performed[ranks, microbatches][rank]

    return [short(ONE, stream), thrifty(stream)]


def main():
    """Check a file with `step`."""
    file, name = arguments("torch_step.py", '"your name"')
    with World(RANKS, SECONDS) as world:
        result = torch_findings(world, existing(file), name)
    end_with(result, "PyTorch")


if __name__ == "__main__":
    end_together(main)
