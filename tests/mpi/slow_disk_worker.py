"""On every rank: train on samples in a store, which are read batch by batch; slowly on rank 1. argv: store, timeline.

The last line has how long each rank read, s, by its own clock.
"""

import json
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
from mpi4py import MPI

from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.storage import open_store
from lib_dlhpc.timeline.store import save
from lib_dlhpc.training import trainer

SLOW = 0.03  # s a batch
EXPERIMENT = Experiment(
    model="mlp-digits",
    dataset="digits",
    machine="laptop",
    strategy={"devices_per_node": 2, "batch": 50},
    run={"epochs": 2},
)
comm = MPI.COMM_WORLD


class OnStore(np.ndarray):
    """Samples as an array, each of which has a file in a store as well, which is read whenever the sample is."""

    read = 0.0  # s

    def __getitem__(self, at):
        samples = np.asarray(super().__getitem__(at))
        if isinstance(at, np.ndarray):
            begin = perf_counter()
            if comm.rank == 1:
                sleep(SLOW)
            STORE.read_many([NAMES[index % len(NAMES)] for index in at.tolist()])
            OnStore.read += perf_counter() - begin
        return samples


def main():
    load = trainer.load

    def on_store(*arguments):
        data = load(*arguments)
        return replace(data, x=data.x.view(OnStore))

    trainer.load = on_store
    run = trainer.train(EXPERIMENT, comm)
    read = comm.gather(OnStore.read)
    if comm.rank == 0:
        save(run.timeline, Path(sys.argv[2]))
        print(f"{comm.size} ranks\n{json.dumps(read)}", flush=True)


try:
    with open_store(sys.argv[1]) as STORE:
        NAMES = STORE.names
        main()
except BaseException:
    traceback.print_exc()
    comm.Abort(1)
