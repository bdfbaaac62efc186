"""A lower bound of the step and the memory of layouts whose stages are known, on arrays; never above the prediction.

Rank k of p has w_k s or more of passes for each of m microbatches. It cannot start before the first stages of the ranks
before it have done a forward pass. Unless weight gradients wait, its last pass is the backward pass of its own first
stage, which those of the ranks before it follow, so that with f_j and b_j s of these

    T >= max over k of m w_k + sum of (f_j + b_j), j < k

and without the b_j, but with x_k s of what replicas exchange of the first stage's gradients,

    T >= max over k of m w_k - b_k + x_k + sum of f_j, j < k

With ZeRO 2 and 3 a pass takes no less than its messages. A rank holds its state, and what its stages store for the
microbatches in flight.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.errors import SpecError
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import stage_cut
from lib_dlhpc.planner.layout_groups import SamePasses, layout_groups
from lib_dlhpc.planner.memory_bound import passes_kept
from lib_dlhpc.planner.passes import Layers
from lib_dlhpc.planner.search_space import Space
from lib_dlhpc.prediction.pipelines.pipelined import before_backward
from lib_dlhpc.spec.experiment import Experiment


class ExchangeTimes(NamedTuple):
    """Of each layout: s in which a weight is gathered before a pass, scattered in one, and exchanged after the passes,
    and B of state for a weight, (2, layouts): not of experts that replicas share, and of these; and the samples of a
    microbatch whose activations stay on the device."""

    gathered: Floats
    scattered: Floats
    exchanged: Floats
    state: Floats
    stored: Floats


def of_cuts(
    experiment: Experiment,
    combinations: Space,
    layers: Callable[[int], Layers | None],
    each: ExchangeTimes,
) -> tuple[Floats, Floats]:
    """Return s of all passes of a step, and B of state and activations on the fullest rank.

    Both are 0 where they are not known, or there is no pipeline. layers: of the network as a layout splits it.
    """
    c = combinations.columns
    seconds, memory = np.zeros((2, len(combinations)))
    for rows, layouts in layout_groups(experiment, c):
        own = layers(int(rows[0]))
        if isinstance(layouts, SpecError) or own is None:
            continue
        try:
            groups = [*layouts.by_passes(rows, c)]
        except SpecError:  # a prediction raises it again
            continue
        for group in groups:
            if group.one.strategy.pipeline > 1 and not group.one.strategy.mirrored:
                stages = _stages(Keyed(own, id(own)), stage_cut(group.one))
                some = ExchangeTimes(*(column[..., group.rows] for column in each))
                seconds[group.rows] = _seconds(group, own, stages, some)
                memory[group.rows] = _memory(group, stages, some)
    return seconds, memory


@lru_cache(maxsize=512)
def _stages(layers: Keyed[Layers], ends: tuple[int, ...]) -> list[Floats]:
    return layers.value.between(ends)


def _seconds(
    group: SamePasses, layers: Layers, stages: list[Floats], each: ExchangeTimes
) -> Floats:
    """Return s of all passes of a step, of layouts with the same passes."""
    strategy, m = group.one.strategy, group.many[:, None]
    ranks, first = int(strategy.pipeline), slice(int(strategy.pipeline))
    sample = np.searchsorted(layers.samples, strategy.batch / group.many)
    ahead, back, weights, _ = stages
    gathered = each.gathered.T @ weights
    forward = np.maximum(ahead[sample], gathered)
    backward = np.maximum(back[sample], gathered + each.scattered.T @ weights)
    work = m * (forward + backward).reshape(len(m), -1, ranks).sum(axis=1)
    forward, backward = forward[:, first], backward[:, first]
    before = np.cumsum(forward, axis=1) - forward
    last = (group.schedules != "zb-h1")[:, None]
    after = last * (np.cumsum(backward, axis=1) - backward)
    late = each.exchanged.T @ weights[:, first] - backward
    found: Floats = (work + before + np.maximum(after, late)).max(axis=1)
    return found


def _memory(group: SamePasses, stages: list[Floats], each: ExchangeTimes) -> Floats:
    """Return B of state and of activations on the fullest rank, of layouts with the same passes."""
    strategy, found = group.one.strategy, np.zeros(len(group.many))
    ranks, chunks = int(strategy.pipeline), int(strategy.chunks)
    every = (each.state.T @ stages[2]).reshape(-1, chunks, ranks)
    stored = stages[3].reshape(chunks, ranks)
    ways = zip(group.many.tolist(), group.schedules.tolist(), strict=True)
    for index, (many, schedule) in enumerate(ways):
        if chunks > 1:  # the first rank is ahead of the others
            kept, _ = before_backward(0, ranks, min(many, 3 * ranks), chunks)
            held, state = (kept @ stored[:, 0]).max(), every[index, :, 0].sum()
        else:
            held, state = passes_kept(ranks, many, schedule) * stored[0], every[index, 0]
        found[index] = (state + each.stored[index] * held).max()
    return found
