"""Laws of the load of experts: counts are summed once for each tensor group, and passes wait for their busiest rank."""

from types import SimpleNamespace as Some

import numpy as np

from lib_dlhpc.layers.experts import Load
from lib_dlhpc.training.expert_load import ExpertLoad, expert_load


class World:
    """All ranks' rows, as if each had called: `expert_load` runs once a rank, and the last one gathers."""

    def __init__(self):
        self.rows = []

    def gather(self, own):
        self.rows.append(own)
        return self.rows


def loads(ranks, experts, tensor):
    """The load of a layer from (chosen, dropped, received) of each rank."""
    world = World()
    for rank, (chosen, dropped, received) in enumerate(ranks):
        place = Some(data=rank // tensor)
        groups = Some(
            world=world, place=place, experts=Some(size=experts), first=rank % tensor == 0
        )
        layer = Some(load=Load(np.array(chosen), dropped, received))
        noun = Some(name="e", has_experts=True)
        stage = Some(model=Some(layers=[noun]), network=Some(layers=[layer]))
        found = expert_load(groups, [stage])
    return found


def test_a_pass_is_as_uneven_as_its_busiest_rank():
    """In two passes of 8 + 4 positions each other rank has more: over the run both have as many."""
    ranks = [([6, 6], 3, [8, 4]), ([6, 6], 3, [4, 8])]
    assert loads(ranks, 2, 1) == [ExpertLoad("e", [12, 12], 6 / 24, 16 / 12)]
    assert loads(ranks, 1, 1) == [ExpertLoad("e", [12, 12], 6 / 24, 1.0)]


def test_ranks_of_a_tensor_group_share_out_experts_but_count_once():
    ranks = [([3, 1], 0, [3]), ([3, 1], 0, [1])]
    assert loads(ranks, 1, 2) == [ExpertLoad("e", [3, 1], 0.0, 1.5)]


def test_a_run_without_a_step_has_no_load():
    ranks = [([0, 0], 0, [])] * 2
    assert loads(ranks, 2, 1) == [ExpertLoad("e", [0, 0], 0.0, 1.0)]
