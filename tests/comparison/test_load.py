"""Load by competing processes is excluded from a step, widens its band, or prevents a verdict.

The runs in tests/data/compare_under_load.json were recorded on 2 cores beside 1 to 12 other processes: s of each step,
s that each rank waited for a core in it, slowdown factors before and after.
"""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.cli import main
from lib_dlhpc.comparison.comparison import beside, estimated
from lib_dlhpc.comparison.load import (
    AGREE,
    APART,
    SHARE,
    Load,
    load_of,
    slowdown_of,
    spread_of,
    too_busy,
)
from lib_dlhpc.comparison.placed import placed
from lib_dlhpc.comparison.steady import LEAST, Steps, steady, steps_of
from lib_dlhpc.comparison.sweep import Row, Sweep
from lib_dlhpc.comparison.verdict import verdict
from lib_dlhpc.prediction.measured.bands import widened
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import dump
from lib_dlhpc.timeline import from_rows

RECORDED = json.loads(
    (Path(__file__).parents[1] / "data" / "compare_under_load.json").read_text("utf-8")
)
FACTORS = st.floats(0.2, 5.0)
SLOWDOWNS = st.tuples(FACTORS, FACTORS)


def steps(run):
    """Return a recorded run as steps of one kind."""
    rows = [
        (rank, "compute", "update", "update", stop - seconds, stop)
        for rank in range(run["ranks"])
        for seconds, stop in zip(run["seconds"], np.cumsum(run["seconds"]), strict=True)
    ]
    timeline = from_rows(rows, run["ranks"], "measured")
    found = steps_of(timeline, 1, run["epoch"], run["core_wait"])
    return replace(found, slowdowns=tuple(tuple(each) for each in run["paces"]), asked=True)


def no_verdict(run):
    found = steady([run])
    return too_busy(load_of([run], found, 1.0), found.low, found.high, found.steps)


# --- core waits ---


@pytest.mark.parametrize("name", ["digits", "large", "words"])
def test_a_single_rank_s_step_is_the_same_under_any_load(name):
    runs = [run for run in RECORDED if run["name"] == name and run["ranks"] == 1]
    as_measured = [np.median(run["seconds"]) for run in runs]
    found = [steady([steps(run)]).step for run in runs]
    assert len(runs) == 3 and not any(no_verdict(steps(run)) for run in runs)
    assert max(found) / min(found) < 1.25
    if name != "digits":  # shorter than a time slice: half of its steps have the core for all of it
        assert max(as_measured) / min(as_measured) > 1.8


def test_of_several_ranks_only_undisturbed_steps_are_compared():
    for run in (steps(run) for run in RECORDED if run["ranks"] == 2):
        enough = run.undisturbed.sum() >= LEAST
        assert bool(no_verdict(run)) is not bool(enough)
        if enough:
            assert steady([run]).high <= run.seconds[run.undisturbed].max()


def test_recorded_runs_on_two_ranks_are_of_both_kinds():
    several = [bool(no_verdict(steps(run))) for run in RECORDED if run["ranks"] == 2]
    assert True in several and False in several


def test_terms_of_a_single_rank_s_step_sum_without_its_core_waits():
    rows = []
    for step in range(12):
        rows.append((0, "compute", "forward", "forward", 4.0 * step, 4.0 * step + 3))
        rows.append((0, "compute", "update", "update", 4.0 * step + 3, 4.0 * step + 4))
    of = steps_of(from_rows(rows, 1, "measured"), core_wait=[[1.0] * 12])
    found = steady([of])
    assert found.step == pytest.approx(3.0) == sum(found.terms.values())
    assert found.terms["forward"] == pytest.approx(2.25)
    assert of.without_core == pytest.approx(0.25)


@pytest.mark.parametrize("core_wait", [(), [[0.1] * 3], [[0.1] * 9, [0.1] * 9]])
def test_core_waits_count_only_where_each_step_of_each_rank_has_one(core_wait):
    rows = [(0, "compute", "update", "update", float(at), at + 1.0) for at in range(9)]
    found = steps_of(from_rows(rows, 1, "measured"), core_wait=core_wait)
    assert found.core_wait is None and found.undisturbed.all() and found.without_core == 0
    assert found.seconds == pytest.approx(np.ones(9))


# --- slowdown factors ---


def of(*slowdowns):
    nothing = np.empty(0)
    return [Steps(nothing, {}, slowdowns=tuple(each)) for each in slowdowns]


def test_factors_are_the_geometric_mean_of_before_and_after():
    assert slowdown_of(of([(1.0, 4.0), (4.0, 1.0)])) == pytest.approx((2.0, 2.0))
    assert slowdown_of(of([], [])) is None


@given(SLOWDOWNS, SLOWDOWNS)
def test_they_may_be_off_by_half_of_what_lies_between_and_by_a_little_if_nothing_does(a, b):
    found = spread_of(of([a, b]))
    for spread, before, after in zip(found, a, b, strict=True):
        assert spread >= max(AGREE, math.sqrt(max(before, after) / min(before, after))) * (1 - 1e-9)
    assert spread_of(of([b, a])) == pytest.approx(found)
    assert spread_of(of([a, a])) == pytest.approx((AGREE, AGREE))


@given(SLOWDOWNS, SLOWDOWNS, st.integers(1, 6))
def test_several_runs_know_them_better(a, b, runs):
    many = spread_of(of(*[[a, b]] * runs))
    assert [math.log(each) ** 2 * runs for each in many] == pytest.approx(
        [math.log(each) ** 2 for each in spread_of(of([a, b]))]
    )


BAND = st.tuples(st.floats(1.01, 3.0), st.floats(1.01, 3.0), FACTORS, FACTORS)


@given(BAND)
def test_a_widened_band_holds_the_old_one_and_both_edges(drawn):
    down, up, quick, slow = drawn
    quick, slow = min(quick, 1.0), max(slow, 1.0)
    ((low, high),) = widened(
        {"a": (1 / down, up)}, {"a": 1.0}, [{"a": quick}, {"a": slow}]
    ).values()
    assert low <= min(1 / down, quick) * (1 + 1e-9) and high >= max(up, slow) * (1 - 1e-9)
    assert low >= quick / down * (1 - 1e-9) and high <= slow * up * (1 + 1e-9)


def test_what_is_nothing_in_all_of_them_stays_so():
    assert widened({"a": (0.0, 0.0)}, {"a": 0.0}, [{"a": 0.0}]) == {"a": (0.0, 0.0)}


# --- the decision ---

IDLE = Load(core_wait=0.01, slowdowns=((1.0, 1.0), (1.1, 1.0)), asked=True, apart=1.25)


def test_a_run_on_an_idle_machine_gets_a_verdict():
    assert not too_busy(IDLE, 1.0, 5.0, 20)
    assert not too_busy(Load(), 1.0, 1.2, 20)


@pytest.mark.parametrize(
    ("load", "why"),
    [
        ({"enough": False, "left_out": 57, "core_wait": 0.6}, "had no core for 60% of the time"),
        ({"enough": False, "left_out": 57}, "only 3 of 60 steps went undisturbed"),
        ({"core_wait": SHARE + 0.01}, "had no core"),
        ({"slowdowns": ()}, "slowdown of the machine could not be measured"),
        ({"apart": APART + 0.1}, "differs by a factor of 1.9"),
        ({"core_wait": None}, r"from 1 s to 5 s \(p10 to p90\)"),
    ],
)
def test_one_on_a_busy_machine_gets_a_sentence_why_not(load, why):
    found = too_busy(replace(IDLE, **load), 1.0, 5.0, 60)
    assert re.search(why, found) and found.endswith("rerun when it is idle.")


def test_steps_of_asynchronous_updates_need_not_be_alike():
    unknown = replace(IDLE, core_wait=None)
    assert too_busy(unknown, 1.0, 5.0, 60) and not too_busy(unknown, 1.0, 5.0, 60, alike=False)


def busy(experiment, machine=None):
    """Return a comparison of two ranks that had no core half of the time."""
    two = experiment.set({"strategy.devices_per_node": 2})
    expected = estimated(placed(two, machine=machine))
    found = steps_of(simulate(expected.placed.experiment, steps=12))
    return beside(expected, [replace(found, core_wait=0.5 * np.ones((2, 1)) * found.seconds)])


def test_without_a_verdict_nothing_is_judged(digits, calibrated):
    found = busy(digits, calibrated)
    assert found.inside() is None and found.load.core_wait == pytest.approx(0.5)
    assert found.verdict[0] == f"No verdict: {found.no_verdict}"
    slower = replace(found, slowdown=(1.5, 2.0))
    assert "compute was 1.50 times and each call 2.00 times as slow" in verdict(slower)[1]
    table = found.as_dict()
    assert table["judged"] is False and table["no_verdict"] == found.no_verdict
    swept = Sweep({"a": [1]}, (Row({"a": 1}, found),))
    assert not swept.judged and "No verdict on any setting" in swept.as_text()


def test_the_exit_status_shows_a_missing_verdict(digits, tmp_path, monkeypatch, capsys):
    file, found = tmp_path / "digits.toml", busy(digits)
    dump(digits, file)
    statuses = {}
    quiet = replace(found, load=Load(core_wait=0.0), verdict=())
    for judged, result in ((False, found), (True, quiet)):
        monkeypatch.setattr("lib_dlhpc.comparison.compare", lambda *given, result=result: result)
        statuses[judged] = main(["compare", str(file)])
        assert ("No verdict" in capsys.readouterr().out) is not judged
    assert statuses == {False: 3, True: 0}


def test_bands_widen_with_what_the_factors_differ_by(digits, calibrated):
    expected = estimated(placed(digits, machine=calibrated))
    plain = steps_of(simulate(expected.placed.experiment, steps=12))
    widths = []
    for after in (1.0, 1.2, 1.5):
        slowdowns = ((1 / after, 1 / after), (after, after))
        found = beside(expected, [replace(plain, slowdowns=slowdowns, asked=True)])
        low, high = found.bands["predicted"]["one step"]
        widths.append(high / low)
        assert found.step["predicted"] == pytest.approx(expected.step["predicted"])
        json.dumps(found.as_dict())
    assert all(a < b for a, b in pairwise(widths))
