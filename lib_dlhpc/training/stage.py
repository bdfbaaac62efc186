"""Stage: a part of the network on one rank: its weights, the collectives of its weights and gradients, its update.

The network accumulates the gradients of a rank's microbatches. Then a bucket at a time, as the program of the step
says, they are reduced over

    the tensor or spatial group   where each rank has processed part of the positions
    the replicas                  the data group; of experts those that hold the same ones
    the stages                    that share weights, those of a tied embedding (tied_weights.py)

each exactly once. With ZeRO each replica owns a shard of the replicated state.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc import layout
from lib_dlhpc.layers.base.arena import Arena
from lib_dlhpc.layers.base.saved import Array, Shapes
from lib_dlhpc.layers.base.slices import part_of
from lib_dlhpc.program import Collective, Instruction, Wait, gathers
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import FORWARD, Strategy
from lib_dlhpc.training.collectives import allreduce_in_place, allreduce_of, allreduce_packed
from lib_dlhpc.training.compress import compressed, plain
from lib_dlhpc.training.expert_exchange import GROUPS, expert_exchange, number_of
from lib_dlhpc.training.full_tensors import Piece, expert_tensors, parts_by_name
from lib_dlhpc.training.gathers import Gathers
from lib_dlhpc.training.gradient_allreduce import Exchange, exchange_of, range_of, scattering
from lib_dlhpc.training.groups import Groups, duplicated
from lib_dlhpc.training.low_rank import factoring
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.offload import offloaded
from lib_dlhpc.training.optimizers import MEMORIES, RULES, Optimizer
from lib_dlhpc.training.passes import Order
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.sharding import Sharding, cut_out
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.tensor_norms import whole_squares, whole_tensor
from lib_dlhpc.training.weights import Parameter
from lib_dlhpc.training.zero import Shards

EXCHANGE_WITHIN = ("tensor", "pieces", "spatial", "experts", "context")


@dataclass(frozen=True)
class StageProgram:
    """A stage's part of the program: its passes, and the layers (first, one past the last) of each bucket."""

    order: Order | None = None  # layer after layer
    buckets: Sequence[tuple[int, int]] = ()


@dataclass
class OptimizerShard:
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
        arena: Arena,
        program: StageProgram,
    ) -> None:
        """folder: on the disk, for what is offloaded. arena: memory that this rank's stages share."""
        strategy = experiment.strategy
        self.part, self.groups, self.recorder, self.program = part, groups, recorder, program
        self.beside: list[Stage] = []  # all stages of this rank, by chunk
        self.model, self.parts = part.model, parts_by_name(part.model.layers)
        self.experts = expert_tensors(part.model.layers)  # that replicas share out
        self.level = int(strategy.zero) if groups.shards.size > 1 else 0
        # Of its own, as several stages of a rank may have collectives in flight.
        self.replicas = stack.enter_context(duplicated(groups.data))
        self.shards = stack.enter_context(duplicated(groups.shards))
        self.copies = stack.enter_context(duplicated(groups.copies))
        self.alike = stack.enter_context(duplicated(groups.alike))
        self.once = self.level > 0 and strategy.gather == FORWARD  # weights are gathered
        self.on_disk = strategy.offload == "all"
        self.apart = self.on_disk or self.level >= 2  # gradients have no full array
        training, name = experiment.training, strategy.optimizer
        self.optimizer = plain(training) if training.sparsity else Optimizer(name, training)
        self.optimizer.whole = partial(whole_squares, groups, part.model.layers, self.level > 0)
        options = stack.enter_context(offloaded(strategy.offload, folder, self.optimizer))
        self.network = self._network(experiment, precision, arena, options)
        if self.on_disk:
            self.store.complete = self._complete
        self.sharding = self._sharding()
        if self.level:
            self.optimizer.gather = partial(whole_tensor, self.sharding, self.network.parameters)
        self.own: list[tuple[OptimizerShard, Optimizer]] = []
        if not self.on_disk:
            memories, kind = MEMORIES[self.optimizer.name], self.network.dtype
            self.optimizer.state = {name: np.zeros(self.sharding.size, kind) for name in memories}
            self.own = [(shard, self._optimizer_of(shard)) for shard in self._own()]
        self.exchange = stack.enter_context(self._exchange(experiment))
        self.gathers = Gathers(self.sharding, recorder)
        if self.once:
            self.network.progress = self.gathers.test
        self.reads, self.last = any("input" in x.inputs for x in self.model.layers), not part.sends
        stack.callback(self._release)

    def _release(self) -> None:
        """Break reference cycles: the memory of a run is freed at its end, not by a later garbage collection."""
        del self.network.post, self.beside
        self.own, self.optimizer.whole = [], lambda squares, names: squares

    def _network(
        self, experiment: Experiment, precision: Any, arena: Arena, options: dict[str, Any]
    ) -> Network:
        """Return the network; options: of what is offloaded."""
        if self.level >= 2:
            options["store"] = self._shards(experiment.strategy)
        options |= {"arena": arena, "whole": experiment.model, "order": self.program.order}
        options |= {"sends": self.part.sends, "pieces": int(experiment.strategy.tensor_pieces)}
        options["recompute"] = experiment.strategy.recompute
        network = Network(self.model, precision, experiment.run.seed, **options)
        network.post = self.post
        context, groups = network.context, self.groups
        context.communicates = self.recorder.communicates
        context.groups = {name: getattr(groups, name) for name in EXCHANGE_WITHIN}
        if experiment.training.normalization == "global" and groups.data.size > 1:
            context.sum_over_ranks = self._sum_over_data
        return network

    def _shards(self, strategy: Strategy) -> Any:
        """Return the factory of the weights' storage with ZeRO 2 and 3."""
        gathered_once = self.level == 3 and self.once
        return partial(
            Shards,
            level=self.level,
            comm=self.shards,
            copies=self.copies,
            layers=self.program.buckets,
            recorder=self.recorder,
            tables=self._tables,
            kept=gathered_once,
            by_layer=self.level == 3 and not gathered_once and strategy.zero_unit == "layer",
            alike=self.alike,
            experts=self.experts,
            order=self.program.order,
        )

    @property
    def store(self) -> Any:
        """The weight storage: InMemory, Shards or OnDisk."""
        return self.network.store

    def number_buckets(self, first: int) -> int:
        """Number this stage's buckets from `first` on, for the timeline; return the number of the next."""
        (self.store if self.level >= 2 else self.exchange).first_bucket = first
        return first + len(self.program.buckets)

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

    def post(self, what: Instruction) -> None:
        """Execute an instruction for weights or gradients; weights on disk are reduced a layer at a time."""
        if isinstance(what, Wait) and what.key:
            self.gathers.wait_for(what.key)
        elif isinstance(what, Wait):
            self.wait(what.label)
        elif isinstance(what, Collective) and not self.on_disk:
            chunk, first, stop = what.layers
            if gathers(what):
                self.beside[chunk].gather(what)
            elif what.group in (*GROUPS, "shards"):
                bucket = self.program.buckets.index((first, stop))
                place = self.store if self.level >= 2 else self.exchange
                place.post(number_of(bucket, what.group) if self.experts else bucket)
            elif what.group != "copies":  # those follow the reduce-scatter of the shards at once
                self.sum_over(what.group, first, stop)

    def gather(self, what: Collective) -> None:
        """Start to gather the weights of some layers of this stage."""
        _, first, stop = what.layers
        holders = self.alike if what.group == "alike" else self.shards
        if self.level == 3 and not self.once:
            return self.store.fetch(first, stop, holders)
        part = range_of(self.network.parameters, first, stop)
        flat = self.store.to_gather(*part) if self.level == 3 else self._whole_weights()
        return self.gathers.start(flat, part, what.key, holders)

    def wait(self, label: str) -> None:
        """Wait for all that was posted, recorded as a wait for `label`."""
        if self.gathers.busy:
            with self.recorder.communicates("weights", self._whole_weights().nbytes):
                self.gathers.wait()
        elif self.level >= 2:
            self.store.finish()
        else:
            begin = self.recorder.now()
            self.exchange.finish()
            self.recorder.add("wait", f"wait for {label}", begin, self.recorder.now())

    def sum_over(self, group: str, first: int, stop: int) -> None:
        """Sum the gradients of some layers over a group in which each rank has processed part of the positions."""
        inside = [p for p in self.network.parameters if first <= p.layer < stop]
        wanted = [p for p in inside if group in self._over(p.layer)]
        if self.level >= 2:
            return self._sum_over(group, self.store.views(wanted))
        return self._sum_over(group, [self.network.gradients[p.start : p.stop] for p in wanted])

    def update(self, rate: float) -> None:
        """Update the weights that this rank owns; those on disk are already updated."""
        if self.on_disk:
            return
        self.optimizer.updates += 1
        for shard, optimizer in self.own:
            optimizer.updates = self.optimizer.updates
            RULES[optimizer.name](optimizer, shard, rate)
        self.network.outdated = True
        if self.level == 3:
            self.store.forget()

    def views(self, name: str) -> Array:
        """Return the gradients of one tensor, or of this rank's shard of it."""
        (p,) = self._named(name)
        if self.level < 2:
            return self.network.gradients[p.start : p.stop]
        return np.asarray(self.store.gradients[self.sharding.mine(p.start, p.stop)])

    def pieces(self, array: str, tensor: str) -> Iterator[Piece]:
        """Yield this rank's part of a tensor of "weights", or of an optimizer state.

        All ranks call this and consume all it yields; of replicated parts, one rank yields.
        """
        for p in self._named(tensor):
            values, part = self._values(array, p), self.parts.get(tensor)
            holders = self.groups.experts.size if tensor in self.experts else 1
            if self.groups.place.data < holders and (part is not None or self.groups.first):
                yield Piece(tensor, part, values.reshape(p.shape))

    def statistics(self) -> Iterator[Piece]:
        """Yield this rank's part of each running statistic."""
        for layer, noun in zip(self.network.layers, self.model.layers, strict=True):
            for name, values in getattr(layer, "running", {}).items():
                full = f"{noun.name}.{name}"
                yield Piece(full, self.parts.get(full), values)

    def load_tensor(self, array: str, tensor: str, whole: Array) -> None:
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
            return np.asarray(self.store.read(array, p.start, p.stop))
        if array == "weights" and self.level < 3:
            if self.once and self.network.outdated:  # no forward pass has gathered them
                self.gathers.at_once(self._whole_weights())
                self.network.outdated = False
            return self._whole_weights()[p.start : p.stop]
        return self.sharding.gather(self._shard(array), p.start, p.stop)

    def _shard(self, array: str) -> Array:
        """Return this rank's shard of the weights, or of an optimizer state."""
        return self.store.weights if array == "weights" else self.optimizer.state[array]

    def _whole_weights(self) -> Array:
        """Return all weights, which every rank has below level 3."""
        return self.store.whole if self.level == 2 else self.network.weights

    def _buckets(self, parameters: list[Parameter]) -> list[tuple[int, int]]:
        """Return the bounds of the program's buckets, last layer first.

        They begin with the same layers on all ranks of the tensor group, whose parts may be uneven: norms of a
        bucket's tensors are summed over the group.
        """
        return [range_of(parameters, *layers) for layers in self.program.buckets]

    def _units(self, experts: list[Parameter]) -> list[tuple[int, int]]:
        """Return what ZeRO 1 shards: buckets, and alone tensors of experts, and tables that other stages shard as well.

        So both own the same rows when they swap the sums. Ranks of a tensor group have as many units, some empty.
        """
        tables = [p for name in self._tables for p in self._named(name)]
        return cut_out(self._buckets(self.network.parameters), [*tables, *experts])

    @property
    def _tables(self) -> list[str]:
        """The tensors that other stages have too."""
        return [f"{name}.weight" for name in self.part.shared]

    def _sharding(self) -> Sharding:
        """Return the sharding of the update over replicas; at level 0 each updates all weights."""
        if self.level == 0:
            return Sharding([(0, self.network.table.size)], SingleRank(), SingleRank())
        if self.level == 1:
            experts = [p for p in self.network.parameters if p.name in self.experts]
            return Sharding(self._units(experts), self.shards, self.copies, self.alike, experts)
        sharding: Sharding = self.store.sharding
        return sharding

    def _own(self) -> Iterator[OptimizerShard]:
        """Yield what this rank updates: a part of each unit where it has all weights, else its shard."""
        parameters = self.network.parameters
        if self.level == 3:
            clipped, all_of_it = self.sharding.clipped(parameters), slice(0, self.sharding.size)
            yield OptimizerShard(self.store.weights, self.store.gradients, clipped, all_of_it)
            return
        weights = self._whole_weights()
        for start, stop in self.sharding.units:
            unit, place = self.sharding.own(start, stop), self.sharding.mine(start, stop)
            inside = [p for p in parameters if start <= p.start < stop]
            sharded = self.level == 2
            gradients = self.store.gradients[place] if sharded else self.network.gradients[unit]
            clipped = self.sharding.clipped(inside, place.start)
            yield OptimizerShard(weights[unit], gradients, clipped, place)

    def _optimizer_of(self, shard: OptimizerShard) -> Optimizer:
        """Return the optimizer of a slice, whose state is part of the rank's."""
        state = {name: memory[shard.place] for name, memory in self.optimizer.state.items()}
        return replace(self.optimizer, state=state)

    def _exchange(self, experiment: Experiment) -> AbstractContextManager[Exchange]:
        """Return the exchange over the replicas of gradients, or of local weights, that have a full array."""
        comm, recorder, experts = self.replicas, self.recorder, self.experts
        if self.apart or (comm.size == 1 and not experiment.compressed):
            return exchange_of(experiment, np.empty(0), comm, recorder, [])
        if experiment.compressed:
            exchange = factoring if experiment.training.low_rank else compressed
            return exchange(experiment, self.network, self.optimizer, comm, recorder)
        if experts and self.level == 0:
            comms, flat = (comm, self.alike), self.network.gradients
            where = self.network.parameters, self.program.buckets
            return expert_exchange(experiment, flat, comms, recorder, *where, experts)
        bounds, flat = self._buckets(self.network.parameters), self.network.gradients
        if self.level == 1:
            owners = (self.shards, self.alike) if self.experts else (self.shards,)
            return nullcontext(scattering(self.sharding, owners, flat, bounds, recorder))
        if experiment.strategy.update == "local":
            flat = self.network.weights
        return exchange_of(experiment, flat, comm, recorder, bounds)

    def _complete(self, index: int, gradient: Array) -> None:
        """Allreduce a layer's gradients before its weights are updated on disk."""
        for group in self._over(index):
            self._sum_over(group, [gradient])
        sharded = "own" in self.model.layers[index].attributes
        replicas = self.groups.alike if sharded else self.groups.data
        if replicas.size > 1:
            with self.recorder.communicates("gradients", gradient.nbytes):
                allreduce_in_place(replicas, gradient)

    def _over(self, index: int) -> tuple[str, ...]:
        """Return the groups, beside the replicas, over which a layer's gradients are reduced."""
        return tuple(self.model.layers[index].attributes.get("sum", ()))

    def _sum_over(self, group: str, arrays: list[Array]) -> None:
        """Allreduce arrays over a group, in place."""
        comm = getattr(self.groups, group)
        if comm.size == 1 or not arrays:
            return
        with self.recorder.communicates(f"sum over {group}", sum(a.nbytes for a in arrays)):
            allreduce_packed(comm, arrays)

    def _sum_over_data(self, values: Array) -> Array:
        with self.recorder.communicates("sum over data", values.nbytes):
            return allreduce_of(self.groups.data)(values)
