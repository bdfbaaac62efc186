"""Where partitions lie: every one somewhere, as often as asked, evenly; and each rank asks a rank that has it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.storage.errors import StoreError
from lib_dlhpc.storage.pack import balanced
from lib_dlhpc.storage.placement import checked, holders, sources


@given(st.integers(0, 40), st.integers(1, 12), st.data())
def test_each_partition_is_held_as_often_as_asked(partitions, ranks, data):
    replication = data.draw(st.integers(1, ranks))
    place = holders(partitions, range(ranks), replication)
    held = [sum(rank in part for part in place) for rank in range(ranks)]
    assert all(len(set(part)) == replication for part in place) and len(place) == partitions
    assert max(held) - min(held) <= replication and sum(held) == replication * partitions
    for rank in range(ranks):
        for part, source in enumerate(sources(place, rank)):
            assert source in place[part] and (source == rank) == (rank in place[part])


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 4), st.data())
def test_ranks_of_a_node_hold_the_same(partitions, nodes, size, data):
    replication = data.draw(st.integers(1, nodes))
    node = data.draw(st.permutations([n for n in range(nodes) for _ in range(size)]))
    for part in holders(partitions, node, replication):
        assert len(part) == replication * size and len({node[rank] for rank in part}) == replication


def test_an_impossible_placement_raises():
    for replication in (0, 4, 1.0, True):
        with pytest.raises(StoreError, match="from 1 to 3"):
            holders(5, range(3), replication)
    assert checked([[0], [1, 0]], 2, 2) == ((0,), (1, 0))
    with pytest.raises(StoreError, match="no rank holds partition 1"):
        checked([[0], []], 2, 2)
    with pytest.raises(StoreError, match="partition 0 is to be on rank 2"):
        checked([[2], [0]], 2, 2)
    with pytest.raises(StoreError, match="1 entries for a store of 2"):
        checked([[0]], 2, 2)


@given(st.lists(st.integers(0, 10**9), max_size=60), st.integers(1, 9))
def test_parts_weigh_about_the_same(sizes, parts):
    weights = [0] * parts
    for size, part in zip(sizes, balanced(sizes, parts), strict=True):
        weights[part] += size
    assert max(weights) - min(weights) <= max(sizes, default=0)
