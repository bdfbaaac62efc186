"""A learner's scheduler, driven step by step: what it does with the cache, with the order, with what cannot fit.

loads_of(seed)                          requests, and the room of a cache for them
driven(schedule, load)                  what the scheduler did, and the first step that breaks each law
schedule_findings(schedule, loads)      the findings
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.endless import limited
from lib_dlhpc.labs.findings import Finding, broken, kept, later
from lib_dlhpc.labs.mistakes import Endless, LabError, explained
from lib_dlhpc.labs.serve_the_model.tasks import counted

FITS = "The cache: no step needs more than there is"
ORDER = "First come, first served: no request is overtaken, none starves"
WORK = "Work conservation: no free place while a request waits, no sequence preempted unnecessarily"
ENDS = "Every request is answered, and only what can never fit is refused"
AGAIN = 0.08  # of all tokens
WASTE = f"Target: at most {AGAIN:.0%} of the tokens are computed a second time"
SLACK = 0.1  # of the room that may be held back when a request is admitted
PATIENCE = 20.0  # s of CPU for a load
STEPS = 20_000  # of a load; a scheduler takes one or two thousand
Schedule = Callable[..., Any]


class Seen(NamedTuple):
    """What a scheduler sees of a request. number: order of arrival. tokens: in the cache, if it is in the next step.

    limit: tokens that it can grow to. How long its answer will be, nobody knows.
    """

    number: int
    tokens: int
    limit: int


@dataclass
class Job:
    """A request: when it comes, in steps; its tokens; how many of its answer are made."""

    number: int
    arrival: int
    prompt: int
    answer: int
    most: int
    made: int = 0

    @property
    def seen(self) -> Seen:
        """What a scheduler sees of it."""
        return Seen(self.number, self.prompt + self.made, self.prompt + self.most)


class Load(NamedTuple):
    """Requests as (arrival, prompt, answer, most tokens of an answer); room: tokens of cache; most: of a batch."""

    requests: tuple[tuple[int, int, int, int], ...]
    room: int
    most: int


@dataclass
class Driven:
    """What a scheduler did. wrong: law -> words of the first step that breaks it. computed, again: tokens."""

    wrong: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    answered: int = 0
    refused: int = 0
    preempted: int = 0
    computed: int = 0
    again: int = 0

    def breaks(self, law: str, words: str) -> None:
        """Remember the first step that breaks a law."""
        self.wrong.setdefault(law, f"Step {self.steps + 1}: {words}")


@cache
def loads_of(seed: int) -> tuple[Load, ...]:
    """Return the loads of a learner: a small cache that overflows, a small batch, both with a request too large."""
    rng = np.random.default_rng([seed, 11])
    return _load(rng, 120, 24), _load(rng, 40, 5)


def _load(rng: np.random.Generator, count: int, most: int) -> Load:
    prompts = rng.integers(20, 300, count)
    answers = np.clip(rng.geometric(1 / 60, count), 2, 250)
    arrivals = np.cumsum(rng.geometric(1 / 3, count))
    room = int(rng.integers(1600, 2400)) if most > 10 else int(rng.integers(900, 1300))
    requests = [[*map(int, row), 250] for row in zip(arrivals, prompts, answers, strict=True)]
    requests[count // 3][1] = room - int(rng.integers(20, 200))  # it can never fit
    requests[count // 2][1:] = room - 20, 20, 20  # it fits to the last token, but alone
    return Load(tuple((a, p, n, m) for a, p, n, m in requests), room, most)


def driven(schedule: Schedule, load: Load) -> Driven:
    """Return what a scheduler does with a load. Raises LabError for what is no batch, Endless where it does not end."""
    done = Driven()

    def endless() -> str:
        return f"It is still computing after {PATIENCE:g} s, in step {done.steps + 1}: which loop never ends?"

    return limited(lambda: _drive(schedule, load, done), PATIENCE, endless)


def _drive(schedule: Schedule, load: Load, done: Driven) -> Driven:
    coming = [Job(number, *each) for number, each in enumerate(load.requests)]
    queue: list[Job] = []
    running: list[Job] = []
    now = 0
    while coming or queue or running:
        if not queue and not running:
            now = max(now, coming[0].arrival)
        while coming and coming[0].arrival <= now:
            queue.append(coming.pop(0))
        batch, refused = _called(schedule, queue, running, load)
        _judge(done, load, Decision(queue, running, batch, refused))
        if done.steps == STEPS or not (batch or refused):
            words = _idle(load, [*queue, *running])
            done.breaks(ENDS, words if done.steps < STEPS else "requests still wait.")
            return done
        queue, running = _apply(done, queue, running, batch, refused)
        now, done.steps = now + 1, done.steps + 1
    return done


def _idle(load: Load, waiting: list[Job]) -> str:
    """Return who waits while nothing is computed."""
    first = min(waiting, key=lambda each: each.number).seen
    words = f"nothing is computed, and {counted(len(waiting), 'request')} wait{'s' * (len(waiting) == 1)}."
    if first.limit > load.room:
        return words
    need = f"Request {first.number} is first in line: it needs {first.tokens} tokens, and all {load.room} are free."
    return f"{words} {need} What are the free tokens kept for?"


def _called(
    schedule: Schedule, queue: list[Job], running: list[Job], load: Load
) -> tuple[list[Job], list[Job]]:
    """Return the batch and the refused. Raises LabError for anything else."""
    known = {each.number: each for each in (*queue, *running)}
    seen = [[each.seen for each in jobs] for jobs in (queue, running)]
    with explained("schedule"):
        found = schedule(*seen, load.room, load.most)
    try:
        batch, refused = ([int(each) for each in numbers] for numbers in found)
    except (TypeError, ValueError, OverflowError):  # the last for infinity
        text = repr(found)[:80]
        words = "expected two lists of numbers, the batch and what is refused."
        raise LabError(f"schedule returns {text}: {words}") from None
    twice = [each for each in known if (batch + refused).count(each) > 1]
    strange = [each for each in batch + refused if each not in known]
    for numbers, what in ((twice, "named twice"), (strange, "neither in the queue nor running")):
        if numbers:
            raise LabError(f"schedule returns request {numbers[0]}, which is {what}.")
    return [known[each] for each in batch], [known[each] for each in refused]


class Decision(NamedTuple):
    """What a scheduler was given, and what it returned; left: those that are not in the batch, and not refused."""

    queue: list[Job]
    running: list[Job]
    batch: list[Job]
    refused: list[Job]

    @property
    def left(self) -> list[Job]:
        """In the order of arrival."""
        out = (*self.batch, *self.refused)
        left = [each for each in (*self.running, *self.queue) if each not in out]
        return sorted(left, key=lambda each: each.number)


def _judge(done: Driven, load: Load, made: Decision) -> None:
    """Remember which laws a step breaks."""
    need, left = sum(each.seen.tokens for each in made.batch), made.left
    if need > load.room:
        words = (
            f"{len(made.batch)} sequences need {need} tokens of cache, and there are {load.room}."
        )
        grown = all(each in made.running for each in made.batch)
        why = (
            "Every sequence grows by one token per step."
            if grown
            else "What do the sequences in the batch need?"
        )
        done.breaks(FITS, f"{words} {why}")
    if len(made.batch) > load.most:
        done.breaks(FITS, f"{len(made.batch)} sequences in a batch of at most {load.most}.")
    _judge_refusals(done, load, made)
    last = max((each.number for each in made.batch), default=-1)
    if left and left[0].number < last:
        lost = "loses its cache" if left[0] in made.running else "waits"
        words = f"request {left[0].number} {lost}, and request {last}, which came later,"
        why = "Requests behind one that does not fit have to wait as well."
        if left[0] in made.running:
            why = "When the cache is full, which sequence has to leave?"
        done.breaks(ORDER, f"{words} is in the batch. {why}")
    if left and len(made.batch) < load.most:
        _judge_free(done, load, made.running, left[0], load.room - need)


def _judge_refusals(done: Driven, load: Load, made: Decision) -> None:
    room = f"and the cache has {load.room}"
    for each in made.refused:
        if each.seen.limit <= load.room:
            most = f"{each.seen.limit} tokens at most, {room}."
            done.breaks(ENDS, f"request {each.number} is refused: {most} Could it wait?")
    for each in made.batch:
        if each.seen.limit > load.room and each in made.queue:
            grown = f"it can grow to {each.seen.limit} tokens, {room}."
            done.breaks(ENDS, f"request {each.number} is admitted: {grown} What happens then?")
    first = next(iter(made.left), None)
    if (
        first
        and first.seen.limit > load.room
        and not any(each.number < first.number for each in made.batch)
    ):
        grown = f"it can grow to {first.seen.limit} tokens, {room}."
        done.breaks(
            ENDS,
            f"request {first.number} waits at the head of the queue: {grown} How long will it wait?",
        )


def _judge_free(done: Driven, load: Load, running: list[Job], first: Job, free: int) -> None:
    """Whether the first that is not in the batch would fit."""
    tokens = first.seen.tokens
    if first in running and tokens <= free:
        words = f"request {first.number} loses its cache; it needs {tokens} tokens, and {free} are"
        done.breaks(WORK, f"{words} free. When does a sequence have to leave?")
    elif first.seen.limit <= load.room and tokens <= free - SLACK * load.room:
        words = f"request {first.number} waits; it needs {tokens} tokens, and {free} are free."
        done.breaks(WORK, f"{words} What is it waiting for?")


def _apply(
    done: Driven, queue: list[Job], running: list[Job], batch: list[Job], refused: list[Job]
) -> tuple[list[Job], list[Job]]:
    """Return the queue and the running after a step."""
    done.refused += len(refused)
    for each in batch:
        new = each not in running
        done.computed += each.seen.tokens if new else 1
        done.again += each.seen.tokens - 1 if new and each.made else 0  # the last one is new
    out = [each for each in running if each not in batch and each not in refused]
    done.preempted += len(out)
    stay = [each for each in queue if each not in batch and each not in refused]
    for each in batch:
        each.made += 1
    done.answered += sum(each.made == each.answer for each in batch)
    back = sorted(stay + out, key=lambda each: each.number)
    return back, [each for each in batch if each.made < each.answer]


def schedule_findings(schedule: Schedule, loads: Sequence[Load]) -> list[Finding]:
    """Return what holds for a scheduler."""
    laws, results = (FITS, ORDER, WORK, ENDS, WASTE), []
    for load in loads:
        try:
            results.append(driven(schedule, load))
        except (LabError, Endless) as error:
            return [broken(FITS, str(error)), *map(later, laws[1:])]
    wrong: dict[str, str] = {}
    for each in results:
        wrong = each.wrong | wrong
    answered, refused, preempted = (
        sum(getattr(each, name) for each in results)
        for name in ("answered", "refused", "preempted")
    )
    words = {
        FITS: f"{sum(each.steps for each in results):,} steps, none above its room.",
        ORDER: f"{counted(preempted, 'preemption')}, always of the sequence that came last.",
        WORK: "The first in the queue is admitted as soon as there is room.",
        ENDS: f"{answered} answered, {refused} refused.",
    }
    found = [broken(law, wrong[law]) if law in wrong else kept(law, words[law]) for law in words]
    if wrong:
        return [*found, later(WASTE)]
    return [*found, _waste(results)]


def _waste(results: Sequence[Driven]) -> Finding:
    again, computed = sum(one.again for one in results), sum(one.computed for one in results)
    words = f"{again:,} of {computed:,} tokens, {again / computed:.0%}."
    if again <= AGAIN * computed:
        return kept(WASTE, words)
    why = (
        "A request that is admitted into the last free tokens loses its cache as soon as the others grow. How much"
        " has to be free in addition to its own tokens?"
    )
    return broken(WASTE, f"{words} {why}")
