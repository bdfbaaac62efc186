"""A switch in user space: reads packets from cables, and delivers each at the time its link would.

A full-duplex link carries packets in order at its rate; a packet arrives `latency` after its last byte is sent. A
packet occupies its sender's and its target's link at the same time (cut-through switching), so one transfer costs
latency + size / rate, not twice that. No packet is dropped: queues are unbounded, and TCP's windows keep them short.
Pure ACKs bypass queued data, as with fair queueing; otherwise two-way traffic would halve its own rate.
"""

import heapq
import os
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

FIRST, LAST = 16, 20  # bytes of an IPv4 packet that hold the target's address
BURST = 64  # packets from one cable before the next cable is served
MOST = 65536  # B of a packet
TCP, ACK, SHORT = 6, 0x10, 120  # protocol number, flag; largest size of both headers in B


@dataclass(frozen=True)
class Link:
    """The cable of one rank: bandwidth in B/s each way; latency in s of incoming and outgoing packets."""

    bandwidth: float
    latency: float


@dataclass
class Ports:
    """When each port is free: the arithmetic of the switch, without packets or clocks.

    links: of each port. pairs: differing links of two ports, as {(0, 1): Link}, one way.
    """

    links: Sequence[Link]
    pairs: Mapping[tuple[int, int], Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._out, self._in = ([0.0] * len(self.links) for _ in range(2))
        self._pair = dict.fromkeys(self.pairs, 0.0)

    def latency(self, source: int, target: int) -> float:
        """Return the latency in s from one port to another."""
        own = self.pairs.get((source, target))
        return own.latency if own else max(self.links[n].latency for n in (source, target))

    def sent(self, source: int, target: int, size: int, now: float) -> float:
        """Return when a packet of `size` B, queued at `now`, has left; its sender's link is busy until then."""
        when = max(now, self._out[source]) + size / self.links[source].bandwidth
        self._out[source] = when
        if (own := self.pairs.get((source, target))) is not None:
            when = max(when, max(now, self._pair[source, target]) + size / own.bandwidth)
            self._pair[source, target] = when
        return when

    def taken(self, target: int, size: int, sent: float) -> float:
        """Return when a packet that left at `sent` arrives, without latency; call in the order of departure."""
        when = max(sent, self._in[target] + size / self.links[target].bandwidth)
        self._in[target] = when
        return when


def pass_on(cables: Sequence[int], addresses: Sequence[bytes], ports: Ports, until: int) -> None:
    """Forward packets between cables until the descriptor `until` is readable or closed."""
    number = {address: port for port, address in enumerate(addresses)}
    source = {cable: port for port, cable in enumerate(cables)}
    # Time, order, whether it arrives (else departs), target, remaining latency, packet.
    waiting: list[tuple[float, int, bool, int, float, bytes]] = []
    order, watched = count(), [*cables, until]
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready = select.select(watched, (), (), pause)[0]
        if until in ready:
            return
        for cable in ready:
            port = source[cable]
            for packet in _packets(cable):
                target = number.get(packet[FIRST:LAST])
                if target is None:
                    continue
                now, latency = time.monotonic(), ports.latency(port, target)
                if acknowledges(packet):
                    at = (now + latency, next(order), True, target, 0.0, packet)
                else:
                    sent = ports.sent(port, target, len(packet), now)
                    at = (sent, next(order), False, target, latency, packet)
                heapq.heappush(waiting, at)
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            when, _, here, target, latency, packet = heapq.heappop(waiting)
            if here:
                with suppress(OSError):  # its device is down, or rejects the packet
                    os.write(cables[target], packet)
            else:
                due = ports.taken(target, len(packet), when) + latency
                heapq.heappush(waiting, (due, next(order), True, target, 0.0, packet))


def _packets(cable: int) -> Iterator[bytes]:
    """Yield packets from a cable, at most BURST of them."""
    for _ in range(BURST):
        try:
            yield os.read(cable, MOST)
        except BlockingIOError:
            return


def acknowledges(packet: bytes) -> bool:
    """Whether an IPv4 packet is a pure TCP ACK. Source: RFC 9293, section 3.1."""
    if len(packet) > SHORT or packet[9] != TCP:
        return False
    header = 4 * (packet[0] & 15)
    return packet[header + 13] == ACK and len(packet) == header + 4 * (packet[header + 12] >> 4)
