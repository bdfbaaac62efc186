"""On every rank: train in many modes; the peak of resident memory is the ledger's. See test_memory_modes.py."""

import ctypes
import gc
import sys

import numpy as np
import patient
from mpi4py import MPI

from lib_dlhpc.prediction.memory.rank_memory import peak_of
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.trainer import train
from lib_dlhpc.training.zero import Shards

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
CLOSE = 0.1


def conv(channels):
    return {"kind": "conv", "channels": channels, "kernel": 3, "padding": 1}


RELU, POOL = {"kind": "relu"}, {"kind": "max_pool", "kernel": 2}
HEAD = [{"kind": "global_avg_pool"}, {"kind": "dense", "features": 10}]
MIXTURE = {
    "family": "gpt",
    "layers": 4,
    "hidden": 192,
    "heads": 4,
    "sequence": 32,
    "vocabulary": 512,
    "experts": 16,
    "chosen": 2,
}
NARROW, SHALLOW = {"chosen": 4, "expert_hidden": 64}, {"layers": 2}
MODELS = {
    "words": {
        "family": "gpt",
        "layers": 4,
        "hidden": 128,
        "heads": 4,
        "sequence": 64,
        "vocabulary": 512,
    },
    "llama": {
        "family": "llama",
        "layers": 4,
        "hidden": 128,
        "heads": 4,
        "kv_heads": 2,
        "feed_forward": 344,
        "sequence": 64,
        "vocabulary": 512,
    },
    "mixture": MIXTURE,
    "narrow": MIXTURE | NARROW,
    "shallow": MIXTURE | SHALLOW,
    "shallow, narrow": MIXTURE | NARROW | SHALLOW,
    "rows": {"family": "mlp", "widths": [64, *[1024] * 8, 10]},
    "images": {
        "family": "sequential",
        "input": [3, 64, 64],
        "layers": [*[conv(8), RELU] * 4, POOL, *[conv(16), RELU] * 2, POOL, conv(32), RELU, *HEAD],
    },
    "fields": {
        "family": "sequential",
        "input": [1, 32, 32, 32],
        "layers": [
            conv(4),
            RELU,
            conv(4),
            RELU,
            POOL,
            conv(8),
            RELU,
            POOL,
            {"kind": "flatten"},
            {"kind": "dense", "features": 4},
        ],
    },
}
DATA = {
    "words": "words",
    "llama": "words",
    "mixture": "words",
    "narrow": "words",
    "shallow": "words",
    "shallow, narrow": "words",
    "rows": "digits",
    "images": "waves",
    "fields": "densities",
}
FLOW = {"pipeline": 2, "microbatches": 4}
# (name, ranks): model, samples a step of a replica, fields of [strategy]
MODES = {
    ("alone", 1): ("words", 10, {}),
    ("llama", 1): ("llama", 12, {}),
    ("llama, fused", 1): ("llama", 12, {"fused_attention": "on"}),
    ("experts alone", 1): ("mixture", 24, {}),
    ("llama, full", 1): ("llama", 32, {"recompute": "full"}),
    ("microbatches", 1): ("words", 20, {"microbatches": 2}),
    ("selective", 1): ("words", 12, {"recompute": "selective"}),
    ("full", 1): ("words", 32, {"recompute": "full"}),
    ("full, images", 1): ("images", 52, {"recompute": "full"}),
    # Each in a process of its own: freed memory may be reused.
    ("offload activations", 1): ("words", 48, {"offload": "activations"}),
    ("offload all", 1): ("rows", 64, {"offload": "all", "optimizer": "adam"}),
    ("data", 2): ("rows", 64, {"optimizer": "adam"}),
    ("tensor, paired", 2): ("words", 16, {"tensor": 2}),
    ("tensor, in pieces", 2): ("words", 16, {"tensor": 2, "tensor_pieces": 4}),
    ("sequence parallel, in pieces", 2): (
        "words",
        32,
        {"tensor": 2, "sequence_parallel": True, "tensor_pieces": 4},
    ),
    ("tensor, column", 2): ("rows", 256, {"tensor": 2, "split": "column"}),
    ("tensor, row", 2): ("rows", 256, {"tensor": 2, "split": "row"}),
    ("filters", 2): ("images", 72, {"tensor": 2, "split": "column"}),
    ("channels", 2): ("images", 36, {"tensor": 2, "split": "row"}),
    ("llama, sequence parallel", 2): ("llama", 24, {"tensor": 2, "sequence_parallel": True}),
    ("sequence parallel", 2): ("words", 32, {"tensor": 2, "sequence_parallel": True}),
    ("context, heads", 2): ("words", 48, {"context": 2}),
    ("context, ring", 2): ("llama", 22, {"context": 2, "context_exchange": "ring"}),
    ("rows of images", 2): ("images", 44, {"spatial": 2}),
    ("slabs of fields", 2): ("fields", 28, {"spatial": 2}),
    ("zero 1", 2): ("rows", 64, {"zero": 1, "optimizer": "adam"}),
    ("zero 2", 2): ("rows", 64, {"zero": 2, "optimizer": "adam", "bucket": "6 MB"}),
    ("zero 3", 2): ("rows", 64, {"zero": 3, "optimizer": "adam", "bucket": "6 MB"}),
    ("zero 3, gathered once", 2): (
        "rows",
        64,
        {"zero": 3, "optimizer": "adam", "bucket": "6 MB", "gather": "forward"},
    ),
    ("gpipe", 2): ("words", 20, {**FLOW, "schedule": "gpipe"}),
    ("1f1b", 2): ("words", 32, {**FLOW, "schedule": "1f1b"}),
    ("zb-h1", 2): ("words", 32, {**FLOW, "schedule": "zb-h1"}),
    ("zb-h1 of four", 4): ("words", 40, {**FLOW, "pipeline": 4, "schedule": "zb-h1"}),
    ("zb-h1, full", 2): ("words", 40, {**FLOW, "schedule": "zb-h1", "recompute": "full"}),
    ("zb-h1, zero 2", 4): ("words", 48, {**FLOW, "schedule": "zb-h1", "zero": 2, "bucket": "1 MB"}),
    ("zb-h1, zero 3", 4): ("words", 32, {**FLOW, "schedule": "zb-h1", "zero": 3}),
    ("zb-h1, experts", 2): ("narrow", 32, {**FLOW, "schedule": "zb-h1"}),
    ("zb-h1, experts, full", 2): ("narrow", 32, {**FLOW, "schedule": "zb-h1", "recompute": "full"}),
    ("zb-h1, shared experts", 4): ("narrow", 48, {**FLOW, "schedule": "zb-h1", "experts": 2}),
    ("interleaved", 2): ("words", 32, {**FLOW, "schedule": "interleaved", "chunks": 2}),
    ("1f1b, full", 2): ("words", 144, {**FLOW, "schedule": "1f1b", "recompute": "full"}),
    ("hybrid zero 3", 4): (
        "rows",
        64,
        {"zero": 3, "shards": 2, "optimizer": "adam", "bucket": "6 MB"},
    ),
    ("experts, zero 1", 4): ("shallow", 4, {"experts": 2, "zero": 1, "optimizer": "adam"}),
    ("experts, zero 2", 4): (
        "shallow",
        8,
        {"experts": 2, "zero": 2, "optimizer": "adam", "bucket": "6 MB"},
    ),
    ("experts, zero 3, gathered once", 4): (
        "mixture",
        8,
        {"experts": 2, "zero": 3, "gather": "forward", "optimizer": "adam", "bucket": "6 MB"},
    ),
    ("experts, zero 3", 4): ("mixture", 8, {"experts": 2, "zero": 3, "optimizer": "adam"}),
    ("experts, zero 3 by layer", 4): (
        "shallow",
        8,
        {"experts": 2, "zero": 3, "zero_unit": "layer", "optimizer": "adam", "bucket": "6 MB"},
    ),
    ("experts, batch 2", 4): ("mixture", 2, {"experts": 2, "optimizer": "adam"}),
    ("experts, batch 16", 4): ("mixture", 16, {"experts": 2, "optimizer": "adam"}),
    ("narrow experts", 4): ("shallow, narrow", 32, {"experts": 2, "optimizer": "adam"}),
    ("1f1b of four", 4): ("words", 48, {**FLOW, "pipeline": 4, "schedule": "1f1b"}),
    ("data x pipeline", 4): ("words", 40, {**FLOW, "zero": 1}),
    ("zero 3 x pipeline", 4): ("words", 32, {**FLOW, "zero": 3, "bucket": "1 MB"}),
    ("pipeline x tensor", 4): ("words", 96, {**FLOW, "tensor": 2}),
    ("pipeline x spatial", 4): ("images", 256, {**FLOW, "spatial": 2}),
    ("data x pipeline x tensor", 8): ("words", 64, {**FLOW, "tensor": 2}),
}


# Memory of the optimizer is first used after the first backward pass, so a second step has all. It is little in these.
ONCE = ("filters", "channels", "sequence parallel", "slabs of fields", "interleaved", "1f1b, full")
ONCE += ("pipeline x tensor", "data x pipeline x tensor", "full, images", "rows of images")
ONCE += ("sequence parallel, in pieces",)


def experiment_of(model, batch, split, steps=2):
    """Steps of one batch each, and a few samples for the test."""
    ways = np.prod([split.get(name, 1) for name in ("tensor", "pipeline", "spatial", "context")])
    train_on = batch * p // int(ways)
    tested = -(-train_on // 32)
    dataset = {"name": DATA[model], "samples": train_on + tested, "bytes": 58}
    dataset["test_share"] = tested / (train_on + tested)
    if "input" in MODELS[model]:
        dataset["sample_shape"] = MODELS[model]["input"]
    return Experiment(
        model=MODELS[model],
        dataset=dataset,
        machine={"name": "laptop", "devices_per_node": 64},
        strategy={"devices_per_node": p, "batch": batch, "precision": "fp32", **split},
        training={"rate": 0.001},
        run={"epochs": steps},
    )


def compare(name, model, batch, split):
    """Print predicted and measured peaks rank by rank; return the largest difference."""
    experiment = experiment_of(model, batch, split, 1 if name in ONCE else 2)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    comm.Barrier()
    measured = [each.peak - each.data for each in train(experiment, comm).memory]
    worst = 0.0
    for at, found in enumerate(measured):
        moment = peak_of(experiment, at)
        expected = moment.total - moment.terms["driver and workspace"]
        off = found / expected - 1
        worst = max(worst, abs(off))
        print(
            f"{name:25} rank {at} {expected / 1e6:7.1f} MB {found / 1e6:7.1f} MB {off:+6.1%}",
            flush=True,
        )
    return worst


def gradients_that_wait():
    """What waits for its bucket after a split backward pass is what the ledger says, to the byte."""
    most, written = 0, Shards.written

    def measured(self, index):
        nonlocal most
        written(self, index)
        most = max(most, sum(each.nbytes for each in self._waiting.values()))

    for zero in (2, 3):
        split = experiment_of("words", 8, {**FLOW, "schedule": "zb-h1", "zero": zero})
        held = [
            peak_of(each, rank).terms["gradients"]
            for each in (split, split.set({"strategy.schedule": "1f1b"}))
        ]
        most, Shards.written = 0, measured
        train(split, comm)
        Shards.written = written
        assert most == held[0] - held[1] > 0, (zero, rank, most, held)


if __name__ == "__main__":
    ones = np.ones((512, 512), np.float32)
    ones @ ones  # the BLAS library allocates its buffers
    train(experiment_of("words", 2, {"microbatches": 2}), comm)  # as do the others when first used
    chosen = sys.argv[1:]
    modes = {name: way for (name, ranks), way in MODES.items() if ranks == p}
    found = {
        name: patient.bcast(comm, compare(name, *way))
        for name, way in modes.items()
        if not chosen or name in chosen
    }
    assert len(found) == len(chosen or modes), chosen
    if p == 4:
        gradients_that_wait()
    far = {name: f"{off:.1%}" for name, off in found.items() if off > CLOSE}
    assert not far, far
    if rank == 0:
        print(f"{p} ranks: all right")
