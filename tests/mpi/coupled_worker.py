"""On each rank: blocks of rows equal the full field bitwise, and the buffer is bounded."""

import sys

import numpy as np
from mpi4py import MPI
from small_workflow import small

from lib_dlhpc.spec.workflow import Simulation, share
from lib_dlhpc.training.coupled.buffer import BatchReceiver, BatchSender
from lib_dlhpc.training.coupled.calls import Calls
from lib_dlhpc.training.coupled.heat import Heat, first_field
from lib_dlhpc.training.coupled.samples import NoLog, Samples

COMM = MPI.COMM_WORLD
TAKING = 77  # tag: I am about to take a batch out


def blocks_equal_the_whole(halo: int) -> None:
    """Every rank's rows equal those of a run on one rank, bitwise, for any halo width."""
    for grid in (max(COMM.size, 4), 11, 16):
        simulation = Simulation(grid=grid, substeps=3, halo=halo)
        own, whole = Heat(simulation, COMM), Heat(simulation)
        for heat in (own, whole):
            heat.begin(first_field(simulation, 0))
        exchanges: list[float] = []
        for _ in range(7):
            own.step(lambda start, stop, told=exchanges: told.append(stop - start), MPI.Wtime)
            whole.step()
        assert np.array_equal(own.field, whole.field[own.rows])
        width = min(halo, 3, grid // COMM.size)
        assert len(exchanges) == 7 * -(-3 // width) * (COMM.size > 1)


def samples_arrive_whole_and_in_order(depth: int) -> None:
    """For any split, a training rank has its samples of every batch, all rows."""
    for simulating in range(1, COMM.size):
        workflow = small("separate", simulating, depth=depth)
        left, right = workflow.sides(COMM.size)
        calls, whole = Calls(COMM.rank, COMM.size), Samples(Heat(workflow.simulation), NoLog())
        color = COMM.Split(int(COMM.rank in left), COMM.rank)
        if COMM.rank in left:
            samples = Samples(Heat(workflow.simulation, color), calls)
            outlet = BatchSender(workflow, COMM, right, calls)
            for _ in range(workflow.batches):
                outlet.send(samples.batch(workflow.batch, outlet.progress))
                if outlet.given > depth:  # a rank has sent a credit, and announced it before
                    for to in right:
                        assert COMM.Iprobe(to, TAKING)
                        COMM.recv(source=to, tag=TAKING)
            outlet.close()
            for to in right:
                for _ in range(min(depth, workflow.batches)):
                    COMM.recv(source=to, tag=TAKING)
        else:
            mine = share(workflow.batch, color.rank, color.size)
            inlet = BatchReceiver(workflow, COMM, left, mine, calls)
            for _ in range(workflow.batches):
                for giver in left:
                    COMM.send(None, giver, TAKING)
                inlet.take()
                before, after = whole.batch(workflow.batch)
                assert np.array_equal(inlet.x[:, 0], before[mine])
                assert np.array_equal(inlet.y[:, 0], after[mine])
            inlet.close()
        color.Free()
        COMM.Barrier()


if __name__ == "__main__":
    for rows in (1, 2, 3, 9):
        blocks_equal_the_whole(rows)
    for deep in (1, 3, 50):
        samples_arrive_whole_and_in_order(deep)
    if COMM.rank == 0:
        print(f"{COMM.size} ranks: all right", *sys.argv[1:])
