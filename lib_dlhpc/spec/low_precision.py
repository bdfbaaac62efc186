"""A network whose linear layers compute in a narrow format, fp8 or nvfp4, or not.

In it are the products with weights of dense layers, among them attention's projections, and of experts. Attention
itself, normalizations, embeddings, routers, adapters, the last linear layer and logits stay in bf16, as in
DeepSeek-AI 2024, "DeepSeek-V3", section 3.3.1; so do convolutions. Weights, gradients, what travels between layers and
messages are bf16, with fp32 master weights; what a product reads is cast before it, and before tensor ranks gather it
in fp8 (costs/low_precision.py).

With precision nvfp4 the linear layers of the last 15% of the blocks stay in bf16 as well (NVIDIA 2025, "Pretraining
large language models with NVFP4", arXiv:2509.25149, section 4: 8 of 52 blocks in section 5, 10 of 62 in section 4.1,
two of these at the start; 14 of 88 of Nemotron 3 Super in Megatron-Bridge 067f987, mixed_precision.py). With nvfp4-all
none does, as in the recipes of which NVIDIA publishes the speed (there, bf16_with_nvfp4_mixed).
"""

from dataclasses import replace
from functools import lru_cache

from lib_dlhpc.layers import Layer
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import FORMATS, NVFP4

WIDE_BLOCKS = 15  # %, at the end of a network in nvfp4


def with_narrow(model: Model, precision: str) -> Model:
    """Return the network with its linear layers in a precision, if it is a narrow one; the same object if it is so."""
    return _changed(model, FORMATS.get(precision, ""), precision == NVFP4) or model


@lru_cache(maxsize=64)
def _changed(model: Model, narrow: str, sensitive: bool) -> Model | None:
    """Return the network if it becomes another one; None is of all networks that are equal, `model` of one of them.

    sensitive: whether the last blocks are wide.
    """
    found = _linear(model.layers) if narrow else list[str]()
    if sensitive:
        last = _last_blocks(found)
        found = [name for name in found if _block(name) not in last]
    formats = dict.fromkeys(found, narrow)
    if all(layer.narrow == formats.get(layer.name, "") for layer in model.layers):
        return None
    layers = (replace(layer, narrow=formats.get(layer.name, "")) for layer in model.layers)
    return replace(model, layers=tuple(layers))


def _linear(layers: tuple[Layer, ...]) -> list[str]:
    """Return the names of the layers with products of weights, but for the last, logits and those that feed scores."""
    wide = {layer.inputs[wide_input] for layer in layers for wide_input in layer.traits.wide_inputs}
    found = [layer for layer in layers if any(layer.traits.operands(layer))]
    return [each.name for each in found[:-1] if not each.mask_bytes and each.name not in wide]


def _last_blocks(names: list[str]) -> set[str]:
    """Return the last blocks with linear layers, WIDE_BLOCKS of them, rounded up."""
    blocks = list(dict.fromkeys(map(_block, names)))
    return set(blocks[len(blocks) + -WIDE_BLOCKS * len(blocks) // 100 :])


def _block(name: str) -> str:
    return name.rpartition(".")[0] or name
