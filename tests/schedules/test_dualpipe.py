"""DualPipe: the paper's bubble and memory beside those of 1F1B and ZB-H1, its order, and what it refuses."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.pipelines.bubbles import PassTimes, bubbles
from lib_dlhpc.schedules import PIPELINES, ProofError, prove_pipeline
from lib_dlhpc.schedules.dualpipe import dualpipe, overlapped_dualpipe
from lib_dlhpc.schedules.pipeline import (
    Backward,
    Forward,
    PassGroup,
    Receive,
    Send,
    WeightGradients,
    passes_of,
)
from lib_dlhpc.schedules.pipeline_proof import stored_chunks, timetable

ranks, more = st.integers(1, 5).map(lambda half: 2 * half), st.integers(0, 8)


def idle(pipeline, forward, backward, weights):
    """Return the idle time of a rank; all have as much work."""
    end = max(span.stop for span in timetable(pipeline, forward, backward, 0.0, weights / backward))
    return end - pipeline.microbatches * (forward + backward)


@pytest.mark.parametrize(("p", "times"), [*product((2, 4, 8, 16), (2, 3))])
def test_the_table_of_the_paper(p, times):
    """DeepSeek-AI 2024, table 2: with F = W = 1 and B = 2 every schedule has the bubble that it gives, to the unit."""
    table = bubbles(p, PassTimes(1.0, 2.0, 1.0))
    assert [each.idle for each in table.values()] == [3 * (p - 1), p - 1, p - 2]
    for name, schedule in (("1F1B", "1f1b"), ("ZB-H1", "zb-h1"), ("DualPipe", "dualpipe")):
        pipeline = PIPELINES[schedule](p, times * p)
        assert idle(pipeline, 1.0, 2.0, 1.0) == pytest.approx(table[name].idle, abs=1e-9)
        assert max(stored_chunks(pipeline)) == table[name].activations


@given(p=ranks, m=more, rest=st.integers(1, 20), share=st.integers(0, 20))
def test_the_bubble_is_the_papers_where_forward_takes_as_long_as_input_gradients(p, m, rest, share):
    """(p/2 - 1)(F&B + B - 3W) with F&B = F + B, for F = B - W and any W up to that."""
    w = rest * share / 20
    found = idle(dualpipe(p, 2 * p + 2 * m), rest, rest + w, w)
    assert found == pytest.approx((p / 2 - 1) * (rest + 2 * (rest + w) - 3 * w), abs=1e-9 * (p + m))


@given(p=ranks, m=more, forward=st.floats(0.8, 1.2), share=st.floats(0.4, 0.5))
def test_elsewhere_the_bubble_is_within_a_quarter_of_the_papers(p, m, forward, share):
    backward, w = 2.0, 2.0 * share
    found = idle(dualpipe(p, 2 * p + 2 * m), forward, backward, w)
    paper = (p / 2 - 1) * (forward + 2 * backward - 3 * w)
    assert 0.75 * paper - 1e-9 <= found <= 1.25 * paper + 1e-9


@pytest.mark.parametrize(
    ("forward", "weights", "ratio"), [(2.0, 1.0, 4 / 3), (1.0, 1.5, 4.0), (0.5, 1.0, 2 / 3)]
)
def test_far_from_that_the_bubble_is_several_times_as_long(forward, weights, ratio):
    found = idle(dualpipe(4, 8), forward, 2.0, weights)
    assert found == pytest.approx(ratio * (forward + 4.0 - 3 * weights))


@given(p=ranks, m=more)
def test_every_microbatch_passes_one_copy_of_the_network(p, m):
    pipeline = dualpipe(p, 2 * p + 2 * m)
    prove_pipeline(pipeline)
    assert stored_chunks(pipeline) == [p + 1] * p
    for rank in range(p):
        for chunk in (0, 1):
            through = [each.microbatch for each in pipeline.passes(rank) if each.chunk == chunk]
            assert sorted(through) == sorted([*pipeline.through(chunk)] * 3)


def written(pipeline, rank):
    """Return the turns of a rank: F and B with the direction and number there, pairs as one word."""
    words = []
    for turn in pipeline.turns(rank):
        words.append(
            "".join(
                f"{type(each).__name__[0]}{each.chunk}.{each.microbatch % pipeline.each}"
                for each in passes_of(turn)
                if not (isinstance(turn, PassGroup) and isinstance(each, WeightGradients))
            )
        )
    return words


def test_the_order_in_the_paper():
    """Figure 5: the first of 8 ranks, and one in the middle, with 20 microbatches."""
    pipeline = dualpipe(8, 20)
    first, middle = written(pipeline, 0), written(pipeline, 3)
    assert first[:8] == ["F0.0", "F0.1", "F0.2", "F0.3", "F0.4", "F0.5", "F0.6", "F1.0"]
    assert first[8:14] == ["B1.0", "W1.0", "F1.1", "B1.1", "W1.1", "F1.2"]
    assert first[17:20] == ["F0.7B1.3", "F1.4B0.0", "F0.8B1.4"]
    assert first[-9:-4] == ["B1.9", "B0.6", "W0.6", "B0.7", "W0.7"]
    assert first[-4:] == ["B0.8", "W0.8", "B0.9", "W0.9"]
    assert middle[:8] == ["F0.0", "F1.0", "F0.1", "F1.1", "F0.2", "F1.2", "F0.3", "F1.3"]
    assert middle[8:12] == ["F0.4", "B1.0", "F1.4B0.0", "F0.5B1.1"]


@given(p=ranks, m=more)
def test_overlapped_turns_are_the_turns_of_two_passes(p, m):
    """In the same order; and as many as are counted."""
    one, both = (make(p, 2 * p + 2 * m) for make in (dualpipe, overlapped_dualpipe))
    prove_pipeline(both)
    assert one.streams == both.streams and sum(map(sum, one.overlapped)) == 0
    for rank in range(p):
        pairs = [turn for turn in both.turns(rank) if getattr(turn, "overlapped", False)]
        for turn in pairs:
            assert [type(each) for each in turn.passes] == [Forward, Backward, WeightGradients]
            assert turn.passes[0].chunk == 1 - turn.passes[1].chunk
        counts = tuple(sum(turn.chunk == chunk for turn in pairs) for chunk in (0, 1))
        assert both.overlapped[rank] == counts
        assert [*map(passes_of, one.turns(rank))] == [*map(passes_of, both.turns(rank))]


def test_overlapped_turns_of_very_many_microbatches_are_counted_at_once():
    few, many = (overlapped_dualpipe(6, each).overlapped for each in (100, 10**12))
    for rank, counts in enumerate(few):
        assert many[rank] == tuple(each + (10**12 - 100) // 2 for each in counts)


def test_ranks_from_both_ends_do_the_same():
    pipeline = dualpipe(6, 16)
    for rank in range(3):
        ours, theirs = ([*pipeline.passes(at)] for at in (rank, 5 - rank))
        turned = [(type(each), 1 - each.chunk) for each in theirs]
        assert [(type(each), each.chunk) for each in ours] == turned


def test_a_turn_of_two_passes_waits_for_both_messages_and_sends_both_at_its_end():
    stream = dualpipe(4, 8).streams[1]
    at = stream.index(Backward(5, 1))
    assert stream[at - 3 : at + 4] == (
        Receive("activation", 3, 0, 0),
        Receive("gradient", 5, 4, 0),
        Forward(3, 0),
        Backward(5, 1),
        WeightGradients(5, 1),
        Send("activation", 3, 1, 2),
        Send("gradient", 5, 5, 2),
    )


@pytest.mark.parametrize(
    ("p", "m", "says"),
    [
        (3, 8, "ranks = 3: expected an even number"),
        (4, 9, "microbatches = 9: expected an even number, at least 8"),
        (4, 6, "microbatches = 6: expected an even number, at least 8"),
        (0, 8, "ranks = 0"),
    ],
)
def test_impossible_pipelines_are_refused(p, m, says):
    with pytest.raises(SpecError, match=says):
        dualpipe(p, m)


def test_a_microbatch_of_the_other_direction_is_named():
    pipeline = dualpipe(2, 4)
    streams = [(*pipeline.streams[0], Forward(3, 0)), pipeline.streams[1]]
    with pytest.raises(ProofError, match="out of range; legal: microbatches 0 to 1 of chunk 0"):
        prove_pipeline(replace(pipeline, streams=tuple(streams)))
