"""A program that traces itself: a communicator, regions, a store's ranks; all of it checked on rank 0."""

from mpi4py import MPI

from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline import Recorder, collect, region, trace_comm
from lib_dlhpc.timeline.recorder import HERE

world = MPI.COMM_WORLD
half = world.Split(world.rank % 2)
with region("before anybody traces"):
    world.Barrier()
comm = trace_comm(world)
assert trace_comm(comm) is comm and type(world) is MPI.Intracomm
with region("talk"):
    comm.send(comm.rank, (comm.rank + 1) % comm.size)
    comm.recv()
    HERE.on = False
    comm.Barrier()  # counts, though it is not recorded
    HERE.on = comm.rank == 0
    comm.Barrier()
    HERE.on = True
traced_half = trace_comm(half)  # made by other means, of ranks that are known
traced_half.Barrier()
timeline = collect(comm)
comm.allgather(comm.rank)
again = collect(comm)
if world.rank == 0:
    names = [event.name for event in timeline if event.rank == 0]
    assert names == [
        "before anybody traces",
        "talk",
        "MPI_Send",
        "MPI_Recv",
        "MPI_Barrier",
        "MPI_Barrier",
    ], names
    sent = {event.match for event in timeline if event.kind == "send"}
    assert len(sent) == world.size == sum(e.kind == "receive" for e in timeline)
    halves = {event.comm: set() for event in timeline if event.comm}
    for event in timeline:
        if event.comm:
            halves[event.comm].add(event.rank)
    assert sorted(map(sorted, halves.values())) == [[0, 2], [1, 3]], halves
    alone = [event.match for event in timeline if event.name == "MPI_Barrier" and not event.comm]
    assert len(alone) == 1, "the other ranks had recorded nothing"
    assert len(again) == len(timeline) + world.size
else:
    assert timeline is None and again is None
other = Recorder()
trace_comm(half, other)
try:
    trace_comm(world, other)
    raise AssertionError("ranks that the first communicator has not")
except SpecError:
    pass
if world.rank == 0:
    print(f"{world.size} ranks")
