"""Networks listed layer by layer, and the multi-layer perceptron."""

from collections.abc import Mapping
from inspect import Parameter
from typing import Any, Literal

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.layers import KINDS
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family
from lib_dlhpc.spec.networks.options import check_options, signature


@family
def sequential(input: tuple[int, ...], layers: tuple[Mapping[str, Any], ...]) -> Builder:
    """A network as a list of layers, each a table with its kind and that layer's options.

    A layer reads the previous one, or the one that its option `after` names; "add", "concat" and "experts"
    name theirs in `inputs`. The options of a kind are those of `describe` in layers/<kind>.py.
    """
    net = Builder(*input)
    for number, table in enumerate(layers, start=1):
        options = dict(table)
        kind = options.pop("kind", None)
        if kind not in KINDS or not hasattr(KINDS[kind], "describe"):
            legal = [each for each in KINDS if hasattr(KINDS[each], "describe")]
            head = f"layer {number}: kind = {kind!r}:"
            raise SpecError(listed(head, kind, legal, "must be one of"))
        checked = check_options(_options(kind), options, f"layer {number} ({kind})")
        getattr(net, kind)(**checked)
    return net


def _options(kind: str) -> dict[str, tuple[Any, Any]]:
    """Return the options of a layer in a list: those of its kind, its name and what it reads."""
    own = signature(KINDS[kind].describe)
    if KINDS[kind].several_inputs:
        return {"inputs": (tuple[str, ...], Parameter.empty), **own, "name": (str, "")}
    return {**own, "name": (str, ""), "after": (str, "")}


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
