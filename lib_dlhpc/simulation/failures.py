"""Monte Carlo simulation of a run with checkpoints and failures, many runs at once.

A run trains for `interval` s, is idle for a checkpoint, and continues; the checkpoint may still be written
asynchronously, and the next one waits for that. A failure ends any phase: after a restart training is back
at the newest checkpoint that was written in full, or, if the nodes' own copies survive, at the newest of all,
whose write then starts anew. Failures strike at random, or at times that are given; also in a checkpoint
and in a restart, which then begins anew. What stands in prediction/failures/intervals.py as one formula happens here.
A silent error stops nothing; the next check finds it, and training is back at the newest checkpoint that
was checked (prediction/failures/silent.py). With nodes in repair, a restart waits where no spare is left.

Not simulated: checkpoints between two steps only (the interval is of any length), and what differs between ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs import step_count
from lib_dlhpc.costs.checkpoints import CheckpointCost, Checks, saving
from lib_dlhpc.costs.input import start_time
from lib_dlhpc.errors import SpecError, check_counts
from lib_dlhpc.simulation.step import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import breakdown

Flags: TypeAlias = NDArray[np.bool_]

TRAIN, WAIT, SAVE, CHECK, LACK, RESTART, DONE = range(7)  # what a run is doing
KIND = {WAIT: "wait", SAVE: "checkpoint", CHECK: "check", LACK: "no spare", RESTART: "restart"}
ROUNDING = 1e-12  # of a time: no phase is shorter
KINDS = ("first start", "training", "repeated work", *KIND.values())
NEVER = Checks(np.inf, np.inf, 0.0)
MOST = 10_000  # failures in a row that fall back on the same checkpoint, until a run is given up


class Phase(NamedTuple):
    """An activity of a run; "write" overlaps the others, a "silent error" takes no time."""

    kind: str  # one of KINDS, "write" or "silent error"
    start: float  # s
    stop: float  # s
    done: float  # s of training behind it at `stop`; for a write, in what is written
    ended: bool = True  # False: a failure cut it off


@dataclass(frozen=True, eq=False)
class FailureRuns:
    """Many runs: when each was over, what became of its time, and the first one phase by phase."""

    work: float  # s of training in each
    wall: Floats  # s, (runs,)
    seconds: dict[str, Floats]  # of each of KINDS, (runs,); they add up to wall
    failures: NDArray[np.int64]  # (runs,)
    phases: tuple[Phase, ...]  # of the first run, in order of their ends

    @property
    def goodput(self) -> float:
        """Share of the time of all runs that became training."""
        return float(self.work / self.wall.mean())

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the time of all runs by what became of it; they add up to 1."""
        return {kind: float(lost.mean() / self.wall.mean()) for kind, lost in self.seconds.items()}


def simulate_failures(
    experiment: Experiment, runs: int = 1, seed: int | None = None, *, step: float | None = None
) -> FailureRuns:
    """Simulate an experiment from start to end with the failures of its nodes, `runs` times.

    step: s of one training step; None: as simulated. Failures strike at random: machine.node_mtbf over the nodes,
    exponential. seed: of these, by default run.seed; the same seed gives the same runs. Raises SpecError, also where no
    headway is made.
    """
    if step is None:
        step = breakdown(simulate(experiment)).step_time
    run, nodes = experiment.run, int(experiment.strategy.nodes + experiment.servers)
    steps = step_count.steps(experiment)
    work, interval = float(steps * step), float(run.checkpoint_interval)
    price, start = saving(experiment), float(start_time(experiment))
    if not interval:  # nothing is ever written, nor read
        interval = np.inf
        price = CheckpointCost(
            price.size, 0.0, 0.0, restart=experiment.machine.restart_time + start
        )
    return simulate_runs(
        work,
        interval,
        price,
        float(experiment.machine.node_mtbf / nodes),
        runs=runs,
        seed=run.seed if seed is None else seed,
        start=start,
        spares=int(experiment.machine.nodes) - nodes,
        repair=float(experiment.machine.repair_time),
    )


def simulate_runs(
    work: float,
    interval: float,
    price: CheckpointCost,
    mtbf: float = np.inf,
    *,
    runs: int = 1,
    seed: int = 0,
    failures: Sequence[float] | None = None,
    start: float = 0.0,
    checks: Checks = NEVER,
    errors: Sequence[float] | None = None,
    spares: int = 0,
    repair: float = 0.0,
) -> FailureRuns:
    """Simulate `work` s of training with a checkpoint after each `interval` s of it, `runs` times.

    mtbf: mean s between failures; start: s before training, in which none strikes; checks: silent errors
    and what finds them; none by default. failures, errors: the times in s at which one strikes, in every run,
    in place of random ones; errors are silent. spares: nodes that take the place of failed ones while these are
    in repair, for `repair` s on the mean; without one, the restart waits. Raises SpecError, as simulate_failures.
    """
    _check(work=work, interval=interval, mtbf=mtbf, silent_mtbf=checks.mtbf, every=checks.every)
    check_counts(runs=runs)
    if not 0 <= checks.takes < np.inf:
        raise SpecError(f"takes = {checks.takes!r}: expected s from 0 up.")
    if not isinstance(spares, int | np.integer) or spares < 0 or not 0 <= repair < np.inf:
        given = f"spares = {spares!r}, repair = {repair!r}"
        raise SpecError(f"{given}: expected a whole number of spares, and s from 0 up.")
    strikes, silent = _Strikes(mtbf, seed, failures), _Strikes(checks.mtbf, (seed, 1), errors)
    state = _Runs(work, interval, price, int(runs), start, strikes, silent, checks)
    if repair:
        mean = repair / mtbf  # in repair; many more spares than that are never used
        used = int(mean + 40 * (1 + mean**0.5)) if failures is None else len(failures)
        count = min(spares, used)
        state.repair, state.repaired = repair, np.zeros((int(runs), count + 1))
    while (state.doing != DONE).any():
        state.advance()
    return FailureRuns(work, state.now, state.seconds, state.failed, tuple(state.phases))


def _check(**seconds: float) -> None:
    for name, value in seconds.items():
        if not value > 0:
            raise SpecError(f"{name} = {value!r}: expected s above 0.")


class _Strikes:
    """When failures strike: as likely at any moment, or at the times that are given."""

    def __init__(self, mtbf: float, seed: Any, times: Sequence[float] | None) -> None:
        self.mtbf, self.random = mtbf, np.random.default_rng(seed)
        self.times = None if times is None else np.append(np.sort(times), np.inf)

    def after(self, now: Floats) -> Floats:
        if self.times is not None:
            strikes: Floats = self.times[
                np.searchsorted(self.times, now, side="right").clip(0, len(self.times) - 1)
            ]
            return strikes
        if np.isinf(self.mtbf):
            return np.full(len(now), np.inf)
        return now + self.random.exponential(self.mtbf, len(now))

    def survived(self, share: Any, runs: int) -> Flags:
        """Return in which runs the nodes' own copies are still there."""
        return self.random.random(runs) < share


class _Runs:
    """The state of all runs, an array each, and its transitions."""

    def __init__(
        self,
        work: float,
        interval: float,
        price: CheckpointCost,
        runs: int,
        start: float,
        strikes: _Strikes,
        errors: _Strikes,
        checks: Checks,
    ) -> None:
        self.work, self.interval, self.price, self.strikes = work, interval, price, strikes
        self.checks, self.verified = checks, np.zeros(runs)  # s of training that a check has passed
        self.spoiled = np.full(runs, np.inf)  # s of training from which on the state is wrong
        self.errors, self.error = errors, errors.after(np.full(runs, start))  # the next silent one
        self.now = np.full(runs, start)
        self.done, self.furthest = np.zeros(runs), np.zeros(runs)  # s of training: now, ever
        self.safe, self.newest = np.zeros(runs), np.zeros(runs)  # written in full; of any level
        self.goal = np.full(runs, min(interval, work))  # where this stretch of training ends
        self.written = np.full(runs, np.inf)  # when the write in progress ends
        self.again = np.zeros(runs, np.bool_)  # whether a restart has a write to start anew
        self.takes = np.zeros(runs)  # s of the restart
        self.doing = np.full(runs, TRAIN)
        self.until = self.now + self.goal
        self.strike = strikes.after(self.now)
        self.failed, self.in_a_row = np.zeros(runs, np.int64), np.zeros(runs, np.int64)
        self.rejected = np.zeros(runs, np.int64)  # checks in a row that found an error
        self.back = np.zeros(runs)  # s of training, the farthest that a failure fell back on
        self.seconds = {kind: np.zeros(runs) for kind in KINDS}
        self.seconds["first start"] += start
        self.phases = [Phase("first start", 0.0, start, 0.0)] if start else []
        # s of a repair, and when each node in repair is back: one more than spares
        self.repair, self.repaired = 0.0, np.zeros((runs, 0))
        self.began = 0.0  # of the write in progress, in the first run

    def advance(self) -> None:
        """Take every run to the end of what it does, or to its next failure."""
        active = self.doing != DONE
        end = np.where(active, np.minimum(self.until, self.strike), self.now)
        failed = active & (self.strike < self.until)
        self._publish(active & (self.written <= end))
        self._spend(end, failed)
        doing = self.doing.copy()
        self._fail(failed)
        over = active & ~failed
        ends = {TRAIN: self._trained, WAIT: self._save, SAVE: self._saved, CHECK: self._checked}
        ends |= {LACK: self._exchanged, RESTART: self._restarted}
        for phase, end_of_phase in ends.items():
            at = over & (doing == phase)
            if at.any() or phase == LACK:  # whose strikes are drawn for all runs
                end_of_phase(at)

    def _publish(self, mask: Flags) -> None:
        """The write behind training is over: its checkpoint is safe."""
        if mask[0]:
            self._note("write", self.began, self.written[0], self.newest[0])
        self.safe[mask] = self.newest[mask]
        self.written[mask] = np.inf

    def _spend(self, end: Floats, failed: Flags) -> None:
        """Advance the time, and record its phase."""
        passed = end - self.now
        trains = self.doing == TRAIN
        before = self.done.copy()
        self._spoil(end)
        self.done = np.where(trains, np.where(failed, before + passed, self.goal), before)
        again = np.where(trains, np.minimum(self.done, self.furthest) - before, 0.0).clip(
            0.0, passed
        )
        self.furthest = np.maximum(self.furthest, self.done)
        self.seconds["repeated work"] += again
        self.seconds["training"] += np.where(trains, passed - again, 0.0)
        for doing, kind in KIND.items():
            self.seconds[kind] += np.where(self.doing == doing, passed, 0.0)
        if passed[0] > 0:
            start, middle, stop = self.now[0], self.now[0] + again[0], end[0]
            middle = stop if middle > stop * (1 - ROUNDING) else middle
            ended = not failed[0]
            if not trains[0]:
                self._note(KIND[int(self.doing[0])], start, stop, self.done[0], ended)
            else:
                if again[0] > 0:
                    self._note(
                        "repeated work", start, middle, before[0] + again[0], ended or middle < stop
                    )
                if middle < stop:
                    self._note("training", middle, stop, self.done[0], ended)
        self.now = end

    def _spoil(self, end: Floats) -> None:
        """A silent error in training spoils all state from there on; in other phases it strikes nothing."""
        hit = self.error <= end
        if not hit.any():
            return
        first = hit & (self.doing == TRAIN) & np.isinf(self.spoiled)
        self.spoiled = np.where(first, self.done + self.error - self.now, self.spoiled)
        if first[0]:
            self._note("silent error", self.error[0], self.error[0], self.spoiled[0])
        self.error = np.where(hit, self.errors.after(end), self.error)

    def _fail(self, mask: Flags) -> None:
        """Fall back on a checkpoint and restart; what was a restart begins anew."""
        if not mask.any():
            return
        hit = mask & (self.doing != RESTART)
        lucky = hit & self.strikes.survived(self.price.survived, len(mask))
        if hit[0] and np.isfinite(self.written[0]):
            self._note("write", self.began, self.now[0], self.newest[0], ended=False)
        self.newest = np.where(hit & ~lucky, self.safe, self.newest)
        self.done = np.where(hit, self.newest, self.done)
        self.spoiled[hit & (self.spoiled > self.done)] = np.inf  # lost with the work
        self.verified = np.minimum(self.verified, self.done)  # what was checked may be lost, too
        self.takes[hit], self.takes[lucky] = self.price.restart, self.price.local_restart
        self.again = np.where(hit, self.newest > self.safe, self.again)
        self.written[hit] = np.inf
        self.failed += mask
        self._exchanged(mask & ~self._lacks(mask))
        self.in_a_row = np.where(hit & (self.done > self.back), 0, self.in_a_row + mask)
        self.back = np.maximum(self.back, np.where(hit, self.done, 0.0))
        self._give_up()

    def _lacks(self, mask: Flags) -> Flags:
        """Take a node to repair; return where no spare is left: all wait until one is back."""
        lacks = np.zeros(len(mask), np.bool_)
        if self.repair:
            rows = np.flatnonzero(mask)
            free = self.repaired[rows].argmin(axis=1)
            takes = self.errors.random.exponential(self.repair, len(rows))
            self.repaired[rows, free] = self.now[rows] + takes
            back = self.repaired.min(axis=1)
            lacks = mask & (back > self.now)
            self.doing[lacks], self.until[lacks], self.strike[lacks] = LACK, back[lacks], np.inf
        return lacks

    def _exchanged(self, mask: Flags) -> None:
        """There is a node in the place of the failed one: restart."""
        self.doing[mask] = RESTART
        self.until[mask] = (self.now + self.takes)[mask]
        self.strike[mask] = self.strikes.after(self.now)[mask]

    def _give_up(self) -> None:
        """Raise SpecError where a run makes no progress."""
        if self.in_a_row.max() > MOST:
            raise SpecError(
                f"no progress: {MOST:,} failures in a row fell back on the same checkpoint, with"
                f" {min(self.interval, self.work):,.0f} s of training to the next,"
                f" {float(self.price.background):,.0f} s to write it in the background, and"
                f" {float(self.price.restart):,.0f} s to restart; save more often, or on fewer nodes."
            )

    def _trained(self, mask: Flags) -> None:
        """A stretch of training is over: wait for the last write, and save; the rest of a run is not saved."""
        rest = mask & (self.goal - self.newest < self.interval * (1 - 1e-9))
        self.doing[rest] = DONE
        mask = mask & ~rest
        waits = mask & np.isfinite(self.written)
        self.doing[waits] = WAIT
        self.until[waits] = self.written[waits]
        self._save(mask & ~waits)

    def _save(self, mask: Flags) -> None:
        self.doing[mask] = SAVE
        self.until[mask] = self.now[mask] + self.price.blocked

    def _saved(self, mask: Flags) -> None:
        """Training continues, and the checkpoint is safe, or will be."""
        self.newest[mask] = self.done[mask]
        self._write(mask)
        self._go_on(mask)

    def _go_on(self, mask: Flags) -> None:
        """Check if that is due, or train, unless all is done."""
        every = np.minimum(self.checks.every, self.work)
        due = (np.floor(self.verified / every + 1e-9) + 1) * every * (1 - 1e-9)
        checks = mask & (self.done == self.newest) & (self.done >= due)
        self.doing[checks] = CHECK
        self.until[checks] = self.now[checks] + self.checks.takes
        mask = mask & ~checks
        self.doing[mask & (self.done >= self.work)] = DONE
        self._train(mask & (self.done < self.work))

    def _checked(self, mask: Flags) -> None:
        """The state is right, or training falls back on the newest checkpoint that was."""
        wrong = mask & np.isfinite(self.spoiled)
        right = mask & ~wrong
        self.verified = np.where(right, self.done, self.verified)
        for state in (self.done, self.newest, self.safe, self.back):
            state[wrong] = self.verified[wrong]
        self.spoiled[wrong], self.written[wrong], self.again[wrong] = np.inf, np.inf, False
        self.takes[wrong] = self.price.restart
        self.doing[wrong], self.until[wrong] = RESTART, self.now[wrong] + self.price.restart
        self.rejected = np.where(right, 0, self.rejected + wrong)
        if self.rejected.max() > MOST:
            raise SpecError(
                f"no progress: {MOST:,} checks in a row found an error, after"
                f" {float(self.checks.every):,.0f} s of training each; check more often."
            )
        self._go_on(right)

    def _write(self, mask: Flags) -> None:
        if self.price.background:
            self.written[mask] = self.now[mask] + self.price.background
            if mask[0]:
                self.began = float(self.now[0])
        else:
            self.safe[mask] = self.newest[mask]

    def _restarted(self, mask: Flags) -> None:
        self._write(mask & self.again)
        self._go_on(mask)

    def _train(self, mask: Flags) -> None:
        self.doing[mask] = TRAIN
        self.goal[mask] = np.minimum(self.done + self.interval, self.work)[mask]
        self.until[mask] = (self.now + self.goal - self.done)[mask]

    def _note(self, kind: str, start: float, stop: float, done: float, ended: bool = True) -> None:
        self.phases.append(Phase(kind, float(start), float(stop), float(done), bool(ended)))
