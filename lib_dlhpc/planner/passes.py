"""The passes of an unsplit pipeline, of many sizes of a microbatch at once, from its program: what bounds are of."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs import roofline
from lib_dlhpc.costs.async_tp import cut_of
from lib_dlhpc.costs.groups import placements
from lib_dlhpc.costs.instruction_prices import collective_cost
from lib_dlhpc.costs.low_precision import SENT
from lib_dlhpc.costs.power_limit import clocked, drawn
from lib_dlhpc.costs.roofline import Activities
from lib_dlhpc.costs.segments import surely_repeated
from lib_dlhpc.costs.stored_activations import forward_bytes, stored_bytes
from lib_dlhpc.layout import chain, cut_points, home_layers
from lib_dlhpc.planner.block_bound import Blocks, alike_blocks
from lib_dlhpc.program import Collective, Compute, Program, Template
from lib_dlhpc.program.instructions import NARROW, SAMPLES, WIDE
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import EARLY_STOP, LIGHT, PER_OP


class Exchanges(NamedTuple):
    """Exchanges within a pass: s of each kind, (samples, kinds); and of each exchange the layers that are computed
    before and behind it, and its kind."""

    seconds: Floats
    before: NDArray[np.intp]
    behind: NDArray[np.intp]
    kind: NDArray[np.intp]

    def inside(self, place: NDArray[np.intp], places: int) -> Floats:
        """Return s of those that are between two layers of one place, (samples, places); place: of each layer."""
        at, kinds = place[self.behind], self.seconds.shape[1]
        same = (place[self.before] == at) & (self.before >= 0)
        number = self.kind[same] * places + at[same]
        return self.seconds @ np.bincount(number, minlength=kinds * places).reshape(kinds, places)


class Layers(NamedTuple):
    """Of each layer of an unsplit pipeline: s forward and backward, (samples, layers), and exchanges between layers;
    trained weights, but for those of experts that replicas share, and of these, (2, layers); B of a sample that it
    stores; the last layer that reads it; and the layer of the network that it serves."""

    samples: Floats
    forward: Floats
    backward: Floats
    ahead: Exchanges
    back: Exchanges
    weights: Floats
    stored: Floats
    last: NDArray[np.intp]
    homes: NDArray[np.intp]

    def between(self, ends: Sequence[int]) -> list[Floats]:
        """Return s forward and backward, (samples, stages), trained weights by who shares them, (2, stages), and B of a
        sample that are stored, of stages that end before these layers of the network."""
        stops = np.searchsorted(self.homes, ends)
        sizes = np.diff(stops, prepend=0)
        place, starts = (
            np.repeat(np.arange(len(ends)), sizes),
            np.minimum(stops - sizes, len(self.homes) - 1),
        )
        stored = np.where(place[self.last] == place, self.stored, 0.0)
        sums = [
            np.where(sizes > 0, np.add.reduceat(each, starts, axis=-1), 0.0)
            for each in (self.forward, self.backward, self.weights, stored)
        ]
        sums[0] += self.ahead.inside(place, len(ends))
        sums[1] += self.back.inside(place, len(ends))
        return sums


class Passes:
    """An unsplit pipeline's pass forward and backward, for an array of samples; scale: (samples or 1, 1)."""

    def __init__(
        self, experiment: Experiment, step: Program, samples: Floats, scale: Floats, within: bool
    ) -> None:
        self.experiment, self.step, self.samples, self.scale = experiment, step, samples, scale
        self.within = within
        self.chunk = step.stages[0][0]
        self.size = float(roofline.BYTES[experiment.strategy.precision])
        self._known: dict[tuple[object, ...], Floats] = {}

    @cached_property
    def layers(self) -> list[tuple[Activities, NDArray[np.intp] | tuple[int, ...]]]:
        """The seconds of each layer by what limits it, and the layers that are recomputed, by variant."""
        return [self._layers(index) for index in range(len(self.chunk.backward.variants))]

    def _layers(
        self, variant: int, waits: bool = True
    ) -> tuple[Activities, NDArray[np.intp] | tuple[int, ...]]:
        """Return the same of a variant; waits: whether layers wait for the host to issue them."""
        own, strategy = self.experiment.machine.device, self.experiment.strategy
        device = clocked(own if waits else replace(own, dispatch=0.0), strategy.power_limit)
        model = chain(self.experiment, variant)[0][0].model
        apart = self._apart(variant, len(model.layers)) if waits else np.zeros(1)
        cut = cut_of(model, int(strategy.tensor_pieces), strategy.tensor_overlap)
        how = model, device, self.samples, strategy.precision, apart, cut
        again = self._repeated(model, self.chunk.backward.variants[variant].repeated)
        return roofline.layer_activities(*how), again

    def work(self) -> Floats:
        """Return the least of all variants: s of computation, forward, backward, J above idle, (4, samples)."""
        own, limit, found = self.experiment.machine.device, self.experiment.strategy.power_limit, []
        watts = np.array([drawn(own, limit, *each) for each in np.eye(2)]) - own.idle_power
        for each, again in self.layers:
            rows = [
                [self.scale[:, 0] * t.sum(axis=-1) for t in (*one, one[0][:, again])]
                for one in (*each[:2], roofline.total(each))
            ]
            limited, seconds = np.array(rows[:2]), np.array(rows[2])
            joules = np.tensordot(watts, limited.sum(axis=1), 1)
            found.append([seconds.sum(axis=0), seconds[0], seconds[1:].sum(axis=0), joules])
        return np.min(found, axis=0)

    @cached_property
    def parts(self) -> "Layers":
        """What the layers of the first variant take in whatever stages they are: any rank of a stage bounds it."""
        # What the host has still to issue at the end of a stage delays another one.
        (each, again), model = self._layers(0, waits=False), chain(self.experiment)[0][0].model
        ahead, back = (self.scale * seconds for seconds in roofline.total(each))
        back[:, again] += ahead[:, again]
        read_by = (model.readers.get(layer.name, ()) for layer in model.layers)
        last = np.array([max(readers, default=index) for index, readers in enumerate(read_by)])
        exchanged = [
            self._between(one.variants[0]) for one in (self.chunk.forward, self.chunk.last)
        ]
        seconds = self.samples, ahead, back, exchanged[0], exchanged[1]
        homes, stored = np.array(home_layers(self.experiment)), self._stored_inside()
        return Layers(*seconds, self.weights, stored, last, homes)

    @cached_property
    def weights(self) -> Floats:
        """Trained weights of each layer, but for those of experts that replicas share, and of these, (2, layers)."""
        model = chain(self.experiment)[0][0].model
        shared = int(self.experiment.strategy.experts) > 1
        theirs = np.array([shared and layer.has_experts for layer in model.layers])
        return np.where(np.stack([~theirs, theirs]), model.layer_trained, 0.0)

    def blocks(self) -> Blocks:
        """Return the alike blocks between the places to cut."""
        return alike_blocks(*self.parts.between(cut_points(self.experiment.model, 1)[1:]))

    def _stored_inside(self) -> Floats:
        """Return the B of a sample of each layer that its stage stores if all that read it are in that stage."""
        one, part = self.experiment, chain(self.experiment)[0][0]
        if not self.stored():
            return np.zeros(len(part.model.layers))
        found = np.diff(forward_bytes(part, int(self.size), one.strategy.recompute), prepend=0.0)
        if int(one.strategy.experts) > 1:
            found[[layer.has_experts for layer in part.model.layers]] = 0.0
        return found

    def _between(self, template: Template) -> "Exchanges":
        """Return the exchanges of a pass that come between two layers."""
        found, kinds = list[tuple[int, int, int]](), dict[int, int]()
        here, pending, each = -1, list[Collective](), list[Floats]()
        for instruction in template.instructions:
            if isinstance(instruction, Compute):
                before, here = here, instruction.layer
                for what in pending:
                    if (number := kinds.setdefault(id(what), len(kinds))) == len(each):
                        each.append(self._seconds(what))
                    found.append((before, here, number))
                pending = []
            elif isinstance(instruction, Collective) and not instruction.stream:
                pending.append(instruction)
        seconds = np.array(each).reshape(len(each), len(self.samples)).T
        return Exchanges(seconds, *np.array(found, np.intp).reshape(-1, 3).T)

    def _repeated(
        self, model: Model, repeated: NDArray[np.intp]
    ) -> NDArray[np.intp] | tuple[int, ...]:
        """Return the layers that are recomputed wherever stages are cut: one that ends at an output may spare it."""
        how = self.experiment.strategy.recompute
        if how == LIGHT:  # the next stage stores the message
            return ()
        return surely_repeated(model, how, self.within) if how in (EARLY_STOP, PER_OP) else repeated

    def stored(self) -> float:
        """Return the least B of a sample that a variant stores; 0 where that depends on how stages are cut.

        Where experts are sharded, without theirs: the positions that a rank gets are not known here.
        """
        one, variants = self.experiment, range(len(self.chunk.backward.variants))
        how = one.strategy.recompute
        if self.within or (how in ("full", EARLY_STOP) and not one.model.has_blocks):
            return 0.0
        held = (chain(one, variant)[0][0] for variant in variants)
        whole = int(one.strategy.experts) == 1
        return min(stored_bytes(part, int(self.size), how, experts=whole) for part in held)

    def exchanged(self, kind: str = "") -> list[Floats]:
        """Return the seconds of exchanges, or those of a kind, within a forward and a backward pass of the variant with
        most."""
        return [
            np.max([self._of(variant, kind) for variant in block.variants], axis=0)
            for block in (self.chunk.forward, self.chunk.last)
        ]

    def _of(self, template: Template, kind: str) -> Floats:
        found = np.zeros(len(self.samples))
        for what, after in template.within:
            if kind in ("", what.kind):
                found += len(after) * self._seconds(what)
        return found

    def _apart(self, variant: int, layers: int) -> Floats:
        """Return the seconds after each layer of a forward pass in exchanges, at a scale of 1, (samples, layers).

        They matter where the host issues kernels one by one.
        """
        if not self.experiment.machine.device.dispatch:
            return np.zeros(1)
        found = np.zeros((len(self.samples), layers))
        for what, after in self.chunk.forward.variants[variant].within:
            found += self._seconds(what)[:, None] * np.bincount(after, minlength=layers)
        return found / np.where(self.scale > 0, self.scale, np.inf)

    def _seconds(self, what: Collective) -> Floats:
        key = what.group, what.goal, what.elements, what.content, what.algorithm
        if key not in self._known:
            fixed = self.chunk.forward.prices[0].bytes
            each = {SAMPLES: self.size, NARROW: SENT, WIDE: roofline.BYTES["fp32"]}.get(
                what.content
            )
            sent = what.elements * self.samples * each if each else fixed(what)
            group = self.step.groups[what.group]
            nets = placements(self.experiment, group.size, group.stride)
            costs = [collective_cost(what.goal, sent, net, what.algorithm).total for net in nets]
            self._known[key] = np.broadcast_to(np.min(costs or [0.0], axis=0), self.samples.shape)
        return self._known[key]
