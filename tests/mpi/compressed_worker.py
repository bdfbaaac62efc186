"""On every rank: train with compressed exchange, and compare with the same rule in one process (test_compressed.py)."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import patient
from mpi4py import MPI

from lib_dlhpc import parallel
from lib_dlhpc.costs import groups
from lib_dlhpc.costs.compression import density
from lib_dlhpc.schedules.choice import plan
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.studies.emulated_workers import trained
from lib_dlhpc.training import loss as losses
from lib_dlhpc.training.data import global_batches, load, share
from lib_dlhpc.training.gradient_allreduce import range_of
from lib_dlhpc.training.learning_rate import rate_at
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.synchronous import on_ranks
from lib_dlhpc.training.trainer import train
from lib_dlhpc.training.wire_formats import FORMATS

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank

# 47 samples to train with, in batches of 20, 20 and 7: parts are uneven.
RUN = Experiment(
    model={
        "family": "sequential",
        "input": [1, 6, 6],
        "layers": [
            {"kind": "conv", "channels": 3, "kernel": 3, "padding": 1},
            {"kind": "relu"},
            {"kind": "flatten"},
            {"kind": "dense", "features": 9},
            {"kind": "relu"},
            {"kind": "dense", "features": 5},
        ],
    },
    dataset={"name": "waves", "samples": 59, "bytes": 59},
    machine="laptop",
    strategy={"devices_per_node": 2, "batch": 10, "bucket": 400},
    run={"epochs": 3},
    training={"rate": 0.05, "momentum": 0.9, "weight_decay": 0.01},
)
CUTS = (("ring", 1.0), ("recursive_doubling", 400.0), ("rabenseifner", 25e6), ("auto", 400.0))
CUTS = {3: CUTS[::2], 4: CUTS[1::2]}.get(p, CUTS)  # many ranks meet half of them


def experiment_of(**changes):
    return RUN.set({key.replace("__", "."): value for key, value in changes.items()})


class Emulated:
    """p ranks in one process: their networks, data and batches."""

    def __init__(self, experiment, kind):
        self.experiment, self.data = experiment, load(experiment, kind)
        self.networks = [Network(experiment.model, kind, experiment.run.seed) for _ in range(p)]
        self.all = [slice(each.start, each.stop) for each in self.networks[0].parameters]

    def steps(self):
        """Yield epoch, learning rate and samples of each step, whose gradients are in the networks."""
        run, training = self.experiment.run, self.experiment.training
        for epoch in range(int(run.epochs)):
            for at, indices in global_batches(self.experiment, len(self.data.x), epoch):
                yield at, rate_at(training, at, float(run.epochs), len(indices)), indices

    def backward(self, indices, scale=1.0):
        """Compute every rank's gradients of the mean loss, times `scale`."""
        for r, network in enumerate(self.networks):
            own = indices[share(len(indices), r, p)]
            outputs = network.forward(self.data.x[own])
            _, dy = losses.softmax_cross_entropy(outputs, self.data.y[own], len(indices))
            network.backward(dy * dy.dtype.type(scale))


def allreduced(schedule, buffers, add):
    """Carry out a schedule on the buffers of all ranks, round by round: arrivals are combined as they are listed."""
    for part in schedule.rounds():
        before = [each.copy() for each in buffers]
        columns = (part.source, part.target, part.offset, part.count, part.reduce)
        for source, target, first, count, reduce in zip(*map(list, columns), strict=True):
            at = slice(first, first + count)
            here, there = buffers[target][at], before[source][at]
            if reduce:
                add(here, there, out=here)
            else:
                here[:] = there


def on_the_wire(experiment, form, scale):
    """Weights after a run whose gradients are exchanged in a format, emulated."""
    every = Emulated(experiment, np.float32)
    rules = [Optimizer(experiment.strategy.optimizer, experiment.training) for _ in range(p)]
    on = on_ranks(experiment, p)
    net, name = groups.group_network(experiment, "data"), experiment.strategy.allreduce
    bounds = [
        range_of(every.networks[0].parameters, bucket.first, bucket.stop)
        for bucket in parallel.data_parallel.cut(
            on, parallel.data_parallel.Part(experiment.model, 0)
        )
    ]
    for _, rate, indices in every.steps():
        every.backward(indices, scale)
        for first, last in bounds:
            values = [each.gradients[first:last] for each in every.networks]
            factor = np.float32(1)
            if form.most:  # the largest power of two with which the sum of the largest fits
                largest = max(float(np.abs(each).max()) for each in values)
                while form.most < p * largest * factor:
                    factor /= np.float32(2)
                while form.most >= 2 * p * largest * factor:
                    factor *= np.float32(2)
            parts = [form.encode(factor * each) for each in values]
            size, many = float(parts[0].nbytes), last - first
            allreduced(plan("allreduce", size, net, p, many, name), parts, form.add)
            for network, part in zip(every.networks, parts, strict=True):
                network.gradients[first:last] = form.decode(part) / factor
        for network, rule in zip(every.networks, rules, strict=True):
            network.gradients /= np.float32(scale)
            rule.update(network, rate)
    return [network.weights for network in every.networks]


def formats():
    """Bitwise the emulation, in every format, with every kind of bucket; without casts, another result."""
    for name, most in (("fp16", 2e-3), ("bf16", 2e-2), ("fp8", 0.3)):
        for allreduce, bucket in CUTS:
            own = {"strategy__allreduce": allreduce, "strategy__bucket": bucket}
            run = experiment_of(strategy__wire=name, **own)
            scale = run.training.loss_scale if name == "fp16" else 1.0
            weights = train(run, comm).network.weights
            every = partial(on_the_wire, run, FORMATS[name], scale)
            expected = patient.alone(comm, every)
            assert weights.tobytes() == expected[rank].tobytes(), (name, own)
            assert all((each == weights).all() for each in comm.allgather(weights))
        plain = train(experiment_of(), comm).network.weights
        off = float(np.abs(plain - weights).max() / np.abs(plain).max())
        assert off < most, (name, off)
        assert p == 1 or off > 1e-6
        mpi = experiment_of(strategy__wire=name, training__collective="mpi")
        off = float(np.abs(train(mpi, comm).network.weights - weights).max())
        assert off <= most, (name, off)
    wide = experiment_of(strategy__wire="fp32", strategy__precision="fp64")
    assert train(wide, comm).network.weights.dtype == np.float64
    assert train(experiment_of(strategy__wire="fp32"), comm).network.weights.tobytes() == (
        plain.tobytes()
    )


def partitioned():
    """In a network that is split, gradients travel between replicas in the format, and nowhere else."""
    if p != 4:
        return
    for ways in ({"pipeline": 2, "microbatches": 2}, {"tensor": 2}, {"microbatches": 3}):
        split = {f"strategy__{key}": value for key, value in ways.items()}
        nodes = {"machine__nodes": 2, "strategy__nodes": 2}
        runs = [
            train(experiment_of(strategy__wire=wire, **nodes, **split), comm)
            for wire in ("same", "bf16", "fp16")
        ]
        plain, *others = (run.network.weights for run in runs)
        scale = np.abs(plain).max()
        for weights, most in zip(others, (2e-2, 2e-3), strict=True):
            assert 1e-6 < np.abs(weights - plain).max() / scale < most, ways


def bytes_of(table, names):
    """Bytes of the first row of rank 0 with each name."""
    rows = [each for each in table if each.rank == 0 and each.kind == "communication"]
    found = {}
    for each in rows:
        if each.name.startswith(names):
            found.setdefault(each.name, each.bytes)
    return found


def predicted_bytes_are_recorded():
    if p == 1:
        return
    ways = [{"strategy__wire": wire} for wire in ("same", "fp16", "bf16", "fp8")]
    ways += [{"training__sparsity": 0.8}, {"training__sparsity": 0.99}, {"training__low_rank": 1}]
    names = ("bucket", "scale", "largest", "small", "left", "right")
    for way in ways:
        run = experiment_of(run__epochs=1.0, **way)
        table = train(run, comm).timeline
        if rank == 0:
            for fidelity in ("rounds", "events"):
                wanted = bytes_of(simulate(on_ranks(run, p), fidelity), names)
                assert bytes_of(table, names) == wanted != {}, way
        patient.bcast(comm, None)


def deep_gradient_compression():
    """The paper's rule on p ranks in one process: velocity, accumulation, masking; sums in the order of ranks."""
    for momentum, rule in ((0.9, "momentum"), (0.0, "sgd")):
        run = experiment_of(
            training__sparsity=0.8,
            training__sparsity_warm_up=2.0,
            strategy__optimizer=rule,
            strategy__precision="fp64",
        )
        weights = train(run, comm).network.weights
        expected = patient.alone(comm, partial(compressed, run, momentum))
        off = np.abs(weights - expected).max() / np.abs(expected).max()
        assert off <= 1e-12, (rule, off)


def compressed(experiment, momentum):
    """Weights after a run with compressed gradients, emulated."""
    every, training = Emulated(experiment, np.float64), experiment.training
    own = every.networks
    size = own[0].weights.size
    u, v = np.zeros((p, size)), np.zeros((p, size))
    for at, rate, indices in every.steps():
        every.backward(indices)
        share_of = density(training, at)
        total = np.zeros(size)
        for r, network in enumerate(own):
            g = network.gradients.copy()
            for each in network.parameters:
                part = slice(each.start, each.stop)
                if each.decays:
                    g[part] += training.weight_decay / p * network.weights[part]
            u[r] = momentum * u[r] + g
            v[r] += u[r]
            for each in network.parameters:
                part = np.arange(each.start, each.stop)
                many = max(1, round(share_of * len(part))) if each.decays else len(part)
                sent = part[np.argsort(-np.abs(v[r, part]), kind="stable")[:many]]
                total[sent] += v[r, sent]
                v[r, sent] = 0
                if many < len(part):
                    u[r, sent] = 0
        for network in own:
            network.weights -= rate * total
    return own[0].weights


def low_rank():
    """PowerSGD on p ranks in one process: every factor and error as in the paper's algorithms."""
    for columns, rule in ((1, "momentum"), (2, "adam")):
        run = experiment_of(
            training__low_rank=columns, strategy__optimizer=rule, strategy__precision="fp64"
        )
        weights = train(run, comm).network.weights
        expected = patient.alone(comm, partial(factored, run, columns))
        off = np.abs(weights - expected).max() / np.abs(expected).max()
        assert off <= 1e-9, (rule, off)
    with tempfile.TemporaryDirectory() as own:
        folder = Path(comm.bcast(own))
        train(run.set({"run.epochs": 1.4}), comm, folder)
        assert train(run, comm, folder).network.weights.tobytes() == weights.tobytes()
        comm.Barrier()


def factored(experiment, columns):
    """Weights after a run with gradients in factors, emulated; columns are made orthonormal by Gram and Schmidt."""
    every = Emulated(experiment, np.float64)
    own = every.networks
    rules = [Optimizer(experiment.strategy.optimizer, experiment.training) for _ in range(p)]
    random, bases = np.random.default_rng(experiment.run.seed), {}
    errors = [np.zeros_like(network.weights) for network in own]
    for each in own[0].parameters:
        shape = (each.shape[0], int(np.prod(each.shape[1:])))
        if each.decays and columns * sum(shape) < np.prod(shape):
            bases[each.name] = random.normal(size=(shape[1], columns))
    assert bases and len(bases) < len(own[0].parameters)
    for _, rate, indices in every.steps():
        every.backward(indices)
        total = np.sum([network.gradients for network in own], axis=0)
        for each in own[0].parameters:
            if each.name not in bases:
                continue
            part, shape = slice(each.start, each.stop), (each.shape[0], -1)
            ms = [n.gradients[part] + e[part] for n, e in zip(own, errors, strict=True)]
            ms = [m.reshape(shape) for m in ms]
            left = sum(m @ bases[each.name] for m in ms)
            for at in range(columns):
                for before in range(at):
                    left[:, at] -= (left[:, before] @ left[:, at]) * left[:, before]
                left[:, at] /= np.linalg.norm(left[:, at])
            bases[each.name] = sum(m.T @ left for m in ms)
            sent = left @ bases[each.name].T
            total[part] = sent.ravel()
            for error, m in zip(errors, ms, strict=True):
                error[part] = (m - sent / p).ravel()
        for network, rule in zip(own, rules, strict=True):
            network.gradients[...] = total
            rule.update(network, rate)
    return own[0].weights


def outer_optimizer():
    """DiLoCo in one process; with an outer rate of 1 and no momentum, plain averages, to the last bit."""
    local = {"strategy__update": "local", "strategy__local_steps": 3, "run__epochs": 2.0}
    local |= {"strategy__precision": "fp64"}
    plain = train(experiment_of(**local), comm).network.weights
    same = experiment_of(**local, training__outer_rate=1.0, training__outer_momentum=0.0)
    assert train(same, comm).network.weights.tobytes() == plain.tobytes()
    for rate, momentum in ((1.0, 0.0), (0.7, 0.9), (0.5, 0.0), (1.0, 0.5)):
        run = experiment_of(**local, training__outer_rate=rate, training__outer_momentum=momentum)
        weights = train(run, comm).network.weights
        expected = patient.alone(comm, partial(diloco, run, 3, rate, momentum))
        off = np.abs(weights - expected).max() / np.abs(expected).max()
        assert off <= 1e-12, (rate, momentum, off)
        assert (rate, momentum) == (1.0, 0.0) or np.abs(weights - plain).max() > 1e-3
    with tempfile.TemporaryDirectory() as own:  # a run that ends between two averages goes on
        folder = Path(comm.bcast(own))
        run = experiment_of(**local, training__outer_rate=0.7, training__outer_momentum=0.9)
        whole = train(run, comm).network.weights
        train(run.set({"run.epochs": 1.4}), comm, folder)
        assert train(run, comm, folder).network.weights.tobytes() == whole.tobytes()
        comm.Barrier()


def diloco(experiment, every, rate, momentum):
    """Mean weights after a run of local steps with an outer optimizer, written as in the paper."""
    own = Emulated(experiment, np.float64)
    rules = [Optimizer("momentum", experiment.training) for _ in range(p)]
    outer = own.networks[0].weights.copy()
    velocity = np.zeros_like(outer)
    for step, (_, inner, indices) in enumerate(own.steps(), 1):
        own.backward(indices, scale=p)
        for network, rule in zip(own.networks, rules, strict=True):
            rule.update(network, inner)
        if step % every == 0:
            change = np.mean([outer - network.weights for network in own.networks], axis=0)
            velocity = momentum * velocity + change
            outer = outer - rate * (change + momentum * velocity)
            for network in own.networks:
                network.weights[...] = outer
    return np.mean([network.weights for network in own.networks], axis=0)


def emulated_workers():
    """The rules with which the stored costs in accuracy were measured are those of ranks."""
    local = {"strategy__update": "local", "strategy__local_steps": 2}
    ways = [{"training__sparsity": 0.8, "training__sparsity_warm_up": 2.0}, local]
    ways += [{**local, "training__outer_rate": 0.7, "training__outer_momentum": 0.9}]
    if p == 2:  # more ranks add in another order, and each sum is rounded
        ways += [{"strategy__wire": wire} for wire in ("fp16", "bf16", "fp8")]
    for way in ways:
        run = experiment_of(**way, strategy__precision="fp64", strategy__bucket=25e6)
        weights = train(run, comm).network.weights
        data = load(run, np.float64)
        expected = patient.alone(comm, partial(trained_here, run, data))
        off = np.abs(weights - expected).max() / np.abs(expected).max()
        assert off <= 1e-10, (way, off)


def trained_here(run, data):
    return trained(run, p, data).weights


def main():
    if p > 1:
        formats()
    partitioned()
    if p < 4:  # these rules gather or sum what ranks send, however many there are
        deep_gradient_compression()
        low_rank()
        outer_optimizer()
        emulated_workers()
    predicted_bytes_are_recorded()
    if rank == 0:
        print(f"{p} ranks: all right")


main()
