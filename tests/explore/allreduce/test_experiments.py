"""The allreduce lesson: winners win, pictures show what the schedule does, mistakes are reported in words."""

import json
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from experiment_page import Now, click, words
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.costs.network import flat
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.allreduce import measured as here
from lib_dlhpc.explore.allreduce.charts import LINES
from lib_dlhpc.explore.allreduce.messages import messages_chart
from lib_dlhpc.explore.allreduce.nodes import TWO_LEVELS, Nodes, buffers_out, nodes_and_nics
from lib_dlhpc.explore.allreduce.panel import result_words, run_here
from lib_dlhpc.explore.allreduce.rounds import Chunks, Example
from lib_dlhpc.explore.allreduce.sizes import (
    BANDWIDTHS,
    FLAT,
    LATENCIES,
    RANKS,
    REDUCTIONS,
    Flat,
    crossover,
    fastest_first,
    message_sizes,
    winners,
)
from lib_dlhpc.explore.allreduce.try_out import try_out
from lib_dlhpc.launch.mpi import run_to_end
from lib_dlhpc.prediction.communication.collectives import ALGORITHMS
from lib_dlhpc.schedules import COLLECTIVES, schedule

flats = st.builds(
    Flat,
    st.sampled_from(RANKS),
    st.sampled_from(LATENCIES),
    st.sampled_from(BANDWIDTHS),
    st.sampled_from(REDUCTIONS),
    st.floats(1, 1e9),
)
ROWS = [
    {"algorithm": name, "size": 4e3, "low": 1e-5, "median": 2e-5, "high": 9e-5, "price": price}
    for name, price in (("ring", 1e-5), ("rabenseifner", 2e-5), ("MPI_Allreduce", None))
]
CLUSTER = Nodes(32, 8, 1, 12.5e9, 150e9, 64e6)
RING = Example("ring", 4, 8).plan


def test_no_two_lines_look_alike_without_color():
    assert len({json.dumps(dash) for _, dash, _ in LINES.values()}) == len(LINES)
    assert len({LINES[name][2] for name in FLAT}) == len(FLAT)


@given(flats, st.sampled_from([FLAT, ("ring", "binomial"), ("recursive_doubling", "ring")]))
def test_the_winner_of_an_interval_is_the_fastest_in_it(setting, names):
    found = winners(setting.network, names)
    assert found[0].start == 0 and found[-1].stop == np.inf
    assert all(a.stop == b.start for a, b in pairwise(found))
    for interval in found:
        size = np.sqrt(max(interval.start, 1e-3) * min(interval.stop, 1e12))
        times = {
            name: float(cost.total)
            for name, cost in fastest_first(size, setting.network, names).items()
        }
        assert times[interval.algorithm] <= min(times.values()) * (1 + 1e-9)


@given(flats)
def test_the_words_name_the_fastest_and_the_wall_stands_where_latency_rules(setting):
    costs = [ALGORITHMS[name](setting.size, setting.network) for name in FLAT]
    best = min(costs, key=lambda cost: float(cost.total))
    view = message_sizes.view(setting)
    assert f"{float(best.latency / best.total):.0%} of that is latency" in view.words
    assert bool(view.wall) == bool(best.latency >= 0.9 * best.total)


@given(st.sampled_from([4, 16, 64, 512]), st.sampled_from(LATENCIES), st.sampled_from(BANDWIDTHS))
def test_the_crossover_of_the_text_is_where_the_times_are_equal(ranks, latency, bandwidth):
    size = crossover(ranks, latency, bandwidth, 1e10)
    net = flat(ranks, latency, 1 / bandwidth, 1e-10)
    doubling, other = (
        float(ALGORITHMS[n](size, net).total) for n in ("recursive_doubling", "rabenseifner")
    )
    assert doubling == pytest.approx(other)
    assert winners(net, ("recursive_doubling", "rabenseifner"))[1].start == pytest.approx(size)


@pytest.mark.parametrize("name", TWO_LEVELS)
def test_alone_on_its_node_a_device_sends_what_the_formula_moves(name):
    """One device a node: bandwidth time x rate is what the busiest port moved in either direction."""
    moved = float(ALGORITHMS[name](1.0, flat(16, 0.0, 1.0)).bandwidth)
    assert buffers_out(name, 16, 1) <= moved * (1 + 1e-12)
    if name in ("ring", "rabenseifner", "recursive_doubling", "torus_2d"):
        assert buffers_out(name, 16, 1) == pytest.approx(moved)


def test_only_those_that_flood_the_nics_meet_the_wall():
    assert buffers_out("recursive_doubling", 32, 8) == 8 * np.log2(32)
    assert "recursive doubling" in nodes_and_nics.view(CLUSTER).wall
    assert nodes_and_nics.view(CLUSTER._replace(devices=1, nodes=4)).wall == ""
    times = nodes_and_nics.view(CLUSTER).charts["nics"][0]["sums"]["stop"]
    assert times == sorted(times)


@pytest.mark.parametrize("name", COLLECTIVES["allreduce"])
@pytest.mark.parametrize(("ranks", "elements"), [(2, 1), (5, 8), (8, 8), (16, 32)])
def test_the_animation_ends_with_every_contribution_once(name, ranks, elements):
    story = Chunks()
    story.show(Example(name, ranks, elements).plan)
    assert len(story.held) == len(story.words) == len(story.moves) + 1
    assert all(code == 2**ranks - 1 for row in story.held[-1] for code in row)
    for number, moves in enumerate(story.moves):
        for source, target, first, last, reduce in moves:
            before, after = story.held[number], story.held[number + 1]
            for block in range(first, last):
                mine, given_ = before[target][block], before[source][block]
                assert after[target][block] & given_ == given_
                assert reduce or after[target][block] == given_ or mine == given_


def test_every_message_is_a_line_from_its_rank_and_round_to_the_next():
    data, summary = messages_chart(RING, 2)
    arrows, rounds = data["arrows"], list(RING)
    assert len(arrows["from"]) == sum(map(len, rounds))
    assert {b - a for a, b in zip(arrows["from"], arrows["to"], strict=True)} == {1}
    assert [k for k, now in zip(arrows["to"], arrows["now"], strict=True) if now] == [2] * 4
    assert "6 rounds" in summary and "12 messages that are combined" in summary


def test_a_picture_that_is_too_large_is_refused_with_its_limits():
    with pytest.raises(SpecError, match="at most 16 ranks"):
        messages_chart(schedule("ring", 17, 17))


def wrong(ranks: int, elements: int) -> Any:
    for step in range(1, ranks):
        yield [(r, (r + step) % ranks, 0, elements, "reduce") for r in range(ranks)]


def right(ranks: int, elements: int) -> Any:
    distance = 1
    while distance < ranks:
        yield [(r, r ^ distance, 0, elements, "reduce") for r in range(ranks)]
        distance *= 2


def test_a_wrong_algorithm_is_explained_and_shown_where_it_goes_wrong():
    box = try_out(wrong)
    assert "Not an allreduce yet" in words(box) and "twice" in words(box)
    (chunks,) = (part for part in box.children if hasattr(part, "held"))
    assert chunks.round == 3
    assert (
        min(code for row in chunks.held[3] for code in row)
        < 0
        <= min(code for row in chunks.held[1] for code in row)
    )


def test_a_right_algorithm_is_proved_and_priced_beside_a_ring():
    text = words(try_out(right))
    assert "Proved: allreduce in 2 rounds" in text and "(ring" in text


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (lambda ranks, elements: [[(0, 9, 0, elements, "reduce")]], "out of range"),
        (lambda ranks, elements: [[(0, 1, 0, elements / 2, "reduce")]], "use // instead of /"),
        (lambda ranks, elements: None, "must yield rounds"),
        (lambda ranks, elements: iter([1 / 0]), "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_drawn_is_reported_in_words(algorithm, message):
    assert message in words(try_out(algorithm))


def test_markup_in_a_message_stays_text():
    text = words(try_out(lambda ranks, elements: [[(0, 1, 0, elements, "<img>")]]))
    assert "&lt;img&gt;" in text and "<img>" not in text


SHORTEST = """
from lib_dlhpc.explore.allreduce import measured as here
here.SIZES = here.SIZES[:2]
here.be_a_rank(here._sizes)
"""


def test_four_ranks_measure_both_algorithms_and_the_library():
    """For the two shortest messages: the page's own test has all."""
    pytest.importorskip("mpi4py")
    result = here.measure(lambda n, *_, **rest: run_to_end(n, "-c", SHORTEST, **rest))
    assert result["ranks"] == 4 and len(result["rows"]) == 3 * 2
    for row in result["rows"]:
        assert 0 < row["low"] <= row["median"] <= row["high"]
        assert (row["price"] is None) == (row["algorithm"] == here.LIBRARY)
    assert "Predicted" in result_words(result)


def test_a_missing_mpi_is_explained(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(here.MpiMissing, match=r"no mpiexec .*pip install 'lib-dlhpc\[run\]'"):
        here.measure()


@pytest.mark.parametrize("fails", [False, True])
def test_the_button_comes_back_and_says_what_was_measured_or_why_not(fails):
    def measured(**_: Any) -> dict[str, Any]:
        if fails:
            raise here.MpiMissing("There is no mpiexec.")
        return {"ranks": 4, "alpha": 1e-6, "beta": 1e-9, "gamma": 0.0, "rows": ROWS}

    box = run_here(measured, Now)
    assert not click(box, "Run on 4 MPI ranks").disabled
    assert ("no mpiexec" in words(box)) == fails and ("0.5 to 1 times" in words(box)) != fails


def test_a_run_ends_as_soon_as_it_is_cancelled():
    pytest.importorskip("mpi4py")

    def measured(run: Any) -> Any:
        click(box, "Cancel")
        return run(2, "-c", "import time; time.sleep(60)", patience=60.0)

    box = run_here(measured, Now)
    assert not click(box, "Run on 4 MPI ranks").disabled
    assert "Cancelled." in words(box)
