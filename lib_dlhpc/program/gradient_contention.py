"""Gradients that are exchanged while messages between stages are on their way: each slows the other down.

After its last pass through a chunk, a stage exchanges gradients while it sends the message of that pass. With other
chunks, it continues to send and receive. What uses the same links shares them fairly. While both run, for parts u
and v of the time that each takes alone, each takes 1 + u v times as long. So gradients that begin behind a message end
when they would if they waited for it. A message that begins beside them is late by u v of the time that it meets them.

A message that a stage receives during its last pass meets gradients that fill only a part of that pass: it is taken to
meet them evenly.

Source of fair shares: Bertsekas & Gallager, "Data Networks" (1992), section 6.5.2.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.program.instructions import Collective
from lib_dlhpc.program.pass_contention import NONE, SWITCHES, Busy

if TYPE_CHECKING:
    from lib_dlhpc.program.fold import Shape
    from lib_dlhpc.program.program import Block, Chunk, Prices

GRADIENTS = "gradients"  # their stream
# Which part of the time that links between switches take is spent on the same ones: of the message across the boundary
# behind each stage, with the gradients of that stage, and of the next, (2, ranks).
Above: TypeAlias = Callable[[], NDArray[np.float64]]


class LinkShares(NamedTuple):
    """Of the message across each boundary: u v with the gradients of the stage behind which it is, and the next."""

    behind: Sequence[Any]
    ahead: Sequence[Any]
    chunks: int


def gradients(shape: "Shape", prices: "Prices") -> tuple[float, Busy]:
    """Return the seconds of the gradients that a pass posts, and the part of them for which they keep each kind of
    links busy: that of the largest exchange."""
    posted = {op for op in shape.compact if isinstance(op, Collective)}
    seconds = {
        op: float(np.max(prices.priced(op).seconds)) for op in posted if op.stream == GRADIENTS
    }
    total = sum(seconds.get(op, 0.0) for op in shape.compact if isinstance(op, Collective))
    if not total:
        return 0.0, NONE
    most = max(seconds, key=lambda each: seconds[each])
    near, nics, far = (busy / seconds[most] for busy in prices.busy(most, 0))
    return total, (near, nics, far)


def shares_of(stages: "Sequence[Sequence[Chunk]]", above: Above) -> LinkShares | None:
    """Return what messages share with the gradients of last passes, None if nothing.

    above: of the links between switches that the gradients of a stage, and messages, fill at most. Of devices and NICs
    they use the same.
    """
    known = {id(chunk.last): chunk.last for stage in stages for chunk in stage}
    part = {key: last.gradients[1] for key, last in known.items()}
    exchanges = np.array([[part[id(chunk.last)] for chunk in stage] for stage in stages]).max(
        axis=1
    )
    messages = np.array([[chunk.uses for chunk in stage] for stage in stages])
    both = np.stack([exchanges, np.roll(exchanges, -1, axis=0)])[:, :, np.newaxis] * messages
    if both[..., SWITCHES].any():
        both[..., SWITCHES] *= above()[..., np.newaxis]
    behind, ahead = both.max(axis=-1).reshape(2, -1).tolist()
    return LinkShares(behind, ahead, len(stages[0])) if any(behind) or any(ahead) else None


class GradientExchanges:
    """When the gradients of each stage are exchanged; times are floats, or arrays.

    With arrays, a place may be several: an array of places none of which is another, nor next to one on its boundary.
    """

    def __init__(self, shares: LinkShares, clock: Sequence[Any], one: bool) -> None:
        self.ranks, self.chunks = len(clock), shares.chunks
        self.one: bool = one
        self.maximum: Any = max if one else np.maximum
        self.minimum: Any = min if one else np.minimum
        like: Any = list if one else np.array
        # What a message across each boundary shares with the stage that sends it forward, and backward.
        self.shared = like([part for both in zip(*shares[:2], strict=True) for part in both])
        zero = [0.0 * now for now in clock]
        self.free = like(zero)  # when the exchange of each stage ends
        self.sent = like(zero)  # when its messages leave the links to gradients
        # When messages end that shared links with gradients.
        self.through = like(zero)
        # When the last pass of each stage began that has posted gradients, and how long their exchange takes.
        self.began, self.seconds = like([now - np.inf for now in zero]), like(zero)
        self.meeting = False  # whether any gradients are exchanged

    def passed(
        self,
        place: int,
        block: "Block",
        start: Any,
        streams: dict[str, Any],
        run: Callable[[], Any],
    ) -> Any:
        """Return when a last pass ends; streams: when each is free, moved on by `run`, which returns its end."""
        seconds, _ = block.gradients
        if not seconds:
            return run()
        before = self.maximum(streams.get(GRADIENTS, start), self.free[place])
        streams[GRADIENTS] = before = before if block.message else self.join(place, before)
        end = run()
        self.joined(place, start, before, seconds, streams[GRADIENTS])
        return end

    def settle(self, streams: Sequence[dict[str, Any]]) -> None:
        """Let the streams of gradients be free when what met them is done; streams: of each stage."""
        for stream, at in zip(streams, self.free, strict=True):
            if GRADIENTS in stream:
                stream[GRADIENTS] = self.maximum(stream[GRADIENTS], at)

    def join(self, place: Any, free: Any) -> Any:
        """Return when the stream of gradients is free for those of a pass that begins: behind messages."""
        return self.maximum(free, self.sent[place])

    def joined(self, place: Any, start: Any, before: Any, seconds: Any, free: Any) -> None:
        """Begin to exchange the gradients of a last pass.

        before, free: when the stream is free before and behind the pass. seconds: that they take alone.
        """
        self.meeting = True
        self.began[place] = start
        self.seconds[place] = seconds + self.maximum(0.0, before - start)
        self.free[place] = free
        met = self.maximum(0.0, self.minimum(self.sent[place] - start, seconds))
        self.through[place] = self.sent[place] + met

    def meet(self, place: Any, boundary: Any, begin: Any, busy: Any) -> Any:
        """Return by how much a message that a place sends is late; boundary: across which, busy: s alone."""
        direction = 2 * boundary + (boundary // self.chunks != place)
        share, late = self.shared[direction], 0.0
        if self.meeting:
            ready, begin = begin, self.maximum(begin, self.through[place])
            target, others = self.target(place, boundary), self.shared[direction ^ 1]
            met = self._met(place, share, begin, busy, True)
            met = self.maximum(met, self._met(target, others, begin, busy, False))
            late = begin - ready + met
        self.sent[place] = begin + share * busy
        return late

    def target(self, place: Any, boundary: Any) -> Any:
        """Return the place to which a place sends across a boundary."""
        before = boundary // self.chunks
        return (before + (before == place)) % self.ranks

    def _met(self, place: Any, part: Any, begin: Any, busy: Any, sends: bool) -> Any:
        """Return by how much gradients and a message delay each other; sends: or the place receives it."""
        free = self.free[place]
        if self.one and free <= begin:
            return 0.0
        if not sends:
            part = part * self._density(place)
        late = part * self.maximum(0.0, self.minimum(busy, free - begin))
        self.free[place] = free + late
        return late

    def _density(self, place: Any) -> Any:
        spent = self.free[place] - self.began[place]
        return self.minimum(1.0, self.seconds[place] / self.maximum(spent, 1e-300))
