"""Passes by depth, with stretches that repeat: as many, and as late, as without."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.program import lane_walk
from lib_dlhpc.program.calls import pipeline
from lib_dlhpc.program.depths import Stretch, by_depth, stretches
from lib_dlhpc.program.lane_walk import walk
from lib_dlhpc.program.lanes import COLUMNS
from lib_dlhpc.program.rounds import numbered
from lib_dlhpc.schedules.pipeline import Receive, Send

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "dualpipe")
SECONDS = st.floats(0.01, 1.0)


@st.composite
def pipelines(draw):
    schedule, ranks = draw(st.sampled_from(SCHEDULES)), draw(st.integers(2, 6))
    many, chunks = draw(st.integers(1, 80)), 1
    if schedule == "interleaved":
        many, chunks = ranks * draw(st.integers(1, 14)), draw(st.integers(2, 3))
    if schedule == "dualpipe":
        ranks = 2 * draw(st.integers(1, 3))
        many, chunks = 2 * (ranks + draw(st.integers(0, 40))), 2
    return schedule, ranks, many, chunks


@given(pipelines())
@settings(max_examples=60)
def test_stretches_are_the_passes_in_the_order_of_their_depth(shape):
    found = [each.key for one in stretches(*shape) for each in one.depths * one.times]
    assert found == [each.key for each in by_depth(*shape)]


@given(pipelines())
@settings(max_examples=60)
def test_a_pass_is_one_deeper_than_what_it_follows_and_receives_what_its_stream_does(shape):
    pipe = pipeline(*shape)
    (place, _, source, boundary), depth = numbered(pipe)[0].T, numbered(pipe)[1]
    for rank in range(pipe.ranks):
        own = np.flatnonzero(place == rank)
        before = np.concatenate([[0], depth[own[:-1]]])
        behind = np.where(source[own] >= 0, depth[source[own]], 0)
        assert (depth[own] == 1 + np.maximum(before, behind)).all()
        stream = pipe.streams[rank]
        peers = [each.peer for each in stream if isinstance(each, Receive)]
        assert sorted(peers) == sorted(place[source[own][source[own] >= 0]].tolist())
        assert np.sum(boundary[own] >= 0) == sum(isinstance(each, Send) for each in stream)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_with_many_microbatches_most_passes_repeat(schedule):
    found = stretches(schedule, 4, 400, 2 if schedule in ("interleaved", "dualpipe") else 1)
    assert sum(len(one.depths) for one in found) < 0.2 * sum(
        len(one.depths) * one.times for one in found
    )


@given(pipelines(), st.integers(0, 1000))
@settings(max_examples=60)
def test_a_walk_that_skips_repetitions_ends_as_one_that_does_not(shape, seed):
    schedule, ranks, many, chunks = shape
    table = 1 + 0.3 * np.random.default_rng(seed).random((len(COLUMNS), ranks, chunks, 3))
    table[-2:, ..., 0] = 0.0  # free messages
    table[..., 1] = table[:, :1, :, 1]  # equal stages
    skips = walk(schedule, ranks, many, chunks, table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_walk, "stretches", lambda *one: (Stretch(by_depth(*one), 1),))
        walked = walk(schedule, ranks, many, chunks, table)
    total = walked[0].max()
    for one, other in zip(skips, walked, strict=True):
        assert np.abs(one - other).max() <= 1e-12 * total
