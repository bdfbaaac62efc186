"""What failures do to a run: how much of its time becomes training, and the interval to choose.

An experiment gives the cost of a checkpoint (costs/checkpoints.py) and machine.node_mtbf the failures; the
formulas are in intervals.py. Failures come at random and strike any node; one stops all of them. What is
not modeled here: failures that come in groups or leave a node slow, and state that is wrong without anyone
noticing (silent.py). With machine.repair_time, the run waits where no node of the machine is left to take the
place of a failed one (spares.py); shares of a long run, at whose start the machine is not yet whole.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.costs.checkpoints import (
    HASH_RATE,
    CheckpointCost,
    saving,
    write_rate,
    writers,
    written_at,
)
from lib_dlhpc.prediction.explanation import Explanation, source_of
from lib_dlhpc.prediction.failures import intervals
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.machine import StorageTier
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown
    from lib_dlhpc.spec.experiment import Experiment

NEVER = 10_000 * 31557600.0  # s: longer waits are reported as never


@dataclass(frozen=True)
class Resilience:
    """A run with checkpoints and failures; seconds, every value may be an array."""

    prediction: "Breakdown"
    saving: CheckpointCost  # what one checkpoint costs
    mtbf: Any  # s between failures of all nodes together

    @property
    def work(self) -> Any:
        """Seconds of training in the run: its steps without their share of checkpoints."""
        p = self.prediction
        return p.steps * (p.step_time - p.checkpoint)

    @property
    def interval(self) -> Any:
        """Seconds of training between two checkpoints, as chosen; those of the whole run where there are none.

        Of any length: the formulas know no steps. predict() writes one checkpoint a step at most.
        """
        chosen = self.prediction.experiment.run.checkpoint_interval
        return np.where(np.equal(chosen, 0), self.work, np.minimum(chosen, self.work))[()]

    @property
    def expected_time(self) -> Any:
        """Expected seconds from start to end: time_to_train, lost work and restarts; inf if it makes no progress."""
        return self.prediction.start_time + self._waiting(self._at_work)

    @property
    def _at_work(self) -> Any:
        """Expected seconds from the first step to the end, without waits for spares."""
        cycles = self.work / self.interval
        return cycles * intervals.expected_cycle(self.interval, self._spread, self.mtbf)

    def _waiting(self, time: Any) -> Any:
        """Return seconds of work with the waits for spares; inf where all of a long run is a wait."""
        with np.errstate(divide="ignore"):
            return np.divide(time, 1 - self.waits)

    @property
    def waits(self) -> Any:
        """Share of a long run in which it waits for a repaired node, 0 without machine.repair_time."""
        from lib_dlhpc.prediction.failures.spares import waiting_share

        machine, nodes = self.prediction.experiment.machine, _nodes(self.prediction.experiment)
        left, repair = machine.nodes - nodes, machine.repair_time
        return waiting_share(nodes, left, machine.node_mtbf, repair)

    @property
    def expected_run(self) -> Any:
        """Expected seconds of a run that saves after each whole interval, not at its end; inf without progress.

        expected_time counts saves in proportion to time, as a long run has them. Without failures this is the time of
        simulation/failures.py; with them, the last stretch falls back on an interval of its own length.
        """
        chosen, work = self.prediction.experiment.run.checkpoint_interval, self.work
        never = np.equal(chosen, 0) | np.greater(chosen, work * (1 + 1e-9))
        interval = np.where(never, work, chosen)
        saves = np.where(never, 0.0, np.floor(work / interval * (1 + 1e-9)))
        rest = np.maximum(work - saves * interval, 0.0)
        spread = self._spread
        price = replace(self.saving, restart=spread.restart, survived=spread.survived)
        first = replace(price, background=0.0)  # no write is in progress
        behind = np.where(never, 0.0, np.minimum(price.background, rest))
        last = replace(price, blocked=0.0, background=behind)
        found = np.where(never, 0.0, intervals.expected_cycle(interval, first, self.mtbf))
        later = np.where(saves > 1, intervals.expected_cycle(interval, price, self.mtbf), 0.0)
        ends = np.where(rest > 1e-9 * work, intervals.expected_cycle(rest, last, self.mtbf), 0.0)
        found = found + np.maximum(saves - 1, 0) * later + ends
        return (self.prediction.start_time + self._waiting(found))[()]

    @property
    def goodput(self) -> Any:
        """Share of the expected time that becomes training, 0 to 1."""
        return self.work / self.expected_time

    @property
    def failures(self) -> Any:
        """Expected number of failures until the run is done."""
        return (self.prediction.start_time + self._at_work) / self.mtbf

    @property
    def shares(self) -> dict[str, Any]:
        """Shares of the expected time by cause; they add up to 1."""
        # In shares rather than in seconds, which have no end where no headway is made.
        cycle = intervals.expected_cycle(self.interval, self._spread, self.mtbf)
        upright = 1 / (1 + intervals.mean_restart(self._spread, self.mtbf) / self.mtbf)
        training = self.interval / cycle
        still = np.minimum(self._spread.standstill(self.interval) / cycle, upright - training)
        parts = {
            "training": training,
            "checkpoints": still,
            "repeated work": upright - training - still,  # and checkpoints that are
            "restarts": 1 - upright,
        }
        if np.any(self.prediction.experiment.machine.repair_time):
            parts = {name: share * (1 - self.waits) for name, share in parts.items()}
            parts["waits for a spare"] = self.waits
        start = self.prediction.start_time / self.expected_time
        return {
            "first start": start,
            **{name: share * (1 - start) for name, share in parts.items()},
        }

    @property
    def young(self) -> Any:
        """Young's interval for the seconds that training stalls."""
        return intervals.young(self.saving.blocked, self.mtbf)

    @property
    def daly(self) -> Any:
        """Daly's higher-order interval for the seconds that training stalls."""
        return intervals.daly(self.saving.blocked, self.mtbf)

    @property
    def best(self) -> Any:
        """The interval of the highest goodput, exactly."""
        return intervals.best_interval(self.saving, self.mtbf)

    @property
    def best_goodput(self) -> Any:
        """Share of the time that becomes training with the best interval, in a long run."""
        return self.goodput_at(self.best)

    def goodput_at(self, interval: Any) -> Any:
        """Return the share of the time that becomes training with another interval, in a long run."""
        never = np.isinf(interval)
        share = intervals.goodput(np.where(never, 1.0, interval), self.saving, self.mtbf)
        return np.where(never, 1.0, share * (1 - self.waits))[()]

    @property
    def _spread(self) -> CheckpointCost:
        """The cost of a checkpoint for each `interval`: a run shorter than the interval has a fraction of one."""
        chosen = self.prediction.experiment.run.checkpoint_interval
        none = np.equal(chosen, 0)
        part = np.where(none, 0.0, self.interval / np.where(none, 1.0, chosen))
        again = self.prediction.experiment.machine.restart_time + self.prediction.start_time
        return replace(
            self.saving,
            blocked=part * self.saving.blocked,
            background=part * self.saving.background,
            restart=np.where(none, again, self.saving.restart),  # with nothing to read ...
            survived=np.where(none, 0.0, self.saving.survived),  # ... anywhere
        )


def in_words(expected_time: float) -> str:
    """Return an expected time with its unit; "never done" from ten thousand years on."""
    return "never done" if expected_time >= NEVER else show(expected_time, "s")


def resilience(prediction: "Breakdown") -> Resilience:
    """Return what failures do to a predicted run.

    Source: Young 1974, Daly 2006; see intervals.py.
    """
    experiment = prediction.experiment
    mtbf = intervals.system_mtbf(experiment.machine.node_mtbf, _nodes(experiment))
    return Resilience(prediction, saving(experiment), mtbf)


def _nodes(experiment: "Experiment") -> Any:
    """Return how many nodes may fail: those of the run and its servers."""
    return experiment.strategy.nodes + experiment.servers


METHODS = {
    "synchronous": "bytes / bandwidth, training stalled",
    "asynchronous": "bytes on a device / host link, training stalled; then bytes / bandwidth in the background,"
    " for which the next checkpoint waits",
    "multilevel": "bytes on a node / bandwidth of its local tier, training stalled; then bytes / bandwidth of the"
    " shared tier in the background, for which the next checkpoint waits",
    "incremental": "bytes on a device / hash rate + changed bytes / bandwidth, training stalled",
}


def explain_resilience(p: "Breakdown") -> list[Explanation]:
    """Return the explanations of checkpoints and failures in a scalar prediction; empty without both."""
    found = [_checkpoint(p)] if p.experiment.run.checkpoint_interval else []
    return [*found, _failures(p)] if float(resilience(p).mtbf) < float("inf") else found


def _checkpoint(p: "Breakdown") -> Explanation:
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
                "the first node"
                if e.run.checkpoint_writers == "first"
                else "every node, its shard",
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


def _writers_reach(p: "Breakdown", tier: StorageTier) -> list[tuple[str, str, str]]:
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


def _bytes_each(p: "Breakdown", price: CheckpointCost) -> str:
    size = float(price.size) / p.experiment.model.trained
    return f"{size:g} B per trained parameter: weights, master weights, optimizer state"


def _particular(p: "Breakdown") -> list[tuple[str, str, str]]:
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


def _failures(p: "Breakdown") -> Explanation:
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
            *_spares(p),
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
        "Failures are random and independent, detected at once, and each stops the run; "
        + ("without a spare it waits" if e.machine.repair_time else "every failed node has a spare")
        + ". A failure during a restart repeats it.",
    )


def _spares(p: "Breakdown") -> list[tuple[str, str, str]]:
    """Return the inputs of waits for a repaired node, and their share of a long run."""
    e = p.experiment
    if not e.machine.repair_time:
        return []
    left = count(int(e.machine.nodes - _nodes(e)), "node")
    repair = show(e.machine.repair_time, "s")
    waits = "computed: Erlang's B, spares + 1 servers; time / (1 - share)"
    return [
        ("spares", left, "machine.nodes less those of the run"),
        ("repair of a node", repair, source_of(p, "machine", "repair_time")),
        ("waits for a repaired node", f"{float(resilience(p).waits):.2%}", waits),
    ]
