"""Pieces: products and the tensor-parallel collectives beside them, a piece of rows at a time (costs/pieces.py).

after a product     piece k is exchanged while piece k + 1 is computed; what follows waits for the last
before a product    all pieces are posted, and each is computed once it has arrived
"""

from functools import lru_cache

from lib_dlhpc.costs.pieces import Cut, cut_of
from lib_dlhpc.layout import Part
from lib_dlhpc.parallel.layers import communication
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Collective, Compute, Instruction, Wait
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Layer

STREAM, LABEL = "tensor", "the tensor exchange"
_block = lru_cache(maxsize=1 << 14)(Compute)
_wait = lru_cache(maxsize=1 << 14)(Wait)


def cut_into_pieces(experiment: Experiment, _: tuple[Part, ...], passes: Passes) -> None:
    """Cut the products of a part, and the collectives before or after them, into strategy.tensor_pieces."""
    cut = cut_of(passes.part.model, int(experiment.strategy.tensor_pieces))
    if not cut:
        return
    for name in ("forward", "first", "backward", "last"):
        instructions = getattr(passes, name)
        if instructions:
            setattr(passes, name, _in_pieces(passes.part.model.layers, cut, instructions))


def _in_pieces(
    layers: tuple[Layer, ...], cut: Cut, instructions: list[Instruction]
) -> list[Instruction]:
    found: list[Instruction] = []
    replaced: Collective | None = None  # the next one, of an exchange that is cut
    for each in instructions:
        if each == replaced:
            replaced = None
        elif not isinstance(each, Compute) or each.phase == "weight_grad":
            found.append(each)
        else:
            way = "forward" if each.phase == "forward" else "backward"
            if _exchanges(cut, way, each.layer):
                replaced = communication(layers[each.layer], way)[0]
            found += _cut(layers, cut, way, each)
    return found


def _exchanges(cut: Cut, way: str, layer: int) -> bool:
    return layer in cut.before[way].values() or layer in cut.after[way].values()


def _cut(layers: tuple[Layer, ...], cut: Cut, way: str, work: Compute) -> list[Instruction]:
    """Return the computation of a layer in one direction, with the pieces of collectives around it."""
    before, after, number = cut.before[way], cut.after[way], work.layer
    found: list[Instruction] = []
    if number not in before and number not in after:
        found.append(work)
    for piece in range(cut.many):
        if number in before:
            found.append(_arrived(layers[before[number]], way, piece))
        if number in before or number in after:
            found.append(_block(number, f"{work.phase}_block"))
        if number in after:
            found.append(_post(layers[after[number]], way, piece, cut.many))
        if number in before.values():
            found.append(_post(layers[number], way, piece, cut.many))
        if number in after.values():
            found.append(_arrived(layers[number], way, piece))
    return found


def _post(layer: Layer, way: str, piece: int, many: int) -> Collective:
    (whole,) = communication(layer, way)
    return _piece(whole, whole.elements / many, _key(layer, way, piece))


@lru_cache(maxsize=1 << 14)  # passes have much in common: what is equal in them is one object
def _piece(whole: Collective, elements: float, key: str) -> Collective:
    return whole._replace(elements=elements, stream=STREAM, key=key)


def _arrived(layer: Layer, way: str, piece: int) -> Wait:
    return _wait(STREAM, STREAM, _key(layer, way, piece), LABEL)


def _key(layer: Layer, way: str, piece: int) -> str:
    return f"{layer.name} {way} {piece}"
