"""plan(experiment): exact predictions of combinations, in the order of their lower bounds, until none can be better."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.convergence import epochs_of
from lib_dlhpc.errors import SpecError
from lib_dlhpc.gc_pause import gc_paused
from lib_dlhpc.planner.candidates import HELD, UNFIT, Candidates, candidates, least_of
from lib_dlhpc.planner.prices import predicted
from lib_dlhpc.planner.result import QUANTITIES, Choice, Plan, in_words
from lib_dlhpc.planner.search_space import SAME, Columns, changes_of, met_before
from lib_dlhpc.planner.training_runs import is_asked, named, runs_of, samples
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.prediction.elementwise import holds_arrays
from lib_dlhpc.prediction.step import compute_scale
from lib_dlhpc.scale_out import HERE, Place
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.given import check_given
from lib_dlhpc.spec.planning import overridden

BEST = 11  # the best and the ten next
MOST = 1024  # layouts at once
AHEAD = 256  # whose bounds are refined at once
KINDS = 8  # of each batch: ZeRO, and whether there is a pipeline
# a price is the same to 1e-12 alone and among others: what a plan reports is within such a limit
ROUNDED = 1 + 1e-12


@gc_paused()
def plan(
    experiment: Experiment,
    objective: str | Sequence[str] | None = None,
    limit: Mapping[str, float | str] | None = None,
    choose: Mapping[str, Any] | None = None,
    most: int | None = None,
    best: int = BEST,
    progress: Callable[[int, int], None] | None = None,
    where: Place = HERE,
) -> Plan:
    """Return the best layouts of a run on its devices, with its global batch, as its [plan] asks.

    Arguments override [plan], limits and axes one by one.

    objective: time (s to train), energy (J to train), cost (device-hours), or several: then the first orders the
        search, and the front is that of all predicted layouts.
    limit: the most of each, or memory (B of the fullest device).
    choose: values for a field of the strategy, or bounds of its defaults (search_space.py): {"least": 2, "most": 8}.
    most: predictions. A search that ends before it has proved the best returns its gap to the bound.
    best: how many of the best are to be proved.
    progress: called before each prediction with the number tried, and of how many; what it raises ends the search.
    where: lower bounds are computed in chunks, here or elsewhere (scale_out/).

    With run.target, time and energy are those to reach that accuracy, for each batch and each setting in [plan] that
    changes accuracy; settings that miss it by measurement are left out. Raises SpecError for an illegal argument or
    if nothing legal fits, and LostError if workers are lost.
    """
    check_given(experiment)
    asked = overridden(
        experiment.plan, objectives=objective, limits=limit, axes=choose, predictions=most
    )
    if holds_arrays(experiment) or experiment.strategy.update == "asynchronous":
        raise SpecError(
            "A plan needs one experiment with synchronous or local updates, without arrays."
        )
    if best < 1:
        raise SpecError(f"best = {best}: legal: 1 and more.")
    base = replace(_with_scale(experiment), plan=asked)
    runs, refused = runs_of(base)
    found = _Search(base, candidates([met_before(run) for run in runs], where, HELD))
    found.left_out += refused
    found.refused = tuple(refused)
    found.run(best, progress or (lambda tried, of: None))
    if where.folder is not None:
        shutil.rmtree(where.folder)
    return found.plan()


def _with_scale(experiment: Experiment) -> Experiment:
    """Return the experiment with a compute scale in place of its measured rate, which is of one layout."""
    measured = experiment.calibration
    if not measured.rate:
        return experiment
    scale = float(compute_scale(experiment))
    scaled = replace(measured, rate=0.0, devices=1, batch=0, compute_scale=scale)
    return replace(experiment, calibration=scaled)


class _Search:
    """The search of the candidates of all batches at once; rows are numbered through them."""

    def __init__(self, base: Experiment, found: Sequence[Candidates]) -> None:
        self.base, self.found, self.wanted = base, found, base.plan.objectives
        self.limits = {name: most for name, most in vars(base.plan.limits).items() if most}
        self.left_out, self.ranked = Counter[str](), list[Choice]()
        self.refused: tuple[str, ...] = ()
        self.reached = dict[str, float]()  # the least of what is limited, of layouts that fit
        for each in found:
            self.left_out += each.left_out
            if is_asked(base) and not len(each):
                self.left_out[f"batch of {samples(each.experiment):,}: no layout fits"] += 1
        self.predicted, self.legal = 0, sum(each.legal for each in found)
        self.ends = np.cumsum([len(each) for each in found])
        self.least = np.concatenate([each.least(self.wanted[0]) for each in found])
        self.kinds = np.concatenate(
            [_kinds(each) + KINDS * index for index, each in enumerate(found)]
        )
        self.above = np.ones(KINDS * len(found))  # the least price over its bound, by kind
        self.waiting = np.ones(len(self.least), bool)
        self.refined = np.zeros(len(self.least), bool)

    def run(self, best: int, progress: Callable[[int, int], None]) -> None:
        """Predict combinations until no bound is below the last of the best, or enough are predicted.

        Next are those whose bounds, times the least price over its bound of their kind so far, are least: half as
        many more each time, since many at once take less time each. Their bounds are those of their stages. Layouts
        whose network cannot be split so have none, are never ruled out, and come first: they teach nothing of others.
        """
        tried, size = sum(self.left_out[reason] for reason in UNFIT), 1

        def each(many: int) -> None:
            nonlocal tried
            for _ in range(many):
                progress(tried, self.legal)
                tried += 1

        while self.predicted < self.base.plan.predictions:
            last = self._last(best)
            rows = np.flatnonzero(self.waiting & (self.least <= last))
            if not len(rows):
                break
            left = self.base.plan.predictions - self.predicted
            unknown = rows[self.least[rows] == 0]
            if len(unknown):
                self._try(unknown[: min(MOST, left)], each)
                continue
            expected = self.least[rows] * self.above[self.kinds[rows]]
            most = min(size, left)
            rows = rows[least_of(expected, max(most, AHEAD))]
            # Once this number has been tried without a limit, bounds rule out few more.
            if (size <= AHEAD or last < np.inf) and not self.refined[rows[:most]].all():
                self._refine(rows[~self.refined[rows]], each)
                continue
            self._try(rows[:most], each)
            size = min(size + size // 2 + 1, MOST)

    def _last(self, best: int) -> float:
        if len(self.wanted) > 1 or len(self.ranked) < best:
            return np.inf
        return self.ranked[best - 1].values[self.wanted[0]]

    def _refine(self, rows: NDArray[np.intp], progress: Callable[[int], None]) -> None:
        """Raise the bounds of candidates; leave out those that cannot fit."""
        self.refined[rows] = True
        for at, some, these in self._of_each(rows):
            own = some - self.ends[at] + len(these)
            fits = these.refine(own)
            self.least[some] = these.only(own).least(self.wanted[0])
            self.waiting[some] = fits
            if unfit := int((~fits).sum()):
                self.left_out[UNFIT[1]] += unfit
                progress(unfit)

    def _of_each(
        self, rows: NDArray[np.intp]
    ) -> Iterator[tuple[int, NDArray[np.intp], Candidates]]:
        """Yield some rows of each batch, and its candidates."""
        of = np.searchsorted(self.ends, rows, side="right")
        for at in np.unique(of).tolist():
            yield at, rows[of == at], self.found[at]

    def _try(self, rows: NDArray[np.intp], progress: Callable[[int], None]) -> None:
        self.waiting[rows] = False
        for at, some, these in self._of_each(rows):
            self._predict(these, some, self.ends[at], progress)
        self.ranked.sort(key=lambda choice: choice.values[self.wanted[0]])

    def _predict(
        self, these: Candidates, rows: NDArray[np.intp], end: int, progress: Callable[[int], None]
    ) -> None:
        """Predict candidates of one batch; end: the row behind its last."""
        known = self.above > 1
        base = replace(these.experiment, plan=self.base.plan)
        columns = these.combinations(rows - end + len(these))
        for some, found in predicted(base, columns, progress):
            if isinstance(found, SpecError):
                self.left_out[f"not legal: {_short(found)}"] += len(some)
            elif isinstance(found, Breakdown):
                self._learn(base, rows[some], columns, some, found, known)
            else:
                names = list(found)
                for most in np.argmax([*found.values()], axis=0).tolist():
                    self.left_out[f"does not fit: most often because of {names[most]}"] += 1

    def _learn(
        self,
        base: Experiment,
        rows: NDArray[np.intp],
        columns: Columns,
        some: NDArray[np.intp],
        found: Breakdown,
        known: NDArray[np.bool_],
    ) -> None:
        """Rank layouts that were predicted; known: the kinds of which some were before."""
        self.predicted += len(rows)
        values = {
            name: np.broadcast_to(getattr(found, field), rows.shape)
            for name, (field, _) in QUANTITIES.items()
        }
        fits, price = np.broadcast_to(found.fits, rows.shape), values[self.wanted[0]]
        with np.errstate(divide="ignore"):
            ratios = np.maximum(1.0, price / self.least[rows])
        for index, (row, ratio) in enumerate(zip(some.tolist(), ratios.tolist(), strict=True)):
            kind = self.kinds[rows[index]]
            self.above[kind] = min(ratio, self.above[kind]) if known[kind] else ratio
            known[kind] = True
            own = {name: float(each[index]) for name, each in values.items()}
            over = (name for name, most in self.limits.items() if own[name] > most * ROUNDED)
            reason = f"over the limit of {next(over, '')}" if fits[index] else "does not fit"
            if fits[index]:
                for name in self.limits:
                    self.reached[name] = min(own[name], self.reached.get(name, np.inf))
            if fits[index] and reason == "over the limit of ":
                changes = {**changes_of(columns, row), **named(base, self.base.plan.axes)}
                self.ranked.append(Choice(base, changes, own))
            else:
                self.left_out[reason] += 1

    def plan(self) -> Plan:
        """Return what was found; raises SpecError where nothing was."""
        if not self.ranked:
            raise SpecError(self._nothing())
        same, accuracy = self.left_out.pop(SAME, 0), ""
        if is_asked(self.base) or self.base.run.target:
            accuracy = epochs_of(self.ranked[0].experiment).reason
        return Plan(
            self.base,
            self.wanted,
            tuple(self.ranked),
            self.left_out,
            self.legal,
            self.predicted,
            self._untried,
            min(
                float(self.least[self.waiting].min(initial=np.inf)),
                *(each.beyond for each in self.found),
            ),
            same,
            accuracy,
            self.refused,
        )

    @property
    def _untried(self) -> int:
        return int(self.waiting.sum()) + sum(each.others for each in self.found)

    def _nothing(self) -> str:
        """Return why no layout was found: the limits that exclude those that fit, or else what all break."""
        rest = f"; {self._untried:,} others were not tried" if self._untried else ""
        if self.reached:
            return f"No layout is within the limits: {self._beyond()}{rest}."
        unfit = {r: n for r, n in self.left_out.items() if r.startswith("does not fit")}
        most = Counter(unfit or self.left_out).most_common(3)
        reasons = "; ".join(f"{count:,}: {reason}" for reason, count in most)
        hint = " More nodes may make it fit, or offloading (plan.axes.offload)." if unfit else ""
        return f"No layout was found for this run: {reasons}{rest}.{hint}"

    def _beyond(self) -> str:
        """Return the limits that no layout is within, and the least that was reached of each."""
        limits = {n: m for n, m in self.limits.items() if self.reached[n] > m * ROUNDED}
        each = (
            f"the least {name} predicted is {in_words(self.reached[name], name)}, its limit {in_words(most, name)}"
            for name, most in (limits or self.limits).items()
        )
        return "each is met by some layout, all by none: " * (not limits) + "; ".join(each)


def _short(error: SpecError) -> str:
    """Return what an error names, without the numbers that differ from one combination to the next."""
    return str(error).partition(" = ")[0]


def _kinds(found: Candidates) -> NDArray[np.int64]:
    """Return the kind of each candidate; what the bound leaves out is much the same for all of a kind."""
    c = found.columns("zero", "pipeline")
    kinds: NDArray[np.int64] = c["zero"] * 2 + (c["pipeline"] > 1)
    return kinds
