"""The arithmetic of links: latency + size / rate of a single packet, and contention of several."""

import socket
import struct

import pytest

from lib_dlhpc.launch.network.switch import Link, Ports, acknowledges

RATE, LATENCY, SIZE = 1e6, 1e-3, 1000


def ports(count=4, pairs=None, **other):
    links = [Link(RATE, LATENCY)] * count
    for port, link in other.items():
        links[int(port[1:])] = link
    return Ports(links, pairs or {})


def through(ports, source, target, size=SIZE, now=0.0):
    sent = ports.sent(source, target, size, now)
    return ports.taken(target, size, sent) + ports.latency(source, target)


def test_a_single_packet_takes_latency_and_transfer_time_once():
    assert through(ports(), 0, 1, now=5.0) == pytest.approx(5.0 + LATENCY + SIZE / RATE)


def test_packets_of_one_sender_follow_each_other_at_the_rate():
    shared = ports()
    times = [through(shared, 0, 1 + n % 3) for n in range(10)]
    assert times == pytest.approx([LATENCY + (n + 1) * SIZE / RATE for n in range(10)])


def test_links_are_full_duplex():
    shared = ports()
    assert through(shared, 0, 1) == pytest.approx(through(shared, 1, 0))


def test_two_flows_that_meet_share_the_link_packet_by_packet():
    shared, count = ports(), 10
    leaving = sorted((shared.sent(s, 2, SIZE, 0.0), s) for s in (0, 1) for _ in range(count))
    ends = {source: shared.taken(2, SIZE, sent) for sent, source in leaving}
    assert max(ends.values()) == pytest.approx((2 * count) * SIZE / RATE)
    assert min(ends.values()) == pytest.approx((2 * count - 1) * SIZE / RATE)  # none waited for all


def test_the_slower_of_two_links_and_the_longer_latency_count():
    slow = Link(RATE / 10, 7 * LATENCY)
    for there in ((0, 3), (3, 0)):
        assert through(ports(p3=slow), *there) == pytest.approx(7 * LATENCY + 10 * SIZE / RATE)


def test_a_pair_of_its_own_is_slow_one_way_only():
    shared = ports(pairs={(0, 1): Link(RATE / 10, 5 * LATENCY)})
    assert through(shared, 0, 1) == pytest.approx(5 * LATENCY + 10 * SIZE / RATE)
    assert through(shared, 1, 0) == pytest.approx(LATENCY + SIZE / RATE)
    assert through(shared, 0, 2) == pytest.approx(LATENCY + 2 * SIZE / RATE)  # after the first
    later = through(shared, 0, 1, now=5.0)  # after a rest as well
    assert later == pytest.approx(5.0 + 5 * LATENCY + 10 * SIZE / RATE)


def packet(payload=b"", flags=0x10, protocol=6, options=b""):
    header = bytes([0x45, 0]) + struct.pack("!HHHBBH", 0, 0, 0, 64, protocol, 0)
    addresses = socket.inet_aton("10.77.0.1") + socket.inet_aton("10.77.0.2")
    words = (20 + len(options)) // 4
    tcp = struct.pack("!HHIIBBHHH", 1, 2, 3, 4, words << 4, flags, 5, 6, 7)
    return header + addresses + tcp + options + payload


@pytest.mark.parametrize("options", [b"", bytes(12), bytes(40)])
def test_only_bare_acknowledgements_go_ahead(options):
    assert acknowledges(packet(options=options))
    assert not acknowledges(packet(b"x", options=options))
    assert not acknowledges(packet(bytes(5000), options=options))
    assert not acknowledges(packet(options=options, flags=0x11))  # the last of a connection
    assert not acknowledges(packet(options=options, protocol=17))
