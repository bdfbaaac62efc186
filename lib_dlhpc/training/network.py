"""Network: a Model that can be trained, or a stage of one, with several microbatches in flight.

All weights lie in one flat array and all gradients in another, so a gradient bucket is a slice. Weights are in
layer order; backward runs from the last layer to the first and so completes the gradients from the end of the
array to its start.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from lib_dlhpc.costs.segments import segments
from lib_dlhpc.layers import Context, Saved
from lib_dlhpc.layers.base.arena import Arena
from lib_dlhpc.layers.base.saved import Array, Tensors
from lib_dlhpc.program import Compute, Instruction
from lib_dlhpc.spec.model import Model
from lib_dlhpc.training import graph
from lib_dlhpc.training.activation_offload import ActivationOffload, NoOffload
from lib_dlhpc.training.graph import BACK, FORWARD, RECOMPUTE
from lib_dlhpc.training.initialization import initial_weights, statistics
from lib_dlhpc.training.messages import built
from lib_dlhpc.training.messages.async_tp import in_pieces
from lib_dlhpc.training.passes import Order, Pass, layer_by_layer
from lib_dlhpc.training.trainable import check_layers
from lib_dlhpc.training.weights import InMemory, Store, table_of

SINGLE = "single"  # the single pass in flight of a network that is not a stage
NOTHING: Mapping[str, Array] = {}
GATHERED = "gathered again"  # in backward, instead of a saved input


class Network:
    """The layers of a model, with their weights, gradients and running statistics.

    A full network runs forward, then backward. A pipeline stage has layers of the kind "receive" for its
    inputs, and `sends` names its outputs to later stages. In each step it calls

        begin_step((4, 4, 3))           three microbatches of 4, 4 and 3 samples
        run(slot, x, received)          forward, for each; a slot is free again after its backward
        back(slot, dys)                 backward, for each, in any order that the slots allow
        backward_weights(slot)          after it the gradients of weights that the order leaves out of backward

    Gradients are accumulated over all microbatches. Arrays between stages keep the layers' layout:
    samples last for images and volumes, first for all others.

    dtype: np.float32 or np.float64. seed: of the initial weights. whole: the model that this is a part of.
    recompute: "none", "selective" or "full": which outputs backward recomputes (see costs/segments.py).
    store: factory of the weight storage; with InMemory, `weights` and `gradients` are one flat array each.
    offload: factory of the activation storage.
    arena: memory that several stages of one rank share; each has its own by default.
    pieces: see messages/async_tp.py.
    order: the instructions of a pass; layer after layer by default. `post` is called with those of other streams.
    Raises SpecError for layers that can be predicted but not trained.
    """

    weights: Array
    gradients: Array
    outdated = True  # weights that the first forward pass gathers
    post: Callable[[Instruction], None] = staticmethod(lambda what: None)
    progress: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self,
        model: Model,
        dtype: Any = np.float32,
        seed: int = 0,
        sends: Sequence[str] = (),
        whole: Model | None = None,
        recompute: str = "none",
        store: Callable[..., Store] = InMemory,
        offload: Callable[[Arena], NoOffload | ActivationOffload] = NoOffload,
        arena: Arena | None = None,
        order: Order | None = None,
        pieces: int = 1,
    ) -> None:
        check_layers(model, sends)
        self.model, self.dtype, self.whole = model, np.dtype(dtype), whole or model
        self.sends = tuple(sends)
        self.gives = self.sends or (model.layers[-1].name,)
        self.receives = tuple(layer.name for layer in model.layers if layer.kind == "receive")
        self.layers = [built(layer) for layer in model.layers]
        self.context = Context(seed=seed, arena=arena or Arena())
        self.table = table_of(model, self.layers)
        self.parameters = self.table.parameters
        for parameter in self.table.adds:
            self.layers[parameter.layer].tied = True
        self.layers = in_pieces(model, self.layers, pieces)
        self.store = store(self.table, self.dtype, self.context.arena)
        self.offload = offload(self.context.arena)
        if isinstance(self.store, InMemory):
            self.weights, self.gradients = self.store.weights, self.store.gradients
        self.statistics = statistics(self.layers, self.dtype)
        recomputed = segments(model, recompute)
        self._begins = {segment.first: segment for segment in recomputed}
        self.order = order or layer_by_layer(model, recompute)
        self._ends = {segment.stop - 1 for segment in recomputed}
        self._recomputed = {layer for s in recomputed for layer in range(s.first, s.stop)}
        self._flags = graph.flags(model, self.sends, recomputed)
        # A layer that receives reads the entry of its own name.
        self._inputs = [layer.inputs or (layer.name,) for layer in model.layers]
        self._read_last = graph.last_reads(model, self.sends)
        self._then = graph.next_weights(self.table, self.order)
        # All-gathered again in backward instead of saved; with offload they are saved on disk.
        self._gathers = graph.gathers(model) if isinstance(self.offload, NoOffload) else {}
        self._first = [
            min((p.start for p in sees.values() if p.layer == index), default=self.table.size)
            for index, sees in enumerate(self.table.of)
        ]
        self._passes: dict[Hashable, Pass] = {}
        self._to_run = self._to_go_back = self._pending_weights = 0
        initial_weights(self.store, model, self.layers, self.whole, seed)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Return the last layer's output, samples first; valid until the next forward.

        x: (batch, *input_shape); not modified; backward reads it again, keep it unchanged until then.
        """
        if training:
            self.begin_step((len(x),))
        (y,) = self.run(SINGLE, x, training=training).values()
        return y

    def backward(self, dy: Array, done: Callable[[int], None] = lambda start: None) -> None:
        """Compute all gradients of the last forward pass; dy is overwritten.

        done(start): called whenever gradients[start:] is complete.
        Raises RuntimeError after a forward pass in evaluation, which saves nothing, and when called twice.
        """
        self.back(SINGLE, {self.gives[0]: dy}, done)

    def begin_step(self, batches: Sequence[int]) -> None:
        """Begin a step with microbatches of these sizes; passes in flight are dropped.

        Steps with the same sizes must run in the same order, so that the planned memory fits them.
        """
        for state in self._passes.values():
            state.clear()
            self.offload.drop(state.offloaded)
        self._to_run = self._to_go_back = self._pending_weights = len(batches)
        self.outdated = True
        self.store.begin(len(batches))
        self.context.arena.begin((tuple(batches), True))

    def run(
        self,
        slot: Hashable,
        x: Array | None = None,
        received: Mapping[str, Array] = NOTHING,
        training: bool = True,
    ) -> dict[str, Array]:
        """Run a microbatch forward; return the outputs named in `sends`, or else the last layer's.

        x: the samples, where a layer reads them; keep it unchanged until the slot's backward. received: inputs of
        the "receive" layers; copied, so their memory is free on return. The returned arrays are read-only
        until the slot's backward; the network's own output is samples first and owned by the caller.
        Raises RuntimeError if the slot is in flight, and for more microbatches than begin_step announced.
        """
        state = self._passes[slot] = self._passes.get(slot) or self._new_pass()
        if training:
            if state.ready or not self._to_run:
                raise RuntimeError(
                    f"microbatch {slot}: {'is still in flight' if state.ready else 'is one too many'};"
                    " a step begins with begin_step, and a slot is free after its backward."
                )
            self._to_run -= 1
        else:
            shapes = tuple(array.shape for array in received.values())
            self.context.arena.begin((self.gives, None if x is None else x.shape, shapes, False))
        self.context.training = state.ready = training
        state.step, state.first_sample = self.context.step, self.context.first_sample
        outputs = self._forward(state, x, received)
        if self.sends:
            return {name: np.ascontiguousarray(outputs[name]) for name in self.sends}
        last = self.model.layers[-1]
        y = outputs.pop(last.name)
        # Losses overwrite the output with their gradient.
        if not graph.ends_overwritable(self.model):
            y = y.copy()
        return {last.name: np.moveaxis(y, -1, 0) if len(last.output_shape) >= 3 else y}

    def back(
        self,
        slot: Hashable,
        dys: dict[str, Array],
        done: Callable[[int], None] = lambda start: None,
    ) -> dict[str, Array]:
        """Run a microbatch backward; return the gradients of what it received, owned by the caller.

        dys: the gradients of what `run` returned; it is emptied, so that their memory is released early. Those
        of `sends` are copied, that of the network's own output is overwritten.
        done(start): called whenever gradients[start:] is complete, in the last backward of the step.
        Raises RuntimeError for a slot without a forward pass in training.
        """
        state = self._passes.get(slot)
        if state is None or not state.ready:
            raise RuntimeError(
                "backward needs a forward pass in training; the last one was an evaluation, or its backward is done."
            )
        if {*dys} != {*self.gives}:
            raise RuntimeError(
                f"microbatch {slot}: received gradients of {', '.join(dys) or 'nothing'};"
                f" expected those of {', '.join(self.gives)}."
            )
        state.ready = False
        self._to_go_back -= 1
        last = self.order.weights is None and not self._to_go_back
        self.context.training = True
        self.context.step, self.context.first_sample = state.step, state.first_sample
        self.store.back(last)
        pending = self._incoming(dys)
        start = self.table.size
        for what in self.order.last if last else self.order.backward:
            if not isinstance(what, Compute):
                self.post(what)
                continue
            index = what.layer
            if what.phase == "forward":
                self._recompute(index, state)
                continue
            self._back(index, state, pending, what.phase == "input_grad")
            if last and self._first[index] < start:
                start = self._first[index]
                done(start)
        state.weights_pending = self.order.weights is not None
        return {name: np.ascontiguousarray(pending.pop(name)) for name in self.receives}

    def backward_weights(self, slot: Hashable) -> None:
        """Compute the weight gradients of a microbatch that its backward pass has left out.

        Raises RuntimeError unless the slot's backward pass has.
        """
        state = self._passes.get(slot)
        if self.order.weights is None or state is None or not state.weights_pending:
            raise RuntimeError(f"microbatch {slot}: no weight gradients are left to compute.")
        state.weights_pending = False
        self._pending_weights -= 1
        for what in self.order.weights if self._pending_weights else self.order.last:
            if isinstance(what, Compute):
                self._backward_weights(what.layer, state)
            else:
                self.post(what)
        for index in self._gathers.values():
            state.saved[index].values.clear()

    def first_non_finite(self, x: Array | None, received: Mapping[str, Array] = NOTHING) -> str:
        """Return the first layer whose output is not finite, else "the loss"."""
        names: list[str] = []

        def look(index: int, y: Array) -> None:
            if not names and not np.isfinite(y).all():
                layer = self.model.layers[index]
                names.append(f"{layer.name} ({layer.kind})")

        self._forward(self._new_pass(), x, received, look)
        return names[0] if names else "the loss"

    def _new_pass(self) -> Pass:
        return Pass([Saved(self.context, *flags) for flags in self._flags])

    def _forward(
        self,
        state: Pass,
        x: Array | None,
        received: Mapping[str, Array],
        look: Callable[[int, Array], None] | None = None,
    ) -> dict[str, Array]:
        """Return the unread outputs; release each output after its last reader."""
        outputs = {}
        if x is not None:
            outputs["input"] = np.moveaxis(x, 0, -1) if len(self.model.input_shape) >= 3 else x
        saved = self.context.training and look is None
        first, self.outdated = self.outdated and self.order.first, False
        for what in first or self.order.forward:
            if not isinstance(what, Compute):
                self.post(what)
                continue
            index, layer = what.layer, self.model.layers[what.layer]
            if index in self._begins and saved:
                state.held[index] = {name: outputs[name] for name in self._begins[index].reads}
                self.offload.put(state.offloaded, (RECOMPUTE, index), state.held[index], x)
            given = received if layer.kind == "receive" else outputs
            outputs[layer.name] = self._one(FORWARD, index, state.saved[index], given)
            if not saved or index in self._recomputed:
                state.saved[index].values.clear()
            else:
                if self._inputs[index][0] in self._gathers and "x" in state.saved[index].values:
                    state.saved[index].values["x"] = GATHERED
                self.offload.put(state.offloaded, (BACK, index), state.saved[index].values, x)
            self.progress()
            for name in self._read_last[index]:
                del outputs[name]
            if look is not None:
                look(index, outputs[layer.name])
        return outputs

    def _recompute(self, index: int, state: Pass) -> None:
        """Repeat the forward pass of a layer of a segment, and save what its backward pass needs."""
        if index in self._begins:
            self.offload.get(state.offloaded, (RECOMPUTE, index), state.held[index])
            state.again = state.held.pop(index)
        self.context.recomputing = True
        name = self.model.layers[index].name
        state.again[name] = self._one(RECOMPUTE, index, state.saved[index], state.again)
        self.context.recomputing = False
        for name in self._read_last[index]:
            state.again.pop(name, None)
        if index in self._ends:
            state.again = {}

    def _one(self, visit: str, index: int, saved: Saved, given: Mapping[str, Array]) -> Array:
        """Return the output of one layer."""
        layer, inputs = self.layers[index], (given[name] for name in self._inputs[index])
        if not self.table.of[index]:
            return layer.forward(NOTHING, saved, *inputs)
        y = layer.forward(self._take(visit, index), saved, *inputs)
        self.store.release(index)
        return y

    def _incoming(self, dys: dict[str, Array]) -> dict[str, Array]:
        """Copy the gradients of the sent outputs into the network's own memory."""
        pending = {}
        for name in self.gives:
            dy = dys.pop(name)
            if self.sends:
                pending[name] = self.context.arena.array(dy.shape, dy.dtype)
                pending[name][...] = dy
            else:
                images = len(self.model.layers[-1].output_shape) >= 3
                pending[name] = np.ascontiguousarray(np.moveaxis(dy, 0, -1)) if images else dy
        return pending

    def _back(
        self, index: int, state: Pass, pending: dict[str, Array], weights_later: bool = False
    ) -> None:
        """Run one layer backward: take its gradient from `pending`, add the gradients of its inputs."""
        saved = state.saved[index]
        self.offload.get(state.offloaded, (BACK, index), saved.values)
        dy = pending.pop(self.model.layers[index].name)
        saved.others = pending.get(self._inputs[index][0])
        completes = getattr(self.layers[index], "takes", "")  # what leaves while it is computed
        if completes:
            self.layers[index].others = pending.pop(completes, None)
        if weights_later:
            dx = self.layers[index].input_gradient(self._take(BACK, index), saved, dy)
            saved.others = None
            self.store.release(index)
            # Held no longer than its weight gradients need it.
            state.later[index] = None if self.model.layers[index].traits.own_operands else dy
            self._give(index, dx, pending)
            return
        self._gather_input(index, state)
        if self.table.of[index]:
            weights, gradients = self._take(BACK, index), self.store.target(index)
            dx = self.layers[index].backward(weights, gradients, saved, dy)
            self.store.written(index)
            self.store.release(index)
        else:
            dx = self.layers[index].backward(NOTHING, NOTHING, saved, dy)
        saved.others = None
        if self.order.weights is None or self.model.layers[index].name not in self._gathers:
            saved.values.clear()
        self._give(index, dx, pending)

    def _backward_weights(self, index: int, state: Pass) -> None:
        """Compute the weight gradients of a layer."""
        saved = state.saved[index]
        self._gather_input(index, state)
        self.layers[index].weight_gradient(self.store.target(index), saved, state.later.pop(index))
        self.store.written(index)
        saved.values.clear()

    def _gather_input(self, index: int, state: Pass) -> None:
        """Gather the input of a layer once more, where only this rank's share of it was kept."""
        if state.saved[index].values.get("x") is GATHERED:
            name = self._inputs[index][0]
            place = self._gathers[name]
            x = self.layers[place].gather_again(state.saved[place])
            for saved, reads in zip(state.saved, self._inputs, strict=True):
                if reads[0] == name and saved.values.get("x") is GATHERED:
                    saved.values["x"] = x  # once for all products that read it

    def _give(self, index: int, dx: Any, pending: dict[str, Array]) -> None:
        """Add the gradients of a layer's inputs to those that are pending."""
        parts = dx if isinstance(dx, tuple) else (dx,)
        for name, part in zip(self._inputs[index], parts, strict=True):
            if name == "input" or part is None or part is pending.get(name):
                continue
            if name in pending:
                pending[name] += part
            else:
                pending[name] = part

    def _take(self, visit: str, index: int) -> Tensors:
        return self.store.take(index, self._then.get((visit, index)))
