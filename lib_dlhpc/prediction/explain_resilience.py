"""Checkpoints and failures, opened: what one costs, how often to write one, what becomes of the time."""

from lib_dlhpc.costs.checkpoints import (
    HASH_RATE,
    Saving,
    saving,
    write_rate,
    writers,
    written_at,
)
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.explanation import Explanation, source_of
from lib_dlhpc.prediction.resilience import in_words, resilience
from lib_dlhpc.spec.machine import StorageTier
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

WAYS = {
    "synchronous": "bytes / bandwidth, all training stopped",
    "asynchronous": "bytes of a device / link to the host, training stopped; then bytes / bandwidth behind it,"
    " for which the next checkpoint waits",
    "multilevel": "bytes of a node / bandwidth of its own tier, training stopped; then bytes / bandwidth of the"
    " shared tier behind it, for which the next checkpoint waits",
    "incremental": "bytes of a device / hash rate + changed bytes / bandwidth, all training stopped",
}


def explain_resilience(p: Breakdown) -> list[Explanation]:
    """Return what there is to say of checkpoints and of failures in a scalar prediction; nothing of neither."""
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
        f"step × standstill / interval; standstill: {WAYS[e.run.checkpoint]}",
        (
            ("bytes of the state", show(float(price.size), "B"), _bytes_each(p, price)),
            ("written of it", show(float(price.written), "B"), "computed"),
            (
                "who writes",
                "the first node" if e.run.checkpoint_writers == "first" else "every node its part",
                "given",
            ),
            (
                f"{tier.name} takes",
                show(float(written_at(tier)), "B/s"),
                source_of(p, "machine", f"storage.{tier.name}.write_bandwidth"),
            ),
            *_writers_reach(p, tier),
            *_particular(p),
            ("standstill", show(float(price.standstill(interval)), "s"), "computed"),
            ("written behind training", show(float(price.background), "s"), "computed"),
            (
                "interval",
                show(interval, "s"),
                "given"
                if given >= step
                else f"a step: one a step at most; given: {show(given, 's')}",
            ),
        ),
        "definition; Mohan et al. 2021 (CheckFreq) for copies, Moody et al. 2010 (SCR) for levels",
        "Nothing else uses the tier, and all that writes is equally fast. A write behind training takes no"
        " bandwidth from it. A state that is split is taken as gathered by who writes.",
    )


def _writers_reach(p: Breakdown, tier: StorageTier) -> list[tuple[str, str, str]]:
    """Return what stands between those that write and the tier, and the bandwidth that is left."""
    e = p.experiment
    nodes = int(writers(e))
    through = float(write_rate(e, tier))
    left = ("bandwidth", show(through, "B/s"))
    if tier.scope == "node":
        return [(*left, f"{tier.name} of {count(nodes, 'node')}")] if nodes > 1 else []
    link, nics = e.machine.inter_node, e.machine.nics
    cards = nodes * nics * link.bandwidth * link.efficiency
    low = "network cards" if cards < float(written_at(tier)) else tier.name
    made = f"{count(nodes, 'node')} × {count(nics, 'card')} × {show(link.bandwidth, 'B/s')}"
    return [
        (
            "network cards of who writes take",
            show(cards, "B/s"),
            f"{made} × {link.efficiency:.0%}",
        ),
        (*left, f"the lower of the two: {low}"),
    ]


def _bytes_each(p: Breakdown, price: Saving) -> str:
    each = float(price.size) / p.experiment.model.parameters
    return f"{each:g} B a parameter: weights, master weights, optimiser state"


def _particular(p: Breakdown) -> list[tuple[str, str, str]]:
    """Return the inputs that only this way to save has."""
    e = p.experiment
    if e.run.checkpoint == "asynchronous":
        link = e.machine.host_link
        rate = show(link.bandwidth * link.efficiency, "B/s")
        return [("link to the host reaches", rate, source_of(p, "host_link", "bandwidth"))]
    if e.run.checkpoint == "multilevel":
        local = e.machine.storage[e.storage.local]
        source = source_of(p, "machine", f"storage.{local.name}.write_bandwidth")
        return [(f"{local.name} of a node takes", show(float(written_at(local)), "B/s"), source)]
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
        "start + work / τ × (M + R') (e^((τ+C)/M) - 1) (s + (1-s) e^(w/M)), R' = M (e^(R/M) - 1): C standstill,"
        " w write behind training, s failures that the nodes' own copies survive",
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
                "given; without checkpoints the run",
            ),
            ("Young's interval", show(float(found.young), "s"), "sqrt(2 C M)"),
            ("Daly's interval", show(float(found.daly), "s"), "Daly 2006, eq. 37"),
            ("best interval", show(float(found.best), "s"), "the minimum of the formula"),
            (
                "failures expected",
                f"{failures:,.1f}" if failures < 1e9 else "without end",
                "expected time / M",
            ),
            *shares,
        ),
        "Young 1974; Daly 2006 (complete model)",
        "Failures come at random, one by one, and are noticed at once; a spare is there for every node; one of"
        " them stops all. A failure while restarting begins that anew.",
    )
