"""Pieces: products and the tensor-parallel collectives beside them, a piece of rows at a time (costs/async_tp.py).

after a product     piece k is exchanged while piece k + 1 is computed; what follows waits for the last
before a product    all pieces are posted, and each is computed once it has arrived

Where communication does not overlap (strategy.overlap, machine.progress), each piece is exchanged before what follows.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from lib_dlhpc.costs.async_tp import Cut, cut_of
from lib_dlhpc.layout import Part
from lib_dlhpc.parallel.layers import communication
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Collective, Compute, Instruction, Wait
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Layer

STREAM, LABEL = "tensor", "the tensor exchange"


def cut_into_pieces(experiment: Experiment, _: tuple[Part, ...], passes: Passes) -> None:
    """Cut the products of a part, and the collectives before or after them, into strategy.tensor_pieces."""
    strategy = experiment.strategy
    cut = cut_of(passes.part.model, int(strategy.tensor_pieces), strategy.tensor_overlap)
    if not cut:
        return
    pieces = _Pieces(passes.part.model.layers, cut, bool(experiment.overlap))
    for name in ("forward", "first", "backward", "last"):
        instructions = getattr(passes, name)
        if instructions:
            setattr(passes, name, pieces.of(instructions))


class _Pieces(NamedTuple):
    """How the layers of a part are cut; without overlap each piece is exchanged before what follows it."""

    layers: tuple[Layer, ...]
    cut: Cut
    overlap: bool

    def of(self, instructions: list[Instruction]) -> list[Instruction]:
        """Return a pass in pieces."""
        emitted: list[Instruction] = []
        replaced: Collective | None = None  # the next one, of an exchange that is cut
        pairs = self._pairs(instructions)
        for op in instructions:
            if op == replaced:
                replaced = None
            elif not isinstance(op, Compute) or op.phase == "weight_grad":
                emitted.append(op)
            else:
                way = _way(op)
                before, after = pairs[way]
                if op.layer in before or op.layer in after:
                    emitted += self._product(way, op, before.get(op.layer), after.get(op.layer))
                    continue
                first, exchange = op.layer in before.values(), list[Instruction]()
                if first or op.layer in after.values():
                    (replaced,) = communication(self.layers[op.layer], way)
                    exchange += self._exchange(way, op.layer, first)
                adds = not first and self.cut.summed[op.layer] > 0  # once all pieces are there
                emitted += [*exchange, op] if adds else [op, *exchange]
        return emitted

    def _pairs(self, instructions: list[Instruction]) -> dict[str, list[dict[int, int]]]:
        """Return by way the products that are cut, each with the exchange before it, and after it.

        An exchange may be repeated in backward for a product that is not: it stays whole.
        """
        there = {(_way(op), op.layer) for op in instructions if isinstance(op, Compute)}
        return {
            way: [
                {
                    layer: other
                    for layer, other in cut[way].items()
                    if there >= {(way, layer), (way, other)}
                }
                for cut in (self.cut.before, self.cut.after)
            ]
            for way in ("forward", "backward")
        }

    def _product(
        self, way: str, work: Compute, gives: int | None, takes: int | None
    ) -> Iterator[Instruction]:
        """Yield the blocks of a product; gives, takes: the exchanges before and after it."""
        for piece in range(self.cut.many):
            if gives is not None:
                yield (
                    self._wait(way, gives, piece) if self.overlap else self._post(way, gives, piece)
                )
            yield _block(work.layer, f"{work.phase}_block")
            if takes is not None:
                yield self._post(way, takes, piece)

    def _exchange(self, way: str, layer: int, first: bool) -> Iterator[Instruction]:
        """Yield what an exchange does itself; first: before the product."""
        if self.overlap:
            for piece in range(self.cut.many):
                yield (self._post if first else self._wait)(way, layer, piece)

    def _post(self, way: str, layer: int, piece: int) -> Collective:
        (whole,) = communication(self.layers[layer], way)
        if not self.overlap:
            return _piece(whole, self.cut.many, "", "")
        return _piece(whole, self.cut.many, STREAM, self._key(way, layer, piece))

    def _wait(self, way: str, layer: int, piece: int) -> Wait:
        return _arrived(STREAM, STREAM, self._key(way, layer, piece), LABEL)

    def _key(self, way: str, layer: int, piece: int) -> str:
        return f"{self.layers[layer].name} {way} {piece}"


def _way(work: Compute) -> str:
    return "forward" if work.phase == "forward" else "backward"


# Passes have much in common: what is equal in them is one object.
_block = lru_cache(maxsize=1 << 14)(Compute)
_arrived = lru_cache(maxsize=1 << 14)(Wait)


@lru_cache(maxsize=1 << 14)
def _piece(whole: Collective, many: int, stream: str, key: str) -> Collective:
    return whole._replace(elements=whole.elements / many, stream=stream, key=key)
