"""A network whose weights are frozen, with low-rank adapters beside its products, or without.

To W x, with W of (outputs, inputs), an adapter of rank r adds B A x, with A of (r, inputs) and B of (outputs, r); only
A and B are trained. Those products are adapted that make queries and values, as in the paper's experiments and by
default in Hugging Face PEFT, or all but the last. Sources: Hu et al. 2021, "LoRA: low-rank adaptation of large language
models", section 4; Dettmers et al. 2023, "QLoRA", section 4, which adapts all.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers import KINDS, Counts, Layer, Site
from lib_dlhpc.layers.base.kind import Shape
from lib_dlhpc.spec.fusion import with_attention
from lib_dlhpc.spec.loss import with_loss
from lib_dlhpc.spec.low_precision import with_narrow
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import ALL, Strategy

ATTENTION = ("attention", "fused_attention")
ADAPTER = "adapter"


def as_trained(model: Model, fuse: bool, strategy: Strategy) -> Model:
    """Return the network as it is trained: with attention fused or not, with adapters or without, linear layers in a
    narrow format or not, and the arrays of its loss. Raises SpecError."""
    model = _first_of(model)
    adapted = with_adapters(with_attention(model, fuse), _rank(strategy.lora), strategy.adapted)
    return with_loss(with_narrow(adapted, strategy.precision), strategy.loss)


@lru_cache(maxsize=256)
def _first_of(model: Model) -> Model:
    """Return the first of all equal networks: what is remembered of it is found without comparing their layers."""
    return model


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


def with_adapters(model: Model, rank: int, adapted: str) -> Model:
    """Return the network frozen and with adapters, or for rank = 0 as it was; the same object if it is so.

    Raises SpecError for a network without attention whose queries and values one product makes, or with weights
    other than those of products, tables and normalizations.
    """
    return _changed(model, rank, adapted) or model


@lru_cache(maxsize=64)
def _changed(model: Model, rank: int, adapted: str) -> Model | None:
    """Return the network if it becomes another one; None is of all networks that are equal, `model` of one of them."""
    options = (layer.attributes for layer in model.layers if layer.kind == ADAPTER)
    ways = {(option["rank"], option["adapted"]) for option in options}
    if ways == ({(rank, adapted)} if rank else set()):
        return None
    plain = replace(model, layers=_without(model.layers))
    return replace(plain, layers=_with(plain.layers, rank, adapted)) if rank else plain


def _with(layers: tuple[Layer, ...], rank: int, adapted: str) -> tuple[Layer, ...]:
    widths = _widths(layers, rank, adapted)
    found, renamed = list[Layer](), dict[str, str]()
    for layer in layers:
        read = tuple(renamed.get(name, name) for name in layer.inputs)
        has_weights = bool(layer.parameters or layer.attributes.get("tied"))
        frozen = replace(layer, inputs=read, frozen=has_weights)
        priced = layer.traits.splits_backward and not layer.traits.own_operands
        if has_weights and layer.traits.product and not priced:
            raise SpecError(
                f"strategy.lora = {rank}: {layer.name} ({layer.kind}) is not priced with frozen weights; legal: 0."
            )
        if layer.name in widths:
            # The sum is in place: what the next layer reads is stored once, by the adapter.
            adapter = _adapter(frozen, rank, widths[layer.name], adapted)
            found += [replace(frozen, stored=0), *adapter]
            renamed[layer.name] = adapter[-1].name
        else:
            found.append(frozen)
    return tuple(found)


def _adapter(
    product: Layer, rank: int, widths: tuple[int, ...], adapted: str
) -> tuple[Layer, Layer]:
    """Return the layers A, of all products side by side, and B."""
    from lib_dlhpc.layers.adapter import counts

    down, up = f"{product.name}_down", f"{product.name}_adapter"
    site = Site(down, (product.input_shape,), {})
    low = KINDS["dense"].describe(site, len(widths) * rank, bias=False)
    both = counts(product.output_shape, rank, widths, adapted)
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


def _widths(layers: tuple[Layer, ...], rank: int, adapted: str) -> Mapping[str, tuple[int, ...]]:
    """Return the features of the adapted products of each layer that has any."""
    by_name, found = {layer.name: layer for layer in layers}, dict[str, tuple[int, ...]]()
    for attention in layers:
        if attention.kind not in ATTENTION:
            continue
        before = by_name.get(attention.inputs[0])
        while before and before.kind != "dense" and len(before.inputs) == 1:
            before = by_name.get(before.inputs[0])
        if before and before.kind == "dense":
            heads, kv_heads = attention.attributes["heads"], attention.attributes["kv_heads"]
            size = before.output_shape[-1] // (heads + 2 * kv_heads)
            queries, keys = heads * size, kv_heads * size
            found[before.name] = (queries, keys, keys) if adapted == ALL else (queries, keys)
    if not found:
        raise SpecError(
            f"strategy.lora = {rank}: the network has no attention whose queries and values come from one matmul;"
            " legal: 0."
        )
    if adapted == ALL:
        others = (layer for layer in layers[:-1] if layer.kind == "dense" and layer.parameters)
        found = {layer.name: layer.output_shape[-1:] for layer in others} | found
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
