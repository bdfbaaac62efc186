"""Dependencies between layers: which outputs may be overwritten, freed and recomputed, and when."""

from collections.abc import Sequence
from itertools import pairwise

from lib_dlhpc.costs.segments import Segment
from lib_dlhpc.program import Compute
from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.training.passes import Order
from lib_dlhpc.training.weights import Table

FORWARD, RECOMPUTE, BACK = "forward", "recompute", "back"
Visit = tuple[str, int]  # one of these, and the index of a layer


def flags(
    model: Model, sends: Sequence[str], segments: Sequence[Segment]
) -> list[tuple[bool, bool]]:
    """Return for each layer whether it may overwrite its first input, and whether the gradient of its input is needed.

    Not overwritten: outputs with other readers, other stages among them, and inputs of recomputed segments.
    """
    readers = dict.fromkeys(sends, 1)
    for layer in model.layers:
        for name in layer.inputs:
            readers[name] = readers.get(name, 0) + 1
    by_name = {layer.name: layer for layer in model.layers}
    flags_of = []
    for index, layer in enumerate(model.layers):
        recompute_inputs = [
            name
            for segment in segments
            if segment.first <= index < segment.stop
            for name in segment.reads
        ]
        sole_reader = (
            bool(layer.inputs)
            and readers[layer.inputs[0]] == 1
            and layer.inputs[0] in by_name
            and overwritable(by_name[layer.inputs[0]])
            and layer.inputs[0] not in recompute_inputs
        )
        flags_of.append((sole_reader, any(name != "input" for name in layer.inputs)))
    return flags_of


def overwritable(layer: Layer) -> bool:
    """Return whether a sole reader may overwrite a layer's output: backward does not read it, nor is it the input."""
    return "output" not in layer.traits.backward_reads and not layer.traits.message


def ends_overwritable(model: Model) -> bool:
    """Return whether the last layer's output may be overwritten; exchanges pass their input on."""
    last = model.layers[-1]
    if last.kind == "exchange":
        return any(layer.name == last.inputs[0] and overwritable(layer) for layer in model.layers)
    return overwritable(last)


def last_reads(model: Model, sends: Sequence[str]) -> list[list[str]]:
    """Return for each layer the outputs that no later layer reads and no other stage receives."""
    last = {name: index for index, layer in enumerate(model.layers) for name in layer.inputs}
    return [
        [name for name in last if last[name] == index and name not in sends]
        for index in range(len(model.layers))
    ]


def gathers(model: Model) -> dict[str, int]:
    """Return the exchanges that all-gather before a product and reduce-scatter its gradient, by name."""
    return {
        layer.name: index
        for index, layer in enumerate(model.layers)
        if layer.kind == "exchange"
        and (layer.attributes["forward"], layer.attributes["backward"])
        == ("all_gather", "reduce_scatter")
    }


def next_weights(table: Table, order: Order) -> dict[Visit, int]:
    """Return for each visit of a layer with weights the layer whose weights the pass needs next."""
    back = {"forward": RECOMPUTE, "backward": BACK, "input_grad": BACK}
    following: dict[Visit, int] = {}
    for kinds, instructions in (({"forward": FORWARD}, order.forward), (back, order.backward)):
        computed = (op for op in instructions if isinstance(op, Compute))
        visits = [(kinds[op.phase], op.layer) for op in computed if table.of[op.layer]]
        following |= {visit: then for visit, (_, then) in pairwise(visits)}
    return following
