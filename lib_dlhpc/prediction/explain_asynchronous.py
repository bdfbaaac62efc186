"""Asynchronous updates explained: wait states, the servers' limit, staleness."""

from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.explanation import Explanation, link_inputs, source_of
from lib_dlhpc.spec.units import format_quantity as show


def _straggler(p: Breakdown) -> Explanation:
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


def _communication(p: Breakdown) -> Explanation:
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
            ("NICs a node", f"{e.machine.nics}", source_of(p, "machine", "nics")),
            ("an update, on a server", show(float(p.update), "s"), "its shard of the parameters"),
            ("latency part", show(float(total.latency), "s"), "computed"),
            ("bandwidth part, queue included", show(float(total.bandwidth), "s"), "computed"),
            ("slowest station busy", f"{float(p.server_load):.0%}", "computed"),
        ),
        "Dean et al. 2012 (DistBelief); Denning & Buzen 1978 for the bound",
        "A bound: no run is faster; where the slowest station is nearly saturated, queues make it slower: see a"
        " simulation. The servers are additional nodes, update on one device each, and"
        " exchange as much with every switch. Allreduce, bucket and overlap have no effect.",
    )


def _exposed(p: Breakdown) -> Explanation:
    return Explanation(
        "exposed communication",
        show(float(p.exposed_communication), "s"),
        "all of the communication: a device pushes after backward and resumes computing after the pull",
        (("all communication", show(float(p.communication.total), "s"), "see above"),),
        "Dean et al. 2012 (DistBelief)",
        "A device does not prefetch weights.",
    )


def _staleness(p: Breakdown) -> Explanation:
    e = p.experiment
    bound = int(e.strategy.staleness)
    most = f"{(int(e.devices) - 1) * (2 * bound + 1):,} at most" if bound else "any number"
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


PARTS = (_straggler, _communication, _exposed, _staleness)
