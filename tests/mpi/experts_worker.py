"""On every rank: train mixtures of experts, sharded in every way, and compare with one rank. See test_experts.py."""

import shutil
import tempfile
from itertools import cycle, product
from pathlib import Path

import numpy as np
import patient
from hybrid_worker import planned, recorded
from mpi4py import MPI

from lib_dlhpc.layers.experts import Experts
from lib_dlhpc.layout import parts
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.messages.all_to_all import AllToAll
from lib_dlhpc.training.rank import Diverged
from lib_dlhpc.training.stage import Stage
from lib_dlhpc.training.trainer import train

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
BATCH = 24  # of all replicas together: batches of 24 and 22 samples
MODEL = {
    "family": "gpt",
    "layers": 2,
    "hidden": 12,
    "heads": 4,
    "sequence": 5,
    "vocabulary": 11,
    "dropout": 0.2,
    "experts": 8,
    "chosen": 2,
    "expert_hidden": 6,
}
MODELS = {
    "free": MODEL,
    "limited": MODEL | {"capacity": 0.9, "shared": 2},
    "switch": MODEL | {"chosen": 1, "capacity": 1.0},
    "six": MODEL | {"experts": 6},
    "three": MODEL | {"experts": 3, "capacity": 0.9},
}
# Gated experts beside a scaled shared network, heads normalized before attention.
MODELS["gated"] = {
    "family": "decoder",
    "layers": 2,
    "hidden": 12,
    "sequence": 5,
    "vocabulary": 11,
    "attention": {"heads": 4, "kv_heads": 2, "head_size": 4, "normed": True, "rotary_base": 100},
    "feed_forward": {"features": 10},
    "experts": {"experts": 8, "chosen": 2, "features": 6, "shared": 6, "shared_gate": True},
}
# With biases and limits, queries and keys normalized over all heads.
MODELS["biased"] = MODELS["gated"] | {
    "attention": {"heads": 4, "kv_heads": 2, "head_size": 4, "width_normed": True},
    "experts": {"experts": 8, "chosen": 2, "features": 6, "bias": True, "activation": "clamped"},
}
SHARDED = ("free", "limited", "switch")
ZEROS = (
    {},
    {"zero": 1},
    {"zero": 3},
    {"zero": 2},
    {"zero": 3, "zero_unit": "layer"},
    {"zero": 1, "gather": "forward"},
    {"zero": 3, "gather": "forward"},
)
known, largest = {}, [0.0]


def experiment_of(model, ranks, epochs=1.0, rate=None, **changes):
    split = np.prod([changes.get(name, 1) for name in ("tensor", "pipeline")])
    strategy = {"precision": "fp64", "bucket": 2000, "devices_per_node": ranks}
    strategy |= {"batch": int(BATCH // (ranks // split)), **changes}
    rates = {"lars": 5.0, "adam": 0.01, "lamb": 0.01, "sgd": 0.05, "momentum": 0.05}
    return Experiment(
        model=MODELS[model],
        dataset={"name": "words", "samples": 58, "bytes": 58},
        machine={"name": "laptop", "devices_per_node": 64},
        strategy=strategy,
        training={"rate": rate or rates[changes["optimizer"]], "weight_decay": 0.01},
        run={"epochs": epochs},
    )


def result(experiment, on, folder=None):
    """Losses and the load of the run, and its snapshot: full tensors."""
    place = folder or Path(on.bcast(tempfile.mkdtemp() if on.rank == 0 else None))
    run = train(experiment, on, place)
    if on.rank:
        return None
    with np.load(place / "snapshot.npz") as file:
        arrays = {name: file[name] for name in file.files}
    if folder is None:
        shutil.rmtree(place)
    return run, arrays


def one_rank(model, optimizer):
    if (model, optimizer) not in known:
        known[model, optimizer] = result(
            experiment_of(model, 1, optimizer=optimizer), MPI.COMM_SELF
        )
    return known[model, optimizer]


def equals_one_rank(model, optimizer, **split):
    off = difference(model, optimizer, load_of=split, **split)
    assert off <= 1e-10, (model, optimizer, split, off)
    largest[0] = max(largest[0], off)


def difference(model, optimizer, load_of=None, **split):
    """The largest relative difference of losses, weights and optimizer state from one rank."""
    found = result(experiment_of(model, p, optimizer=optimizer, **split), comm)
    if rank == 0 and load_of is not None:
        check_load(model, found[0].experts, one_rank(model, optimizer)[0].experts, load_of)
    off = apart(found, one_rank(model, optimizer), (model, split)) if rank == 0 else 0.0
    return patient.bcast(comm, off)


def check_load(model, found, expected, split):
    """As many positions choose each expert, and are dropped, as on one rank; only ranks that share are uneven."""
    assert len(found) == MODEL["layers"]
    loads = {each.layer: each for each in found}
    for each in expected:
        load = loads[each.layer]
        assert (load.positions, load.dropped) == (each.positions, each.dropped), (split, load, each)
        # An epoch of the 46 samples to train with: batches of 24 and 22.
        assert sum(load.positions) == 46 * 5 * MODELS[model].get("chosen", 2)
        assert (load.dropped > 0) == ("capacity" in MODELS[model])
        tensor = split.get("tensor", 1)
        ranks = split.get("experts", 1) * (tensor if len(load.positions) >= tensor else 1)
        assert 1 < load.imbalance < ranks if ranks > 1 else load.imbalance == 1, (split, load)


def apart(found, expected, where):
    (run, arrays), (other, others) = found, expected
    off = max(abs(run.loss / other.loss - 1), abs(run.test_loss / other.test_loss - 1))
    assert arrays.keys() == others.keys(), (where, arrays.keys())
    for name, array in arrays.items():
        assert array.shape == others[name].shape, (where, name)
        most = np.abs(others[name]).max(initial=1e-300)
        off = max(off, np.abs(array - others[name]).max(initial=0) / most)
    return off


def ways():
    """Layouts of p ranks: (experts, tensor, pipeline), with options."""
    for shared in (1, 2, 4, 8):
        for tensor in (1, 2, 4):
            for pipeline in (1, 2):
                replicas, rest = divmod(p, tensor * pipeline)
                if rest or not replicas or replicas % shared or 8 % (shared * tensor):
                    continue
                if p == 8 and (shared * tensor * pipeline < 8 or shared == 4):
                    continue  # fewer ranks have as many kinds
                yield {"experts": shared, "tensor": tensor, "pipeline": pipeline}


def every_layout():
    optimizers = cycle(("adam", "momentum", "lamb", "sgd", "lars"))
    options = cycle(
        (
            {},
            {"recompute": "full", "microbatches": 3},
            {"overlap": False},
            {"offload": "activations", "microbatches": 2},
            {"microbatches": 5, "bucket": 1e9},
            {"offload": "all"},
            {"recompute": "selective", "bucket": 1},
        )
    )
    sequences, zeros = cycle((False, True)), cycle(ZEROS)
    for number, split in enumerate([each for _ in range(2 if p < 4 else 1) for each in ways()]):
        # On many ranks each layout meets one model less, or one alone; the next layout another.
        models = (
            SHARDED if p < 4 else [SHARDED[(number + n) % 3] for n in range(2 if p == 4 else 1)]
        )
        for model in models:
            more = next(options)
            if split["pipeline"] > 1 and more.get("offload") == "all":
                more = {"microbatches": 4}  # the table of words is tied
            if more.get("offload") != "all":
                more = more | next(zeros)
            if split["tensor"] > 1:
                more = more | {"sequence_parallel": next(sequences)}
            if "microbatches" in more:
                replicas = p // (split["tensor"] * split["pipeline"])
                more = more | {"microbatches": min(more["microbatches"], BATCH // replicas)}
            equals_one_rank(model, next(optimizers), **split, **more)


def gated_experts():
    """A decoder with gated experts and normalized heads, experts and heads on several ranks."""
    equals_one_rank("gated", "adam", experts=2)
    equals_one_rank("gated", "momentum", tensor=2, sequence_parallel=False)
    equals_one_rank("gated", "lamb", tensor=2, sequence_parallel=True, recompute="full")
    equals_one_rank("gated", "lamb", experts=2, zero=3)
    equals_one_rank("biased", "adam", experts=2)
    equals_one_rank("biased", "momentum", tensor=2, sequence_parallel=False)
    equals_one_rank("biased", "lamb", tensor=2, sequence_parallel=True, recompute="full")


def uneven_shares():
    """Ranks of a tensor group serve 2, 2, 1 and 1 of six experts; three are too few for them, so each has all."""
    for model, sequence in product(("six", "three"), (False, True)):
        equals_one_rank(model, "lamb", tensor=4, sequence_parallel=sequence)


def program_is_carried_out():
    """In a step a rank does what the program says, in its order."""
    for number, split in enumerate(ways()):
        overlaps = (True, False) if p == 2 else (number % 2 == 0,)
        for zero, overlap in product((0, 1 + number % 3), overlaps):
            way = {"optimizer": "momentum", "zero": zero, "overlap": overlap, **split}
            run = experiment_of("limited", p, 0.5, **way)
            expected, found = planned(run), recorded(run)
            assert found == expected, (split, found, expected)
            assert any("alike" in what for what in found) == (split["experts"] > 1)


def zero_bubbles():
    """Weight gradients of experts, too, are computed in a pass of their own, without any message."""
    ways = {
        2: [{}, {"recompute": "full"}],
        4: [{"experts": 2, "zero": zero} for zero in range(4)]
        + [{"tensor": 2, "sequence_parallel": True}, {"experts": 2, "recompute": "selective"}],
    }
    optimizers = cycle(("adam", "momentum", "lamb"))
    for number, way in enumerate(ways[p]):
        split = {"pipeline": 2, "schedule": "zb-h1", "microbatches": 3 + number % 3, **way}
        for model in ("gated", SHARDED[number % 3]):
            equals_one_rank(model, next(optimizers), **split)
    run = experiment_of("limited", p, 0.5, optimizer="momentum", **split)
    expected, found = planned(run), recorded(run)
    assert found == expected, (found, expected)
    back, late = (
        {int(what.split()[1]) for what in found if what.startswith(phase)}
        for phase in ("backward ", "weight_grad ")
    )
    kinds = [layer.kind for layer in parts(run, rank)[0].model.layers]
    assert kinds.index("experts") in late - back, (late, back)


def resumes_under_another_layout():
    """Each layout restores the snapshot of the one before, within an epoch."""
    folder = Path(comm.bcast(tempfile.mkdtemp() if rank == 0 else None))
    splits = [each for each in ways() if each["experts"] > 1]
    for until, split in enumerate(splits, 1):
        way = {"optimizer": "adam", "zero": until % 4, **split}
        run = experiment_of("limited", p, until - 0.5, **way)
        found = result(run, comm, folder)
    if rank == 0:
        whole = experiment_of("limited", 1, len(splits) - 0.5, optimizer="adam")
        off = apart(found, result(whole, MPI.COMM_SELF), "resumed")
        assert off <= 1e-10, off


def divergence_is_reported():
    """All ranks report the same rank, step and layer."""
    text = ""
    try:
        with np.errstate(all="ignore"):
            wild = {"rate": 1e30, "optimizer": "sgd", "precision": "fp32"}
            train(experiment_of("free", p, experts=p, **wild), comm)
    except Diverged as error:
        text = str(error)
    assert len({*comm.allgather(text)}) == 1 and "step 1, first in " in text, text


def mistakes_are_found():
    """The comparison can fail: classic mistakes break it."""
    post, combine, begin = Stage.post, AllToAll.combine, AllToAll.begin
    weight_gradient = Experts.weight_gradient

    def unsummed(self, what):
        if getattr(what, "group", "") != "alike":
            post(self, what)

    def astray(self, saved, rows):
        return combine(self, saved, rows)[::-1]

    def as_they_come(self, saved, counts):
        found = begin(self, saved, counts)
        saved.values["arrival"].sort()
        return found

    def of_others(self, gradients, saved, dy):
        saved.values["rows"] = saved.values["rows"][::-1]
        weight_gradient(self, gradients, saved, dy)

    mistakes = [(AllToAll, "combine", astray), (AllToAll, "begin", as_they_come)]
    mistakes += [(Stage, "post", unsummed)] if p > 2 else []
    for owner, name, wrong in mistakes:
        right = getattr(owner, name)
        setattr(owner, name, wrong)
        offs = [difference("free", "momentum", experts=2, zero=zero) for zero in (0, 1)]
        setattr(owner, name, right)
        assert min(offs) > 1e-6, (name, offs)
    Experts.weight_gradient, bubble = of_others, {"pipeline": 2, "schedule": "zb-h1"}
    off = difference("free", "momentum", microbatches=3, **bubble)
    Experts.weight_gradient = weight_gradient
    assert off > 1e-6, off


if __name__ == "__main__":
    every_layout()
    if p in (2, 4):
        program_is_carried_out()
        zero_bubbles()
        resumes_under_another_layout()
        divergence_is_reported()
        mistakes_are_found()
    if p == 2:
        gated_experts()
    if p == 4:
        uneven_shares()
    if rank == 0:
        print(f"largest relative difference from one rank: {largest[0]:.1e}")
        print(f"all right on {p} ranks")
