"""Exported graphs as layers, without torch: nodes as torch.export makes them."""

from types import SimpleNamespace

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.torch_module import layers_of
from lib_dlhpc.spec.networks import build


class Target:
    """An operator, its arguments with their defaults."""

    def __init__(self, name, **arguments):
        known = [SimpleNamespace(name=n, default_value=v) for n, v in arguments.items()]
        self.name, self._schema = name, SimpleNamespace(arguments=known)

    def __str__(self):
        return f"aten.{self.name}.default"


class Node:
    """A node of a graph; shape: of its output, with the batch."""

    def __init__(self, name, shape, target=None, *args, op="call_function", **kwargs):
        self.name, self.op, self.target, self.args, self.kwargs = name, op, target, args, kwargs
        self.meta = {"val": SimpleNamespace(shape=shape)}
        flat = [each for arg in args for each in (arg if isinstance(arg, list) else [arg])]
        self.all_input_nodes = [each for each in flat if isinstance(each, Node)]


LINEAR = Target("linear", input=None, weight=None, bias=None)
RELU, ADD = Target("relu_", input=None), Target("add", input=None, other=None, alpha=1)
DROPOUT = Target("dropout", input=None, p=0.5, train=False)


def graph(*more):
    """x -> linear -> relu -> dropout of 0, added to linear; then more."""
    x = Node("x", (2, 4), op="placeholder")
    weight = Node("p_weight", (4, 4), op="placeholder")
    one = Node("linear", (2, 4), LINEAR, x, weight)
    active = Node("relu", (2, 4), RELU, one)
    same = Node("dropout", (2, 4), DROPOUT, active, 0.0, True)
    total = Node("add", (2, 4), ADD, same, one)
    nodes = [x, weight, one, active, same, total]
    return SimpleNamespace(nodes=[*nodes, *(make(total) for make in more)])


def test_a_graph_with_a_branch_in_place_and_a_layer_that_does_nothing():
    model = build("sequential", {"input": [4], "layers": layers_of(graph(), ("x",), "net")})
    assert [(layer.kind, layer.inputs) for layer in model.layers] == [
        ("dense", ("input",)),
        ("relu", ("linear",)),
        ("add", ("relu", "linear")),
    ]
    assert model.parameters == 16


def test_all_that_is_not_understood_is_listed():
    def unknown(x):
        return Node("erf_1", (2, 4), Target("erf", input=None), x)

    def scaled(x):
        return Node("add_2", (2, 4), ADD, x, x, alpha=2)

    def plain(x):
        return Node("getitem", (2, 4), "<built-in function getitem>", x, 0)

    with pytest.raises(SpecError) as error:
        layers_of(graph(unknown, scaled, plain), ("x",), "net")
    for word in ("net", "aten.erf.default (erf_1)", "alpha = 2", "add_2", "getitem"):
        assert word in str(error.value)
