"""Asynchronous updates: the step of a single device, the servers' throughput limit, and gradient staleness.

Each of W devices computes a gradient of n bytes, pushes it to S servers, an equal shard each and one
after another, and pulls the updated weights; no device waits for another (Dean et al.
2012, "Large scale distributed deep networks"). Links are full-duplex, so one shard is pulled while the
next is pushed. Without contention, a step of a device takes

    T = compute + (S + 1) (alpha + n/S beta) + update/S

A server serves one device at a time, and the NICs of a node carry what all its devices push. The
slowest of these stations needs t seconds per gradient, so W devices, each with at most one every T,
take

    max(T, W t)    t = max(alpha + n/S beta, update/S, n beta / nodes)

per step: the bound of operational analysis (Denning & Buzen 1978). No run is faster, and near
T = W t queues make it slower. While a device makes one update, each other device makes one: staleness is
W - 1 updates in the steady state (Little's law; Zhang et al. 2016, "Staleness-aware async-SGD").
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.costs.compute import BYTES
from lib_dlhpc.costs.network import node_links
from lib_dlhpc.prediction.collectives import Cost
from lib_dlhpc.spec.experiment import Experiment


@dataclass(frozen=True)
class Service:
    """Service times of a gradient on links and servers, in s; every value may be an array."""

    transfer: Cost  # push and pull of a single device, without the update
    update: Any  # of a server's shard of the parameters
    station: Any  # of the slowest station for each gradient: a server, its links or those of a node

    def waiting(self, own: Any, devices: Any) -> Any:
        """Return the s that a device waits per step for the slowest station; `own`: s without contention."""
        return np.maximum(devices * self.station - own, 0.0)


def service(experiment: Experiment, update: Any) -> Service:
    """Return the service times of a push, an update and a pull; `update`: s to update all parameters.

    Raises SpecError on a torus.
    """
    machine, strategy, servers = (
        experiment.calibrated_machine,
        experiment.strategy,
        experiment.servers,
    )
    link, nodes = machine.inter_node, strategy.nodes
    beta = 1 / (link.bandwidth * link.efficiency * machine.nics)
    n = experiment.model.parameters * BYTES[strategy.precision]
    # Usable bandwidth in NICs: of a single node, of all nodes, of the servers.
    single, workers, served = (
        node_links(machine, some, nodes + servers - some) for some in (1, nodes, servers)
    )
    at_server, at_node = link.latency + n * beta / served, n * beta / workers
    return Service(
        transfer=Cost(
            (servers + 1) * link.latency, (servers + 1) / servers * n * beta / single, 0.0
        ),
        update=update / servers,
        station=np.maximum(np.maximum(at_server, at_node), update / servers),
    )
