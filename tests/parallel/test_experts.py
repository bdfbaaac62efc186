"""Laws of the program of a step with experts: where their messages stand, and what of a bucket each group sums."""

import pytest
from split_runs import MOE, split

from lib_dlhpc import parallel
from lib_dlhpc.program import Collective, Compute

EXPERTS = {"data": 4, "experts": 2}


def passes_of(**strategy):
    program = parallel.program(split(MOE, **EXPERTS, **strategy))
    chunk = program.stages[0][0]
    layers = chunk.forward.prices[0].model.layers
    for phase in ("forward", "backward", "last"):
        yield phase, layers, getattr(chunk, phase).variants[0].instructions


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_positions_go_to_the_experts_before_their_work_and_home_after_it(recompute):
    for phase, layers, instructions in passes_of(recompute=recompute):
        inside = [each for each in instructions if not getattr(each, "stream", "")]
        worked = [
            at
            for at, each in enumerate(inside)
            if isinstance(each, Compute) and layers[each.layer].kind == "experts"
        ]
        again = 2 if recompute == "full" and phase != "forward" else 1
        assert len(worked) == again * MOE["layers"]
        around = [inside[at + side] for at in worked for side in (-1, 1)]
        assert all(isinstance(each, Collective) for each in around)
        assert {each.goal for each in around} == {"all_to_all"}
        assert sum(isinstance(each, Collective) for each in inside) == len(around)
