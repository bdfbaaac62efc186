"""An ONNX file as a list of layers (onnx.ai, operators of the default domain)."""

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.imported import Imported
from lib_dlhpc.layers import KINDS
from lib_dlhpc.spec.networks import build

Table = dict[str, Any]


def from_onnx(path: Path) -> Imported:
    """Return the network of an ONNX file, whose first dimension is the batch, as a `sequential` model.

    Raises SpecError that lists the operators that are no layer here, and if weights are left over.
    """
    import onnx

    try:
        file = onnx.load(str(path))
    except Exception as error:  # protobuf's own errors have no common type
        raise SpecError(f"{path}: cannot be read as ONNX: {error}.") from None
    graph = _Graph(file.graph, onnx.helper.get_attribute_value)
    layers = graph.layers(str(path))
    model = build("sequential", {"input": graph.sample(str(path)), "layers": layers})
    if model.parameters != (held := graph.parameters()):
        raise SpecError(
            f"{path}: its layers have {model.parameters:,} parameters, the file {held:,}; weights that are used twice,"
            " or not at all, are not understood."
        )
    return Imported(model, str(path))


class _Node:
    """A node: its operator, attributes, and what it reads."""

    def __init__(self, node: Any, value: Callable[[Any], Any], graph: "_Graph") -> None:
        self.kind, self.inputs, self.graph = node.op_type, list(node.input), graph
        self.output, self.name = node.output[0], node.name or node.output[0]
        found = {each.name: value(each) for each in node.attribute}
        self.attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in found.items()}

    @property
    def sources(self) -> list[str]:
        """The layers that it reads."""
        return [self.graph.outputs[name] for name in self.inputs if name in self.graph.outputs]

    def weight(self, at: int) -> tuple[int, ...]:
        """Return the shape of the weight that is this input; an input that is none has no dimensions."""
        name = self.inputs[at] if at < len(self.inputs) else ""
        return self.graph.weights.get(name, ())

    def take(self, name: str, default: Any) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)

    def require(self, name: str, *legal: Any) -> None:
        """Raise SpecError if an attribute has another value."""
        if (value := self.take(name, legal[0])) not in legal:
            raise SpecError(f"operator {self.kind} with {name} = {value!r}")


class _Graph:
    """The nodes of a graph, the shapes of its weights, and the layers whose outputs its names are."""

    def __init__(self, graph: Any, value: Callable[[Any], Any]) -> None:
        self.weights = {each.name: tuple(each.dims) for each in graph.initializer}
        self.graph, self.value = graph, value
        self.inputs = [each for each in graph.input if each.name not in self.weights]
        self.outputs = {self.inputs[0].name: "input"}
        self.statistics: set[str] = set()  # no parameters, nor are shapes

    def sample(self, where: str) -> list[int]:
        """Return the shape of a sample."""
        sizes = [each.dim_value for each in self.inputs[0].type.tensor_type.shape.dim][1:]
        if len(self.inputs) != 1 or not sizes or not all(sizes):
            raise SpecError(
                f"{where}: needs one input, of known sizes after the first; found {sizes}."
            )
        return sizes

    def parameters(self) -> int:
        """Return the elements of all weights."""
        floats = {each.name for each in self.graph.initializer if each.data_type in (1, 10, 11, 16)}
        return sum(prod(self.weights[name]) for name in floats - self.statistics)

    def layers(self, where: str) -> list[Table]:
        """Return the tables of the layers. Raises SpecError that lists all operators which are not understood."""
        layers: list[Table] = []
        unknown: list[str] = []
        for each in self.graph.node:
            node = _Node(each, self.value, self)
            try:
                if node.kind == "Add" and self._adds_bias(node, layers):
                    layers[-1]["bias"] = True
                    self.outputs[node.output] = layers[-1]["name"]
                    continue
                if node.kind == "Identity":
                    self.outputs[node.output] = node.sources[0]
                    continue
                if node.kind not in OPERATORS:
                    raise SpecError(f"operator {node.kind}")
                table = OPERATORS[node.kind](node)
                several = KINDS[table["kind"]].several_inputs
                reads = {"inputs": node.sources} if several else {"after": node.sources[0]}
                layers.append({**table, "name": node.output, **reads})
            except SpecError as error:
                unknown.append(f"{error} ({node.name})")
            self.outputs[node.output] = node.output
        if unknown:
            raise SpecError(f"{where}: not understood: {'; '.join(unknown)}.")
        return layers

    def _adds_bias(self, node: _Node, layers: list[Table]) -> bool:
        """Return whether a node adds a weight of its features to the product before it."""
        shapes = [self.weights[name] for name in node.inputs if name in self.weights]
        if not layers or layers[-1]["kind"] != "dense" or node.sources != [layers[-1]["name"]]:
            return False
        return not layers[-1]["bias"] and shapes == [(layers[-1]["features"],)]


def _conv(node: _Node) -> Table:
    channels, _, *kernel = node.weight(1)
    node.require("dilations", [1] * len(kernel))
    table = {"kind": "conv", "channels": channels, "kernel": kernel, **_window(node, len(kernel))}
    return table | {"groups": node.take("group", 1), "bias": bool(node.weight(2))}


def _window(node: _Node, space: int) -> Table:
    """Return stride and padding; padding is the same before and after."""
    node.require("auto_pad", "NOTSET", "VALID")
    pads = list(node.take("pads", [0] * 2 * space))
    if pads[:space] != pads[space:]:
        raise SpecError(f"operator {node.kind} with pads = {pads}")
    return {"stride": list(node.take("strides", [1] * space)), "padding": pads[:space]}


def _pool(kind: str) -> Callable[[_Node], Table]:
    def table(node: _Node) -> Table:
        kernel = list(node.take("kernel_shape", []))
        node.require("ceil_mode", 0)
        node.require("dilations", [1] * len(kernel))
        return {"kind": kind, "kernel": kernel, **_window(node, len(kernel))}

    return table


def _gemm(node: _Node) -> Table:
    for name, legal in (("alpha", 1.0), ("beta", 1.0), ("transA", 0)):
        node.require(name, legal)
    weight = _matrix(node)
    return {
        "kind": "dense",
        "features": weight[0 if node.take("transB", 0) else 1],
        "bias": bool(node.weight(2)),
    }


def _matmul(node: _Node) -> Table:
    return {"kind": "dense", "features": _matrix(node)[1], "bias": False}


def _matrix(node: _Node) -> tuple[int, ...]:
    if len(node.weight(1)) != 2:
        raise SpecError(f"operator {node.kind} of two computed inputs")
    return node.weight(1)


def _batch_norm(node: _Node) -> Table:
    node.graph.statistics.update(node.inputs[3:5])
    return {"kind": "batch_norm"}


def _layer_norm(node: _Node) -> Table:
    if len(node.weight(1)) != 1:
        raise SpecError(f"operator {node.kind} over several dimensions")
    return {"kind": "layer_norm", "bias": bool(node.weight(2))}


def _gather(node: _Node) -> Table:
    node.require("axis", 0)
    if len(node.weight(0)) != 2:
        raise SpecError(f"operator {node.kind} of what is no table of weights")
    vocabulary, features = node.weight(0)
    return {"kind": "embedding", "vocabulary": vocabulary, "features": features}


def _flatten(node: _Node) -> Table:
    node.require("axis", 1)
    return {"kind": "flatten"}


def _two(kind: str) -> Callable[[_Node], Table]:
    def table(node: _Node) -> Table:
        if len(node.sources) < 2:
            raise SpecError(f"operator {node.kind} with a constant or a weight")
        return {"kind": kind}

    return table


def _concat(node: _Node) -> Table:
    node.require("axis", 1)
    return {"kind": "concat"}


def _plain(kind: str) -> Callable[[_Node], Table]:
    return lambda node: {"kind": kind}


PLAIN = {
    "Relu": "relu",
    "Gelu": "gelu",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "GlobalAveragePool": "global_avg_pool",
}
OPERATORS: dict[str, Callable[[_Node], Table]] = {
    **{name: _plain(kind) for name, kind in PLAIN.items()},
    "Conv": _conv,
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("avg_pool"),
    "Gemm": _gemm,
    "MatMul": _matmul,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "Gather": _gather,
    "Flatten": _flatten,
    "Add": _two("add"),
    "Mul": _two("multiply"),
    "Concat": _concat,
}
