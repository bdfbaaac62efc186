"""A lower bound of the passes of a step, where stages hold whole blocks, on arrays; it is never above the prediction.

Stages end between blocks (layout/stages.py). N of these take v s or more each for a microbatch's passes, and f s or
more of that forward. Stage k has n_k of them. It cannot start before the stages before it have done a forward pass,
nor, in GPipe and 1F1B, end after their last backward pass, so that

    T >= max over k of m v n_k + u (n_0 + ... + n_k-1)    with u = v in GPipe and 1F1B, else u = f

Of ranks with several stages each u = 0. What comes before the first of these blocks or after the last, such as the
logits, the first and the last rank do besides. The least T of all n_k is found by bisection: in T s rank k does at most
floor((T - u S_k) / m v) blocks behind the S_k of the ranks before it, and no more than fit in its memory with what they
store for the microbatches that it keeps; and all do N.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.layout import cut_points
from lib_dlhpc.planner.memory_bound import of_microbatch, passes_kept
from lib_dlhpc.planner.search_space import Space
from lib_dlhpc.spec.experiment import Experiment

STEPS = 14  # of the bisection
ROUNDING = 1e-9  # blocks


class Blocks(NamedTuple):
    """Of each combination the blocks that take as long as the shortest of them, and the least of any of them: s of a
    microbatch's passes, and of its forward pass, trained weights, but for those of experts that replicas share, and of
    these, B of a sample that are stored; and s of the passes through what begins and ends the network, if it is not
    among them."""

    many: Floats
    passes: Floats
    forward: Floats
    weights: Floats
    theirs: Floats
    stored: Floats
    first: Floats
    last: Floats


def alike_blocks(forward: Floats, backward: Floats, weights: Floats, stored: Floats) -> Blocks:
    """Return those blocks that are most of the work together; forward, backward: s, (samples, blocks); weights: by who
    shares them, (2, blocks)."""
    each = forward + backward
    longest = -np.sort(-each, axis=1)
    many = (longest * np.arange(1, each.shape[1] + 1)).argmax(axis=1)
    shortest = np.take_along_axis(longest, many[:, None], axis=1)
    least = (
        np.where(each >= shortest, one, np.inf).min(axis=1) for one in (forward, *weights, stored)
    )
    ends = (np.where(each < shortest, each, 0.0)[:, at] for at in (0, -1))
    return Blocks(many + 1.0, shortest[:, 0], *least, *ends)


def of_whole_blocks(
    experiment: Experiment,
    combinations: Space,
    blocks: Blocks,
    state: Floats,
    some: NDArray[np.bool_],
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return s of all passes of a step if it fits, and whether some cut may fit.

    0 and True where stages may end within a block, or passes overlap, and but for `some`. state: B of one block.
    """
    c, device = combinations.columns, experiment.machine.device
    p, m, room = c["pipeline"], c["microbatches"], float(device.memory - device.reserved_memory)
    some = some & (p * c["chunks"] < len(cut_points(experiment.model, 1))) & (blocks.passes > 0)
    some &= ~combinations.has("schedule", "dualpipe")
    plain, alone = (combinations.has("schedule", *of) for of in (("gpipe", "1f1b"), ("zb-h1",)))
    stored = of_microbatch(experiment, combinations, blocks.stored)
    rows, kind = combinations.kinds("microbatches", "schedule")
    ways = [*zip(m[rows].tolist(), c["schedule"][rows].tolist(), strict=True)]
    seconds, fits = np.zeros(len(p)), np.ones(len(p), bool)
    for stages in np.unique(p).tolist():
        at = np.flatnonzero(some & (p == stages))
        n, v, f, _, _, _, first, last = (block[at] for block in blocks)
        share = np.where(alone[at], f / v, plain[at])
        kept = np.array([passes_kept(stages, *way) for way in ways]).T.take(kind[at], axis=1)
        need = np.maximum(state[at] + kept * stored[at], 1.0)
        holds = np.floor(room / need + ROUNDING)
        seconds[at] = v * least_rounds(m[at], n, share, first / v, last / v, holds)
        fits[at] = holds.sum(axis=0) >= n
    return seconds, fits


def least_rounds(
    m: NDArray[np.int64], blocks: Floats, share: Floats, first: Floats, last: Floats, holds: Floats
) -> Floats:
    """Return T / v; share: u / v; first, last: what these ranks do besides, in blocks; holds: how many each may have,
    (ranks, ...)."""
    each, end = share / m, len(holds) - 1

    def are_done(limit: Floats) -> NDArray[np.bool_]:
        rounds, done = limit / m + ROUNDING, np.zeros(len(limit))
        for rank, most in enumerate(holds):
            within = rounds - each * done
            if rank == 0:
                within -= first
            if rank == end:
                within -= last
            np.maximum(np.floor(within, out=within), 0.0, out=within)
            done += np.minimum(within, most, out=within)
        return done >= blocks

    even = blocks / len(holds)
    low, high = m * even, m * (np.ceil(even) + first + last) + share * blocks
    high = np.where(are_done(high), high, m * (blocks + first + last) + share * blocks)
    for _ in range(STEPS):
        middle = (low + high) / 2
        enough = are_done(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return low
