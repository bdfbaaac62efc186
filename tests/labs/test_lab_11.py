"""Lab 11: the starter fails with a reason, the solution passes, and each mistake is named."""

import inspect

import numpy as np
import pytest
from lab_answers import found, run_cell

from lib_dlhpc.labs.findings import as_text, passed
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.serve_the_model import batching, plans, tasks
from lib_dlhpc.labs.serve_the_model.batching import ENDS, FITS, ORDER, WORK, driven, loads_of
from lib_dlhpc.labs.serve_the_model.plans import LATENCY, LEGAL, TARGET, attempt, plan_findings
from lib_dlhpc.serving import simulate_service

LAB = "11_serve_the_model"
NAME = "your name"


def judged(own, scope, function):
    """What holds for the function of a scope, and for those of its part of the lab."""
    if function in ("cache", "step"):
        return own.step_laws(scope["cache"], scope["step"], NAME)
    if function == "schedule":
        return own.schedule_findings(scope[function], loads_of(own.seed_of(NAME)))
    if function == "forecast":
        return own.forecast_findings(scope[function], own.task_of(NAME))
    return plan_findings(scope[function], own.tasks_of(own.seed_of(NAME)))


def changed(own, solved, function, old, new):
    """The functions of the solution, text of one replaced, as from cells."""
    scope = dict(vars(solved))
    for name in own.NAMES:
        source = inspect.getsource(getattr(solved, name))
        if name == function:
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        run_cell(source, scope)
    return scope


def test_the_solution_holds_on_a_hidden_service_too(own, solved):
    findings = own.findings(vars(solved), NAME)
    assert passed(findings) and len(findings) == 15, as_text(findings)


def test_the_starter_fails_each_part_with_a_reason(own, started):
    scope = started(*own.NAMES)
    for function, law, words in (
        ("cache", "Cache", "too little. Did you count both keys and values?"),
        ("step", "Prefill", "The weights are read for any number of tokens"),
        ("schedule", WORK, "What is it waiting for?"),
        ("forecast", "Little", "= 1.0 sequences"),
        ("choose", LATENCY, "per token, and the limit is"),
    ):
        findings = judged(own, scope, function)
        assert not passed(findings), as_text(findings)
        wrong = next(each for each in findings if each.law.startswith(law))
        assert wrong.right is False and words in wrong.words, as_text(findings)


def test_each_mistake_is_named(own, solved):
    for mistake, (function, old, new, law, words) in solved.MISTAKES.items():
        findings = judged(own, changed(own, solved, function, old, new), function)
        wrong = next(each for each in findings if each.law.startswith(law))
        assert wrong.right is False and words in wrong.words, (mistake, as_text(findings))


def test_the_lab_simulates_as_the_simulator_does():
    service = tasks.service_of(tasks.Task("llama3-8b", "h100-pod", 192, 64), 2, 8)
    ours, theirs = tasks.simulated(service, tasks.Prices(service)), simulate_service(service)
    assert np.allclose(ours.tpot, theirs.tpot) and len(ours.steps) == len(theirs.steps)


def test_the_simulator_obeys_littles_law(own):
    task = own.task_of(NAME)
    for devices, batch in plans.plans_to_forecast(task):
        one = tasks.served(task, devices, batch)
        rate = one.tokens_per_second * devices / tasks.NODE
        assert one.decoding == pytest.approx(rate * one.tpot)
        assert (1 - plans.FEW) * batch <= one.decoding <= batch


def test_no_plan_is_better_than_the_best(own):
    (task,) = own.tasks_of(own.seed_of(NAME))
    best = tasks.served(task, *tasks.best(task))
    assert best.p99 <= task.limit
    for each in tasks.PLANS:
        one = tasks.served(task, each["devices"], each["batch"])
        assert one.p99 > task.limit or one.tokens_per_second <= best.tokens_per_second, each


def test_learners_have_different_services_and_requests():
    assert len({tasks.tasks_of(seed) for seed in range(3)}) == 3
    assert len({loads_of(seed) for seed in range(3)}) == 3
    assert tasks.tasks_of(1) != tasks.tasks_of(1, hidden=True)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (lambda *given: None, "expected two lists of numbers"),
        (lambda *given: [1, 2], "expected two lists of numbers"),
        (lambda *given: ([float("inf")], []), "expected two lists of numbers"),
        (lambda *given: ([7], []), "neither in the queue nor running"),
        (lambda queue, *given: ([queue[0].number], [queue[0].number]), "named twice"),
        (lambda *given: 1 / 0, "stopped with ZeroDivisionError"),
    ],
)
def test_what_is_no_batch_is_refused_with_a_reason(own, schedule, words):
    findings = judged(own, {"schedule": schedule}, "schedule")
    assert words in found(findings, FITS).words
    assert all(each.right is None for each in findings[1:])


def test_a_scheduler_that_does_not_end_is_stopped(own, monkeypatch):
    monkeypatch.setattr(batching, "PATIENCE", 0.1)

    def walking(queue, running, room, most):
        while queue:
            pass

    assert (
        "in step 1: which loop never ends?"
        in found(judged(own, {"schedule": walking}, "schedule"), FITS).words
    )


def test_who_waits_for_ever_is_named(own):
    def shortest(queue, running, room, most):
        """What needs the least tokens first; what cannot fit waits."""
        batch, used = [], 0
        for each in sorted([*running, *queue], key=lambda one: one.tokens):
            if used + each.tokens <= room and len(batch) < most and each.limit <= room:
                batch.append(each.number)
                used += each.tokens
        return batch, []

    findings = judged(own, {"schedule": shortest}, "schedule")
    assert "which came later, is in the batch" in found(findings, ORDER).words
    assert "waits at the head of the queue" in found(findings, ENDS).words


def test_tokens_are_counted_once_and_those_of_preempted_again(own, solved):
    """Without a preemption the computed tokens are prompts and answers, but for the last of each, which is not read."""
    load = batching.Load(((0, 10, 5, 9), (0, 20, 4, 9), (2, 8, 3, 9)), 1000, 8)
    one = driven(solved.schedule, load)
    assert (one.answered, one.preempted, one.again, one.steps) == (3, 0, 0, 5)
    assert one.computed == (10 + 4) + (20 + 3) + (8 + 2)
    tight = driven(changed_spare(solved, 0.0), load._replace(room=35))
    assert tight.preempted == 1 and tight.again == 21 + 1 and not tight.wrong


def changed_spare(solved, spare):
    """The solution's scheduler with another part of the room held back."""
    scope = dict(vars(solved), SPARE=spare)
    return run_cell(inspect.getsource(solved.schedule), scope)["schedule"]


def constant(devices, batch):
    """A choice that knows its plan, and simulates it."""

    def choose(size, gpu, load, limit, plans, measure, budget, allreduce):
        plan = {"devices": devices, "batch": batch}
        measure(plan)
        return plan

    return choose


def test_one_is_singular_and_seconds_have_a_unit(own, solved):
    step = changed(own, solved, "step", "+ read", "")["step"]
    words = found(own.step_laws(solved.cache, step, NAME), "Decode").words
    assert words.startswith(("1 sequence: ", "24 sequences: ")) and "ms is too little" in words
    assert (tasks.counted(1, "replica"), tasks.counted(2, "replica")) == ("1 replica", "2 replicas")
    shown = own.tasks_of(own.seed_of(NAME))
    words = found(plan_findings(constant(8, 4), shown), TARGET).words
    assert "the node has 1 replica. What would replicas of fewer devices do?" in words


def test_a_batch_that_is_too_small_is_named(own):
    shown = own.tasks_of(own.seed_of(NAME))
    devices, batch = tasks.best(shown[0])
    small = tasks.BATCHES[tasks.BATCHES.index(batch) - 2]
    words = found(plan_findings(constant(devices, small), shown), TARGET).words
    assert "A larger batch of such replicas" in words


def test_a_printed_best_plan_does_not_hold_on_the_hidden_service(own):
    """A constant is right on the service that it was printed for, and the hidden one has another."""
    seed = own.seed_of(NAME)
    shown, hidden = own.tasks_of(seed), own.tasks_of(seed, hidden=True)
    printed = constant(*tasks.best(shown[0]))
    assert passed(plan_findings(printed, shown))
    assert tasks.best(shown[0]) != tasks.best(hidden[0])
    assert not passed(plan_findings(printed, shown, hidden))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"devices": 3, "batch": 8}, "devices 1, 2, 4, 8"),
        ((8, 96), "is not a plan"),
        ({"devices": 8, "batch": 10}, "batch 4, 8, 12"),
    ],
)
def test_an_illegal_plan_is_refused_with_a_reason(own, plan, words):
    task = own.task_of(NAME)
    with pytest.raises(LabError, match=words):
        attempt(lambda *given: plan, task)
    with pytest.raises(LabError, match=words):
        attempt(lambda *given: given[5](plan), task)


def test_a_plan_that_does_not_fit_says_why():
    task = tasks.Task("llama3-70b", "h100-pod", 192, 64, 1.0)
    findings = plan_findings(constant(1, 4), [task])
    assert found(findings, LEGAL).right
    assert (
        "the weights of llama3-70b in bf16 take 141 GB per device" in found(findings, LATENCY).words
    )


def test_what_the_notebook_shows_is_shown(own, solved):
    assert "Budget: 5 simulations" in own.task(NAME).value
    assert 1 < own.growth(NAME) < 24
    assert "Your scheduler" in own.check_schedule(lambda *given: None, NAME).value
    assert "Your plan" in own.check_choice(lambda *given: None, NAME).value
