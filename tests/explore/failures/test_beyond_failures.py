"""Spares and silent errors on the page: the best is where its line is, walls name causes, a check finds an error."""

from dataclasses import replace

import numpy as np
import pytest

from lib_dlhpc.explore.failures import silent
from lib_dlhpc.explore.failures.interval import GPUS
from lib_dlhpc.explore.failures.silent import AT as EVERY_CHECK
from lib_dlhpc.explore.failures.silent import EVERY, checks_wall, found_view
from lib_dlhpc.explore.failures.silent import Setting as Checking
from lib_dlhpc.explore.failures.silent import found as checked
from lib_dlhpc.explore.failures.spares import (
    ELASTIC,
    WAIT,
    best_spares,
    goodput_of,
    in_repair_of,
    spares_view,
    spares_wall,
)
from lib_dlhpc.explore.failures.spares import Setting as Spared
from lib_dlhpc.simulation import Phase
from lib_dlhpc.spec.units import DAY


def test_a_wall_says_that_spares_are_missing():
    assert "waits 16.1% of the time" in spares_wall(Spared())
    assert spares_wall(Spared(spares=16)) == ""


def test_the_best_number_of_spares_is_where_its_line_is_highest():
    data, _ = spares_view(Spared())
    lines = zip(*(data["lines"][column] for column in ("line", "x", "y")), strict=True)
    waits = {x: y for line, x, y in lines if line == WAIT}
    assert max(waits, key=lambda x: waits[x]) == pytest.approx(best_spares(Spared(), WAIT), abs=1)


@pytest.mark.parametrize("way", [WAIT, ELASTIC])
@pytest.mark.parametrize(
    "setting",
    [
        Spared(2048, 30 * DAY, 7 * DAY, replica=64),  # more spares than a replica has nodes
        Spared(2048, 90 * DAY, 7 * DAY, replica=4),
        Spared(65536, 90 * DAY, DAY, replica=16),
        Spared(),
    ],
)
def test_no_other_number_of_spares_has_a_higher_goodput(setting, way):
    best = best_spares(setting, way)
    others = range(0, int(2 * in_repair_of(setting)) + 30, 3)
    most = max(goodput_of(setting._replace(spares=n), way) for n in others)
    assert goodput_of(setting._replace(spares=best), way) >= most


def test_what_is_lost_with_checks_is_the_sum_of_its_causes_and_least_at_the_best():
    own = checked(Checking())
    lost = own.lost(EVERY_CHECK)
    parts = [share for cause, share in lost.items() if cause != "all losses"]
    np.testing.assert_allclose(sum(parts), lost["all losses"])
    assert (np.array(parts) > 0).all()
    assert 1 - own.goodput(own.best) <= lost["all losses"].min()
    np.testing.assert_allclose(own.lost(own.best)["all losses"], 1 - own.goodput(own.best))


def test_an_error_is_found_by_the_next_check():
    data, summary = found_view(Checking(every=6 * 3600.0))
    assert len(data["errors"]["x"]) == 1
    kinds = list(zip(data["bars"]["kind"], data["bars"]["start"], strict=True))
    found = next(start for kind, start in kinds if kind == "check")
    assert data["errors"]["x"][0] < found and "check" in summary
    after = [kind for kind, start in kinds if start > found]
    assert after[:2] == ["restart", "repeated work"]


@pytest.mark.parametrize("gpus", GPUS)
def test_a_silent_error_is_drawn_in_training_that_no_failure_takes_away(gpus):
    for every in EVERY[::2]:
        data, _ = found_view(Checking(gpus, every=every))
        kinds = list(zip(data["bars"]["kind"], data["bars"]["start"], strict=True))
        if not any(kind == "checkpoint" for kind, _ in kinds):
            continue  # no headway
        (error,) = data["errors"]["x"]
        checks = [at for at, (kind, start) in enumerate(kinds) if kind == "check" and start > error]
        for at in checks[:1]:
            after = [kind for kind, _ in kinds[at + 1 :] if kind != "check"]  # cut off by failures
            assert not after or after[0] == "restart"


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("gpus", [2048, 16384])
def test_what_is_drawn_reaches_the_check_that_finds_the_error(gpus, every):
    data, words = found_view(Checking(gpus, every=every))
    bars = data["bars"]
    kinds = list(zip(bars["kind"], bars["start"], bars["stop"], strict=True))
    (error,) = data["errors"]["x"]
    check = next(
        at for at, (kind, start, _) in enumerate(kinds) if (kind, start > error) == ("check", True)
    )
    assert [kind for kind, *_ in kinds[check + 1 : check + 3]] == ["restart", "repeated work"]
    span = data["room"]["x"][1]
    assert len(kinds) < 300 and kinds[check][1] < 0.9 * span  # what follows is there to be seen
    assert ("are not drawn" in words) == (every > silent.DAY)


def test_short_interruptions_are_joined_and_checks_are_not():
    names = ["training", "checkpoint", "training", "check", "restart", "repeated work", "wait"]
    phases = [Phase(name, 10.0 * k, 10.0 * k + 10, 0.0) for k, name in enumerate(names)]
    phases[1] = phases[1]._replace(stop=11.0)
    joined = [(p.kind, p.start, p.stop) for p in silent.merged(phases, 2.0)]
    assert joined == [
        ("training", 0.0, 30.0),
        ("check", 30.0, 40.0),
        ("restart", 40.0, 50.0),
        ("repeated work", 50.0, 60.0),
    ]


def test_an_error_stays_for_half_an_interval_unless_errors_are_frequent():
    own = checked(Checking(every=3600.0))
    assert own.unseen == pytest.approx(1800.0, rel=0.001)
    often = own._replace(checks=replace(own.checks, mtbf=3600.0))
    strikes = np.random.default_rng(1).exponential(3600.0, 400_000)
    assert often.unseen == pytest.approx((3600 - strikes[strikes < 3600]).mean(), rel=0.01)


def test_walls_of_checks_name_the_cause():
    assert checks_wall(Checking()) == ""
    assert "Check more often" in checks_wall(Checking(every=16 * DAY))
    assert "Check less often" in checks_wall(Checking(every=1200.0, takes=3600.0))
    assert "no check helps" in checks_wall(Checking(131072, mtbf=30 * DAY, every=3600.0))


def test_checked_runs_are_simulated_beside_the_formula(monkeypatch):
    monkeypatch.setattr(silent, "RUNS", 20)
    monkeypatch.setattr(silent, "FACTORS", (4.0,))
    ((every, mean, low, high, predicted),) = silent.simulated_points(Checking(takes=60.0))
    assert every % silent.INTERVAL == 0 and low < mean < high and 0 < predicted < 1
