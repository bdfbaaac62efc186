"""Stage: a part of the network on one rank: its weights, how their gradients are summed, how they move.

Gradients of a rank's microbatches are added up by the network. Then they are summed over

    the tensor or spatial group   where each rank has seen part of the positions
    the stages                    that have the same weights, those of a tied embedding
    the replicas                  the data group

and each sum is made exactly once. With ZeRO the replicas have a shard each of what they would all have.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc import layout
from lib_dlhpc.schedules.halves import UnderWay
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.alone import Alone
from lib_dlhpc.training.cut import Cut
from lib_dlhpc.training.exchange import Exchange, bounds_of, exchange_of
from lib_dlhpc.training.groups import Groups, doubled
from lib_dlhpc.training.layers.kept import Array, Shapes, Tensors
from lib_dlhpc.training.layers.room import Room
from lib_dlhpc.training.layers.slices import part_of
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.offload import offloaded
from lib_dlhpc.training.optimizers import MEMORIES, RULES, Optimizer
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.together import PIECE, add_up, sums
from lib_dlhpc.training.weights import Parameter
from lib_dlhpc.training.whole import Piece, parts_by_name
from lib_dlhpc.training.zero import Shards

GROUPS = ("tensor", "spatial")


@dataclass
class Own:
    """What of a network this rank moves: a part of its shard that is in one piece of memory."""

    weights: Array
    gradients: Array
    parameters: list[Parameter]
    place: slice  # in the shard


class Stage:
    """One of this rank's stages; `stack` ends what it has set up."""

    def __init__(
        self,
        experiment: Experiment,
        part: layout.Part,
        groups: Groups,
        precision: Any,
        recorder: Recorder,
        stack: ExitStack,
        folder: Path,
        room: Room | None = None,
    ) -> None:
        """folder: on the disk, for what is offloaded. room: memory that this rank's stages share."""
        strategy = experiment.strategy
        self.part, self.groups, self.recorder = part, groups, recorder
        # The network gives a tied layer without its embedding the table itself.
        layers = tuple(layer for layer in part.model.layers if layer.kind != "table")
        self.model = replace(part.model, layers=layers)
        self.parts = parts_by_name(part.model.layers)
        self.level = int(strategy.zero) if groups.data.size > 1 else 0
        self.elements = float(strategy.bucket) / np.dtype(precision).itemsize  # of a bucket
        self.on_disk = strategy.offload == "all"
        self.apart = self.on_disk or self.level >= 2  # gradients have no array of their own
        self.optimizer = Optimizer(strategy.optimizer, experiment.training)
        self.optimizer.whole = self._whole_squares
        options = stack.enter_context(offloaded(strategy.offload, folder, self.optimizer))
        if self.level >= 2:
            data = stack.enter_context(doubled(groups.data))
            options["store"] = partial(
                Shards, level=self.level, comm=data, buckets=partial(self._buckets, self.elements),
                summed=self._sum_layer, recorder=recorder,
            )  # fmt: skip
        self.network = Network(
            self.model,
            precision,
            experiment.run.seed,
            part.sends,
            whole=experiment.model,
            recompute=strategy.recompute,
            room=room,
            **options,
        )
        context = self.network.context
        context.groups = {"tensor": groups.tensor, "spatial": groups.spatial}
        context.communicates = recorder.communicates
        if experiment.training.normalisation == "global" and groups.data.size > 1:
            context.sum_over_ranks = self._sum_over_data
        if self.on_disk:
            self.store.complete = self._complete
        self.cut, self.own = self._cut(), list[Own]()
        if not self.on_disk:
            self.own = list(self._own())
            memories, kind = MEMORIES[self.optimizer.name], self.network.dtype
            self.optimizer.state = {name: np.zeros(self.cut.size, kind) for name in memories}
        self.exchange = self._exchange(experiment, stack)
        self.reads = any("input" in layer.inputs for layer in layers)
        self.last = not part.sends

    @property
    def store(self) -> Any:
        """What has the weights: InMemory, Shards or OnDisk."""
        return self.network.store

    def number_buckets(self, first: int) -> int:
        """Number this stage's buckets from `first` on, for the record; return the number of the next."""
        if self.level >= 2:
            self.store.first_bucket = first
            return first + len(self.store.buckets)
        self.exchange.first_bucket = first
        return first + len(self.exchange.bounds)

    def shapes(self, names: tuple[str, ...], samples: int) -> Shapes:
        """Return the shapes of a microbatch's outputs, as layers hold them."""
        made = {layer.name: layer.output_shape for layer in self.model.layers}
        return {
            name: (*made[name], samples) if len(made[name]) >= 3 else (samples, *made[name])
            for name in names
        }

    def begin(self, step: int, batches: list[int], rate: float) -> None:
        """Begin a step of so many samples in each microbatch."""
        self.network.context.step = step
        self.network.begin_step(batches)
        if self.on_disk:
            self.store.rate = rate

    def filled(self, start: int) -> None:
        """The gradients from `start` on are complete on this rank."""
        if not self.apart and self.level == 0:
            self.exchange.release(start)

    def reduce_replicas(self) -> None:
        """Sum over the replicas, and wait until it is done; what is summed elsewhere comes before or after."""
        if self.on_disk:
            return
        if self.level == 0:
            begin = self.recorder.now()
            self.exchange.finish()
            self.recorder.add("wait", "wait for the exchange", begin, self.recorder.now())
        elif self.level == 1:
            flat = self.network.gradients
            with self.recorder.communicates("gradients", flat.nbytes):
                UnderWay(self.cut.reduce_scatter(flat, 0)).wait()
        else:
            self.store.finish()

    def reduce_groups(self) -> None:
        """Sum over the groups of which each rank has seen part of the positions."""
        if self.apart:  # it is done layer by layer
            return
        flat = self.network.gradients
        for group in GROUPS:
            wanted = [
                flat[p.start : p.stop]
                for p in self.network.parameters
                if group in self._over(p.layer)
            ]
            self._sum_over(group, wanted)

    def move(self, rate: float) -> None:
        """Update the weights that are this rank's to move; those on disk have moved already."""
        if self.on_disk:
            return
        self.optimizer.updates += 1
        for own in self.own:
            state = {name: memory[own.place] for name, memory in self.optimizer.state.items()}
            RULES[self.optimizer.name](replace(self.optimizer, state=state), own, rate)

    def spread(self) -> None:
        """Give the replicas what has moved."""
        if self.level in (1, 2):
            flat = self._whole_weights()
            with self.recorder.communicates("weights", flat.nbytes):
                self.cut.spread(flat)
        elif self.level == 3:
            self.store.forget()

    def views(self, name: str) -> Array:
        """Return the gradients of one tensor."""
        (p,) = self._named(name)
        return self.network.gradients[p.start : p.stop]

    def pieces(self, array: str, tensor: str) -> Iterator[Piece]:
        """Yield this rank's part of a tensor of "weights", or of a memory of the optimiser.

        All ranks call this and take all it yields; of what several have, one yields.
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
                self.cut.keep(self._shard(array), p.start, values)

    def _named(self, tensor: str) -> list[Parameter]:
        return [p for p in self.network.parameters if p.name == tensor]

    def _values(self, array: str, p: Parameter) -> Array:
        """Return one tensor of this rank; replicas put it together from their shards."""
        if self.on_disk:
            values: Array = self.store.read(array, p.start, p.stop)
            return values
        if array == "weights" and self.level < 3:
            return self._whole_weights()[p.start : p.stop]
        under_way, flat = self.cut.gather(self._shard(array), p.start, p.stop)
        under_way.wait()
        return flat

    def _shard(self, array: str) -> Array:
        """Return what this rank has of the weights, or of a memory of the optimiser."""
        return self.store.weights if array == "weights" else self.optimizer.state[array]

    def _whole_weights(self) -> Array:
        """Return all weights, which every rank has below level 3."""
        return self.store.whole if self.level == 2 else self.network.weights

    def _buckets(self, elements: float, parameters: list[Parameter]) -> list[tuple[int, int]]:
        """Return the bounds of buckets of at least so many elements, last layer first.

        They begin with the same layers on all ranks of the tensor group, whose parts may be uneven: norms of a
        bucket's tensors are summed over them.
        """
        bounds, tensor = bounds_of(parameters, elements), self.groups.tensor
        if tensor.size == 1:
            return bounds
        layer_at = {p.start: p.layer for p in reversed(parameters)}
        layers = tensor.bcast([layer_at[start] for start, _ in bounds])
        starts = [next(p.start for p in parameters if p.layer >= layer) for layer in layers]
        stops = [*(p.stop for p in parameters[-1:]), *starts]
        return list(zip(starts, stops, strict=False))

    def _cut(self) -> Cut:
        """Return how replicas share out what they move; at level 0 each moves all."""
        if self.level == 0:
            return Cut([(0, self.network.table.size)], Alone())
        if self.level == 1:
            return Cut(self._buckets(self.elements, self.network.parameters), self.groups.data)
        cut: Cut = self.store.cut
        return cut

    def _own(self) -> Iterator[Own]:
        """Yield what this rank moves: a part of each unit where it has all weights, else its shard."""
        parameters = self.network.parameters
        if self.level == 3:
            clipped, all_of_it = self.cut.clipped(parameters), slice(0, self.cut.size)
            yield Own(self.store.weights, self.store.gradients, clipped, all_of_it)
            return
        weights = self._whole_weights()
        for start, stop in self.cut.units:
            own, place = self.cut.own(start, stop), self.cut.mine(start, stop)
            inside = [p for p in parameters if start <= p.start < stop]
            apart = self.level == 2
            gradients = self.store.gradients[place] if apart else self.network.gradients[own]
            yield Own(weights[own], gradients, self.cut.clipped(inside, place.start), place)

    def _exchange(self, experiment: Experiment, stack: ExitStack) -> Exchange:
        """The sums over the replicas where each has all gradients."""
        none = self.apart or self.level
        gradients = np.empty(0) if none else self.network.gradients
        bounds = [] if none else bounds_of(self.network.parameters, self.elements)
        comm = stack.enter_context(doubled(self.groups.data))
        return stack.enter_context(exchange_of(experiment, gradients, comm, self.recorder, bounds))

    def _sum_layer(self, index: int, gradients: Tensors) -> None:
        for group in self._over(index):
            self._sum_over(group, list(gradients.values()))

    def _complete(self, index: int, gradient: Array) -> None:
        """Sum a layer's gradients before its weights move on disk."""
        for group in self._over(index):
            self._sum_over(group, [gradient])
        if self.groups.data.size > 1:
            with self.recorder.communicates("gradients", gradient.nbytes):
                add_up(self.groups.data, gradient)

    def _over(self, index: int) -> tuple[str, ...]:
        """Return the groups over which a layer's gradients must be summed, beside the replicas."""
        return tuple(self.model.layers[index].attributes.get("sum", ()))

    def _sum_over(self, group: str, arrays: list[Array]) -> None:
        """Sum arrays over a group, in place, the small ones in one message."""
        comm = getattr(self.groups, group)
        if comm.size == 1 or not arrays:
            return
        with self.recorder.communicates(f"sum over {group}", sum(a.nbytes for a in arrays)):
            small = [array for array in arrays if array.nbytes < PIECE]
            for array in arrays:
                if array.nbytes >= PIECE:
                    add_up(comm, array)
            if not small:
                return
            packed = np.concatenate([array.ravel() for array in small])
            add_up(comm, packed)
        first = 0
        for array in small:
            array[...] = packed[first : first + array.size].reshape(array.shape)
            first += array.size

    def _sum_over_data(self, values: Array) -> Array:
        with self.recorder.communicates("sum over data", values.nbytes):
            return sums(self.groups.data)(values)

    def _whole_squares(self, squares: Array, names: list[str]) -> Array:
        """Sum squares over the shards, and those of tensors that are split over the tensor group."""
        if self.level:
            squares = sums(self.groups.data)(squares)
        if self.groups.tensor.size > 1:
            split = np.array([name in self.parts for name in names], np.bool_)
            total = sums(self.groups.tensor)(np.where(split, squares, 0))
            squares = np.where(split, total, squares).astype(squares.dtype)
        return squares
