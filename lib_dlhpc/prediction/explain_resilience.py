"""Checkpoints and failures explained: the cost of a checkpoint, the interval, the expected time by cause."""

from lib_dlhpc.costs.checkpoints import HASH_RATE, Saving, saving, write_rate, writers, written_at
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.explanation import Explanation, source_of
from lib_dlhpc.prediction.resilience import in_words, resilience
from lib_dlhpc.spec.machine import StorageTier
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

METHODS = {
    "synchronous": "bytes / bandwidth, training stalled",
    "asynchronous": "bytes of a device / host link, training stalled; then bytes / bandwidth in the background,"
    " for which the next checkpoint waits",
    "multilevel": "bytes of a node / bandwidth of its local tier, training stalled; then bytes / bandwidth of the"
    " shared tier in the background, for which the next checkpoint waits",
    "incremental": "bytes of a device / hash rate + changed bytes / bandwidth, training stalled",
}


def explain_resilience(p: Breakdown) -> list[Explanation]:
    """Return the explanations of checkpoints and failures in a scalar prediction; empty without both."""
    found = [_checkpoint(p)] if p.experiment.run.checkpoint_interval else []
    return [*found, _failures(p)] if float(resilience(p).mtbf) < float("inf") else found


def _checkpoint(p: Breakdown) -> Explanation:
    e, price = p.experiment, saving(p.experiment)
    given, step = float(e.run.checkpoint_interval), float(p.step_time - p.checkpoint)
    interval = max(given, step)
    tier = e.machine.storage[e.storage.tier]
    return Explanation(
        "checkpoint",
        show(float(p.checkpoint), "s"),
        f"step × stall / interval; stall: {METHODS[e.run.checkpoint]}",
        (
            ("bytes of the state", show(float(price.size), "B"), _bytes_each(p, price)),
            ("written of it", show(float(price.written), "B"), "computed"),
            (
                "writers",
                "the first node" if e.run.checkpoint_writers == "first" else "every node its shard",
                "given",
            ),
            (
                f"write bandwidth of {tier.name}",
                show(float(written_at(tier)), "B/s"),
                source_of(p, "machine", f"storage.{tier.name}.write_bandwidth"),
            ),
            *_writers_reach(p, tier),
            *_particular(p),
            ("stall", show(float(price.standstill(interval)), "s"), "computed"),
            ("written in the background", show(float(price.background), "s"), "computed"),
            (
                "interval",
                show(interval, "s"),
                "given"
                if given >= step
                else f"one step, the shortest possible; given: {show(given, 's')}",
            ),
        ),
        "definition; Mohan et al. 2021 (CheckFreq) for copies, Moody et al. 2010 (SCR) for levels",
        "Nothing else uses the tier, and all writers are equally fast. A background write takes no"
        " bandwidth from training. Writers are assumed to have gathered sharded state.",
    )


def _writers_reach(p: Breakdown, tier: StorageTier) -> list[tuple[str, str, str]]:
    """Return the limits between the writers and the tier, and the resulting bandwidth."""
    e = p.experiment
    nodes = int(writers(e))
    through = float(write_rate(e, tier))
    left = ("bandwidth", show(through, "B/s"))
    if tier.scope == "node":
        return [(*left, f"{tier.name} of {count(nodes, 'node')}")] if nodes > 1 else []
    link, nics = e.machine.inter_node, e.machine.nics
    injection = nodes * nics * link.bandwidth * link.efficiency
    low = "NICs" if injection < float(written_at(tier)) else tier.name
    product = f"{count(nodes, 'node')} × {count(nics, 'NIC')} × {show(link.bandwidth, 'B/s')}"
    return [
        ("NICs of the writers", show(injection, "B/s"), f"{product} × {link.efficiency:.0%}"),
        (*left, f"the lower of the two: {low}"),
    ]


def _bytes_each(p: Breakdown, price: Saving) -> str:
    size = float(price.size) / p.experiment.model.parameters
    return f"{size:g} B a parameter: weights, master weights, optimizer state"


def _particular(p: Breakdown) -> list[tuple[str, str, str]]:
    """Return the inputs that only this checkpoint method has."""
    e = p.experiment
    if e.run.checkpoint == "asynchronous":
        link = e.machine.host_link
        rate = show(link.bandwidth * link.efficiency, "B/s")
        return [("bandwidth of the host link", rate, source_of(p, "host_link", "bandwidth"))]
    if e.run.checkpoint == "multilevel":
        local = e.machine.storage[e.storage.local]
        source = source_of(p, "machine", f"storage.{local.name}.write_bandwidth")
        bandwidth = show(float(written_at(local)), "B/s")
        return [(f"write bandwidth of {local.name} of a node", bandwidth, source)]
    if e.run.checkpoint == "incremental":
        return [
            ("changed share", f"{e.run.changed:.0%}", "given"),
            ("hash rate of a process", show(HASH_RATE, "B/s"), "XXH3, measured (estimate)"),
        ]
    return []


def _failures(p: Breakdown) -> Explanation:
    e, found = p.experiment, resilience(p)
    failures = float(found.failures)
    shares = (
        (f"share: {name}", f"{float(share):.1%}", "computed")
        for name, share in found.shares.items()
    )
    two = e.run.checkpoint == "multilevel"
    survive = ("failures that local copies survive", f"{e.machine.local_survival:.0%}")
    return Explanation(
        "expected time with failures",
        in_words(float(found.expected_time)),
        "start + work / τ × (M + R') (e^((τ+C)/M) - 1) (s + (1-s) e^(w/M)), R' = M (e^(R/M) - 1): C stall,"
        " w background write, s share of failures that node-local copies survive",
        (
            (
                "time between failures of a node",
                show(e.machine.node_mtbf, "s"),
                source_of(p, "machine", "node_mtbf"),
            ),
            ("of all nodes, M", show(float(found.mtbf), "s"), "divided by the nodes"),
            ("restart, listing and reading, R", show(float(found.saving.restart), "s"), "computed"),
            *([(*survive, source_of(p, "machine", "local_survival"))] * two),
            (
                "interval τ",
                show(float(found.interval), "s"),
                "given; the whole run without checkpoints",
            ),
            ("Young's interval", show(float(found.young), "s"), "sqrt(2 C M)"),
            ("Daly's interval", show(float(found.daly), "s"), "Daly 2006, eq. 37"),
            ("best interval", show(float(found.best), "s"), "the minimum of the formula"),
            (
                "failures expected",
                f"{failures:,.1f}" if failures < 1e9 else "unbounded",
                "expected time / M",
            ),
            *shares,
        ),
        "Young 1974; Daly 2006 (complete model)",
        "Failures are random and independent, detected at once, and each stops the run; every failed node has a"
        " spare. A failure during a restart repeats it.",
    )
