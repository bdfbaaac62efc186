"""Buckets summed to the shards of the world's ranks, in many pieces: each rank has its sums and nothing else."""

import numpy as np
from mpi4py import MPI

from lib_dlhpc.train import zero

comm = MPI.COMM_WORLD
whole = [(10007, 0, 10007), (50000, 0, 50000), (7, 0, 7)]
parts = [(10007, 3001, 9000), (10007, 9000, 10007), (5, 2, 3), (3, 0, 2)]
cases = [(4096, *case) for case in whole + parts]  # B of a piece, so that a bucket has many
for piece, size, start, stop in [*cases, (zero.PIECE, 3_000_001, 0, 3_000_001)]:
    zero.PIECE = piece
    cut = zero.Cut(size, comm)
    shard = np.zeros(cut.own.stop - cut.own.start, np.float32)
    mine = np.arange(start, stop) % 97
    flat = (mine + comm.rank).astype(np.float32)
    on_its_way = zero._Sum(cut, shard, 0, start, flat)
    while not on_its_way.carry_on(wait=True):
        others = [
            np.full(piece // 8, 1e9, np.float32) for _ in range(8)
        ]  # what is let go of is used again
    expected = np.zeros(size, np.float32)
    expected[start:stop] = comm.size * mine + comm.size * (comm.size - 1) // 2
    assert np.array_equal(shard, expected[cut.own]), (size, start, stop, comm.rank)
comm.Barrier()
if comm.rank == 0:
    print(f"{comm.size} ranks: all right")
