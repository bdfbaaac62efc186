"""Where a network's weights lie, and where its gradients go.

The network asks a store for the weights of one layer at a time, before its forward and its backward pass,
and says when it is done with them and when a gradient has been written. A store may have all of them at
hand, as InMemory does, fetch them when they are asked for, or take each gradient away as it comes.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from lib_dlhpc.spec.model import Model
from lib_dlhpc.training.layers.kept import Array, Tensors
from lib_dlhpc.training.layers.room import Room


@dataclass(frozen=True)
class Parameter:
    """Where one tensor of weights lies."""

    name: str  # "conv1.weight"
    layer: int
    start: int
    stop: int
    shape: tuple[int, ...]
    decays: bool  # biases, scales and shifts take neither weight decay nor a rate of their own


@dataclass(frozen=True)
class Table:
    """The parameters of a network in the order of its layers, as if they lay in one flat array.

    of: for each layer those that it sees, by its own names for them; a tied layer sees the embedding's.
    adds: those to whose gradients several layers add.
    """

    parameters: list[Parameter]
    of: list[dict[str, Parameter]]
    adds: list[Parameter]

    @property
    def size(self) -> int:
        """Return the number of weights."""
        return self.parameters[-1].stop if self.parameters else 0

    def views(self, flat: Array) -> list[Tensors]:
        """Return the tensors that each layer sees as views of `flat`."""
        return [
            {name: flat[p.start : p.stop].reshape(p.shape) for name, p in sees.items()}
            for sees in self.of
        ]


def table_of(model: Model, layers: list[Any]) -> Table:
    """Return where the parameters of `layers` lie, which were made from those of the model.

    A tied layer whose embedding is in another stage of the pipeline has a copy of its weight as its own.
    """
    found: list[Parameter] = []
    of: list[dict[str, Parameter]] = []
    adds: list[Parameter] = []
    owners: dict[str, Parameter] = {}  # the weight of each layer that another may be tied to
    for index, (noun, layer) in enumerate(zip(model.layers, layers, strict=True)):
        tied, shapes = noun.attributes.get("tied"), dict(getattr(layer, "shapes", {}))
        of.append({})
        if tied in owners:
            of[-1]["weight"] = owners[tied]
        elif tied:
            shapes["weight"] = (noun.attributes["features"], noun.input_shape[-1])
        for name, shape in shapes.items():
            start = found[-1].stop if found else 0
            full = f"{tied if tied and name == 'weight' else noun.name}.{name}"
            decays = name in ("weight", "recurrent")
            found.append(Parameter(full, index, start, start + prod(shape), shape, decays))
            of[-1][name] = found[-1]
        if "weight" in of[-1]:
            owners.setdefault(tied or noun.name, of[-1]["weight"])
        if tied and of[-1]["weight"] not in adds:
            adds.append(of[-1]["weight"])
    return Table(found, of, adds)


class Store(Protocol):
    """What a network asks of whoever has its weights. A layer is named by its index."""

    table: Table

    def begin(self, passes: int) -> None:
        """A step begins, in which so many passes go back."""

    def back(self, last: bool) -> None:
        """A pass goes back; if it is the step's last, gradients are complete as soon as written."""

    def take(self, index: int, then: int | None) -> Tensors:
        """Return a layer's weights, only to be read; the layer `then` is the next to be asked for."""

    def let_go(self, index: int) -> None:
        """Nobody looks at these weights any more."""

    def target(self, index: int) -> Tensors:
        """Return where a layer shall write its gradients, or add them, where several layers do."""

    def written(self, index: int) -> None:
        """A layer has written its gradients of this pass."""

    def fill(self, index: int) -> Tensors:
        """Return a layer's weights, to be filled in."""

    def filled(self, index: int) -> None:
        """The weights are as they shall be."""


class InMemory:
    """All weights in one flat array and all gradients in another: a bucket of gradients is a slice.

    The gradients of the first pass of a step are written where they belong, those of the others are added.
    """

    def __init__(self, table: Table, dtype: Any, room: Room) -> None:
        self.table, self.room = table, room
        self.weights, self.gradients = np.zeros(table.size, dtype), np.zeros(table.size, dtype)
        self._weights, self._gradients = table.views(self.weights), table.views(self.gradients)
        self._passes = 0  # that went or go back in this step
        self._apart: Tensors = {}

    def begin(self, passes: int) -> None:
        """No gradient is there yet."""
        self._passes = 0

    def back(self, last: bool) -> None:
        """Sums start at zero."""
        self._passes += 1
        if self._passes == 1:
            for each in self.table.adds:
                self.gradients[each.start : each.stop] = 0

    def take(self, index: int, then: int | None) -> Tensors:
        """Return views."""
        return self._weights[index]

    def let_go(self, index: int) -> None:
        """Views cost nothing."""

    def target(self, index: int) -> Tensors:
        """Return views, or arrays apart."""
        if self._passes == 1:
            return self._gradients[index]
        self._apart = {
            name: self.room.array(p.shape, self.gradients.dtype)
            for name, p in self.table.of[index].items()
            if p not in self.table.adds
        }
        return self._gradients[index] | self._apart

    def written(self, index: int) -> None:
        """Add what was written apart."""
        for name, array in self._apart.items():
            self._gradients[index][name] += array
        self._apart = {}

    def fill(self, index: int) -> Tensors:
        """Return views."""
        return self._weights[index]

    def filled(self, index: int) -> None:
        """It lies where it belongs."""
