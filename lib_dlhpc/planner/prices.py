"""Exact prices of many layouts at once: what `predict` says of the step, memory and run of each, as arrays.

Layouts with the same passes differ in the samples of a microbatch and in how many microbatches there are: they have one
program, with prices for each number of samples. Layouts whose pipelines have the same shape share the walk through it.
Costs and memory are those of a prediction, computed on arrays; tests/planner/test_prices.py holds them to 1e-12.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs import stragglers
from lib_dlhpc.costs.input import input_stall, input_time
from lib_dlhpc.errors import SpecError
from lib_dlhpc.gc_pause import gc_paused
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.parallel import program
from lib_dlhpc.parallel.data_parallel import STREAM
from lib_dlhpc.planner.layout_groups import Rows, SamePasses, layout_groups
from lib_dlhpc.planner.search_space import Columns, changes_of
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.memory.peaks import TERMS, RankColumns, peaks
from lib_dlhpc.prediction.memory.rank_memory import peak, rank_columns
from lib_dlhpc.prediction.step import compute_scale, of_a_run
from lib_dlhpc.program import BoundShares, Update
from lib_dlhpc.program.lane_walk import shared, walk
from lib_dlhpc.program.lanes import SENDS, Samples, Timed, finished, timed
from lib_dlhpc.schedules.network import Cost
from lib_dlhpc.spec.experiment import Experiment

UNKNOWN = Cost(np.nan, np.nan, np.nan)  # of messages by kind
# When each rank finishes its passes, when its stream is free, and the bubble of the mean rank.
Walked: TypeAlias = tuple[Any, ...]
Lane: TypeAlias = tuple[int, str, int]  # which samples of a step's table; schedule, microbatches
# A prediction; or, of layouts that do not fit, B by term; or why there are none.
Answer: TypeAlias = Breakdown | dict[str, Floats] | SpecError


class Step(NamedTuple):
    """What the passes of a group take, and of each layout its lane in the tables."""

    timed: Timed
    scale: float  # of compute times
    known: dict[Lane, Walked]  # of what was walked
    sample: NDArray[np.int64]

    @property
    def table(self) -> Floats:
        """Seconds of each layout, (COLUMNS, places, chunks, layouts)."""
        return self.timed.of_places(self.sample)


def predicted(
    experiment: Experiment, columns: Columns, progress: Callable[[int], None] = lambda many: None
) -> Iterator[tuple[Rows, Answer]]:
    """Yield predictions of layouts as arrays, each with the rows of `columns` that they are of.

    Where layouts do not fit, the B of each term on the fullest device are in their place, and where the network does
    not allow them, the error. Messages by kind are unknown. progress: called with how many are next.
    """
    found = _predicted(experiment, columns, progress)
    with gc_paused():
        one = next(found, None)
    while one is not None:
        yield one
        with gc_paused():
            one = next(found, None)


def _predicted(
    experiment: Experiment, columns: Columns, progress: Callable[[int], None]
) -> Iterator[tuple[Rows, Answer]]:
    """Yield predictions of layouts."""
    found, held = list[SamePasses](), list[RankColumns]()
    for rows, layouts in layout_groups(experiment, columns):
        if isinstance(layouts, SpecError):
            progress(len(rows))
            yield rows, layouts
        elif not layouts.has_lanes:
            yield from _one_by_one(experiment, columns, rows, progress)
        else:
            try:
                groups = [*layouts.by_passes(rows, columns)]
            except SpecError as error:
                progress(len(rows))
                yield rows, error
                continue
            for group in groups:
                if not group.has_lanes:
                    yield from _one_by_one(experiment, columns, group.rows, progress)
                    continue
                try:
                    held.append(rank_columns(group.one))
                    found.append(group)
                except SpecError as error:
                    progress(len(group.rows))
                    yield group.rows, error
    if found:
        yield from _at_once(found, held, progress)


def _at_once(
    found: list[SamePasses], held: list[RankColumns], progress: Callable[[int], None]
) -> Iterator[tuple[Rows, Answer]]:
    """Yield the same of layouts that are walked many at once; held: by their ranks."""
    fitting, memories = list[SamePasses](), list[dict[str, Floats]]()
    for group, memory in zip(found, _memory(found, held), strict=True):
        fits = memory.sum(axis=0) <= group.one.machine.device.memory
        if any(fits):
            fitting.append(group.only(fits))
            memories.append(dict(zip(TERMS, memory[:, fits], strict=True)))
        if not all(fits):
            progress(int((~fits).sum()))
            yield group.rows[~fits], dict(zip(TERMS, memory[:, ~fits], strict=True))
    samples, some, steps = _samples(found), list[int](), list[Step]()
    for at, group in enumerate(fitting):
        progress(len(group.rows))
        try:
            steps.append(_step(group, samples[group.one.strategy.batch]))
            some.append(at)
        except SpecError as error:
            yield group.rows, error
    walked = _walked([fitting[at] for at in some], steps)
    for at, step, each in zip(some, steps, walked, strict=True):
        yield fitting[at].rows, _breakdown(fitting[at], step, memories[at], *each)


def _one_by_one(
    experiment: Experiment, columns: Columns, rows: Rows, progress: Callable[[int], None]
) -> Iterator[tuple[Rows, Answer]]:
    for row in rows:
        progress(1)
        yield np.array([row]), _alone(experiment, changes_of(columns, row))


def _alone(experiment: Experiment, changes: dict[str, Any]) -> Answer:
    """Return the same of one layout; of a plain one, or where its offload target is too small, what `predict` says."""
    try:
        one = experiment.set(changes)
        if one.strategy.is_split:
            terms = peak(one).terms
            if sum(terms.values()) > one.machine.device.memory:
                return {name: np.array([each]) for name, each in terms.items()}
        return predict(one)
    except SpecError as error:
        return error


def _memory(found: list[SamePasses], held: list[RankColumns]) -> list[Floats]:
    """Return of each layout the B of each term on the fullest device, (terms, layouts)."""
    counts = [len(group.rows) for group in found]
    many, schedules = (
        np.concatenate(each) for each in zip(*(group[2:] for group in found), strict=True)
    )
    terms = peaks(held, np.repeat(np.arange(len(found)), counts), many, schedules)
    return np.split(terms, np.cumsum(counts)[:-1], axis=1)


def _samples(found: list[SamePasses]) -> dict[float, Floats]:
    """Return the samples of a microbatch in any of the layouts with each batch, whether they fit or not.

    With the same prices of all, layouts that differ in how they shard or recompute share those of the passes that are
    the same, and so do two questions that have as many kinds of microbatches.
    """
    many = defaultdict[float, set[int]](set)
    for group in found:
        many[group.one.strategy.batch].update(group.many.tolist())
    return {batch: batch / np.array(sorted(each, reverse=True)) for batch, each in many.items()}


def _step(group: SamePasses, samples: Floats) -> Step:
    each = np.searchsorted(samples, group.one.strategy.batch / group.many)
    some, sample = np.unique(each, return_inverse=True)
    key = Keyed(group.one, id(group.one)), Keyed(samples, samples.tobytes())
    return Step(*_timed(*key, tuple(some.tolist())), sample)


@lru_cache(maxsize=1024)
def _timed(
    one: Keyed[Experiment], samples: Keyed[Floats], some: Samples
) -> tuple[Timed, float, dict[Lane, Walked]]:
    """Return what passes take with some of the numbers of samples in a microbatch, the scale of compute times, and a
    place for what is walked."""
    factor = _slow(one.value) if one.value.strategy.pipeline == 1 else 1.0
    scale = float(compute_scale(one.value))
    step = program(one.value, scale, samples.value)
    return timed(step, some, factor, STREAM), scale, {}


def _slow(one: Experiment) -> float:
    return float(stragglers.slowest(one.devices, one.machine.jitter))


def _walked(found: list[SamePasses], steps: list[Step]) -> list[Walked]:
    """Return of each layout when its ranks finish their passes, and their streams are free, (ranks, layouts), and the
    bubble of the mean rank, (layouts,)."""
    asked, shapes = list[list[Lane]](), defaultdict[Any, dict[Any, Any]](dict)
    for number, (group, step) in enumerate(zip(found, steps, strict=True)):
        pipe = step.timed.schedule
        names = group.schedules.tolist() if pipe.ranks > 1 else ["1f1b"] * len(group.rows)
        asked.append([*zip(step.sample.tolist(), names, group.many.tolist(), strict=True)])
        if all(lane in step.known for lane in asked[-1]):
            continue
        table, meet = step.table, step.timed.meet
        for at, lane in enumerate(asked[-1]):
            if lane not in step.known:
                own = step, table[..., at], bool(meet[lane[0]])
                shapes[lane[1], pipe.ranks, lane[2], pipe.chunks][number, lane] = own
    for shape, lanes in shapes.items():
        _walk(shape, lanes)
    known = ([step.known[lane] for lane in each] for step, each in zip(steps, asked, strict=True))
    return [tuple(np.stack(each, axis=-1) for each in zip(*some, strict=True)) for some in known]


def _walk(shape: tuple[str, int, int, int], lanes: Mapping[Any, tuple[Step, Floats, bool]]) -> None:
    """Walk lanes of a shape: schedule, ranks, microbatches and chunks; their steps know the results.

    lanes: of each, by its number and name, its step, its table, and whether its messages may meet.
    """
    table = np.stack([own for _, own, _ in lanes.values()], axis=-1)
    alone = table.copy()
    alone[SENDS] = 0.0
    clock, free, idle = walk(*shape, np.concatenate([table, alone], axis=-1))
    bubble = (idle + clock.max(axis=0) - clock)[:, len(lanes) :].mean(axis=0)
    for at, ((_, lane), (step, own, meet)) in enumerate(lanes.items()):
        lines = step.timed.lines
        meets = lines.meets(shape[0]) if lines and meet else None
        ends = (clock[:, at], free[:, at]) if meets is None else shared(*shape, own, meets)
        step.known[lane] = (*map(np.array, ends), bubble[at])


def _breakdown(
    group: SamePasses,
    found: Step,
    memory: dict[str, Floats],
    clock: Floats,
    free: Floats,
    bubble: Floats,
) -> Breakdown:
    """Return the prediction of layouts with the same passes."""
    one, step, own = group.one, found.timed, found.timed.stage
    many = group.many // step.schedule.directions
    work = many * step.work[..., found.sample][:, own]  # (passes, places, layouts)
    limited = (many * step.limited[..., found.sample][:, :, own]).sum(axis=2)
    update = next(row.seconds for row in step.rows if row.what is Update)
    busy, slow = work.sum(axis=0) + update, _slow(one)
    waiting = stragglers.wait(busy.max(axis=0), slow)
    if len(busy) == 1:
        bubble, total = 0 * bubble, finished(step.rows, clock, free, slow)
    else:
        total = finished(step.rows, clock, free, 1.0) + waiting
    forward, back, again = work.mean(axis=1)
    backward, after = back + again, float(update.mean())
    exposed = total - (forward + backward + after + waiting + bubble)
    fetch = input_time(one)
    stall = input_stall(fetch, total - exposed, exposed)
    passes = work.sum(axis=1)
    mixes = BoundShares(*limited[0] / passes[0]), BoundShares(*limited[1] / (passes[1] + passes[2]))
    return of_a_run(
        total + stall,
        0.0,
        mixes,
        experiment=one,
        compute_scale=found.scale,
        forward=forward,
        backward=backward,
        update=after,
        straggler_wait=waiting,
        communication=UNKNOWN,
        exposed_communication=exposed,
        input_time=fetch,
        input_stall=stall,
        memory=memory,
        pipeline_bubble=bubble,
        recomputation=again,
    )
