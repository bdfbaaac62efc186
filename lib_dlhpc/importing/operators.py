"""Operators of torch's exported graphs as layers: a table of each, or an error that names what differs."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers import KINDS

Table = dict[str, Any]
# The same elements in the same shape.
ALIASES = frozenset(("contiguous", "clone", "detach", "alias", "to", "_to_copy", "lift_fresh_copy"))
RESHAPES = ("flatten", "view", "reshape", "squeeze")


class Call:
    """A call of an operator: its arguments by position or name, and shapes without the batch."""

    def __init__(self, node: Any, outputs: Mapping[Any, str]) -> None:
        self.node, self.outputs = node, outputs
        self.name = str(node.target).removeprefix("aten.").partition(".")[0].removesuffix("_")
        schema = getattr(node.target, "_schema", None)  # of torch's operators, not of Python's
        known = schema.arguments if schema else []
        self.arguments = {each.name: each.default_value for each in known}
        self.arguments |= dict(zip(self.arguments, node.args, strict=False)) | dict(node.kwargs)

    def shape(self, node: Any = None) -> tuple[int, ...]:
        """Return the shape of a sample of a node's output."""
        return tuple(
            int(size) for size in (self.node if node is None else node).meta["val"].shape[1:]
        )

    def whole(self, name: str) -> tuple[int, ...]:
        """Return the shape of a weight."""
        return tuple(int(size) for size in self.arguments[name].meta["val"].shape)

    @property
    def sources(self) -> list[Any]:
        """The nodes that it reads, weights left out, in the order of the arguments."""
        flat = [
            each
            for value in self.arguments.values()
            for each in (value if isinstance(value, list | tuple) else [value])
        ]
        return [each for each in flat if getattr(each, "op", None) and each in self.outputs]

    @property
    def source(self) -> str:
        """The layer that it reads first."""
        return self.outputs[self.sources[0]]

    @property
    def passes(self) -> bool:
        """Whether it gives its input as it is."""
        same = self.name in RESHAPES and self.shape() == self.shape(self.sources[0])
        return same or (self.name == "dropout" and not self.arguments["p"])

    def read(self, kind: str) -> Table:
        """Return what a layer of this kind reads."""
        if KINDS[kind].several_inputs:
            return {"inputs": [self.outputs[each] for each in self.sources]}
        return {"after": self.source}

    def require(self, name: str, *legal: Any) -> None:
        """Raise SpecError if an argument has another value."""
        value = self.arguments.get(name, legal[0])
        value = list(value) if isinstance(value, list | tuple) else value
        if value not in legal:
            raise SpecError(f"operator {self.node.target} with {name} = {value!r}")


def _plain(kind: str) -> Callable[[Call], Table]:
    return lambda call: {"kind": kind}


def _conv(call: Call) -> Table:
    channels, _, *kernel = call.whole("weight")
    call.require("dilation", [1] * len(kernel), [1])
    stride, padding = (_each(call.arguments[name], len(kernel)) for name in ("stride", "padding"))
    groups, bias = call.arguments["groups"], call.arguments["bias"] is not None
    return {
        "kind": "conv",
        "channels": channels,
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "groups": groups,
        "bias": bias,
    }


def _linear(call: Call) -> Table:
    bias = call.arguments["bias"] is not None
    return {"kind": "dense", "features": call.whole("weight")[0], "bias": bias}


def _batch_norm(call: Call) -> Table:
    if call.arguments["weight"] is None:
        raise SpecError(f"operator {call.node.target} without weights")
    return {"kind": "batch_norm"}


def _layer_norm(call: Call) -> Table:
    if call.arguments["weight"] is None or len(call.arguments["normalized_shape"]) != 1:
        raise SpecError(f"operator {call.node.target} without weights, or over several dimensions")
    return {"kind": "layer_norm", "bias": call.arguments["bias"] is not None}


def _rms_norm(call: Call) -> Table:
    if call.arguments["weight"] is None or len(call.arguments["normalized_shape"]) != 1:
        raise SpecError(f"operator {call.node.target} without weights, or over several dimensions")
    return {"kind": "rms_norm"}


def _pool(kind: str) -> Callable[[Call], Table]:
    def table(call: Call) -> Table:
        space = len(call.shape()) - 1
        call.require("dilation", [1] * space, [1], 1)
        call.require("ceil_mode", False)
        kernel = _each(call.arguments["kernel_size"], space)
        stride = _each(call.arguments["stride"] or kernel, space)
        return {
            "kind": kind,
            "kernel": kernel,
            "stride": stride,
            "padding": _each(call.arguments["padding"], space),
        }

    return table


def _adaptive(call: Call) -> Table:
    if prod(call.shape()[1:]) == 1:
        return {"kind": "global_avg_pool"}
    kernel = []
    for before, after in zip(call.shape(call.sources[0])[1:], call.shape()[1:], strict=True):
        if before % after:
            raise SpecError(f"operator {call.node.target} from {before} to {after} positions")
        kernel.append(before // after)
    return {"kind": "avg_pool", "kernel": kernel, "stride": kernel}


def _flatten(call: Call) -> Table:
    if len(call.shape()) != 1:
        raise SpecError(f"operator {call.node.target} to shape {call.shape()}")
    return {"kind": "flatten"}


def _two(kind: str) -> Callable[[Call], Table]:
    def table(call: Call) -> Table:
        call.require("alpha", 1)
        if len(call.sources) != 2:
            raise SpecError(f"operator {call.node.target} with one input and a number or a weight")
        return {"kind": kind}

    return table


def _concat(call: Call) -> Table:
    call.require("dim", 1)
    return {"kind": "concat"}


def _embedding(call: Call) -> Table:
    vocabulary, features = call.whole("weight")
    return {"kind": "embedding", "vocabulary": vocabulary, "features": features}


def _each(value: Any, space: int) -> list[int]:
    """Return one number for each dimension of space."""
    if isinstance(value, str):
        raise SpecError(f"padding = {value!r}")
    values = [value] if isinstance(value, int) else list(value)
    return values * space if len(values) == 1 else values


OPERATORS: dict[str, Callable[[Call], Table]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _conv),
    **dict.fromkeys(("max_pool2d", "max_pool3d"), _pool("max_pool")),
    **dict.fromkeys(("avg_pool2d", "avg_pool3d"), _pool("avg_pool")),
    **dict.fromkeys(("adaptive_avg_pool2d", "adaptive_avg_pool3d"), _adaptive),
    **dict.fromkeys(RESHAPES, _flatten),
    **{kind: _plain(kind) for kind in ("relu", "gelu", "silu", "tanh", "sigmoid")},
    "linear": _linear,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "leaky_relu": lambda call: {"kind": "leaky_relu", "slope": call.arguments["negative_slope"]},
    "dropout": lambda call: {"kind": "dropout", "rate": call.arguments["p"]},
    "add": _two("add"),
    "mul": _two("multiply"),
    "cat": _concat,
    "embedding": _embedding,
}
