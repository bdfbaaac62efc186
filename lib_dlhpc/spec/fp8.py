"""A network whose linear layers compute in fp8, or not.

In fp8 are the products with weights of dense layers, among them attention's projections, and of experts. Attention
itself, normalizations, embeddings, routers, adapters, the last linear layer and logits stay in bf16, as in
DeepSeek-AI 2024, "DeepSeek-V3", section 3.3.1; so do convolutions. Weights, gradients, what travels between layers and
messages are bf16, with fp32 master weights; what a product reads is cast before it (costs/fp8.py).
"""

from dataclasses import replace
from functools import lru_cache

from lib_dlhpc.layers import Layer
from lib_dlhpc.spec.model import Model


def with_fp8(model: Model, wanted: bool) -> Model:
    """Return the network with its linear layers in fp8, or none; the same object if it is so."""
    return _changed(model, wanted) or model


@lru_cache(maxsize=64)
def _changed(model: Model, wanted: bool) -> Model | None:
    """Return the network if it becomes another one; None is of all networks that are equal, `model` of one of them."""
    narrow = _linear(model.layers) if wanted else set[str]()
    if all(layer.fp8 == (layer.name in narrow) for layer in model.layers):
        return None
    layers = (
        layer if layer.fp8 == (layer.name in narrow) else replace(layer, fp8=not layer.fp8)
        for layer in model.layers
    )
    return replace(model, layers=tuple(layers))


def _linear(layers: tuple[Layer, ...]) -> set[str]:
    """Return the names of the layers with products of weights, but for the last, logits and those that feed scores."""
    wide = {layer.inputs[at] for layer in layers for at in layer.traits.wide_inputs}
    found = [layer for layer in layers if any(layer.traits.operands(layer))]
    return {layer.name for layer in found[:-1] if not layer.mask_bytes and layer.name not in wide}
