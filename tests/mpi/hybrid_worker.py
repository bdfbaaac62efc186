"""On every rank: train under every kind of parallelism, and compare with one rank. See test_hybrid.py."""

import shutil
import sys
import tempfile
from dataclasses import replace
from itertools import cycle, pairwise, product
from math import prod
from pathlib import Path

import numpy as np
import patient
from mpi4py import MPI
from rank_cache import KNOWN

from lib_dlhpc import layout, parallel
from lib_dlhpc.costs import exchanges
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.receive import Receive
from lib_dlhpc.program import Collective, Compute, PairAllreduce, Update, calls, gathers
from lib_dlhpc.program.instructions import whole_layers
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import ZERO_UNITS
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training import pipeline_messages as pipes
from lib_dlhpc.training import rank as rank_file
from lib_dlhpc.training.check import check
from lib_dlhpc.training.messages.async_tp import CutExchange
from lib_dlhpc.training.messages.exchange import Exchange
from lib_dlhpc.training.messages.halo import Halo
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.pipeline_messages import Pipe
from lib_dlhpc.training.rank import Diverged, Rank
from lib_dlhpc.training.stage import Stage
from lib_dlhpc.training.tied_weights import Tied
from lib_dlhpc.training.trainer import train

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
CLASSES = 4

MODELS = {
    # Odd sizes, stride, padding, a residual sum, batch norm over all samples.
    "images": {
        "family": "sequential",
        "input": [2, 9, 7],
        "layers": [
            {"kind": "conv", "channels": 5, "kernel": 3, "padding": 1, "bias": False, "name": "a"},
            {"kind": "batch_norm"},
            {"kind": "relu", "name": "r"},
            {"kind": "conv", "channels": 5, "kernel": 3, "padding": 1, "bias": False, "name": "b"},
            {"kind": "batch_norm"},
            {"kind": "add", "inputs": ["batch_norm2", "r"], "name": "s"},
            {"kind": "relu"},
            {"kind": "conv", "channels": 6, "kernel": 3, "stride": 2, "padding": 1, "name": "c"},
            {"kind": "max_pool", "kernel": 3, "stride": 1, "padding": 1},
            {"kind": "dropout", "rate": 0.2},
            {"kind": "global_avg_pool"},
            {"kind": "dense", "features": CLASSES},
        ],
    },
    "rows": {"family": "mlp", "widths": [64, 11, 9, 7, 10], "activation": "tanh", "dropout": 0.2},
    "fields": {
        "family": "sequential",
        "input": [1, 8, 5, 6],
        "layers": [
            {"kind": "conv", "channels": 4, "kernel": 3, "padding": 1},
            {"kind": "leaky_relu"},
            {"kind": "max_pool", "kernel": 2},
            {"kind": "conv", "channels": 6, "kernel": 3, "padding": 1},
            {"kind": "tanh"},
            {"kind": "avg_pool", "kernel": [2, 1, 2]},
            {"kind": "flatten"},
            {"kind": "dense", "features": 8},
            {"kind": "relu"},
            {"kind": "dense", "features": 2},
        ],
    },
    "words": {
        "family": "gpt",
        "layers": 3,
        "hidden": 8,
        "heads": 4,
        "sequence": 5,
        "vocabulary": 11,
        "dropout": 0.2,
    },
    "sequences": {
        "family": "lstm_language_model",
        "layers": 2,
        "hidden": 6,
        "sequence": 4,
        "vocabulary": 7,
        "dropout": 0.3,
    },
}
# Grouped queries, a window, rotary positions, a gate, an untied last matrix.
MODELS["llama"] = {
    "family": "llama",
    "layers": 3,
    "hidden": 8,
    "heads": 4,
    "kv_heads": 2,
    "feed_forward": 10,
    "sequence": 5,
    "vocabulary": 11,
    "window": 3,
    "qkv_bias": True,
}
# Whole numbers of tokens and heads on up to four ranks.
MODELS["long words"] = {**MODELS["words"], "layers": 2, "sequence": 16}
MODELS["long llama"] = {**MODELS["llama"], "layers": 2, "sequence": 16, "window": 7}
MODELS["long qwen"] = {
    "family": "decoder",
    "layers": 2,
    "hidden": 8,
    "attention": {"heads": 4, "kv_heads": 2, "normed": True},
    "feed_forward": {"features": 10},
    "sequence": 16,
    "vocabulary": 11,
}
MODELS["short words"] = {**MODELS["words"], "sequence": 3}
DATA = {
    "images": "waves",
    "rows": "digits",
    "fields": "densities",
    "words": "words",
    "llama": "words",
    "short words": "words",
    "long words": "words",
    "long llama": "words",
    "long qwen": "words",
    "sequences": "words",
}
BATCH, SAMPLES = 24, 58  # of all replicas together; 46 samples to train with: batches of 24 and 22
largest = {}


def experiment_of(model, **changes):
    """A model on `ranks` ranks, with fields of [strategy], [training] and [run] changed."""
    strategy = {"precision": "fp64", "bucket": 300, "optimizer": "momentum", "devices_per_node": 1}
    training = {"rate": 0.05, "weight_decay": 0.01, "normalization": "global"}
    run = {"epochs": 1.5}  # three steps
    for name, value in changes.items():
        table = training if name in TRAINING else run if name in RUN else strategy
        table[name] = value
    ranks = strategy["devices_per_node"]
    split = np.prod(
        [strategy.get(name, 1) for name in ("tensor", "pipeline", "spatial", "context")]
    )
    strategy["batch"] = int(BATCH // (ranks // split))
    name = DATA[model]
    return Experiment(
        model=MODELS[model],
        dataset={"name": name, "samples": SAMPLES, "bytes": 58},
        machine={"name": "laptop", "devices_per_node": 64},
        strategy=strategy,
        training=training,
        run=run,
    )


TRAINING = ("rate", "weight_decay", "normalization", "shift", "trust", "collective")
RUN = ("epochs", "seed")


def result(experiment, on):
    """Losses, and the run's snapshot: full tensors."""
    folder = Path(on.bcast(tempfile.mkdtemp() if on.rank == 0 else None))
    run = train(experiment, on, folder)
    if on.rank:
        return None
    with np.load(folder / "snapshot.npz") as file:
        arrays = {name.removeprefix("own."): file[name] for name in file.files}
    shutil.rmtree(folder)
    return (run.loss, run.test_loss), arrays, run


def one_rank(model, **changes):
    """The same on one rank, run by rank 0."""
    if rank:
        return None
    key = repr((__file__, model, sorted(changes.items())))
    if key not in KNOWN:
        KNOWN[key] = result(experiment_of(model, **changes), MPI.COMM_SELF)
    return KNOWN[key]


def error(model, common, split, expected=None):
    """The largest relative difference of losses, weights, optimizer state and running statistics."""
    found = result(experiment_of(model, devices_per_node=p, **common, **split), comm)
    expected = expected or one_rank(model, **common)
    if rank:
        return 0.0
    (losses, arrays, _), (wanted, others, _) = found, expected
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses, wanted, strict=True))
    assert arrays.keys() == others.keys(), (arrays.keys(), others.keys())
    return max(worst, *(difference(array, others[name]) for name, array in arrays.items()))


def difference(array, other):
    """The difference of two arrays, relative to the largest element."""
    assert array.size == other.size, (array.shape, other.shape)
    return np.abs(array.ravel() - other.ravel()).max(initial=0) / np.abs(other).max(initial=1e-300)


def equals_one_rank(model, split, within=1e-10, **common):
    off = patient.bcast(comm, error(model, common, split))
    assert off <= within, (model, common, split, off)
    largest[within] = max(off, largest.get(within, 0.0))


def shapes(model):
    """Factorizations of p ranks into data x pipeline x tensor, or spatial for images, or context for sequences.

    All of them on up to 4 ranks; on 6 those of two kinds, on 8 those of three, which fewer ranks do not have.
    """
    inside = "spatial" if model in ("images", "fields") else "context"
    most = 4 if inside == "spatial" or model in LONG else 1
    for pipeline, tensor, many in product(range(1, p + 1), repeat=3):
        legal = (
            many <= most
            and (inside == "spatial" or many != 3)
            and (inside == "context" or 1 in (tensor, many))
        )
        if not legal or p % (pipeline * tensor * many):
            continue
        kinds = sum(n > 1 for n in (p // (pipeline * tensor * many), pipeline, tensor, many))
        if kinds >= {6: 2, 8: 3}.get(p, 0):
            yield {"pipeline": pipeline, "tensor": tensor, inside: many}


def every_layout():
    """Each model in each shape; other options rotate, so that each meets many of the others.

    On four and more ranks each model meets every second shape, and each shape every second model.
    """
    schedules = cycle(("1f1b", "gpipe", "interleaved", "zb-h1", "1f1b", "zb-h1"))
    microbatches, splits = cycle((2, 3, 4, 1)), cycle(("paired", "column", "row"))
    recomputes = cycle(("none", "full", "none", "selective", "full"))
    offloads = cycle(("none", "none", "all", "none", "activations", "none", "all"))
    shards, when = cycle((0, 2, 0)), cycle(("usual", "forward", "forward", "usual", "usual"))
    gathered = cycle(("block", "block", "layer"))
    zeros, sequences = cycle((0, 1, 2, 3)), cycle((True, False, False))
    pieces = cycle((1, 2, 3, 1, 2))
    epochs = cycle((1, 1, 1.5))  # two steps, or three: one of the next epoch
    optimizers, fused = cycle(("momentum", "adam", "lars", "sgd", "lamb")), cycle(("on", "off"))
    for place, model in enumerate(MOST_STAGES):
        for number, shape in enumerate(shapes(model)):
            if p >= 4 and (place + number) % 2:
                continue
            if model in LONG and shape["context"] == 1:
                continue
            depth, tensor = shape["pipeline"], shape["tensor"]
            if depth > MOST_STAGES[model] or tensor > MOST_TENSOR[model]:
                continue
            replicas = p // prod(shape.values())
            split = {**shape, "zero": next(zeros), "recompute": next(recomputes)}
            if split["zero"] and replicas % 2 == 0:
                split["shards"] = next(shards)
            if split["zero"]:
                split["gather"] = next(when)
            if split["zero"] == 3:
                split["zero_unit"] = next(gathered)
            if model != "images":  # batch norm must see all samples at once
                split["microbatches"] = min(next(microbatches), BATCH // replicas)
            if depth > 1:
                split["schedule"] = next(schedules)
            if split.get("schedule") == "interleaved":
                stays = 2 * depth > MOST_STAGES[model] or BATCH // replicas < depth
                stays = stays or model == "images"
                split |= {"schedule": "1f1b"} if stays else {"chunks": 2, "microbatches": depth}
            if tensor > 1:
                split["split"] = next(splits)
                split["sequence_parallel"] = model in TOKENS and next(sequences)
                split["tensor_pieces"] = next(pieces)
            if "llama" in model:
                split["fused_attention"] = next(fused)
            if shape.get("context", 1) > 1:
                split |= RING if "llama" in model or number % 2 else {}
            split["offload"] = next(offloads)
            if split.get("schedule") == "zb-h1":
                split |= {"offload": "none"}
            if split["offload"] == "all":
                split |= {"offload": "none"} if "words" in model and depth > 1 else NONE
            rule = {"optimizer": next(optimizers), "epochs": next(epochs)}
            rule |= {"rate": 5.0} if rule["optimizer"] == "lars" else {}
            rule |= {"shift": 1} if model == "images" and depth % 2 else {}
            equals_one_rank(model, split, **rule)


NONE = {"zero": 0, "shards": 0, "gather": "usual", "zero_unit": "block"}
RING = {"context_exchange": "ring", "fused_attention": "auto"}
LONG = ("long words", "long llama")
TOKENS = ("words", "llama", *LONG)
MOST_STAGES = {"images": 8, "rows": 6, "fields": 8, "words": 5, "sequences": 3, "llama": 5}
MOST_STAGES |= dict.fromkeys(LONG, 3)
MOST_TENSOR = {"images": 4, "rows": 6, "fields": 2, "words": 4, "sequences": 3, "llama": 2}
MOST_TENSOR |= dict.fromkeys(LONG, 2)


def random_ways(seed="0", number="40"):
    """Random legal choices for every field, for any number of seeds.

    mpiexec -n 4 python -m mpi4py tests/mpi/hybrid_worker.py random_ways 7 500
    """
    draw = np.random.default_rng([int(seed), p])
    legal, met = 0, {}

    def one(*choices):
        return choices[draw.integers(len(choices))]

    while legal < int(number):
        model = one(*MODELS)
        shape = one(*shapes(model))
        split = {
            **shape,
            "microbatches": one(1, 2, 3, 4, 6),
            "schedule": one("gpipe", "1f1b", "interleaved", "zb-h1"),
            "chunks": one(1, 1, 2, 3),
            "split": one("paired", "column", "row"),
            "sequence_parallel": bool(one(0, 0, 1)),
            "tensor_pieces": one(1, 1, 2, 3),
            "zero": one(0, 1, 2, 3),
            "shards": one(0, 0, 2),
            "gather": one("usual", "usual", "forward"),
            "zero_unit": one("block", "block", "layer"),
            "recompute": one("none", "selective", "full"),
            "offload": one("none", "activations", "all"),
            "fused_attention": one("off", "off", "on", "auto"),
            "context_exchange": one("heads", "ring"),
        }
        rule = {"optimizer": one("momentum", "adam", "sgd", "lamb")}
        try:
            run = experiment_of(model, devices_per_node=p, **split, **rule)
            legal_here = check(run) is None and len(layout.parts(run, rank)) > 0
        except SpecError:
            legal_here = False
        assert len({*comm.allgather(legal_here)}) == 1, ("not legal on all ranks", model, split)
        if not legal_here:
            continue
        legal += 1
        off = patient.bcast(comm, error(model, rule, split))
        assert off <= 1e-10, (model, rule, split, off)
        for name, value in split.items():
            if value not in (1, 0, False, "none", "off", "auto", "usual"):
                key = f"{name} {value if isinstance(value, str) else ''}".strip()
                count, worst = met.get(key, (0, 0.0))
                met[key] = count + 1, max(worst, off)
    if rank == 0:
        print(f"{legal} ways on {p} ranks; largest relative difference from one rank, by choice:")
        for key in sorted(met):
            print(f"  {key:<24} {met[key][0]:>5} ways  {met[key][1]:.1e}")


def many_choices():
    """One network in one shape, with all pairs of zero and schedule; other options rotate."""
    recomputes, splits = cycle(("none", "full", "selective")), cycle(("paired", "column", "row"))
    for zero in (0, 1, 2, 3):
        sequence, microbatches = zero in (1, 2), (1, 3)[zero % 2]
        split = {"tensor": 2, "recompute": next(recomputes), "split": next(splits)}
        split |= {"zero": zero, "microbatches": microbatches, "sequence_parallel": sequence}
        equals_one_rank("words", split, epochs=1)
    collectives = cycle(("schedule", "mpi", "schedule"))
    schedules = ("gpipe", "1f1b", "interleaved", "zb-h1")
    for zero, (number, schedule) in product((0, 1, 2, 3), enumerate(schedules)):
        microbatches = (2, 4)[(zero + number) % 2]
        split = {"pipeline": 2, "recompute": next(recomputes), "collective": next(collectives)}
        split |= {"zero": zero, "microbatches": microbatches, "schedule": schedule}
        split |= {"chunks": 2} if schedule == "interleaved" else {}
        equals_one_rank("words", split, epochs=1)


def replicas_with_local_normalization():
    """With local statistics, a replica of many ranks equals a replica of one rank."""
    two, common = comm.Split(int(rank > 1), rank), {"normalization": "local", "optimizer": "adam"}
    expected = None
    if rank < 2:
        expected = result(experiment_of("images", devices_per_node=2, **common), two)
    for kind in ("spatial", "pipeline", "tensor"):
        off = patient.bcast(comm, error("images", common, {kind: p // 2}, expected))
        assert off <= 1e-10, (kind, off)
    two.Free()


def empty_microbatches():
    """The last batch of an epoch has 22 samples, for 24 microbatches."""
    for model, way in (("rows", "pipeline"), ("words", "tensor"), ("fields", "spatial")):
        equals_one_rank(model, {way: p, "microbatches": 24}, epochs=1)


def whole_matrices():
    """Muon needs all of a matrix: replicas that have slices of its momentum gather it, at every level of ZeRO."""
    muon = {"optimizer": "muon", "rate": 0.01, "epochs": 0.5}
    if p == 4:
        equals_one_rank("llama", {"pipeline": 2, "zero": 1, "microbatches": 2}, **muon)
        equals_one_rank("rows", {"zero": 2, "shards": 2}, **muon)
        return
    levels = ({"zero": 1}, {"zero": 1, "bucket": 25e6}, {"zero": 2})
    levels += ({"zero": 3}, {"zero": 3, "zero_unit": "layer"}, {"zero": 3, "gather": "forward"})
    for level in levels:
        equals_one_rank("llama", level, **muon)
    equals_one_rank("words", {"pipeline": p, "microbatches": 2}, **muon)
    equals_one_rank("long llama", {"context": p, "zero": 1}, **muon)


def uneven_shares():
    """Tensor ranks without any part of a layer, and replicas with more test batches than others."""
    for zero in (1, 3):
        split = {"tensor": 4, "sequence_parallel": True, "zero": zero, "bucket": 8}
        equals_one_rank("short words", split, optimizer="lamb", epochs=0.5)
    with mutated((rank_file, "TEST_BATCH", 1)):
        equals_one_rank("words", {"zero": 3}, epochs=0.5)


def single_precision():
    equals_one_rank("words", {"pipeline": p, "microbatches": 2}, 1e-5, precision="fp32")
    equals_one_rank("fields", {"spatial": p}, 1e-5, precision="fp32")


def layouts():
    """Some very different layouts of p ranks, with their requirements."""
    yield "words", {"zero": 3}
    yield "words", {"zero": 1, "microbatches": 2, "pipeline": p}
    if p == 4:
        for level, schedule in product((2, 3), ("1f1b", "zb-h1")):
            way = {"zero": level, "microbatches": 3, "pipeline": 2}
            yield "words", {**way, "schedule": schedule}
    yield "images", {"spatial": p}
    yield "images", {"pipeline": p}
    if p <= 4:
        yield "words", {"tensor": p}
        yield "words", {"tensor": p, "tensor_pieces": 2, "microbatches": 2}
        yield "images", {"tensor": p, "split": "column"}


def program_is_carried_out():
    """In a step a rank does what the program says, in its order: work, collectives, swaps, update."""
    ways = [*layouts(), ("rows", {}), ("rows", {"overlap": False}), ("rows", {"update": "local"})]
    ways += [
        ("words", {"zero": level, "microbatches": 3, "recompute": "full"}) for level in range(4)
    ]
    for level in (1, 2, 3):
        way = {"zero": level, "microbatches": 3, "recompute": "full", "gather": "forward"}
        ways += [("words", way)]
        ways += [("words", {**way, "pipeline": 2})] if p == 4 else []
    for schedule in ("gpipe", "zb-h1"):
        ways += [("words", {"pipeline": p, "microbatches": 4, "schedule": schedule})]
    if p == 4:
        way = {"pipeline": 2, "tensor": 2, "sequence_parallel": True, "tensor_pieces": 2}
        ways += [(name, {**way, "microbatches": 2}) for name in ("words", "llama")]
        ways += [("words", {**way, "microbatches": 3, "schedule": "zb-h1"})]
    if p != 3:  # it does not divide 16 tokens
        ways += [("long words", {"context": p}), ("long llama", {"context": p, **RING})]
    if p == 4:
        ways += [("words", {"zero": level, "shards": 2, "microbatches": 2}) for level in (1, 2, 3)]
        way = {"pipeline": 2, "schedule": "interleaved", "chunks": 2, "microbatches": 2}
        ways += [("words", {**way, "zero": level, "gather": "forward"}) for level in (1, 3)]
    if p == 2:
        chunks = {"schedule": "interleaved", "chunks": 2, "microbatches": 2}
        ways += [
            ("words", {"pipeline": p, **chunks}),
            ("words", {"pipeline": p, **chunks, "zero": 1}),
        ]
    for model, split in ways:
        run = experiment_of(model, devices_per_node=p, epochs=0.5, normalization="local", **split)
        expected, found = planned(run), recorded(run)
        assert found == expected, (model, split, found, expected)
        assert any(what == "update" for what in found), split


def planned(experiment):
    """What the program of the first step has this rank do, instruction by instruction; a table computes nothing."""
    experiment = replace(experiment, machine=replace(experiment.machine, progress=True))
    program, place = parallel.steps(experiment)[0], layout.place(experiment, rank)
    found = []
    for call in calls(program.schedule):
        if call.place == place.pipeline:
            block = program.stages[call.place][call.chunk].block(call.phase, call.once)
            layers = layout.parts(experiment, rank)[call.chunk].model.layers
            for what in whole_layers(block.variants[place.spatial].instructions):
                still = isinstance(what, Compute) and layers[what.layer].kind == "table"
                found.append("" if still else named(what))
    found += [named(row[place.pipeline]) for row in program.end]
    return [what for what in found if what]


def named(what):
    """An instruction in words; "" for what a layer does itself, waits, and meetings."""
    if isinstance(what, Compute):
        return f"{what.phase} {what.layer}"
    if isinstance(what, Collective) and what.stream and what.layers:
        return f"{what.goal} {what.group} {what.layers}"
    if isinstance(what, Collective) and what.stream == "tensor":
        return f"piece of {what.key.rsplit(' ', 2)[0]}"
    if isinstance(what, PairAllreduce):
        return what.name
    return "update" if isinstance(what, Update) else ""


def recorded(experiment):
    """What this rank does in the first step."""
    found = []

    def noted(function, word):
        def replaced(self, *given):
            found.append(word(self, *given))
            return function(self, *given)

        return replaced

    def forward(network, visit, index, *_):
        return f"forward {index}"

    def backward(network, index, own, pending, weights_later):
        return f"{'input_grad' if weights_later else 'backward'} {index}"

    def weighed(network, index, *_):
        return f"weight_grad {index}"

    def updated(stage, rate):
        return "update" if stage.part.stage < int(experiment.strategy.pipeline) else ""

    with mutated(
        (Network, "_one", noted(Network._one, forward)),
        (Network, "_back", noted(Network._back, backward)),
        (Network, "_backward_weights", noted(Network._backward_weights, weighed)),
        (
            CutExchange,
            "_start",
            noted(CutExchange._start, lambda one, rounds: f"piece of {one.name}"),
        ),
        (Stage, "post", noted(Stage.post, lambda stage, what: named(what))),
        (Stage, "update", noted(Stage.update, updated)),
        (Tied, "sum", noted(Tied.sum, lambda tied, name: name)),
        (Rank, "_test", lambda self, step: (None, 1.0)),
    ):
        train(experiment, comm)
    return [what for what in found if what]


def resumes_under_another_layout():
    """Saved under one layout, restored under the next, and by the data-parallel trainer."""
    common = {"optimizer": "adam"}
    for name in ("words", "images"):
        ways = [split for model, split in layouts() if model == name]
        folder = Path(comm.bcast(tempfile.mkdtemp() if rank == 0 else None))
        until = iter(range(1, 20))
        for split in ways:
            epochs = next(until) - 0.5  # within an epoch
            train(
                experiment_of(name, devices_per_node=p, epochs=epochs, **common, **split),
                comm,
                folder,
            )
            if rank == 0:
                train(experiment_of(name, epochs=epochs + 0.4, **common), MPI.COMM_SELF, folder)
            comm.Barrier()
        last = len(ways) - 0.1
        expected = one_rank(name, epochs=last, **common)
        if rank == 0:
            with np.load(folder / "snapshot.npz") as file:
                for array in ("weights", "first", "second", "place"):
                    off = difference(file[array], expected[1][array])
                    assert off <= 1e-10, (name, array, off)


def mistakes_are_found():
    """The comparison can fail: classic mistakes break it."""

    def short(self, weights, saved, x):
        y = forward(self, weights, saved, x)
        if any(lender > self.rank for lender, _ in self.borrowed):
            y[:, -1] = 0
        return y

    def made(self, layer):
        init(self, layer)
        self.rank = layer.attributes["rank"]

    def twice(self, name):
        tied(self, name)
        tied(self, name)

    def alias(self, weights, saved, x):
        return x

    def reused(self, letter, shapes):
        """One buffer for all messages of a kind."""
        kept, pipes.np = pipes.np, Reusing(letter.what, buffers)
        try:
            expect(self, letter, shapes)
        finally:
            pipes.np = kept

    buffers = {}
    forward, init, tied, expect = Halo.forward, Halo.__init__, Tied.sum, Pipe.expect
    own, post = layout.own_tokens, CutExchange.post
    if p <= 4:
        with mutated((Halo, "__init__", made), (Halo, "forward", short)):
            assert patient.bcast(comm, error("images", {}, {"spatial": p})) > 1e-6, (
                "a halo one row short"
            )
    flow = {"pipeline": p, "microbatches": 3, "schedule": "gpipe"}
    if p <= 4:
        with mutated((Tied, "sum", twice)):
            assert patient.bcast(comm, error("words", {}, flow)) > 1e-6, (
                "tied gradients summed twice"
            )
        with mutated((Pipe, "expect", reused)):
            assert patient.bcast(comm, error("words", {}, flow)) <= 1e-10, "buffers may come again"
        with mutated((Pipe, "expect", reused), (Receive, "forward", alias)):
            assert patient.bcast(comm, error("words", {}, flow)) > 1e-6, (
                "a stage's input is the buffer"
            )
        with mutated((Stage, "sum_over", lambda self, *_: None)):
            assert patient.bcast(comm, error("fields", {}, {"spatial": p})) > 1e-6, "a sum left out"

        with mutated((CutExchange, "post", lambda *of: of[-1] or post(*of))):
            split = {"tensor": p, "tensor_pieces": 2}
            assert patient.bcast(comm, error("words", {}, split)) > 1e-6, "a piece left out"

    if p in (2, 4):
        split = {"context": p, **RING}
        with mutated((layout, "own_tokens", lambda *of: own(*of[:-1], "heads"))):
            assert comm.bcast(error("long llama", {}, split)) > 1e-6, "tokens of other places"


def norms_of_heads():
    """Queries and keys are normalized head by head, each rank its own tokens, before they travel."""
    for way in ({}, RING):
        equals_one_rank("long qwen", {"context": p, **way}, epochs=1)


def bytes_around_attention():
    """Ranks that divide a sequence send what the program says."""
    for model, way in (("long words", {}), ("long llama", RING)):
        run = experiment_of(model, devices_per_node=p, context=p, epochs=0.5, **way)
        timeline = train(run, comm).timeline
        if timeline is not None:
            names = ("all_to_all", "ring")
            found = sum(event.bytes for event in timeline if event.name.startswith(names))
            chunk = parallel.steps(run)[0].stages[0][0]
            passes = (chunk.forward.variants[0], chunk.last.variants[0])
            every = (each for one in passes for each in one.instructions)
            said = sum(each.elements for each in every if getattr(each, "group", "") == "context")
            assert found == p * BATCH * 8 * said > 0, (model, found, said)


def bytes_of_gathered_weights():
    """Ranks gather what the program says: once for all microbatches, or before each pass, a block or a layer at a
    time."""
    ways = [{"zero": level, "gather": "forward"} for level in (1, 2, 3)]
    ways += [{**way, "schedule": "interleaved", "chunks": 2} for way in ways]
    ways += [{"zero": 3, "zero_unit": unit, "recompute": "full"} for unit in ZERO_UNITS]
    for way in ways:
        run = experiment_of("words", devices_per_node=p, microbatches=3, epochs=0.5, **way)
        with mutated((Rank, "_test", lambda self, step: (None, 1.0))):
            timeline = train(run, comm).timeline
        if timeline is not None:
            sizes = [e.bytes for e in timeline if e.name.startswith("weights") and e.kind != "wait"]
            chunk = parallel.steps(run)[0].stages[0][0]
            passes = [chunk.first] if chunk.first else [chunk.forward, chunk.backward] * 3
            every = (each for one in passes for each in one.variants[0].instructions)
            said = [each.elements for each in every if gathers(each)]
            assert sum(sizes) == 8 * sum(said) > 0, (way, sum(sizes), sum(said))
            assert way.get("gather") or len(sizes) == p * len(said), (way, len(sizes), len(said))


class Reusing:
    """numpy, but its empty arrays of one size are one."""

    def __init__(self, kind, arrays):
        self.kind, self.arrays = kind, arrays

    def empty(self, size, dtype):
        return self.arrays.setdefault((self.kind, size), np.empty(size, dtype))


class mutated:
    """Within the block, attributes are something else."""

    def __init__(self, *changes):
        self.changes = changes

    def __enter__(self):
        self.kept = [(place, name, getattr(place, name)) for place, name, _ in self.changes]
        for place, name, other in self.changes:
            setattr(place, name, other)

    def __exit__(self, *_):
        for place, name, kept in self.kept:
            setattr(place, name, kept)


def recorded_events():
    """The timeline is complete; work and waits are disjoint; messages have size and peer."""
    m = 3
    ways = [("words", {"pipeline": p, "microbatches": m})]
    ways += [("words", {"zero": 3, "microbatches": m})]
    ways += [("images", {"spatial": p})] if p > 1 else []
    ways += [("rows", {"zero": level}) for level in (0, 1)]
    for model, split in ways:
        run = train(experiment_of(model, devices_per_node=p, **split), comm)
        if rank:
            continue
        assert run.gradients > 0 and (run.sent > 0 or p == 1), (model, run.sent)
        table, measured = run.timeline, breakdown(run.timeline)
        simulated = simulate(experiment_of(model, devices_per_node=p, **split))
        assert work_of(table) == work_of(simulated), (model, split)
        for seconds in np.sum(list(measured.per_rank.values()), axis=0):
            assert abs(seconds - measured.step_time) <= 1e-9 * measured.step_time
        assert measured.steps == 3 and table.ranks == p, (measured.steps, table.ranks)
        events = list(table)
        for r in range(p):
            own = [event for event in events if event.rank == r]
            work = sorted((e.start, e.stop) for e in own if e.stream == "compute")
            assert all(b[0] >= a[1] - 1e-9 for a, b in pairwise(work)), (model, r)
            names = {e.name for e in own if e.kind == "backward"}
            many = split.get("microbatches", 1)
            alone = {"backward"} if many == 1 else {f"backward {k}" for k in range(many)}
            assert names == alone or (model == "rows" and many == 1), names
        talk = [event for event in events if event.stream == "communication"]
        if "pipeline" in split and p > 1:
            letters = [(e.rank, e.peer) for e in talk if e.peer >= 0]
            for a, b in pairwise(range(p)):
                assert letters.count((a, b)) == letters.count((b, a)) == 3 * m, letters
            assert {e.bytes for e in talk if e.peer >= 0} <= {8 * n * 5 * 8 for n in (8, 7)}
        if "spatial" in split and p > 1:
            halos = [e for e in talk if e.name.startswith("halo")]
            assert halos and sum(e.bytes for e in halos) > 0


def gathered_once():
    """Backward gathers the input of two products, of a gate and of what it multiplies, once, as the program says."""
    run = experiment_of("llama", devices_per_node=p, tensor=p, sequence_parallel=True, epochs=0.5)
    again = exchanges.regathered(layout.parts(run, rank)[0].model, "none")
    right, found = Exchange.gather_again, []

    def counted(self, saved):
        found.append(self.name)
        return right(self, saved)

    with mutated((Exchange, "gather_again", counted)):
        train(run, comm)
    assert sorted(found) == sorted(layer.name for layer in again), found
    assert any("gate" in name for name in found), found


def work_of(timeline):
    """The names of what ranks compute; what is left of backward after the last bucket may take no time."""
    kinds = ("forward", "backward", "update")
    found = {event.name for event in timeline if event.kind in kinds}
    return {name for name in found if not name.endswith("to the input")}


def divergence_is_reported():
    """All ranks report the same rank, step and layer."""
    ways = [("words", {"pipeline": p, "microbatches": 2}), ("words", {"zero": 3})]
    for model, split in [*ways, ("images", {"spatial": p})]:
        told = ""
        try:
            with np.errstate(all="ignore"):
                wild = {"rate": 1e30, "optimizer": "sgd", "weight_decay": 0.0, "precision": "fp32"}
                train(experiment_of(model, devices_per_node=p, **split, **wild), comm)
        except Diverged as error:
            told = str(error)
        texts = set(comm.allgather(told))
        assert len(texts) == 1 and "step 1, first in " in told and "the loss" not in told[-9:], (
            texts
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["random_ways"]:
        random_ways(*sys.argv[2:])
        sys.exit()
    chosen = sys.argv[1:]
    checks = [every_layout]
    if p <= 4:  # more ranks on few cores are slow, and have nothing new here
        checks += [divergence_is_reported, resumes_under_another_layout, recorded_events]
        checks += [program_is_carried_out]
    checks += [single_precision] if p in (2, 4) else []
    checks += [gathered_once, norms_of_heads] if p == 2 else []
    checks += [whole_matrices] if p in (2, 4) else []
    checks += [bytes_around_attention, bytes_of_gathered_weights] if p in (2, 4) else []
    checks += [empty_microbatches] if p == 3 else []
    checks += [replicas_with_local_normalization] if p in (4, 6) else []
    checks += [many_choices] if p == 4 else []
    checks += [uneven_shares] if p == 8 else []
    checks += [mistakes_are_found] if 1 < p <= 4 else []
    for check in checks:
        if not chosen or check.__name__ in chosen:
            begin = MPI.Wtime()
            check()
            if rank == 0:
                print(f"{check.__name__}: {MPI.Wtime() - begin:.1f} s", flush=True)
    sizes = comm.gather(comm.size)
    if rank == 0:
        for within, off in largest.items():
            print(f"largest relative difference from one rank: {off:.1e}, allowed {within:.0e}")
        print(f"all right on {len(sizes)} ranks")
