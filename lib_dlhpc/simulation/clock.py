"""When everything happens in training steps: what a step consists of, and its clock on every rank.

Compute is arithmetic: its start and duration give its end. Only the exchange needs simulation, by a
fidelity. `simulate_rounds` simulates step after step, bucket after bucket, all ranks at once;
`processes.simulate_events` runs every rank as a process.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.work import Work
from lib_dlhpc.simulation.input import Supply
from lib_dlhpc.simulation.watchdog import Cancelled

Floats: TypeAlias = NDArray[np.float64]
# (bytes, when each rank starts) -> when each rank is done
Exchange: TypeAlias = Callable[[float, Floats], Floats]
# progress(simulated seconds, messages delivered, messages in all); return False to cancel.
StepProgress: TypeAlias = Callable[[float, int, int], object]


@dataclass(frozen=True, eq=False)
class Load:
    """The load to simulate. The compute of a rank in a step takes `factor` times `work`."""

    work: Work
    update: float  # s
    overlap: bool  # the exchange overlaps backward
    factor: Floats  # (steps, ranks): jitter over speed
    fetch: Floats  # (steps, ranks): s to fetch the next batch
    saving: Floats  # (steps,): s in which all ranks are idle for a checkpoint after the step
    supply: Supply | None = None  # readers that decide when a batch is ready, in place of `fetch`

    @property
    def steps(self) -> int:
        """How many training steps there are."""
        return len(self.factor)

    @property
    def ranks(self) -> int:
        """How many ranks take part."""
        return self.factor.shape[1]

    @property
    def sent(self) -> NDArray[np.int64]:
        """The numbers of the buckets that are exchanged: all that hold anything, if there is a peer."""
        return np.flatnonzero(self.work.sizes) if self.ranks > 1 else np.empty(0, np.int64)

    # The rules of a step, for all ranks at once or (with a float) for one.

    def computed(self, start: Any, factor: Any) -> tuple[Any, Any]:
        """Return when forward and backward end."""
        forward_end = start + factor * self.work.forward
        return forward_end, forward_end + factor * self.work.backward

    def released(self, bucket: int, forward_end: Any, backward_end: Any, factor: Any) -> Any:
        """Return from when on a bucket may be exchanged."""
        return forward_end + factor * self.work.ready[bucket] if self.overlap else backward_end

    def finished(self, exchange_end: Any, factor: Any) -> Any:
        """Return when the update is done."""
        return exchange_end + factor * self.update

    def available(self, step: int, start: Any, rank: int | None = None) -> Any:
        """Return when the next batch is there, of one rank or of each; `start`: of this step."""
        if self.supply is not None:
            return self.supply.available(step, rank)
        return start + (self.fetch[step] if rank is None else self.fetch[step, rank])

    def next_start(self, step: int, start: Any, end: Any, rank: int | None = None) -> Any:
        """Return when the next step begins: the checkpoint is written and the next batch is there."""
        return np.maximum(end + self.saving[step], self.available(step, start, rank))


@dataclass(frozen=True, eq=False)
class Clock:
    """When things happen in one step: s, arrays of shape (ranks,) or (buckets that are sent, ranks)."""

    step: int
    start: Floats
    forward_end: Floats
    backward_end: Floats
    joined: Floats  # when a rank joins the exchange of a bucket
    exchanged: Floats
    exchange_end: Floats  # of the last bucket; the end of backward where nothing is exchanged
    end: Floats
    next_start: Floats


def clock(load: Load, step: int, start: Floats, joined: Floats, exchanged: Floats) -> Clock:
    """Return the clock of a step whose exchange has been simulated."""
    factor = load.factor[step]
    forward_end, backward_end = load.computed(start, factor)
    exchange_end = np.maximum(backward_end, exchanged[-1]) if len(exchanged) else backward_end
    end = load.finished(exchange_end, factor)
    next_start = load.next_start(step, start, end)
    inside = (forward_end, backward_end, joined, exchanged, exchange_end)
    return Clock(step, start, *inside, end, next_start)


def simulate_rounds(
    load: Load, exchange: Exchange, messages: Sequence[int], progress: StepProgress | None = None
) -> Iterator[Clock]:
    """Yield the steps; `exchange` simulates each bucket. `messages`: the count of each bucket that is sent.

    Raises Cancelled when `progress`, called after each bucket, returns False.
    """
    start, sent = np.zeros(load.ranks), load.sent
    shape, done = (len(sent), load.ranks), 0
    for step, factor in enumerate(load.factor):
        if load.supply is not None:
            load.supply.started(step, start)
        forward_end, backward_end = load.computed(start, factor)
        joined, exchanged = np.empty(shape), np.empty(shape)
        free = start
        for row, bucket in enumerate(sent):
            released = load.released(bucket, forward_end, backward_end, factor)
            joined[row] = np.maximum(released, free)
            exchanged[row] = free = exchange(float(load.work.sizes[bucket]), joined[row])
            done += messages[row]
            if progress is not None:
                now, total = float(free.max()), load.steps * sum(messages)
                if progress(now, done, total) is False:
                    raise Cancelled(now, done)
        timed = clock(load, step, start, joined, exchanged)
        yield timed
        start = timed.next_start
