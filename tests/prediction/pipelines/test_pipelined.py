"""Laws of a pipeline's time: the bubble formulas, and what the streams of instructions take when played."""

from itertools import product

import numpy as np
import pytest

from lib_dlhpc.prediction.pipelines.pipelined import (
    RankTimes,
    before_backward,
    before_mirrored_backward,
    in_flight,
    pipeline_time,
    waiting,
)
from lib_dlhpc.schedules.dualpipe import dualpipe
from lib_dlhpc.schedules.pipeline import Backward, Forward, Receive, Send, WeightGradients
from lib_dlhpc.schedules.pipelines import gpipe, interleaved, one_f_one_b, zb_h1

STREAMS = {
    "gpipe": lambda p, m, v: gpipe(p, m),
    "1f1b": lambda p, m, v: one_f_one_b(p, m),
    "interleaved": interleaved,
    "zb-h1": lambda p, m, v: zb_h1(p, m),
    "dualpipe": lambda p, m, v: dualpipe(p, m),
}


def played(schedule, m, forward, backward, hop, v=1):
    """Return when all instructions are done; a message is there `hop` s after it was sent."""
    p = len(forward) // v
    pipeline = STREAMS[schedule](p, m, v)
    clock, at, sent = [0.0] * p, [0] * p, {}
    moves = True
    while moves:
        moves = False
        for rank, stream in enumerate(pipeline.streams):
            while at[rank] < len(stream):
                step = stream[at[rank]]
                if isinstance(step, Receive | Send):
                    key = step.what, step.microbatch, step.stage
                    if isinstance(step, Send):
                        sent[key] = clock[rank] + hop
                    elif key not in sent:
                        break
                    else:
                        clock[rank] = max(clock[rank], sent[key])
                else:
                    stage = step.chunk * p + rank
                    half = 0.5 if pipeline.splits_backward else 1.0
                    clock[rank] += (
                        forward[stage] if isinstance(step, Forward) else half * backward[stage]
                    )
                at[rank] += 1
                moves = True
    return max(clock)


def predicted(schedule, m, forward, backward, hop, v=1):
    p = len(forward) // v
    each = [np.reshape(times, (v, p)).sum(axis=0) for times in (forward, backward)]
    ranks = RankTimes(*each, np.full(p - 1, hop), np.zeros(p - 1), hop)
    return pipeline_time(ranks, m, schedule, v)


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 4), (4, 4), (4, 8), (8, 32), (64, 512)])
def test_equal_stages_and_free_messages_give_the_bubble_formulas(p, m):
    forward, backward = np.full(p, 1.0), np.full(p, 2.0)
    for schedule in ("gpipe", "1f1b"):
        time = predicted(schedule, m, forward, backward, 0.0)
        assert time / (3.0 * m) - 1 == pytest.approx((p - 1) / m, abs=1e-12)
    if m >= p:
        given = m, forward, backward, 0.0
        assert predicted("zb-h1", *given) == pytest.approx(played("zb-h1", *given), rel=1e-12)
        bubble = predicted("zb-h1", *given) / (3.0 * m) - 1
        assert bubble == pytest.approx((p - 1) / (3 * m), abs=1e-12)
    if p % 2 == 0 and m >= 2 * p:  # two stages a rank, each with half of the microbatches
        given = m, np.full(2 * p, 1.0), np.full(2 * p, 2.0), 0.0, 2
        assert predicted("dualpipe", *given) == pytest.approx(played("dualpipe", *given), rel=1e-12)
        assert predicted("dualpipe", *given) - 3.0 * m == pytest.approx(p - 2)
    for v in (2, 3):
        time = predicted("interleaved", m, np.full(p * v, 1.0), np.full(p * v, 2.0), 0.0, v)
        assert time / (3.0 * m * v) - 1 == pytest.approx((p - 1) / (v * m), abs=1e-12)


CASES = [(2, 3, 1), (2, 5, 1), (4, 5, 1), (4, 9, 1), (5, 16, 1), (4, 8, 2), (4, 8, 3), (8, 16, 2)]


@pytest.mark.parametrize(("p", "m", "v"), CASES)
@pytest.mark.parametrize("hop", [0.0, 0.1, 0.5, 1.0, 2.0])
def test_equal_stages_with_messages_take_what_their_streams_take(p, m, v, hop):
    """Messages of up to a forward pass; an interleaved pipeline with longer ones is priced too high."""
    schedules = ["interleaved"] if v > 1 else ["gpipe", "1f1b"]
    if v > 1 and hop > 1.0:
        return
    for schedule in schedules:
        given = m, np.full(p * v, 1.0), np.full(p * v, 2.0), hop, v
        assert predicted(schedule, *given) == pytest.approx(played(schedule, *given), rel=1e-9)


@pytest.mark.parametrize(("schedule", "seed"), [*product(["gpipe", "1f1b"], range(8))])
def test_uneven_stages_are_predicted_too(schedule, seed):
    """GPipe exactly; 1F1B within some percent, and never as if the longest stage were shorter."""
    draw = np.random.default_rng(seed)
    p, m = int(draw.integers(2, 7)), int(draw.integers(6, 25))
    forward = draw.uniform(0.7, 1.3, p)
    given = m, forward, 2 * forward, float(draw.choice([0.0, 0.1]))
    found, truth = predicted(schedule, *given), played(schedule, *given)
    if schedule == "gpipe":
        assert found == pytest.approx(truth, rel=1e-9)
    assert 0.97 * truth <= found <= 1.1 * truth
    assert found >= 3 * m * forward.max()


def test_messages_never_make_it_quicker():
    draw = np.random.default_rng(1)
    for schedule, v in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2)):
        ranks = RankTimes(draw.uniform(1, 2, 4), draw.uniform(1, 2, 4), np.zeros(3), np.zeros(3))
        times = [
            pipeline_time(ranks._replace(latency=np.full(3, hop), wrap=hop), 8, schedule, v)
            for hop in (0.0, 0.1, 1.0, 3.0)
        ]
        assert times == sorted(times) and times[0] < times[-1]
        slow = ranks._replace(latency=np.full(3, 3.0), wrap=3.0)
        free = slow._replace(latency=np.zeros(3), transfer=np.zeros(3), wrap=0.0)
        assert pipeline_time(free, 8, schedule, v) == times[0]


@pytest.mark.parametrize(
    ("schedule", "p", "m", "v"),
    [
        *(("gpipe", 3, 5, 1), ("1f1b", 4, 8, 1), ("1f1b", 4, 2, 1), ("interleaved", 4, 8, 1)),
        *(("interleaved", 4, 8, 3), ("interleaved", 4, 4, 2), ("interleaved", 2, 8, 2)),
        *(("zb-h1", 4, 8, 1), ("zb-h1", 4, 2, 1), ("zb-h1", 4, 3, 1), ("zb-h1", 1, 3, 1)),
        *(("dualpipe", 2, 4, 2), ("dualpipe", 4, 10, 2), ("dualpipe", 8, 16, 2)),
    ],
)
def test_a_rank_keeps_what_its_stream_keeps(schedule, p, m, v):
    pipeline = STREAMS[schedule](p, m, v)
    frees = WeightGradients if pipeline.splits_backward else Backward
    for rank, stream in enumerate(pipeline.streams):
        kept = most = 0
        for step in stream:
            kept += isinstance(step, Forward) - isinstance(step, frees)
            most = max(most, kept)
        assert in_flight(rank, p, m, schedule, v) == most


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 5), (4, 3), (8, 8), (1, 3)])
def test_before_backward_some_microbatches_wait_for_weight_gradients_alone(p, m):
    """In the backward pass with most activations, as many microbatches wait as the ledger says."""
    for rank, stream in enumerate(zb_h1(p, m).streams):
        whole = later = 0
        found = []
        for step in stream:
            if isinstance(step, Backward):
                found.append((whole, later))
            whole += isinstance(step, Forward) - isinstance(step, Backward)
            later += isinstance(step, Backward) - isinstance(step, WeightGradients)
        most = waiting(rank, p, m, "zb-h1")
        assert max(found) == (in_flight(rank, p, m, "zb-h1") - most, most)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 14), (8, 40)])
def test_each_stage_of_a_dualpipe_rank_keeps_what_its_stream_keeps(p, m):
    """More microbatches than the fewest repeat what was there before, so the peak is the same."""
    for rank, stream in enumerate(dualpipe(p, m).streams):
        kept, later, found = [0, 0], [0, 0], set()
        for step in stream:
            if isinstance(step, Forward):
                kept[step.chunk] += 1
            elif isinstance(step, Backward):
                found.add((*kept, *later, step.chunk))
                kept[step.chunk] -= 1
                later[step.chunk] += 1
            elif isinstance(step, WeightGradients):
                later[step.chunk] -= 1
        whole, waits, back, _ = before_mirrored_backward(rank, p)
        rows = np.column_stack([whole, waits, back])
        assert {tuple(row) for row in rows.tolist()} == found
        assert (whole + waits).sum(axis=1).max() == p + 1


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 3), (3, 3, 1), (4, 4, 2)])
def test_each_chunk_of_an_interleaved_rank_keeps_what_its_stream_keeps(p, m, v):
    for rank, stream in enumerate(interleaved(p, m, v).streams):
        kept, found = [0] * v, []
        for step in stream:
            if isinstance(step, Forward):
                kept[step.chunk] += 1
            elif isinstance(step, Backward):
                found.append(([*kept], step.chunk))
                kept[step.chunk] -= 1
        counts, back = before_backward(rank, p, m, v)
        assert list(zip(counts.tolist(), back.tolist(), strict=True)) == found


@pytest.mark.parametrize(("p", "v"), [*product((1, 2, 3, 4, 8), (1, 2, 3, 5))])
def test_after_three_groups_of_microbatches_an_interleaved_rank_keeps_no_others(p, v):
    """The first time of each comes as early: what is highest, and first, stays."""
    for rank in range(p):
        few, many = (before_backward(rank, p, groups * p, v) for groups in (3, 9))
        one, other = (
            [*dict.fromkeys(zip(map(tuple, counts.tolist()), back.tolist(), strict=True))]
            for counts, back in (few, many)
        )
        assert one == other
