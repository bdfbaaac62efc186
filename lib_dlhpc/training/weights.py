"""Storage of a network's weights and gradients.

The network asks a store for the weights of one layer at a time, before its forward and its backward pass,
and reports when it has finished with them and when a gradient is written. A store may hold all of them in
memory, as InMemory does, fetch them on request, or send each gradient off as it is written.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from lib_dlhpc.costs.compression import MATRICES
from lib_dlhpc.costs.muon import Matrices, matrices
from lib_dlhpc.layers.base.arena import Arena
from lib_dlhpc.layers.base.saved import Array, Tensors
from lib_dlhpc.spec.model import Model


@dataclass(frozen=True)
class Parameter:
    """Position of one tensor in the flat array."""

    name: str  # "conv1.weight"
    layer: int
    start: int
    stop: int
    shape: tuple[int, ...]
    decays: bool  # others take neither weight decay nor a local rate
    matrices: Matrices | None = None  # that Muon orthogonalizes


@dataclass(frozen=True)
class Table:
    """The parameters of a network in the order of its layers, as if they lay in one flat array.

    of: for each layer the parameters that it sees, by its own names; a tied layer sees the embedding's.
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
    """Return the positions of the parameters of `layers`, which were made from those of the model."""
    parameters: list[Parameter] = []
    by_layer: list[dict[str, Parameter]] = []
    adds: list[Parameter] = []
    owners: dict[str, Parameter] = {}  # the weight of each layer that others may be tied to
    for index, (noun, layer) in enumerate(zip(model.layers, layers, strict=True)):
        tied, shapes = noun.attributes.get("tied"), dict(getattr(layer, "shapes", {}))
        by_layer.append({})
        if tied in owners:
            by_layer[-1]["weight"] = owners[tied]
        orthogonal = matrices(noun)
        for name, shape in shapes.items():
            start = parameters[-1].stop if parameters else 0
            place = f"{noun.name}.{name}", index, start, start + prod(shape), shape
            parameters.append(Parameter(*place, name in MATRICES, orthogonal.get(name)))
            by_layer[-1][name] = parameters[-1]
        if "weight" in by_layer[-1]:
            owners.setdefault(noun.name, by_layer[-1]["weight"])
        if tied and by_layer[-1]["weight"] not in adds:
            adds.append(by_layer[-1]["weight"])
    return Table(parameters, by_layer, adds)


class Store(Protocol):
    """The storage interface of a network's weights. Layers are given by index."""

    table: Table

    def begin(self, passes: int) -> None:
        """Begin a step with `passes` backward passes."""

    def back(self, last: bool) -> None:
        """Begin a backward pass; in the step's last, gradients are complete as soon as written."""

    def take(self, index: int, then: int | None) -> Tensors:
        """Return a layer's weights, read-only; the layer `then` is needed next."""

    def release(self, index: int) -> None:
        """Release a layer's weights."""

    def target(self, index: int) -> Tensors:
        """Return arrays where a layer writes its gradients, or adds them if several layers do."""

    def written(self, index: int) -> None:
        """Report that a layer has written its gradients of this pass."""

    def fill(self, index: int) -> Tensors:
        """Return a layer's weights, to be initialized."""

    def filled(self, index: int) -> None:
        """Report that the weights are initialized."""


class InMemory:
    """All weights in one flat array and all gradients in another: a bucket of gradients is a slice.

    A layer's gradients of the first pass of a step are written in place, those of later passes are added.
    """

    def __init__(self, table: Table, dtype: Any, arena: Arena) -> None:
        self.table, self.arena = table, arena
        self.weights, self.gradients = np.zeros(table.size, dtype), np.zeros(table.size, dtype)
        self._weights, self._gradients = table.views(self.weights), table.views(self.gradients)
        self._begun = False  # whether this step has accumulated gradients
        self._added: set[int] = set()  # layers with gradients of this step
        self._apart: Tensors = {}

    def begin(self, passes: int) -> None:
        """Start without gradients."""
        self._begun = False
        self._added.clear()

    def back(self, last: bool) -> None:
        """Zero the accumulated gradients in the first pass."""
        if not self._begun:
            self._begun = True
            for add in self.table.adds:
                self.gradients[add.start : add.stop] = 0

    def take(self, index: int, then: int | None) -> Tensors:
        """Return views."""
        return self._weights[index]

    def release(self, index: int) -> None:
        """Do nothing: views cost nothing."""

    def target(self, index: int) -> Tensors:
        """Return views for the first microbatch, else separate arrays."""
        if index not in self._added:
            return self._gradients[index]
        self._apart = {
            name: self.arena.array(p.shape, self.gradients.dtype)
            for name, p in self.table.of[index].items()
            if p not in self.table.adds
        }
        return self._gradients[index] | self._apart

    def written(self, index: int) -> None:
        """Add the separate arrays."""
        self._added.add(index)
        for name, array in self._apart.items():
            self._gradients[index][name] += array
        self._apart = {}

    def fill(self, index: int) -> Tensors:
        """Return views."""
        return self._weights[index]

    def filled(self, index: int) -> None:
        """Do nothing: views are written in place."""
