"""The bounded buffer: `depth` batches may be sent, and one more for each one received."""

import numpy as np
import pytest
from small_workflow import small

from lib_dlhpc.training.coupled.buffer import BatchReceiver, BatchSender, wait_until
from lib_dlhpc.training.coupled.calls import Calls


@pytest.fixture
def ends(require):
    """A function that returns both ends of a buffer within this process."""
    mpi = pytest.importorskip("mpi4py.MPI")
    require(mpi.COMM_SELF.size == 1, "no MPI")

    def ends(depth):
        workflow, calls = small("shared", depth=depth), Calls(0, 1)
        comm = mpi.COMM_SELF.Dup()  # messages left in flight by one test must not reach another
        mine = slice(0, workflow.batch)
        inlet = BatchReceiver(workflow, comm, range(1), mine, calls)
        return workflow, BatchSender(workflow, comm, range(1), calls), inlet

    return ends


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_depth_batches_may_be_sent_and_one_more_for_each_received(ends, depth):
    workflow, outlet, inlet = ends(depth)
    grid = workflow.simulation.grid
    batches = [
        np.full((2, workflow.batch, grid, grid), float(number))
        for number in range(workflow.batches)
    ]
    for batch in batches[:depth]:
        assert outlet.has_credit()
        outlet.send(batch)
    for number, batch in enumerate(batches[depth:]):
        assert not outlet.has_credit()
        inlet.take()
        assert (inlet.x == number).all()
        wait_until(outlet.has_credit)
        outlet.send(batch)
    assert not outlet.has_credit()
    for number in range(workflow.batches - depth, workflow.batches):
        inlet.take()
        assert (inlet.y == number).all()
    outlet.close()
    inlet.close()


def test_a_sent_batch_may_be_overwritten_at_once(ends):
    workflow, outlet, inlet = ends(1)
    grid = workflow.simulation.grid
    batch = np.ones((2, workflow.batch, grid, grid))
    outlet.send(batch)
    batch[...] = 7
    inlet.take()
    assert (inlet.x == 1).all()


def test_no_batch_has_arrived_before_it_is_sent(ends):
    workflow, outlet, inlet = ends(2)
    assert not inlet.has_arrived()
    grid = workflow.simulation.grid
    outlet.send(np.zeros((2, workflow.batch, grid, grid)))
    wait_until(inlet.has_arrived)
