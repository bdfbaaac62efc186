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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

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

    def arrival(self, source: int, target: int, size: int, now: float) -> float:
        """Return when a packet of `size` B, handed over at `now`, is at its target; the links are busy till then.

        One of no bytes waits for nobody.
        """
        one, other = self.links[source], self.links[target]
        own = self.pairs.get((source, target))
        latency = own.latency if own else max(one.latency, other.latency)
        if not size:
            return now + latency
        sent = max(now, self._out[source]) + size / one.bandwidth
        self._out[source] = sent
        if own:
            sent = max(sent, self._pair[source, target] + size / own.bandwidth)
            self._pair[source, target] = sent
        taken = max(sent, self._in[target] + size / other.bandwidth)
        self._in[target] = taken
        return taken + latency


def pass_on(
    cables: Sequence[int], addresses: Sequence[bytes], ports: Ports, until: int,
    clock: Callable[[], float] = time.monotonic,
) -> None:  # fmt: skip
    """Carry packets between cables until the descriptor `until` has something to read, or is closed."""
    number = {address: port for port, address in enumerate(addresses)}
    source = {cable: port for port, cable in enumerate(cables)}
    waiting: list[tuple[float, int, int, bytes]] = []  # when, order, to which cable, what
    order, watched = 0, [*cables, until]
    while True:
        pause = max(0.0, waiting[0][0] - clock()) if waiting else None
        ready = select.select(watched, (), (), pause)[0]
        for cable in ready:
            if cable == until:
                return
            port = source[cable]
            for _ in range(BURST):
                try:
                    packet = os.read(cable, MOST)
                except BlockingIOError:
                    break
                target = number.get(packet[FIRST:LAST])
                if target is not None:
                    size = 0 if acknowledges(packet) else len(packet)
                    due = ports.arrival(port, target, size, clock())
                    order += 1
                    heapq.heappush(waiting, (due, order, cables[target], packet))
        now = clock()
        while waiting and waiting[0][0] <= now:
            _, _, cable, packet = heapq.heappop(waiting)
            try:
                os.write(cable, packet)
            except OSError:  # the card is not up any more, or takes no such packet
                continue


def acknowledges(packet: bytes) -> bool:
    """Whether an IPv4 packet is TCP's acknowledgement and nothing else. Source: RFC 9293, section 3.1."""
    if len(packet) > SHORT or packet[9] != TCP:
        return False
    header = 4 * (packet[0] & 15)
    return packet[header + 13] == ACK and len(packet) == header + 4 * (packet[header + 12] >> 4)
