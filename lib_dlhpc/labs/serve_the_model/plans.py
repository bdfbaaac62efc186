"""A learner's forecast of a full batch, and a plan of the node that a few simulations confirm.

forecast_findings(forecast, task)      beside the simulator, and by Little's law
attempt(choose, task)                  an Attempt: what was simulated, and the plan
plan_findings(choose, shown, hidden)   legal, within the latency, and how near to the best
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from lib_dlhpc.labs.endless import limited
from lib_dlhpc.labs.findings import Finding, broken, kept, later
from lib_dlhpc.labs.mistakes import LabError, explained
from lib_dlhpc.labs.serve_the_model import tasks
from lib_dlhpc.labs.serve_the_model.formulas import price
from lib_dlhpc.spec.units import format_quantity as show

BUDGET = 5  # simulations
MARGIN = 0.15  # below the best plan's tokens a second
NEAR = 0.25  # of the simulator: of a mean step, where some have a prompt and most have none
LIKE = 0.05  # of what a mistake gives
LITTLE = "Little's law: tokens per second times seconds per token are the sequences"
FORECAST = f"Forecast: within {NEAR:.0%} of the simulator"
LEGAL = f"The plan was simulated, and within {BUDGET} simulations"
LATENCY = "Target latency: the 99th percentile is within the limit, on hidden services too"
TARGET = f"Target throughput: within {MARGIN:.0%} of the best plan, on hidden services too"
PATIENCE = 30.0  # s of CPU for a service
FEW = 0.1  # of the places of a batch that may be left to prompts


class OverBudget(LabError):
    """More simulations than there are."""


@dataclass(frozen=True)
class Attempt:
    """What a learner did with a service: plans that were simulated, in order, and the one that was chosen."""

    task: tasks.Task
    asked: tuple[tuple[int, int], ...]
    plan: tuple[int, int]

    @property
    def found(self) -> tasks.Served:
        """What the simulator says of the plan."""
        return tasks.served(self.task, *self.plan)


def plans_to_forecast(task: tasks.Task) -> list[tuple[int, int]]:
    """Return plans that fit: few devices with a large batch, and many devices."""
    fitting = [each for each in tasks.DEVICES if tasks.served(task, each, 16).tokens_per_second]
    first = next(each for each in fitting if not tasks.served(task, each, 16).preemptions)
    return [(first, 16), (4, 64), (8, tasks.BATCHES[-1])]


def forecast_findings(forecast: Callable[..., Any], task: tasks.Task) -> list[Finding]:
    """Return whether `forecast(size, gpu, devices, batch, load, allreduce)` is near the simulator."""
    given = tasks.size_of(task), tasks.gpu_of(task)
    words = []
    for devices, batch in plans_to_forecast(task):
        about = f"{tasks.counted(devices, 'device')}, a batch of {batch}"
        try:
            seconds, tokens = _two(
                forecast, *given, devices, batch, tasks.load_of(task), tasks.allreduce_of(task)
            )
        except LabError as error:
            return [broken(LITTLE, f"{about}: {error}"), later(FORECAST)]
        sequences = seconds * tokens
        if not (1 - FEW) * batch <= sequences <= 1.01 * batch:
            found = f"{show(seconds, 's')} x {tokens:,.0f} tokens/s = {sequences:.1f} sequences"
            return [
                broken(LITTLE, f"{about}: {found}.{_little(task, sequences, devices, batch)}"),
                later(FORECAST),
            ]
        wrong = _far(task, devices, batch, seconds, tokens)
        if wrong:
            return [kept(LITTLE, "A full batch."), broken(FORECAST, f"{about}: {wrong}")]
        words.append(
            f"{about}: {seconds / tasks.served(task, devices, batch).tpot:.2f} of the simulated step"
        )
    return [kept(LITTLE, "A full batch."), kept(FORECAST, f"{'; '.join(words)}.")]


def _two(forecast: Callable[..., Any], *given: Any) -> tuple[float, float]:
    try:
        seconds, tokens = (float(each) for each in forecast(*given))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise LabError(f"expected two numbers, seconds and tokens per second. {text}") from None
    return seconds, tokens


def _little(task: tasks.Task, sequences: float, devices: int, batch: int) -> str:
    """Return what may be wrong with tokens a second, for such seconds a token."""
    slips = (
        (1.0, " Each step gives a token to each sequence."),
        (batch * tasks.NODE / devices, " Give those of one replica, not of the node."),
        (
            batch * (1 + task.prompt / task.answer),
            " Tokens of prompts do not count as tokens of answers.",
        ),
        (batch / devices, " All devices of a replica work on the same sequences."),
    )
    near = [words for value, words in slips if abs(sequences - value) <= 0.1 * value]
    return near[0] if near else " How many tokens does a step give, and how long does it take?"


def _far(task: tasks.Task, devices: int, batch: int, seconds: float, tokens: float) -> str:
    """Return how a forecast differs from the simulator, and what it looks like; empty if it does not."""
    right = tasks.served(task, devices, batch)
    if abs(seconds / right.tpot - 1) <= NEAR:
        return ""
    context = task.prompt + task.answer // 2
    rest = price(task, devices, 0, [context] * batch)
    full = price(task, devices, tasks.CHUNK, [context] * batch)
    with_one = price(task, devices, task.prompt, [context] * batch)
    entering = batch * task.prompt // task.answer  # tokens of prompts in a mean step
    apart = rest + price(task, devices, entering, [])
    another = price(task, devices, 2 * task.prompt, [context] * batch) - with_one
    whole = with_one + (batch - 1) * another
    comes, ends = (
        "Whenever an answer ends, a new prompt arrives",
        "Prompts arrive only as fast as answers end.",
    )
    slips = (
        (rest, f"{comes}: how many prompt tokens does a mean step have?"),
        (full, f"Does each step have a whole chunk of prompts? {ends}"),
        (with_one, f"Does a prompt arrive in each step? {ends}"),
        (whole, f"Does each sequence bring its whole prompt with every step? {ends}"),
        (
            apart,
            "Prompts are computed in the same steps as the sequences: the weights are read once.",
        ),
        (price(task, devices, 0, [context]), "A step decodes the whole batch."),
        (price(task, 1, 0, [context] * batch), "A replica has several devices."),
    )
    size = "long" if seconds > right.tpot else "short"
    words = f"{show(seconds, 's')} is too {size} for the mean step."
    near = min(slips, key=lambda each: abs(seconds / each[0] - 1))
    hint = (
        near[1]
        if abs(seconds / near[0] - 1) <= LIKE
        else "Does your `step` hold? What is in a mean step?"
    )
    return f"{words} {hint}"


def attempt(choose: Callable[..., Any], task: tasks.Task) -> Attempt:
    """Return what a learner does with a service. Raises LabError, OverBudget, Endless."""
    asked: list[tuple[int, int]] = []

    def measure(plan: Any) -> tasks.Served:
        found = tasks.plan_of(plan)
        if len(asked) == BUDGET:
            raise OverBudget(f"`choose` asked for simulation {BUDGET + 1} of {BUDGET}.")
        asked.append(found)
        return tasks.served(task, *found)

    def endless() -> str:
        return f"It is still computing after {PATIENCE:g} s, after {len(asked)} simulations. Which loop never ends?"

    plans = [dict(each) for each in tasks.PLANS]
    given = tasks.size_of(task), tasks.gpu_of(task), tasks.load_of(task), task.limit
    with explained("It"):
        found = limited(
            lambda: choose(*given, plans, measure, BUDGET, tasks.allreduce_of(task)),
            PATIENCE,
            endless,
        )
    return Attempt(task, tuple(asked), tasks.plan_of(found))


def plan_findings(
    choose: Callable[..., Any], shown: Sequence[tasks.Task], hidden: Sequence[tasks.Task] = ()
) -> list[Finding]:
    """Return what holds for a choice; without hidden services those of the learner count."""
    attempts: list[Attempt] = []
    for task in (*shown, *hidden):
        try:
            one = attempt(choose, task)
        except LabError as error:
            return [broken(LEGAL, f"{named(task)}: {error}"), later(LATENCY), later(TARGET)]
        if one.plan not in one.asked:
            words = f"{named(task)}: `choose` returned a plan that it had not simulated. How does it know the latency?"
            return [broken(LEGAL, words), later(LATENCY), later(TARGET)]
        attempts.append(one)
    most = max(len(one.asked) for one in attempts)
    legal = kept(LEGAL, f"{most} at most, on {len(attempts)} service{'s' * (len(attempts) > 1)}.")
    slow = next((one for one in attempts if one.found.p99 > one.task.limit), None)
    if slow:
        return [legal, broken(LATENCY, _slow(slow)), later(TARGET)]
    within = "; ".join(f"{show(x.found.p99, 's')} of {show(x.task.limit, 's')}" for x in attempts)
    shares = [
        x.found.tokens_per_second / tasks.served(x.task, *tasks.best(x.task)).tokens_per_second
        for x in attempts
    ]
    least = min(shares)
    words = f"{least:.0%} of the best plan's tokens per second."
    latency = kept(LATENCY, f"{within}.")
    if least >= 1 - MARGIN:
        return [legal, latency, kept(TARGET, words)]
    return [legal, latency, broken(TARGET, f"{words} {_missed(attempts[shares.index(least)])}")]


def _slow(one: Attempt) -> str:
    """Return why a plan does not meet the limit."""
    task, found = one.task, one.found
    where = f"{named(task)}: {tasks.counted(one.plan[0], 'device')}, a batch of {one.plan[1]}"
    if found.p99 == inf:
        return f"{where}: {found.why}"
    over = f"{where}: {show(found.p99, 's')} per token, and the limit is {show(task.limit, 's')}."
    if any(tasks.served(task, *each).p99 <= task.limit for each in one.asked):
        return f"{over} Another plan that it simulated is within it."
    if found.preemptions:
        return (
            f"{over} {found.preemptions} sequences lost their cache: does the batch fit the memory?"
        )
    mean = f"The mean step takes {show(found.tpot, 's')}"
    return (
        f"{over} {mean}: what do the steps of the slowest requests contain? Would fewer sequences or more"
        " devices help?"
    )


def _missed(one: Attempt) -> str:
    """Return what a plan lacks, without the plan that is best."""
    task, (devices, batch) = one.task, one.plan
    where = f"{named(task)}: {tasks.counted(devices, 'device')}, a batch of {batch}."
    wide, _ = tasks.best(task)
    if wide == devices:
        return f"{where} A larger batch of such replicas is within the limit too."
    step = tasks.prices_of(task, devices).decode(batch, task.prompt + task.answer / 2)
    if wide > devices:
        share = (step.weights + step.cache) / step.total
        return f"{where} {share:.0%} of a step waits for weights and cache. What would more devices do for the batch?"
    return (
        f"{where} {step.communication / step.total:.0%} of a step is messages, and the node has"
        f" {tasks.counted(tasks.NODE // devices, 'replica')}. What would replicas of fewer devices do?"
    )


def named(task: tasks.Task) -> str:
    """Return a service in words."""
    return f"{task.model} on {task.machine}"
