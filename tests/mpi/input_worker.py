"""On every rank: a run that reads its samples is the run in memory, bit by bit. Started by test_input.py."""

from dataclasses import replace

import numpy as np
from mpi4py import MPI

from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.spec.networks import build
from lib_dlhpc.training.input.sample_files import SampleFiles
from lib_dlhpc.training.input.throttle import Throttle
from lib_dlhpc.training.trainer import train

comm = MPI.COMM_WORLD
p = comm.size
RUN = loads(f"""
[model]
family = "sequential"
input = [1, 8, 8]
layers = [
    {{ kind = "conv", channels = 4, kernel = 3, padding = 1 }}, {{ kind = "relu" }},
    {{ kind = "flatten" }}, {{ kind = "dense", features = 9 }}, {{ kind = "relu" }},
    {{ kind = "dense", features = 6 }}, {{ kind = "relu" }}, {{ kind = "dense", features = 5 }},
]
[dataset]
name = "waves"
samples = 59
bytes = "59 kB"
files = 59
test_share = 0.2
[machine]
name = "laptop"
nodes = 2
devices_per_node = {p}
[machine.storage.far]
scope = "shared"
bandwidth = "20 MB/s"
[strategy]
devices_per_node = {p}
batch = 8
[storage]
tier = "far"
[run]
epochs = 2
""")
WAYS = [
    {},
    {
        "storage.format": "packed",
        "storage.workers": 2,
        "storage.prefetch": 2,
        "storage.cache": 30e3,
    },
    {"strategy.nodes": 2, "strategy.devices_per_node": p // 2, "strategy.zero": 3},
    {"strategy.tensor": p, "storage.workers": 1},
    {"strategy.pipeline": 2, "strategy.microbatches": 2},
    {"strategy.spatial": 2, "training.shift": 1},
    {"strategy.update": "local", "strategy.local_steps": 2},
    {
        "strategy.nodes": 2,
        "strategy.devices_per_node": p // 2,
        "strategy.zero": 1,
        "storage.access": "cooperative",
        "storage.local": "ssd",
    },
]


def reads_what_is_in_memory():
    """Every sample once an epoch by each rank of a replica that reads; the same losses and weights."""
    original, read = SampleFiles.read, []
    SampleFiles.read = lambda self, sample: read.append(sample) or original(self, sample)
    for way in WAYS:
        read.clear()
        run = RUN.set(way)
        found = train(run, comm)
        everywhere = np.bincount(
            [each for own in comm.allgather(read) for each in own], minlength=47
        )
        memory = train(run.set({"storage.tier": "", "storage.access": "stream"}), comm)
        assert (found.loss, found.test_loss) == (memory.loss, memory.test_loss), way
        if hasattr(found.network, "weights"):  # ZeRO 3 has none at the end
            assert np.array_equal(found.network.weights, memory.network.weights), way
        assert len(everywhere) == 47 and len({*everywhere.tolist()}) == 1, (way, everywhere)
        assert everywhere[0] in (2, 2 * run.strategy.tensor * run.strategy.spatial), (
            way,
            everywhere,
        )
    SampleFiles.read = original


def context_ranks_read_whole_sequences():
    """Each keeps its own tokens of what it reads."""
    sizes = {"layers": 2, "hidden": 8, "heads": 4, "sequence": 2 * p, "vocabulary": 11}
    model = build("gpt", sizes)
    words = replace(RUN.dataset, name="words")
    run = replace(RUN, model=model, dataset=words).set({"strategy.context": p})
    found, memory = (train(run.set({"storage.tier": tier}), comm) for tier in ("far", ""))
    assert (found.loss, found.test_loss) == (memory.loss, memory.test_loss)
    assert np.array_equal(found.network.weights, memory.network.weights)


def workers_of_a_parameter_server_read():
    """Asynchronous workers read each sample once an epoch together."""
    original, read = SampleFiles.read, []
    SampleFiles.read = lambda self, sample: read.append(sample) or original(self, sample)
    run = RUN.set({"strategy.update": "asynchronous", "strategy.devices_per_node": p - 1})
    train(run, comm)
    everywhere = np.bincount([each for own in comm.allgather(read) for each in own], minlength=47)
    assert set(everywhere.tolist()) == {2}
    assert bool(read) == (comm.rank < p - 1)
    SampleFiles.read = original


def ranks_share_the_servers_and_the_cache_of_a_node():
    """All ranks together read at the rate of the tier; a sample cached by one rank is cached for its node."""
    far = {"bandwidth": 1e3, "read_latency": 0.5}
    run = RUN.set(
        {"storage.cache": 20e3, **{f"machine.storage.far.{key}": far[key] for key in far}}
    )
    throttle = Throttle(run, 59, comm)
    ends = [throttle.pass_through(sample, 1e9)[1] for sample in range(comm.rank, 59, p)]
    ends = np.sort(np.concatenate(comm.allgather(ends))) - 1e9
    assert np.allclose(ends, np.arange(59.0) + 0.5, atol=1e-3), ends
    hits = [throttle.pass_through(sample, 2e9)[1] == 2e9 for sample in range(59)]
    assert sum(hits) == 20
    throttle.close()


reads_what_is_in_memory()
context_ranks_read_whole_sequences()
workers_of_a_parameter_server_read()
ranks_share_the_servers_and_the_cache_of_a_node()
if comm.rank == 0:
    print(f"all right on {p} ranks", flush=True)
