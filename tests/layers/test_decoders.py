"""Whole decoders equal PyTorch's: outputs, loss and every gradient; see tests/data/decoders/make.py."""

import json
from pathlib import Path

import numpy as np
import pytest

from lib_dlhpc.layers.attention import Attention
from lib_dlhpc.layers.rms_norm import RmsNorm
from lib_dlhpc.spec.networks import build
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network

FOLDER = Path(__file__).parents[1] / "data" / "decoders"
CASES = json.loads((FOLDER / "decoders.json").read_text())
TOLERANCE = {np.float64: 1e-12, np.float32: 5e-6}  # of the largest element of an array


def tensors(network, flat):
    """The tensors of a flat array by the names of their layers."""
    views = zip(network.model.layers, network.table.views(flat), strict=True)
    return {f"{layer.name}.{key}": each for layer, sees in views for key, each in sees.items()}


def differences(case, dtype):
    """The largest difference of each array, relative to its largest element."""
    family, options = CASES[case]
    network = Network(build(family, options), dtype, recompute="none")
    with np.load(FOLDER / f"{case}.npz") as file:
        recorded = {name: file[name] for name in file.files}
    weights = tensors(network, network.weights)
    weights = {name: each for name, each in weights.items() if f"w.{name}" in recorded}
    assert {f"w.{name}" for name in weights} == {n for n in recorded if n.startswith("w.")}
    for name, each in weights.items():
        each[...] = recorded[f"w.{name}"]
    words = recorded["words"]
    logits = network.forward(words[:, :-1])
    found = {"logits": logits.copy()}
    found["loss"], dy = softmax_cross_entropy(logits, words[:, 1:], len(words))
    network.backward(dy)
    gradients = tensors(network, network.gradients)
    found |= {f"g.{name}": gradients[name] for name in weights}
    return {
        name: float(np.max(np.abs(each - recorded[name])) / np.max(np.abs(recorded[name])))
        for name, each in found.items()
    }


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES)
def test_a_decoder_equals_pytorch(case, dtype):
    found = differences(case, dtype)
    assert max(found.values()) < TOLERANCE[dtype], found


@pytest.mark.parametrize(
    ("case", "kind", "attribute"),
    [
        ("llama", RmsNorm, "backward"),
        ("mistral", Attention, "_turned"),
        ("gemma", Attention, "heads_of"),
    ],
)
def test_a_mistake_is_larger(case, kind, attribute, monkeypatch):
    """A normalization scaled wrongly, positions that are not rotated, keys in the place of values."""
    right = getattr(kind, attribute)
    wrong = {
        "backward": lambda *arguments: right(*arguments) * 1.00001,
        "_turned": lambda self, x, out, sign: x,
        "heads_of": lambda self, x: (right(self, x)[0], *right(self, x)[:0:-1]),
    }
    monkeypatch.setattr(kind, attribute, wrong[attribute])
    assert max(differences(case, np.float64).values()) > 1e-6
