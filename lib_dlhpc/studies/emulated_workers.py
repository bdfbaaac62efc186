"""Several workers of one run in one process, one after the other: rules whose accuracy depends on how many there are.

Each rule is that of the trainer, on the trainer's parts: the same networks, optimizers, compressors and formats. What
differs is the order in which numbers are added (here that of the workers, in a ring that of the hops), and, with
asynchronous updates, the order of arrival: here workers take turns, so that of W workers' gradients, W - 1 updates lie
between its weights and its update.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lib_dlhpc.costs.outer_optimizer import has_outer
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.compress import Compressed, plain
from lib_dlhpc.training.data import Data, global_batches, precision_of, share
from lib_dlhpc.training.learning_rate import rate_at
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.outer_optimizer import Outer
from lib_dlhpc.training.rank import Diverged
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.wire_formats import FORMATS, Format


def trained(experiment: Experiment, workers: int, data: Data) -> Network:
    """Return the network that `workers` train, by the update, wire and sparsity of a scalar experiment.

    A mini-batch is of strategy.batch samples; with asynchronous updates each is one worker's, else all workers'. Raises
    Diverged.
    """
    if experiment.strategy.update == "asynchronous":
        return _stale(experiment, workers, data)
    if experiment.strategy.update == "local":
        return _local(experiment, workers, data)
    return _synchronous(experiment, workers, data)


def _synchronous(experiment: Experiment, workers: int, data: Data) -> Network:
    """Train on sums of compressed gradients, or of gradients in the format of the wire."""
    training, network = experiment.training, _fresh(experiment)
    form = FORMATS.get(experiment.strategy.wire)
    rule = Optimizer(experiment.strategy.optimizer, training)
    senders = _compressors(experiment, network, workers) if training.sparsity else []
    if senders:
        rule = plain(training)
    for at, chosen, rate in _batches(experiment, data):
        found = []
        for worker in range(workers):
            _gradient(network, data, chosen[share(len(chosen), worker, workers)], len(chosen))
            if senders:
                senders[worker].begin(at)
                senders[worker].finish()
            found.append(network.gradients.copy())
        network.gradients[...] = _sum(found, form, training.loss_scale)
        rule.update(network, rate)
    return network


def _compressors(experiment: Experiment, network: Network, workers: int) -> list[Compressed]:
    """Return what each worker sends of its gradients: the exchange of one rank, which adds nobody else's."""
    from mpi4py import MPI

    training = experiment.training
    momentum = training.momentum if experiment.strategy.optimizer == "momentum" else 0.0
    own = replace(training, weight_decay=training.weight_decay / workers)
    recorder = Recorder()
    recorder.on = False
    return [Compressed(own, momentum, network, MPI.COMM_SELF, recorder) for _ in range(workers)]


def _sum(gradients: Sequence[Array], form: Format | None, loss_scale: float) -> Array:
    """Return the sum of the workers' gradients, each hop rounded to the format, if there is one."""
    if form is None:
        return np.sum(gradients, axis=0)
    scale = loss_scale if form is FORMATS["fp16"] else 1.0
    if form.most:
        scale = form.scale(max(float(np.abs(each).max()) for each in gradients), len(gradients))
    kind = gradients[0].dtype.type
    sums, *others = (form.encode(each * kind(scale)) for each in gradients)
    for each in others:
        form.add(sums, each, out=sums)
    total: Array = form.decode(sums).astype(kind) / kind(scale)
    return total


def _local(experiment: Experiment, workers: int, data: Data) -> Network:
    """Train networks of their own that are averaged every `local_steps` steps, and at the end."""
    every, training = int(experiment.strategy.local_steps), experiment.training
    networks = [_fresh(experiment) for _ in range(workers)]
    rules = [Optimizer(experiment.strategy.optimizer, training) for _ in networks]
    outer = Outer(training, networks[0], rules[0]) if has_outer(experiment) else None
    for step, (_, chosen, rate) in enumerate(_batches(experiment, data), 1):
        for worker, (network, rule) in enumerate(zip(networks, rules, strict=True)):
            own = chosen[share(len(chosen), worker, workers)]
            _gradient(network, data, own, len(chosen) / workers)
            rule.update(network, rate)
        if step % every == 0:
            _average(networks, outer)
    _average(networks, None)
    return networks[0]


def _average(networks: Sequence[Network], outer: Outer | None) -> None:
    networks[0].weights[...] = np.mean([network.weights for network in networks], axis=0)
    if outer is not None:
        outer.update()
    for network in networks[1:]:
        network.weights[...] = networks[0].weights


def _stale(experiment: Experiment, workers: int, data: Data) -> Network:
    """Train on gradients of weights that are workers - 1 updates old; all pull the newest between epochs."""
    network = _fresh(experiment)
    rule = Optimizer(experiment.strategy.optimizer, experiment.training)
    pulled, epoch = deque[Array](maxlen=workers), -1
    for at, chosen, rate in _batches(experiment, data):
        if int(at) != epoch:
            epoch = int(at)
            pulled.extend(network.weights.copy() for _ in range(workers))
        newest = network.weights.copy()
        network.weights[...] = pulled.popleft()
        _gradient(network, data, chosen, len(chosen))
        network.weights[...] = newest
        rule.update(network, rate)
        pulled.append(network.weights.copy())
    return network


def _fresh(experiment: Experiment) -> Network:
    return Network(experiment.model, precision_of(experiment), experiment.run.seed)


def _batches(experiment: Experiment, data: Data) -> Iterator[tuple[float, Array, float]]:
    """Yield the epoch as a fraction, the samples and the rate of each mini-batch."""
    epochs = int(experiment.run.epochs)
    for epoch in range(epochs):
        for at, chosen in global_batches(experiment, len(data.x), epoch):
            yield at, chosen, rate_at(experiment.training, at, epochs, len(chosen))


def _gradient(network: Any, data: Data, chosen: Array, of: float) -> None:
    """Compute the gradients of some samples: their sum over `of`. Raises Diverged."""
    loss, dy = softmax_cross_entropy(network.forward(data.x[chosen]), data.y[chosen], of)
    if not np.isfinite(loss):
        raise Diverged(f"{len(chosen)} samples")
    network.backward(dy)
