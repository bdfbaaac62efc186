"""Reduce-scatter of buckets over all ranks, in many pieces: each rank has the sums of its shard only."""

import numpy as np
from mpi4py import MPI

from lib_dlhpc.schedules import ring_collectives
from lib_dlhpc.schedules.ring_collectives import InFlight
from lib_dlhpc.training.sharding import Sharding
from lib_dlhpc.training.single_rank import SingleRank

comm = MPI.COMM_WORLD


def owned(sharding):
    """Return the elements of a flat array that this rank owns, in the order of its shard."""
    return np.concatenate(
        [np.arange(end)[sharding.own(start, end)] for start, end in sharding.units]
    )


# Ends of units, and the first and last unit that are in the bucket; B of a piece, so that a bucket has many.
cases = [
    (4096, [10007], 0, 1),
    (4096, [3001, 9000, 10007], 1, 2),
    (4096, [3001, 9000, 10007], 0, 3),
    (4096, [5, 9, 4000, 4001, 4007, 40000, 40003], 1, 6),
    (ring_collectives.PIECE, [1_000_000, 3_000_001], 0, 2),
    (ring_collectives.PIECE, [1, 2, 3, 5], 0, 4),
]
for ring_collectives.PIECE, ends, first, last in cases:
    units = list(zip([0, *ends], ends, strict=False))
    sharding, size = Sharding(units[::-1], comm, SingleRank()), ends[-1]
    mine = owned(sharding)
    assert sharding.size == len(mine) and sorted(np.concatenate(comm.allgather(mine))) == [
        *range(size)
    ]
    start, stop = units[first][0], units[last - 1][1]
    values = np.arange(start, stop) % 97
    flat = (values + comm.rank).astype(np.float32)
    request = InFlight(sharding.reduce_scatter(flat, start))
    while not request.test():
        others = [np.full(500, 1e9, np.float32) for _ in range(8)]  # freed memory is reused
    here = mine[(mine >= start) & (mine < stop)]
    expected = comm.size * values + comm.size * (comm.size - 1) // 2
    assert np.array_equal(flat[here - start], expected[here - start]), (ends, comm.rank)
    part = sharding.mine(start, stop)
    assert np.array_equal(mine[part], here), (ends, comm.rank)
    # All-gathered shards: a unit, part of one, and all of them.
    shard, whole = mine.astype(np.float64), np.full(size, np.nan)
    for a, b in [*units, (units[-1][0], units[-1][0] + 1), (0, ends[0] - 1)]:
        found = sharding.gather(shard, a, b)
        assert np.array_equal(found, np.arange(a, b)), (ends, a, b, comm.rank)
        shard[sharding.mine(a, b)] = np.nan
        sharding.store(shard, a, found)
        assert np.array_equal(shard, mine), (ends, a, b, comm.rank)
    whole[mine] = shard
    InFlight(sharding.all_gather(whole, 0, size)).wait()
    assert np.array_equal(whole, np.arange(size)), (ends, comm.rank)
comm.Barrier()
if comm.rank == 0:
    print(f"{comm.size} ranks: all right")
