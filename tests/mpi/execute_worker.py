"""On every rank: execute each algorithm on real buffers and compare with numpy. Started by test_execute.py."""

import numpy as np
from mpi4py import MPI

from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules import ALGORITHMS, COLLECTIVES, execute, prepared, schedule
from lib_dlhpc.schedules.exchange import grid_shape, neighbors
from lib_dlhpc.schedules.levels import shards
from lib_dlhpc.schedules.rings import cuts

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
SIZES = [0, 1, 3, 17, 1001] if p <= 4 else [0, 5, 1001]  # none, fewer than ranks, uneven shares
ROOTED = {"binomial", *COLLECTIVES["broadcast"], *COLLECTIVES["reduce"]}


def data(n, dtype=np.int64):
    """What each rank begins with, a row a rank; the same on all of them."""
    values = np.random.default_rng(n).integers(-1000, 1000, (p, n))
    return values.astype(dtype) if np.issubdtype(dtype, np.integer) else (values / 7).astype(dtype)


def options(name):
    if name in ROOTED:
        yield from ({"root": root} for root in {0, p - 1, p // 2})
    elif ALGORITHMS[name].by_node:
        yield from ({"node_size": g} for g in range(1, p + 1) if p % g == 0)
    elif name == "halo_exchange":
        yield from ({"dimensions": d, "periodic": w} for d in (1, 2, 3) for w in (False, True))
    else:
        yield {}


def executed(name, values, op=np.add, **chosen):
    buffer = values[rank].copy()
    execute(schedule(name, p, buffer.size, **chosen), comm, buffer, op)
    return buffer


def wanted(goal, values, chosen):
    """(elements that matter, their values)."""
    n, everything = values.shape[1], slice(None)
    cut, owner = shards(p, n, chosen.get("node_size", 1))
    mine = int(np.flatnonzero(owner == rank)[0])
    block = slice(*cut[mine : mine + 2])
    total = values.sum(0)
    if goal == "allreduce":
        return everything, total
    if goal == "broadcast":
        return everything, values[chosen["root"]]
    if goal == "reduce":
        return (everything, total) if rank == chosen["root"] else (slice(0, 0), total[:0])
    if goal == "reduce_scatter":
        return block, total[block]
    if goal == "allgather":
        parts = [values[r, cut[k] : cut[k + 1]] for k, r in enumerate(owner.tolist())]
        return everything, np.concatenate(parts)
    if goal == "all_to_all":
        cut = cuts(n, p * p)
        mine = [slice(*cut[s * p + rank : s * p + rank + 2]) for s in range(p)]
        at = np.concatenate([np.arange(n)[part] for part in mine])
        return at, np.concatenate([values[s, part] for s, part in enumerate(mine)])
    result, shape = values[rank].copy(), grid_shape(p, chosen["dimensions"])
    cut = cuts(n, 2 * len(shape))
    for face in range(2 * len(shape)):
        for source, target in zip(*neighbors(shape, face, chosen["periodic"]), strict=True):
            if target == rank:
                result[cut[face] : cut[face + 1]] = values[source, cut[face] : cut[face + 1]]
    return everything, result


def refused(says, ours, buffer):
    try:
        execute(ours, comm, buffer)
    except SpecError as error:
        assert says in str(error), error
    else:
        raise AssertionError(f"not refused: {says}")


for goal, family in COLLECTIVES.items():
    for name in family:
        for n in SIZES:
            for chosen in options(name):
                values = data(n)
                at, expected = wanted(goal, values, chosen)
                assert (executed(name, values, **chosen)[at] == expected).all(), (name, n, chosen)

TYPES = (np.float32, np.float64, np.int8, np.complex64, np.float16)
for number, name in enumerate(COLLECTIVES["allreduce"]):
    # Messages of a type are the same on more ranks: there each algorithm meets one type.
    for dtype in TYPES if p <= 4 else (TYPES[(number + p) % len(TYPES)],):
        values = data(500, dtype) if dtype != np.int8 else data(500).astype(np.int8) // p
        exact = values.astype(np.complex128).sum(0)
        scale = np.abs(values.astype(np.complex128)).sum(0) + 1
        error = np.abs(executed(name, values).astype(np.complex128) - exact) / scale
        limit = {np.float32: 1e-6, np.complex64: 1e-6, np.float16: 1e-2}.get(dtype, 1e-12)
        assert error.max() <= limit, (name, dtype, error.max())
    values = data(100)
    assert (executed(name, values, np.maximum) == values.max(0)).all(), name
    with prepared(schedule(name, p, 100), comm, buffer := values[rank].copy()) as run:
        for times in range(1, 4):
            run()
            assert (buffer == values.sum(0) * p ** (times - 1)).all(), (name, times)

# Ranks agree to the last bit where an algorithm computes each sum once or in the same order.
for name in ("ring", "rabenseifner", "binomial"):
    result = executed(name, data(999, np.float32))
    assert len(set(comm.allgather(result.tobytes()))) == 1, name

refused("communicator has", schedule("ring", p + 1, 4), np.zeros(4))
refused("buffer: 5 elements; the schedule is for 4", schedule("ring", p, 4), np.zeros(5))
refused("contiguous", schedule("ring", p, 4), np.zeros(8)[::2])
refused("one dimension", schedule("ring", p, 4), np.zeros((2, 2)))
refused("numpy array", schedule("ring", p, 4), [0.0] * 4)
refused("writable", schedule("ring", p, 4), np.broadcast_to(np.zeros(1), 4).copy().astype(object))

sizes = comm.gather(comm.size)
if rank == 0:
    print(f"all right on {len(sizes)} ranks")
