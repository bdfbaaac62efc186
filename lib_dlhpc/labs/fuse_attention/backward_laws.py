"""A learner's backward of fused attention, which recomputes blocks of weights; an extra that is not graded.

backward_findings(backward, tasks)     backward(chip, q, k, v, out, lam, dout, dq, dk, dv)
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from lib_dlhpc.labs.findings import Finding, in_turn, once, waiting
from lib_dlhpc.labs.fuse_attention.attention_laws import Attention
from lib_dlhpc.labs.fuse_attention.chip import Chip
from lib_dlhpc.labs.fuse_attention.runs import Kernel, off, run
from lib_dlhpc.layers.base.saved import Array

RIGHT = "Backward: the gradients of queries, keys and values"
NOTHING = "Backward: no scores in HBM"


def arrays_of(task: Attention) -> dict[str, Array]:
    """Return what backward is given: q, k, v, out, lam (the logarithm of the sum of each row's exp) and dout."""
    q, k, v = task.arrays()
    scores = q @ k.T / np.sqrt(task.d)
    top = scores.max(axis=1, keepdims=True)
    lam = top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
    dout = np.random.default_rng(task.seed + 1).normal(size=q.shape)
    out = np.exp(scores - lam) @ v
    return {"q": q, "k": k, "v": v, "out": out, "lam": lam, "dout": dout}


def gradients_of(
    q: Array, k: Array, v: Array, out: Array, lam: Array, dout: Array
) -> dict[str, Array]:
    """Return the gradients."""
    scale = 1 / np.sqrt(q.shape[1])
    weights = np.exp(q @ k.T * scale - lam)
    scores = weights * (dout @ v.T - (dout * out).sum(axis=1, keepdims=True))
    return {"dq": scores @ k * scale, "dk": scores.T @ q * scale, "dv": weights.T @ dout}


def backward_findings(backward: Kernel, tasks: Sequence[Attention]) -> list[Finding]:
    """Return whether the gradients are right, and whether blocks of weights stay on the chip."""
    chips = dict[Attention, Chip]()

    def right(task: Attention) -> str:
        given = arrays_of(task)
        expected = gradients_of(*given.values())
        shapes = dict.fromkeys(expected, (task.n, task.d))
        chips[task], found = run(backward, task.room, given, shapes)
        words = (off(name, found[name], expected[name]) for name in ("dv", "dq", "dk"))
        return next(filter(None, words), "")

    def nothing(task: Attention) -> str:
        size = chips[task].scratched
        if size < task.n * task.n / 2:
            return ""
        return (
            f"{size} numbers of scratch, for {task.n} x {task.n} scores: recompute a block of them on the chip"
            " instead."
        )

    # With scores near 10,000, exp(score - lam) is no longer exact.
    own = [each for each in tasks if each.n > 1 and each.large == 1]
    return waiting(
        in_turn(
            lambda: once(
                RIGHT, [(each.words, partial(right, each)) for each in own], "In every case."
            ),
            lambda: once(
                NOTHING, [(each.words, partial(nothing, each)) for each in own], "In every case."
            ),
        ),
        (RIGHT, NOTHING),
    )
