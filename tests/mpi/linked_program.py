"""Each rank sends to each other repeatedly; rank 0 prints the message times, by the ranks' own clocks.

Ranks of one machine read the same clock: a message took from when both ends were there until it was received.
"""

import json
from time import perf_counter, sleep

import numpy as np
from mpi4py import MPI

# Messages from each to each, B, s that the receiver is there before.
ROUNDS, SIZE, LEAD = (8, 40_000, 0.005)
comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
box, sent, got = np.zeros(SIZE, np.uint8), {}, {}
for _ in range(ROUNDS):
    for source in range(ranks):
        for target in range(ranks):
            if source == target:
                continue
            comm.Barrier()
            if rank == source:
                sleep(LEAD)
                sent.setdefault(f"{source} {target}", []).append(perf_counter())
                comm.Ssend(box, target)
            elif rank == target:
                came = perf_counter()
                comm.Recv(box, source)
                got.setdefault(f"{source} {target}", []).append((came, perf_counter()))

everyone = comm.gather((sent, got))
if rank == 0:
    began = {pair: times for sent, _ in everyone for pair, times in sent.items()}
    took = {
        pair: [
            stop - max(came, begin) for begin, (came, stop) in zip(began[pair], ends, strict=True)
        ]
        for _, got in everyone
        for pair, ends in got.items()
    }
    print(json.dumps(took))
