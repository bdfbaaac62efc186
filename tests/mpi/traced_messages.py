"""Messages that know their number, taken in by every means: the ground truth of which receive got which send.

Every rank sends MANY messages to every other and prints, in the order in which its receives ended, who had
sent what it got, and which of that rank's sends it was. Receives that are posted together end in any order.
"""

import random

import numpy as np
from mpi4py import MPI

MANY = 12
comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
draw = random.Random(rank)


def take(count):
    """Receive `count` messages, from anybody, by means drawn by lot."""
    boxes = [np.zeros(2, int) for _ in range(count)]
    how = draw.randrange(5)
    if how == 0:
        requests = [comm.Irecv(box) for box in boxes]
        order = [MPI.Request.Waitany(requests) for _ in boxes]
        return [boxes[index] for index in order]
    if how == 1:
        requests = [comm.Irecv(box) for box in boxes]
        for request in reversed(requests):
            request.Wait()
        return boxes[::-1]
    for box in boxes:
        if how == 2:
            comm.Recv(box)
        elif how == 3:
            comm.Mprobe().Recv(box)
        else:
            message = None
            while message is None:
                message = comm.Improbe()
            message.Irecv(box).Wait()
    return boxes


targets = [other for other in range(size) if other != rank] * MANY
draw.shuffle(targets)
sends = [comm.Isend(np.array([rank, n]), to, tag=n % 2) for n, to in enumerate(targets)]
got = []
while len(got) < len(targets):
    got += take(min(draw.randint(1, 5), len(targets) - len(got)))
MPI.Request.Waitall(sends)
everyone = comm.gather([box.tolist() for box in got])
if rank == 0:
    print(everyone)
