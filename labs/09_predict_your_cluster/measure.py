"""Messages between two ranks and products on one, repeated: mpiexec -n 2 python measure.py points.json 10."""

import json
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from mpi4py import MPI

SIZES = [2**k for k in range(3, 23)]  # B
EDGES = [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]  # of square matrices
LEAST = 7  # repeats


def message(comm, size, count):
    """Return the one-way seconds of a message: half of a ping-pong, the mean of `count`."""
    buffer, other = np.zeros(size, np.uint8), 1 - comm.rank
    comm.Barrier()
    begin = perf_counter()
    for _ in range(count):
        for sender in (0, 1):
            if comm.rank == sender:
                comm.Send(buffer, other)
            else:
                comm.Recv(buffer, other)
    return (perf_counter() - begin) / count / 2


def product(edge, count):
    """Return the seconds of a product of two square matrices in single precision, the mean of `count`."""
    a = np.ones((edge, edge), np.float32)
    out = a @ a
    begin = perf_counter()
    for _ in range(count):
        np.matmul(a, a, out)
    return (perf_counter() - begin) / count


def main(file, seconds):
    """Measure for `seconds`; rank 0 writes sizes, and seconds of each repeat."""
    comm = MPI.COMM_WORLD
    messages, products = {size: [] for size in SIZES}, {edge: [] for edge in EDGES}
    until = perf_counter() + seconds
    while comm.bcast(len(messages[8]) < LEAST or perf_counter() < until):
        for size in SIZES:
            messages[size].append(message(comm, size, 2 + 2**17 // (2**12 + size)))
        for edge in EDGES:
            products[edge].append(product(edge, 1 + 2**21 // edge**3))
    if comm.rank == 0:
        points = {
            "messages": list(messages.items()),
            "products": [(2 * edge**3, times) for edge, times in products.items()],
        }
        file.write_text(json.dumps(points), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
