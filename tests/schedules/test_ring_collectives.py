"""The halves of a ring send the messages of their schedules, from the same places, in the same rounds."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.schedules import ring_collectives, schedule
from lib_dlhpc.schedules.rings import cuts

RANKS = st.integers(1, 9)


class Noted:
    """A communicator that notes messages and delivers nothing."""

    def __init__(self, rank, size):
        self.rank, self.size, self.sent, self.received = rank, size, [], []

    def Isend(self, buffer, to, tag):
        self.sent.append((to, buffer.size, address(buffer), tag))

    def Irecv(self, buffer, source, tag):
        self.received.append((source, buffer.size, address(buffer), tag))


def address(array):
    """Return where an array lies; one without elements lies nowhere."""
    return array.__array_interface__["data"][0] if array.size else None


def blocks_of(flat, ranks):
    return [flat[a:b] for a, b in pairwise(cuts(flat.size, ranks).tolist())]


def scattered(comm, blocks):
    return ring_collectives.reduce_scatter(comm, [blocks])


@pytest.mark.parametrize(
    ("name", "half", "tag"),
    [
        ("ring_reduce_scatter", scattered, ring_collectives.SUMS),
        ("ring_allgather", ring_collectives.allgather, ring_collectives.COPIES),
    ],
)
@given(ranks=RANKS, elements=st.integers(0, 40))
def test_messages_are_those_of_the_schedules(name, half, tag, ranks, elements):
    rounds = list(schedule(name, ranks, elements))
    for rank in range(ranks):
        flat, comm = np.zeros(elements), Noted(rank, ranks)
        assert len(list(half(comm, blocks_of(flat, ranks)))) == len(rounds)
        for part, sent, received in zip(rounds, comm.sent, comm.received, strict=True):
            out, into = (
                int(np.flatnonzero(side == rank)[0]) for side in (part.source, part.target)
            )
            lies = [address(flat[part.offset[k] :][: part.count[k]]) for k in (out, into)]
            assert sent == (part.target[out], part.count[out], lies[0], tag)
            assert received[:2] == (part.source[into], part.count[into]) and received[3] == tag
            if not part.reduce[into]:  # what is copied arrives where it belongs
                assert received[2] == lies[1]


@given(RANKS, st.lists(st.integers(0, 300), min_size=1, max_size=12), st.integers(1, 50))
def test_pieces_have_each_element_once_and_as_much_for_each_rank(ranks, sizes, piece):
    flat = np.arange(sum(sizes))
    ends = np.cumsum([0, *sizes])
    units = [blocks_of(flat[a:b], ranks) for a, b in pairwise(ends)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring_collectives, "PIECE", piece * flat.itemsize)
        pieces = list(ring_collectives._pieces(units))
    for rank in range(ranks):
        found = np.concatenate([part for blocks in pieces for part in blocks[rank]])
        assert found.tolist() == np.concatenate([unit[rank] for unit in units]).tolist()
    for blocks in pieces:
        given = [sum(part.size for part in block) for block in blocks]
        assert max(given) - min(given) <= 2 * len(blocks[0])
        assert max(given) < 3 * piece + len(blocks[0])
