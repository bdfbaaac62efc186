"""Derivations of module 05: the activations of a transformer layer, on one GPU and on several."""

from typing import Any

from lib_dlhpc.explore.slides.derivation import written
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import read_experiment

S, B, H, A, T = 2048, 1, 12288, 96, 8  # a layer of GPT-3, over the GPUs of a node
scores = 5 * A * S / H
whole = S * B * H * (34 + scores)
replicated = S * B * H * (10 + 24 / T + scores / T)
sharded = whole / T


def stored(**strategy: Any) -> float:
    """Return the bytes that a layer adds to the activations of a GPU, as predicted."""

    def activations(layers: int) -> float:
        network = {"family": "gpt", "layers": layers, "hidden": H, "heads": A, "sequence": S}
        how = {"nodes": 1, "batch": B, "precision": "fp16", "fused_attention": "off"}
        run = {
            "model": network | {"vocabulary": 51200, "dropout": 0.1},
            "dataset": "webtext",
            "machine": "selene",
            "strategy": how | strategy,
        }
        return float(predict(read_experiment(run)).memory["activations"])

    return activations(4) - activations(3)


of_scores = scores / (34 + scores)
weights = 2 * 12 * H**2

DERIVATIONS = written(
    globals(),
    (whole, stored()),
    (replicated + sharded, stored(tensor=T) + stored(tensor=T, sequence_parallel=True)),
)
