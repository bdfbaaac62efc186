"""The lesson on memory: every control moves something, walls stand where they say, a run reports its outcome."""

from itertools import combinations

import numpy as np
import pytest
from experiment_page import Now, button, result_text
from patience import PATIENCE

from lib_dlhpc.explore.memory_wall import live as memory_wall_live
from lib_dlhpc.explore.memory_wall import ways as memory_wall_ways
from lib_dlhpc.explore.memory_wall.charts import HIGH, KINDS, LABEL, LETTER, WIDE, thinned
from lib_dlhpc.explore.memory_wall.ledger import Setting, fullest, in_time, the_ledger
from lib_dlhpc.explore.memory_wall.live import (
    Outcome,
    calibrated,
    ledger,
    outcome_words,
    result_html,
    train_under_a_cap,
)
from lib_dlhpc.explore.memory_wall.live import Setting as Live
from lib_dlhpc.explore.memory_wall.live import experiment as live_experiment
from lib_dlhpc.explore.memory_wall.outside import RATES, curves, link_wall, needed, seconds
from lib_dlhpc.explore.memory_wall.outside import Setting as Away
from lib_dlhpc.explore.memory_wall.questions import ask
from lib_dlhpc.explore.memory_wall.ways import Setting as Step
from lib_dlhpc.explore.memory_wall.ways import fitting, search_html, ways, ways_view, ways_wall
from lib_dlhpc.labs.fit_the_model.capped_run import CappedRun, available
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.prediction import predict

DONE = CappedRun("", 84e6, 0.2, "0x1p0", "abc")
AWAY = CappedRun("", 20e6, 0.25, "0x1p0", "abc")
OUTCOME = Outcome(CappedRun("no room"), DONE, AWAY, (4e9, 4e9))


def test_nothing_is_said_by_color_alone():
    assert len({shape for _, shape in KINDS.values()}) == len(KINDS)


# the ledger -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["resnet50", "gpt3-175b", "cosmoflow-512"])
def test_the_picture_has_the_peak_of_the_ledger(model):
    setting = Setting(model, 2)
    data, _ = the_ledger.view(setting).charts["memory_course"]
    assert max(data["held"]["bytes"]) == pytest.approx(fullest(setting).total)
    assert data["peak"]["bytes"] == [pytest.approx(fullest(setting).total)]
    assert len(data["held"]["time"]) <= 402


def test_thinning_keeps_the_highest():
    values = np.random.default_rng(0).random(5000)
    kept = thinned(values)
    assert len(kept) <= 400 and values[kept].max() == values.max()
    assert np.all(np.diff(kept) > 0)


def test_words_say_which_part_is_the_larger():
    assert "and the larger term" in the_ledger.view(Setting()).words
    assert "and the smaller term" in the_ledger.view(Setting(batch=1)).words
    assert in_time(Setting()).end > 0
    assert "ZeRO 3" in ask("published").value


# ways -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [Step(), Step("gpt-22b", 64, 64, 80e9), Step(memory=8e9)])
def test_names_of_ways_cover_no_other_name(setting):
    """Of two names at the same height the ends lie apart, on a page of the usual width."""
    data, _ = ways_view(setting).charts["memory_ways"]
    points, (low, high) = data["ways"], data["room"]["x"]
    x = WIDE * np.log(np.array(points["memory"]) / low) / np.log(high / low)
    seconds_ = np.array(points["seconds"])
    y = 0.8 * HIGH * np.log(seconds_.max() / seconds_) / np.log(seconds_.max() / seconds_.min())
    middle = y + points["dy"]
    long = np.array([LETTER * len(name) for name in points["name"]])
    start = np.where(np.array(points["side"]) == "left", x + 10, x - 10 - long)
    for a, b in combinations(range(len(x)), 2):
        if abs(middle[a] - middle[b]) < LABEL - 1e-9:
            assert start[a] + long[a] < start[b] or start[b] + long[b] < start[a], points["name"][b]


def test_in_brackets_is_what_does_not_fit():
    data, _ = ways_view(Step()).charts["memory_ways"]
    bracketed = [label for label in data["ways"]["label"] if label.startswith("(")]
    assert len(bracketed) == len(ways(Step())) - len(fitting(Step()))


def test_where_it_fits_there_is_no_wall_and_where_not_the_largest_term_is_reported():
    assert ways_wall(Step(memory=80e9)) == ""
    assert "The largest term is activations" in ways_wall(Step())
    assert "search" in ways_wall(Step("gpt-22b", 8, 64, 8e9))


def test_all_ways_have_the_same_batch():
    assert {int(each.prediction.experiment.global_batch) for each in ways(Step())} == {64}
    assert {int(each.prediction.experiment.devices) for each in ways(Step())} == {16}


def test_the_search_lists_what_fits_the_fastest_first(monkeypatch):
    monkeypatch.setattr(memory_wall_ways, "PATIENCE", PATIENCE)  # other tests may have all cores
    html = search_html(Step())
    assert html.count("<tr>") == 6
    assert "Nothing fits" in search_html(Step("gpt-22b", 8, 64, 8e9)) or "<tr>" in html


# out of core ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [Away(), Away("vgg16", 32, "all"), Away("resnet50", 256)])
def test_a_wider_way_is_never_slower_and_at_last_costs_nothing(setting):
    found = curves(setting)
    ahead = found["prefetched"][1]
    assert np.all(np.diff(ahead) <= 1e-12)
    assert ahead[-1] == pytest.approx(found["in core"][1][-1], rel=0.02)
    assert np.all(found["page by page"][1] >= ahead - 1e-12)
    wide = setting._replace(link=int(1.01 * needed(setting).required))
    assert needed(wide).exposed == pytest.approx(0, abs=1e-9)
    assert needed(wide._replace(link=int(0.9 * needed(setting).required))).exposed > 0
    assert len(RATES) == len(ahead)


def test_walls_say_what_is_needed_or_that_it_does_not_fit_even_so():
    assert "are needed" in link_wall(Away())
    assert link_wall(Away(link=400_000_000_000)) == ""
    assert "Memory" in link_wall(Away(batch=256))
    assert seconds(Away(), "in core") < seconds(Away(), "recompute")


def test_the_check_asks_for_the_tighter_pass():
    asked = ask("own_bandwidth", seed=1).question
    text = asked.question
    forward, gigabytes = (float(text.split(word)[0].split()[-1]) for word in (" ms, the", " GB of"))
    assert "which is shorter" in asked.answer(f"{gigabytes / forward * 500:.6g}")["words"]
    assert asked.answer(f"{gigabytes / forward * 1e3:.6g}")["right"]


# live -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", memory_wall_live.CAPS)
@pytest.mark.parametrize("batch", [64, 1024])
def test_the_network_is_of_twice_the_cap_and_fits_out_of_core(cap, batch):
    assert 1.85 * cap < ledger(live_experiment(Live(cap, batch))) < 2.35 * cap
    assert ledger(live_experiment(Live(cap, batch), "all")) < 0.6 * cap


def test_a_run_is_reported_with_ledger_prediction_and_simulation_beside_it(monkeypatch):
    monkeypatch.setattr(memory_wall_live, "available", lambda: True)
    asked = []
    page = train_under_a_cap(lambda setting: asked.append(setting) or OUTCOME, Now)
    button(page, "Train").click()
    text = result_text(page)
    assert asked == [Live()] and not button(page, "Train").disabled
    for words in (
        "the system refused it",
        "bitwise identical",
        "1.25 times as long",
        "calibrates",
        "simulated",
        "Why they differ",
        "4 GB/s",
    ):
        assert words in text


def test_who_is_refused_out_of_core_as_well_is_reported():
    both = OUTCOME._replace(outside=CappedRun("no room"))
    assert "the rest is larger" in outcome_words(Live(what="activations"), both)
    assert result_html(Live(what="activations"), both).count("refused") == 2
    other = OUTCOME._replace(outside=CappedRun("", 20e6, 0.2, "0x1p0", "abd"))
    assert "not the same" in outcome_words(Live(), other)


def test_the_run_in_core_calibrates_and_a_slow_disk_is_predicted_to_be_exposed():
    assert float(predict(calibrated(Live(), OUTCOME)).step_time) == pytest.approx(0.2)
    slow = OUTCOME._replace(disk=(50e6, 50e6))
    late = float(predict(calibrated(Live(), slow, "all")).step_time)
    assert late > 0.4


def test_a_failure_is_shown_and_the_button_is_back(monkeypatch):
    monkeypatch.setattr(memory_wall_live, "available", lambda: True)

    def fails(setting: Live) -> Outcome:
        raise LabError("The run did not end in 90 s; the machine is busy.")

    page = train_under_a_cap(fails, Now)
    button(page, "Train").click()
    assert "the machine is busy" in result_text(page) and not button(page, "Train").disabled


def test_another_system_is_reported_before(monkeypatch):
    monkeypatch.setattr(memory_wall_live, "available", lambda: False)
    page = train_under_a_cap(lambda setting: OUTCOME, Now)
    assert "Linux does" in result_text(page) and button(page, "Train").disabled


@pytest.mark.skipif(not available(), reason="this system does not tell a peak")
def test_for_real_it_is_refused_in_core_and_trains_below_the_cap_out_of_core():
    outcome = memory_wall_live.run(Live(30e6, 256))
    assert outcome.refused.refused and not outcome.outside.refused
    assert outcome.outside.peak < 30e6 < outcome.inside.peak
    assert (
        outcome.outside.weights == outcome.inside.weights
        and outcome.outside.loss == outcome.inside.loss
    )
    assert min(outcome.disk) > 1e6
