"""On every rank: the loader of a folder, on that folder and on a store that the ranks hold together."""

import sys
from pathlib import Path

import folder_loader
from mpi4py import MPI

from lib_dlhpc.storage.mount import mounted
from lib_dlhpc.storage.packed import open_store

comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
folder, target = sys.argv[1:]


def main():
    with open_store(target, comm) as store, mounted(store, Path(target).with_name("here")) as here:
        for seed in range(2):
            on_store = folder_loader.epoch(here, seed, rank, ranks)
            assert on_store == folder_loader.epoch(folder, seed, rank, ranks), f"rank {rank}"
            assert len(on_store) in (len(store.names) // ranks, len(store.names) // ranks + 1)
        comm.barrier()  # else a file of a quick rank would be a sample of a slow one

        # Each rank writes its own; after the barrier every rank reads all of it.
        with open(f"{here}/out/{rank}.txt", "w", encoding="utf-8") as log:
            log.write(f"{rank} of {ranks}\n")
        comm.barrier()
        for other in range(ranks):
            with open(f"{here}/out/{other}.txt", encoding="utf-8") as log:
                assert log.read() == f"{other} of {ranks}\n"
    if rank == 0:
        print(f"{ranks} ranks all right", flush=True)


main()
