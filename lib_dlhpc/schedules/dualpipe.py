"""DualPipe: microbatches enter a pipeline from both ends, and each rank holds a stage of either direction.

Of p ranks, p even, rank r holds stage r for the first half of m microbatches, which enter at rank 0, and stage
p - 1 - r for the others, which enter at rank p - 1. So there are two copies of all weights, whose gradients are summed
after the last pass. In the steady state a forward pass of one direction and a backward pass of the other are one turn:
it begins when both of its messages have arrived, and sends both results at its end. Weight gradients are computed apart
where a rank would else be idle: after the first backward passes, and at the end.

With F, B and W s for forward, all of backward, and the weight gradients in it, and F&B s for a turn of two passes, the
bubble of the paper is (p/2 - 1)(F&B + B - 3W). That is what this order takes where F&B = F + B, F = B - W and W is no
longer than F; where F is within a fifth of that, and W 0.4 to 0.5 of B, it is within a quarter of it. A rank stores
p + 1 activations of a stage.

What a turn of two passes takes is not stated here. `dualpipe` has them one after the other, F&B = F + B, as where they
exchange nothing within. In `overlapped_dualpipe` they are one call, in which the two are interleaved so that exchanges
of experts in one hide behind products of the other (parallel/overlapped_passes.py). Messages between stages are hidden
behind what the ranks compute meanwhile, as in all schedules.

Sources: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.2.1, figure 5 and table 2; the
order of passes, and that m is at least 2 p, from https://github.com/deepseek-ai/DualPipe (MIT).
"""

from collections import deque
from collections.abc import Iterator

from lib_dlhpc.errors import SpecError, check_counts
from lib_dlhpc.schedules.pipeline import (
    Backward,
    Forward,
    PassGroup,
    Pipeline,
    SteadyState,
    Streams,
    Turn,
    WeightGradients,
)

# Of a turn, with those that only wait or send: of a forward pass, all of a backward pass, both, and both interleaved.
FORWARD, BACKWARD, BOTH, INTERLEAVED = 1, 3, 6, 5


def dualpipe(ranks: int, microbatches: int) -> Pipeline:
    """Microbatches from both ends. Bubble (p/2 - 1)(F&B + B - 3W); every rank stores p + 1, of two stages.

    Raises SpecError unless both counts are even, and there are twice as many microbatches as ranks, or more.
    """
    return _dualpipe("dualpipe", ranks, microbatches, False)


def overlapped_dualpipe(ranks: int, microbatches: int) -> Pipeline:
    """The same with the two passes of a turn interleaved, so that they hide each other's exchanges."""
    return _dualpipe("overlapped dualpipe", ranks, microbatches, True)


def _dualpipe(name: str, ranks: int, microbatches: int, overlapped: bool) -> Pipeline:
    check_counts(ranks=ranks, microbatches=microbatches)
    if ranks % 2:
        raise SpecError(f"ranks = {ranks}: expected an even number (dualpipe).")
    if microbatches % 2 or microbatches < 2 * ranks:
        raise SpecError(
            f"microbatches = {microbatches}: expected an even number, at least {2 * ranks}, twice the ranks"
            " (dualpipe)."
        )

    def order(rank: int) -> Iterator[Turn]:
        return _Rank(rank, ranks, microbatches // 2, overlapped).turns()

    both = INTERLEAVED if overlapped else BOTH

    def first(rank: int) -> int:
        near = min(rank, ranks - 1 - rank)
        inner = ranks // 2 - 1 - near
        return ranks + 3 * inner + both + (both if inner else FORWARD + BACKWARD)

    rounds = SteadyState(first, ((2 * both, microbatches // 2 - ranks),), 2)
    streams = Streams(order, ranks, 2, rounds, 2)
    return Pipeline(name, ranks, microbatches, 2, streams, 2)


class _Rank:
    """The turns of one rank. Its near direction enters at the end of the pipeline to which the rank is nearer."""

    def __init__(self, rank: int, ranks: int, half: int, overlapped: bool) -> None:
        self.ranks, self.half, self.overlapped = ranks, half, overlapped
        self.place = min(rank, ranks - 1 - rank)  # from the nearer end
        self.near = int(rank >= ranks // 2)  # the chunk of that direction
        self.far = 1 - self.near
        self.ahead, self.back = [0, 0], [0, 0]  # passes of each chunk so far
        self.later = deque[WeightGradients]()

    def turns(self) -> Iterator[Turn]:
        """Yield the turns of a step: the pipeline fills, is full, and drains."""
        near, far, inner = self.near, self.far, self.ranks // 2 - 1 - self.place
        for _ in range(2 * inner):
            yield self._forward(near)
        for _ in range(self.place + 1):
            yield self._forward(near)
            yield self._forward(far)
        for _ in range(inner):
            yield self._input_gradient(far)
            yield self.later.popleft()
            yield self._forward(far)
        for turn in range(self.half - self.ranks + self.place + 1):
            if turn or inner:
                yield self._overlapped(near, far)
            else:  # the two ranks in the middle
                yield self._forward(near)
                yield self._backward(far)
            yield self._overlapped(far, near)
        for _ in range(inner):
            yield self._backward(far)
            yield self._overlapped(far, near)
        yield from self._drained(inner)

    def _drained(self, inner: int) -> Iterator[Turn]:
        """Yield what follows the last forward pass; weight gradients of the second half of the passes come last."""
        passes, whole = 2 * (self.place + 1), self.place + 1
        for number in range(passes):
            chunk = self.near if number % 2 else self.far
            yield self._backward(chunk) if number < whole else self._input_gradient(chunk)
        for _ in range(inner):
            yield self.later.popleft()
            yield self._input_gradient(self.near)
        yield from self.later

    def _forward(self, chunk: int) -> Forward:
        self.ahead[chunk] += 1
        return Forward(self.half * chunk + self.ahead[chunk] - 1, chunk)

    def _next_back(self, chunk: int) -> int:
        self.back[chunk] += 1
        return self.half * chunk + self.back[chunk] - 1

    def _input_gradient(self, chunk: int) -> Backward:
        number = self._next_back(chunk)
        self.later.append(WeightGradients(number, chunk))
        return Backward(number, chunk)

    def _backward(self, chunk: int) -> PassGroup:
        """All of a backward pass; its gradient is sent after its weight gradients."""
        number = self._next_back(chunk)
        return PassGroup((Backward(number, chunk), WeightGradients(number, chunk)))

    def _overlapped(self, forward: int, backward: int) -> PassGroup:
        """A forward pass of one direction and a backward pass of the other."""
        passes = (self._forward(forward), *self._backward(backward).passes)
        return PassGroup(passes, self.overlapped)
