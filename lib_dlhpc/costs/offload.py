"""The offload link of a device, and the traffic on it when a network is trained out of core.

Stored activations are offloaded during the forward pass and prefetched before the backward pass; with "all", so
are weights, gradients and optimizer state: weights in before each pass, the accumulated gradients out and in
between two microbatches, state in and out with the update, weights out. A layer is updated as soon as its
gradient is complete, while its weights are on the device: the last gradient is never offloaded (Awan et
al. 2018, "OC-DNN"; Pudipeddi et al. 2020; Rajbhandari et al. 2021, "ZeRO-Infinity"). The host link
is full duplex.
"""

from typing import NamedTuple

from lib_dlhpc.costs.model_state import model_state_bytes
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.layout import shards
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import storage_tier


class OffloadTraffic(NamedTuple):
    """Bytes that move between a rank and its offload target."""

    forward_out: float = 0.0  # of a microbatch, as the three after it
    forward_in: float = 0.0
    backward_out: float = 0.0
    backward_in: float = 0.0
    update_out: float = 0.0  # of a step
    update_in: float = 0.0

    def moved(self, microbatches: int) -> float:
        """Return the bytes of a step, both directions."""
        passes = self.forward_out + self.forward_in + self.backward_out + self.backward_in
        return microbatches * passes + self.update_out + self.update_in


class OffloadLink(NamedTuple):
    """The link of a device to its offload target: B/s in each direction, and capacity."""

    out: float
    back: float
    latency: float
    room: float  # B of one device

    def seconds(self, out: float, back: float) -> float:
        """Return the seconds to move both."""
        return max(out / self.out, back / self.back) + self.latency * (out + back > 0)


def offload_link(experiment: Experiment) -> OffloadLink:
    """Return the link of a device to strategy.offload_to."""
    machine, devices = experiment.machine, int(experiment.devices_per_node)
    if experiment.strategy.offload_to == "host":
        link = machine.host_link
        rate = link.bandwidth * link.efficiency
        return OffloadLink(rate, rate, link.latency, machine.host_memory / devices)
    tier = storage_tier(machine, experiment.strategy.offload_to)
    sharing = devices if tier.scope == "node" else int(experiment.devices)
    write = min(tier.write_bandwidth, tier.bandwidth)
    return OffloadLink(write / sharing, tier.bandwidth / sharing, 0.0, tier.capacity / sharing)


def offload_traffic(experiment: Experiment, parameters: int, kept: float) -> OffloadTraffic:
    """Return the traffic of a rank with `parameters`; kept: B of stored activations of a microbatch."""
    strategy = experiment.strategy
    if strategy.offload == "none":
        return OffloadTraffic()
    if strategy.offload == "activations":
        return OffloadTraffic(forward_out=kept, backward_in=kept)
    size = BYTES[strategy.precision]
    weights = parameters * size
    replicas = shards(experiment)
    state = model_state_bytes(parameters, strategy.precision, strategy.optimizer)
    state = (state - 2 * weights) / replicas
    many = strategy.microbatches
    so_far = weights * (many - 1) / many  # gradients, between one microbatch and the next
    return OffloadTraffic(
        forward_out=kept,
        forward_in=weights,
        backward_out=so_far,
        backward_in=kept + weights + so_far,
        update_out=state + weights,
        update_in=state,
    )
