"""Lab 8: the starter fails with a reason, the solution passes and survives, each mistake is named."""

import dataclasses
import inspect
import os
import re
import subprocess
import sys

import pytest
from lab_answers import found, run_cell
from patience import PATIENCE

from lib_dlhpc.explore.labs.lab import save as save_cells
from lib_dlhpc.labs.findings import as_text, passed, seed_of
from lib_dlhpc.labs.survive.checkpoint_interval import (
    GOODPUT,
    INTERVAL,
    LEGAL,
    LIMITS,
    SIMULATED,
    TIME,
    WAYS,
    simulated_finding,
)
from lib_dlhpc.labs.survive.killed_runs import available, run_with_kills
from lib_dlhpc.labs.survive.save_and_resume import (
    END,
    LOST,
    STATE,
    WHOLE,
    restart_findings,
    restarts_of,
)
from lib_dlhpc.prediction.failures.intervals import best_interval, goodput, young

LAB = "08_survive"
NAMES = ["your name", "another", "x"]
LEARNERS = [f"learner {k}" for k in range(12)]
forks = pytest.mark.skipif(not available(), reason="this system cannot fork")


def text_of(way, interval):
    """A learner's [run]."""
    return lambda: f'[run]\ncheckpoint = "{way}"\ncheckpoint_interval = {interval}'


def best_text(own, name):
    """The [run] of a learner who found the best."""
    _, way, interval = own.best(own.own_of(name))
    return text_of(way, interval)


def changed(solved, function, *changes):
    """A function of the solution, text of it replaced, as from a cell."""
    source = inspect.getsource(getattr(solved, function))
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    return run_cell(source, dict(vars(solved)))[function]


def file_of(solved, tmp_path, old="", new=""):
    """The solution's file with text of save or resume replaced."""
    text = inspect.getsource(solved)
    assert old in text
    (tmp_path / "step.py").write_text(text.replace(old, new, 1) if old else text)
    return tmp_path / "step.py"


def formulas(own, solved, name):
    return own.formula_findings(solved.expected_time, solved.best_interval, own.own_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_formulas_and_the_choice_of_the_solution_hold(own, solved, name):
    findings = formulas(own, solved, name)
    findings += own.choice_findings(best_text(own, name), own.own_of(name))
    assert passed(findings), as_text(findings)


@forks
@pytest.mark.parametrize("name", ["your name", pytest.param("x", marks=pytest.mark.slow)])
def test_the_solution_survives_and_leaves_no_version_that_is_not_whole(own, solved, name, tmp_path):
    findings, text = own.restarts(file_of(solved, tmp_path), name, tmp_path)
    assert passed(findings), as_text(findings)
    assert "40 of 40 went on" in text and "attempt 5: began" in text
    assert [each.name for each in tmp_path.iterdir()] == ["step.py"]


@forks
def test_the_starter_fails_with_a_useful_message(own, started, tmp_path):
    scope = started("expected_time", "best_interval", "choice", "save")
    file = save_cells(scope["save"], tmp_path / "step.py", scope["resume"])
    findings = own.findings(scope, "x", file)
    assert [each.law for each in findings if each.right] == [LEGAL], as_text(findings)
    assert "in which nothing fails" in found(findings, TIME).words
    assert "of one node, or of all?" in found(findings, INTERVAL).words
    assert "What writes less" in found(findings, LIMITS).words
    assert "but its weights are those after step" in found(findings, STATE).words
    assert "in the next attempt resume stopped with EOFError" in found(findings, WHOLE).words


@pytest.mark.parametrize("name", NAMES)
def test_each_wrong_formula_is_named(own, solved, name):
    for mistake, (function, old, new, law, words) in solved.FORMULAS.items():
        given = {each: getattr(solved, each) for each in ("expected_time", "best_interval")}
        given[function] = changed(solved, function, (old, new))
        findings = own.formula_findings(*given.values(), own.own_of(name))
        finding = found(findings, law)
        assert finding.right is False and words in finding.words, (mistake, finding)
        assert found(findings, SIMULATED).right is None


MISTAKES = ["no velocity", "begins anew", "behind", "it raises", "never ends"]
SLOW = [
    "no order",
    "no step",
    "single precision",
    "stops saving",
    "trains in resume",
    "save changes it",
    "gives it to nobody",
]


@forks
@pytest.mark.parametrize(
    "mistake", [*MISTAKES, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)]
)
def test_each_wrong_save_or_resume_is_named(own, solved, tmp_path, mistake):
    old, new, law, words = solved.RESTARTS[mistake]
    assert {*MISTAKES, *SLOW} == {*solved.RESTARTS}
    # On a busy machine what is saved behind is often on the disk in time: more moments.
    moments = 12 if mistake == "behind" else 3
    task = restarts_of(3)._replace(moments=moments, longest=1 if mistake == "never ends" else 20)
    findings = restart_findings(run_with_kills(file_of(solved, tmp_path, old, new), task), task)
    finding = found(findings, law)
    assert finding.right is False and words in finding.words, as_text(findings)


@forks
@pytest.mark.parametrize("number", range(6))
def test_other_ways_are_judged_by_what_they_leave(own, solved, tmp_path, number):
    save, resume, law, words = solved.OTHERS[number]
    assert len(solved.OTHERS) == 6
    text = inspect.getsource(solved)
    text += f"\n\nsave, resume = {save.__name__}, {resume.__name__}\n"
    (tmp_path / "step.py").write_text(text)
    task = restarts_of(4)._replace(moments=12)
    findings = restart_findings(run_with_kills(tmp_path / "step.py", task), task)
    assert found(findings, STATE).right, as_text(findings)
    if not law:
        assert passed(findings), as_text(findings)
    else:
        finding = found(findings, law)
        assert finding.right is False and words in finding.words, as_text(findings)


@forks
def test_what_is_saved_behind_and_waited_for_is_right(own, solved, tmp_path):
    text = inspect.getsource(solved.save).replace(").save(", ").save_async(")
    text = inspect.getsource(solved).replace(
        inspect.getsource(solved.save), text.rstrip() + ".wait()\n"
    )
    assert text.count("save_async") == 1 + inspect.getsource(solved).count("save_async")
    (tmp_path / "step.py").write_text(text)
    task = restarts_of(4)._replace(moments=4)
    reported = run_with_kills(tmp_path / "step.py", task)
    assert passed(restart_findings(reported, task)) and len(reported.trials[task.saves[1]]) == 4


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_must_choose_and_can(own, name):
    task = own.own_of(name)
    share, way, interval = own.best(task)
    assert 0.5 < share < 0.99
    assert passed(own.choice_findings(text_of(way, interval), task))
    price = own.saving(own.experiment_of(task))
    plain = float(best_interval(price, own.mtbf_of(task)))
    for every in (plain, max(plain, task.every)):
        assert not passed(own.choice_findings(text_of("synchronous", every), task))
    assert not passed(own.choice_findings(text_of(way, 4 * interval), task))


@pytest.mark.parametrize("name", LEARNERS[:3])
def test_no_interval_of_any_way_is_better_than_the_best(own, name):
    task = own.own_of(name)
    for way in WAYS:
        for interval in (40 * 1.3**k for k in range(25)):
            findings = own.choice_findings(text_of(way, interval), task)
            if found(findings, LIMITS).right:
                assert own.goodput_of(task, way, interval) <= own.best(task)[0] * (1 + 1e-9)


def test_learners_have_machines_and_best_ways_of_their_own(own):
    assert len({own.own_of(name)._replace(seed=0) for name in LEARNERS}) > 10
    assert {own.best(own.own_of(f"learner {k}"))[1] for k in range(30)} == {*WAYS} - {"synchronous"}
    assert len({restarts_of(seed_of(name))[1:] for name in LEARNERS}) > 8


@pytest.mark.parametrize("seed", range(40))
def test_a_run_is_killed_early_after_a_save_and_late(seed):
    own = restarts_of(seed)
    assert list(own.kills) == sorted(set(own.kills)) and own.kills[-1] < own.steps
    assert own.kills[0] < own.interval and own.kills[1] % own.interval == 0
    assert all(at % own.interval == 0 and at < own.steps for at in own.saves)
    assert len(set(own.saves)) == 2
    assert own.kills[-1] // own.interval * own.interval > 9  # a step of two digits is saved by then


BY_NAME = """
def save(folder, training):
    over_the_old_file(folder, training)
    (folder / "state.npz").replace(folder / f"s{training.step}.npz")


def resume(folder, training):
    for file in sorted(folder.glob("s[0-9]*.npz"))[-1:]:
        from_a_file(folder, training, file.name)
"""


@forks
def test_the_newest_by_name_is_not_the_newest(solved, tmp_path):
    seed = next(seed for seed in range(40) if restarts_of(seed).interval == 3)
    (tmp_path / "step.py").write_text(inspect.getsource(solved) + BY_NAME)
    task = restarts_of(seed)._replace(saves=())
    finding = found(restart_findings(run_with_kills(tmp_path / "step.py", task), task), LOST)
    assert finding.right is False and "begins at step 9, although" in finding.words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[run]\ncheckpoint = "never"', "never"),
        ('[run]\ncheckpoint = "synchronous"', "longer than 0"),
        ("[run]\ncheckpoint_interval = -1", "checkpoint_interval"),
        ('[run]\ncheckpoint_interval = "20 bananas"', "bananas"),
        ("[run]\ncheckpoint_interval = [60, 600]", "one time"),
        (
            "[run]\ncheckpoint_interval = inf",
            "checkpoint_interval = inf s: legal: a number of at least 0 s",
        ),
        ("[run]\nchanged = 0.01", "fixed by the task"),
        ("[machine]\nnodes = 1", "fixed by the task"),
        ("run = 1", "a table"),
        ("run", "TOML"),
    ],
)
def test_an_illegal_choice_is_refused_with_a_reason(own, text, words):
    finding = found(own.choice_findings(lambda: text, own.own_of("x")), LEGAL)
    assert finding.right is False and words in finding.words


def test_what_is_too_large_or_too_slow_is_reported(own):
    (task,) = [t for t in map(own.own_of, LEARNERS) if t.room < 2e9][:1]
    copy = own.choice_findings(text_of("asynchronous", 4 * task.every), task)
    assert "but only 1 GB are free" in found(copy, LIMITS).words
    slow = own.choice_findings(text_of("synchronous", 4 * task.every), task)
    assert "which of the two is larger" in found(slow, GOODPUT).words


def test_at_the_best_interval_of_a_way_stalls_and_repeated_work_are_alike(own):
    """Restarts, which no interval changes, are not counted as repeated work."""
    for task in map(own.own_of, LEARNERS[:6]):
        price = own.saving(own.experiment_of(task))
        interval = float(best_interval(price, own.mtbf_of(task)))
        words = found(own.choice_findings(text_of("synchronous", interval), task), GOODPUT).words
        parts = re.search(r"stalls it for (.+?)%, restarts take (.+?)%, .*? failures (.+?)%", words)
        if parts:  # within the limit of bytes
            stalls, restarts, repeated = map(float, parts.groups())
            assert repeated == pytest.approx(stalls, rel=0.15) and restarts > 0
            assert "If both are about equal" in words


@pytest.mark.parametrize("gives", [None, "much", float("nan"), float("inf")])
def test_what_is_no_number_is_reported(own, solved, gives):
    findings = own.formula_findings(lambda *a: gives, lambda *a: gives, own.own_of("x"))
    assert not any(each.right for each in findings)


def test_a_formula_that_is_only_near_is_found_by_simulation(own, solved):
    wrong = changed(solved, "expected_time", ("return work", "return 1.08 * work"))
    finding = simulated_finding(wrong, solved.best_interval, own.own_of("x"))
    assert finding.right is False and "your formula gives" in finding.words


def test_other_right_formulas_pass(own, solved):
    def lowest(save, restart, node_mtbf, nodes):
        low, high = 1.0, 10 * node_mtbf / nodes
        for _ in range(200):
            a, b = low + (high - low) / 3, high - (high - low) / 3
            worse = solved.expected_time(
                a, 1, save, restart, node_mtbf, nodes
            ) > solved.expected_time(b, 1, save, restart, node_mtbf, nodes)
            low, high = (a, high) if worse else (low, b)
        return low

    assert passed(own.formula_findings(solved.expected_time, lowest, own.own_of("x")))


@forks
def test_what_the_notebook_shows_is_shown(own, solved, monkeypatch, tmp_path):
    assert "Target:" in own.task("x").value and "in the background" in own.ways("x").value
    assert own.hours_between_failures("x") == own.mtbf_of(own.own_of("x")) / 3600
    assert {own.best_of_three(name) for name in LEARNERS} == {"every 20 minutes"}
    both = solved.expected_time, solved.best_interval
    assert "All 3 hold" in own.check_formulas(*both, "x").value
    assert "All 3 hold" in own.check_choice(best_text(own, "x"), "x").value
    monkeypatch.setattr(own, "HERE", tmp_path)
    monkeypatch.setattr(own, "restarts", lambda *a: ([own.broken(WHOLE, "words")], "attempt 1"))
    assert "attempt 1" in own.check_restarts(solved.save, solved.resume, "x").value
    handed = own.hand_in("x", *both, best_text(own, "x"), solved.save, solved.resume).value
    assert "6 of 7 hold" in handed and (tmp_path / "step.py").exists()
    wrong = changed(solved, "expected_time", ("/ nodes", "/ 1"))
    assert "Not yet" in own.hand_in("x", wrong, solved.best_interval, *[None] * 3).value


def test_where_nothing_can_be_killed_it_is_reported(own, solved, tmp_path, monkeypatch):
    monkeypatch.setattr(own, "available", lambda: False)
    findings, _ = own.restarts(tmp_path, "x")
    assert [each.right for each in findings] == [None] * 4 and "WSL" in findings[0].words


@forks
@pytest.mark.parametrize(
    ("text", "words"), [("x = 1", "does not define save"), ("1 / 0", "ZeroDivision")]
)
def test_a_file_that_does_not_run_is_reported(own, tmp_path, text, words):
    (tmp_path / "step.py").write_text(text)
    findings, _ = own.restarts(tmp_path / "step.py", "x")
    assert words in found(findings, STATE).words


@forks
def test_a_run_is_killed_at_the_reported_points(own, solved, tmp_path):
    text = inspect.getsource(solved)
    text += "\n\nsave, resume = over_the_old_file, from_a_file\n"
    (tmp_path / "step.py").write_text(text)
    task = restarts_of(3)
    reported = run_with_kills(tmp_path / "step.py", task)
    assert [attempt.reached for attempt in reported.journey] == [*task.kills, task.steps]
    assert {first.reached for each in reported.trials.values() for first, _ in each} == {
        *task.saves
    }
    assert reported.journey[-1].ended == reported.reference[-1]
    assert (
        not passed(restart_findings(reported, task))
        and found(restart_findings(reported, task), END).right
    )
    assert found(restart_findings(reported, task), LOST).right is None


def test_in_a_terminal_it_prints_its_usage(own, tmp_path):
    checks = str(own.HERE / "checks.py")
    nowhere = (checks, "x", "nowhere")
    for arguments, error in (((), "usage: python checks.py"), (nowhere, "nowhere is not a folder")):
        run = subprocess.run(
            [sys.executable, checks, *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert run.returncode == 2 and run.stderr.startswith(error) and run.stderr.count("\n") == 1


@forks
@pytest.mark.slow
def test_in_a_terminal_a_solution_is_judged_whole(own, solved, tmp_path):
    chosen = (
        inspect.getsource(solved) + f"\n\ndef choice():\n    return {best_text(own, 'x')()!r}\n"
    )
    (tmp_path / "step.py").write_text(chosen)
    words = [str(own.HERE / "checks.py"), str(tmp_path / "step.py"), "x", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0 and run.stdout.endswith("All 10 hold.\n"), run.stdout + run.stderr


@forks
def test_what_a_store_is_left_with_is_looked_at(own, solved, tmp_path):
    half = """
    place = folder / "versions" / "versions"
    place.mkdir(parents=True, exist_ok=True)
    (place / ("0" * 32 + ".json")).write_text("half of a version")
    order = json"""
    file = file_of(solved, tmp_path, "\n    order = json", half)
    task = restarts_of(3)._replace(moments=6)
    reported = run_with_kills(file, task)
    broken = [first.broken for each in reported.trials.values() for first, _ in each]
    assert any("cut short or changed" in each for each in broken)
    finding = found(restart_findings(reported, task), WHOLE)
    assert finding.right is False and "in the store then" in finding.words


def test_the_numbers_of_the_notes(own, solved):
    half, twice, one_node, failures, free, restarts = [], [], [], [], [], []
    ways, passing, short, bound = [], [], 0, 0
    for task in (own.own_of(f"learner {k}") for k in range(30)):
        mtbf, price = own.mtbf_of(task), own.saving(own.experiment_of(task))
        interval = float(best_interval(price, mtbf))
        good = own.goodput_of(task, "synchronous", interval)
        for found_, every in (
            (half, interval / 2),
            (twice, 2 * interval),
            (one_node, float(young(price.blocked, task.node_mtbf))),
        ):
            found_.append(100 * (1 - own.goodput_of(task, "synchronous", every) / good))
        failures.append(mtbf / 3600)
        at_once = goodput(interval, dataclasses.replace(price, restart=0.0), mtbf)
        restarts.append(100 * (1 - good / float(at_once)))
        _, way, chosen = own.best(task)
        ways.append(way)
        short += task.room < 2e9
        prices = {each: own.saving(own.experiment_of(task, each)) for each in WAYS}
        alone = {each: float(best_interval(prices[each], mtbf)) for each in WAYS}
        bound += chosen > 1.0001 * alone[way]
        free.append(max(WAYS, key=lambda each: own.goodput_of(task, each, alone[each])))
        least = {w: prices[w].written / prices["synchronous"].written * task.every for w in WAYS}
        texts = [text_of(w, max(alone[w], (1 + 1e-9) * float(least[w]))) for w in WAYS]
        passing.append(sum(passed(own.choice_findings(text, task)) for text in texts))
    assert (round(min(half), 1), round(max(half), 1)) == (0.8, 3.3)
    assert (round(min(twice), 1), round(max(twice), 1)) == (0.9, 3.5)
    assert (round(min(one_node)), round(max(one_node))) == (16, 72)
    assert (round(min(restarts)), round(max(restarts))) == (1, 9)
    assert min(failures) > 1 and max(failures) < 6.5
    assert set(free) == {"asynchronous"} and ways.count("asynchronous") == 3
    assert ways.count("incremental") == 17 and (short, bound) == (9, 20)
    assert passing.count(1) == 15 and passing.count(3) == 2
    assert len(solved.FORMULAS) + len(solved.RESTARTS) == 30 and len(solved.OTHERS) == 6
