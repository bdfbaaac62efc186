"""On every rank: an allreduce registered in one place executes and trains. Started by test_execute.py."""

import numpy as np
import star
from mpi4py import MPI

from lib_dlhpc.schedules import execute, schedule
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.spec.strategy import ALLREDUCES
from lib_dlhpc.training.trainer import train

RUN = """
[model]
name = "mlp-digits"
[dataset]
name = "digits"
[machine]
name = "laptop"
[strategy]
devices_per_node = {ranks}
batch = 10
precision = "fp64"
allreduce = "{allreduce}"
[run]
epochs = 1
"""
star.add()
comm = MPI.COMM_WORLD
buffer = np.arange(10.0) + comm.rank
execute(schedule("star", comm.size, 10), comm, buffer)
assert (buffer == comm.size * np.arange(10.0) + sum(range(comm.size))).all()
star_loss, ring_loss = (
    train(loads(RUN.format(ranks=comm.size, allreduce=name)), comm).loss
    for name in ("star", "ring")
)
del ALLREDUCES["star"]  # these ranks stay
assert np.isclose(star_loss, ring_loss, rtol=1e-9)
if comm.rank == 0:
    print(f"{comm.size} ranks: all right")
