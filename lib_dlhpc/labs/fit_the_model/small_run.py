"""A learner's small run under a memory cap: its predicted peak, its measured peak, the cheapest way below the cap.

small_of(seed)                             network, batch and cap of a learner
small_findings(small, small_peak, own)     three findings; the runs are done by labs/fit_the_model/capped_run.py
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.findings import Finding, broken, kept, later
from lib_dlhpc.labs.fit_the_model.capped_run import CappedRun, available, capped
from lib_dlhpc.labs.fit_the_model.formulas import PLAIN
from lib_dlhpc.labs.formula_cases import Case, compared
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.prediction.memory.rank_memory import peak
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.experiment import Experiment

say = sentences(__file__)

NEAR = 0.1  # of the ledger
SHARE = 0.62  # of what the run takes, as its cap
SMALL = "The small run: your formula agrees with its ledger"
CAP = "The small run: under its cap, for real"
CHEAP = "The small run: the cheapest way that fits"
# The ways to reduce memory, the cheapest first, with the value that turns each off.
WAYS: dict[str, Any] = {"microbatches": 1, "recompute": "none", "offload": "none"}
COSTS = {"microbatches": say.microbatches, "recompute": say.recompute, "offload": say.offload}
MOST = 64  # microbatches; each computes with all weights anew
STRONGEST: dict[str, Any] = {"microbatches": 8, "recompute": "full", "offload": "all"}


class SmallTask(NamedTuple):
    """A small network on this machine, and its cap in B."""

    width: int
    depth: int
    batch: int
    cap: float = 0.0

    @property
    def widths(self) -> list[int]:
        """Of the arrays between the layers."""
        return [self.width] * self.depth + [10]


@cache
def small_of(seed: int) -> SmallTask:
    """Return a learner's small task: in some weights are the most, in others activations."""
    rng = np.random.default_rng([seed, 8])
    width, batch = [(512, 384), (320, 1536)][int(rng.integers(2))]
    own = SmallTask(width, int(rng.integers(16, 22)), batch)
    return own._replace(cap=round(SHARE * ledger(small_experiment(own)) / 1e6) * 1e6)


def small_experiment(own: SmallTask, **ways: Any) -> Experiment:
    """Return the small run. ways: microbatches, recompute, offload. Raises SpecError."""
    strategy = {"devices_per_node": 1, "batch": own.batch, "optimizer": "momentum", **ways}
    return Experiment(
        model={"family": "mlp", "widths": own.widths, "activation": "tanh"},
        dataset="digits",
        machine="laptop",
        strategy=strategy,
    )


def ledger(experiment: Experiment) -> float:
    """Return the peak of a run in B, without what Python takes before it."""
    terms = peak(experiment).terms
    return sum(value for name, value in terms.items() if name != "driver and workspace")


def cheapest(own: SmallTask) -> str:
    """Return the cheapest way that brings a run under its cap, by the ledger."""
    for way in WAYS:
        if ledger(small_experiment(own, **{way: STRONGEST[way]})) <= (1 - NEAR) * own.cap:
            return way
    return "offload"


def small_findings(
    small: Callable[[], Mapping[str, Any]], small_peak: Callable[..., Any], own: SmallTask
) -> list[Finding]:
    """Return the findings; small() returns the options, which are run for real."""
    first = predicted_peak(small_peak, own)
    try:
        ways = dict(small())
        extra = sorted({*ways} - {*WAYS})
        if extra:
            raise LabError(f"{', '.join(extra)}: legal: {', '.join(WAYS)}.")
        if ways.get("recompute", "none") not in ("none", "full"):
            raise LabError(f"recompute = {ways['recompute']!r}: legal: none, full.")
        experiment = small_experiment(own, **ways)
        if (many := int(experiment.strategy.microbatches)) > MOST:
            raise LabError(
                f"microbatches = {many}: legal: 1 to {MOST}. Each one uses all weights, and many "
                "small ones take many times as long. What is the smallest number that fits?"
            )
        if not available():
            return [first, _by_ledger(own, experiment), _cheap(ways, own)]
        found, plain = capped(experiment, own.cap), capped(small_experiment(own))
    except (LabError, SpecError) as error:
        return [first, broken(CAP, str(error)), later(CHEAP)]
    except Exception as error:  # the learner's function may raise whatever it likes
        return [first, broken(CAP, f"{type(error).__name__}: {error}"), later(CHEAP)]
    second = _under(own, experiment, found, plain)
    return [first, second, _cheap(ways, own) if second.right else later(CHEAP)]


def predicted_peak(small_peak: Callable[..., Any], own: SmallTask) -> Finding:
    """Return whether `small_peak(weights, widths, batch, microbatches)` is the library's ledger."""
    weights, cases = int(small_experiment(own).model.parameters), []
    fixed = sum(PLAIN) * weights
    for batch, many in ((own.batch, 1), (own.batch, 4), (2 * own.batch, 2)):
        right = ledger(small_experiment(own._replace(batch=batch), microbatches=many))
        slips = [
            (say.no_gradients, fixed / 3),
            (say.no_activations, fixed),
            (say.weights_alone, right - 2 / 3 * fixed),
            (say.weights_alone, right - 1 / 3 * fixed),
            (say.all_in_flight, fixed + (right - fixed) * many),
            (say.whole_batch, fixed + 4 * batch * sum(own.widths)),
        ]
        about = f"Batch {batch} in {many} microbatch{'es' * (many > 1)}"
        cases.append(Case(about, (weights, own.widths, batch, many), right, slips, say.about_bytes))
    return compared(SMALL, small_peak, cases, f"Within {NEAR:.0%} of the library's.", NEAR)


def _under(own: SmallTask, experiment: Experiment, found: CappedRun, plain: CappedRun) -> Finding:
    ledger_bytes = ledger(experiment)
    if found.refused:
        need = say.largest
        if ledger_bytes <= own.cap:
            need = say.no_room
        words = f"Refused by the system: {found.refused}. The ledger predicts {_mb(ledger_bytes)}, the cap is"
        return broken(CAP, f"{words} {_mb(own.cap)}. {need}")
    same = found.weights == plain.weights
    if not same and int(experiment.strategy.microbatches) == 1:
        return broken(CAP, say.other_weights)
    bits = "bit for bit those" if same else "up to the order of summation those"
    return kept(
        CAP,
        f"Measured {_mb(found.peak)} at the peak, predicted {_mb(ledger_bytes)}; the cap is {_mb(own.cap)}."
        f" Without a cap it takes {_mb(plain.peak)}. A step took {found.seconds / plain.seconds:.2f} times as long"
        f" here, and the weights are {bits} of the run without a cap.",
    )


def _by_ledger(own: SmallTask, experiment: Experiment) -> Finding:
    """Judge by the ledger, on a system that reports no peak."""
    ledger_bytes = ledger(experiment)
    words = f"The ledger predicts {_mb(ledger_bytes)}, the cap is {_mb(own.cap)}. Not run: only Linux reports the peak."
    return (kept if ledger_bytes <= own.cap else broken)(CAP, words)


def _cheap(ways: Mapping[str, Any], own: SmallTask) -> Finding:
    order = list(WAYS)
    used = [way for way in order if ways.get(way, WAYS[way]) != WAYS[way]]
    if not used:
        return later(CHEAP, say.checked_later)
    dearest = used[-1]
    if order.index(dearest) > order.index(cheapest(own)):
        return broken(CHEAP, say.cheaper)
    for way in reversed(used):
        less = {**ways, way: WAYS[way]}
        if ledger(small_experiment(own, **less)) <= (1 - NEAR) * own.cap:
            words = f"It fits, and without {way} = {ways[way]} it would fit as well. {COSTS[way]}"
            return broken(CHEAP, words)
    return kept(CHEAP, f"{dearest}: no cheaper choice stays under the cap.")


def _mb(size: float) -> str:
    return f"{size / 1e6:.0f} MB"
