"""The way out of a device and back, and what moves on it when a network is trained out of core.

What layers keep goes out behind the forward pass and comes back before the backward pass; with "all", so
do weights, gradients and optimiser state: weights in before each pass, the sum of the gradients so far out
between two microbatches and in again, state in and out with the update, weights out. A layer's weights
move as soon as its gradient is complete, while they are still there: the last gradient never leaves (Awan et
al. 2018, "OC-DNN"; Pudipeddi et al. 2020; Rajbhandari et al. 2021, "ZeRO-Infinity"). Both directions of the
link to the host are full at once.
"""

from typing import NamedTuple

from lib_dlhpc.costs.compute import BYTES
from lib_dlhpc.costs.state import model_state_bytes
from lib_dlhpc.layout import sizes
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import storage_tier


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


def moves(experiment: Experiment, parameters: int, kept: float) -> Away:
    """Return what a rank with so many parameters moves; kept: B of activations that a microbatch leaves."""
    strategy = experiment.strategy
    if strategy.offload == "none":
        return Away()
    if strategy.offload == "activations":
        return Away(forward_out=kept, backward_in=kept)
    size = BYTES[strategy.precision]
    weights = parameters * size
    replicas = sizes(experiment).data if strategy.zero else 1
    state = model_state_bytes(parameters, strategy.precision, strategy.optimizer)
    state = (state - 2 * weights) / replicas
    many = strategy.microbatches
    so_far = weights * (many - 1) / many  # gradients, between one microbatch and the next
    return Away(
        forward_out=kept,
        forward_in=weights,
        backward_out=so_far,
        backward_in=kept + weights + so_far,
        update_out=state + weights,
        update_in=state,
    )
