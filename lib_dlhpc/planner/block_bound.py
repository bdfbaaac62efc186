"""A lower bound of the passes of a step, where stages hold whole blocks, on arrays; it is never above the prediction.

Stages end between blocks (layout/stages.py). N of these take v s or more each for a microbatch's passes, and f s or
more of that forward. Stage k has n_k of them. It cannot start before the stages before it have done a forward pass,
nor, in GPipe and 1F1B, end after their last backward pass, so that

    T >= max over k of m v n_k + u (n_0 + ... + n_k-1)    with u = v in GPipe and 1F1B, else u = f

Of ranks with several stages each u = 0. What comes before the first of these blocks or after the last, such as the
logits, the first and the last rank do besides. The least T of all n_k is found by bisection: in T s rank k does at most
floor((T - u S_k) / m v) blocks behind the S_k of the ranks before it, and all do N.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.layout import cut_points
from lib_dlhpc.planner.space import Space
from lib_dlhpc.spec.model import Model

Floats = NDArray[np.float64]
STEPS = 14  # of the bisection
ROUNDING = 1e-9  # blocks


class Blocks(NamedTuple):
    """Of each combination the blocks that take as long as the shortest of them; s of a microbatch's passes through it,
    and of their forward passes; s of its passes through what begins and ends the network, if it is not among them."""

    many: Floats
    passes: Floats
    forward: Floats
    first: Floats
    last: Floats


def alike_blocks(forward: Floats, backward: Floats) -> Blocks:
    """Return those blocks that are most of the work together; forward, backward: s, (samples, blocks)."""
    each = forward + backward
    longest = -np.sort(-each, axis=1)
    many = (longest * np.arange(1, each.shape[1] + 1)).argmax(axis=1)
    least = np.take_along_axis(longest, many[:, None], axis=1)
    ahead = np.where(each >= least, forward, np.inf).min(axis=1)
    ends = (np.where(each < least, each, 0.0)[:, at] for at in (0, -1))
    return Blocks(many + 1.0, least[:, 0], ahead, *ends)


def of_whole_blocks(model: Model, combinations: Space, names: list[str], blocks: Blocks) -> Floats:
    """Return s of all passes of a step; 0 where stages may end within a block, or passes overlap.

    names: the fields on which blocks depend.
    """
    rows, kind = combinations.kinds(*names, "pipeline", "microbatches", "chunks", "schedule")
    some, one = combinations.only(rows), Blocks(*(each[rows] for each in blocks))
    p, m = (some.columns[name] for name in ("pipeline", "microbatches"))
    whole = p * some.columns["chunks"] < len(cut_points(model, 1))
    whole &= ~some.has("schedule", "dualpipe") & (one.passes > 0)
    found = np.zeros(len(rows))
    plain, one_stage = some.has("schedule", "gpipe", "1f1b"), some.has("schedule", "zb-h1")
    for stages in np.unique(p).tolist():
        at = np.flatnonzero(whole & (p == stages))
        n, v, forward, first, last = (each[at] for each in one)
        u = np.where(one_stage[at], forward, plain[at] * v)
        found[at] = v * _rounds(m[at], n, u / v, _ends(stages, first / v, last / v))
    return found[kind]


def _ends(stages: int, first: Floats, last: Floats) -> list[Floats | float]:
    """Return what each rank does besides alike blocks, in their number."""
    return [first + last] if stages == 1 else [first, *[0.0] * (stages - 2), last]


def _rounds(
    m: NDArray[np.int64], blocks: Floats, share: Floats, besides: list[Floats | float]
) -> Floats:
    """Return T / v; share: u / v; besides: of each rank, in blocks."""
    even = blocks / len(besides)
    low, high = m * even, m * (np.ceil(even) + sum(besides)) + share * blocks
    for _ in range(STEPS):
        middle, done = (low + high) / 2, 0.0 * low
        for other in besides:
            done += np.maximum(np.floor((middle - share * done) / m - other + ROUNDING), 0.0)
        low, high = np.where(done < blocks, middle, low), np.where(done < blocks, high, middle)
    return low
