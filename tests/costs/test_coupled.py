"""What a batch costs each side: messages and bytes counted one by one, and the ring's own formula."""

from dataclasses import replace

import pytest
from small_workflow import small

from lib_dlhpc.costs.coupled import rows_computed, sides_of
from lib_dlhpc.costs.network import Level, Network
from lib_dlhpc.prediction.communication.collectives import ring
from lib_dlhpc.spec.workflow import Costs


def shaped(placement="shared", simulating=1, **simulation):
    workflow = small(placement, simulating)
    return replace(workflow, simulation=replace(workflow.simulation, **simulation))


@pytest.mark.parametrize("training", [1, 2, 3, 7])
def test_gradients_are_summed_as_the_ring_says(training):
    workflow = shaped("separate", 1)
    costs = Costs(point=1e-9, sample=1e-9, latency=3e-6, byte=2e-10)
    _, right = sides_of(workflow, costs, training + 1)
    size = 8 * workflow.experiment.model.parameters
    one = Level(1, 0.0, 0.0)
    expected = ring(size, Network(Level(training, 3e-6, 2e-10), one, 0.0))
    assert right.within == pytest.approx(expected.latency + expected.bandwidth)


@pytest.mark.parametrize(
    ("ranks", "halo", "exchanges"), [(1, 1, 0), (2, 1, 5), (3, 2, 3), (4, 9, 2)]
)
def test_rows_are_exchanged_as_often_as_they_run_out(ranks, halo, exchanges):
    workflow = shaped(substeps=5, halo=halo)
    costs = Costs(point=1e-30, sample=1e-30, latency=1.0)
    left, _ = sides_of(workflow, costs, ranks)
    steps = workflow.batch * workflow.simulation.sampling
    assert left.within == pytest.approx(steps * exchanges * min(ranks - 1, 2))
    bytes_ = sides_of(workflow, replace(costs, latency=0.0, byte=1.0), ranks)[0].within
    width = min(halo, 5, 12 // ranks)
    assert bytes_ == pytest.approx(steps * exchanges * min(ranks - 1, 2) * width * 12 * 8)


@pytest.mark.parametrize(
    ("placement", "simulating"), [("shared", 1), ("separate", 1), ("separate", 3)]
)
def test_all_numbers_of_a_batch_are_given_and_taken(placement, simulating):
    workflow = shaped(placement, simulating)
    left, right = sides_of(workflow, Costs(point=1e-30, sample=1e-30, byte=1.0), 4)
    whole = 2 * workflow.batch * workflow.simulation.field_bytes
    assert left.between == pytest.approx(whole / left.ranks, rel=1e-9)
    assert right.between == pytest.approx(
        whole * -(-workflow.batch // right.ranks) / workflow.batch
    )


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("halo", [1, 4])
def test_rows_are_computed_once_and_those_of_neighbors_as_well(ranks, halo):
    workflow = shaped(substeps=4, halo=halo)
    width = workflow.simulation.width(ranks)
    rows = rows_computed(workflow, ranks)
    assert len(rows) == ranks
    assert sum(rows) == 12 + 2 * (ranks - 1) * width
    left, _ = sides_of(workflow, Costs(point=1.0, sample=1.0), ranks)
    small_steps = workflow.batch * workflow.simulation.sampling * 4
    assert left.compute == pytest.approx(small_steps * max(rows) * 12)
    assert left.mean == pytest.approx(small_steps * sum(rows) / ranks * 12)


def test_the_slowest_of_several_sets_the_pace_and_one_alone_does_not():
    left, right = sides_of(shaped("separate", 1), small().costs, 4)
    assert left.paced(0.1) == pytest.approx(left.batch)
    assert right.paced(0.0) == right.batch < right.paced(0.1) < right.paced(0.2)
