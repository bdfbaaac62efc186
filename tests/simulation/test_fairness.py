"""Max-min fair rates: known cases, brute force, and the two laws that make an allocation the fair one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.simulation.fairness import FEW, fair_rates, fill


def both(routes, capacity):
    """The rates by plain Python (few flows) and by numpy (many), which must be the same."""
    flow = np.repeat(np.arange(len(routes)), [len(route) for route in routes])
    link = np.array([hop for route in routes for hop in route], dtype=np.int64)
    many = fill(flow, link, capacity)
    if len(routes) <= FEW:
        np.testing.assert_allclose(fair_rates(routes, capacity), many, rtol=1e-9)
    return many


def by_raising_all(routes, capacity, steps=20_000):
    """Brute force: everyone who is not stopped gets a little more, again and again."""
    rate, grain = np.zeros(len(routes)), max(capacity) / steps
    uses = np.array([[link in route for link in range(len(capacity))] for route in routes], float)
    going = np.ones(len(routes), bool)
    while going.any():
        full = uses.T @ (rate + grain * going) > np.asarray(capacity) * (1 + 1e-9)
        going &= ~(uses[:, full].any(axis=1))
        rate[going] += grain
    return rate


@st.composite
def networks(draw, flows=60, links=12, rates=None):
    rates = st.floats(0.1, 100.0) if rates is None else rates
    capacity = draw(st.lists(rates, min_size=1, max_size=links))
    hop = st.integers(0, len(capacity) - 1)
    route = st.lists(hop, min_size=1, max_size=5, unique=True).map(tuple)
    return draw(st.lists(route, min_size=1, max_size=flows)), capacity


@pytest.mark.parametrize(
    ("routes", "capacity", "rates"),
    [
        ([(0,)], [10.0], [10.0]),
        ([(0,)] * 8, [10.0], [1.25] * 8),  # an incast
        ([(0, 1), (0,), (1,)], [10.0, 10.0], [5.0, 5.0, 5.0]),
        ([(0, 1), (0,), (1,)], [10.0, 4.0], [2.0, 8.0, 2.0]),
        # Bertsekas & Gallager 1992, example in section 6.5.2: one long flow, three short ones
        ([(0, 1, 2), (0,), (1,), (1,), (2,)], [1.0, 1.0, 1.0], [1 / 3, 2 / 3, 1 / 3, 1 / 3, 2 / 3]),
        # a parking lot, where the first flow crosses all
        ([(0, 1, 2), (0,), (1,), (2,)], [9.0, 6.0, 2.0], [1.0, 8.0, 5.0, 1.0]),
    ],
)
def test_known_cases(routes, capacity, rates):
    np.testing.assert_allclose(both(routes, capacity), rates, rtol=1e-12)


@given(networks())
def test_no_link_carries_more_than_it_can(network):
    routes, capacity = network
    load = np.zeros(len(capacity))
    for route, rate in zip(routes, both(routes, capacity), strict=True):
        load[list(route)] += rate
    assert (load <= np.array(capacity) * (1 + 1e-9)).all()


@given(networks())
def test_every_flow_has_a_full_link_on_which_nobody_gets_more(network):
    routes, capacity = network
    rate = both(routes, capacity)
    load, most = np.zeros(len(capacity)), np.zeros(len(capacity))
    for route, own in zip(routes, rate, strict=True):
        load[list(route)] += own
        most[list(route)] = np.maximum(most[list(route)], own)
    full = load >= np.array(capacity) * (1 - 1e-9)
    for route, own in zip(routes, rate, strict=True):
        assert own > 0
        assert any(full[link] and own >= most[link] * (1 - 1e-9) for link in route)


@given(networks(flows=6, links=4, rates=st.integers(1, 10).map(float)))
def test_raising_all_rates_little_by_little_leads_to_the_same(network):
    routes, capacity = network
    np.testing.assert_allclose(
        both(routes, capacity), by_raising_all(routes, capacity, 2000), atol=0.01 * max(capacity)
    )


@given(networks(), st.randoms(use_true_random=False))
def test_the_order_of_flows_does_not_matter(network, random):
    routes, capacity = network
    order = list(range(len(routes)))
    random.shuffle(order)
    before, after = both(routes, capacity), both([routes[i] for i in order], capacity)
    np.testing.assert_allclose(after, before[order], rtol=1e-9)


def test_nobody_flows_over_nothing():
    assert fair_rates([], [1.0]) == []
