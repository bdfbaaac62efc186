"""Causal attention of a sequence that ranks share in zig-zag order, and what is wrong with a learner's.

zigzag(tokens, ranks, rank)         the positions of a rank's tokens
ring_attention(q, k, v, own, comm)  outputs of a rank's tokens, all arrays (heads, own tokens, numbers of a head);
                                    own: their positions. Keys and values travel from neighbor to neighbor.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lib_dlhpc.labs.emulated.ranks import emulate
from lib_dlhpc.labs.mistakes import LabError, bytes_of, explained
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.sentences import sentences

say = sentences(__file__)

Attention: TypeAlias = Callable[..., Any]
NEAR = 1e-10  # relative, in float64
ALIKE = 1e-8  # of a known mistake


@dataclass(frozen=True)
class RingTask:
    """A sequence on ranks. large: of the scores; exp of 1000 is too large for a number."""

    ranks: int
    chunk: int  # tokens of half a rank
    heads: int
    width: int  # numbers of a head
    seed: int
    large: float = 1.0

    @property
    def tokens(self) -> int:
        """Tokens of the sequence."""
        return 2 * self.ranks * self.chunk

    def arrays(self) -> tuple[Array, Array, Array]:
        """Return q, k and v of all tokens, in their order."""
        rng = np.random.default_rng(self.seed)
        shape = self.heads, self.tokens, self.width
        q, k, v = (rng.normal(size=shape) for _ in range(3))
        return self.large * q, k, v

    def words(self) -> str:
        """Return the task in words."""
        scores = ", scores of some thousands" if self.large > 1 else ""
        return f"{self.ranks} ranks, {self.tokens} tokens{scores}"


class RankOutput(NamedTuple):
    """What a rank did. sent: the ranks that it sent to, each with B."""

    out: Any
    sent: list[tuple[int, int]]
    log: list[Any]


def attention(q: Array, k: Array, v: Array, seen: Array) -> Array:
    """Return softmax(q k^T / sqrt(width)) v over the keys that each query sees; seen: (queries, keys)."""
    scores = np.where(seen, q @ np.swapaxes(k, 1, 2) / np.sqrt(q.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights @ v / weights.sum(axis=-1, keepdims=True)


def causal(queries: Array, keys: Array) -> Array:
    """Return whether a token sees another: those up to its own position."""
    return queries[:, None] >= keys[None, :]


def whole(task: RingTask) -> Array:
    """Return the outputs of all tokens on one rank."""
    places = np.arange(task.tokens)
    return attention(*task.arrays(), causal(places, places))


def positions_of(zigzag: Callable[..., Any], tokens: int, ranks: int) -> list[Array]:
    """Return the positions of each rank's tokens, by a learner's function. Raises LabError where they are none."""
    found = []
    for rank in range(ranks):
        call = f"zigzag({tokens}, {ranks}, {rank})"
        with explained(call):
            own = np.asarray(zigzag(tokens, ranks, rank))
        if own.ndim != 1 or own.dtype.kind not in "iu":
            raise LabError(f"{call} returns an array of integers, not {own!r}.")
        found.append(own)
    return found


def order_off(tokens: int, places: Sequence[Array]) -> str:
    """Return what is wrong with a division of tokens among ranks, in words; empty if each has the same work."""
    call = f"{tokens} tokens, {len(places)} ranks"
    owners: dict[int, list[int]] = {}
    for rank, own in enumerate(places):
        for token in own.tolist():
            owners.setdefault(token, []).append(rank)
    for token in sorted({*range(tokens), *owners}):
        ranks = owners.get(token, [])
        if token not in range(tokens):
            return f"{call}: rank {ranks[0]} has token {token}; they count from 0 to {tokens - 1}."
        if len(ranks) != 1:
            where = "on no rank" if not ranks else f"on ranks {', '.join(map(str, ranks))}"
            return f"{call}: token {token} is {where}."
    work = [int(np.sum(own + 1)) for own in places]
    most = int(np.argmax(work))
    times = max(work) * len(places) / sum(work)
    if max(work) > min(work):
        return (
            f"{call}: rank {most} has {times:.2f} times the mean work. A token attends to all tokens before it, so the"
            " last chunk has the most work and the first the least: which two equally long chunks balance each other?"
        )
    return ""


def emulated(ring: Attention, task: RingTask, places: Sequence[Array]) -> list[RankOutput]:
    """Run a learner's attention on emulated ranks. Raises LabError: see `emulate`."""
    return emulate(task.ranks, lambda comm: on_rank(ring, task, places, comm))


def on_rank(ring: Attention, task: RingTask, places: Sequence[Array], comm: Any) -> RankOutput:
    """Run a learner's attention on a rank of `comm`. Raises LabError where the output has another shape."""
    own = places[comm.rank]
    q, k, v = (each[:, own].copy() for each in task.arrays())
    out = ring(q, k, v, own.copy(), comm)
    if getattr(out, "shape", None) != q.shape:
        found = getattr(out, "shape", type(out).__name__)
        raise LabError(f"rank {comm.rank}: the outputs are of shape {q.shape}, not {found}.")
    lost = [each.target for each in getattr(comm, "messages", []) if not each.waited]
    if lost:
        raise LabError(f"rank {comm.rank} never waits for what it sends to rank {lost[0]}.")
    sent = [(each.target, bytes_of(each.value)) for each in getattr(comm, "messages", [])]
    return RankOutput(out, sent, list(getattr(comm, "log", [])))


def outputs_off(task: RingTask, places: Sequence[Array], outs: Sequence[Array]) -> str:
    """Return how the outputs differ from one rank's, in words; empty if they do not."""
    right = whole(task)
    size = float(np.max(np.abs(right)))
    for rank, (own, out) in enumerate(zip(places, outs, strict=True)):
        off = ~(np.abs(out - right[:, own]) <= NEAR * size).all(axis=(0, 2))
        if off.any():
            first = int(own[off].min())
            where = f"Rank {rank}, {int(off.sum())} of {len(own)} tokens, first token {first}"
            return f"{where}: this differs from the output of one rank. {_why(task, places, outs)}".strip()
    return ""


def _why(task: RingTask, places: Sequence[Array], outs: Sequence[Array]) -> str:
    """Return the mistake behind wrong outputs; empty if unknown."""
    if not all(np.isfinite(out).all() for out in outs):
        return say.nan
    for words, wrong in _known(task, places):
        size = max(float(np.max(np.abs(each))) for each in wrong)
        if all(
            np.max(np.abs(out - each)) <= ALIKE * size
            for out, each in zip(outs, wrong, strict=True)
        ):
            return words
    return ""


def _known(task: RingTask, places: Sequence[Array]) -> Iterator[tuple[str, list[Array]]]:
    """Yield the words and the outputs of all ranks of each classic mistake."""
    q, k, v = task.arrays()
    ranks, every = range(task.ranks), np.arange(task.tokens)

    def outputs(sees: Callable[[int], Array], times: float = 1.0) -> list[Array]:
        return [attention(times * q[:, places[r]], k, v, sees(r)) for r in ranks]

    def past(r: int) -> Array:
        return causal(places[r], every)

    def without(r: int, other: int) -> Array:
        return past(r) & ~np.isin(every, places[other % task.ranks])

    yield say.no_mask, outputs(lambda r: past(r) | True)
    yield say.own_tokens, outputs(lambda r: past(r) & np.isin(every, places[r]))
    yield say.mask_in_block, outputs(lambda r: _by_place(task, places, r))
    for step in (1, -1):
        yield (
            say.one_missing,
            [attention(q[:, places[r]], k, v, without(r, r + step)) for r in ranks],
        )
    root = float(np.sqrt(task.width))
    yield say.unscaled, outputs(past, root)
    yield say.by_width, outputs(past, 1 / root)
    yield say.by_heads, outputs(past, root / float(np.sqrt(task.heads)))
    yield say.mask_of_other, outputs(lambda r: _turned(task, places, r))
    yield from _known_sums(task, places)


def _by_place(task: RingTask, places: Sequence[Array], r: int) -> Array:
    """Return what a rank's tokens see if the mask compares places within blocks."""
    seen = np.zeros((len(places[r]), task.tokens), bool)
    for own in places:
        seen[:, own] = causal(np.arange(len(places[r])), np.arange(len(own)))
    return seen


def _turned(task: RingTask, places: Sequence[Array], r: int) -> Array:
    """Return what a rank's tokens see if blocks come from one side, and the mask's positions from the other."""
    seen = np.zeros((len(places[r]), task.tokens), bool)
    for hop in range(task.ranks):
        other = places[(r + hop) % task.ranks]
        seen[:, places[(r - hop) % task.ranks]] = causal(places[r], other)
    return seen


def _known_sums(task: RingTask, places: Sequence[Array]) -> Iterator[tuple[str, list[Array]]]:
    """Yield the same of wrong sums over blocks."""
    found = [_blocks(task, places, r) for r in range(task.ranks)]
    yield say.normalized_summed, [_normalized(own) for own in found]
    yield say.normalized_averaged, [_normalized(own) / task.ranks for own in found]
    yield say.not_rescaled, [_unscaled(own)[0] / _unscaled(own)[1] for own in found]
    yield say.not_divided, [_sums(own)[0] for own in found]
    yield say.sum_rescaled, [_unscaled(own)[0] / _sums(own)[1] for own in found]
    for order in (1, -1):  # blocks come from one neighbor, or from the other
        running = [_running([own[0], *own[1:][::order]]) for own in found]
        yield (
            say.sum_rescaled,
            [top / _sums(own)[1] for (top, _), own in zip(running, found, strict=True)],
        )
        yield (
            say.outputs_rescaled,
            [_sums(own)[0] / low for (_, low), own in zip(running, found, strict=True)],
        )
        yield say.rescale, [top / low for top, low in running]


def _blocks(task: RingTask, places: Sequence[Array], r: int) -> list[tuple[Array, Array, Array]]:
    """Return of each block weights times values, their sum, and the largest score, by the block's own largest one."""
    q, k, v = task.arrays()
    found = []
    for hop in range(task.ranks):
        own = places[(r - hop) % task.ranks]
        scores = q[:, places[r]] @ np.swapaxes(k[:, own], 1, 2) / np.sqrt(task.width)
        scores = np.where(causal(places[r], own), scores, -np.inf)
        most = np.maximum(scores.max(axis=-1, keepdims=True), -1e300)
        weights = np.exp(scores - most)
        bottom = weights.sum(axis=-1, keepdims=True)
        found.append((weights @ v[:, own], bottom, most))
    return found


def _normalized(own: Sequence[tuple[Array, Array, Array]]) -> Array:
    """Return the sum of each block's own softmax; nothing of a block of which a token sees nothing."""
    return np.asarray(sum(top / (bottom + (bottom == 0)) for top, bottom, _ in own))


def _unscaled(own: Sequence[tuple[Array, Array, Array]]) -> tuple[Array, Array]:
    """Return the sums of weights times values, and of weights, each block by its own largest score."""
    return np.sum([top for top, _, _ in own], axis=0), np.sum([low for _, low, _ in own], axis=0)


def _running(own: Sequence[tuple[Array, Array, Array]]) -> tuple[Array, Array]:
    """Return the sums of weights times values, and of weights, each block by the largest score so far."""
    most = np.maximum.accumulate([each for _, _, each in own])
    scaled = [np.exp(each - now) for (_, _, each), now in zip(own, most, strict=True)]
    top = sum(each * s for (each, _, _), s in zip(own, scaled, strict=True))
    low = sum(each * s for (_, each, _), s in zip(own, scaled, strict=True))
    return np.asarray(top), np.asarray(low)


def _sums(own: Sequence[tuple[Array, Array, Array]]) -> tuple[Array, Array]:
    """Return the sums of weights times values, and of weights, by the largest score of all blocks."""
    most = np.max([each for _, _, each in own], axis=0)
    scaled = [np.exp(each - most) for _, _, each in own]
    top = sum(each * s for (each, _, _), s in zip(own, scaled, strict=True))
    bottom = sum(each * s for (_, each, _), s in zip(own, scaled, strict=True))
    return np.asarray(top), np.asarray(bottom)


def messages_off(task: RingTask, runs: Sequence[RankOutput]) -> str:
    """Return what ranks send beside the necessary, in words; empty if nothing: each block once to a neighbor, a hop."""
    block = 2 * 8 * task.heads * 2 * task.chunk * task.width  # keys and values of a rank
    room = 8 * 2 * task.chunk  # their positions, if they travel along
    hops = task.ranks - 1
    for rank, run in enumerate(runs):
        for kind, size in run.log:
            if size > task.ranks * room:
                return (
                    f"After {kind}, rank {rank} has the keys or values of all ranks at once: with a long sequence,"
                    " they do not fit. Whose block does it need next?"
                )
        for target, _ in run.sent:
            if (target - rank) % task.ranks not in (1, hops):
                return f"Rank {rank} sends to rank {target}, which is not a neighbor in the ring."
        sent = sum(size for _, size in run.sent)
        if sent > 1.02 * hops * block + hops * room:
            return (
                f"Rank {rank} sends {sent / block:.2f} blocks of keys and values; {hops} are necessary. Which rank"
                " reads the block of the last hop, and is any other array sent?"
            )
        if sent < 0.9 * hops * block:
            return f"Rank {rank} sends {sent / block:.2f} blocks of keys and values; {hops} are necessary."
    return ""
