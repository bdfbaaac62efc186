"""Exact prices of many layouts at once: what `predict` says of the step, memory and run of each, as arrays.

Layouts with the same passes differ in the samples of a microbatch and in how many microbatches there are: they have one
program, with prices for each number of samples. Layouts whose pipelines have the same shape share the walk through it.
Costs and memory are those of a prediction, computed on arrays; tests/planner/test_prices.py holds them to 1e-12.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import stragglers
from lib_dlhpc.costs.input import input_time
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import stage_cut
from lib_dlhpc.parallel import program
from lib_dlhpc.parallel.data import STREAM
from lib_dlhpc.parallel.overlapped import overlaps_passes
from lib_dlhpc.planner.space import Columns, alike, changes_of
from lib_dlhpc.prediction import Breakdown, ledger, predict
from lib_dlhpc.prediction.step import compute_scale, of_a_run
from lib_dlhpc.program import Mix, Update
from lib_dlhpc.program.lane_walk import walk
from lib_dlhpc.program.lanes import SENDS, Timed, finished, timed
from lib_dlhpc.program.program import Floats
from lib_dlhpc.schedules.network import Cost
from lib_dlhpc.spec.experiment import Experiment

Rows = NDArray[np.intp]
# What passes do not depend on, but where backward is in two parts, stages are held twice, and for where they are cut.
PIPELINE = ("microbatches", "schedule")
UNKNOWN = Cost(np.nan, np.nan, np.nan)  # of messages by kind


class Kin(NamedTuple):
    """Layouts with the same passes: one of them, which rows they are, and of each its microbatches and schedule."""

    one: Experiment
    rows: Rows
    many: NDArray[np.int64]
    schedules: NDArray[Any]

    def only(self, some: NDArray[np.bool_]) -> "Kin":
        """Return some of them."""
        return self._replace(
            rows=self.rows[some], many=self.many[some], schedules=self.schedules[some]
        )


class Step(NamedTuple):
    """What passes of kindred layouts take, and of each layout its lane in the tables."""

    timed: Timed
    sample: NDArray[np.int64]
    scale: float  # of compute times


def predicted(
    experiment: Experiment, columns: Columns, progress: Callable[[int], None] = lambda many: None
) -> Iterator[tuple[Rows, Breakdown | dict[str, Floats] | SpecError]]:
    """Yield predictions of layouts as arrays, each with the rows of `columns` that they are of.

    Where layouts do not fit, the B of each term on the fullest device are in their place, and where the network does
    not allow them, the error. Messages by kind are unknown. progress: called with how many are next.
    """
    found = list[Kin]()
    for rows in alike([each for name, each in columns.items() if name not in PIPELINE]):
        try:
            one = experiment.set(changes_of(columns, rows[0]))
            if _has_lanes(one):
                found += _kin(one, rows, columns)
                continue
        except SpecError as error:
            progress(len(rows))
            yield rows, error
            continue
        for row in rows:
            progress(1)
            try:
                yield np.array([row]), _alone(experiment.set(changes_of(columns, row)))
            except SpecError as error:
                yield np.array([row]), error
    fitting, steps, memories = list[Kin](), list[Step](), list[dict[str, Floats]]()
    samples = _samples(found)
    for kin in found:
        progress(len(kin.rows))
        try:
            memory = ledger.peaks(kin.one, kin.many, kin.schedules)
            fits = np.sum([*memory.values()], axis=0) <= kin.one.machine.device.memory
            if any(fits):
                steps.append(_step(kin.only(fits), samples[kin.one.strategy.batch]))
        except SpecError as error:
            yield kin.rows, error
            continue
        if not all(fits):
            yield kin.rows[~fits], {name: each[~fits] for name, each in memory.items()}
        if any(fits):
            fitting.append(kin.only(fits))
            memories.append({name: each[fits] for name, each in memory.items()})
    walked = _walked(fitting, steps)
    for kin, step, memory, each in zip(fitting, steps, memories, walked, strict=True):
        yield kin.rows, _breakdown(kin, step, memory, *each)


def _alone(one: Experiment) -> Breakdown | dict[str, Floats]:
    """Return the same of one layout; of a plain one, or where its offload target is too small, what `predict` says."""
    if one.strategy.is_split:
        terms = ledger.peak(one).terms
        if sum(terms.values()) > one.machine.device.memory:
            return {name: np.array([each]) for name, each in terms.items()}
    return predict(one)


def _has_lanes(one: Experiment) -> bool:
    """Return whether layouts like this one are walked many at once; others are predicted one by one."""
    s = one.strategy
    plain = s.spatial == 1 and s.offload == "none" and s.gather == "usual"
    return s.is_split and plain and not overlaps_passes(one)


def _kin(one: Experiment, rows: Rows, columns: Columns) -> Iterator[Kin]:
    """Yield the layouts of some rows by what passes depend on: how stages are cut, and whether backward is in two."""
    cuts = defaultdict[tuple[tuple[int, ...], bool, bool], list[int]](list)
    many, schedules = (columns[name][rows] for name in PIPELINE)
    for at, (count, schedule) in enumerate(zip(many.tolist(), schedules.tolist(), strict=True)):
        each = _with(one, count, schedule)
        how = each.strategy.splits_backward, each.strategy.mirrored
        cuts[stage_cut(each), *how].append(at)
    for some in cuts.values():
        first = _with(one, many[some[0]].item(), schedules[some[0]].item())
        yield Kin(first, rows[some], many[some], schedules[some])


def _with(one: Experiment, many: int, schedule: str) -> Experiment:
    return replace(one, strategy=replace(one.strategy, microbatches=many, schedule=schedule))


def _samples(found: list[Kin]) -> dict[float, Floats]:
    """Return the samples of a microbatch in any of the layouts with each batch: with the same prices of all, layouts
    that differ in how they shard or recompute share those of the passes that are the same."""
    many = defaultdict[float, set[int]](set)
    for kin in found:
        many[kin.one.strategy.batch].update(kin.many.tolist())
    return {batch: batch / np.array(sorted(each, reverse=True)) for batch, each in many.items()}


def _step(kin: Kin, samples: Floats) -> Step:
    sample = np.searchsorted(samples, kin.one.strategy.batch / kin.many)
    factor = _slow(kin.one) if kin.one.strategy.pipeline == 1 else 1.0
    scale = float(compute_scale(kin.one))
    step = program(kin.one, scale, samples)
    return Step(timed(step, len(samples), factor, STREAM), sample, scale)


def _slow(one: Experiment) -> float:
    return float(stragglers.slowest(one.devices, one.machine.jitter))


def _walked(found: list[Kin], steps: list[Step]) -> list[tuple[Floats, Floats, Floats]]:
    """Return of each layout when its ranks are through their passes, and their streams free, (ranks, layouts), and the
    bubble of the mean rank, (layouts,)."""
    shapes = defaultdict[tuple[str, int, int, int], list[tuple[int, int]]](list)
    results = []
    for number, (kin, step) in enumerate(zip(found, steps, strict=True)):
        pipe, count = step.timed.step.schedule, len(kin.rows)
        results.append((*np.empty((2, pipe.ranks, count)), np.empty(count)))
        pairs = zip(kin.schedules.tolist(), kin.many.tolist(), strict=True)
        for at, (schedule, many) in enumerate(pairs):
            name = schedule if pipe.ranks > 1 else "1f1b"
            shapes[name, pipe.ranks, many, pipe.chunks].append((number, at))
    for shape, members in shapes.items():
        each = [steps[one].timed.table[..., steps[one].sample[at]] for one, at in members]
        table = np.stack(each, axis=-1)
        alone = table.copy()
        alone[SENDS] = 0.0
        clock, free, idle = walk(*shape, np.concatenate([table, alone], axis=-1))
        lanes = len(members)
        bubble = (idle + clock.max(axis=0) - clock)[:, lanes:].mean(axis=0)
        for lane, (number, at) in enumerate(members):
            results[number][0][:, at] = clock[:, lane]
            results[number][1][:, at] = free[:, lane]
            results[number][2][at] = bubble[lane]
    return results


def _breakdown(
    kin: Kin, found: Step, memory: dict[str, Floats], clock: Floats, free: Floats, bubble: Floats
) -> Breakdown:
    """Return the prediction of layouts with the same passes."""
    one, step = kin.one, found.timed.step
    many = kin.many // step.schedule.directions
    work = many * found.timed.work[..., found.sample]  # (passes, places, layouts)
    limited = (many * found.timed.limited[..., found.sample]).sum(axis=2)
    update = np.array(
        [[each.seconds] for row in step.end for each in row if isinstance(each, Update)]
    )
    busy, slow = work.sum(axis=0) + update, _slow(one)
    if len(busy) == 1:
        bubble, waiting = 0 * bubble, (slow - 1) * busy[0]
        total = finished(step, clock, free, slow, STREAM)
    else:
        # Who computes less has its turn later: only the busiest stage is sure to delay the others.
        waiting = (slow - 1) * busy.max(axis=0)
        total = finished(step, clock, free, 1.0, STREAM) + waiting
    forward, back, again = work.mean(axis=1)
    backward, own = back + again, float(update.mean())
    exposed = total - (forward + backward + own + waiting + bubble)
    fetch = input_time(one)
    stall = np.maximum(np.maximum(fetch - (total - exposed), 0.0) - exposed, 0.0)
    passes = work.sum(axis=1)
    mixes = Mix(*limited[0] / passes[0]), Mix(*limited[1] / (passes[1] + passes[2]))
    return of_a_run(
        total + stall,
        0.0,
        mixes,
        experiment=one,
        compute_scale=found.scale,
        forward=forward,
        backward=backward,
        update=own,
        straggler_wait=waiting,
        communication=UNKNOWN,
        exposed_communication=exposed,
        input_time=fetch,
        input_stall=stall,
        memory=memory,
        pipeline_bubble=bubble,
        recomputation=again,
        single_device=np.nan,
    )
