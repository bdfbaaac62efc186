"""Training uses the memory that the ledger predicts, within 10%."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from lib_dlhpc.layers.base import arena
from lib_dlhpc.prediction.memory.device_ledger import ledger
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.spec.networks import build
from lib_dlhpc.spec.training import Training
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer

EXPERIMENT = """
[model]
name = "lenet5"
[dataset]
name = "digits"
[machine]
name = "laptop"
[strategy]
devices_per_node = 1
"""
VOLUME = [
    layer
    for channels in (8, 16)
    for layer in (
        {"kind": "conv", "channels": channels, "kernel": 3, "padding": 1},
        {"kind": "relu"},
        {"kind": "max_pool", "kernel": 2},
    )
]
HEAD = [{"kind": "flatten"}, {"kind": "dense", "features": 10}]
# name: (model, batches); the first takes about 25 to 70 MB.
MODELS = {
    "mlp": (build("mlp", {"widths": [256, 1024, 1024, 1024, 10]}), (1024, 512)),
    "lenet": (build("lenet5", {}), (640, 384)),
    "residual": (build("resnet_cifar", {"depth": 11}), (32, 24)),
    "volume": (
        build("sequential", {"input": [1, 16, 16, 16], "layers": [*VOLUME, *HEAD]}),
        (96, 64),
    ),
    "gpt": (
        build("gpt", {"layers": 2, "hidden": 128, "heads": 4, "sequence": 64, "vocabulary": 256}),
        (24, 12),
    ),
}


def predicted(model, batch):
    """Return the ledger's terms for one rank."""
    experiment = loads(EXPERIMENT + f"batch = {batch}\n")
    dataset = replace(experiment.dataset, sample_shape=model.input_shape)
    terms = ledger(replace(experiment, model=model, dataset=dataset))
    del terms["driver and workspace"]
    return sum(map(float, terms.values()))


def measured(model, batch, steps=2):
    """Return the peak of steps, the last with all state; samples are fetched and released step by step."""
    rng = np.random.default_rng(0)
    tracemalloc.start()
    network, optimizer = Network(model, np.float32), Optimizer("momentum", Training())
    labels = np.zeros((batch, *model.output_shape[:-1]), int)
    for _ in range(steps):
        shape = (batch, *model.input_shape)
        text = model.layers[0].kind == "embedding"
        outputs = network.forward(rng.integers(0, 256, shape) if text else rng.random(shape, "f4"))
        _, dy = softmax_cross_entropy(outputs, labels, batch)
        del outputs
        network.backward(dy)
        del dy
        optimizer.update(network, 0.01)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("smaller", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_the_peak_of_training_is_the_ledgers(name, smaller):
    model, batches = MODELS[name]
    expected = predicted(model, batches[smaller])
    assert 12e6 < expected < 70e6
    assert measured(model, batches[smaller]) == pytest.approx(expected, rel=0.1)


def test_evaluation_saves_nothing_for_a_backward_pass():
    model, (batch, _) = MODELS["residual"]
    network = Network(model, np.float32)
    x = np.zeros((batch, *model.input_shape), np.float32)
    tracemalloc.start()
    network.forward(x, training=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < predicted(model, batch) / 2


def test_the_test_finds_memory_that_is_never_reused(monkeypatch):
    monkeypatch.setattr(arena, "getrefcount", lambda block: 3)
    model, (batch, _) = MODELS["residual"]
    assert measured(model, batch) > 1.1 * predicted(model, batch)
