"""The exchange of asynchronous updates opened: who waits for whom, the servers' limit, staleness."""

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
        else "0: without a bound nobody waits for another device",
        (
            ("devices p", f"{int(e.devices)}", "given"),
            ("jitter, sigma over mean of a device's step", f"{e.machine.jitter:.1%}", jitter),
            ("steps ahead of the slowest s", f"{bound or 'any'}", "given"),
        ),
        "Ho et al. 2013 for the bound; its price is derived in lib_dlhpc/costs/stragglers.py; Blom 1958 for m_p",
        "Devices vary independently and normally from step to step; to first order in the jitter, and once they"
        " have wandered apart, after some (s / jitter)² steps. A device"
        " that is always slow is not in it: with a bound it sets everyone's pace, without one only its own.",
    )


def _communication(p: Breakdown) -> Explanation:
    e, total = p.experiment, p.communication
    n = float(p.memory["weights"])
    return Explanation(
        "communication",
        show(float(total.total), "s"),
        "push and pull of a device that is alone, (S + 1) (α + n/S β), the next part being pushed while one is"
        " pulled; then the queue: the slowest of servers, their links and the nodes' links takes t for a"
        " gradient, so W devices take max(T, W t) a step",
        (
            ("gradients, and weights, n", show(n, "B"), "parameters × bytes of the precision"),
            ("devices W", f"{int(e.devices)}", "given"),
            ("servers S, an equal part each", f"{int(e.servers)}", "given"),
            *link_inputs(p, "inter_node", "between nodes"),
            ("NICs a node", f"{e.machine.nics}", source_of(p, "machine", "nics")),
            ("an update, on a server", show(float(p.update), "s"), "its part of the parameters"),
            ("latency part", show(float(total.latency), "s"), "computed"),
            ("bandwidth part, queue included", show(float(total.bandwidth), "s"), "computed"),
            ("slowest station busy", f"{float(p.server_load):.0%}", "computed"),
        ),
        "Dean et al. 2012 (DistBelief); Denning & Buzen 1978 for the bound",
        "A bound: no run is faster; where the slowest station is nearly full, queues make it slower, which a"
        " simulation shows. The servers are nodes beside those that train, update on one device each, and"
        " exchange as much with every switch. Allreduce, bucket and overlap have no part in it.",
    )


def _exposed(p: Breakdown) -> Explanation:
    return Explanation(
        "exposed communication",
        show(float(p.exposed_communication), "s"),
        "all of the communication: a device pushes after backward and computes again when it has pulled",
        (("all communication", show(float(p.communication.total), "s"), "see above"),),
        "Dean et al. 2012 (DistBelief)",
        "A device fetches no weights ahead.",
    )


def _staleness(p: Breakdown) -> Explanation:
    e = p.experiment
    bound = int(e.strategy.staleness)
    most = f"{(int(e.devices) - 1) * (2 * bound + 1):,} at most" if bound else "any number"
    return Explanation(
        "staleness",
        f"{float(p.staleness):,.0f} updates",
        "W - 1: while a device makes one update the others make one each",
        (
            ("devices W", f"{int(e.devices)}", "given"),
            ("of a single gradient", most, "(W - 1) (2 s + 1) with a bound s"),
        ),
        "Little's law; Zhang et al. 2016 (staleness-aware async-SGD)",
        "The mean in the steady state, of devices of one speed. What it does to the accuracy is not modelled.",
    )


PARTS = (_straggler, _communication, _exposed, _staleness)
