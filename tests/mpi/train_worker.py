"""On every rank: train with every option, and compare with the same run on one rank. Started by test_train.py."""

import sys
import tempfile
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import patient
from mpi4py import MPI

from lib_dlhpc.program import Compute
from lib_dlhpc.schedules import execute
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import ALLREDUCES, OPTIMIZERS
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training import loss as losses
from lib_dlhpc.training.data import global_batches, load, share
from lib_dlhpc.training.gradient_allreduce import Exchange
from lib_dlhpc.training.learning_rate import rate_at
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.trainer import train

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank

# 47 samples to train with: batches of 20, 20 and 7, so parts are uneven, and of 8 ranks one has none.
IMAGES = Experiment(
    model={
        "family": "sequential",
        "input": [1, 6, 6],
        "layers": [
            {"kind": "conv", "channels": 3, "kernel": 3, "padding": 1, "bias": False},
            {"kind": "batch_norm"},
            {"kind": "relu"},
            {"kind": "max_pool", "kernel": 2},
            {"kind": "flatten"},
            {"kind": "dense", "features": 9},
            {"kind": "relu"},
            {"kind": "dropout", "rate": 0.3},
            {"kind": "dense", "features": 5},
        ],
    },
    dataset={"name": "waves", "samples": 59, "bytes": 59},
    machine="laptop",
    strategy={"devices_per_node": 2, "batch": 10, "precision": "fp64", "bucket": 400},
    run={"epochs": 2},
    training={"rate": 0.05, "momentum": 0.9, "weight_decay": 0.01, "normalization": "global"},
)
WORDS = {
    "model.family": "gpt",
    "model.layers": 1,
    "model.hidden": 4,
    "model.heads": 2,
    "model.sequence": 3,
    "model.vocabulary": 6,
    "model.dropout": 0.2,
    "dataset.name": "words",
}
SEQUENCES = {
    "model.family": "lstm_language_model",
    "model.layers": 2,
    "model.hidden": 3,
    "model.sequence": 4,
    "model.vocabulary": 6,
    "model.dropout": 0.3,
    "dataset.name": "words",
}
FIELDS = {
    "model.family": "sequential",
    "model.input": [1, 4, 4, 4],
    "dataset.name": "densities",
    "model.layers": [
        {"kind": "conv", "channels": 2, "kernel": 3, "padding": 1},
        {"kind": "leaky_relu"},
        {"kind": "avg_pool", "kernel": 2},
        {"kind": "flatten"},
        {"kind": "dense", "features": 2},
    ],
}
ALL, EACH, SOME = 25e6, 1, 400  # bucket sizes: one bucket, a bucket a layer, something between
known, largest = {}, {}


def experiment_of(changes=()):
    """IMAGES with changes; another model replaces the whole model."""
    changes = dict(changes)
    experiment = IMAGES
    if "model.family" in changes:
        from dataclasses import replace

        from lib_dlhpc.spec.dataset import read_dataset
        from lib_dlhpc.spec.experiment import read_model

        model = {k.removeprefix("model."): changes.pop(k) for k in list(changes) if "model." in k}
        data = {"name": changes.pop("dataset.name"), "samples": 59}
        experiment = replace(experiment, model=read_model(model), dataset=read_dataset(data))
    return experiment.set(changes)


def one_rank(changes):
    """Weights and loss of the run on one rank, computed and broadcast by rank 0."""
    key = repr(sorted(changes.items()))
    if key not in known:
        run = train(experiment_of(changes), MPI.COMM_SELF) if rank == 0 else None
        found = (run.network.weights, run.loss, run.test_loss) if run else None
        known[key] = patient.bcast(comm, found)
    return known[key]


def error(run, expected):
    """The largest relative difference of weights and losses on any rank."""
    weights, *wanted = expected
    worst = np.max(np.abs(run.network.weights - weights)) / np.max(np.abs(weights))
    for got, want in zip((run.loss, run.test_loss), wanted, strict=True):
        worst = max(worst, abs(got - want) / abs(want)) if rank == 0 else worst
    return comm.allreduce(float(worst), MPI.MAX)


def equals_one_rank(changes, exchanged=(), within=1e-10):
    run = train(experiment_of(changes | dict(exchanged)), comm)
    off = error(run, one_rank(changes))
    assert off <= within, (changes, exchanged, off)
    largest[within] = max(off, largest.get(within, 0.0))


def every_exchange():
    epoch = {"run.epochs": 1.0}
    exchanges = [{"strategy.allreduce": name} for name in ALLREDUCES]
    exchanges.append({"strategy.allreduce": "nvls_sharp", "machine.in_network": "both"})
    cuts = ((True, EACH), (False, SOME), (True, ALL), (False, EACH))
    for number, exchange in enumerate([*exchanges, {"training.collective": "mpi"}]):
        # An exchange knows nothing of the cut: it meets another one on each number of ranks, and two on three.
        for more in (0, 1) if p == 3 else (0,):
            overlap, bucket = cuts[(number + p + more) % 4]
            cut = {"strategy.overlap": overlap, "strategy.bucket": bucket}
            equals_one_rank(epoch, exchange | cut)
        if p > 3:  # many ranks on few cores are slow
            continue
        single = epoch | {"strategy.precision": "fp32", "strategy.optimizer": "sgd"}
        equals_one_rank(single, exchange, within=1e-5)


def every_rule_and_network():
    for optimizer in OPTIMIZERS:
        trust = {"training.rate": 5.0} if optimizer == "lars" else {"training.rate": 0.01}
        equals_one_rank({"strategy.optimizer": optimizer, **trust})
    for network in (WORDS, SEQUENCES, FIELDS):
        equals_one_rank(network)
        equals_one_rank(network, {"strategy.bucket": EACH, "strategy.allreduce": "rabenseifner"})
    equals_one_rank({"training.shift": 2, "training.warm_up": 1.0, "training.base_batch": 10})
    equals_one_rank({"strategy.batch": 1, "run.epochs": 0.2})  # fewer samples than ranks
    equals_one_rank({"training.decay": "growth", "training.steps_at": 1.0, "strategy.batch": 2})


def local_updates():
    for optimizer in ("sgd", "momentum"):
        linear = {"strategy.optimizer": optimizer}
        equals_one_rank(linear, {"strategy.update": "local"})
    changes = {"strategy.update": "local", "strategy.local_steps": 2, "run.epochs": 2}
    changes |= {"model.layers": [{"kind": "flatten"}, {"kind": "dense", "features": 5}]}
    run = train(experiment_of(changes), comm)
    expected = patient.alone(comm, lambda: emulated(experiment_of(changes)))
    off = np.max(np.abs(run.network.weights - expected)) / np.max(np.abs(expected))
    assert off <= 1e-10, off


def emulated(experiment):
    """Local updates emulated in one process: p networks, each updated by its own samples, then averaged."""
    data, training = load(experiment, np.float64), experiment.training
    networks = [Network(experiment.model, np.float64, 0) for _ in range(p)]
    rules = [Optimizer("momentum", training) for _ in range(p)]
    step = 0
    for epoch in range(2):
        for at, indices in global_batches(experiment, len(data.x), epoch):
            for r in range(p):
                own = indices[share(len(indices), r, p)]
                outputs = networks[r].forward(data.x[own])
                _, dy = losses.softmax_cross_entropy(outputs, data.y[own], len(indices))
                dy *= p
                networks[r].backward(dy)
                rules[r].update(networks[r], rate_at(training, at, 2.0, len(indices)))
            step += 1
            if step % 2 == 0:
                mean = np.mean([network.weights for network in networks], axis=0)
                for network in networks:
                    network.weights[...] = mean
    return np.mean([network.weights for network in networks], axis=0)


def half_precision():
    """16 bits on the wire: close to 32 bits; without a loss scale no weight is updated."""
    plain = {"strategy.precision": "fp32", "strategy.optimizer": "sgd"}
    half = {"strategy.precision": "fp16", "strategy.optimizer": "sgd"}
    for exchange in ({"strategy.allreduce": "ring"}, {"training.collective": "mpi"}):
        run = train(experiment_of(half | exchange), comm)
        off = error(run, one_rank(plain))
        assert off <= 1e-2, off
    if p == 1:
        return  # nothing is sent
    # Gradients of 1e-9 and less are zero in 16 bits, and not after 2^20 times.
    small = half | FIELDS | {"training.weight_decay": 0.0, "training.rate": 1.0, "run.epochs": 0.5}
    small["model.layers"] = [{"kind": "flatten"}, {"kind": "dense", "features": 2}]
    with mutated(losses, "mean_squared_error", tiny(losses.mean_squared_error)):
        moved = {}
        for scale in (1.0, 2.0**20):
            run = train(experiment_of(small | {"training.loss_scale": scale}), comm)
            start = Network(run.network.model, np.float32, 0).weights
            moved[scale] = float(np.abs(run.network.weights - start).max())
    assert moved[1.0] == 0 < moved[2.0**20], moved


def tiny(function):
    def scaled(*arguments):
        loss, dy = function(*arguments)
        dy *= dy.dtype.type(1e-9)
        return loss, dy

    return scaled


def resumes_bitwise():
    """A resumed run equals an uninterrupted one, bitwise."""
    ways = [
        {"strategy.optimizer": "adam"},
        {"training.normalization": "local", "strategy.overlap": False},
        {"training.collective": "mpi", "training.shift": 1, "strategy.optimizer": "lamb"},
        {"strategy.update": "local", "strategy.local_steps": 2, "training.normalization": "local"},
        {"strategy.precision": "fp16", "training.normalization": "local"},
    ]
    for way in ways:
        way = way | {"run.epochs": 3.0}
        straight = train(experiment_of(way), comm)
        folder = Path(comm.bcast(tempfile.mkdtemp() if rank == 0 else None))
        for until in (0.4, 1.4, 2.0, 3.0, 3.0):  # the first two end within an epoch
            run = train(experiment_of(way | {"run.epochs": until}), comm, folder)
        for name in ("weights", "statistics"):
            ours, theirs = getattr(run.network, name), getattr(straight.network, name)
            assert ours.tobytes() == theirs.tobytes(), (way, name)
        assert (run.test_loss, run.accuracy) == (straight.test_loss, straight.accuracy)
        assert run.samples == 0


def mistakes_are_found():
    """The comparison above can fail: three classic mistakes break it."""
    cut = {"strategy.bucket": ALL, "strategy.allreduce": "ring"}

    def aliased(step, comm, buffer, received, requests):
        straight = step._replace(receives=[(*each[:4], True) for each in step.receives])
        yield from set_up(straight, comm, buffer, received, requests)
        for _, start, stop, reduce, _ in step.receives:
            yield buffer[start:stop], buffer[start:stop], reduce

    def averaged(self):
        finish(self)
        self.gradients /= p

    def early(self, slot, dys, done):
        for what in self.order.last:
            if not isinstance(what, Compute):
                self.post(what)
        kept, self.post = self.post, lambda what: None
        given, self.post = back(self, slot, dys, done), kept
        return given

    set_up, finish, back = execute_file._set_up, Exchange.finish, Network.back
    for place, name, mistake in (
        (execute_file, "_set_up", aliased),
        (Exchange, "finish", averaged),
        (Network, "back", early),
    ):
        with mutated(place, name, mistake):
            run = train(experiment_of(cut | {"run.epochs": 1.0}), comm)
        off = error(run, one_rank({"run.epochs": 1.0}))
        assert off > 1e-6, (name, off)


class mutated:
    """Within the block, `place.name` is something else."""

    def __init__(self, place, name, other):
        self.place, self.name, self.other = place, name, other

    def __enter__(self):
        self.kept = getattr(self.place, self.name)
        setattr(self.place, self.name, self.other)

    def __exit__(self, *_):
        setattr(self.place, self.name, self.kept)


def recorded_events():
    """The timeline is complete, and a bucket is in flight before backward ends."""
    run = train(experiment_of({"strategy.bucket": EACH, "training.normalization": "local"}), comm)
    assert comm.allreduce(run.timeline is not None) == 1
    if rank:
        return
    table, measured = run.timeline, breakdown(run.timeline)
    for seconds in np.sum(list(measured.per_rank.values()), axis=0):
        assert abs(seconds - measured.step_time) <= 1e-9 * measured.step_time
    assert measured.steps == 6 and table.ranks == p and table.source == "measured"
    events = list(table)
    per_step = {"forward": 1, "update": 1, "input": 1}
    for kind, count in per_step.items():
        found = sum(event.kind == kind for event in events)
        assert found == 6 * p * count or kind == "input", (kind, found)
    buckets = {event.name for event in events if event.kind == "communication"}
    segments = {event.name for event in events if event.kind == "backward"}
    if p == 1:
        assert not buckets and segments == {"backward"}
        return
    assert buckets == {"bucket 1", "bucket 2", "bucket 3", "bucket 4"}
    assert segments == {f"backward {k}" for k in range(1, 5)} | {"backward to the input"}
    for r in range(p):
        own = [event for event in events if event.rank == r]
        early = 0
        for event in islice((e for e in own if e.name == "bucket 1"), 6):
            backward = [e for e in own if e.kind == "backward" and e.start >= event.start]
            early += bool(backward)
        assert early == 6, (r, early)
        work = sorted((e.start, e.stop) for e in own if e.stream == "compute")
        assert all(b[0] >= a[1] - 1e-9 for a, b in pairwise(work)), r
    # A rank's message cannot be over before the last rank has joined: the clocks are one.
    if p > 1:
        for name in buckets:
            rows = table.select(table.where("communication"))
            mine = [e for e in rows if e.name == name]
            by_rank = [[e for e in mine if e.rank == r] for r in range(p)]
            for step in zip(*by_rank, strict=True):
                assert max(e.start for e in step) <= min(e.stop for e in step) + 1e-3, (name, step)


execute_file = sys.modules[execute.__module__]
if __name__ == "__main__":
    chosen = sys.argv[1:]
    checks = [every_exchange, local_updates]
    # More ranks on few cores are slow, and have nothing new here.
    checks += [every_rule_and_network, half_precision] if p <= 3 else []
    checks += [recorded_events] if p <= 4 else []
    checks += [resumes_bitwise] if p in (1, 3) else []
    checks += [mistakes_are_found] if p > 1 else []
    for check in checks:
        if not chosen or check.__name__ in chosen:
            begin = MPI.Wtime()
            check()
            if rank == 0:
                print(f"{check.__name__}: {MPI.Wtime() - begin:.1f} s")
    sizes = comm.gather(comm.size)
    if rank == 0:
        for within, off in largest.items():
            print(f"largest relative difference from one rank: {off:.1e}, allowed {within:.0e}")
        print(f"all right on {len(sizes)} ranks")
