"""Links and routes: every direction a link, a route leaves and arrives, and takes the short way."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.costs.platform import NO_LINK, platform
from lib_dlhpc.spec.machine import Device, Link, Machine

DEVICE = Device({"fp32": 1e13}, 1e10, 9e11, 100.0, 300.0)
INSIDE, BETWEEN = Link(2e-6, 100e9, efficiency=0.5), Link(5e-6, 12.5e9, efficiency=0.8)


def made(nodes, g, topology="single-switch", **options):
    machine = Machine(DEVICE, INSIDE, BETWEEN, nodes=nodes, topology=topology, **options)
    return platform(machine, nodes, g)


def words(on, source, target):
    names = on.links
    return [names[link] for link in on.route(source, target)[0]]


@st.composite
def platforms(draw):
    nodes, g = draw(st.integers(1, 30)), draw(st.integers(1, 4))
    topology = draw(
        st.sampled_from(["single-switch", "fat-tree", "torus", "dragonfly", "rails", "rails-pxn"])
    )
    per_switch, over = draw(st.integers(1, 8)), draw(st.sampled_from([1.0, 2.0, 3.5]))
    options = {"nodes_per_switch": per_switch, "oversubscription": over}
    return made(nodes, g, topology, nics=draw(st.integers(1, 4)), **options)


def test_routes_of_a_small_fat_tree():
    on = made(4, 2, "fat-tree", nodes_per_switch=2, oversubscription=4.0, nics=2)
    assert words(on, 0, 1) == ["device 0 out", "device 1 in"]
    assert words(on, 1, 2) == ["NIC 0 out", "NIC 1 in"]
    assert words(on, 0, 7) == ["NIC 0 out", "leaf 0 up", "leaf 1 down", "NIC 3 in"]
    capacity = dict(zip(on.links, on.capacity, strict=True))
    assert capacity["device 0 out"] == 50e9  # bandwidth * efficiency
    assert capacity["NIC 0 out"] == 20e9  # both NICs together
    assert capacity["leaf 0 up"] == 2 * 20e9 / 4
    assert on.route(0, 1)[1] == 2e-6 and on.route(0, 7)[1] == 5e-6


def test_routes_of_a_small_dragonfly():
    on = made(6, 1, "dragonfly", nodes_per_switch=2, oversubscription=4.0)
    assert words(on, 0, 1) == ["NIC 0 out", "NIC 1 in"]
    assert words(on, 1, 4) == ["NIC 1 out", "group 0 to 2", "NIC 4 in"]
    assert words(on, 4, 1) == ["NIC 4 out", "group 2 to 0", "NIC 1 in"]
    capacity = dict(zip(on.links, on.capacity, strict=True))
    assert capacity["group 0 to 2"] == 2 * 10e9 / 4 / 2  # one of two other groups


def test_routes_on_rails():
    """NIC i of two nodes on a leaf of rail i: same index one hop, other nodes and other rails over the uplinks."""
    on = made(4, 2, "rails", nodes_per_switch=2, oversubscription=4.0, nics=2)
    assert words(on, 0, 1) == ["device 0 out", "device 1 in"]
    assert words(on, 1, 3) == ["NIC 0.1 out", "NIC 1.1 in"]
    assert words(on, 1, 2) == ["NIC 0.1 out", "leaf 0.1 up", "leaf 0.0 down", "NIC 1.0 in"]
    assert words(on, 1, 7) == ["NIC 0.1 out", "leaf 0.1 up", "leaf 1.1 down", "NIC 3.1 in"]
    capacity = dict(zip(on.links, on.capacity, strict=True))
    assert capacity["NIC 0.1 out"] == 10e9 and capacity["leaf 0.1 up"] == 2 * 10e9 / 4
    assert on.route(1, 2)[1] == on.route(1, 3)[1] == 5e-6


def test_what_changes_rails_goes_over_the_links_of_its_node_first():
    on = made(4, 2, "rails-pxn", nodes_per_switch=2, oversubscription=4.0, nics=2)
    relayed = ["device 1 out", "device 0 in", "NIC 0.0 out"]
    assert words(on, 1, 2) == [*relayed, "NIC 1.0 in"]
    assert words(on, 1, 4) == [*relayed, "leaf 0.0 up", "leaf 1.0 down", "NIC 2.0 in"]
    assert words(on, 1, 3) == ["NIC 0.1 out", "NIC 1.1 in"]
    assert on.route(1, 2)[1] == pytest.approx(7e-6) and on.route(1, 3)[1] == 5e-6


def test_devices_share_the_nic_of_their_rail_and_idle_nics_are_none():
    shared = made(2, 4, "rails", nodes_per_switch=2, nics=2)
    assert [words(shared, r, r + 4)[0] for r in range(4)] == [
        *("NIC 0.0 out", "NIC 0.0 out", "NIC 0.1 out", "NIC 0.1 out")
    ]
    assert made(2, 2, "rails", nodes_per_switch=2, nics=4).rails == 2


def test_a_torus_goes_along_the_row_first_and_the_short_way():
    on = made(12, 1, "torus")  # 3 rows of 4
    assert words(on, 0, 6) == [
        "NIC 0 out",
        "node 0 east",
        "node 1 east",
        "node 2 south",
        "NIC 6 in",
    ]
    assert words(on, 0, 3) == ["NIC 0 out", "node 0 west", "NIC 3 in"]
    assert words(on, 1, 9) == ["NIC 1 out", "node 1 north", "NIC 9 in"]


@given(platforms(), st.data())
def test_a_route_begins_at_the_source_and_ends_at_the_target(on, data):
    source, target = (data.draw(st.integers(0, on.ranks - 1)) for _ in range(2))
    first, *_, last = words(on, source, target)
    m, n = source // on.devices_per_node, target // on.devices_per_node
    if m == n:
        assert (first, last) == (f"device {source} out", f"device {target} in")
    else:
        relayed = on.topology == "rails-pxn" and first == f"device {source} out"
        assert relayed or (first.startswith(f"NIC {m}") and first.endswith("out"))
        assert last.startswith(f"NIC {n}") and last.endswith("in")


@given(platforms(), st.data())
def test_there_and_back_share_no_link(on, data):
    source, target = (data.draw(st.integers(0, on.ranks - 1)) for _ in range(2))
    there, back = on.route(source, target)[0], on.route(target, source)[0]
    assert source == target or not set(there) & set(back)
    assert len(set(there)) == len(there)


@given(platforms())
def test_all_routes_at_once_are_the_routes_one_by_one(on):
    source, target = np.divmod(np.arange(on.ranks**2), on.ranks)
    links, latency = on.routes(source, target)
    assert len(on.capacity) == len(on.links) > links.max()
    for i in range(0, len(source), 37):
        assert (tuple(links[i][links[i] != NO_LINK]), latency[i]) == on.route(source[i], target[i])


@given(st.integers(1, 40))
def test_a_torus_takes_as_many_hops_as_rows_and_columns_ask_for(nodes):
    on = made(nodes, 1, "torus")
    columns, rows = on.columns, nodes // on.columns
    assert columns * rows == nodes and columns >= rows
    position = {n: divmod(n, columns) for n in range(nodes)}
    for a, b in pairwise([0, nodes - 1, nodes // 2, nodes // 3]):
        if a != b:
            ahead = [abs(x - y) for x, y in zip(position[a], position[b], strict=True)]
            least = sum(min(d, n - d) for d, n in zip(ahead, (rows, columns), strict=True))
            assert len(on.route(a, b)[0]) == least + 2


@pytest.mark.parametrize("distance", [1, 2, 4, 8, 16, 32])
def test_exchanges_cross_a_torus_link_as_often_as_the_closed_form_says(distance):
    from lib_dlhpc.costs.network import congestion

    machine = Machine(DEVICE, INSIDE, BETWEEN, nodes=64, topology="torus")
    on, rank = platform(machine, 64, 1), np.arange(64)
    links, _ = on.routes(rank, rank ^ distance)
    assert np.bincount(links[links != NO_LINK]).max() == congestion(machine, 64, distance)
