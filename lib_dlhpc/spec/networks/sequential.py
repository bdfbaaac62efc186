"""Networks listed layer by layer, and the multi-layer perceptron."""

from collections.abc import Mapping
from typing import Any, Literal

from lib_dlhpc.spec.errors import SpecError, suggest
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family
from lib_dlhpc.spec.networks.options import check_options

KINDS = (
    "conv",
    "dense",
    "embedding",
    "position_embedding",
    "lstm",
    "batch_norm",
    "layer_norm",
    "relu",
    "leaky_relu",
    "prelu",
    "gelu",
    "tanh",
    "sigmoid",
    "softmax",
    "dropout",
    "attention",
    "max_pool",
    "avg_pool",
    "global_avg_pool",
    "flatten",
    "gather",
    "upsample",
    "pixel_shuffle",
    "add",
    "concat",
)


@family
def sequential(input: tuple[int, ...], layers: tuple[Mapping[str, Any], ...]) -> Builder:
    """A network as a list of layers, each a table with its kind and that layer's options.

    A layer reads the previous one, or the one that its option `after` names; "add" and "concat"
    name theirs in `inputs`. The options of a kind are those of the Builder method of that name.
    """
    net = Builder(*input)
    for number, table in enumerate(layers, start=1):
        options = dict(table)
        kind = options.pop("kind", None)
        if kind not in KINDS:
            raise SpecError(
                f"layer {number}: kind = {kind!r}: must be one of {', '.join(KINDS)}."
                f"{suggest(str(kind), KINDS)}"
            )
        method = getattr(Builder, kind)
        method(net, **check_options(method, options, f"layer {number} ({kind})"))
    return net


@family
def mlp(
    widths: tuple[int, ...],
    activation: Literal["relu", "tanh", "sigmoid", "gelu"] = "relu",
    dropout: float = 0.0,
) -> Builder:
    """Multi-layer perceptron: dense layers from widths[0] inputs to widths[-1] outputs."""
    if len(widths) < 2:
        raise SpecError(f"model family 'mlp': widths = {list(widths)}: needs at least 2 entries.")
    net = Builder(widths[0])
    for features in widths[1:-1]:
        net.dense(features)
        getattr(net, activation)()
        if dropout:
            net.dropout(dropout)
    net.dense(widths[-1])
    return net
