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
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.costs.network import node_links
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.prediction.communication.collectives import Cost
from lib_dlhpc.prediction.explanation import Explanation, link_inputs, source_of
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown


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


def explain_waiting(p: "Breakdown") -> Explanation:
    """Return the explanation of the wait at the staleness bound."""
    e = p.experiment
    bound = int(e.strategy.staleness)
    jitter = source_of(p, "machine", "jitter")
    return Explanation(
        "waiting for the slowest",
        show(float(p.straggler_wait), "s"),
        "min((jitter × compute)² (1 + 1/2 + ... + 1/(p-1)) / (2 s T), compute × jitter × m_p / √(s+1)), with T"
        " a device's own step"
        if bound
        else "0: without a bound no device waits for another",
        (
            ("devices p", f"{int(e.devices)}", "given"),
            ("jitter, sigma over mean of a device's step", f"{e.machine.jitter:.1%}", jitter),
            ("steps ahead of the slowest s", f"{bound or 'any'}", "given"),
        ),
        "Ho et al. 2013 for the bound; its cost is derived in lib_dlhpc/costs/stragglers.py; Blom 1958 for m_p",
        "Step times of devices are independent and normally distributed; to first order in the jitter, and in the"
        " steady state, after about (s / jitter)² steps. A persistent straggler"
        " is not modeled: with a bound it slows all devices, without one only itself.",
    )


def explain_communication(p: "Breakdown") -> Explanation:
    """Return the explanation of push and pull, and of the servers' queue."""
    e, total = p.experiment, p.communication
    n = float(p.memory["weights"])
    return Explanation(
        "communication",
        show(float(total.total), "s"),
        "push and pull of a single device, (S + 1) (α + n/S β): the next shard is pushed while one is"
        " pulled; then the queue: the slowest of servers, their links and the nodes' links takes t per"
        " gradient, so W devices take max(T, W t) per step",
        (
            ("gradients, and weights, n", show(n, "B"), "parameters × bytes of the precision"),
            ("devices W", f"{int(e.devices)}", "given"),
            ("servers S, an equal shard each", f"{int(e.servers)}", "given"),
            *link_inputs(p, "inter_node", "between nodes"),
            ("NICs per node", f"{e.machine.nics}", source_of(p, "machine", "nics")),
            ("an update, on a server", show(float(p.update), "s"), "its shard of the parameters"),
            ("latency part", show(float(total.latency), "s"), "computed"),
            ("bandwidth part, queue included", show(float(total.bandwidth), "s"), "computed"),
            ("slowest station busy", f"{float(p.server_load):.0%}", "computed"),
        ),
        "Dean et al. 2012 (DistBelief); Denning & Buzen 1978 for the bound",
        "A bound: no run is faster; where the slowest station is nearly saturated, queues make it slower: simulate"
        " it. The servers are additional nodes, update on one device each, and"
        " exchange the same amount with every switch. Allreduce, bucket and overlap have no effect.",
    )


def explain_exposed(p: "Breakdown") -> Explanation:
    """Return the explanation of the exposed communication of a scalar prediction."""
    return Explanation(
        "exposed communication",
        show(float(p.exposed_communication), "s"),
        "all of the communication: a device pushes after backward and resumes computing after the pull",
        (("all communication", show(float(p.communication.total), "s"), "see above"),),
        "Dean et al. 2012 (DistBelief)",
        "A device does not prefetch weights.",
    )


def explain_staleness(p: "Breakdown") -> Explanation:
    """Return the explanation of the staleness of a gradient."""
    e = p.experiment
    bound = int(e.strategy.staleness)
    most = f"at most {(int(e.devices) - 1) * (2 * bound + 1):,}" if bound else "any number"
    return Explanation(
        "staleness",
        f"{float(p.staleness):,.0f} updates",
        "W - 1: while a device makes one update, each other device makes one",
        (
            ("devices W", f"{int(e.devices)}", "given"),
            ("of a single gradient", most, "(W - 1) (2 s + 1) with a bound s"),
        ),
        "Little's law; Zhang et al. 2016 (staleness-aware async-SGD)",
        "The mean in the steady state, for devices of equal speed. Its effect on accuracy is not modeled.",
    )
