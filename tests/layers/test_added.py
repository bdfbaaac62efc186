"""A layer added in one file is known everywhere: priced, stored, split, simulated, trained, refused by name."""

import numpy as np
import pytest
import softsign
from layer_references import assert_layer, model_of

from lib_dlhpc import Experiment, predict, simulate
from lib_dlhpc.costs.roofline import traffic
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers import KINDS
from lib_dlhpc.layout.parts import parts
from lib_dlhpc.prediction.memory.device_ledger import ledger
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network

LAYERS = [
    {"kind": "conv", "channels": 8, "kernel": 3, "padding": 1},
    {"kind": "softsign"},
    {"kind": "conv", "channels": 8, "kernel": 3, "padding": 1},
    {"kind": "flatten"},
    {"kind": "dense", "features": 10},
]


KINDS.loaded.pop("softsign")  # importing its file adds it


@pytest.fixture(autouse=True)
def added(monkeypatch):
    monkeypatch.setitem(KINDS.loaded, "softsign", softsign.Softsign)


def experiment(layers=LAYERS, **strategy):
    return Experiment(
        model={"family": "sequential", "input": [3, 16, 16], "layers": layers},
        dataset={"samples": 1000, "bytes": 768e3, "sample_shape": [3, 16, 16]},
        machine={"name": "lassen", "jitter": 0},
        strategy={"devices_per_node": 2, "batch": 4, **strategy},
    )


def own(experiment, rank):
    """The layer as a rank has it."""
    (part,) = parts(experiment, rank)
    return next(layer for layer in part.model.layers if layer.kind == "softsign")


def test_its_file_is_that_of_contributing(repository):
    text = (repository / "tests/helpers/softsign.py").read_text()
    code = text.split('"""', 2)[2].strip()
    assert code in (repository / "CONTRIBUTING.md").read_text()


def test_it_is_gone_where_it_is_not_added(monkeypatch):
    """So nothing keeps a copy of the list."""
    monkeypatch.delitem(KINDS.loaded, "softsign")
    with pytest.raises(
        SpecError, match=r"'softsign': Did you mean 'softmax'\? Must be one of add, attention"
    ):
        model_of((3,), {"kind": "softsign"})


def test_it_is_offered_where_a_name_is_wrong():
    assert KINDS["softsign"] is softsign.Softsign
    with pytest.raises(
        SpecError, match="softmax, softsign, sparse_latent_attention, squared_relu_experts"
    ):
        model_of((3,), {"kind": "softsig"})


def test_its_gradients_are_differences():
    assert_layer(model_of((3, 4), {"kind": "softsign"}), 3)


def test_it_is_priced_and_stored():
    model = experiment().model
    moved, _ = traffic(model, 4)
    assert moved[1] == 2 * 8 * 16 * 16
    without = [layer for layer in LAYERS if layer["kind"] != "softsign"]
    plain = experiment(layers=without)
    assert predict(experiment()).compute > predict(plain).compute
    assert ledger(experiment())["activations"] > ledger(plain)["activations"]


@pytest.mark.parametrize("split", [{"tensor": 2, "split": "paired"}, {"spatial": 2}])
def test_it_is_split_as_its_file_says(split):
    halves = [own(experiment(**split), rank).output_shape for rank in range(2)]
    assert halves == [(4, 16, 16) if "tensor" in split else (8, 8, 16)] * 2


@pytest.mark.parametrize("split", [{}, {"pipeline": 2, "microbatches": 2}, {"recompute": "full"}])
def test_it_is_simulated(split):
    predicted, simulated = predict(experiment(**split)), breakdown(simulate(experiment(**split)))
    assert simulated.step_time == pytest.approx(predicted.step_time, rel=0.1)


def test_it_is_trained():
    network, rng = Network(experiment().model, np.float64, seed=1), np.random.default_rng(0)
    x, labels, losses = rng.normal(size=(16, 3, 16, 16)), rng.integers(10, size=16), []
    for _ in range(20):
        loss, dy = softmax_cross_entropy(network.forward(x), labels, 16)
        network.backward(dy)
        network.weights -= 0.05 * network.gradients
        losses.append(loss)
    assert losses[-1] < losses[0] / 2
