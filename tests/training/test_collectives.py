"""Decisions of rank 0: the same on all ranks, and seldom a message."""

import pytest

from lib_dlhpc.training import collectives
from lib_dlhpc.training.collectives import MOST_STEPS, Decisions


class Comm:
    """One of two ranks that take turns: rank 0 sends, then rank 1 receives."""

    size = 2

    def __init__(self, sent):
        self.sent, self.first = sent, not sent

    def Bcast(self, array):
        if self.first:
            self.sent.append(array.copy())
        else:
            array[...] = self.sent.pop(0)


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(collectives, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("step", "seconds", "looks"),
    [
        (1e-3, 0.05, (20, 24)),
        (1.0, 0.05, (1000, 1000)),
        (1e-3, 1e-9, (1000, 1000)),
        (1e-6, 1.0, (10, 13)),
    ],
)
def test_ranks_decide_alike_about_as_often_as_asked(step, seconds, looks, clock):
    sent = []
    ranks = [Decisions(Comm(sent), seconds) for _ in range(2)]
    ranks[1].comm.first = False
    made = 0
    for _ in range(1000):
        clock[0] += step
        yes = ranks[0].decided(True, False)
        made += bool(sent)
        assert ranks[1].decided(False, True) == yes
        assert not sent
        assert yes in ((True, False), (False, False))
    assert looks[0] <= made <= looks[1]
    assert made >= 1000 // (MOST_STEPS + 1)


def test_one_rank_decides_in_each_step():
    alone = type("Alone", (), {"size": 1})()
    assert Decisions(alone, 1.0).decided(True, False) == (True, False)
