"""A program of neighbors: alone on its links it takes what a sum says, and each planted fault is found."""

from dataclasses import replace

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.simulation.neighbors import LEAST_RANKS, program, ring, simulate_neighbors
from lib_dlhpc.spec.machine import Link, load_machine
from lib_dlhpc.timeline.analysis import analyze

STEPS, RANKS, SIZE = 6, 4, 1e6
LATENCY, BANDWIDTH = 1e-5, 1e9
MACHINE = replace(load_machine("laptop"), nodes=8, inter_node=Link(LATENCY, BANDWIDTH))
MESSAGE = LATENCY + SIZE / BANDWIDTH
BEFORE, AFTER, READING = 0.02, 0.01, 0.002
LATE = 0.01


def played(before=BEFORE, after=AFTER, reading=READING, ranks=RANKS, slow=-1, share=1.0):
    what = program(STEPS, ranks, before, after, reading, SIZE)
    return simulate_neighbors(what, ring(MACHINE, ranks, slow, share))


def late(rank, seconds, usual):
    column = np.full(RANKS, usual)
    column[rank] += seconds
    return column


def of_kind(timeline, kind):
    return [one for one in analyze(timeline).findings if one.kind == kind]


@pytest.mark.parametrize("ranks", [LEAST_RANKS, 4, 5, 8])
def test_ranks_that_are_alike_take_the_sum_of_their_parts_and_wait_for_nobody(ranks):
    found = analyze(played(ranks=ranks))
    met = found.span / STEPS - (READING + BEFORE + MESSAGE + AFTER)
    assert 0 < met < 2 * ranks * (LATENCY + 8 / BANDWIDTH)  # the allreduce
    np.testing.assert_allclose(found.compute, STEPS * (BEFORE + AFTER))
    np.testing.assert_allclose(found.stalled, STEPS * READING)
    assert not found.findings


def test_each_message_is_sent_once_and_received_once_and_all_meet_once_a_step():
    timeline = played()
    ends = {
        kind: np.sort(timeline.match[timeline.where("communication", kind)])
        for kind in ("send", "receive", "collective")
    }
    np.testing.assert_array_equal(ends["send"], ends["receive"])
    assert len(np.unique(ends["send"])) == len(ends["send"]) == 2 * RANKS * STEPS
    numbers, each = np.unique(ends["collective"], return_counts=True)
    assert len(numbers) == STEPS and (each == RANKS).all()
    assert not np.isin(numbers, ends["send"]).any()
    moved = analyze(timeline).matrix.bytes
    expected = [
        [STEPS * SIZE if (a - b) % RANKS in (1, RANKS - 1) else 0 for a in range(RANKS)]
        for b in range(RANKS)
    ]
    np.testing.assert_array_equal(moved, expected)


@pytest.mark.parametrize("rank", range(RANKS))
def test_who_works_longer_is_found_with_its_amount(rank):
    timeline = played(after=late(rank, LATE, AFTER))
    (one,) = of_kind(timeline, "load imbalance")
    assert one.rank == rank and one.seconds == pytest.approx(STEPS * LATE, rel=1e-6)


@pytest.mark.parametrize("rank", range(RANKS))
def test_who_sends_late_is_found_with_what_both_neighbors_wait(rank):
    after = np.full(RANKS, AFTER + LATE)
    after[rank] -= LATE
    timeline = played(before=late(rank, LATE, BEFORE), after=after)
    first = of_kind(timeline, "late sender")[0]
    assert first.rank == rank
    # One neighbor receives from it first; the other from it after a message that came in time.
    assert first.seconds == pytest.approx(STEPS * (2 * LATE - MESSAGE), rel=0.01)
    assert not of_kind(timeline, "load imbalance")  # all have as much to do


@pytest.mark.parametrize("rank", range(RANKS))
def test_who_reads_slowly_is_found_with_its_amount(rank):
    timeline = played(reading=late(rank, LATE, READING))
    (one,) = of_kind(timeline, "slow disk")
    assert one.rank == rank and one.seconds == pytest.approx(STEPS * LATE, rel=1e-6)


@pytest.mark.parametrize("slow", range(RANKS))
def test_a_slow_link_is_found_between_its_two_ends(slow):
    share = 0.2
    (one,) = of_kind(played(slow=slow, share=share), "slow link")
    assert {one.rank, one.peer} == {slow, (slow + 1) % RANKS}
    more = 2 * STEPS * SIZE / BANDWIDTH * (1 / share - 1)  # both ways
    assert one.seconds == pytest.approx(more, rel=0.1)


def test_the_other_links_are_as_fast_as_they_were():
    whole, one = ring(MACHINE, RANKS), ring(MACHINE, RANKS, 1, 0.5)
    slower = np.flatnonzero(one.capacity < whole.capacity)
    names = {whole.links[link] for link in slower}
    assert names == {"node 1 east", "node 2 west"}


@pytest.mark.parametrize(
    "wrong", [{"ranks": 2}, {"before": -1.0}, {"slow": 1, "share": 0.0}, {"slow": 1, "share": 1.5}]
)
def test_what_cannot_be_played_is_refused(wrong):
    with pytest.raises(SpecError):
        played(**wrong)
    with pytest.raises(SpecError, match="3 ranks"):
        simulate_neighbors(program(1, 3, 0, 0, 0, 1), ring(MACHINE, 4))


def test_with_a_barrier_the_trace_begins_where_all_have_met():
    what = program(STEPS, RANKS, BEFORE, AFTER, 0.0, SIZE)
    alone, met = (simulate_neighbors(what, ring(MACHINE, RANKS), barrier=b) for b in (False, True))
    assert alone.start.min() == pytest.approx(BEFORE) and met.start.min() == 0
    assert met.stop.max() == alone.stop.max()
    found = analyze(met)
    np.testing.assert_allclose(found.compute, STEPS * (BEFORE + AFTER))
    assert not found.findings
