"""A coupled workflow that is played equals its closed form where nothing varies, and comes near it where it does."""

from dataclasses import replace

import numpy as np
import pytest
from small_workflow import small

from lib_dlhpc.prediction.communication.coupled import predict_coupled
from lib_dlhpc.simulation.coupled import simulate_coupled
from lib_dlhpc.timeline.analysis import analyze
from lib_dlhpc.timeline.coupled import ROOM, SAMPLES, TERMS, coupled_terms, mean_terms

PLACEMENTS = [
    ("shared", 1, 1),
    ("shared", 1, 4),
    ("separate", 1, 2),
    ("separate", 3, 4),
    ("separate", 1, 5),
]


@pytest.mark.parametrize(("placement", "simulating", "ranks"), PLACEMENTS)
@pytest.mark.parametrize("empty", ["wait", "again"])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("point", [1e-9, 3e-8, 1e-6])
def test_without_variation_every_term_is_the_predicted_one(
    placement, simulating, ranks, empty, depth, point
):
    workflow = small(placement, simulating, empty=empty, depth=depth)
    costs = replace(workflow.costs, point=point)
    found = mean_terms(simulate_coupled(workflow, costs, ranks))
    predicted = predict_coupled(workflow, costs, ranks)
    for name in TERMS:
        assert found[name] == pytest.approx(
            predicted.terms[name], rel=1e-9, abs=1e-9 * predicted.seconds
        )


@pytest.mark.parametrize(("placement", "simulating", "ranks"), PLACEMENTS)
def test_with_variation_the_run_is_predicted_to_ten_percent(placement, simulating, ranks):
    workflow = small(placement, simulating)
    workflow = replace(workflow, simulation=replace(workflow.simulation, steps=3200))
    costs = replace(workflow.costs, jitter=0.1)
    timeline = simulate_coupled(workflow, costs, ranks)
    predicted = predict_coupled(workflow, costs, ranks)
    assert float(timeline.stop.max()) == pytest.approx(predicted.seconds, rel=0.1)


def test_terms_add_up_on_every_rank_and_each_rank_does_its_part_only():
    workflow = small("separate", 2)
    terms = coupled_terms(simulate_coupled(workflow, replace(workflow.costs, jitter=0.2), 5))
    whole = sum(terms.values())
    assert np.allclose(whole, whole[0], rtol=1e-9)
    assert (terms["simulate"] > 0).tolist() == [True, True, False, False, False]
    assert (terms["train"] > 0).tolist() == [False, False, True, True, True]
    assert not terms["wait for samples"][:2].any()
    assert not terms["wait for room"][2:].any()


def test_the_same_seed_gives_the_same_table():
    workflow = small("separate", 1)
    costs = replace(workflow.costs, jitter=0.3)
    one, same, other = (simulate_coupled(workflow, costs, 3, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.stop, same.stop)
    assert not np.array_equal(one.stop, other.stop)


def test_the_simulation_is_never_further_ahead_than_the_buffer_is_deep():
    workflow = small("separate", 1, depth=3)
    costs = replace(workflow.costs, point=1e-10, small_step=0.0, jitter=0.3)
    timeline = simulate_coupled(workflow, costs, 2)
    given = timeline.stop[np.array([row.name == "give a batch" for row in timeline])]
    taken = timeline.start[np.array([row.name == "take a batch" for row in timeline])]
    assert len(given) == len(taken) == workflow.batches
    assert (given[3:] >= taken[:-3]).all()
    assert (taken >= given - 1e-12).all()
    ahead = [int((given <= at).sum() - number) for number, at in enumerate(taken)]
    assert max(ahead) == workflow.coupling.depth


@pytest.mark.parametrize(
    ("point", "kind", "waits"), [(1e-6, "late sender", SAMPLES), (1e-11, "late sender", ROOM)]
)
def test_the_analysis_of_any_trace_finds_who_is_waited_for(point, kind, waits):
    workflow = small("separate", 1)
    costs = replace(workflow.costs, point=point, small_step=0.0)
    timeline = simulate_coupled(workflow, costs, 2)
    finding = next(one for one in analyze(timeline).findings if one.kind == kind)
    late, waiting = (0, 1) if waits == SAMPLES else (1, 0)
    assert finding.rank == late
    # What a rank waits for its very first batch is the start of the run, and late all the same.
    assert finding.seconds == pytest.approx(coupled_terms(timeline)[waits][waiting], rel=0.02)


def test_every_message_has_two_ends():
    timeline = simulate_coupled(small("separate", 2), small().costs, 5)
    ends = {}
    for row in timeline:
        if row.stream == "communication":
            ends.setdefault(row.match, {})[row.kind] = row
    assert (
        len(ends)
        == 2 * 3 * (small().batches + small().batches - small().coupling.depth) + 2 * 3 * 2
    )
    whole = [pair for pair in ends.values() if len(pair) == 2]
    assert len(ends) - len(whole) == 2 * 3 * 2  # nobody asks for the last news that there is room
    for pair in whole:
        send, receive = pair["send"], pair["receive"]
        assert (send.rank, send.peer, send.bytes) == (receive.peer, receive.rank, receive.bytes)
        assert send.start <= receive.stop
