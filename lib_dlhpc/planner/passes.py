"""The passes of an unsplit pipeline, of many sizes of a microbatch at once, from its program: what bounds are of."""

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import compute
from lib_dlhpc.costs.compute import Activities
from lib_dlhpc.costs.fp8 import SENT
from lib_dlhpc.costs.instruction_prices import collective_cost
from lib_dlhpc.costs.pieces import cut_of
from lib_dlhpc.costs.power import clocked, drawn
from lib_dlhpc.costs.segments import surely_repeated
from lib_dlhpc.costs.stored_activations import forward_bytes, stored_bytes
from lib_dlhpc.layout import Part, chain, cut_points, home_layers
from lib_dlhpc.planner.block_bound import Blocks, alike_blocks
from lib_dlhpc.program import Collective, Compute, Move, Program, Template
from lib_dlhpc.program.instructions import NARROW, SAMPLES, WIDE
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import EARLY_STOP, LIGHT, PER_OP

Floats = NDArray[np.float64]


class Passes:
    """An unsplit pipeline's pass forward and backward, for an array of samples; scale: (samples or 1, 1)."""

    def __init__(
        self, experiment: Experiment, step: Program, samples: Floats, scale: Floats, within: bool
    ) -> None:
        self.experiment, self.step, self.samples, self.scale = experiment, step, samples, scale
        self.within = within
        self.chunk = step.stages[0][0]
        self.size = float(compute.BYTES[experiment.strategy.precision])
        self._known: dict[tuple[object, ...], Floats] = {}

    @cached_property
    def layers(self) -> list[tuple[Activities, NDArray[np.intp] | tuple[int, ...]]]:
        """The seconds of each layer by what limits it, and the layers that are recomputed, by variant."""
        own, strategy, found = self.experiment.machine.device, self.experiment.strategy, []
        device = clocked(own, strategy.power_limit)
        for variant, template in enumerate(self.chunk.backward.variants):
            model = chain(self.experiment, variant)[0][0].model
            apart = self._apart(variant, len(model.layers))
            cut = cut_of(model, int(strategy.tensor_pieces), strategy.tensor_overlap)
            how = model, device, self.samples, strategy.precision, apart, cut
            again = self._repeated(model, template.repeated)
            found.append((compute.layer_activities(*how), again))
        return found

    def work(self) -> Floats:
        """Return the least of all variants: s of computation, forward, backward, J above idle, (4, samples)."""
        own, limit, found = self.experiment.machine.device, self.experiment.strategy.power_limit, []
        watts = np.array([drawn(own, limit, *each) for each in np.eye(2)]) - own.idle_power
        for each, again in self.layers:
            rows = [
                [self.scale[:, 0] * t.sum(axis=-1) for t in (*one, one[0][:, again])]
                for one in (*each[:2], compute.total(each))
            ]
            limited, seconds = np.array(rows[:2]), np.array(rows[2])
            joules = np.tensordot(watts, limited.sum(axis=1), 1)
            found.append([seconds.sum(axis=0), seconds[0], seconds[1:].sum(axis=0), joules])
        return np.min(found, axis=0)

    def blocks(self) -> Blocks:
        """Return the alike blocks between the places to cut, of the first variant: any rank of a stage bounds it."""
        (each, again), found = self.layers[0], list[Floats]()
        part = chain(self.experiment)[0][0]
        ahead, back = (self.scale * seconds for seconds in compute.total(each))
        back[:, again] += ahead[:, again]
        edges = cut_points(self.experiment.model, 1)
        starts = np.searchsorted(home_layers(self.experiment), edges[:-1])
        place = np.repeat(np.arange(len(starts)), np.diff(starts, append=ahead.shape[1])).tolist()
        for seconds, block in ((ahead, self.chunk.forward), (back, self.chunk.last)):
            exchanged = self._exchanged_inside(block.variants[0], place)
            found.append(np.add.reduceat(seconds, starts, axis=1) + exchanged)
        for one in (part.model.layer_trained, self._stored_inside(part, place)):
            found.append(np.add.reduceat(one, starts))
        return alike_blocks(*found)

    def _stored_inside(self, part: Part, place: list[int]) -> Floats:
        """Return the B of a sample of each layer that its stage stores wherever the network is cut between blocks."""
        one, model = self.experiment, part.model
        if not self.stored():
            return np.zeros(len(place))
        found = np.diff(forward_bytes(part, int(self.size), one.strategy.recompute), prepend=0.0)
        for at, layer in enumerate(model.layers):
            outside = any(place[each] != place[at] for each in model.readers.get(layer.name, ()))
            if outside or (layer.traits.tensor == "experts" and int(one.strategy.experts) > 1):
                found[at] = 0.0
        return found

    def _exchanged_inside(self, template: Template, place: list[int]) -> Floats:
        """Return the seconds of exchanges between two layers of one block, (samples, blocks); place: the block of each
        layer."""
        found = dict[int, tuple[Collective, list[int]]]()
        here, pending = -1, list[Collective]()
        for one in template.instructions:
            if isinstance(one, Compute):
                before, here = here, place[one.layer]
                for what in pending if before == here else ():
                    found.setdefault(id(what), (what, []))[1].append(here)
                pending = []
            elif isinstance(one, Collective) and not one.stream:
                pending.append(one)
        return sum(
            (
                self._seconds(what)[:, None] * np.bincount(at, minlength=place[-1] + 1)
                for what, at in found.values()
            ),
            np.zeros((len(self.samples), place[-1] + 1)),
        )

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
            np.max([self._of(each.messages, kind) for each in block.variants], axis=0)
            for block in (self.chunk.forward, self.chunk.last)
        ]

    def _of(self, messages: Iterable[tuple[Collective | Move, int]], kind: str) -> Floats:
        found = np.zeros(len(self.samples))
        for what, count in messages:
            if isinstance(what, Collective) and not what.stream and kind in ("", what.kind):
                found += count * self._seconds(what)
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
        key = what.group, what.goal, what.elements, what.of, what.algorithm
        if key not in self._known:
            fixed = self.chunk.forward.prices[0].bytes
            each = {SAMPLES: self.size, NARROW: SENT, WIDE: compute.BYTES["fp32"]}.get(what.of)
            sent = what.elements * self.samples * each if each else fixed(what)
            net = self.step.groups[what.group].network
            cost = collective_cost(what.goal, sent, net, what.algorithm)
            self._known[key] = np.broadcast_to(cost.total, self.samples.shape)
        return self._known[key]
