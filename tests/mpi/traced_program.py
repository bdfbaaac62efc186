"""An mpi4py program that knows nothing of being traced: every kind of communication with another rank.

Each part prints what the calls returned, so that a run with and one without tracing can be compared.
"""

import sys

import numpy as np
from mpi4py import MPI
from mpi4py.util import pkl5

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
after, before = (rank + 1) % size, (rank - 1) % size
out, back = np.arange(10.0) + rank, np.zeros(10)


def tell(*what):
    told = comm.gather(what)
    if rank == 0:
        print(told, flush=True)
    comm.Barrier()


def blocking():
    if rank % 2:
        comm.Recv(back, before, 1)
        comm.Send([out, 5, MPI.DOUBLE], after, tag=1)
    else:
        comm.Ssend(buf=[out, 5, MPI.DOUBLE], dest=after, tag=1)
        comm.Recv(buf=back, source=before, tag=1)
    comm.send(obj={"rank": rank}, dest=after, tag=99)
    assert comm.recv(source=before, tag=99) == {"rank": before}
    comm.Sendrecv(out, after, 3, back, before, 3)
    comm.Sendrecv_replace(out.copy(), after, source=before)
    got = comm.sendrecv(rank, after, recvbuf=None, source=before, recvtag=0)
    tell(got, back.tolist())
    comm.Send(out, MPI.PROC_NULL)


def nonblocking():
    requests = [comm.Irecv(back, before, 5), comm.Isend(out, after, 5)]
    MPI.Request.Waitall(requests)
    here = np.zeros((3, 10))
    requests = [comm.Irecv(row, before, 6) for row in here]
    sends = [comm.Isend(out * n, after, 6) for n in range(3)]
    indices = [MPI.Request.Waitany(requests) for _ in range(3)]
    statuses = []
    MPI.Request.Waitall(sends, statuses)
    request = comm.isend([rank] * 3, after, 7)
    status = MPI.Status()
    message = comm.irecv(source=before, tag=7).wait(status)
    request.wait()
    received, sent = comm.irecv(source=before), comm.issend("last", after)
    done, last = False, None
    while not done:
        done, last = received.test()
    sent.Wait()
    many = [comm.irecv(source=before, tag=8) for _ in range(2)]
    more = [comm.isend(n, after, 8) for n in range(2)]
    numbers = MPI.Request.waitall(many)
    MPI.Request.waitall(more)
    tell(sorted(indices), here[:, 1].tolist(), message, status.tag, last, numbers, len(statuses))
    tell(isinstance(request, MPI.Request), MPI.REQUEST_NULL.Test())


def wildcards():
    """Rank 0 receives from any source; every other rank sends three."""
    if rank:
        for number in range(3):
            comm.send((rank, number), 0, tag=number % 2)
        tell()
        return
    found = [comm.recv() for _ in range(size)]
    for _ in range(size, 3 * (size - 1)):
        if comm.iprobe():
            comm.probe()
        found.append(comm.mprobe().recv())
    tell(sorted(found))


def persistent():
    requests = [comm.Recv_init(back, before, 9), comm.Send_init(out, after, 9)]
    for n in range(3):
        out[0] = n
        MPI.Prequest.Startall(requests) if n else [request.Start() for request in requests]
        MPI.Request.Waitall(requests)
        tell(back[0])
    for request in requests:
        request.Free()


def collectives():
    total = np.zeros(10)
    comm.Allreduce(out, total)
    comm.Allreduce(MPI.IN_PLACE, total)
    comm.Bcast([total, MPI.DOUBLE], root=size - 1)
    comm.Reduce(out, total if rank == 1 else None, op=MPI.MAX, root=1)
    parts = np.zeros((size, 10)) if rank == 0 else None
    comm.Gather(out, parts)
    comm.Scatter(parts, total)
    comm.Barrier()
    sums = comm.allreduce(rank), comm.bcast("all", 1), comm.allgather(rank), comm.scan(1)
    begun = comm.Iallreduce(out, back), comm.Ibarrier()
    MPI.Request.Waitall(begun)
    tell(total.tolist(), sums, back.tolist())


def communicators():
    half = comm.Split(rank % 2, rank)
    none = comm.Split(0 if rank == 0 else MPI.UNDEFINED)
    twin = half.Dup()
    twin.send(rank, (twin.rank + 1) % twin.size)
    got = twin.recv()
    ring = comm.Create_cart([size], [True])
    source, target = ring.Shift(0, 1)
    ring.Send(out, target)
    ring.Recv(back, source)
    some = comm.Create_group(comm.group.Incl([0, 1])) if rank < 2 else None
    alone = some.allreduce(rank) if some else None
    half.Barrier()
    tell(got, twin.size, none == MPI.COMM_NULL, ring.dims, alone, MPI.COMM_SELF.allreduce(rank))
    window = MPI.Win.Allocate(8, comm=twin)
    window.Free()
    tell(comm == MPI.COMM_WORLD, MPI.Comm.Compare(comm, ring), isinstance(half, MPI.Intracomm))
    half.Free()


def what_passes_through():
    """These calls are not recorded; they work unchanged."""
    own = pkl5.Intracomm(comm)
    own.send(out, after)
    got = own.recv(source=before).tolist()
    other = comm.Split(rank % 2).Create_intercomm(0, comm, 1 - rank % 2, 5)
    both = other.Merge()
    both.Barrier()
    asked = comm.Irecv(back, rank, 77)
    asked.Cancel()
    status = MPI.Status()
    asked.Wait(status)
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    error = 0
    try:
        comm.Send(out, size)
    except MPI.Exception as wrong:
        error = wrong.Get_error_class()
    tell(got, other.remote_size, both.size, status.Is_cancelled(), error == MPI.ERR_RANK)


def main():
    blocking()
    nonblocking()
    wildcards()
    persistent()
    collectives()
    communicators()
    what_passes_through()


if __name__ == "__main__":
    main()
    tell(*sys.argv[1:])
