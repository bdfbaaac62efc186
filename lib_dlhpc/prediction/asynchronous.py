"""Asynchronous updates: a device's own step, what the servers take at most, and how stale gradients get.

Each of W devices computes a gradient of n bytes, pushes it to S servers, an equal part each and one
after another, has it applied there, and pulls the weights; nobody waits for another device (Dean et al.
2012, "Large scale distributed deep networks"). Links are full-duplex, so that one part is pulled while the
next is pushed: alone, a step of a device takes

    T = compute + (S + 1) (alpha + n/S beta) + update/S

A server deals with one device at a time, and the NICs of a node with what all its devices push. The
slowest of these stations needs t seconds for each gradient, so W devices, each with one every T at most,
take

    max(T, W t)    t = max(alpha + n/S beta, update/S, n beta / nodes)

from step to step: the bound of operational analysis (Denning & Buzen 1978). No run is faster, and near
T = W t queues make it slower. While a device makes one update the others make one each: W - 1 updates
come between in the steady state (Little's law; Zhang et al. 2016, "Staleness-aware async-SGD").
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
    """What a gradient asks of the links and of the servers, in s; every value may be an array."""

    transfer: Cost  # push and pull of a device that is alone, without the update
    update: Any  # of a server's part of the parameters
    station: Any  # of the slowest station for each gradient: a server, its links or those of a node

    def waiting(self, own: Any, devices: Any) -> Any:
        """Return the s that a device waits a step for the slowest station; `own`: s of its step alone."""
        return np.maximum(devices * self.station - own, 0.0)


def service(experiment: Experiment, update: Any) -> Service:
    """Return the prices of a push, an update and a pull; `update`: s of one of all parameters.

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
    # How many NICs' worth gets through: of one node that is alone, of all of them, of the servers.
    alone, workers, held = (
        node_links(machine, some, nodes + servers - some) for some in (1, nodes, servers)
    )
    at_server, at_node = link.latency + n * beta / held, n * beta / workers
    return Service(
        transfer=Cost(
            (servers + 1) * link.latency, (servers + 1) / servers * n * beta / alone, 0.0
        ),
        update=update / servers,
        station=np.maximum(np.maximum(at_server, at_node), update / servers),
    )
