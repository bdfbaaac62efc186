"""OnDisk: a network with weights, gradients and optimizer state on disk, those of one or two layers in memory.

The weights of the next layer are prefetched while one layer computes. As soon as a layer's gradient is complete
its weights are updated and written back, so memory never holds the full network (Pudipeddi et al.
2020, "Training large neural networks with constant memory using a new execution algorithm").
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.arena import Arena
from lib_dlhpc.layers.base.saved import Array, Tensors
from lib_dlhpc.training.disk import Disk
from lib_dlhpc.training.optimizers import MEMORIES, RULES, Optimizer
from lib_dlhpc.training.weights import Parameter, Table

BEHIND = 1  # layers with weight writes in flight


@dataclass
class Buffer:
    """A layer's part of a column and its pending request."""

    flat: Array
    job: int = 0


@dataclass
class Gradient:
    """A layer's gradient of one pass; `before`: the sum of earlier passes, still to be added."""

    flat: Array
    job: int = 0
    before: Array | None = None


@dataclass
class LayerState:
    """One layer's weights, as an optimizer sees them."""

    weights: Array
    gradients: Array
    parameters: list[Parameter]


class OnDisk:
    """A store (see weights.py) of columns on disk: weights, gradients, and optimizer state.

    rate: of the step; set it before the last backward of a step. complete(layer, gradient): called with each
    layer's gradient, in one flat array, before its weights are updated: to allreduce it in place.
    The largest layer must fit in memory about seven times.
    """

    def __init__(
        self, table: Table, dtype: Any, arena: Arena, disk: Disk, optimizer: Optimizer
    ) -> None:
        self.table, self.dtype, self.arena = table, np.dtype(dtype), arena
        self.disk, self.optimizer = disk, optimizer
        self.rate: float | None = None
        self.complete: Callable[[int, Array], None] = lambda layer, gradient: None
        self.memories = MEMORIES[optimizer.name]
        self.columns = ("weights", *self.memories, "gradients")
        disk.extend(len(self.columns) * table.size * self.dtype.itemsize)
        self._own: list[list[Parameter]] = [[] for _ in table.of]
        for parameter in table.parameters:
            self._own[parameter.layer].append(parameter)
        self._sees = [tuple({p.layer: None for p in sees.values()}) for sees in table.of]
        self._first = next((index for index, sees in enumerate(self._sees) if sees), -1)
        self._here: dict[int, Buffer] = {}  # weights by layer
        self._ahead: tuple[int, ...] = ()
        self._gradients: dict[int, Gradient] = {}
        self._state: dict[str, Buffer] = {}
        self._sums: set[int] = set()  # layers whose gradients of earlier passes are on disk
        self._writing: deque[list[Buffer]] = deque()
        self._last = False

    def read(self, column: str, start: int, stop: int) -> Array:
        """Return part of a column as a flat array; only between steps."""
        flat = np.empty(stop - start, self.dtype)
        self.disk.wait(self.disk.read(self._place(column, start), flat))
        return flat

    def write(self, column: str, start: int, values: Array) -> None:
        """Set part of a column; only between steps."""
        flat = np.ascontiguousarray(values, self.dtype)
        self.disk.wait(self.disk.write(self._place(column, start), flat))

    def begin(self, passes: int) -> None:
        """Discard all gradients."""
        self._rest()
        self._sums.clear()

    def back(self, last: bool) -> None:
        """Start a backward pass; the last one updates the weights. Raises RuntimeError if no rate was set."""
        if last and self.rate is None:
            raise RuntimeError(
                "weights on disk are updated during backward: set store.rate before it."
            )
        self._last = last
        self.optimizer.updates += last

    def take(self, index: int, then: int | None) -> Tensors:
        """Return a layer's weights and prefetch those of the next."""
        self._ahead = self._sees[then] if then is not None else ()
        self._forget((*self._sees[index], *self._ahead))
        for layer in (*self._sees[index], *self._ahead):
            if layer not in self._here:
                self._here[layer] = self._fetch("weights", layer)
        return self._tensors(index, {layer: self._arrived(layer) for layer in self._sees[index]})

    def release(self, index: int) -> None:
        """Free the memory, except of the next layer."""
        self._forget(self._ahead)

    def target(self, index: int) -> Tensors:
        """Return arrays for a layer's gradients; tied ones hold the sum so far."""
        if self._last and self._own[index]:
            self._state = {name: self._fetch(name, index) for name in self.memories}
        for layer in self._sees[index]:
            self._gradients[layer] = self._gradient(layer, layer == index)
        return self._tensors(index, {layer: each.flat for layer, each in self._gradients.items()})

    def written(self, index: int) -> None:
        """Add earlier passes; in the last pass update the weights, else write the sum."""
        done: list[Buffer] = []
        for layer, gradient in self._gradients.items():
            if gradient.before is not None:
                self.disk.wait(gradient.job)
                for p in self._own[layer]:
                    if p not in self.table.adds:
                        part = self._part(p)
                        gradient.flat[part] += gradient.before[part]
            if layer == index and self._last:
                done += self._move(layer, gradient.flat)
            else:
                self._sums.add(layer)
                done.append(self._write("gradients", layer, gradient.flat))
        self._gradients, self._state = {}, {}
        self._writing.append(done)
        while len(self._writing) > BEHIND:
            self._settle()
        if index == self._first:
            self._rest()

    def fill(self, index: int) -> Tensors:
        """Return zeros for a layer's own weights."""
        self._here[index] = Buffer(np.zeros(self._size(index), self.dtype))
        return {
            name: self._here[index].flat[self._part(p)].reshape(p.shape)
            for name, p in self.table.of[index].items()
            if p.layer == index
        }

    def filled(self, index: int) -> None:
        """Write the filled weights."""
        flat = self._here.pop(index).flat
        if flat.size:
            self.disk.wait(self._write("weights", index, flat).job)

    def _gradient(self, layer: int, allocate: bool) -> Gradient:
        """Return where a layer's gradients go. Those of a tied layer hold the sum so far."""
        flat, adds = self.arena.array((self._size(layer),), self.dtype), self.table.adds
        if layer not in self._sums:
            for p in self._own[layer]:
                if not allocate or p in adds:
                    flat[self._part(p)] = 0
            return Gradient(flat)
        if not allocate or all(p in adds for p in self._own[layer]):
            self.disk.wait(self.disk.read(self._place("gradients", self._start(layer)), flat))
            return Gradient(flat)
        before = self._fetch("gradients", layer)
        for p in self._own[layer]:
            if p in adds:
                self.disk.wait(before.job)
                flat[self._part(p)] = before.flat[self._part(p)]
        return Gradient(flat, before.job, before.flat)

    def _move(self, layer: int, gradient: Array) -> list[Buffer]:
        """Update a layer's weights; return the writes in flight."""
        self.complete(layer, gradient)
        for buffer in self._state.values():
            self.disk.wait(buffer.job)
        weights, start = self._here[layer].flat, self._start(layer)
        parameters = [
            replace(p, start=p.start - start, stop=p.stop - start) for p in self._own[layer]
        ]
        state = {name: buffer.flat for name, buffer in self._state.items()}
        assert self.rate is not None
        rule, optimizer = RULES[self.optimizer.name], replace(self.optimizer, state=state)
        rule(optimizer, LayerState(weights, gradient, parameters), self.rate)
        columns = {"weights": weights, **state}
        return [self._write(column, layer, flat) for column, flat in columns.items()]

    def _fetch(self, column: str, layer: int) -> Buffer:
        """Start reading a layer's part of a column."""
        flat = self.arena.array((self._size(layer),), self.dtype)
        return Buffer(flat, self.disk.read(self._place(column, self._start(layer)), flat))

    def _write(self, column: str, layer: int, flat: Array) -> Buffer:
        """Start writing a layer's part of a column."""
        return Buffer(flat, self.disk.write(self._place(column, self._start(layer)), flat))

    def _arrived(self, layer: int) -> Array:
        self.disk.wait(self._here[layer].job)
        return self._here[layer].flat

    def _forget(self, but: tuple[int, ...]) -> None:
        for layer in [layer for layer in self._here if layer not in but]:
            del self._here[layer]

    def _settle(self) -> None:
        """Wait for the oldest layer's writes and release its memory."""
        for buffer in self._writing.popleft():
            self.disk.wait(buffer.job)

    def _rest(self) -> None:
        """Wait for all writes and release all memory."""
        while self._writing:
            self._settle()
        self._here.clear()

    def _tensors(self, index: int, flats: dict[int, Array]) -> Tensors:
        return {
            name: flats[p.layer][self._part(p)].reshape(p.shape)
            for name, p in self.table.of[index].items()
        }

    def _part(self, p: Parameter) -> slice:
        """Return a tensor's slice of its layer's part."""
        start = self._start(p.layer)
        return slice(p.start - start, p.stop - start)

    def _start(self, layer: int) -> int:
        return self._own[layer][0].start

    def _size(self, layer: int) -> int:
        return self._own[layer][-1].stop - self._start(layer) if self._own[layer] else 0

    def _place(self, column: str, start: int) -> int:
        return (self.columns.index(column) * self.table.size + start) * self.dtype.itemsize
