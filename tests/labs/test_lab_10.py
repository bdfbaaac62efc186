"""Lab 10: the starter fails with a reason, the solution passes, and each mistake is named."""

import inspect
import random

import numpy as np
import pytest
from lab_answers import found, run_cell

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.findings import as_text, passed
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.race_the_planner import race
from lib_dlhpc.labs.race_the_planner.estimate_laws import VALUE, correlation, estimate_findings
from lib_dlhpc.labs.race_the_planner.laws import HALF, KEEPS, LEGAL, SHOWN, TARGET, planner_findings
from lib_dlhpc.labs.race_the_planner.real_plans import here, picks

LAB = "10_race_the_planner"
NAME = "your name"
LUCKY = 90  # a seed
CELLS = ("estimate", "differ", "planner")


@pytest.fixture(scope="module")
def shown(own):
    """The tracks of the learner that are shown; predictions of them are kept."""
    return own.tracks_of(own.seed_of(NAME))


def changed(solved, function="", *changes):
    """Estimate and planner of the solution, text of a function replaced, as from cells."""
    scope = dict(vars(solved))
    for name in CELLS:
        source = inspect.getsource(getattr(solved, name))
        for old, new in changes if name == function else ():
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        run_cell(source, scope)
    return scope["estimate"], scope["planner"]


def test_the_solution_holds_on_hidden_tracks_too(own, solved):
    findings = own.findings(vars(solved), NAME)
    assert passed(findings) and len(findings) == 8, as_text(findings)


def test_the_starter_fails_with_a_useful_message(own, starter, shown):
    scope = run_cell(starter(LAB, "def planner("), {})
    findings = planner_findings(scope["planner"], shown)
    finding = found(findings, SHOWN)
    assert finding.right is False and "predicted only layouts with tensor = 1" in finding.words
    assert found(findings, TARGET).right is None
    knows_nothing = run_cell(starter(LAB, "def estimate("), {})["estimate"]
    for finding in estimate_findings(knows_nothing, shown):
        assert finding.right is False and "0.00" in finding.words, finding


@pytest.mark.parametrize("name", ["learner 2", "ada"])
def test_the_solution_orders_the_objective_where_it_is_hardest(own, solved, name):
    """Small microbatches, for which the host is late; few layouts that fit."""
    finding = found(estimate_findings(solved.estimate, own.tracks_of(own.seed_of(name))), VALUE)
    assert finding.right, finding


def test_an_estimate_in_which_the_host_is_never_late_is_named(own, solved):
    estimate, _ = changed(solved, "estimate", ("issued = 48 *", "issued = 0 *"))
    finding = found(estimate_findings(estimate, own.tracks_of(own.seed_of("learner 2"))), VALUE)
    assert finding.right is False and "launch the kernels" in finding.words, finding
    exchanged = "near = min(replicas, machine.devices_per_node // tensor)", "near = 1"
    one_nic, _ = changed(solved, "estimate", exchanged)
    finding = found(estimate_findings(one_nic, own.tracks_of(own.seed_of("ada"))), VALUE)
    assert finding.right is False and "launch the kernels" not in finding.words, finding


def test_a_planner_that_reaches_the_target_does_not_excuse_its_estimate(solved, shown):
    def estimate(experiment, layout):
        value, sizes = solved.estimate(experiment, layout)
        return -value, {term: 1 / size for term, size in sizes.items()}

    assert passed(planner_findings(solved.planner, shown[:2], shown[2:]))
    assert not any(each.right for each in estimate_findings(estimate, shown))


def test_a_rank_correlation_is_that_of_the_order():
    one, other = np.array([1.0, 2.0, 2.0, 9.0]), np.array([1.0, 4.0, 4.0, 5.0])
    assert correlation(one, other) == pytest.approx(1) == -correlation(one, -other)
    assert correlation(one, np.ones(4)) == 0


def test_each_mistake_is_named(solved, shown):
    for mistake, (where, old, new, law, words) in solved.MISTAKES.items():
        estimate, planner = changed(solved, where, (old, new))
        by_estimate = law.startswith("Your estimate")
        findings = (
            estimate_findings(estimate, shown) if by_estimate else planner_findings(planner, shown)
        )
        finding = found(findings, law)
        assert finding.right is False and words in finding.words, (mistake, as_text(findings))


def fitting(layouts, predict, rows, budget):
    """The best of the first predictions of some rows."""
    seen = {row: predict(layouts[row]).value for row in rows[:budget]}
    return layouts[min(seen, key=seen.get)]


def timid(experiment, layouts, predict, budget):
    """Whole replicas in slices, all of it recomputed: it fits, and nothing else is tried."""
    rows = [r for r, one in enumerate(layouts) if one["recompute"] == "full" and one["tensor"] == 8]
    return fitting(layouts, predict, rows, budget)


def forgetful(experiment, layouts, predict, budget):
    """A few layouts that fit, predicted again and again."""
    most = {"zero": 3, "recompute": "full", "microbatches": 1}
    rows = [row for row, one in enumerate(layouts) if most.items() <= one.items()][:6] * 4
    return fitting(layouts, predict, rows, budget)


def hopeful(experiment, layouts, predict, budget):
    """Whole replicas, whatever their memory."""
    rows = [r for r, x in enumerate(layouts) if x["tensor"] * x["pipeline"] == 1 > x["zero"]]
    return fitting(layouts, predict, rows, budget)


def test_what_does_not_fit_is_explained(shown):
    finding = found(planner_findings(hopeful, shown), LEGAL)
    assert finding.right is False and "did not fit. What needs the memory?" in finding.words


def dropping(experiment, layouts, predict, budget):
    """The worst of what it predicted, which does not fit, though it saw one that does."""
    rows = range(0, len(layouts), len(layouts) // budget)[:budget]
    seen = {row: predict(layouts[row]).value for row in rows}
    return layouts[max(seen, key=seen.get)]


def test_what_was_seen_and_dropped_for_a_layout_that_does_not_fit_is_named(shown):
    words = found(planner_findings(dropping, shown), KEEPS).words
    assert "it returned a layout that does not fit, and had seen" in words
    assert "unlimited" not in words


def drawn(experiment, layouts, predict, budget):
    """Layouts that a seed draws, as a learner who has tried some seeds picks it."""
    rows = random.Random(LUCKY).sample(range(len(layouts)), budget)
    return fitting(layouts, predict, rows, budget)


def quick(solved):
    """A planner that orders by time alone."""

    def planner(experiment, layouts, predict, budget):
        rows = sorted(
            range(len(layouts)), key=lambda row: solved.estimate(experiment, layouts[row])[0]
        )
        return fitting(layouts, predict, rows, budget)

    return planner


def test_a_lucky_seed_does_not_last(shown):
    once = [race.attempt(drawn, track) for track in shown]
    assert all(one.regret <= HALF * race.luck(one.track) for one in once)
    assert found(planner_findings(drawn, shown[:2], shown[2:]), TARGET).right is False


def test_the_quickest_layouts_do_not_fit(own, solved):
    findings = own.findings({"estimate": solved.estimate, "planner": quick(solved)}, NAME)
    assert not passed(findings), as_text(findings)


def test_the_target_counts_hidden_tracks(shown):
    finding = found(planner_findings(forgetful, shown[:1], shown[1:]), TARGET)
    assert finding.right is False and "of the regret of random draws" in finding.words


@pytest.mark.parametrize(
    ("planner", "words"),
    [
        (timid, "It predicted only layouts with tensor = 8."),
        (forgetful, "were of layouts that it had predicted before"),
    ],
)
def test_what_a_slow_layout_missed_is_named(shown, planner, words):
    finding = found(planner_findings(planner, shown), SHOWN)
    assert finding.right is False and words in finding.words, finding
    assert "more of" in finding.words or "power limit" in finding.words


def test_a_planner_that_does_not_end_is_stopped(own, shown, monkeypatch):
    monkeypatch.setattr(race, "PATIENCE", 0.1)

    def walking(experiment, layouts, predict, budget):
        seen = {0: predict(layouts[0])}
        while len(seen) < budget:
            seen = {row: seen[row] for row in seen}

    finding = found(planner_findings(walking, shown), LEGAL)
    assert finding.right is False and "with 1 of 24 predictions made" in finding.words
    assert "still computing after 0.1 s" in own.race(walking, NAME).value


def test_a_planner_that_stops_on_the_small_network_is_told_what_is_there(solved):
    def other(experiment, layouts, predict, budget):
        return experiment.machine.device.peak["fp16"]

    words = (
        "in fp32 .device.peak has fp64, fp32.: It stopped with KeyError: a dict has no key 'fp16'"
    )
    with pytest.raises(LabError, match=words):
        picks(other, solved.bet, here(2))


def test_the_race_has_a_line_for_each_planner(own, solved, shown):
    page = own.race(solved.planner, NAME).value
    for who in ("yours", "random, on average", "greedy", "the library", "exhaustive"):
        assert who in page
    assert f"0.0% ({len(shown[0].layouts)})" in page
    assert "no layout" in own.race(lambda *a: None, NAME).value


def test_learners_have_different_tracks(own):
    machines = {str(own.tracks_of(own.seed_of(f"learner {k}"))[0].experiment) for k in range(3)}
    assert len(machines) == 3


def test_what_the_notebook_shows_is_shown(own, solved):
    assert "Budget: 24 predictions" in own.tracks(NAME).value
    assert own.greedy_regret(NAME) >= 0
    assert "Your planner" in own.check_planner(lambda *a: None, NAME).value


@pytest.mark.parametrize(
    ("bet", "words"),
    [
        (lambda: {"batch": 3}, "fixed by the task"),
        (lambda: {"tensor": 3}, "legal: 1, 2"),
        (lambda: {"pipeline": 2, "zero": 1, "tensor": 2}, "Why"),
        (lambda: None, "a dict"),
        (lambda: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_an_illegal_bet_is_refused_with_a_reason(solved, bet, words):
    with pytest.raises(LabError, match=words):
        picks(solved.planner, bet, here(2))


def test_other_ranks_are_refused():
    with pytest.raises(SpecError, match="legal: 2, 4"):
        here(3)


def test_two_plans_run_on_real_ranks(own, solved, on_ranks, tmp_path):
    text = inspect.getsource(solved)
    (tmp_path / "step.py").write_text(text)
    said = on_ranks(own.HERE / "checks.py", str(tmp_path / "step.py"), NAME, ranks=2)
    assert "2 real ranks" in said and "All 1 hold" in said, said
    assert "Regret of the pick, of these two" in said
