"""A switch in user space: takes packets from cables, and gives each to its target when its link would have.

A link carries one packet after another at its rate, both ways at once; what is sent arrives `latency`
after its last byte. A packet takes its sender's link and its target's at the same time, as through a
switch that passes bytes on as they come, so one transfer costs latency + size / rate and not twice that.
Nothing is dropped: queues have no end, and TCP's windows keep them short. What only acknowledges waits
for no data, as in cards that queue fairly; else two-way traffic would halve its own rate.
"""

import heapq
import os
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

FIRST, LAST = 16, 20  # bytes of an IPv4 packet that hold the target's address
BURST = 64  # packets from one cable before the others have their turn
MOST = 65536  # B of a packet
TCP, ACK, SHORT = 6, 0x10, 120  # its number, its flag; B that both headers have at most


@dataclass(frozen=True)
class Link:
    """The cable of one rank: bandwidth in B/s each way; latency in s, of what goes from it and comes to it."""

    bandwidth: float
    latency: float


@dataclass
class Ports:
    """When each port is free: the arithmetic of the switch, without packets or clocks.

    links: of each port. pairs: of two ports where it is another than theirs, as {(0, 1): Link}, one way.
    """

    links: Sequence[Link]
    pairs: Mapping[tuple[int, int], Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._out, self._in = ([0.0] * len(self.links) for _ in range(2))
        self._pair = dict.fromkeys(self.pairs, 0.0)

    def latency(self, source: int, target: int) -> float:
        """Return the s from one port to another, besides what its bytes take."""
        own = self.pairs.get((source, target))
        return own.latency if own else max(self.links[n].latency for n in (source, target))

    def sent(self, source: int, target: int, size: int, now: float) -> float:
        """Return when a packet of `size` B, handed over at `now`, has left; its sender's link is busy till then."""
        when = max(now, self._out[source]) + size / self.links[source].bandwidth
        self._out[source] = when
        if (own := self.pairs.get((source, target))) is not None:
            when = max(when, max(now, self._pair[source, target]) + size / own.bandwidth)
            self._pair[source, target] = when
        return when

    def taken(self, target: int, size: int, sent: float) -> float:
        """Return when a packet that left at `sent` has come in, but for the latency; ask in the order they left."""
        when = max(sent, self._in[target] + size / self.links[target].bandwidth)
        self._in[target] = when
        return when


def pass_on(
    cables: Sequence[int], addresses: Sequence[bytes], ports: Ports, until: int,
    clock: Callable[[], float] = time.monotonic,
) -> None:  # fmt: skip
    """Carry packets between cables until the descriptor `until` has something to read, or is closed."""
    number = {address: port for port, address in enumerate(addresses)}
    source = {cable: port for port, cable in enumerate(cables)}
    # When, order, whether it has come in (or else has left), where to, the latency ahead, what.
    waiting: list[tuple[float, int, bool, int, float, bytes]] = []
    order, watched = count(), [*cables, until]
    while True:
        pause = max(0.0, waiting[0][0] - clock()) if waiting else None
        ready = select.select(watched, (), (), pause)[0]
        if until in ready:
            return
        for cable in ready:
            port = source[cable]
            for packet in _packets(cable):
                target = number.get(packet[FIRST:LAST])
                if target is None:
                    continue
                now, latency = clock(), ports.latency(port, target)
                if acknowledges(packet):
                    at = (now + latency, next(order), True, target, 0.0, packet)
                else:
                    sent = ports.sent(port, target, len(packet), now)
                    at = (sent, next(order), False, target, latency, packet)
                heapq.heappush(waiting, at)
        now = clock()
        while waiting and waiting[0][0] <= now:
            when, _, here, target, latency, packet = heapq.heappop(waiting)
            if here:
                with suppress(OSError):  # its card is not up any more, or takes no such packet
                    os.write(cables[target], packet)
            else:
                due = ports.taken(target, len(packet), when) + latency
                heapq.heappush(waiting, (due, next(order), True, target, 0.0, packet))


def _packets(cable: int) -> Iterator[bytes]:
    """Yield what a card has sent, up to a number after which the others have their turn."""
    for _ in range(BURST):
        try:
            yield os.read(cable, MOST)
        except BlockingIOError:
            return


def acknowledges(packet: bytes) -> bool:
    """Whether an IPv4 packet is TCP's acknowledgement and nothing else. Source: RFC 9293, section 3.1."""
    if len(packet) > SHORT or packet[9] != TCP:
        return False
    header = 4 * (packet[0] & 15)
    return packet[header + 13] == ACK and len(packet) == header + 4 * (packet[header + 12] >> 4)
