"""The lesson on traces: charts without gaps, puzzles that the analysis solves, runs that leave nothing behind."""

import json
import re

import numpy as np
import pytest
from experiment_page import click, controls, result_text

from lib_dlhpc.explore.traces import puzzle as traces_puzzle
from lib_dlhpc.explore.traces import waits as traces
from lib_dlhpc.explore.traces.charts import LOOKS, bars_of, rank_parts, trace_state
from lib_dlhpc.explore.traces.panel import TracePanel
from lib_dlhpc.explore.traces.puzzle import (
    PROBLEMS,
    PUZZLES,
    feedback,
    find_it,
    is_right,
    puzzle,
    say,
    the_finding,
)
from lib_dlhpc.explore.traces.questions import ask
from lib_dlhpc.explore.traces.waits import IN_TURN, NOBODY, Setting, analyzed, trace
from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.analysis import analyze

SETTINGS = [Setting(), Setting(how="sends late"), Setting(how="reads slowly"), Setting(IN_TURN)]


def test_nothing_is_said_by_color_alone():
    colors = [look[0] for look in LOOKS.values()]
    assert len({look[1:] for look in LOOKS.values()}) == len(LOOKS)
    assert len(set(colors)) == len(colors)
    waits = {what for what, look in LOOKS.items() if look[2]}
    assert waits == {what for what in LOOKS if what.startswith("waits")}


# a trace as a chart ---------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_bars_of_a_rank_follow_each_other_without_a_gap(setting):
    timeline = trace(setting)
    bars = bars_of(timeline)
    for rank in range(timeline.ranks):
        own = [bar for bar in bars if bar.rank == rank]
        assert own[0].start == timeline.start.min()
        np.testing.assert_allclose([b.start for b in own[1:]], [b.stop for b in own[:-1]])
        assert own[-1].stop == pytest.approx(timeline.stop[timeline.rank == rank].max())


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_hatched_bars_are_as_long_as_the_analysis_says_that_ranks_wait(setting):
    timeline, parts = trace(setting), rank_parts(analyzed(setting))
    for what, seconds in parts.items():
        drawn = np.zeros(timeline.ranks)
        for bar in bars_of(timeline):
            drawn[bar.rank] += (bar.stop - bar.start) * (bar.what == what)
        np.testing.assert_allclose(drawn, seconds, atol=1e-3)


def test_the_caption_of_a_trace_adds_up_and_gives_no_rank_away():
    said = trace_state(trace(Setting()))[1]
    assert sum(map(int, re.findall(r"(\d+)%", said))) == pytest.approx(100, abs=3)
    assert "rank 2" not in said


def test_a_window_shows_what_lies_in_it_and_no_more():
    data, _ = trace_state(trace(Setting()), window=(0.1, 0.2))
    bars = data["bars"]
    assert min(bars["start"]) >= 0.1 and max(bars["stop"]) <= 0.2
    assert len(bars["start"]) < len(trace_state(trace(Setting()))[0]["bars"]["start"]) / 2


def test_a_click_on_a_finding_marks_its_place_and_another_shows_all_again():
    panel = TracePanel()
    found = panel.show(trace(Setting())).findings
    whole = panel.trace.data["room"]["x"]
    panel.buttons.children[1].click()
    mark, (low, high) = panel.trace.data["mark"], panel.trace.data["room"]["x"]
    assert 0 <= low <= mark["x"][0] <= mark["x2"][0] <= high and high - low < whole[1] / 2
    assert f"rank {found[0].rank}" in panel.trace.summary
    assert found[0].sentence.split(",")[0] in panel.said.value
    panel.buttons.children[0].click()
    assert panel.trace.data["room"]["x"] == whole and panel.trace.data["mark"]["x"] == []


def test_walls_say_what_no_network_helps_against_and_where_it_would():
    assert "No network is fast enough" in traces.network_wall(Setting(), analyzed(Setting()))
    slow = Setting(NOBODY, size=4e6, network=1e9)
    assert "The network is the bottleneck" in traces.network_wall(slow, analyzed(slow))
    assert traces.network_wall(Setting(NOBODY), analyzed(Setting(NOBODY))) == ""


def test_who_is_late_in_turn_is_as_late_as_the_others_and_nobody_is_blamed():
    found = analyzed(Setting(IN_TURN))
    assert found.imbalance < 0.01 and not found.findings
    assert found.efficiency.parallel < 0.75


def test_names_from_a_trace_are_shown_as_text():
    bad = "<img src=x>"
    rows = [
        (r, "communication", "collective", bad, 0.1 * (2 - r), 0.3, 8, -1, 0, 1) for r in (0, 1)
    ]
    rows += [(r, "communication", "collective", bad, 0.4, 0.5, 8, -1, 0, 2) for r in (0, 1)]
    panel = TracePanel()
    panel.show(from_rows(rows, 2, "measured"))
    for one in panel.buttons.children[1:]:
        one.click()
        assert bad not in panel.said.value
    assert bad not in panel.verdict.value + panel.more.value


def test_the_check_asks_for_the_mean_over_the_most():
    card = ask("load_balance", seed=3)
    usual, most = map(float, re.findall(r"for (\d+) s", card.question.question))
    assert "busiest" in card.question.answer(f"{100 * usual / most:.5g}%")["words"]
    assert card.question.answer(f"{100 * (3 * usual + most) / 4 / most:.5g}%")["right"]


# the puzzle -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", PUZZLES)
def test_the_analysis_solves_every_puzzle(number):
    planted = puzzle(number)
    found = the_finding(planted)
    assert found is not None and is_right(planted, planted.problem, found.rank)


def test_puzzles_are_all_troubles_equally_often_and_not_in_one_order():
    kinds = [puzzle(number).problem for number in PUZZLES]
    assert {kinds.count(trouble) for trouble in PROBLEMS} == {len(PUZZLES) // len(PROBLEMS)}
    assert kinds[:4] != kinds[4:8]
    assert len({puzzle(number).rank for number in PUZZLES}) == traces.RANKS


def test_every_wrong_trouble_has_its_own_answer():
    assert set(say.mistakes) == set(PROBLEMS)
    assert all(set(say.mistakes[each]) == set(PROBLEMS) - {each} for each in PROBLEMS)
    planted = puzzle(1)
    wrong = next(t for t in PROBLEMS if t != planted.problem)
    assert say.mistakes[planted.problem][wrong] in feedback(planted, wrong, planted.rank)


def test_who_names_the_rank_that_waits_longest_is_asked_for_whom_it_waits():
    planted = next(p for p in map(puzzle, PUZZLES) if p.problem == "computes longer")
    longest = int(np.argmax(sum(analyzed(planted.setting).waits.values())))
    assert "For whom does it wait?" in feedback(planted, planted.problem, longest)


def test_a_right_answer_opens_the_analysis_and_marks_the_place_and_a_wrong_one_does_not():
    page = find_it()
    knobs, planted = controls(page), puzzle(1)
    assert "choose" in knobs["Problem"].options[0] and "Efficiencies" not in result_text(page)
    click(page, "Answer")
    assert "Choose a problem first" in result_text(page)
    knobs["Problem"].value = next(t for t in PROBLEMS if t != planted.problem)
    knobs["Rank"].value = planted.rank
    click(page, "Answer")
    assert "Not that." in result_text(page) and "Efficiencies" not in result_text(page)
    knobs["Problem"].value = planted.problem
    click(page, "Answer")
    assert (
        "✓ Yes." in result_text(page)
        and "Efficiencies" in result_text(page)
        and "Marked:" in result_text(page)
    )
    assert "0 of 1 found" in result_text(page)  # the second answer
    knobs["Puzzle"].value = 2
    assert "Efficiencies" not in result_text(page)
    knobs["Problem"].value, knobs["Rank"].value = puzzle(2).problem, puzzle(2).rank
    click(page, "Answer")
    assert "1 of 2 found" in result_text(page)
    knobs["Puzzle"].value = 3
    click(page, "Show me")
    assert f"It was: {puzzle(3).problem}" in result_text(page) and "1 of 3 found" in result_text(
        page
    )


def test_what_a_puzzle_shows_is_what_the_analysis_is_of():
    setting = traces_puzzle.puzzle(1).setting
    assert analyze(trace(setting)).span == analyzed(setting).span
    json.dumps(trace_state(trace(setting))[0], allow_nan=False)
