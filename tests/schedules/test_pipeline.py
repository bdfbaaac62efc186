"""Pipelines: every microbatch once through every stage, no deadlock, the papers' bubbles and memory."""

from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules import PIPELINES, ProofError, prove_pipeline
from lib_dlhpc.schedules.pipeline import Backward, Forward, Send, WeightGradients
from lib_dlhpc.schedules.pipeline_proof import bubble, stored_chunks, timetable
from lib_dlhpc.schedules.pipelines import gpipe, interleaved, one_f_one_b, zb_h1

ranks, microbatches, chunks = st.integers(1, 9), st.integers(1, 20), st.integers(1, 5)
times = st.floats(0.1, 10)


@pytest.mark.parametrize("make", PIPELINES.values(), ids=PIPELINES)
def test_the_first_passes_of_very_many_microbatches_are_there_at_once(make):
    """A stream is made as it is read; as a list it would not fit into memory."""
    many, few = make(4, 4 * 10**12), make(4, 40)
    for rank in range(4):
        first, same = (list(map(type, islice(each.passes(rank), 12))) for each in (many, few))
        assert first == same


@given(p=ranks, m=microbatches, forward=times, backward=times)
def test_gpipe_and_1f1b_have_the_same_bubble(p, m, forward, backward):
    """(p-1)/m, Narayanan et al. 2021, section 2.2."""
    for make in (gpipe, one_f_one_b):
        pipeline = make(p, m)
        prove_pipeline(pipeline)
        assert bubble(pipeline, forward, backward) == pytest.approx((p - 1) / m)


@given(p=ranks, groups=st.integers(1, 4), v=chunks, forward=times, backward=times)
def test_chunks_divide_the_bubble(p, groups, v, forward, backward):
    """(p-1)/(v m)."""
    pipeline = interleaved(p, groups * p, v)
    prove_pipeline(pipeline)
    assert bubble(pipeline, forward, backward) == pytest.approx((p - 1) / (v * groups * p))


@given(p=ranks, more=st.integers(0, 12), share=st.floats(0.05, 0.95), forward=times, backward=times)
def test_zero_bubble_has_the_bubble_of_the_paper(p, more, share, forward, backward):
    """(p-1)(F + B - W) s, Qi et al. 2024, section 2.3, where W is the shortest; and never more than 1F1B."""
    m, weights = p + more, share * backward
    rest = backward - weights
    pipeline, before = zb_h1(p, m), one_f_one_b(p, m)
    prove_pipeline(pipeline)
    idle = bubble(pipeline, forward, backward, share) * m * (forward + backward)
    if weights <= min(forward, rest):
        assert idle == pytest.approx((p - 1) * (forward + rest - weights), abs=1e-9 * m * p)
    assert idle <= bubble(before, forward, backward) * m * (forward + backward) + 1e-9 * m * p


def test_equal_passes_leave_a_third_of_the_bubble():
    assert bubble(zb_h1(8, 24), 1.0, 2.0) == pytest.approx(bubble(one_f_one_b(8, 24), 1.0, 2.0) / 3)


def test_the_zero_bubble_schedule_in_the_paper():
    """Figure 3 of Qi et al. 2024: the second of 4 devices puts its first weight gradients off by one microbatch."""
    second = [
        f"{type(step).__name__[0]}{step.microbatch}"
        for step in zb_h1(4, 8).streams[1]
        if isinstance(step, Forward | Backward | WeightGradients)
    ]
    assert second[:10] == ["F0", "F1", "F2", "B0", "F3", "B1", "W0", "F4", "B2", "W1"]
    assert second[-4:] == ["W5", "B7", "W6", "W7"]


@given(p=ranks, m=microbatches)
def test_zero_bubble_keeps_on_every_rank_what_1f1b_keeps_on_the_first(p, m):
    assert stored_chunks(zb_h1(p, m)) == [min(m, p)] * p


@given(p=ranks, m=microbatches)
def test_1f1b_keeps_a_few_and_gpipe_all(p, m):
    assert stored_chunks(gpipe(p, m)) == [m] * p
    assert stored_chunks(one_f_one_b(p, m)) == [min(m, p - rank) for rank in range(p)]


@given(p=ranks, groups=st.integers(1, 4))
def test_one_chunk_interleaved_is_a_1f1b_with_the_same_bubble(p, groups):
    assert bubble(interleaved(p, groups * p, 1)) == pytest.approx(
        bubble(one_f_one_b(p, groups * p))
    )


def test_the_schedule_in_the_paper():
    """1F1B on 4 ranks, 8 microbatches: the second rank of figure 3 of Narayanan et al. 2019 (PipeDream)."""
    second = [
        f"{type(step).__name__[0]}{step.microbatch}"
        for step in one_f_one_b(4, 8).streams[1]
        if isinstance(step, Forward | Backward)
    ]
    assert second[:8] == ["F0", "F1", "F2", "B0", "F3", "B1", "F4", "B2"]
    assert second[-3:] == ["B5", "B6", "B7"]


@given(p=ranks, m=microbatches)
def test_transfers_lengthen_the_run(p, m):
    quick, slow = (
        max(s.stop for s in timetable(gpipe(p, m), transfer=t) or [None]) for t in (0.0, 0.5)
    )
    assert slow == pytest.approx(quick + 2 * (p - 1) * 0.5)


def changed(pipeline, rank, change):
    streams = list(pipeline.streams)
    streams[rank] = tuple(change(list(streams[rank])))
    return replace(pipeline, streams=tuple(streams))


def without(instruction):
    return lambda stream: [step for step in stream if step != instruction]


@pytest.mark.parametrize(
    ("rank", "change", "says"),
    [
        (
            0,
            without(Send("activation", 1, 0, 1)),
            "rank 1 waits for the activation of microbatch 1",
        ),
        (1, without(Forward(1, 0)), "Rank 1: .*comes before Forward.microbatch=1"),
        (2, lambda s: [*s, s[-2]], "Rank 2: Backward.* is done twice"),
        (0, lambda s: s[:-1], "Rank 0: Backward.microbatch=0.* is never done"),
        (
            0,
            lambda s: [*s, Forward(9, 0)],
            "Forward.microbatch=9.* is out of range; legal: .*0 to 1",
        ),
        (
            0,
            lambda s: [*s, Forward(0, 1)],
            "Forward.*chunk=1.* is out of range; legal: .*chunks 0 to 0",
        ),
        (
            2,
            lambda s: [*s, Send("gradient", 0, 2, 0)],
            "No rank receives .* rank 2 .*sent to rank 0",
        ),
        (1, lambda s: [s[1], s[0], *s[2:]], "Rank 1: Forward.* comes before Receive"),
        (1, lambda s: s[::-1], "Deadlock: .*rank 0 waits for .*; rank 1 waits for"),
    ],
)
def test_mistakes_are_named(rank, change, says):
    with pytest.raises(ProofError, match=says):
        prove_pipeline(changed(gpipe(3, 2), rank, change))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without(WeightGradients(0, 0)), "Rank 1: WeightGradients.microbatch=0.* is never done"),
        (
            lambda s: [WeightGradients(1, 0), *s],
            "Rank 1: WeightGradients.*comes before Backward.microbatch=1",
        ),
        (lambda s: [*s, WeightGradients(0, 0)], "Rank 1: WeightGradients.* is done twice"),
        (lambda s: [*s, WeightGradients(2, 0)], "WeightGradients.microbatch=2.* is out of range"),
    ],
)
def test_mistakes_with_weight_gradients_are_named(change, says):
    with pytest.raises(ProofError, match=says):
        prove_pipeline(changed(zb_h1(3, 2), 1, change))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: gpipe(0, 4), "ranks = 0"),
        (lambda: one_f_one_b(4, 0), "microbatches = 0"),
        (lambda: interleaved(4, 6), "microbatches = 6: expected a multiple of the 4 ranks"),
        (lambda: interleaved(4, 8, 0), "chunks = 0"),
    ],
)
def test_impossible_pipelines_are_refused(make, says):
    with pytest.raises(SpecError, match=says):
        make()


def test_pipelines_have_names():
    assert {make(4, 8).name for make in PIPELINES.values()} == set(PIPELINES)


def test_a_timetable_of_unequal_stages_and_boundaries():
    """One microbatch through all: every stage forward and backward, every boundary there and back."""
    spans = timetable(gpipe(3, 1), [1.0, 2.0, 4.0], [3.0, 5.0, 7.0], [0.5, 0.25])
    assert max(span.stop for span in spans) == pytest.approx(22.0 + 2 * 0.75)
