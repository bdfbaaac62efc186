"""A network whose weights are frozen, with low-rank adapters beside its queries and values, or without.

To W x, with W of (outputs, inputs), an adapter of rank r adds B A x, with A of (r, inputs) and B of (outputs, r); only
A and B are trained. As in the paper's experiments, and by default in Hugging Face PEFT, those products are adapted that
make queries and values. Source: Hu et al. 2021, "LoRA: low-rank adaptation of large language models", section 4.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers import KINDS, Counts, Layer, Site
from lib_dlhpc.layers.adapter import counts
from lib_dlhpc.layers.base.kind import Shape
from lib_dlhpc.spec.fusion import with_attention
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import Strategy

ATTENTION = ("attention", "fused_attention")
ADAPTER = "adapter"


def as_trained(model: Model, fuse: bool, strategy: Strategy) -> Model:
    """Return the network as it is trained: with attention fused or not, with adapters or without. Raises SpecError."""
    return with_adapters(with_attention(model, fuse), _rank(strategy.lora))


def _rank(lora: Any) -> int:
    """Return the rank of the adapters; raise SpecError for several: they are different networks."""
    if isinstance(lora, int):
        return lora
    found = np.unique(lora)
    if len(found) > 1:
        raise SpecError(
            f"strategy.lora = {', '.join(map(str, found))}: each rank is another network; give one at a time."
        )
    return int(found[0])


@lru_cache(maxsize=64)
def with_adapters(model: Model, rank: int) -> Model:
    """Return the network frozen and with adapters, or for rank = 0 as it was; the same object if it is so.

    Raises SpecError for a network without attention whose queries and values one product makes, or with weights
    other than those of products, tables and normalizations.
    """
    ranks = {layer.attributes["rank"] for layer in model.layers if layer.kind == ADAPTER}
    if ranks == ({rank} if rank else set()):
        return model
    plain = replace(model, layers=_without(model.layers))
    return replace(plain, layers=_with(plain.layers, rank)) if rank else plain


def _with(layers: tuple[Layer, ...], rank: int) -> tuple[Layer, ...]:
    attends = _products(layers, rank)
    found, renamed = list[Layer](), dict[str, str]()
    for layer in layers:
        read = tuple(renamed.get(name, name) for name in layer.inputs)
        has_weights = bool(layer.parameters or layer.attributes.get("tied"))
        frozen = replace(layer, inputs=read, frozen=has_weights)
        if has_weights and layer.traits.product and not layer.traits.splits_backward:
            raise SpecError(
                f"strategy.lora = {rank}: {layer.name} ({layer.kind}) is not priced with frozen weights; legal: 0."
            )
        if layer.name in attends:
            # The sum is in place: what attention reads is stored once, by the adapter.
            adapter = _adapter(frozen, attends[layer.name], rank)
            found += [replace(frozen, stored=0), *adapter]
            renamed[layer.name] = adapter[-1].name
        else:
            found.append(frozen)
    return tuple(found)


def _adapter(product: Layer, attention: Layer, rank: int) -> tuple[Layer, Layer]:
    """Return the layers A, of queries and values side by side, and B."""
    heads, kv_heads = attention.attributes["heads"], attention.attributes["kv_heads"]
    size = product.output_shape[-1] // (heads + 2 * kv_heads)
    down, up = f"{product.name}_down", f"{product.name}_adapter"
    site = Site(down, (product.input_shape,), {})
    low = KINDS["dense"].describe(site, 2 * rank, bias=False)
    both = counts(product.output_shape, rank, heads * size, kv_heads * size)
    return (
        _layer(down, "dense", product.inputs, product.input_shape, low),
        _layer(
            *(up, ADAPTER, (product.name, down), product.output_shape),
            both._replace(stored=product.stored),
        ),
    )


def _layer(name: str, kind: str, inputs: tuple[str, ...], shape: Shape, of: Counts) -> Layer:
    stored = of.stored or 0
    one = (name, kind, inputs, shape, of.output, of.parameters, of.forward_flop, stored)
    return Layer(*one, of.mask_bytes, of.attributes)


def _products(layers: tuple[Layer, ...], rank: int) -> Mapping[str, Layer]:
    """Return each attention by the name of the product that makes its queries, keys and values."""
    by_name, found = {layer.name: layer for layer in layers}, dict[str, Layer]()
    for attention in layers:
        if attention.kind not in ATTENTION:
            continue
        before = by_name.get(attention.inputs[0])
        while before and before.kind != "dense" and len(before.inputs) == 1:
            before = by_name.get(before.inputs[0])
        if before and before.kind == "dense":
            found[before.name] = attention
    if not found:
        raise SpecError(
            f"strategy.lora = {rank}: the network has no attention whose queries and values one product makes;"
            " legal: 0."
        )
    return found


def _without(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Return the layers of a network as they were before adapters."""
    adapters = [layer for layer in layers if layer.kind == ADAPTER]
    stored = {layer.inputs[0]: layer.stored for layer in adapters}
    renamed = {layer.name: layer.inputs[0] for layer in adapters}
    added = {name for layer in adapters for name in (layer.name, layer.inputs[1])}
    return tuple(
        replace(
            layer,
            inputs=tuple(renamed.get(name, name) for name in layer.inputs),
            stored=stored.get(layer.name, layer.stored),
            frozen=False,
        )
        for layer in layers
        if layer.name not in added
    )
