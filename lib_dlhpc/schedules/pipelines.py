"""GPipe, 1F1B, interleaved 1F1B and a zero-bubble schedule: the order of each rank's passes; all pipelines by name.

Symbols: p ranks, m microbatches, v chunks of the network a rank (pipeline.py).

Sources: Huang et al., "GPipe" (2019), section 2; Narayanan et al., "Efficient large-scale language model training on
GPU clusters" (2021), section 2.2; Qi et al., "Zero bubble pipeline parallelism" (2024), section 2.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import overload

from lib_dlhpc.errors import SpecError, check_counts
from lib_dlhpc.schedules.dualpipe import dualpipe, overlapped_dualpipe
from lib_dlhpc.schedules.pipeline import (
    Backward,
    Forward,
    Pipeline,
    SteadyState,
    Streams,
    WeightGradients,
    Work,
)

STORED = 4096  # passes of a rank in one direction up to which they are stored, once for all ranks


def gpipe(ranks: int, microbatches: int) -> Pipeline:
    """All forward, then all backward, last first. Bubble (p-1)/m; activations of all microbatches are stored."""

    check_counts(ranks=ranks, microbatches=microbatches)
    forward, backward = _works(Forward, microbatches), _works(Backward, microbatches)

    def order(rank: int) -> Iterator[Work]:
        yield from forward
        yield from reversed(backward)

    rounds = SteadyState(lambda _: 0, ((1, microbatches), (1, microbatches - 1)))
    return _pipeline("gpipe", ranks, microbatches, 1, order, rounds)


def one_f_one_b(ranks: int, microbatches: int) -> Pipeline:
    """Alternate forward and backward once the pipeline is full. Bubble (p-1)/m; rank r stores p - r microbatches."""

    check_counts(ranks=ranks, microbatches=microbatches)
    forward, backward = _works(Forward, microbatches), _works(Backward, microbatches)

    def order(rank: int) -> Iterator[Work]:
        return _one_by_one(forward, backward, ranks - rank - 1)

    rounds = SteadyState(lambda rank: ranks - rank - 1, ((2, microbatches - ranks),))
    return _pipeline("1f1b", ranks, microbatches, 1, order, rounds)


def interleaved(ranks: int, microbatches: int, chunks: int = 2) -> Pipeline:
    """1F1B with v chunks a rank; the pipeline fills v times faster. Bubble (p-1)/(v m).

    Microbatches run in groups of p. Raises SpecError unless p divides m.
    """
    check_counts(ranks=ranks, microbatches=microbatches, chunks=chunks)
    if microbatches % ranks:
        raise SpecError(
            f"microbatches = {microbatches}: expected a multiple of the {ranks} ranks (interleaved)."
        )

    forward, backward = _turns(ranks, microbatches, chunks)

    def order(rank: int) -> Iterator[Work]:
        warm_up = 2 * (ranks - rank - 1) + (chunks - 1) * ranks
        return _one_by_one(forward, backward, warm_up)

    # Rank r is r times forward and backward ahead of rank 0, as its warm-up is 2 r shorter.
    first = 2 * (ranks - 1) + (chunks - 1) * ranks
    period = (2 * ranks * chunks, microbatches // ranks - 2)
    rounds = SteadyState(lambda _: first, (period,), ranks)
    return _pipeline("interleaved", ranks, microbatches, chunks, order, rounds)


def zb_h1(ranks: int, microbatches: int) -> Pipeline:
    """1F1B whose weight gradients wait, on rank r for r microbatches, and fill the idle time at the end.

    With F, B, W s for a forward pass, input gradients and weight gradients the bubble is (p-1)(F + B - W), where
    W <= F, B, against (p-1)(F + B + W). Every rank stores min(p, m) microbatches, the most that a rank does in 1F1B.
    """

    check_counts(ranks=ranks, microbatches=microbatches)
    forward, backward = _works(Forward, microbatches), _works(Backward, microbatches)
    weights = _works(WeightGradients, microbatches)

    def order(rank: int) -> Iterator[Work]:
        later = iter(weights)
        for step in _one_by_one(forward, backward, ranks - rank - 1):
            yield step
            if isinstance(step, Backward) and step.microbatch >= rank:
                yield next(later)
        yield from later

    rounds = SteadyState(lambda rank: ranks - 1 + rank, ((3, microbatches - ranks),))
    return _pipeline("zb-h1", ranks, microbatches, 1, order, rounds)


class _Passes(Sequence[Work]):
    """Numbered passes. Beyond STORED each is made when it is read, as a pipeline may have many millions."""

    def __init__(self, make: Callable[[int], Work], numbers: range) -> None:
        self.make, self.numbers = make, numbers

    @cached_property
    def _made(self) -> tuple[Work, ...]:
        return tuple(map(self.make, self.numbers))

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Work: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Work]: ...
    def __getitem__(self, key: int | slice) -> Work | Sequence[Work]:
        """Return a pass, or some."""
        if len(self.numbers) <= STORED:
            return self._made[key]
        numbers = self.numbers[key]
        return self.make(numbers) if isinstance(numbers, int) else _Passes(self.make, numbers)

    def __iter__(self) -> Iterator[Work]:
        return iter(self._made) if len(self.numbers) <= STORED else map(self.make, self.numbers)


@lru_cache(maxsize=1 << 16)
def _pass(kind: Callable[[int, int], Work], microbatch: int, chunk: int) -> Work:
    """Return a pass; all ranks have the same."""
    return kind(microbatch, chunk)


def _works(kind: Callable[[int, int], Work], microbatches: int) -> _Passes:
    """Return a pass of each microbatch."""
    return _Passes(lambda i: _pass(kind, i, 0), range(microbatches))


def _turns(ranks: int, microbatches: int, chunks: int) -> tuple[_Passes, _Passes]:
    """Return the passes of a rank with several chunks, forward and backward; all ranks have the same."""

    def turn(i: int, kind: Callable[[int, int], Work], way: int) -> Work:
        group, place = divmod(i, ranks * chunks)
        chunk = place // ranks
        return _pass(kind, group * ranks + place % ranks, chunk if way > 0 else chunks - 1 - chunk)

    numbers = range(microbatches * chunks)
    return (
        _Passes(lambda i: turn(i, Forward, 1), numbers),
        _Passes(lambda i: turn(i, Backward, -1), numbers),
    )


def _one_by_one(forward: Sequence[Work], backward: Sequence[Work], warm_up: int) -> Iterator[Work]:
    """Yield `warm_up` forwards, then alternate, then the remaining backwards."""
    yield from forward[:warm_up]
    alternate = zip(forward[warm_up:], backward, strict=False)
    yield from chain.from_iterable(alternate)
    yield from backward[max(0, len(forward) - warm_up) :]


def _pipeline(
    name: str,
    ranks: int,
    microbatches: int,
    chunks: int,
    order: Callable[[int], Iterator[Work]],
    rounds: SteadyState,
) -> Pipeline:
    """Return the pipeline whose ranks work in this order."""
    return Pipeline(name, ranks, microbatches, chunks, Streams(order, ranks, chunks, rounds))


PIPELINES: dict[str, Callable[..., Pipeline]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zb-h1": zb_h1,
    "dualpipe": dualpipe,
    "overlapped dualpipe": overlapped_dualpipe,  # with expert parallelism: passes hide each other's exchanges
}
