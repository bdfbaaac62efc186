"""Laws of NCCL's protocols: short messages by LL, long ones by Simple, and the bandwidth is a bound."""

import pytest

from lib_dlhpc.costs.nccl import PROTOCOLS, allreduce_time, by_protocol

BUS = 90e9  # B/s


def quickest(n: float, ranks: int, nodes: int) -> tuple[str, str]:
    found = by_protocol(n, ranks, nodes, BUS)
    return min(found, key=lambda each: found[each])


@pytest.mark.parametrize(("ranks", "nodes"), [(8, 1), (16, 2), (32, 4), (256, 32)])
def test_the_protocol_switches_from_ll_over_ll128_to_simple(ranks, nodes):
    order = [PROTOCOLS.index(quickest(2.0**k, ranks, nodes)[1]) for k in range(6, 40)]
    assert set(order) == {0, 1, 2} and order == sorted(order)


def test_trees_win_where_latency_counts_and_rings_where_bandwidth_does():
    assert quickest(1e4, 256, 32)[0] == "tree"
    assert quickest(1e10, 32, 4) == ("ring", "Simple")


@pytest.mark.parametrize(("ranks", "nodes"), [(8, 1), (32, 4)])
def test_an_allreduce_is_longer_for_more_bytes_and_never_beyond_the_bus(ranks, nodes):
    times = [allreduce_time(2.0**k, ranks, nodes, BUS) for k in range(36)]
    assert times == sorted(times)
    for k, time in enumerate(times):
        assert time > 2.0**k * 2 * (ranks - 1) / ranks / BUS


def test_a_ring_by_hand():
    """On four nodes 6 of 62 steps of a ring are between nodes; a tree has two levels of nodes."""
    simple = 1.4 * (8.4e-6 + 56 * 3.4e-6 + 6 * 14e-6) + 1e9 * 62 / 32 / BUS
    assert by_protocol(1e9, 32, 4, BUS)["ring", "Simple"] == pytest.approx(simple)
    tree = 14e-6 + 2 * (7 * 1.25e-6 + 2 * 8.5e-6) + 2 * 2**20 / (BUS * 0.92 * 120 / 128 * 0.6)
    assert by_protocol(2**20, 32, 4, BUS)["tree", "LL128"] == pytest.approx(tree)
