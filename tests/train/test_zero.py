"""How a bucket goes to the shards: every element once, and every piece for all ranks alike."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.train.zero import pieces

COUNTS = st.lists(st.integers(0, 500), min_size=1, max_size=7)


@given(COUNTS, st.integers(1, 9))
def test_pieces_have_each_element_once_and_as_much_of_each_shard_as_the_others(counts, many):
    found = pieces(counts, many)
    assert len(found) == many
    for rank, count in enumerate(counts):
        first = sum(counts[:rank])
        have = np.concatenate([np.arange(each[rank].start, each[rank].stop) for each in found])
        assert have.tolist() == list(range(first, first + count))
        assert all(abs(each[rank].stop - each[rank].start - count / many) < 1 for each in found)


def test_no_rank_gets_all_of_a_piece_where_all_get_as_much_of_the_bucket():
    for piece in pieces([1000, 1000, 1000], 4):
        assert [part.stop - part.start for part in piece] == [250] * 3
