"""Laws of caches under random access: nobody beats the cached share but who knows what comes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import SpecError, loads
from lib_dlhpc.costs.storage_reads import cached_share, miss_share
from lib_dlhpc.prediction.storage.caching import best, least_recently_used
from lib_dlhpc.simulation.caching import POLICIES, hit_rates, orders

SHARES = [0.05, 0.25, 0.5, 0.75, 0.95]


@given(
    st.sampled_from(sorted(POLICIES)),
    st.integers(0, 12),
    st.lists(st.permutations(range(10)), min_size=2, max_size=6),
)
def test_no_policy_finds_more_in_an_epoch_than_the_cache_holds(policy, room, epochs):
    """Whoever reads everything once an epoch, in any order: clairvoyance is of no use either."""
    rates = hit_rates(policy, epochs, room)
    assert rates[0] == 0
    assert all(rate <= best(room / 10) + 1e-12 for rate in rates)


@pytest.mark.parametrize("policy", ["keep", "belady"])
@given(room=st.integers(0, 10), epochs=st.lists(st.permutations(range(10)), min_size=2, max_size=6))
def test_who_never_drops_anything_finds_just_that_many_and_so_does_belady(policy, room, epochs):
    assert hit_rates(policy, epochs, room)[1:] == [room / 10] * (len(epochs) - 1)


@pytest.mark.parametrize("share", SHARES)
def test_least_recently_used_finds_less_as_its_formula_says(share):
    """Within 0.01 over ten epochs of 4,000 samples; and always below the cached share."""
    found = np.mean(hit_rates("lru", orders(4000, 12, seed=1), int(4000 * share))[2:])
    assert found == pytest.approx(least_recently_used(share), abs=0.01)
    assert least_recently_used(share) < share
    assert least_recently_used(0.0) == 0 and least_recently_used(1.0) == 1


@pytest.mark.parametrize(("nodes", "share"), [(2, 0.5), *((8, share) for share in SHARES)])
def test_one_of_many_nodes_finds_the_cached_share_at_most_unless_it_knows_what_comes(nodes, share):
    """On average over 40 epochs of 4,000 / nodes reads, within three standard errors."""
    read, room = orders(4000, 60, nodes, seed=2), int(4000 * share)
    error = (share * (1 - share) / (40 * 4000 / nodes)) ** 0.5
    for policy in POLICIES.keys() - {"belady"}:  # those that do not know the future
        assert np.mean(hit_rates(policy, read, room)[20:]) <= share + 3 * error, policy
    assert np.mean(hit_rates("belady", read, room)[20:-1]) > share + 3 * error


@pytest.mark.parametrize("share", SHARES)
def test_the_same_order_every_time_is_the_worst_for_least_recently_used(share):
    again = orders(1000, 4, shuffle=False)
    assert hit_rates("lru", again, int(1000 * share))[-1] == 0
    assert hit_rates("keep", again, int(1000 * share))[-1] == pytest.approx(share)
    assert hit_rates("lru", again, 1000)[-1] == 1


def test_predictions_take_the_cached_share_and_a_first_epoch_without_hits():
    run = loads("""
    model = { name = "resnet50" }
    dataset = { name = "imagenet" }
    machine = { name = "summit" }
    storage = { tier = "gpfs", cache = "35 GB" }
    run = { epochs = 10 }
    """)
    room = 1000 * cached_share(run)
    assert room == 250
    kept = hit_rates("keep", orders(1000, 10, seed=3), int(room))
    assert miss_share(run) == pytest.approx(1 - np.mean(kept))
    assert miss_share(run.set({"run.epochs": 1.0})) == 1


def test_bad_input_is_named():
    with pytest.raises(SpecError, match="lru"):
        hit_rates("lur", [[1]], 1)
    with pytest.raises(SpecError, match="at least 0"):
        hit_rates("lru", [[1]], -1)
