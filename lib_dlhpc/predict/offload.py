"""Out of core: what waits outside of the device, how fast the way there must be, and what shows of it.

What layers keep goes out behind the forward pass and comes back before the backward pass; with "all", so
do weights, gradients and optimiser state, a layer at a time: weights in before each pass, gradients out
after it (and in again where microbatches add up), state in and out with the update. Fetched ahead, a pass
takes the longer of computing and moving (Awan et al. 2018, "OC-DNN"; Rajbhandari et al. 2021,
"ZeRO-Infinity"). Both directions of the link to the host are full at once.

Unified memory moves pages only when they are missed: each fault stops the device, and nothing is fetched
ahead. `paged_time` is our own bound for that, to compare with.
"""

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from lib_dlhpc.costs.compute import BYTES
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.layout import sizes
from lib_dlhpc.predict.memory import model_state_bytes
from lib_dlhpc.predict.sharding import NONE, Exchange
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import storage_tier
from lib_dlhpc.spec.model import Model

# A fault takes 20 to 50 us on a GPU (Zheng et al. 2016, "Towards high performance paged memory for GPUs").
PAGE_FAULT = 30e-6  # s
PAGE = 64 * 1024  # B; 2 MiB at the most


class Away(NamedTuple):
    """Bytes that move between a rank and the place where it lets things wait."""

    forward_out: float = 0.0  # of a microbatch, as the three after it
    forward_in: float = 0.0
    backward_out: float = 0.0
    backward_in: float = 0.0
    update_out: float = 0.0  # of a step
    update_in: float = 0.0

    def moved(self, microbatches: int) -> float:
        """Return the bytes of a step, both directions together."""
        passes = self.forward_out + self.forward_in + self.backward_out + self.backward_in
        return microbatches * passes + self.update_out + self.update_in


class Way(NamedTuple):
    """The way out of the device and back: B/s of one device in each direction, and room for all of a node."""

    out: float
    back: float
    latency: float
    room: float  # of one device

    def seconds(self, out: float, back: float) -> float:
        """Return what moving both takes."""
        return max(out / self.out, back / self.back) + self.latency * (out + back > 0)


@dataclass(frozen=True)
class Need:
    """What the offloading of the rank that moves most asks for, in a step."""

    moved: float  # B, both directions together
    required: float  # B/s at which nothing of it would show
    there: float  # B/s of the slower direction
    exposed: float  # s
    paged: float  # s if pages came one by one as they are missed, see paged_time


def way_out(experiment: Experiment) -> Way:
    """Return how a device reaches the place that strategy.offload_to names."""
    machine, devices = experiment.machine, int(experiment.devices_per_node)
    if experiment.strategy.offload_to == "host":
        link = machine.host_link
        rate = link.bandwidth * link.efficiency
        return Way(rate, rate, link.latency, machine.host_memory / devices)
    tier = storage_tier(machine, experiment.strategy.offload_to)
    sharing = devices if tier.scope == "node" else int(experiment.devices)
    write = min(tier.write_bandwidth, tier.bandwidth)
    return Way(write / sharing, tier.bandwidth / sharing, 0.0, tier.capacity / sharing)


def moves(experiment: Experiment, model: Model, kept: float) -> Away:
    """Return what a rank with the layers of `model` moves; kept: B of activations that a microbatch leaves."""
    strategy = experiment.strategy
    if strategy.offload == "none":
        return Away()
    if strategy.offload == "activations":
        return Away(forward_out=kept, backward_in=kept)
    size = BYTES[strategy.precision]
    weights = model.parameters * size
    replicas = sizes(experiment).data if strategy.zero else 1
    state = model_state_bytes(model.parameters, strategy.precision, strategy.optimizer)
    state = (state - 2 * weights) / replicas
    again = weights if strategy.microbatches > 1 else 0.0  # gradients so far
    return Away(
        forward_out=kept,
        forward_in=weights,
        backward_out=weights,
        backward_in=kept + weights + again,
        update_out=state + weights,
        update_in=state + weights,
    )


def in_a_pass(way: Way, out: float, back: float, seconds: float) -> Exchange:
    """Return what moving takes in a pass of `seconds`, and how much longer than the pass."""
    if not out and not back:
        return NONE
    takes = way.seconds(out, back)
    return Exchange(Cost(way.latency, takes - way.latency, 0.0), max(0.0, takes - seconds))


def need(experiment: Experiment, away: Away, passes: tuple[float, float], update: float) -> Need:
    """Return what would hide all of it, and what there is; s of a forward and a backward pass, and the update."""
    way, many = way_out(experiment), int(experiment.strategy.microbatches)
    required = late = 0.0
    for out, back, seconds, times in (
        (away.forward_out, away.forward_in, passes[0], many),
        (away.backward_out, away.backward_in, passes[1], many),
        (away.update_out, away.update_in, update, 1),
    ):
        required = max(required, max(out, back) / seconds)
        late += times * in_a_pass(way, out, back, seconds).exposed
    moved = away.moved(many)
    return Need(moved, required, min(way.out, way.back), late, paged_time(experiment, moved))


def paged_time(experiment: Experiment, moved: float, page: float = PAGE) -> float:
    """Return the s of moving `moved` bytes by page faults, one after another, none of it hidden."""
    way = way_out(experiment)
    return ceil(moved / page) * PAGE_FAULT + moved / min(way.out, way.back)
