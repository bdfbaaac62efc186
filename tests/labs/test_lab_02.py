"""Lab 2: the starter is right and hides nothing, the solution passes, and each mistake is named."""

import functools
from itertools import cycle

import pytest
from lab_answers import found

from lib_dlhpc.explore.labs.lab import save
from lib_dlhpc.labs.emulated.machine import seconds_of
from lib_dlhpc.labs.findings import passed

LAB = "02_overlap"
NAMES = ["your name", "another"]


def tuned(own, step, name):
    """The step with the best of some sizes of buckets, as simulated: what a learner is to find."""
    best = min(own.sizes_of(name), key=lambda size: seconds_of(own.simulate_buckets(name, size)))
    return functools.partial(step, bucket=best)


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_once_its_size_is_tuned(own, solution, name):
    assert passed(own.findings(tuned(own, solution(LAB).step, name), name))


@pytest.mark.parametrize("name", NAMES)
def test_a_size_far_off_misses_the_target_and_nothing_else(own, solution, name):
    *others, target = own.findings(functools.partial(solution(LAB).step, bucket=10**9), name)
    assert {each.law for each in others if not each.right} == {own.EARLY}
    assert not target.right


@pytest.mark.parametrize("name", NAMES)
def test_the_starter_is_right_but_nothing_leaves_early(own, starter, name):
    scope = {}
    exec(starter(LAB), scope)
    findings = own.findings(scope["step"], name)
    assert found(findings, own.EQUAL).right
    assert [each.law for each in findings if not each.right] == [own.EARLY, own.TARGET]


def test_each_mistake_is_named(own, solution):
    mistakes = solution(LAB).MISTAKES.items()
    for (mistake, (step, law, words)), name in zip(mistakes, cycle(NAMES), strict=False):
        findings = own.findings(step, name)
        finding = found(findings, law)
        assert finding.right is False, (mistake, finding)
        assert words in finding.words, (mistake, finding)
        assert not found(findings, own.TARGET).right


@pytest.mark.parametrize("exchange", ["allreduce", "allgather"])
def test_buckets_for_show_and_a_second_exchange_do_not_pass(own, solution, exchange):
    """On the emulated clock the second one takes no time."""
    right = tuned(own, solution(LAB).step, "x")

    def shown(network, loss, x, y, comm, rate, bucket=right.keywords["bucket"]):
        value = right(network, loss, x, y, comm, rate, bucket=bucket)
        getattr(comm, exchange)(network.gradients)
        return value

    findings = own.findings(shown, "x")
    finding = found(findings, own.ONCE)
    assert finding.right is False and "Besides the buckets" in finding.words
    assert not found(findings, own.TARGET).right
    assert passed(own.findings(right, "x"))


def test_a_step_that_fails_is_reported_first(own):
    findings = own.findings(lambda *_, bucket=1: _[4].rank and _[4].Barrier(), "x")
    assert findings[0].law == own.ALL and "for rank 0" in findings[0].words
    assert all(each.right is None for each in findings[1:])


def test_the_solution_holds_on_real_ranks(own, solution, on_ranks, tmp_path):
    file = save(solution(LAB).step, tmp_path / "step.py")
    text = on_ranks(own.HERE / "checks.py", str(file), "x", ranks=3)
    assert "3 real ranks" in text and "All 5 hold" in text


def test_nothing_is_started_or_written_before_the_checks_hold(own, solution, monkeypatch):
    monkeypatch.setattr(own, "HERE", None)  # anything done with it would fail
    after = solution(LAB).MISTAKES["the exchange follows backward"][0]
    assert "Not yet" in own.on_ranks(after, "x").value


def test_what_the_notebook_shows_is_shown(own, solution):
    assert "gradients of 8 B" in own.machine("x").value
    assert "Recorded" not in own.picture(lambda: 0, "x").value  # a mistake, reported as text
    for figure in (own.picture(solution(LAB).step, "x"), own.simulated("x", 20_000)):
        assert "4 ranks" in figure.summary or "rank" in figure.summary
