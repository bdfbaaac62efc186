"""How the layers of a network hang together: what may be overwritten, let go of and made again, and when."""

from collections.abc import Sequence
from itertools import pairwise

from lib_dlhpc.costs.segments import Segment
from lib_dlhpc.spec.model import Model
from lib_dlhpc.training.weights import Table

# What these give, they do not need again: a layer that is its only reader may overwrite it.
OVERWRITABLE = (
    "conv",
    "dense",
    "batch_norm",
    "layer_norm",
    "add",
    "embedding",
    "position_embedding",
)
FORWARD, AGAIN, BACK = "forward", "again", "back"
Visit = tuple[str, int]  # one of these, and the index of a layer


def flags(
    model: Model, sends: Sequence[str], segments: Sequence[Segment]
) -> list[tuple[bool, bool]]:
    """Return for each layer whether it may overwrite its input, and whether its gradient is wanted.

    Left alone is what others read as well, other stages among them, and what a segment is made again from.
    """
    readers = dict.fromkeys(sends, 1)
    for layer in model.layers:
        for name in layer.inputs:
            readers[name] = readers.get(name, 0) + 1
    kinds = {layer.name: layer.kind for layer in model.layers}
    found = []
    for index, layer in enumerate(model.layers):
        kept = [name for each in segments if each.first <= index < each.stop for name in each.reads]
        alone = (
            len(layer.inputs) == 1
            and readers[layer.inputs[0]] == 1
            and kinds.get(layer.inputs[0]) in OVERWRITABLE
            and layer.inputs[0] not in kept
        )
        found.append((alone, any(name != "input" for name in layer.inputs)))
    return found


def ends_overwritable(model: Model) -> bool:
    """Return whether nothing in the network needs what its last layer gives; exchanges pass on what they read."""
    last = model.layers[-1]
    if last.kind == "exchange":
        return any(
            each.name == last.inputs[0] and each.kind in OVERWRITABLE for each in model.layers
        )
    return last.kind in OVERWRITABLE


def last_reads(model: Model, sends: Sequence[str]) -> list[list[str]]:
    """Return for each layer the outputs that no later layer reads, and that nobody else is given."""
    last = {name: index for index, layer in enumerate(model.layers) for name in layer.inputs}
    return [
        [name for name in last if last[name] == index and name not in sends]
        for index in range(len(model.layers))
    ]


def gathers(model: Model) -> dict[str, int]:
    """Return the exchanges that gather parts before a product, and add up its gradients, by name."""
    return {
        layer.name: index
        for index, layer in enumerate(model.layers)
        if layer.kind == "exchange"
        and (layer.attributes["forward"], layer.attributes["backward"])
        == ("all_gather", "reduce_scatter")
    }


def next_weights(table: Table, segments: Sequence[Segment]) -> dict[Visit, int]:
    """Return for each visit of a layer with weights the layer whose weights are asked for next."""
    ends = {segment.stop - 1: segment for segment in segments}
    visits = [(FORWARD, index) for index in range(len(table.of))]
    for index in reversed(range(len(table.of))):
        if index in ends:
            visits += [(AGAIN, each) for each in range(ends[index].first, ends[index].stop)]
        visits.append((BACK, index))
    weighted = [visit for visit in visits if table.of[visit[1]]]
    return {visit: then for visit, (_, then) in pairwise(weighted)}
