"""A Gantt chart shows what the timeline holds, of a few ranks, and says who waits for whom."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from experiment_page import fields
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi_world import Ranks

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.built import dataset_names
from lib_dlhpc.explore.gantt import drawings
from lib_dlhpc.explore.gantt.chart import LOOKS, SHOWN, gantt, gantt_state
from lib_dlhpc.explore.gantt.words import last_to_join, seconds_computing
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import exposed, from_rows, waits

GOYAL = replay("goyal-2017").experiment
TIMELINE = simulate(GOYAL, steps=2)
# Rank 1 joins the exchange a second later than rank 0.
TWO = from_rows(
    [
        (0, "compute", "forward", "forward", 0.0, 1.0),
        (0, "compute", "backward", "backward 1", 1.0, 3.0),
        (0, "communication", "communication", "bucket 1", 3.0, 6.0, 4000),
        (0, "compute", "wait", "wait for the exchange", 3.0, 6.0),
        (1, "compute", "forward", "forward", 0.0, 1.5),
        (1, "compute", "backward", "backward 1", 1.5, 4.0),
        (1, "communication", "communication", "bucket 1", 4.0, 6.0, 4000),
        (1, "compute", "wait", "wait for the exchange", 4.0, 6.0),
        (0, "communication", "communication", "message", 4.0, 5.0, 4000, 1),
    ],
    2,
    "simulated",
)


def bars(state: dict[str, Any], look: str = "") -> list[dict[str, Any]]:
    columns = state["data"]["bars"]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [bar for bar in rows if look in ("", bar["look"])]


def test_a_state_fills_every_dataset_and_field_of_the_drawing():
    spec, state = drawings.gantt(), gantt_state(TIMELINE)
    assert spec == drawings.gantt()
    assert dataset_names(spec) == set(state["data"]) - {"key"}
    made = {"center", "middle"}  # by the drawing
    assert fields(spec) <= made | {c for columns in state["data"].values() for c in columns}
    assert set(spec["usermeta"]["table"]["bars"]) <= set(state["data"]["bars"])
    figure = gantt(TIMELINE, "Two steps")
    assert "Two steps" in repr(figure) and figure.summary == state["summary"]
    json.dumps(figure.get_state(["data", "signals"]), allow_nan=False)


@given(nodes=st.integers(1, 32), steps=st.integers(1, 2))
@settings(max_examples=25, deadline=None)
def test_slowest_and_fastest_are_shown_and_no_more_than_have_room(nodes, steps):
    timeline = simulate(GOYAL.set({"strategy.nodes": nodes}), steps=steps)
    state, computing = gantt_state(timeline), seconds_computing(timeline)
    words = state["data"]["ranks"]["words"]
    assert len(words) == len(set(words)) <= SHOWN
    assert {f"rank {computing.argmin()}", f"rank {computing.argmax()}"} <= set(words)
    assert (
        dict(zip(words, state["data"]["ranks"]["note"], strict=True))[f"rank {computing.argmax()}"]
        == "slowest"
    )
    assert f"Rank {computing.argmax()} computes longest" in state["summary"]


def test_what_is_drawn_of_a_rank_lasts_as_long_as_it_did():
    rank = 7
    state = gantt_state(TIMELINE, ranks=[rank])
    mine = TIMELINE.select(TIMELINE.rank == rank)
    for look, kind in (("forward",) * 2, ("backward",) * 2, ("update",) * 2):
        seconds = (mine.stop - mine.start)[mine.where("compute", kind)].sum()
        assert sum(bar["seconds"] for bar in bars(state, look)) == pytest.approx(seconds)
    still = sum(bar["seconds"] for bar in bars(state, "idle"))
    assert still == pytest.approx(waits(TIMELINE)[rank])
    talk = mine.where("communication")
    drawn = bars(state, "communication") + bars(state, "waiting for the last rank")
    assert sum(bar["seconds"] for bar in drawn) == pytest.approx(
        (mine.stop - mine.start)[talk].sum()
    )


def test_bars_of_one_lane_do_not_overlap_and_lanes_lie_inside_the_chart():
    lanes: dict[Any, list[Any]] = {}
    for bar in bars(gantt_state(TIMELINE)):
        assert 0 <= bar["top"] < bar["bottom"] <= 1
        lanes.setdefault((bar["top"], bar["bottom"]), []).append((bar["start"], bar["stop"]))
    for spans in lanes.values():
        starts, stops = np.array(sorted(spans)).T
        assert np.all(stops[:-1] <= starts[1:] + 1e-12)
    edges = sorted(lanes)
    assert all(a[1] <= b[0] + 1e-12 for a, b in pairwise(edges))


def test_who_is_waited_for_is_reported_and_drawn():
    state = gantt_state(TWO)
    (missing,) = bars(state, "waiting for the last rank")
    assert (missing["rank"], missing["start"], missing["stop"]) == (0, 3.0, 4.0)
    assert "rank 1 is the last to join, 1 s later" in missing["details"]
    assert [bar["start"] for bar in bars(state, "communication")] == [4.0, 4.0]
    assert "Rank 1 computes longest, 4 s per step; rank 0 needs 3 s." in state["summary"]
    assert "500 ms per step on average" in state["summary"]
    assert "all of it exposed" in state["summary"]
    assert not any("message" in bar["event"] for bar in bars(state))


def test_the_last_to_join_is_that_of_the_same_exchange():
    last = last_to_join(TIMELINE)
    talk = TIMELINE.where("communication")
    assert np.all((last >= 0) == talk)
    for row in np.flatnonzero(talk)[::97]:
        other = last[row]
        assert TIMELINE.name[other] == TIMELINE.name[row]
        assert TIMELINE.start[row] <= TIMELINE.start[other] <= TIMELINE.stop[row]


def test_ranks_that_exchange_each_for_itself_wait_for_nobody():
    rank_by_rank = [
        (rank, stream, kind, name, start + rank, stop + rank)
        for rank in range(2)
        for stream, kind, name, start, stop in (
            ("compute", "forward", "forward", 0.0, 0.5 + rank / 4),
            ("communication", "communication", "to the server", 0.75, 0.9),
        )
    ]
    timeline = from_rows(rank_by_rank, 2, "simulated")
    assert np.all(last_to_join(timeline) == -1)
    assert "none waits for the slowest" in gantt_state(timeline)["summary"]


def test_equal_ranks_a_hidden_exchange_one_rank_and_nothing_at_all_are_reported():
    even = gantt_state(simulate(GOYAL.set({"machine.jitter": 0.0})))
    assert "no rank waits for a slower one" in even["summary"]
    assert set(even["data"]["ranks"]["note"]) == {""}
    alone = simulate(GOYAL.set({"strategy.nodes": 1, "strategy.devices_per_node": 1}))
    assert gantt_state(alone)["summary"].startswith("One rank. No communication")
    share = 1 - exposed(TIMELINE)[seconds_computing(TIMELINE).argmax()] / sum(
        bar["seconds"]
        for bar in bars(gantt_state(TIMELINE, [int(seconds_computing(TIMELINE).argmax())]))
        if bar["look"] in ("communication", "waiting for the last rank")
    )
    assert f"{share:.0%} of it hidden" in gantt_state(TIMELINE)["summary"]
    assert gantt_state(from_rows([], 2, "simulated"))["summary"] == "Nothing happened."


def test_what_is_too_short_to_be_seen_is_drawn_together():
    small = simulate(GOYAL.set({"strategy.bucket": 1e5, "strategy.overlap": False}))
    state = gantt_state(small, ranks=[0, 1])
    assert len(bars(state)) < np.isin(small.rank, [0, 1]).sum()
    assert any(" to " in bar["event"] for bar in bars(state, "communication"))
    total = small.bytes[(small.rank == 0)].sum()
    drawn = gantt_state(small, ranks=[0])
    assert sum(bar["bytes"] or 0 for bar in bars(drawn, "communication")) == total


@pytest.mark.parametrize("ranks", [[256], [-1], [], range(17)])
def test_ranks_that_cannot_be_shown_are_reported(ranks):
    with pytest.raises(SpecError, match="expected 1 to 16 of the ranks 0 to 255"):
        gantt_state(TIMELINE, ranks)


def test_looks_of_one_lane_differ_by_more_than_color():
    def lightness(color: str) -> float:
        return sum(
            w * int(color[i : i + 2], 16) for w, i in zip((0.3, 0.6, 0.1), (1, 3, 5), strict=True)
        )

    for lane in (
        ("forward", "backward", "update", "region", "idle"),
        ("communication", "waiting for the last rank"),
        ("sends", "receives", "collective", "waiting for the last rank"),
        ("region", "input stall", "checkpoint"),
    ):
        looks = [LOOKS[name] for name in lane]
        for i, a in enumerate(looks):
            for b in looks[:i]:
                apart = abs(lightness(a.color) - lightness(b.color))
                assert a.hatched != b.hatched or apart > 30


def test_a_recorded_program_is_drawn_call_by_call_and_region_by_region():
    world = Ranks(3)
    world.compute([1.0, 1.0, 2.0])
    world.message(2, 1, 1000)
    world.together()
    for rank in range(3):
        world.region(rank, "all of it", 0.0)
    world.rows.append((0, "compute", "region", "inner", 0.25, 0.5))
    world.rows.append((0, "host", "region", "launch", 0.25, 0.5))
    state = gantt_state(world.trace())
    own = [(b["event"], b["start"], b["stop"]) for b in bars(state, "region") if b["rank"] == 0]
    end = world.clock[0]
    assert sorted(own) == [
        ("all of it", 0.0, 0.25),
        ("all of it", 0.5, end),
        ("inner", 0.25, 0.5),
        ("launch", 0.25, 0.5),
    ]
    assert [bar["rank"] for bar in bars(state, "sends")] == [2]
    (got,) = bars(state, "receives")
    assert (got["rank"], got["bytes"]) == (1, 1000)
    missing = [bar for bar in bars(state, "waiting for the last rank") if bar["rank"] == 0]
    assert missing and "is the last to join" in missing[0]["details"]
    assert len(bars(state, "collective")) == 3
    assert "Rank 2 computes longest, 2 s;" in state["summary"]
    assert {"sends", "receives", "collective", "region"} <= set(state["data"]["key"]["label"])
    json.dumps(state, allow_nan=False)
