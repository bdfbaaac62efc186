"""The closed form of a coupled workflow equals the recursion that it solves, and says which placement is best."""

from dataclasses import replace

import numpy as np
import pytest
from small_workflow import small

from lib_dlhpc.costs.coupled import sides_of
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.communication.coupled import (
    enough_depth,
    placements,
    predict_coupled,
    waits,
)


def played(produce, consume, give, depth):
    """Seconds, waits for samples and for room of arrays of batches, step by step."""
    made = np.zeros(len(produce))
    taken = np.zeros(len(produce))
    free_p = free_c = samples = room = 0.0
    for b in range(len(produce)):
        ready = free_p + produce[b] - give
        allowed = taken[b - depth] if b >= depth else 0.0
        room += max(allowed - ready, 0.0)
        made[b] = free_p = max(ready, allowed) + give
        taken[b] = max(free_c, made[b])
        samples += taken[b] - free_c
        free_c = taken[b] + consume[b]
    return free_c, samples, room


@pytest.mark.parametrize("depth", [1, 2, 5, 100])
@pytest.mark.parametrize("point", [1e-9, 1e-8, 5e-8, 1e-6])
@pytest.mark.parametrize(("simulating", "ranks"), [(1, 2), (3, 4), (1, 5)])
def test_without_variation_it_is_exact(depth, point, simulating, ranks):
    workflow = small("separate", simulating, depth=depth)
    costs = replace(workflow.costs, point=point)
    found = predict_coupled(workflow, costs, ranks)
    left, right = sides_of(workflow, costs, ranks)
    n = workflow.batches
    seconds, samples, room = played(
        np.full(n, left.batch), np.full(n, right.batch), left.between, depth
    )
    assert found.seconds == pytest.approx(seconds, rel=1e-12)
    assert found.terms["wait for samples"] * ranks == pytest.approx(
        samples * right.ranks, abs=1e-12
    )
    assert found.terms["wait for room"] * ranks == pytest.approx(room * left.ranks, abs=1e-12)


@pytest.mark.parametrize("depth", [1, 2, 4, 16])
@pytest.mark.parametrize("ratio", [0.9, 1.0, 1.1])
@pytest.mark.parametrize("jitter", [0.1, 0.3])
def test_with_variation_waits_are_those_of_a_long_run(depth, ratio, jitter):
    rng, n = np.random.default_rng(1), 40_000
    produce = ratio * np.maximum(rng.normal(1, jitter, n), 0)
    consume = np.maximum(rng.normal(1, jitter, n), 0)
    _, samples, room = played(produce, consume, 0.0, depth)
    spread = jitter * np.hypot(ratio, 1)
    found = waits(ratio, 1.0, spread, depth)
    assert found[0] == pytest.approx(samples / n, rel=0.15, abs=0.005)
    assert found[1] == pytest.approx(room / n, rel=0.15, abs=0.005)


@pytest.mark.parametrize("jitter", [0.0, 0.05, 0.5])
@pytest.mark.parametrize(("produce", "consume"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.99)])
def test_both_sides_keep_one_pace_and_depth_never_hurts(jitter, produce, consume):
    before = np.inf
    for depth in (1, 2, 3, 10, 1000):
        samples, room = waits(produce, consume, jitter, depth)
        assert produce + room == pytest.approx(consume + samples, rel=1e-9)
        assert 0 <= samples <= before
        before = samples
    assert samples >= produce - consume - 1e-12


@pytest.mark.parametrize(
    ("placement", "simulating"), [("shared", 1), ("separate", 1), ("separate", 3)]
)
@pytest.mark.parametrize("empty", ["wait", "again"])
@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_terms_add_up_to_the_run(placement, simulating, empty, jitter):
    workflow = small(placement, simulating, empty=empty)
    found = predict_coupled(workflow, replace(workflow.costs, jitter=jitter), 4)
    assert sum(found.terms.values()) == pytest.approx(found.seconds, rel=1e-9)
    assert min(found.terms.values()) >= 0


def test_on_shared_ranks_nobody_waits_for_the_other_side():
    workflow = small("shared")
    found = predict_coupled(workflow, workflow.costs, 3)
    assert found.terms["wait for samples"] == found.terms["wait for room"] == 0
    assert found.seconds == pytest.approx(workflow.batches * (found.produce + found.consume))
    assert not found.slower


def test_training_again_fills_the_waits_and_makes_the_run_no_shorter():
    workflow = small("separate", 1)
    costs = replace(workflow.costs, point=1e-6)
    waiting = predict_coupled(workflow, costs, 2)
    again = predict_coupled(small("separate", 1, empty="again"), costs, 2)
    assert waiting.slower == again.slower == "simulation"
    assert waiting.repeats == 0 < again.repeats
    assert again.terms["wait for samples"] < waiting.terms["wait for samples"]
    assert waiting.seconds <= again.seconds <= waiting.seconds + again.consume


def test_every_placement_is_priced_and_the_quickest_is_first():
    workflow = small("separate", 1)
    found = placements(workflow, workflow.costs, 5)
    named = {(one.placement, one.simulating) for one in found}
    assert named == {("shared", 5), *(("separate", simulating) for simulating in range(1, 5))}
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)
    for one in found:
        alone = predict_coupled(workflow.placed(one.placement, one.simulating), workflow.costs, 5)
        assert one == alone


def test_one_rank_can_only_be_shared():
    workflow = small("separate", 1)
    assert [one.placement for one in placements(workflow, workflow.costs, 1)] == ["shared"]
    with pytest.raises(SpecError, match="leave none to train"):
        predict_coupled(workflow, workflow.costs, 1)


def test_the_costlier_side_gets_more_ranks():
    workflow = small("separate", 1)
    free = replace(workflow.costs, latency=0.0, byte=0.0, small_step=0.0, update=0.0)
    light = placements(workflow, replace(free, point=1e-9), 6)
    heavy = placements(workflow, replace(free, point=1e-6), 6)
    first = [
        next(one.simulating for one in found if one.placement == "separate")
        for found in (light, heavy)
    ]
    assert first[0] < first[1]


def test_more_variation_needs_more_depth_and_none_needs_one():
    workflow = small("separate", 1)
    left, right = sides_of(workflow, workflow.costs, 2)
    steps = workflow.batch * workflow.simulation.sampling * workflow.simulation.substeps
    more = workflow.costs.small_step + (right.batch - left.batch) / steps
    even = replace(workflow.costs, small_step=more)
    depths = [enough_depth(workflow, replace(even, jitter=j), 2) for j in (0.0, 0.1, 0.2, 0.4)]
    assert depths[0] == 1
    assert depths == sorted(depths)
    assert depths[-1] > depths[1]
