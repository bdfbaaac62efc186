"""A torch.nn.Module as a list of layers, from the graph that torch.export makes of it."""

from collections.abc import Collection, Sequence
from copy import deepcopy
from importlib import import_module
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.imported import Imported
from lib_dlhpc.importing.operators import ALIASES, OPERATORS, Call
from lib_dlhpc.spec.networks import build


def from_module(module: Any, sample: Sequence[int] | Any) -> Imported:
    """Return a network of torch as a `sequential` model; sample: the shape of a sample of numbers, or a tensor of one.

    A copy of the module is exported on torch's meta device, in training mode. Raises SpecError that lists the
    operators that are no layer here, and if weights are left over: some are used twice, or not at all.
    """
    torch, name = import_module("torch"), type(module).__name__
    one = sample if isinstance(sample, torch.Tensor) else torch.zeros(tuple(sample), device="meta")
    batch = torch.zeros((2, *one.shape), dtype=one.dtype, device="meta")
    exported = torch.export.export(_on_meta(torch, module), (batch,), strict=False)
    layers = layers_of(exported.graph, exported.graph_signature.user_inputs, name)
    model = build("sequential", {"input": list(one.shape), "layers": layers})
    parameters = sum(each.numel() for each in module.parameters())
    if model.parameters != parameters:
        raise SpecError(
            f"{name}: its layers have {model.parameters:,} parameters, the module {parameters:,}; weights that are used"
            " twice, or not at all, are not understood."
        )
    return Imported(model, f"torch.nn.Module {name}")


def _on_meta(torch: Any, module: Any) -> Any:
    """Return a copy whose tensors have no memory, in training mode."""
    moved: dict[int, Any] = {id(each): each.to("meta") for each in module.buffers()}
    for each in module.parameters():
        moved[id(each)] = torch.nn.Parameter(each.to("meta"), each.requires_grad)
    return deepcopy(module, moved).train()


def layers_of(graph: Any, inputs: Collection[str], where: str) -> list[dict[str, Any]]:
    """Return the tables of the layers of an exported graph, in its order; inputs: names of the nodes of the sample.

    Raises SpecError that lists all operators which are not understood.
    """
    layers: list[dict[str, Any]] = []
    outputs: dict[Any, str] = {}  # of nodes: the layer whose output they are
    unknown: list[str] = []
    for node in graph.nodes:
        if node.op == "placeholder" and node.name in inputs:
            outputs[node] = "input"
        if node.op != "call_function" or not any(each in outputs for each in node.all_input_nodes):
            continue
        call = Call(node, outputs)
        try:
            if call.name in ALIASES or call.passes:
                outputs[node] = call.source
                continue
            if call.name not in OPERATORS:
                raise SpecError(f"operator {node.target}")
            table = OPERATORS[call.name](call)
            layers.append({**table, "name": node.name, **call.read(table["kind"])})
        except SpecError as error:
            unknown.append(f"{error} ({node.name})")
        outputs[node] = node.name
    if unknown:
        raise SpecError(f"{where}: not understood: {'; '.join(unknown)}.")
    return layers
