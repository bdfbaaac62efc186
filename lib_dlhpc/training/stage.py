"""Stage: a part of the network on one rank: its weights, their gradient synchronization and their update.

The network accumulates the gradients of a rank's microbatches. Then they are reduced over

    the tensor or spatial group   where each rank has processed part of the positions
    the stages                    that share weights, those of a tied embedding
    the replicas                  the data group

each exactly once. With ZeRO each replica owns a shard of the replicated state.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc import layout
from lib_dlhpc.layers.base.arena import Arena
from lib_dlhpc.layers.base.saved import Array, Shapes, Tensors
from lib_dlhpc.layers.base.slices import part_of
from lib_dlhpc.schedules.ring_collectives import InFlight
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.collectives import PIECE, allreduce_in_place, allreduce_of
from lib_dlhpc.training.exchange import Exchange, bounds_of, exchange_of
from lib_dlhpc.training.full_tensors import Piece, parts_by_name
from lib_dlhpc.training.groups import Groups, duplicated
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.offload import offloaded
from lib_dlhpc.training.optimizers import MEMORIES, RULES, Optimizer
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.sharding import Sharding
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.weights import Parameter
from lib_dlhpc.training.zero import Shards

GROUPS = ("tensor", "spatial")


@dataclass
class Own:
    """A contiguous slice of this rank's shard, updated by its optimizer."""

    weights: Array
    gradients: Array
    parameters: list[Parameter]
    place: slice  # in the shard


class Stage:
    """One of this rank's stages; `stack` closes its resources."""

    def __init__(
        self,
        experiment: Experiment,
        part: layout.Part,
        groups: Groups,
        precision: Any,
        recorder: Recorder,
        stack: ExitStack,
        folder: Path,
        arena: Arena | None = None,
    ) -> None:
        """folder: on the disk, for what is offloaded. arena: memory that this rank's stages share."""
        strategy = experiment.strategy
        self.part, self.groups, self.recorder = part, groups, recorder
        # The network itself gives a tied layer without its embedding the table.
        layers = tuple(layer for layer in part.model.layers if layer.kind != "table")
        self.model = replace(part.model, layers=layers)
        self.parts = parts_by_name(part.model.layers)
        self.level = int(strategy.zero) if groups.data.size > 1 else 0
        self.elements = float(strategy.bucket) / np.dtype(precision).itemsize  # of a bucket
        self.on_disk = strategy.offload == "all"
        self.apart = self.on_disk or self.level >= 2  # gradients have no full array
        self.optimizer = Optimizer(strategy.optimizer, experiment.training)
        self.optimizer.whole = self._whole_squares
        options = stack.enter_context(offloaded(strategy.offload, folder, self.optimizer))
        if self.level >= 2:
            options["store"] = self._shards(stack.enter_context(duplicated(groups.data)))
        options |= {"recompute": strategy.recompute, "arena": arena, "whole": experiment.model}
        seed = experiment.run.seed
        self.network = Network(self.model, precision, seed, part.sends, **options)
        context = self.network.context
        context.communicates = recorder.communicates
        context.groups = {"tensor": groups.tensor, "spatial": groups.spatial}
        if experiment.training.normalization == "global" and groups.data.size > 1:
            context.sum_over_ranks = self._sum_over_data
        if self.on_disk:
            self.store.complete = self._complete
        self.sharding = self._sharding()
        self.own = [] if self.on_disk else list(self._own())
        if not self.on_disk:
            memories, kind = MEMORIES[self.optimizer.name], self.network.dtype
            self.optimizer.state = {name: np.zeros(self.sharding.size, kind) for name in memories}
        self.exchange = self._exchange(experiment, stack)
        self.reads = any("input" in layer.inputs for layer in layers)
        self.last = not part.sends

    def _shards(self, comm: Any) -> Any:
        """Return the factory of the weights' storage with ZeRO 2 and 3."""
        return partial(
            Shards,
            level=self.level,
            comm=comm,
            buckets=partial(self._buckets, self.elements),
            summed=self._sum_layer,
            recorder=self.recorder,
        )

    @property
    def store(self) -> Any:
        """The weight storage: InMemory, Shards or OnDisk."""
        return self.network.store

    def number_buckets(self, first: int) -> int:
        """Number this stage's buckets from `first` on, for the timeline; return the number of the next."""
        if self.level >= 2:
            self.store.first_bucket = first
            return first + len(self.store.buckets)
        self.exchange.first_bucket = first
        return first + len(self.exchange.bounds)

    def shapes(self, names: tuple[str, ...], samples: int) -> Shapes:
        """Return the shapes of a microbatch's outputs, in the layers' layout."""
        made = {layer.name: layer.output_shape for layer in self.model.layers}
        return {
            name: (*made[name], samples) if len(made[name]) >= 3 else (samples, *made[name])
            for name in names
        }

    def begin(self, step: int, batches: list[int], rate: float) -> None:
        """Begin a step with microbatches of these sizes."""
        self.network.context.step = step
        self.network.begin_step(batches)
        if self.on_disk:
            self.store.rate = rate

    def filled(self, start: int) -> None:
        """The gradients from `start` on are complete on this rank."""
        if not self.apart and self.level == 0:
            self.exchange.release(start)

    def reduce_replicas(self) -> None:
        """Reduce over the replicas and wait; reductions over other groups come before or after."""
        if self.on_disk:
            return
        if self.level == 0:
            begin = self.recorder.now()
            self.exchange.finish()
            self.recorder.add("wait", "wait for the exchange", begin, self.recorder.now())
        elif self.level == 1:
            flat = self.network.gradients
            with self.recorder.communicates("gradients", flat.nbytes):
                InFlight(self.sharding.reduce_scatter(flat, 0)).wait()
        else:
            self.store.finish()

    def reduce_groups(self) -> None:
        """Reduce over the groups in which each rank has processed part of the positions."""
        if self.apart:  # reduced layer by layer
            return
        flat = self.network.gradients
        for group in GROUPS:
            wanted = [
                flat[p.start : p.stop]
                for p in self.network.parameters
                if group in self._over(p.layer)
            ]
            self._sum_over(group, wanted)

    def update(self, rate: float) -> None:
        """Update the weights that this rank owns; those on disk are already updated."""
        if self.on_disk:
            return
        self.optimizer.updates += 1
        for own in self.own:
            state = {name: memory[own.place] for name, memory in self.optimizer.state.items()}
            RULES[self.optimizer.name](replace(self.optimizer, state=state), own, rate)

    def gather_weights(self) -> None:
        """All-gather the updated weights over the replicas."""
        if self.level in (1, 2):
            flat = self._whole_weights()
            with self.recorder.communicates("weights", flat.nbytes):
                self.sharding.all_gather(flat)
        elif self.level == 3:
            self.store.forget()

    def views(self, name: str) -> Array:
        """Return the gradients of one tensor."""
        (p,) = self._named(name)
        return self.network.gradients[p.start : p.stop]

    def pieces(self, array: str, tensor: str) -> Iterator[Piece]:
        """Yield this rank's part of a tensor of "weights", or of an optimizer state.

        All ranks call this and consume all it yields; of replicated parts, one rank yields.
        """
        for p in self._named(tensor):
            values, part = self._values(array, p), self.parts.get(tensor)
            if self.groups.place.data == 0 and (part is not None or self.groups.first):
                yield Piece(tensor, part, values.reshape(p.shape))

    def statistics(self) -> Iterator[Piece]:
        """Yield this rank's part of each running statistic."""
        for layer, noun in zip(self.network.layers, self.model.layers, strict=True):
            for name, values in getattr(layer, "running", {}).items():
                full = f"{noun.name}.{name}"
                yield Piece(full, self.parts.get(full), values)

    def take_up(self, array: str, tensor: str, whole: Array) -> None:
        """Set this rank's part of a tensor."""
        for p in self._named(tensor):
            values = part_of(whole, self.parts.get(tensor)).reshape(-1)
            if self.on_disk:
                self.store.write(array, p.start, values)
            elif array == "weights" and self.level < 3:
                self._whole_weights()[p.start : p.stop] = values
            else:
                self.sharding.store(self._shard(array), p.start, values)

    def _named(self, tensor: str) -> list[Parameter]:
        return [p for p in self.network.parameters if p.name == tensor]

    def _values(self, array: str, p: Parameter) -> Array:
        """Return one tensor of this rank, all-gathered from the replicas' shards."""
        if self.on_disk:
            values: Array = self.store.read(array, p.start, p.stop)
            return values
        if array == "weights" and self.level < 3:
            return self._whole_weights()[p.start : p.stop]
        request, flat = self.sharding.gather(self._shard(array), p.start, p.stop)
        request.wait()
        return flat

    def _shard(self, array: str) -> Array:
        """Return this rank's shard of the weights, or of an optimizer state."""
        return self.store.weights if array == "weights" else self.optimizer.state[array]

    def _whole_weights(self) -> Array:
        """Return all weights, which every rank has below level 3."""
        return self.store.whole if self.level == 2 else self.network.weights

    def _buckets(self, elements: float, parameters: list[Parameter]) -> list[tuple[int, int]]:
        """Return the bounds of buckets of at least `elements` elements, last layer first.

        They begin with the same layers on all ranks of the tensor group, whose parts may be uneven: norms of a
        bucket's tensors are summed over the group.
        """
        bounds, tensor = bounds_of(parameters, elements), self.groups.tensor
        if tensor.size == 1:
            return bounds
        layer_at = {p.start: p.layer for p in reversed(parameters)}
        layers = tensor.bcast([layer_at[start] for start, _ in bounds])
        starts = [next(p.start for p in parameters if p.layer >= layer) for layer in layers]
        stops = [*(p.stop for p in parameters[-1:]), *starts]
        return list(zip(starts, stops, strict=False))

    def _sharding(self) -> Sharding:
        """Return the sharding of the update over replicas; at level 0 each updates all weights."""
        if self.level == 0:
            return Sharding([(0, self.network.table.size)], SingleRank())
        if self.level == 1:
            return Sharding(self._buckets(self.elements, self.network.parameters), self.groups.data)
        sharding: Sharding = self.store.sharding
        return sharding

    def _own(self) -> Iterator[Own]:
        """Yield what this rank updates: a part of each unit where it has all weights, else its shard."""
        parameters = self.network.parameters
        if self.level == 3:
            clipped, all_of_it = self.sharding.clipped(parameters), slice(0, self.sharding.size)
            yield Own(self.store.weights, self.store.gradients, clipped, all_of_it)
            return
        weights = self._whole_weights()
        for start, stop in self.sharding.units:
            own, place = self.sharding.own(start, stop), self.sharding.mine(start, stop)
            inside = [p for p in parameters if start <= p.start < stop]
            apart = self.level == 2
            gradients = self.store.gradients[place] if apart else self.network.gradients[own]
            yield Own(weights[own], gradients, self.sharding.clipped(inside, place.start), place)

    def _exchange(self, experiment: Experiment, stack: ExitStack) -> Exchange:
        """Return the allreduce over the replicas, without ZeRO."""
        none = self.apart or self.level
        gradients = np.empty(0) if none else self.network.gradients
        bounds = [] if none else bounds_of(self.network.parameters, self.elements)
        comm = stack.enter_context(duplicated(self.groups.data))
        return stack.enter_context(exchange_of(experiment, gradients, comm, self.recorder, bounds))

    def _sum_layer(self, index: int, gradients: Tensors) -> None:
        for group in self._over(index):
            self._sum_over(group, list(gradients.values()))

    def _complete(self, index: int, gradient: Array) -> None:
        """Allreduce a layer's gradients before its weights are updated on disk."""
        for group in self._over(index):
            self._sum_over(group, [gradient])
        if self.groups.data.size > 1:
            with self.recorder.communicates("gradients", gradient.nbytes):
                allreduce_in_place(self.groups.data, gradient)

    def _over(self, index: int) -> tuple[str, ...]:
        """Return the groups, beside the replicas, over which a layer's gradients are reduced."""
        return tuple(self.model.layers[index].attributes.get("sum", ()))

    def _sum_over(self, group: str, arrays: list[Array]) -> None:
        """Allreduce arrays over a group, in place, the small ones packed into one message."""
        comm = getattr(self.groups, group)
        if comm.size == 1 or not arrays:
            return
        with self.recorder.communicates(f"sum over {group}", sum(a.nbytes for a in arrays)):
            small = [array for array in arrays if array.nbytes < PIECE]
            for array in arrays:
                if array.nbytes >= PIECE:
                    allreduce_in_place(comm, array)
            if not small:
                return
            packed = np.concatenate([array.ravel() for array in small])
            allreduce_in_place(comm, packed)
        first = 0
        for array in small:
            array[...] = packed[first : first + array.size].reshape(array.shape)
            first += array.size

    def _sum_over_data(self, values: Array) -> Array:
        with self.recorder.communicates("sum over data", values.nbytes):
            return allreduce_of(self.groups.data)(values)

    def _whole_squares(self, squares: Array, names: list[str]) -> Array:
        """Sum squares over the shards, and over the tensor group for tensors partitioned there."""
        if self.level:
            squares = allreduce_of(self.groups.data)(squares)
        if self.groups.tensor.size > 1:
            split = np.array([name in self.parts for name in names], np.bool_)
            total = allreduce_of(self.groups.tensor)(np.where(split, squares, 0))
            squares = np.where(split, total, squares).astype(squares.dtype)
        return squares
