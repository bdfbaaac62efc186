"""Network: a Model that can be trained, or a stage of one, with several microbatches under way.

With all weights in one array and all gradients in another a gradient bucket is a slice. Weights stand in
the order of the layers, so backward, which runs from the last layer to the first, completes the array of
gradients from its end to its start.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from lib_dlhpc.costs.segments import Segment, segments
from lib_dlhpc.spec.model import Model
from lib_dlhpc.training import graph
from lib_dlhpc.training.aside import Aside, Here
from lib_dlhpc.training.first import first_weights, statistics
from lib_dlhpc.training.graph import AGAIN, BACK, FORWARD
from lib_dlhpc.training.layers import KINDS, Context, Kept
from lib_dlhpc.training.layers.kept import Array, Tensors
from lib_dlhpc.training.layers.room import Room
from lib_dlhpc.training.passes import Pass
from lib_dlhpc.training.trainable import check_layers
from lib_dlhpc.training.weights import InMemory, Store, table_of

ALONE = "alone"  # the one pass under way of a network that is no stage
NOTHING: Mapping[str, Array] = {}


class Network:
    """The layers of a model, with their weights, gradients and running statistics.

    A whole network goes forward, then backward. A stage of a pipeline has layers of the kind "receive", whose
    outputs are given to it, and `sends` names the outputs that it gives away. It does in each step

        begin_step((4, 4, 3))           three microbatches, of so many samples
        run(slot, x, received)          forward, for each; slots are names, used again after their way back
        back(slot, dys)                 backward, for each, in any order that the slots allow

    and gradients are those of all microbatches together. Arrays between stages lie as layers hold them:
    samples last for images and volumes, first for all else.

    dtype: np.float32 or np.float64. seed: of the first weights. whole: the model that this is a part of.
    recompute: "none", "selective" or "full": which outputs backward makes again (costs/segments.py says how).
    store: makes what has the weights; with InMemory, `weights` and `gradients` are one flat array each.
    aside: makes what has the activations until their way back.
    room: memory that several stages of one rank share; each has its own by default.
    Raises SpecError for layers that can be priced but not trained.
    """

    weights: Array
    gradients: Array

    def __init__(
        self,
        model: Model,
        dtype: Any = np.float32,
        seed: int = 0,
        sends: Sequence[str] = (),
        whole: Model | None = None,
        recompute: str = "none",
        store: Callable[..., Store] = InMemory,
        aside: Callable[[Room], Here | Aside] = Here,
        room: Room | None = None,
    ) -> None:
        check_layers(model, sends)
        self.model, self.dtype, self.whole = model, np.dtype(dtype), whole or model
        self.sends = tuple(sends)
        self.gives = self.sends or (model.layers[-1].name,)
        self.receives = tuple(layer.name for layer in model.layers if layer.kind == "receive")
        self.layers = [KINDS[layer.kind](layer) for layer in model.layers]
        self.context = Context(seed=seed, room=room or Room())
        self.table = table_of(model, self.layers)
        self.parameters = self.table.parameters
        for parameter in self.table.adds:
            self.layers[parameter.layer].tied = True
        self.store = store(self.table, self.dtype, self.context.room)
        self.aside = aside(self.context.room)
        if isinstance(self.store, InMemory):
            self.weights, self.gradients = self.store.weights, self.store.gradients
        self.statistics = statistics(self.layers, self.dtype)
        found = segments(model, recompute)
        self._begins = {segment.first: segment for segment in found}
        self._ends = {segment.stop - 1: segment for segment in found}
        self._made_again = {at for segment in found for at in range(segment.first, segment.stop)}
        self._flags = graph.flags(model, self.sends, found)
        # A layer that receives is given what has its own name.
        self._inputs = [layer.inputs or (layer.name,) for layer in model.layers]
        self._read_last = graph.last_reads(model, self.sends)
        self._then = graph.next_weights(self.table, found)
        # Gathered once more rather than kept; what is kept on disk costs no memory.
        self._gathers = graph.gathers(model) if isinstance(self.aside, Here) else {}
        self._first = [
            min((p.start for p in sees.values() if p.layer == index), default=self.table.size)
            for index, sees in enumerate(self.table.of)
        ]
        self._passes: dict[Hashable, Pass] = {}
        self._to_run = self._to_go_back = 0
        first_weights(self.store, model, self.layers, self.whole, seed)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Return the last layer's output, samples first; it is the caller's until the next forward.

        x: (batch, *input_shape); only read, but backward reads it again, so leave it until then.
        """
        if training:
            self.begin_step((len(x),))
        (y,) = self.run(ALONE, x, training=training).values()
        return y

    def backward(self, dy: Array, done: Callable[[int], None] = lambda start: None) -> None:
        """Write all gradients of the batch that forward saw last; dy is overwritten.

        done(start): called whenever gradients[start:] is complete.
        Raises RuntimeError after a forward pass in evaluation, which keeps nothing, and when called twice.
        """
        self.back(ALONE, {self.gives[0]: dy}, done)

    def begin_step(self, batches: Sequence[int]) -> None:
        """Begin a step of so many microbatches, of so many samples each; those under way are given up.

        Steps with the same numbers run them and go back in the same order, so they find their memory planned.
        """
        for own in self._passes.values():
            own.clear()
            self.aside.drop(own.away)
        self._to_run = self._to_go_back = len(batches)
        self.store.begin(len(batches))
        self.context.room.begin((tuple(batches), True))

    def run(
        self,
        slot: Hashable,
        x: Array | None = None,
        received: Mapping[str, Array] = NOTHING,
        training: bool = True,
    ) -> dict[str, Array]:
        """Take a microbatch forward; return the outputs named in `sends`, or else the last layer's.

        x: the samples, where a layer reads them; left alone until the slot's way back. received: what the
        "receive" layers give; copied, so its memory is free when this returns. What is returned is to be read
        only, until the slot's way back; but the network's own output is samples first, and the caller's.
        Raises RuntimeError if the slot is under way, and for more microbatches than begin_step was told of.
        """
        own = self._passes[slot] = self._passes.get(slot) or self._new_pass()
        if training:
            if own.ready or not self._to_run:
                raise RuntimeError(
                    f"microbatch {slot}: {'is still under way' if own.ready else 'is one too many'};"
                    " a step begins with begin_step, and a slot is free when its microbatch has gone back."
                )
            self._to_run -= 1
        else:
            shapes = tuple(array.shape for array in received.values())
            self.context.room.begin((self.gives, None if x is None else x.shape, shapes, False))
        self.context.training = own.ready = training
        own.step, own.first_sample = self.context.step, self.context.first_sample
        outputs = self._forward(own, x, received)
        if self.sends:
            return {name: np.ascontiguousarray(outputs[name]) for name in self.sends}
        last = self.model.layers[-1]
        y = outputs.pop(last.name)
        if not graph.ends_overwritable(
            self.model
        ):  # losses write their gradient where the output was
            y = y.copy()
        return {last.name: np.moveaxis(y, -1, 0) if len(last.output_shape) >= 3 else y}

    def back(
        self,
        slot: Hashable,
        dys: dict[str, Array],
        done: Callable[[int], None] = lambda start: None,
    ) -> dict[str, Array]:
        """Take a microbatch back; return the gradients of what it received, which are the caller's.

        dys: the gradients of what `run` returned; it is emptied, so that nobody holds them longer than
        needed. Those of `sends` are copied; that of the network's own output is given up to it.
        done(start): called whenever gradients[start:] is complete, in the last to go back.
        Raises RuntimeError for a slot that is not under way in training.
        """
        own = self._passes.get(slot)
        if own is None or not own.ready:
            raise RuntimeError(
                "backward needs a forward pass in training; the last one evaluated, or has had its backward."
            )
        if {*dys} != {*self.gives}:
            raise RuntimeError(
                f"microbatch {slot}: gradients of {', '.join(dys) or 'nothing'} have come; of"
                f" {', '.join(self.gives)} they are needed."
            )
        own.ready = False
        self._to_go_back -= 1
        last = not self._to_go_back
        self.context.training = True
        self.context.step, self.context.first_sample = own.step, own.first_sample
        self.store.back(last)
        pending = self._incoming(dys)
        start = self.table.size
        for index in reversed(range(len(self.layers))):
            self._back(index, own, pending)
            if last and self._first[index] < start:
                start = self._first[index]
                done(start)
        return {name: np.ascontiguousarray(pending.pop(name)) for name in self.receives}

    def first_without_numbers(
        self, x: Array | None, received: Mapping[str, Array] = NOTHING
    ) -> str:
        """Return the first layer whose output holds infinity or no number, or what else is wrong."""
        found: list[str] = []

        def look(index: int, y: Array) -> None:
            if not found and not np.isfinite(y).all():
                layer = self.model.layers[index]
                found.append(f"{layer.name} ({layer.kind})")

        self._forward(self._new_pass(), x, received, look)
        return found[0] if found else "the loss"

    def _new_pass(self) -> Pass:
        return Pass([Kept(self.context, *flags) for flags in self._flags])

    def _forward(
        self,
        own: Pass,
        x: Array | None,
        received: Mapping[str, Array],
        look: Callable[[int, Array], None] | None = None,
    ) -> dict[str, Array]:
        """Return what nobody has read yet; let go of what no layer will read any more."""
        outputs = {}
        if x is not None:
            outputs["input"] = np.moveaxis(x, 0, -1) if len(self.model.input_shape) >= 3 else x
        keeps = self.context.training and look is None
        for index, layer in enumerate(self.model.layers):
            if index in self._begins and keeps:
                own.held[index] = {name: outputs[name] for name in self._begins[index].reads}
                self.aside.put(own.away, (AGAIN, index), own.held[index], x)
            given = received if layer.kind == "receive" else outputs
            outputs[layer.name] = self._one(FORWARD, index, own.kept[index], given)
            if not keeps or index in self._made_again:
                own.kept[index].values.clear()
            else:
                if self._inputs[index][0] in self._gathers:
                    del own.kept[index].values["x"]
                self.aside.put(own.away, (BACK, index), own.kept[index].values, x)
            for name in self._read_last[index]:
                del outputs[name]
            if look is not None:
                look(index, outputs[layer.name])
        return outputs

    def _again(self, segment: Segment, own: Pass) -> None:
        """Make a segment's forward pass again, and keep what its backward pass needs."""
        self.aside.get(own.away, (AGAIN, segment.first), own.held[segment.first])
        outputs, self.context.again = own.held.pop(segment.first), True
        for index in range(segment.first, segment.stop):
            name = self.model.layers[index].name
            outputs[name] = self._one(AGAIN, index, own.kept[index], outputs)
            for name in self._read_last[index]:
                outputs.pop(name, None)
        self.context.again = False

    def _one(self, visit: str, index: int, kept: Kept, given: Mapping[str, Array]) -> Array:
        """Return the output of one layer."""
        layer, inputs = self.layers[index], (given[name] for name in self._inputs[index])
        if not self.table.of[index]:
            return layer.forward(NOTHING, kept, *inputs)
        y = layer.forward(self._take(visit, index), kept, *inputs)
        self.store.let_go(index)
        return y

    def _incoming(self, dys: dict[str, Array]) -> dict[str, Array]:
        """Take the gradients of what was given away, into memory of the network's own."""
        pending = {}
        for name in self.gives:
            dy = dys.pop(name)
            if self.sends:
                pending[name] = self.context.room.array(dy.shape, dy.dtype)
                pending[name][...] = dy
            else:
                images = len(self.model.layers[-1].output_shape) >= 3
                pending[name] = np.ascontiguousarray(np.moveaxis(dy, 0, -1)) if images else dy
        return pending

    def _back(self, index: int, own: Pass, pending: dict[str, Array]) -> None:
        """Take one layer's gradient out of `pending`, and add what it gives to those of its inputs."""
        kept = own.kept[index]
        if index in self._ends:
            self._again(self._ends[index], own)
        self.aside.get(own.away, (BACK, index), kept.values)
        dy = pending.pop(self.model.layers[index].name)
        if self._inputs[index][0] in self._gathers and "x" not in kept.values:
            place = self._gathers[self._inputs[index][0]]
            kept.values["x"] = self.layers[place].again(own.kept[place])
        if self.table.of[index]:
            weights, gradients = self._take(BACK, index), self.store.target(index)
            dx = self.layers[index].backward(weights, gradients, kept, dy)
            self.store.written(index)
            self.store.let_go(index)
        else:
            dx = self.layers[index].backward(NOTHING, NOTHING, kept, dy)
        kept.values.clear()
        parts = dx if isinstance(dx, tuple) else (dx,)
        for name, part in zip(self._inputs[index], parts, strict=True):
            if name == "input" or part is None:
                continue
            if name in pending:
                pending[name] += part
            else:
                pending[name] = part

    def _take(self, visit: str, index: int) -> Tensors:
        then = self._then.get((visit, index))
        if not self.context.training and then is not None and then <= index:
            then = None  # nothing goes back
        return self.store.take(index, then)
