"""Errors that stop nothing: what silent errors and checks cost, against the interval between two checks."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.costs import CheckpointCost, Checks
from lib_dlhpc.explore.blocks.bench import Bench, Slider, View, amount
from lib_dlhpc.explore.blocks.charts import State, columns
from lib_dlhpc.explore.failures.charts import CHECKED, phases_state
from lib_dlhpc.explore.failures.interval import FACTORS, GPUS, LLAMA_MTBF, MTBFS, PER_NODE, Restart
from lib_dlhpc.explore.failures.interval import Setting as Run
from lib_dlhpc.explore.failures.interval import found as run_of
from lib_dlhpc.explore.failures.losses import (
    HOPELESS,
    SEED,
    Simulated,
    losses_state,
    simulated_point,
    simulating,
)
from lib_dlhpc.prediction.failures.intervals import expected_cycle
from lib_dlhpc.prediction.failures.silent import (
    best_check,
    checked_cycle,
    checked_goodput,
    first_order_check,
)
from lib_dlhpc.simulation import Phase, simulate_runs
from lib_dlhpc.spec.units import DAY, HOUR, MINUTE, YEAR
from lib_dlhpc.spec.units import format_quantity as show

LLAMA_SILENT = 54 / 6 * DAY * 2048  # of a node: six were detected in 54 days (Llama 3, table 5)
OTHERS = LLAMA_MTBF * 419 / (419 - 6)  # of a node: those six are among the 419 interruptions
FAILS = {"268 days" if of == LLAMA_MTBF else name: of for name, of in MTBFS.items()}
FAILS["268 days"] = OTHERS
SILENT = {"5 years": 5 * YEAR, "15 years": 15 * YEAR, "50 years": LLAMA_SILENT}
SILENT |= {"150 years": 150 * YEAR, "500 years": 500 * YEAR}
INTERVAL = 20 * MINUTE  # of checkpoints: near the best
TAKES = (10.0, MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR)
EVERY = tuple(HOUR * h for h in (1 / 3, 1, 2, 4, 6, 8, 12, 24, 48, 96, 192, 384))
AT = np.unique([*np.geomspace(INTERVAL, 30 * DAY, 49), *EVERY])  # s
DRAWN = 36 * HOUR  # of a run phase by phase; of a longer one, without the short phases
SHORT = 1 / 400  # of what is drawn
CROSSES = 100  # failures, above which they are only counted
SPELL = DAY  # of training, simulated at each interval
EARLY = 0.12  # of what is drawn, until the silent error
TRAINS = ("training", "repeated work")
RUNS = 1000  # more than elsewhere, as errors are rare
ONCE = "Time between two silent errors of one node"
STALL = "Training stalls while all nodes are checked"


class Setting(NamedTuple):
    """A large run with checks. silent, mtbf: s of a node; takes, restart, every: s."""

    gpus: Annotated[int, Slider("GPUs", "In nodes of 8", GPUS)] = 16384
    silent: Annotated[float, Slider("A silent error", ONCE, SILENT)] = LLAMA_SILENT
    mtbf: Annotated[float, Slider("A node fails", "MTBF of a node", FAILS)] = OTHERS
    takes: Annotated[float, Slider("A check takes", STALL, TAKES, amount("s"))] = 10 * MINUTE
    restart: Restart = 10 * MINUTE
    every: Annotated[float, Slider("Check", "After this training", EVERY, amount("s"))] = 8 * HOUR


class Checked(NamedTuple):
    """The run of a setting: its checkpoints, failures and checks."""

    saving: CheckpointCost
    mtbf: float  # s between failures of all nodes
    checks: Checks

    def lost(self, every: Any) -> dict[str, Any]:
        """Return the shares of the time by cause with a check after each `every` s of training; then all."""
        checks = self._at(every)
        cycle = checked_cycle(INTERVAL, self.saving, self.mtbf, checks)
        free = checked_cycle(INTERVAL, self.saving, self.mtbf, self._at(every, takes=0.0))
        own = every / cycle
        failures = own * (expected_cycle(INTERVAL, self.saving, self.mtbf) / INTERVAL - 1)
        parts = {"checks": 1 - free / cycle, "failures": failures}
        parts["silent errors"] = 1 - own - sum(parts.values())
        order = ("checks", "silent errors", "failures")
        return {name: parts[name] for name in order} | {"all losses": 1 - own}

    @property
    def best(self) -> float:
        """The interval between checks of the highest goodput, in s of training."""
        return float(best_check(INTERVAL, self.saving, self.mtbf, self.checks))

    @property
    def first_order(self) -> float:
        """The same to first order."""
        return float(first_order_check(self.checks.takes, self.checks.mtbf))

    @property
    def unseen(self) -> float:
        """Mean s of training between the first silent error since a check and the next one: D / (1 - e^(-D/M)) - M."""
        every, mtbf = self.checks.every, self.checks.mtbf
        return float(every / -np.expm1(-every / mtbf) - mtbf)

    def goodput(self, every: float) -> float:
        """Return the goodput with a check after each `every` s of training."""
        return float(checked_goodput(INTERVAL, self.saving, self.mtbf, self._at(every)))

    def _at(self, every: Any, takes: float | None = None) -> Checks:
        return Checks(self.checks.mtbf, every, self.checks.takes if takes is None else takes)


def the_checks() -> Bench[Setting]:
    """Return the experiment: what is lost against the interval between checks, and when an error is found."""

    def view(setting: Setting) -> View:
        charts = {"failures_checks": checks_view(setting), "failures_found": found_view(setting)}
        return View(checks_words(setting), checks_wall(setting), charts)

    look = "how long training goes on with a wrong state, and what is thrown away when a check finds it."
    charts, fine = ("failures_found", "failures_checks"), "The run makes progress."
    losses = (charts[1], checks_view)
    return simulating(Setting(), view, losses, simulated_points, charts, fine, look, RUNS)


@lru_cache(maxsize=256)
def found(setting: Setting) -> Checked:
    """Return the run of a setting."""
    own = run_of(Run(setting.gpus, setting.mtbf, restart=setting.restart, interval=INTERVAL))
    silent = setting.silent / (setting.gpus // PER_NODE)
    checks = Checks(silent, setting.every, setting.takes)
    return Checked(own.saving, float(own.mtbf), checks)


def checks_view(setting: Setting, simulated: Simulated = ()) -> State:
    """Return the columns of the chart "failures_checks": shares of the time by cause over intervals in s."""
    own = found(setting)
    best = {"first order": own.first_order, "exact": own.best}
    data, words = losses_state(AT, own.lost(AT), best, setting.every, simulated)
    return data, f"With a check every {show(setting.every, 's')} {words}"


def found_view(setting: Setting) -> State:
    """Return the columns of the chart "failures_found": a run with one silent error, simulated."""
    own, every = found(setting), setting.every
    both, one_check = 2.2 * every + HOUR, 1.4 * every + HOUR
    span = both if both < DRAWN else max(one_check, DRAWN)
    draw = np.random.default_rng(SEED)
    strikes = np.cumsum(draw.exponential(own.mtbf, max(200, int(2 * span / own.mtbf))))
    failures = strikes[strikes < span].tolist()
    checks = Checks(np.inf, every, setting.takes)
    until = min(span, EARLY * span + DRAWN)
    plain = simulate_runs(until, INTERVAL, own.saving, failures=failures, checks=checks)
    error = an_error(plain.phases, EARLY * span)
    one = simulate_runs(span, INTERVAL, own.saving, failures=failures, checks=checks, errors=error)
    data, words = phases_state({"this run": one.phases}, span, CHECKED)
    if span > DRAWN:
        long, short = merged(one.phases, SHORT * span), show(SHORT * span, "s")
        bars, _ = phases_state({"this run": long}, span, CHECKED)
        data, words = data | {"bars": bars["bars"]}, f"{words} Phases below {short} are not drawn."
    if len(data["strikes"].get("x", ())) > CROSSES:
        data, words = data | {"strikes": columns([])}, f"{words} Failures are counted, not drawn."
    errors = [phase.start for phase in one.phases if phase.kind == "silent error"]
    lines = [{"x": x, "top": 0.04, "bottom": 0.96} for x in errors if x < span]
    return data | {"errors": columns(lines)}, words


def merged(phases: Sequence[Phase], short: float) -> list[Phase]:
    """Return the phases of a long run: those of training joined over interruptions below `short` s."""
    kept: list[Phase] = []
    for phase in (phase for phase in phases if phase.kind in CHECKED):
        last = kept[-1] if kept and kept[-1].kind in TRAINS else None
        brief = phase.stop - phase.start < short and phase.kind not in ("training", "check")
        if last and (phase.kind == last.kind or brief):
            kept[-1] = last._replace(stop=phase.stop)
        else:
            kept.append(phase)
    return kept


def an_error(phases: Sequence[Phase], after: float) -> list[float]:
    """Return a time in s, from `after` on, in training that becomes a checkpoint: no failure takes the error away."""
    saved = (
        (first.start + first.stop) / 2
        for first, then in pairwise(phases)
        if first.kind in TRAINS and first.ended and then.kind == "checkpoint" and then.ended
    )
    return [middle for middle in saved if middle >= after][:1]


def simulated_points(setting: Setting) -> Simulated:
    """Return the losses of simulated runs at some intervals between checks."""
    own, points = found(setting), []
    for factor in FACTORS:
        every = max(round(factor * own.best / INTERVAL), 1) * INTERVAL
        predicted = 1 - own.goodput(every)
        if predicted > HOPELESS:
            continue
        work = max(round(SPELL / every), 1) * every
        checks = Checks(own.checks.mtbf, every, setting.takes)
        runs = simulate_runs(
            work, INTERVAL, own.saving, own.mtbf, runs=RUNS, seed=SEED, checks=checks
        )
        points.append(simulated_point(every, work, runs.wall, predicted))
    return tuple(points)


def checks_words(setting: Setting) -> str:
    """Say how much is lost, by cause, and how long an error stays."""
    own = found(setting)
    lost = {name: float(share) for name, share in own.lost(setting.every).items()}
    best = own.best
    return (
        f"<b>{lost['all losses']:.1%} of the time is lost:</b> checks {lost['checks']:.1%}, training lost to"
        f" silent errors {lost['silent errors']:.1%}, checkpoints and failures {lost['failures']:.1%}. All nodes"
        f" together compute a wrong state once in {show(own.checks.mtbf, 's')}; it is trained on for"
        f" {show(own.unseen, 's')} on average until a check finds it. The best is a check every"
        f" {show(best, 's')}: {1 - own.goodput(best):.1%} lost."
    )


def checks_wall(setting: Setting) -> str:
    """Say why there is little progress, or nothing."""
    own = found(setting)
    share = own.goodput(setting.every)
    if share > 0.5:
        return ""
    once, every = show(own.checks.mtbf, "s"), show(setting.every, "s")
    lost = own.lost(setting.every)
    if lost["failures"] > max(lost["checks"], lost["silent errors"]):
        why = f"a failure comes once in {show(own.mtbf, 's')}: no check helps"
    elif lost["checks"] > lost["silent errors"]:
        why = f"a check of {show(setting.takes, 's')} after each {every} of training. Check less often"
    else:
        why = f"{every} of training lie between two checks, and a silent error comes once in {once}. Check more often"
    return f"Only {share:.1%} goodput: {why}."
