"""A learner's fused attention: right, without scores in HBM, without blocks that a causal mask hides, and little moved.

attention_findings(attention, moved, tasks)     attention(chip, q, k, v, out, causal), moved(n, d, room, causal)
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.findings import Finding, broken, in_turn, kept, once, waiting
from lib_dlhpc.labs.formula_cases import value_of
from lib_dlhpc.labs.fuse_attention.chip import Chip
from lib_dlhpc.labs.fuse_attention.runs import NEAR, Kernel, off, run
from lib_dlhpc.labs.fuse_attention.tile_laws import count_off, softmax_of
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.sentences import sentences

say = sentences(__file__)

RIGHT = "Attention: right, for any number of tokens"
NOTHING = "Attention: nothing but the output goes to HBM"
CAUSAL = "Causal: right, each query sees the keys up to its own"
SKIPS = "Causal: keys that no query of a block sees are not loaded"
COUNTED = "Attention: your count is the chip's"
TIMES = 1.5  # of the traffic of the largest block of queries
LITTLE = f"Target: attention moves at most {TIMES:g} times what the largest blocks of queries do"
LAWS = (RIGHT, NOTHING, CAUSAL, SKIPS, COUNTED, LITTLE)
HALF = 0.7  # of what is loaded without a mask; with B blocks of queries it is about (B + 1) / 2 B
ORDERS = {"": "", "falling": ", the largest scores first", "rising": ", the largest scores last"}


class Attention(NamedTuple):
    """softmax(Q K^T / sqrt(d)) V with n queries and keys. large: of the scores; order: where the largest are.

    low: whether exp of each score is 0.
    """

    n: int
    d: int
    room: int
    seed: int
    order: str = ""
    large: float = 1.0
    target: bool = False
    low: bool = False

    @property
    def words(self) -> str:
        """The task in words."""
        more = ORDERS[self.order] + (", scores of some thousands" if self.large > 1 else "")
        more += ", all below 0" if self.low else ""
        return f"n = {self.n}, d = {self.d}, room for {self.room}{more}"

    def arrays(self) -> tuple[Array, Array, Array]:
        """Return Q, K and V."""
        rng = np.random.default_rng(self.seed)
        q, k, v = (rng.normal(size=(self.n, self.d)) for _ in range(3))
        if self.order:
            q, k = 0.2 * q, 0.1 * k  # too small to change the order
            steps = np.linspace(0, 6, self.n)
            q[:, 0] = 2 + rng.random(self.n)
            k[:, 0] = steps if self.order == "rising" else -steps - 2 * self.low
        return self.large * q, k, v

    @property
    def little(self) -> float:
        """What blocks of queries move that fill the chip, with one key at a time: Q, out, and K and V for each block.

        A block of r queries takes r (2 d + 5) numbers: q, out, score, maximum, its successor, sum and its term.
        """
        blocks = self.n * (2 * self.d + 5) / (self.room - self.d)
        return 2 * self.n * self.d * (1 + max(1.0, blocks))


def attentions_of(seed: int, hidden: bool = False) -> list[Attention]:
    """Return a learner's shapes: a block, one token, the largest scores first or last, large ones, many blocks."""
    rng = np.random.default_rng([seed, 16, hidden])
    n, d = int(rng.integers(31, 45)), int(rng.integers(3, 6))
    made = [
        Attention(3, 2, 100, seed, "falling"),
        Attention(1, 4, 100, seed + 1),
        Attention(n, d, 150, seed + 2, "falling"),
        Attention(n + 1, d, 150, seed + 3, "rising"),
        Attention(n - 1, d, 160, seed + 4, "rising", large=1000.0),
        Attention(n - 2, d, 160, seed + 7, "falling", large=1000.0),
        Attention(n - 3, d, 160, seed + 8, "falling", large=1000.0, low=True),
    ]
    for number, width in ((5, 4), (6, 8)):
        room = int(width * rng.integers(36, 50))
        tokens = int(rng.integers(101, 130))
        made.append(Attention(tokens, width, room, seed + number, target=True))
    return made


def attention_of(q: Array, k: Array, v: Array, causal: bool, scale: float = 0.0) -> Array:
    """Return softmax(q k^T scale) v; scale: 1 / sqrt(d) if 0."""
    scores = q @ k.T * (scale or 1 / sqrt(q.shape[1]))
    if causal:
        scores = np.where(_seen(len(q)), scores, -np.inf)
    found: Array = softmax_of(scores) @ v
    return found


def _seen(n: int) -> Array:
    seen: Array = np.tri(n, dtype=bool)
    return seen


def attention_findings(
    attention: Kernel, moved: Callable[..., Any], tasks: Sequence[Attention]
) -> list[Finding]:
    """Return what holds of a learner's attention and of its count."""
    chips = dict[tuple[Attention, bool], Chip]()

    def right(task: Attention, causal: bool) -> str:
        inputs = dict(zip("qkv", task.arrays(), strict=True))
        shape = {"out": (task.n, task.d)}
        chips[task, causal], found = run(attention, task.room, inputs, shape, causal)
        return _attention_off(task, causal, found["out"])

    def count(task: Attention, causal: bool) -> str:
        found = value_of(moved, task.n, task.d, task.room, causal)
        if (task, causal) not in chips:  # asked first: no count can be kept from a run
            right(task, causal)
        return count_off(
            found, chips[task, causal], task.n * task.d, say.mask_only if causal else ""
        )

    def law(
        name: str, check: Callable[..., str], *ways: bool, words: str = "In every case."
    ) -> Any:
        own = tasks if len(ways) == 1 else [*tasks, tasks[2]._replace(n=tasks[2].n + 5)]
        every = [
            (f"{each.words}{', causal' if causal else ''}", partial(check, each, causal))
            for causal in ways
            for each in own
        ]
        return lambda: once(name, every, words)

    return waiting(
        in_turn(
            law(RIGHT, right, False),
            law(NOTHING, lambda task, causal: _stored_off(task, chips[task, causal]), False),
            law(CAUSAL, right, True),
            law(
                SKIPS, lambda task, _: _skip_off(task, chips[task, False], chips[task, True]), True
            ),
            law(COUNTED, count, False, True, words=say.done),
            lambda: _little(chips),
        ),
        LAWS,
    )


def _stored_off(task: Attention, chip: Chip) -> str:
    """Return what is stored besides the output; one or two numbers for each query may be."""
    size = task.n * task.d
    if chip.stored <= size + 2 * task.n:
        return ""
    words = f"{chip.stored} numbers are stored, and out has {size}."
    if chip.scratched >= task.n * task.n:
        return (
            f"{words} Scores are {task.n} x {task.n}: they take room and traffic in HBM. A block of them should be"
            " used on the chip and then dropped."
        )
    return f"{words} A row of out should be written once, after its query has seen all keys: which loop is outer?"


def _skip_off(task: Attention, whole: Chip, causal: Chip) -> str:
    """Return what is wrong with the loads under a mask, empty if about half are left."""
    if not task.target or causal.loaded <= HALF * whole.loaded:
        return ""
    share = causal.loaded / whole.loaded
    return (
        f"{share:.0%} of what is loaded without a mask. A block of queries needs no key after its last query: where"
        " does its loop over keys end?"
    )


def _little(chips: dict[tuple[Attention, bool], Chip]) -> Finding:
    every = {
        task: chip.moved / task.little
        for (task, causal), chip in chips.items()
        if task.target and not causal
    }
    most = max(every, key=lambda each: every[each])
    if every[most] <= TIMES:
        return kept(LITTLE, f"At most {every[most]:.2f} times.")
    blocks = chips[most, False].loaded / (2 * most.n * most.d) - 0.5
    return broken(
        LITTLE,
        f"{most.words}: {every[most]:.2f} times. Keys and values are loaded about {blocks:.0f} times, once for each"
        f" block of {most.n / blocks:.1f} queries. A larger block of queries saves loads, a larger block of keys does"
        " not: which of the two is worth the room on the chip?",
    )


def _attention_off(task: Attention, causal: bool, found: Array) -> str:
    q, k, v = task.arrays()
    right = attention_of(q, k, v, causal)
    with np.errstate(all="ignore"):
        slips = list(_slips(task, causal))
    words = off("out", found, right, slips)
    if not words or words in dict(slips):
        return words
    if task.low and not np.isfinite(found).all():
        return say.start_at_0
    if task.large > 1 and not np.isfinite(found).all():
        return say.overflow
    if task.order == "rising":
        return _rising(found, right)
    if causal and not np.isfinite(found).all():
        return (
            f"{words} A score of -inf minus a maximum of -inf is nan: a query sees itself, and a block that no query"
            " sees is not loaded. `where` keeps the scores where its mask is true."
        )
    first = int(np.argmax(np.abs(found - right).max(axis=1) > NEAR * np.abs(right).max()))
    if causal and first:
        return (
            f"{words} The first {first} queries are right: does the mask of the later ones compare positions in the"
            " sequence, or only in the block?"
        )
    return words


def _rising(found: Array, right: Array) -> str:
    """Return what was not rescaled when the maximum grew."""
    with np.errstate(all="ignore"):
        share = found / right
    same = np.isfinite(share).all() and np.all(np.ptp(share, axis=1) <= 1e-6 * np.abs(share[:, 0]))
    start = "It is right where the largest scores come first. A new maximum rescales everything summed before, by"
    factor = "exp(old maximum - new maximum)"
    if same:
        return f"{start} {factor}: rows of out are right up to a factor. Is the sum rescaled, too?"
    return (
        f"{start} {factor}: both the sum and the output so far. `maximum` changes its tile in place: is the old one"
        " still there?"
    )


def _slips(task: Attention, causal: bool) -> Any:
    """Yield what mistakes give."""
    q, k, v = task.arrays()
    n, d = q.shape
    yield say.unscaled, attention_of(q, k, v, causal, 1.0)
    yield say.by_d, attention_of(q, k, v, causal, 1 / d)
    yield say.twice_scaled, attention_of(q, k, v, causal, 1 / d)
    yield say.swapped, attention_of(k, q, v, causal)
    scores = q @ k.T / sqrt(d)
    if causal:
        yield say.no_mask, attention_of(q, k, v, False)
        seen = _seen(n)
        for words, mask in (
            (say.own_key, seen & ~np.eye(n, dtype=bool)),
            (say.reversed_mask, seen.T),
        ):
            yield words, softmax_of(np.where(mask, scores, -np.inf)) @ v
        yield say.masked_with_0, softmax_of(np.where(seen, scores, 0)) @ v
        scores = np.where(seen, scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    yield say.not_divided, powers @ v
    for last in range(1, n):
        own = scores[:, n - last :]
        words = f"out contains only the last {last} keys: everything summed before is lost."
        yield words, softmax_of(own) @ v[n - last :]
