"""What the instructions of a program cost: layers by roofline or measured rate, collectives in closed form."""

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs import groups, roofline
from lib_dlhpc.costs.async_tp import cut_of
from lib_dlhpc.costs.compression import pair_bytes
from lib_dlhpc.costs.exchanges import weights_read
from lib_dlhpc.costs.link_occupancy import Busy, busy_links, pricing
from lib_dlhpc.costs.low_precision import SENT, casts_each_pass
from lib_dlhpc.costs.network import Cost, Network
from lib_dlhpc.costs.power_limit import clocked, slowed
from lib_dlhpc.costs.wire_format import BYTES, wire_format
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import ring_blocks
from lib_dlhpc.program import Collective, Compute, Group, Priced
from lib_dlhpc.program.instructions import (
    BLOCKS,
    NARROW,
    PAIRS,
    SAMPLES,
    SHIFT,
    WEIGHTS,
    WIDE,
    WIRE,
)
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model

NOTHING_BESIDE = (0.0, 0.0)


class CollectivePrices:
    """The cost of collectives of a scalar experiment; equal ones are priced once.

    samples: of a microbatch; an array of several gives arrays in the place of numbers.
    """

    def __init__(
        self, experiment: Experiment, groups_of: Mapping[str, Group], samples: Any
    ) -> None:
        strategy = experiment.strategy
        self.groups, self.samples = groups_of, samples
        weight = float(roofline.BYTES[strategy.precision])
        self.sample = samples * weight
        self.element = {  # B
            SAMPLES: self.sample,
            NARROW: samples * SENT,
            WIDE: samples * float(BYTES["fp32"]),
            WEIGHTS: weight,
            WIRE: float(BYTES[wire_format(strategy)]),
            PAIRS: float(pair_bytes(strategy.precision)),
        }
        self._known: dict[tuple[Any, ...], Priced] = {}

    def bytes(self, what: Collective) -> Any:
        """Return the bytes of the buffer."""
        return float(what.elements) * self.element[what.content]

    def priced(self, what: Collective) -> Priced:
        """Return the cost if all ranks start together, its total in s, and the bytes of the buffer."""
        key = (what.group, what.goal, what.elements, what.content, what.algorithm)
        price = self._known.get(key)
        if price is None:
            size = self.bytes(what)
            cost = self._cost(what, size)
            seconds = cost.total if np.ndim(cost.total) else float(cost.total)
            price = self._known[key] = Priced(cost, seconds, size)
        return price

    def busy(self, what: Collective, lane: int) -> Busy:
        """Return for how long it keeps links busy; lane: which of several numbers of samples."""
        size = self.bytes(what)
        size = float(size[lane]) if np.ndim(size) else size
        net = self.groups[what.group].network
        return _busy(what.goal, size, Keyed(net, id(net)), what.algorithm)

    def _cost(self, what: Collective, size: Any) -> Cost:
        net = self.groups[what.group].network
        sizes = Keyed(size, np.shape(size), np.asarray(size).tobytes())
        return _collective(what.goal, sizes, Keyed(net, id(net)), what.algorithm)


def collective_prices(
    experiment: Experiment, groups_of: Mapping[str, Group], samples: Any
) -> CollectivePrices:
    """Return the cost of collectives of a scalar experiment; experiments with the same sizes have the same."""
    s = experiment.strategy
    sizes = np.shape(samples), np.asarray(samples).tobytes(), s.precision, wire_format(s)
    return _collective_prices(Keyed((experiment, groups_of, samples), id(groups_of), *sizes))


@lru_cache(maxsize=512)
def _collective_prices(key: Keyed[tuple[Experiment, Mapping[str, Group], Any]]) -> CollectivePrices:
    return CollectivePrices(*key.value)


@lru_cache(maxsize=4096)
def _collective(goal: str, size: Keyed[Any], network: Keyed[Network], algorithm: str) -> Cost:
    return collective_cost(goal, size.value, network.value, algorithm)


@lru_cache(maxsize=4096)
def _busy(goal: str, size: float, network: Keyed[Network], algorithm: str) -> Busy:
    return busy_links(goal, size, network.value, algorithm)


def collective_cost(goal: str, size: Any, net: Network, algorithm: str) -> Cost:
    """Return the cost of a collective of `size` B on a network."""
    if np.ndim(size) == 0:
        return pricing(goal, size, net, algorithm)(net)
    if goal == "halo":
        return groups.halo_cost(net, size)
    if goal == SHIFT:
        return groups.shift_cost(net, size)
    if goal == "all_to_all":
        return groups.all_to_all(size, net)
    return groups.collective(goal, size, net, 1, algorithm)


def part_prices(
    experiment: Experiment,
    model: Model,
    scale: Any,
    collectives: CollectivePrices,
    exchanged: Any = 0.0,
    left: float = 1.0,
    beside: tuple[Any, Any] = NOTHING_BESIDE,
) -> "PartPrices":
    """Return the cost of the instructions of a part; see PartPrices. Equal parts have the same."""
    s, device = experiment.strategy, experiment.machine.device
    settings = (
        s.precision,
        float(s.power_limit),
        float(scale),
        int(s.tensor_pieces),
        s.tensor_overlap,
        left,
        casts_each_pass(s),
    )
    arrays = tuple(np.asarray(each, np.float64).tobytes() for each in (exchanged, *beside))
    inputs = (experiment, model, scale, collectives, exchanged, left, beside)
    return _part_prices(Keyed(inputs, *map(id, (model, device, collectives)), *settings, *arrays))


@lru_cache(maxsize=2048)
def _part_prices(
    key: Keyed[tuple[Experiment, Model, Any, CollectivePrices, Any, float, tuple[Any, Any]]],
) -> "PartPrices":
    return PartPrices(*key.value)


class PartPrices:
    """The cost of the instructions of one part; compute takes `scale` times the roofline."""

    def __init__(
        self,
        experiment: Experiment,
        model: Model,
        scale: Any,
        collectives: CollectivePrices,
        exchanged: Any = 0.0,
        left: float = 1.0,
        beside: tuple[Any, Any] = NOTHING_BESIDE,
    ) -> None:
        """exchanged: s after each layer in collectives that its pass waits for. left: the part of the device that does
        arithmetic while the rest serves messages. beside: s of each layer, forward and backward, in which the
        framework lets nothing else run."""
        strategy, device = experiment.strategy, experiment.machine.device
        batch = collectives.samples
        device = slowed(clocked(device, strategy.power_limit), left)
        unscaled = exchanged / scale if scale else 0.0
        self.cut = cut_of(model, int(strategy.tensor_pieces), strategy.tensor_overlap)
        how = strategy.precision, unscaled, self.cut, casts_each_pass(strategy)
        activities = roofline.layer_activities(model, device, batch, *how)
        times = roofline.total(activities)
        self.forward: Floats = scale * times.forward + beside[0]
        self.backward: Floats = scale * times.backward + beside[1]
        self._scale, self._each = scale, activities
        self.bytes, self.priced = collectives.bytes, collectives.priced
        self.groups = collectives.groups
        self.busy = collectives.busy
        self.weights, self.model, self._device = model.layer_trained, model, device
        self.batch, self.element = batch, roofline.BYTES[strategy.precision]

    @cached_property
    def blocks(self) -> Mapping[str, NDArray[np.int64]]:
        """The blocks in which each layer is computed, one for each rank of a ring, or pieces, by their phase."""
        rings = np.array([ring_blocks(layer) for layer in self.model.layers])
        ahead, back = rings * self.cut.forward, rings * self.cut.backward
        return dict(zip(BLOCKS, (ahead, back, back), strict=True))

    @cached_property
    def weight_grad(self) -> Floats:
        """The seconds of the weight gradients of layers that may compute them apart: half of backward, without the
        kernels beside its products."""
        splits = [layer.traits.splits_backward for layer in self.model.layers]
        beside = roofline.beside_backward(self.model, self._device, self.batch, self.element)
        return np.where(splits, (self.backward - self._scale * beside) / 2, 0.0)

    @cached_property
    def input_grad(self) -> Floats:
        """The rest of backward."""
        return self.backward - self.weight_grad

    @cached_property
    def forward_block(self) -> Floats:
        """The seconds of one of the blocks in which a layer is computed."""
        return self.forward / self.blocks["forward_block"]

    @cached_property
    def backward_block(self) -> Floats:
        """The seconds of one of the blocks of its backward."""
        return self.backward / self.blocks["backward_block"]

    @cached_property
    def input_grad_block(self) -> Floats:
        """The seconds of one of the blocks of its backward without weight gradients."""
        return self.input_grad / self.blocks["input_grad_block"]

    @cached_property
    def seconds(self) -> Mapping[str, list[float]]:
        """The seconds of each layer, by phase."""
        phases = ("forward", "backward", "input_grad", "weight_grad", *BLOCKS)
        return {phase: getattr(self, phase).tolist() for phase in phases}

    @cached_property
    def limited(self) -> Mapping[str, tuple[Floats, Floats]]:
        """The seconds of each layer that arithmetic and memory limit, of "forward" and "backward"."""
        return {
            phase: tuple(self._scale * getattr(activity, phase) for activity in self._each[:2])
            for phase in ("forward", "backward")
        }

    @property
    def weights_read(self) -> Sequence[int]:
        """Return the elements of the weights that each layer reads, its own or those that it is tied to."""
        return weights_read(self.model)

    def work(self, what: Compute) -> tuple[float, float]:
        """Return the FLOP of a computation, and the bytes that it reads and writes, without casts."""
        flop = self.batch * float(self.model.layer_forward_flop[what.layer])
        size = float(roofline.product_bytes(self.model, self.batch, self.element)[what.layer])
        backward = what.phase.startswith("backward")  # see costs/roofline.py
        times: float = self.model.layers[what.layer].gradients if backward else 1
        times /= self.blocks[what.phase][what.layer] if what.phase in BLOCKS else 1
        return times * flop, times * size
