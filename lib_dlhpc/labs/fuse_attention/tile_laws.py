"""A learner's tiled matmul, and softmax with a running maximum and sum: right, and how much they move.

matmul_findings(matmul, moved, tasks)      beside numpy, beside the learner's count, beside the lower bound
softmax_findings(softmax, tasks)           beside numpy; each number is read twice and written once
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, isqrt, sqrt
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.findings import Finding, broken, in_turn, kept, once, waiting
from lib_dlhpc.labs.formula_cases import value_of
from lib_dlhpc.labs.fuse_attention.chip import Chip
from lib_dlhpc.labs.fuse_attention.runs import Kernel, last_parts, off, run
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.sentences import sentences

say = sentences(__file__)

MATMUL = "Matmul: right, whatever the shape"
COUNTED = "Matmul: your count is the chip's"
TIMES = 1.5  # of the lower bound
LEAST = f"Target: matmul moves at most {TIMES:g} times the lower bound"
SOFTMAX = "Softmax: right, also where exp overflows"
TWICE = "Softmax: each number is read at most twice, and written once"
LAWS = (MATMUL, COUNTED, LEAST)


class Matmul(NamedTuple):
    """C = A B with A (n, k) and B (k, m) on a chip with that room. target: whether its traffic is judged."""

    n: int
    k: int
    m: int
    room: int
    seed: int
    target: bool = False

    @property
    def words(self) -> str:
        """The task in words."""
        return f"{self.n} x {self.k} times {self.k} x {self.m}, room for {self.room}"

    def arrays(self) -> tuple[Array, Array]:
        """Return A and B."""
        rng = np.random.default_rng(self.seed)
        return rng.normal(size=(self.n, self.k)), rng.normal(size=(self.k, self.m))

    @property
    def least(self) -> float:
        """Numbers that every order of the multiplications moves at least: Smith et al. 2017, and each input once.

        2 n k m / sqrt(M) - 2 M are read (arXiv 1702.02017), and C is written.
        """
        read = 2 * self.n * self.k * self.m / sqrt(self.room) - 2 * self.room
        return max(read, self.k * (self.n + self.m)) + self.n * self.m


def matmuls_of(seed: int, hidden: bool = False) -> list[Matmul]:
    """Return a learner's shapes: a small one, a row, a column, and two that tiles do not divide."""
    rng = np.random.default_rng([seed, 14, hidden])
    made = [
        Matmul(4, 3, 5, 60, seed),
        Matmul(1, int(rng.integers(20, 40)), int(rng.integers(20, 40)), 100, seed + 1),
        Matmul(int(rng.integers(20, 40)), 1, int(rng.integers(20, 40)), 100, seed + 2),
    ]
    for number in (3, 4):
        room = int(rng.integers(150, 320))
        side = isqrt(room + 1) - 1
        # As many tiles with a somewhat smaller side: a second column of A and row of B costs no more of them.
        n, m = (int((side - 1) * rng.integers(4, 6) - rng.integers(0, 3)) for _ in range(2))
        made.append(Matmul(n, int(rng.integers(31, 50)), m, room, seed + number, target=True))
    return made


def matmul_findings(
    matmul: Kernel, moved: Callable[..., Any], tasks: Sequence[Matmul]
) -> list[Finding]:
    """Return whether matmul(chip, a, b, c) is right, is counted by moved(n, k, m, room), and moves little."""
    chips = dict[Matmul, Chip]()

    def right(task: Matmul) -> str:
        a, b = task.arrays()
        chips[task], found = run(matmul, task.room, {"a": a, "b": b}, {"c": (task.n, task.m)})
        return _matmul_off(a, b, found["c"])

    def count(task: Matmul) -> str:
        found = value_of(moved, task.n, task.k, task.m, task.room)
        if task not in chips:  # asked first: no count can be kept from a run
            inputs = dict(zip("ab", task.arrays(), strict=True))
            chips[task], _ = run(matmul, task.room, inputs, {"c": (task.n, task.m)})
        return count_off(found, chips[task], task.n * task.m)

    def little() -> Finding:
        most = max((each for each in chips if each.target), key=lambda each: _times(each, chips))
        times = _times(most, chips)
        if times <= TIMES:
            return kept(LEAST, f"At most {times:.2f} times.")
        hint = _why_moved(most, chips[most])
        return broken(LEAST, f"{most.words}: {times:.2f} times the lower bound. {hint}".strip())

    def law(name: str, check: Callable[..., str], own: Sequence[Matmul], words: str) -> Any:
        every = [(each.words, partial(check, each)) for each in own]
        return lambda: once(name, every, words)

    more = [each._replace(n=each.n + 2, target=False) for each in tasks]
    return waiting(
        in_turn(
            law(MATMUL, right, tasks, "In every shape."),
            law(COUNTED, count, [*tasks, *more], "To the number."),
            little,
        ),
        LAWS,
    )


def _times(task: Matmul, chips: dict[Matmul, Chip]) -> float:
    return chips[task].moved / task.least


def _matmul_off(a: Array, b: Array, found: Array) -> str:
    right = a @ b
    parts = [np.outer(a[:, p], b[p]) for p in range(a.shape[1])]
    last = last_parts(found, parts, right)
    if last:
        return (
            f"C contains the products of only the last {last} column{'s' * (last > 1)} of A. A tile of C starts from"
            " zeros once, and sums over all columns of A."
        )
    return off("c", found, right, hint=say.last_tile)


def count_off(found: float, chip: Chip, size: int, hint: str = "") -> str:
    """Return what is wrong with a learner's count of numbers moved, empty if nothing is.

    size: of the result; hint: in place of the usual ones.
    """
    if found == chip.moved:
        return ""
    many = "many" if found > chip.moved else "few"
    words = f"{found:.10g} are too {many}: the chip loaded {chip.loaded} and stored {chip.stored}."
    if hint:
        return f"{words} {hint}"
    if found == chip.loaded:
        return f"{words} Numbers that are stored count, too."
    if chip.stored > size:
        return f"{words} The result has {size} numbers, so parts of it are stored more than once."
    if found < chip.moved:
        return f"{words} How many tiles are there, with the smaller ones at the edges?"
    return f"{words} At the edges, tiles are smaller: nothing beyond the matrix is loaded."


def _why_moved(task: Matmul, chip: Chip) -> str:
    """Return what costs a matmul its traffic."""
    n, k, m = task.n, task.k, task.m
    if chip.stored > n * m:
        return say.stored_twice
    equal = isqrt(task.room // 3)
    loads = k * (n * ceil(m / equal) + m * ceil(n / equal))
    if chip.loaded > 1.15 * loads:
        return say.loaded_often
    if chip.loaded > 0.85 * loads:
        return say.equal_tiles
    return ""


class Softmax(NamedTuple):
    """Softmax of each row of x. large: of the numbers; rising: whether the largest come last; low: exp of each is 0."""

    rows: int
    columns: int
    room: int
    seed: int
    large: float = 1.0
    rising: bool = False
    low: bool = False

    @property
    def words(self) -> str:
        """The task in words."""
        more = ", numbers of some thousands" if self.large > 1 else ""
        more += ", all below 0" if self.low else ""
        more += ", the largest ones last" if self.rising else ""
        return f"{self.rows} x {self.columns}, room for {self.room}{more}"

    def array(self) -> Array:
        """Return x."""
        rng = np.random.default_rng(self.seed)
        order = 1 if self.rising else -1
        found: Array = np.sort(rng.normal(size=(self.rows, self.columns)), axis=1)[:, ::order]
        return self.large * (found - 6 if self.low else found)


def softmaxes_of(seed: int, hidden: bool = False) -> list[Softmax]:
    """Return a learner's shapes: a row that fits, and longer ones with the largest number first or last."""
    rng = np.random.default_rng([seed, 15, hidden])
    rows, columns, room = (int(rng.integers(*each)) for each in ((3, 7), (150, 300), (40, 90)))
    return [
        Softmax(1, 7, 60, seed),
        Softmax(rows, columns, room, seed + 1),
        Softmax(rows, columns + 1, room, seed + 2, rising=True),
        Softmax(rows + 1, columns - 1, room, seed + 3, large=2000.0, rising=True),
        Softmax(rows, columns - 2, room, seed + 4, large=2000.0),
        Softmax(rows, columns - 3, room, seed + 5, large=2000.0, low=True),
    ]


def softmax_of(x: Array) -> Array:
    """Return the softmax of each row."""
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    found: Array = powers / powers.sum(axis=1, keepdims=True)
    return found


def softmax_findings(softmax: Kernel, tasks: Sequence[Softmax]) -> list[Finding]:
    """Return whether softmax(chip, x, y) is right, and what it moves."""
    chips, words = dict[Softmax, Chip](), "In every shape."

    def right(task: Softmax) -> str:
        x = task.array()
        chips[task], found = run(softmax, task.room, {"x": x}, {"y": x.shape})
        return _softmax_off(task, x, found["y"])

    def little(task: Softmax) -> str:
        size, chip = task.rows * task.columns, chips[task]
        if chip.stored > size:
            return f"{chip.stored} numbers are written for a result of {size}. Write only the result to HBM."
        if chip.loaded <= 2 * size:
            return ""
        times = chip.loaded / size
        return (
            f"each number is read {times:.3g} times. The maximum and the sum can be found in one pass: what does a new"
            " maximum do to the sum so far?"
        )

    return waiting(
        in_turn(
            lambda: once(SOFTMAX, [(each.words, partial(right, each)) for each in tasks], words),
            lambda: once(TWICE, [(each.words, partial(little, each)) for each in tasks], words),
        ),
        (SOFTMAX, TWICE),
    )


def _softmax_off(task: Softmax, x: Array, found: Array) -> str:
    right = softmax_of(x)
    with np.errstate(all="ignore"):
        raw = np.exp(x)
        slips = [
            (say.exp_alone, raw),
            (say.not_divided, right / right.max(axis=1, keepdims=True)),
            (say.one_maximum, softmax_of(x.reshape(1, -1)).reshape(x.shape)),
        ]
        proportional = found / right
    words = off("y", found, right, slips)
    if not words or words in dict(slips):
        return words
    if not np.isfinite(found).all() and task.low:
        return say.start_at_0
    if not np.isfinite(found).all() and task.large == 1:
        return (
            f"{words} No exp overflows here except that of an infinite number: in the first part, exp(old maximum -"
            " new maximum) = exp(-inf) = 0, and the second pass uses the maximum of the whole row."
        )
    if task.large > 1 and not np.isfinite(found).all():
        return say.overflow
    if not np.all(np.ptp(proportional, axis=1) <= 1e-6 * np.abs(proportional[:, 0])):
        return words
    if task.rising:
        return (
            f"a row sums to {found[0].sum():.4g}. It is right where the largest number comes first: a new maximum"
            " rescales the sum so far, by exp(old maximum - new maximum). `maximum` changes its tile in place: do you"
            " still have the old one?"
        )
    return f"a row sums to {found[0].sum():.4g}, not to 1. Are all numbers of the row in its sum?"
